//! Looking a name up in the layers below, as the overlay of them and of the layer that is being unpacked would show it.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::place::Name;
use crate::tree::DIRECTORY;

/// The attribute by which a directory hides what is below it.
pub(super) const OPAQUE_ATTRIBUTE: &str = "trusted.overlay.opaque";

/// Marks a directory that its layer has not named, and that has owner, mode and attributes of the one below it. overlayfs shows
/// no attribute that begins like its own.
pub(super) const INHERITED_ATTRIBUTE: &str = "trusted.overlay.keelet.inherited";

/// The layers below.
pub(super) struct Lowers<'a> {
    /// the root of the layer that is being unpacked: what it hides is not visible to it either
    pub(super) own: &'a Path,
    /// the roots of those below, topmost first. They are opened when asked: there may be hundreds
    pub(super) below: &'a [PathBuf],
}

/// A file or directory that the layers below show under a name.
pub(super) struct Below {
    directory: OwnedFd,
    name: Vec<u8>,
    pub(super) stat: Stat,
}

/// What one layer says about a name.
enum Answer {
    Found(Below),
    /// look further down
    Nothing,
    /// nothing further down is visible
    Hidden,
}

/// Whether a file is the mark of something hidden.
pub(super) fn is_whiteout(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
}

fn look_up(layer: &Path, name: &Name<'_>) -> Result<Answer, Errno> {
    let directory = rustix::fs::openat(CWD, layer, DIRECTORY, Mode::empty())?;
    let stat = rustix::fs::fstat(&directory)?;
    let mut found = Below { directory, name: b".".to_vec(), stat };
    let mut opaque = false;
    for part in name.parts() {
        if !found.is_directory() {
            return Ok(Answer::Hidden);
        }
        let directory = found.open(DIRECTORY)?;
        let mut mark = [0; 4];
        opaque |= rustix::fs::fgetxattr(&directory, OPAQUE_ATTRIBUTE, &mut mark[..]).is_ok();
        let stat = match rustix::fs::statat(&directory, part, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(if opaque { Answer::Hidden } else { Answer::Nothing }),
            stat => stat?,
        };
        if is_whiteout(&stat) {
            return Ok(Answer::Hidden);
        }
        found = Below { directory, name: part.to_vec(), stat };
    }
    Ok(Answer::Found(found))
}

// === impl Below ===

impl Below {
    /// Opens the file itself, never what a link points to.
    pub(super) fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.directory, self.name.as_slice(), flags, Mode::empty())
    }

    pub(super) fn read_link(&self) -> Result<CString, Errno> {
        rustix::fs::readlinkat(&self.directory, self.name.as_slice(), Vec::new())
    }

    pub(super) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind() == FileType::Directory
    }

    pub(super) fn mtime(&self) -> (i64, u32) {
        (self.stat.st_mtime, u32::try_from(self.stat.st_mtime_nsec).unwrap_or(0))
    }
}

// === impl Lowers ===

impl Lowers<'_> {
    /// The file or directory that is visible under this name, which the layer itself does not have. A failed lookup
    /// counts as absent.
    pub(super) fn find(&self, name: &Name<'_>) -> Option<Below> {
        if !matches!(look_up(self.own, name), Ok(Answer::Nothing)) {
            return None;
        }
        self.find_below(name)
    }

    /// The root of the layer below, which nothing hides from an empty layer.
    pub(super) fn find_root(&self) -> Option<Below> {
        self.find_below(&Name::root())
    }

    fn find_below(&self, name: &Name<'_>) -> Option<Below> {
        for layer in self.below {
            match look_up(layer, name) {
                Ok(Answer::Found(file)) => return Some(file),
                Ok(Answer::Nothing) => {}
                Ok(Answer::Hidden) | Err(_) => return None,
            }
        }
        None
    }
}
