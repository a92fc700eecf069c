//! A reader of untrusted tar archives.
//!
//! The input is an untrusted stream of bytes; the output are entries with checked fields, and their content. Every
//! allocation is bounded: names, extended headers and sparse maps have their own limits, content is never held in
//! memory. A truncated archive, a wrong checksum and data after the end are errors that name the position.

mod extended;
mod header;
mod sparse;

use std::collections::BTreeMap;
use std::io::{self, Read};

use crate::error::Fault;
use extended::Extended;
use header::{BLOCK, Header};
use sparse::Extent;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink,
    HardLink,
    CharDevice,
    BlockDevice,
    Fifo,
}

/// One entry with all its headers folded together.
#[derive(Debug)]
pub(crate) struct TarEntry {
    pub(crate) name: Vec<u8>,
    /// what a link points to
    pub(crate) link: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// seconds since 1970 and nanoseconds
    pub(crate) mtime: (i64, u32),
    /// the file's size, holes counted
    pub(crate) size: u64,
    pub(crate) xattrs: BTreeMap<String, Vec<u8>>,
    /// major and minor number
    pub(crate) device: (u32, u32),
    /// where the content goes; all of a file that is not sparse is one extent
    pub(crate) extents: Vec<Extent>,
}

/// The entries of an archive, one at a time. Reading from it gives the content of the current entry.
pub(crate) struct Reader<R> {
    source: R,
    position: u64,
    /// content of the current entry that was not read yet
    content: u64,
    /// zeros up to the next block behind the content
    padding: u64,
    ended: bool,
    /// name of the current entry, or where the next one would begin; for messages
    place: Vec<u8>,
}

/// Names are at most a page on Linux; this leaves room for those that are refused by name.
const LONGEST_NAME: u64 = 64 * 1024;
/// An extended header holds names and attributes; attributes are at most 64 KiB each on Linux.
const LONGEST_EXTENDED: u64 = 1024 * 1024;

// === impl Reader ===

impl<R: Read> Reader<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source, position: 0, content: 0, padding: 0, ended: false, place: b"offset 0".to_vec() }
    }

    /// The name of the entry that is being read, or where the next one would begin.
    pub(crate) fn place(&self) -> &[u8] {
        &self.place
    }

    /// Goes on to the next entry. After the last one, everything that follows must be zeros.
    pub(crate) fn next_entry(&mut self) -> Result<Option<TarEntry>, Fault> {
        if self.ended {
            return Ok(None);
        }
        self.skip_rest()?;
        let mut extended = Extended::default();
        let mut announced = false;
        loop {
            self.place = format!("offset {}", self.position).into_bytes();
            let Some(block) = self.read_block()? else {
                self.ended = true;
                return if announced { Err(Fault::Truncated) } else { Ok(None) };
            };
            if block.iter().all(|byte| *byte == 0) {
                self.ended = true;
                self.expect_zeros()?;
                return if announced { Err(Fault::Truncated) } else { Ok(None) };
            }
            let header = Header::parse(&block)?;
            match header.kind {
                b'L' => extended.set_long_name(self.read_extra(header.size()?, LONGEST_NAME)?)?,
                b'K' => extended.set_long_link(self.read_extra(header.size()?, LONGEST_NAME)?)?,
                b'x' => extended.set_pax(&self.read_extra(header.size()?, LONGEST_EXTENDED)?)?,
                b'g' => {
                    // Global headers are comments in practice. No known builder puts more into them.
                    self.read_extra(header.size()?, LONGEST_EXTENDED)?;
                    continue;
                }
                _ => return self.finish_entry(&header, extended).map(Some),
            }
            announced = true;
        }
    }

    fn finish_entry(&mut self, header: &Header<'_>, mut extended: Extended) -> Result<TarEntry, Fault> {
        let name = extended.name.take().unwrap_or_else(|| header.name());
        self.place.clone_from(&name);
        let link = extended.link.take().unwrap_or_else(|| header.link());
        if name.contains(&0) || link.contains(&0) {
            return Err(Fault::Name);
        }
        let kind = kind_of(header.kind, &name)?;
        let stored = extended.size.map_or_else(|| header.size(), Ok)?;
        if kind != Kind::File && stored > 0 {
            return Err(Fault::Content { kind: kind.describe(), size: stored });
        }
        self.content = stored;
        self.padding = stored.wrapping_neg() % BLOCK as u64;
        let (size, extents) = self.find_extents(header, &extended, stored)?;
        Ok(TarEntry {
            kind,
            mode: header.mode()?,
            uid: extended.uid.map_or_else(|| header.uid(), Ok)?,
            gid: extended.gid.map_or_else(|| header.gid(), Ok)?,
            mtime: extended.mtime.map_or_else(|| header.mtime(), Ok)?,
            device: if matches!(kind, Kind::CharDevice | Kind::BlockDevice) { header.device()? } else { (0, 0) },
            xattrs: std::mem::take(&mut extended.xattrs),
            name,
            link,
            size,
            extents,
        })
    }

    /// Where the stored bytes belong in the file. Sparse files come in an old form and in one with extended headers.
    fn find_extents(
        &mut self,
        header: &Header<'_>,
        extended: &Extended,
        stored: u64,
    ) -> Result<(u64, Vec<Extent>), Fault> {
        let (size, extents) = if header.kind == b'S' {
            let (size, mut extents, mut more) = header.sparse()?;
            while more {
                if extents.len() > sparse::MOST_EXTENTS {
                    return Err(Fault::Sparse("too many parts"));
                }
                let block = self.read_block()?.ok_or(Fault::Truncated)?;
                more = header::sparse_continuation(&block, &mut extents)?;
            }
            (size, extents)
        } else if let Some(size) = extended.sparse_size {
            let extents = match &extended.sparse_map {
                Some(map) => sparse::parse_list(map)?,
                None => sparse::read_leading_map(self)?,
            };
            (size, extents)
        } else {
            return Ok((stored, vec![Extent { offset: 0, length: stored }]));
        };
        sparse::check(&extents, size, self.content)?;
        Ok((size, extents))
    }

    /// Content of a header that describes the next one.
    fn read_extra(&mut self, size: u64, most: u64) -> Result<Vec<u8>, Fault> {
        if size > most {
            return Err(Fault::Extended("too long"));
        }
        self.content = size;
        self.padding = size.wrapping_neg() % BLOCK as u64;
        let mut extra = Vec::new();
        self.read_to_end(&mut extra).map_err(|error| Fault::from_io("read", error))?;
        self.skip_rest()?;
        Ok(extra)
    }

    fn skip_rest(&mut self) -> Result<(), Fault> {
        let rest = self.content + self.padding;
        (self.content, self.padding) = (0, 0);
        let skipped = io::copy(&mut self.source.by_ref().take(rest), &mut io::sink());
        let skipped = skipped.map_err(|error| Fault::from_io("read", error))?;
        self.position += skipped;
        if skipped < rest { Err(Fault::Truncated) } else { Ok(()) }
    }

    fn read_block(&mut self) -> Result<Option<[u8; BLOCK]>, Fault> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match self.source.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(Fault::Truncated),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Fault::from_io("read", error)),
            }
        }
        self.position += BLOCK as u64;
        Ok(Some(block))
    }

    fn expect_zeros(&mut self) -> Result<(), Fault> {
        let mut buffer = [0; 8192];
        loop {
            match self.source.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) if buffer[..count].iter().all(|byte| *byte == 0) => self.position += count as u64,
                Ok(_) => return Err(Fault::TrailingData),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Fault::from_io("read after the end", error)),
            }
        }
    }
}

impl<R: Read> Read for Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.content).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let count = self.source.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.content -= count as u64;
        self.position += count as u64;
        Ok(count)
    }
}

// === impl Kind ===

impl Kind {
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Symlink => "symbolic link",
            Self::HardLink => "hard link",
            Self::CharDevice | Self::BlockDevice => "device",
            Self::Fifo => "named pipe",
        }
    }
}

fn kind_of(flag: u8, name: &[u8]) -> Result<Kind, Fault> {
    Ok(match flag {
        // Archives from before there was a type for directories end their names with a slash.
        b'0' | 0 if name.ends_with(b"/") => Kind::Directory,
        b'0' | 0 | b'7' | b'S' => Kind::File,
        b'1' => Kind::HardLink,
        b'2' => Kind::Symlink,
        b'3' => Kind::CharDevice,
        b'4' => Kind::BlockDevice,
        b'5' => Kind::Directory,
        b'6' => Kind::Fifo,
        other => return Err(Fault::Type(char::from(other))),
    })
}

#[cfg(test)]
mod tests;
