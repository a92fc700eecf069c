//! Null devices of a pod's own.
//!
//! Root in a container may change the mode and owner of whatever it gets as its standard input, and all processes share the node's
//! null device. So a command gets a device of its own: made in a file system that is mounted nowhere, and without a name once it is open.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, fchmod, fstat, major, makedev, minor, mknodat, openat, unlinkat},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
};

/// The number of the null device, wherever its file is.
const NUMBER: (u32, u32) = (1, 3);
/// The beginning of its name, which is removed at once; a process makes one at a time.
const NAME: &str = "null";

/// Where null devices are made.
#[derive(Debug)]
pub struct Nulls {
    directory: OwnedFd,
}

/// Whether this is a null device. Decided by its number: a path may lead to anything.
pub fn is_null(fd: impl AsFd) -> io::Result<bool> {
    let found = fstat(fd)?;
    let is_device = FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice;
    Ok(is_device && (major(found.st_rdev), minor(found.st_rdev)) == NUMBER)
}

// === impl Nulls ===

impl Nulls {
    /// Mounts a tmpfs in no mount namespace.
    pub fn new() -> io::Result<Self> {
        let tmpfs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&tmpfs)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        Ok(Self { directory: fsmount(&tmpfs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)? })
    }

    /// Puts a device of its own in the place of each descriptor of a null device.
    pub fn replace<const N: usize>(&self, mut fds: [OwnedFd; N]) -> io::Result<[OwnedFd; N]> {
        for fd in &mut fds {
            if is_null(&*fd)? {
                *fd = self.make()?;
            }
        }
        Ok(fds)
    }

    fn make(&self) -> io::Result<OwnedFd> {
        let name = format!("{NAME}-{}", std::process::id());
        let (major, minor) = NUMBER;
        mknodat(&self.directory, &name, FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(major, minor))?;
        let opened = openat(&self.directory, &name, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        unlinkat(&self.directory, &name, AtFlags::empty())?;
        let opened = opened?;
        // All users may use it, whatever mask for new files this process has.
        fchmod(&opened, Mode::from_raw_mode(0o666))?;
        Ok(opened)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{Read, Write},
        os::fd::OwnedFd,
    };

    use rustix::fs::{Mode, fchmod, fstat};

    use super::{Nulls, is_null};

    #[test]
    fn a_null_device_is_known_by_its_number() {
        let open = |path: &str| File::open(path).expect(path);
        assert!(is_null(open("/dev/null")).expect("looked at"));
        for path in ["/dev/zero", "/dev", "/proc/self/stat"] {
            assert!(!is_null(open(path)).expect("looked at"), "{path}");
        }
    }

    #[test]
    #[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
    fn each_null_device_is_another_one() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root");
            return;
        }
        let nulls = Nulls::new().expect("a place");
        let nodes = || OwnedFd::from(File::open("/dev/null").expect("open"));
        let zero = || OwnedFd::from(File::open("/dev/zero").expect("open"));
        let [first, second, other] = nulls.replace([nodes(), nodes(), zero()]).expect("made");
        let inode = |fd: &OwnedFd| fstat(fd).map(|found| (found.st_dev, found.st_ino)).expect("looked at");
        assert_eq!(inode(&other), inode(&zero()), "what is no null device stays");
        assert!(inode(&first) != inode(&second) && inode(&first) != inode(&nodes()));
        fchmod(&first, Mode::empty()).expect("its mode");
        let mode = |fd: &OwnedFd| format!("{:o}", fstat(fd).expect("looked at").st_mode);
        assert_eq!((mode(&first), mode(&second)), ("20000".to_owned(), "20666".to_owned()));
        let mut second = File::from(second);
        second.write_all(b"words").expect("written");
        assert_eq!(second.read(&mut [0; 8]).expect("read"), 0);
    }
}
