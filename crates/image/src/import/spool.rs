//! The files of an archive, spooled under numbers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::ARCHIVE;
use crate::compress::decompress;
use crate::error::{At, Error, Fault, Step};
use crate::limits::{Budget, Metered};
use crate::manifest::LARGEST_DOCUMENT;
use crate::tar::{Kind, Reader};

/// What an archive holds, by name.
pub(super) struct Spool {
    members: BTreeMap<String, Member>,
    /// bytes of all names that were read
    names: usize,
}

enum Member {
    File(PathBuf),
    /// another name; old archives store a layer that occurs twice like this
    Link(String),
}

/// The limit on links to links, which detects loops.
const MOST_LINKS: usize = 8;
/// Names are kept in memory. A hundred images of a hundred layers have some 20,000 names of 80 bytes.
const MOST_NAMES: usize = 8 * 1024 * 1024;
/// The memory that a name costs besides its bytes.
const NAME_COST: usize = 128;

/// `./a/../b` as `b`. Names that go above the top end there: they are keys, not paths.
fn normalise(name: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

// === impl Spool ===

impl Spool {
    pub(super) fn read(archive: impl Read, directory: &Path, budget: &Budget) -> Result<Self, Error> {
        let stream = decompress(archive).step("read").map_err(|fault| fault.in_entry(ARCHIVE, b"offset 0"))?;
        let mut reader = Reader::new(Metered::new(stream, budget.clone()));
        let mut spool = Self { members: BTreeMap::new(), names: 0 };
        let mut count = 0u64;
        loop {
            let path = directory.join(count.to_string());
            let result = reader.next_entry().and_then(|entry| match entry {
                Some(entry) => spool.take(&entry, &mut reader, path, budget).map(|()| true),
                None => Ok(false),
            });
            match result {
                Ok(true) => count += 1,
                Ok(false) => return Ok(spool),
                Err(fault) => return Err(fault.in_entry(ARCHIVE, reader.place())),
            }
        }
    }

    fn take(
        &mut self,
        entry: &crate::tar::TarEntry,
        content: &mut impl Read,
        path: PathBuf,
        budget: &Budget,
    ) -> Result<(), Fault> {
        budget.pay_entry().step("check the free space")?;
        let name = normalise(std::str::from_utf8(&entry.name).map_err(|_| Fault::Name)?);
        let link = || std::str::from_utf8(&entry.link).map_err(|_| Fault::Name);
        self.names += entry.name.len() + entry.link.len() + NAME_COST;
        if self.names > MOST_NAMES {
            return Err(Fault::Names(MOST_NAMES));
        }
        let member = match entry.kind {
            Kind::Directory => return Ok(()),
            Kind::File => {
                if entry.extents.len() > 1 {
                    return Err(Fault::Sparse("not allowed here"));
                }
                let mut file = File::create(&path).step("make file")?;
                io::copy(content, &mut file).step("copy")?;
                Member::File(path)
            }
            Kind::HardLink => Member::Link(normalise(link()?)),
            Kind::Symlink => {
                let parent = name.rsplit_once('/').map_or("", |(parent, _)| parent);
                Member::Link(normalise(&format!("{parent}/{}", link()?)))
            }
            Kind::CharDevice => return Err(Fault::Type('3')),
            Kind::BlockDevice => return Err(Fault::Type('4')),
            Kind::Fifo => return Err(Fault::Type('6')),
        };
        if let Some(Member::File(replaced)) = self.members.insert(name, member) {
            std::fs::remove_file(replaced).step("replace")?;
        }
        Ok(())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.members.contains_key(&normalise(name))
    }

    fn resolve(&self, name: &str) -> Result<&Path, Error> {
        let missing =
            || Error::Image { what: ARCHIVE.to_owned(), reason: format!("{name} is missing from the archive") };
        let mut key = normalise(name);
        for _ in 0..MOST_LINKS {
            match self.members.get(&key).ok_or_else(missing)? {
                Member::File(path) => return Ok(path),
                Member::Link(target) => key.clone_from(target),
            }
        }
        Err(missing())
    }

    pub(super) fn open(&self, name: &str) -> Result<File, Error> {
        let path = self.resolve(name)?;
        File::open(path).at("open", path)
    }

    /// Reads a member that has to fit into memory.
    pub(super) fn read_document(&self, name: &str) -> Result<Vec<u8>, Error> {
        let mut content = Vec::new();
        self.open(name)?.take(LARGEST_DOCUMENT + 1).read_to_end(&mut content).at("read", name)?;
        if content.len() as u64 > LARGEST_DOCUMENT {
            let reason = format!("larger than {LARGEST_DOCUMENT} bytes");
            return Err(Error::Image { what: format!("{ARCHIVE}: {name}"), reason });
        }
        Ok(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_without_detours() {
        for (name, plain) in [("./index.json", "index.json"), ("a//b/./c", "a/b/c"), ("a/../../b", "b"), ("/a", "a")] {
            assert_eq!(normalise(name), plain);
        }
    }
}
