//! The directory that a layer becomes. Every operation takes a checked name and stays below the root.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::lower::{Below, OPAQUE_ATTRIBUTE, is_whiteout};
use super::place::Name;
use super::timestamps;
use crate::error::{Fault, Step};
use crate::limits::Budget;
use crate::tar::{Entry, Kind};
use crate::tree::{DIRECTORY, open_directory, remove_at};

/// The root of a layer that is being unpacked.
pub(super) struct Root {
    root: OwnedFd,
    buffer: Vec<u8>,
}

/// What to do with an extended attribute of an archive.
enum Policy {
    Set,
    /// meant for the machine it came from: labels of security modules, signatures
    Skip,
    Refuse,
}

fn policy(attribute: &str) -> Policy {
    if attribute.starts_with("trusted.") || attribute.starts_with("user.overlay.") {
        // They steer overlayfs: an archive could make files of other layers appear.
        return Policy::Refuse;
    }
    let is_set = attribute == "security.capability"
        || attribute.starts_with("user.")
        || attribute.starts_with("system.posix_acl_");
    if is_set { Policy::Set } else { Policy::Skip }
}

fn c_string(part: &[u8]) -> Result<CString, Fault> {
    CString::new(part).map_err(|_| Fault::Name)
}

/// Owner, attributes, mode and times, in the order in which none undoes another: a change of owner clears set-id bits
/// and capabilities.
fn set_all(file: impl AsFd, entry: &Entry) -> Result<(), Fault> {
    let file = file.as_fd();
    rustix::fs::fchown(file, Some(Uid::from_raw(entry.uid)), Some(Gid::from_raw(entry.gid))).step("set owner")?;
    for (attribute, value) in &entry.xattrs {
        match policy(attribute) {
            Policy::Skip => continue,
            Policy::Refuse => return Err(Fault::Attribute(attribute.clone())),
            Policy::Set => {}
        }
        match rustix::fs::fsetxattr(file, attribute.as_str(), value, XattrFlags::empty()) {
            // A disk without such attributes can still hold the file, but not a program that needs its capabilities.
            Err(Errno::OPNOTSUPP) if attribute != "security.capability" => {}
            result => result.step("set extended attribute")?,
        }
    }
    rustix::fs::fchmod(file, Mode::from_raw_mode(entry.mode)).step("set mode")?;
    rustix::fs::futimens(file, &timestamps(entry.mtime)).step("set times")
}

// === impl Root ===

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { root: open_directory(path)?, buffer: vec![0; 128 * 1024] })
    }

    /// Resolves a name to a directory as a process with this root would.
    fn directory(&self, name: &Name) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        loop {
            // EAGAIN: somebody else renamed something meanwhile and the kernel could not tell whether it matters.
            match rustix::fs::openat2(&self.root, name.path(), flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                result => return result,
            }
        }
    }

    fn parent(&self, name: &Name) -> Result<(OwnedFd, CString), Fault> {
        let parent = name.parent();
        let directory = self.directory(&parent).map_err(|error| match error {
            Errno::NOTDIR | Errno::LOOP | Errno::NOENT => {
                Fault::Parent { parent: String::from_utf8_lossy(&parent.path()).into_owned() }
            }
            error => Fault::Io { step: "open the directory", source: error.into() },
        })?;
        Ok((directory, c_string(name.last())?))
    }

    /// What has this name in the layer, links not followed.
    pub(super) fn kind_of(&self, name: &Name) -> Result<Option<FileType>, Fault> {
        let directory = match self.directory(&name.parent()) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            directory => directory.step("open the directory")?,
        };
        match rustix::fs::statat(&directory, name.last(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if is_whiteout(&stat) => Ok(None),
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(Fault::Io { step: "look up", source: error.into() }),
        }
    }

    /// Whether the name leads to a directory of this layer. Something else in the way is an error.
    pub(super) fn is_reached(&self, name: &Name) -> Result<bool, Fault> {
        match self.directory(name) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => match self.kind_of(name)? {
                None => Ok(false),
                Some(_) => Err(Fault::Parent { parent: String::from_utf8_lossy(&name.path()).into_owned() }),
            },
            Err(error) => Err(Fault::Io { step: "open the directory", source: error.into() }),
        }
    }

    /// Makes a directory, or keeps the one that is there. True if the layer had hidden the name before.
    pub(super) fn make_directory(&mut self, name: &Name) -> Result<bool, Fault> {
        let (parent, last) = self.parent(name)?;
        let mode = Mode::from_raw_mode(0o700);
        let hidden = match rustix::fs::statat(&parent, &last, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => false,
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => return Ok(false),
            Ok(stat) => {
                remove_at(&parent, &last).step("replace")?;
                is_whiteout(&stat)
            }
            Err(error) => return Err(Fault::Io { step: "look up", source: error.into() }),
        };
        rustix::fs::mkdirat(&parent, &last, mode).step("make directory")?;
        if hidden {
            self.make_opaque(name)?;
        }
        Ok(hidden)
    }

    pub(super) fn make_opaque(&self, name: &Name) -> Result<(), Fault> {
        let directory = self.directory(name).step("open the directory")?;
        rustix::fs::fsetxattr(&directory, OPAQUE_ATTRIBUTE, b"y", XattrFlags::empty()).step("make opaque")
    }

    /// Hides a name of the layers below. What this layer has under the name stays, whatever the order of entries.
    pub(super) fn hide(&self, name: &Name) -> Result<(), Fault> {
        let (parent, last) = self.parent(name)?;
        match rustix::fs::statat(&parent, &last, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {
                let mode = Mode::from_raw_mode(0);
                rustix::fs::mknodat(&parent, &last, FileType::CharacterDevice, mode, 0).step("make whiteout")
            }
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                let directory = rustix::fs::openat(&parent, &last, DIRECTORY, Mode::empty()).step("open")?;
                rustix::fs::fsetxattr(&directory, OPAQUE_ATTRIBUTE, b"y", XattrFlags::empty()).step("make opaque")
            }
            Ok(_) => Ok(()),
            Err(error) => Err(Fault::Io { step: "look up", source: error.into() }),
        }
    }

    pub(super) fn set_attributes(&self, name: &Name, entry: &Entry) -> Result<(), Fault> {
        set_all(self.open_itself(name).step("open")?, entry)
    }

    /// Opens a directory by its own name; only the way to it may go through links.
    fn open_itself(&self, name: &Name) -> Result<OwnedFd, Errno> {
        if name.is_root() {
            return self.directory(name);
        }
        let parent = self.directory(&name.parent())?;
        rustix::fs::openat(&parent, name.last(), DIRECTORY, Mode::empty())
    }

    pub(super) fn set_mode(&self, name: &Name, mode: Mode) -> io::Result<()> {
        Ok(rustix::fs::fchmod(self.open_itself(name)?, mode)?)
    }

    /// Gives a directory the owner, mode and attributes of the one below it.
    pub(super) fn copy_directory(&self, name: &Name, below: &Below) -> io::Result<()> {
        let directory = self.open_itself(name)?;
        copy_attributes(below, below.open(DIRECTORY)?, &directory)
    }

    pub(super) fn set_directory_time(&self, name: &Name, times: &Timestamps) -> io::Result<()> {
        match self.open_itself(name) {
            Ok(directory) => Ok(rustix::fs::futimens(directory, times)?),
            // A later entry replaced the directory.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn create(&self, name: &Name) -> Result<File, Fault> {
        let (parent, last) = self.parent(name)?;
        remove_at(&parent, &last).step("replace")?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&parent, &last, flags, Mode::from_raw_mode(0o600)).step("make file")?;
        Ok(File::from(file))
    }

    pub(super) fn make_file(&mut self, name: &Name, entry: &Entry, content: &mut impl Read) -> Result<(), Fault> {
        let mut file = self.create(name)?;
        let mut position = 0;
        for extent in &entry.extents {
            if extent.offset != position {
                file.seek(SeekFrom::Start(extent.offset)).step("write")?;
            }
            self.copy(content, &mut file, extent.length)?;
            position = extent.offset + extent.length;
        }
        if position != entry.size {
            file.set_len(entry.size).step("write")?;
        }
        set_all(&file, entry)
    }

    fn copy(&mut self, content: &mut impl Read, file: &mut File, mut length: u64) -> Result<(), Fault> {
        while length > 0 {
            let most = usize::try_from(length).unwrap_or(usize::MAX).min(self.buffer.len());
            let count = match content.read(&mut self.buffer[..most]) {
                Ok(0) => return Err(Fault::Truncated),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Fault::from_io("read", error)),
            };
            file.write_all(&self.buffer[..count]).step("write")?;
            length -= count as u64;
        }
        Ok(())
    }

    pub(super) fn make_symlink(&self, name: &Name, entry: &Entry) -> Result<(), Fault> {
        let (parent, last) = self.parent(name)?;
        remove_at(&parent, &last).step("replace")?;
        rustix::fs::symlinkat(c_string(&entry.link)?, &parent, &last).step("make symbolic link")?;
        self.set_owner_and_time(&parent, &last, entry)
    }

    pub(super) fn make_node(&self, name: &Name, entry: &Entry) -> Result<(), Fault> {
        let kind = match entry.kind {
            Kind::CharDevice if entry.device == (0, 0) => return self.hide(name),
            Kind::CharDevice => FileType::CharacterDevice,
            Kind::BlockDevice => FileType::BlockDevice,
            _ => FileType::Fifo,
        };
        let (parent, last) = self.parent(name)?;
        remove_at(&parent, &last).step("replace")?;
        let mode = Mode::from_raw_mode(entry.mode);
        let device = rustix::fs::makedev(entry.device.0, entry.device.1);
        rustix::fs::mknodat(&parent, &last, kind, mode, device).step("make device or pipe")?;
        self.set_owner_and_time(&parent, &last, entry)?;
        // The umask took bits away. What was just made is no link, so following is not a question.
        rustix::fs::chmodat(&parent, &last, mode, AtFlags::empty()).step("set mode")?;
        rustix::fs::utimensat(&parent, &last, &timestamps(entry.mtime), AtFlags::SYMLINK_NOFOLLOW).step("set times")
    }

    fn set_owner_and_time(&self, parent: &OwnedFd, last: &CString, entry: &Entry) -> Result<(), Fault> {
        let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
        rustix::fs::chownat(parent, last, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).step("set owner")?;
        let times = timestamps(entry.mtime);
        rustix::fs::utimensat(parent, last, &times, AtFlags::SYMLINK_NOFOLLOW).step("set times")
    }

    pub(super) fn make_hard_link(&self, name: &Name, target: &Name) -> Result<(), Fault> {
        let (parent, last) = self.parent(name)?;
        let (target_parent, target_last) = self.parent(target)?;
        remove_at(&parent, &last).step("replace")?;
        rustix::fs::linkat(&target_parent, &target_last, &parent, &last, AtFlags::empty()).step("make hard link")
    }

    /// Copies a file or link of a layer below. False if it is neither.
    pub(super) fn copy_file(&mut self, name: &Name, below: &Below, budget: &Budget) -> Result<bool, Fault> {
        match below.kind() {
            FileType::RegularFile => {
                let size = u64::try_from(below.stat.st_size).unwrap_or(0);
                budget.pay_bytes(size)?;
                let mut content = File::from(below.open(OFlags::RDONLY).step("open the file below")?);
                let mut file = self.create(name)?;
                self.copy(&mut content, &mut file, size)?;
                copy_attributes(below, &content, &file).step("copy attributes")?;
                rustix::fs::futimens(&file, &timestamps(below.mtime())).step("set times")?;
                Ok(true)
            }
            FileType::Symlink => {
                let (parent, last) = self.parent(name)?;
                remove_at(&parent, &last).step("replace")?;
                let target = below.read_link().step("read the link below")?;
                rustix::fs::symlinkat(target, &parent, &last).step("make symbolic link")?;
                let (uid, gid) = (Uid::from_raw(below.stat.st_uid), Gid::from_raw(below.stat.st_gid));
                rustix::fs::chownat(&parent, &last, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
                    .step("set owner")?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

/// Owner, attributes and mode of a file below, without what belongs to overlayfs.
fn copy_attributes(below: &Below, from: impl AsFd, to: impl AsFd) -> io::Result<()> {
    let (from, to) = (from.as_fd(), to.as_fd());
    let stat = &below.stat;
    rustix::fs::fchown(to, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    let mut names = vec![0; 64 * 1024];
    let length = match rustix::fs::flistxattr(from, &mut names[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        length => length?,
    };
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let is_wanted = std::str::from_utf8(name).is_ok_and(|name| matches!(policy(name), Policy::Set));
        if !is_wanted {
            continue;
        }
        let mut value = vec![0; 64 * 1024];
        let length = rustix::fs::fgetxattr(from, name, &mut value[..])?;
        rustix::fs::fsetxattr(to, name, &value[..length], XattrFlags::empty())?;
    }
    Ok(rustix::fs::fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o7777))?)
}
