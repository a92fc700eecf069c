//! From a layer's archive to a directory that overlayfs can stack.
//!
//! Everything is done relative to the descriptor of the layer's root with `openat2`, so that no name, link or earlier
//! entry leads anywhere else: a link is followed as a process with this root would follow it, and never out of it.
//! Whiteouts become what overlayfs understands: a 0/0 character device for a name, an attribute for a directory that
//! hides everything below.
//!
//! A layer depends on those below it in two ways: directories that it goes through without naming them get the owner
//! and mode they have below, and hard links may point to a file below. Hence layers are kept by their chain, not by
//! their own digest alone.

mod lower;
mod place;
mod root;

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, Timespec, Timestamps};

use crate::compress::decompress;
use crate::digest::{Digest, HashingReader};
use crate::error::{At, Error, Fault, Step};
use crate::limits::{Budget, Metered};
use crate::tar::{Entry, Kind, Reader};
use lower::Lowers;
use place::{Name, Whiteout};
use root::Root;

/// A layer to unpack.
pub(crate) struct Layer<'a> {
    /// what to call it in messages
    pub(crate) what: &'a str,
    /// digest of the uncompressed archive
    pub(crate) diff_id: &'a Digest,
    /// an empty directory that becomes the layer's root
    pub(crate) into: &'a Path,
    /// the roots of the layers below, topmost first
    pub(crate) below: &'a [PathBuf],
}

/// Unpacks one layer. On any error the directory holds something half done, which the caller removes.
pub(crate) fn unpack(archive: impl Read, layer: &Layer<'_>, budget: &Budget) -> Result<(), Error> {
    let stream = decompress(archive).step("read").map_err(|fault| fault.in_entry(layer.what, b"offset 0"))?;
    let mut hashing = HashingReader::new(Metered::new(stream, budget.clone()));
    let mut unpacking = Unpacking {
        root: Root::open(layer.into).at("open", layer.into)?,
        lowers: Lowers(layer.below),
        budget,
        directory_times: BTreeMap::new(),
    };
    unpacking.inherit_root().at("set up", layer.into)?;
    let mut reader = Reader::new(&mut hashing);
    loop {
        let result = reader.next_entry().and_then(|entry| match entry {
            Some(entry) => unpacking.place(&entry, &mut reader).map(|()| true),
            None => Ok(false),
        });
        match result {
            Ok(true) => {}
            Ok(false) => break,
            Err(fault) => return Err(fault.in_entry(layer.what, reader.place())),
        }
    }
    let found = hashing.finish().step("read").map_err(|fault| fault.in_entry(layer.what, b"the end"))?;
    layer.diff_id.expect(&found, format!("{}: digest of the uncompressed layer", layer.what))?;
    unpacking.set_directory_times().at("set times in", layer.into)
}

/// Whether a layer's root hides everything below. overlayfs looks at directories within layers only, not at their roots.
pub(crate) fn is_opaque(root: impl AsFd) -> bool {
    let mut mark = [0; 4];
    rustix::fs::fgetxattr(root, lower::OPAQUE_ATTRIBUTE, &mut mark[..]).is_ok()
}

/// A layer on the way.
struct Unpacking<'a> {
    root: Root,
    lowers: Lowers<'a>,
    budget: &'a Budget,
    /// Times of directories are set last, because every file made in them changes them.
    directory_times: BTreeMap<Name, (i64, u32)>,
}

// === impl Unpacking ===

impl Unpacking<'_> {
    /// A layer that says nothing about the root keeps the one below.
    fn inherit_root(&mut self) -> std::io::Result<()> {
        match self.lowers.find(&Name::root()) {
            Some(below) => self.root.copy_directory(&Name::root(), &below),
            None => self.root.set_mode(&Name::root(), Mode::from_raw_mode(0o755)),
        }
    }

    fn place(&mut self, entry: &Entry, content: &mut impl Read) -> Result<(), Fault> {
        self.budget.pay_entry().step("look at the disk")?;
        let name = Name::parse(&entry.name)?;
        if name.is_root() {
            if entry.kind != Kind::Directory {
                return Err(Fault::Name);
            }
            self.root.set_attributes(&name, entry)?;
            self.directory_times.insert(name, entry.mtime);
            return Ok(());
        }
        self.make_parents(&name)?;
        match name.whiteout()? {
            Some(Whiteout::Ignored) => return Ok(()),
            Some(Whiteout::Opaque) => return self.root.make_opaque(&name.parent()),
            Some(Whiteout::Of(hidden)) => return self.root.hide(&hidden),
            None => {}
        }
        match entry.kind {
            Kind::Directory => {
                self.root.make_directory(&name)?;
                self.root.set_attributes(&name, entry)?;
                self.directory_times.insert(name, entry.mtime);
            }
            Kind::File => self.make_file(&name, entry, content)?,
            Kind::Symlink => self.root.make_symlink(&name, entry)?,
            Kind::HardLink => self.make_hard_link(&name, entry)?,
            Kind::CharDevice | Kind::BlockDevice | Kind::Fifo => self.root.make_node(&name, entry)?,
        }
        Ok(())
    }

    /// Makes the directories above an entry that the layer did not name, as they are in the layers below.
    fn make_parents(&mut self, name: &Name) -> Result<(), Fault> {
        if self.root.is_reached(&name.parent())? {
            return Ok(());
        }
        for parent in name.ancestors() {
            if self.root.is_reached(&parent)? {
                continue;
            }
            self.budget.pay_entry().step("look at the disk")?;
            let was_hidden = self.root.make_directory(&parent)?;
            match self.lowers.find(&parent).filter(|below| !was_hidden && below.is_directory()) {
                Some(below) => {
                    self.root.copy_directory(&parent, &below).step("copy the directory below")?;
                    self.directory_times.insert(parent, below.mtime());
                }
                None => self.root.set_mode(&parent, Mode::from_raw_mode(0o755)).step("set mode")?,
            }
        }
        Ok(())
    }

    fn make_file(&mut self, name: &Name, entry: &Entry, content: &mut impl Read) -> Result<(), Fault> {
        let stored: u64 = entry.extents.iter().map(|extent| extent.length).sum();
        // Stored bytes are paid as they are read; holes are paid here.
        self.budget.pay_bytes(entry.size - stored.min(entry.size))?;
        self.root.make_file(name, entry, content)
    }

    fn make_hard_link(&mut self, name: &Name, entry: &Entry) -> Result<(), Fault> {
        let refused = |reason| Fault::HardLink { target: String::from_utf8_lossy(&entry.link).into_owned(), reason };
        let target = Name::parse(&entry.link).map_err(|_| refused("it leads out of the root"))?;
        if target.is_root() || target == *name {
            return Err(refused("it is not a file"));
        }
        match self.root.kind_of(&target)? {
            Some(rustix::fs::FileType::Directory) => return Err(refused("it is a directory")),
            Some(_) => return self.root.make_hard_link(name, &target),
            None => {}
        }
        let Some(below) = self.lowers.find(&target) else { return Err(refused("it is not in the image")) };
        if self.root.copy_file(name, &below, self.budget)? { Ok(()) } else { Err(refused("it is not a file")) }
    }

    fn set_directory_times(&self) -> std::io::Result<()> {
        for (name, mtime) in &self.directory_times {
            self.root.set_directory_time(name, &timestamps(*mtime))?;
        }
        Ok(())
    }
}

/// Both times of a file are those of the archive, so that two machines unpack the same.
fn timestamps((seconds, nanoseconds): (i64, u32)) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds) };
    Timestamps { last_access: time, last_modification: time }
}
