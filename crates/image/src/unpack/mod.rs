//! From a layer's archive to a directory that overlayfs can stack.
//!
//! Everything is done relative to the descriptor of the layer's root with `openat2`, so that no name, link or earlier
//! entry leads anywhere else: a link is followed as a process with this root would follow it, and never out of it.
//! Whiteouts become what overlayfs understands: a 0/0 character device for a name, an attribute for a directory that
//! hides everything below.
//!
//! Memory does not grow with what a layer holds: nothing is remembered from one entry to the next, and every entry is bounded. What
//! has to be known of a directory later is an attribute of it.
//!
//! A layer depends on those below it in two ways: directories that it goes through without naming them get the owner
//! and mode they have below, and hard links may point to a file below. Hence layers are kept by their chain, not by
//! their own digest alone.

mod lower;
mod place;
mod root;

use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, Timespec, Timestamps};

use crate::compress::decompress;
use crate::digest::{Digest, HashingReader};
use crate::error::{At, Error, Fault, Step};
use crate::limits::{Budget, Metered};
use crate::tar::{Kind, Reader, TarEntry};
use lower::{Below, Lowers};
use place::{Name, Whiteout};
use root::{DISINHERIT, Root, Spot, copy_directory, disinherit, inherit, set_all};

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
        lowers: Lowers { own: layer.into, below: layer.below },
        budget,
        buffer: vec![0; 128 * 1024],
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
    layer.diff_id.expect(&found, format!("{}: digest of the uncompressed layer", layer.what))
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
    /// on the way from the archive to a file
    buffer: Vec<u8>,
}

// === impl Unpacking ===

impl Unpacking<'_> {
    /// A layer that says nothing about the root keeps the one below.
    fn inherit_root(&mut self) -> std::io::Result<()> {
        match self.lowers.find_root() {
            Some(below) => copy_directory(&below, self.root.descriptor()),
            None => Ok(rustix::fs::fchmod(self.root.descriptor(), Mode::from_raw_mode(0o755))?),
        }
    }

    fn place(&mut self, entry: &TarEntry, content: &mut impl Read) -> Result<(), Fault> {
        self.budget.pay_entry().step("check the free space")?;
        let name = Name::parse(&entry.name)?;
        if name.is_root() {
            if entry.kind != Kind::Directory {
                return Err(Fault::Name);
            }
            return set_all(self.root.descriptor(), entry);
        }
        let whiteout = name.whiteout()?;
        let spot = self.spot(&name)?;
        match whiteout {
            Some(Whiteout::Ignored) => {}
            Some(Whiteout::Opaque) => spot.make_opaque(self.budget)?,
            Some(Whiteout::Of(hidden)) => spot.hide(&hidden, self.budget)?,
            None => self.make(&spot, &name, entry, content)?,
        }
        spot.keep_times()
    }

    fn make(&mut self, spot: &Spot, name: &Name<'_>, entry: &TarEntry, content: &mut impl Read) -> Result<(), Fault> {
        match entry.kind {
            Kind::Directory => {
                let directory = spot.make_directory()?;
                disinherit(&directory).step(DISINHERIT)?;
                set_all(directory, entry)
            }
            Kind::File => self.make_file(spot, entry, content),
            Kind::Symlink => spot.make_symlink(entry),
            Kind::HardLink => self.make_hard_link(spot, name, entry),
            Kind::CharDevice | Kind::BlockDevice | Kind::Fifo => spot.make_node(entry, self.budget),
        }
    }

    /// Where an entry goes. Directories above it that the layer did not name are made as they are in the layers below.
    fn spot(&mut self, name: &Name<'_>) -> Result<Spot, Fault> {
        if let Some(spot) = self.root.find_spot(name)? {
            return Ok(spot);
        }
        let ancestors = name.ancestors();
        let there = ancestors.partition_point(|ancestor| self.root.has_directory(ancestor));
        let (mut directory, mut is_below) = (None, true);
        for missing in &ancestors[there..] {
            self.budget.pay_entry().step("check the free space")?;
            let spot = match directory.take() {
                None => self.root.free_spot(missing)?,
                Some(above) => Spot::new(above, missing.last())?,
            };
            // Nothing is below a directory that does not exist.
            let below = if is_below { self.lowers.find(missing).filter(Below::is_directory) } else { None };
            is_below = below.is_some();
            let made = spot.make_directory()?;
            match below {
                Some(below) => inherit(&below, &made)?,
                None => rustix::fs::fchmod(&made, Mode::from_raw_mode(0o755)).step("set mode")?,
            }
            spot.keep_times()?;
            directory = Some(made);
        }
        match directory {
            Some(above) => Spot::new(above, name.last()),
            None => self.root.spot(name),
        }
    }

    fn make_file(&mut self, spot: &Spot, entry: &TarEntry, content: &mut impl Read) -> Result<(), Fault> {
        let stored: u64 = entry.extents.iter().map(|extent| extent.length).sum();
        // Stored bytes are paid as they are read; holes are paid here.
        self.budget.pay_bytes(entry.size - stored.min(entry.size))?;
        spot.make_file(entry, content, &mut self.buffer)
    }

    fn make_hard_link(&mut self, spot: &Spot, name: &Name<'_>, entry: &TarEntry) -> Result<(), Fault> {
        let refused = |reason| Fault::HardLink { target: String::from_utf8_lossy(&entry.link).into_owned(), reason };
        let target = Name::parse(&entry.link).map_err(|_| refused("it escapes the root"))?;
        if target.is_root() || target == *name {
            return Err(refused("it is not a file"));
        }
        match self.root.kind_of(&target)? {
            Some(rustix::fs::FileType::Directory) => return Err(refused("it is a directory")),
            Some(_) => return spot.make_hard_link(&self.root.spot(&target)?),
            None => {}
        }
        let Some(below) = self.lowers.find(&target) else { return Err(refused("it is not in the image")) };
        if spot.copy_file(&below, self.budget, &mut self.buffer)? { Ok(()) } else { Err(refused("it is not a file")) }
    }
}

/// Both times of a file are those of the archive, so that two machines unpack the same.
fn timestamps((seconds, nanoseconds): (i64, u32)) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds) };
    Timestamps { last_access: time, last_modification: time }
}
