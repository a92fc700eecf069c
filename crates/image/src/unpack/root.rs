//! The directory that a layer becomes. A checked name leads to a spot below the root, and everything is made there.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::lower::{Below, INHERITED_ATTRIBUTE, OPAQUE_ATTRIBUTE, is_whiteout};
use super::place::Name;
use super::{is_opaque, timestamps};
use crate::error::{Fault, Step};
use crate::limits::Budget;
use crate::tar::{Kind, TarEntry};
use crate::tree::{DIRECTORY, open_directory, remove_at, walk};

/// The root of a layer that is being unpacked.
pub(super) struct Root(OwnedFd);

/// Where an entry goes: a directory and a name in it.
pub(super) struct Spot {
    directory: OwnedFd,
    last: CString,
    /// Of the directory. Everything that is made in it changes them; to remember them for all directories until the end would
    /// take memory without a bound.
    times: Timestamps,
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
pub(super) fn set_all(file: impl AsFd, entry: &TarEntry) -> Result<(), Fault> {
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
        Ok(Self(open_directory(path)?))
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Resolves a name to a directory as a process with this root would.
    fn directory(&self, name: &Name<'_>) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        loop {
            // EAGAIN: another process renamed something meanwhile and the kernel could not tell whether it matters.
            match rustix::fs::openat2(&self.0, name.path(), flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                result => return result,
            }
        }
    }

    /// Where a name goes, if the directory above it is there.
    pub(super) fn find_spot(&self, name: &Name<'_>) -> Result<Option<Spot>, Fault> {
        match self.directory(&name.parent()) {
            Ok(directory) => Spot::new(directory, name.last()).map(Some),
            Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => Ok(None),
            Err(error) => Err(Fault::Io { step: "open the directory", source: error.into() }),
        }
    }

    /// Where a name goes. The directory above it must be there.
    pub(super) fn spot(&self, name: &Name<'_>) -> Result<Spot, Fault> {
        let missing = || Fault::Parent { parent: String::from_utf8_lossy(name.parent().path()).into_owned() };
        self.find_spot(name)?.ok_or_else(missing)
    }

    /// What has this name in the layer, links not followed.
    pub(super) fn kind_of(&self, name: &Name<'_>) -> Result<Option<FileType>, Fault> {
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

    /// Whether the name leads to a directory of this layer.
    pub(super) fn has_directory(&self, name: &Name<'_>) -> bool {
        self.directory(name).is_ok()
    }

    /// Where a directory goes that is not there. Something else in the way is an error.
    pub(super) fn free_spot(&self, name: &Name<'_>) -> Result<Spot, Fault> {
        match self.kind_of(name)? {
            None => self.spot(name),
            Some(_) => Err(Fault::Parent { parent: String::from_utf8_lossy(name.path()).into_owned() }),
        }
    }
}

// === impl Spot ===

impl Spot {
    pub(super) fn new(directory: OwnedFd, last: &[u8]) -> Result<Self, Fault> {
        let stat = rustix::fs::fstat(&directory).step("look up")?;
        let time = |seconds, nanoseconds: u64| Timespec { tv_sec: seconds, tv_nsec: nanoseconds.cast_signed() };
        let times = Timestamps {
            last_access: time(stat.st_atime, stat.st_atime_nsec),
            last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
        };
        Ok(Self { directory, last: c_string(last)?, times })
    }

    /// Gives the directory the times that it had before something was made in it.
    pub(super) fn keep_times(&self) -> Result<(), Fault> {
        rustix::fs::futimens(&self.directory, &self.times).step("set times")
    }

    /// Removes what is there.
    fn clear(&self) -> Result<(), Fault> {
        remove_at(&self.directory, &self.last).step("replace")
    }

    /// Makes a directory, or opens the one that is there. One that the layer had hidden before hides what is below.
    pub(super) fn make_directory(&self) -> Result<OwnedFd, Fault> {
        let open = || rustix::fs::openat(&self.directory, &self.last, DIRECTORY, Mode::empty()).step("open");
        let hidden = match rustix::fs::statat(&self.directory, &self.last, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => false,
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => return open(),
            Ok(stat) => {
                self.clear()?;
                is_whiteout(&stat)
            }
            Err(error) => return Err(Fault::Io { step: "look up", source: error.into() }),
        };
        rustix::fs::mkdirat(&self.directory, &self.last, Mode::from_raw_mode(0o700)).step("make directory")?;
        let made = open()?;
        if hidden {
            make_opaque(&made)?;
        }
        Ok(made)
    }

    /// Hides all that the layers below have in the directory.
    pub(super) fn make_opaque(&self, budget: &Budget) -> Result<(), Fault> {
        hide_below(&self.directory, budget)
    }

    /// Hides a name of the layers below. What this layer has under the name stays, whatever the order of entries.
    pub(super) fn hide(&self, name: &[u8], budget: &Budget) -> Result<(), Fault> {
        match rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {
                let mode = Mode::from_raw_mode(0);
                rustix::fs::mknodat(&self.directory, name, FileType::CharacterDevice, mode, 0).step("make whiteout")
            }
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                let directory = rustix::fs::openat(&self.directory, name, DIRECTORY, Mode::empty()).step("open")?;
                disinherit(&directory).step(DISINHERIT)?;
                hide_below(&directory, budget)
            }
            Ok(_) => Ok(()),
            Err(error) => Err(Fault::Io { step: "look up", source: error.into() }),
        }
    }

    fn create(&self) -> Result<File, Fault> {
        self.clear()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let file = rustix::fs::openat(&self.directory, &self.last, flags, mode).step("make file")?;
        Ok(File::from(file))
    }

    pub(super) fn make_file(&self, entry: &TarEntry, content: &mut impl Read, buffer: &mut [u8]) -> Result<(), Fault> {
        let mut file = self.create()?;
        let mut position = 0;
        for extent in &entry.extents {
            if extent.offset != position {
                file.seek(SeekFrom::Start(extent.offset)).step("write")?;
            }
            copy(content, &mut file, extent.length, buffer)?;
            position = extent.offset + extent.length;
        }
        if position != entry.size {
            file.set_len(entry.size).step("write")?;
        }
        set_all(&file, entry)
    }

    pub(super) fn make_symlink(&self, entry: &TarEntry) -> Result<(), Fault> {
        self.clear()?;
        let target = c_string(&entry.link)?;
        rustix::fs::symlinkat(target, &self.directory, &self.last).step("make symbolic link")?;
        self.set_owner_and_time(entry)
    }

    pub(super) fn make_node(&self, entry: &TarEntry, budget: &Budget) -> Result<(), Fault> {
        let kind = match entry.kind {
            Kind::CharDevice if entry.device == (0, 0) => return self.hide(self.last.to_bytes(), budget),
            Kind::CharDevice => FileType::CharacterDevice,
            Kind::BlockDevice => FileType::BlockDevice,
            _ => FileType::Fifo,
        };
        self.clear()?;
        let mode = Mode::from_raw_mode(entry.mode);
        let device = rustix::fs::makedev(entry.device.0, entry.device.1);
        rustix::fs::mknodat(&self.directory, &self.last, kind, mode, device).step("make device or pipe")?;
        self.set_owner_and_time(entry)?;
        // The umask took bits away. What was just made is no link, so following is not a question.
        rustix::fs::chmodat(&self.directory, &self.last, mode, AtFlags::empty()).step("set mode")?;
        self.set_time(entry)
    }

    fn set_owner_and_time(&self, entry: &TarEntry) -> Result<(), Fault> {
        let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(&self.directory, &self.last, Some(uid), Some(gid), flags).step("set owner")?;
        self.set_time(entry)
    }

    fn set_time(&self, entry: &TarEntry) -> Result<(), Fault> {
        let times = timestamps(entry.mtime);
        rustix::fs::utimensat(&self.directory, &self.last, &times, AtFlags::SYMLINK_NOFOLLOW).step("set times")
    }

    pub(super) fn make_hard_link(&self, target: &Self) -> Result<(), Fault> {
        self.clear()?;
        let linked = rustix::fs::linkat(&target.directory, &target.last, &self.directory, &self.last, AtFlags::empty());
        linked.step("make hard link")
    }

    /// Copies a file or link of a layer below. False if it is neither.
    pub(super) fn copy_file(&self, below: &Below, budget: &Budget, buffer: &mut [u8]) -> Result<bool, Fault> {
        match below.kind() {
            FileType::RegularFile => {
                let size = u64::try_from(below.stat.st_size).unwrap_or(0);
                budget.pay_bytes(size)?;
                let mut content = File::from(below.open(OFlags::RDONLY).step("open the file below")?);
                let mut file = self.create()?;
                copy(&mut content, &mut file, size, buffer)?;
                copy_attributes(below, &content, &file).step("copy attributes")?;
                rustix::fs::futimens(&file, &timestamps(below.mtime())).step("set times")?;
                Ok(true)
            }
            FileType::Symlink => {
                self.clear()?;
                let target = below.read_link().step("read the link below")?;
                rustix::fs::symlinkat(target, &self.directory, &self.last).step("make symbolic link")?;
                let (uid, gid) = (Uid::from_raw(below.stat.st_uid), Gid::from_raw(below.stat.st_gid));
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::chownat(&self.directory, &self.last, Some(uid), Some(gid), flags).step("set owner")?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

fn make_opaque(directory: impl AsFd) -> Result<(), Fault> {
    rustix::fs::fsetxattr(directory, OPAQUE_ATTRIBUTE, b"y", XattrFlags::empty()).step("make opaque")
}

fn copy(content: &mut impl Read, file: &mut File, mut length: u64, buffer: &mut [u8]) -> Result<(), Fault> {
    while length > 0 {
        let most = usize::try_from(length).unwrap_or(usize::MAX).min(buffer.len());
        let count = match content.read(&mut buffer[..most]) {
            Ok(0) => return Err(Fault::Truncated),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Fault::from_io("read", error)),
        };
        file.write_all(&buffer[..count]).step("write")?;
        length -= count as u64;
    }
    Ok(())
}

/// Makes a directory that the layer has not named like the one below it, and marks it: a later entry may hide that one.
pub(super) fn inherit(below: &Below, to: impl AsFd) -> Result<(), Fault> {
    copy_directory(below, &to).step("copy the directory below")?;
    match rustix::fs::fsetxattr(to, INHERITED_ATTRIBUTE, b"y", XattrFlags::empty()) {
        // Nothing can be hidden on such a disk either.
        Err(Errno::OPNOTSUPP) => Ok(()),
        marked => marked.step("mark directory"),
    }
}

/// The step of [`disinherit`].
pub(super) const DISINHERIT: &str = "reset what was copied from the directory below";

/// Takes from a directory what it has of the one below it.
pub(super) fn disinherit(directory: impl AsFd) -> io::Result<()> {
    let directory = directory.as_fd();
    match rustix::fs::fremovexattr(directory, INHERITED_ATTRIBUTE) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(()),
        removed => removed?,
    }
    for name in attributes(directory)? {
        rustix::fs::fremovexattr(directory, name.as_str())?;
    }
    rustix::fs::fchown(directory, Some(Uid::ROOT), Some(Gid::ROOT))?;
    Ok(rustix::fs::fchmod(directory, Mode::from_raw_mode(0o755))?)
}

/// Hides all that the layers below have in a directory, also from the directories in it that have inherited already. In one that hides
/// everything, none has.
fn hide_below(directory: impl AsFd, budget: &Budget) -> Result<(), Fault> {
    let directory = directory.as_fd();
    if is_opaque(directory) {
        return Ok(());
    }
    make_opaque(directory)?;
    let top = rustix::fs::openat(directory, c".", DIRECTORY, Mode::empty()).step("open")?;
    let walked = walk(top, |_, directory| {
        // Paid for like an entry: a layer can have it done again for each directory on the way down.
        budget.pay_entry()?;
        let Some(directory) = directory.filter(|directory| !is_opaque(directory)) else { return Ok(false) };
        disinherit(directory)?;
        Ok(true)
    });
    walked.map_err(|error| Fault::from_io(DISINHERIT, error))
}

/// Gives a directory the owner, mode, attributes and time of the one below it.
pub(super) fn copy_directory(below: &Below, to: impl AsFd) -> io::Result<()> {
    copy_attributes(below, below.open(DIRECTORY)?, to.as_fd())?;
    Ok(rustix::fs::futimens(to, &timestamps(below.mtime()))?)
}

/// Owner, attributes and mode of a file below, without what belongs to overlayfs.
fn copy_attributes(below: &Below, from: impl AsFd, to: impl AsFd) -> io::Result<()> {
    let (from, to) = (from.as_fd(), to.as_fd());
    let stat = &below.stat;
    rustix::fs::fchown(to, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    for name in attributes(from)? {
        let mut value = vec![0; 64 * 1024];
        let length = rustix::fs::fgetxattr(from, name.as_str(), &mut value[..])?;
        rustix::fs::fsetxattr(to, name.as_str(), &value[..length], XattrFlags::empty())?;
    }
    Ok(rustix::fs::fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o7777))?)
}

/// The extended attributes of a file that an archive may set.
fn attributes(file: impl AsFd) -> io::Result<Vec<String>> {
    let mut names = vec![0; 64 * 1024];
    let length = match rustix::fs::flistxattr(file, &mut names[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        length => length?,
    };
    let names = names[..length].split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
    Ok(names.filter(|name| matches!(policy(name), Policy::Set)).map(str::to_owned).collect())
}
