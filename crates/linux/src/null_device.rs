//! Null devices that a pod does not share with the node.
//!
//! Root in a container may change the mode and owner of the file behind its standard input, and all processes of the node share its null
//! device. So a command gets a device node of its own, created in a detached tmpfs and unlinked once it is open.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, fchmod, fstat, major, makedev, minor, mknodat, openat, unlinkat},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
};

/// The device number of every null device.
const DEVICE: (u32, u32) = (1, 3);
/// Prefix of its name, which is unlinked at once; a process creates one at a time.
const NAME: &str = "null";

/// A detached tmpfs in which null devices are created.
#[derive(Debug)]
pub struct NullDevices {
    directory: OwnedFd,
}

/// Whether this is a null device. Decided by its device number, because any file can have the path.
pub fn is_null_device(fd: impl AsFd) -> io::Result<bool> {
    let found = fstat(fd)?;
    let is_device = FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice;
    Ok(is_device && (major(found.st_rdev), minor(found.st_rdev)) == DEVICE)
}

// === impl NullDevices ===

impl NullDevices {
    /// Creates the tmpfs, in no mount namespace.
    pub fn new() -> io::Result<Self> {
        let tmpfs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&tmpfs)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        Ok(Self { directory: fsmount(&tmpfs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)? })
    }

    /// Replaces each descriptor of a null device by one of a new null device.
    pub fn replace<const N: usize>(&self, mut fds: [OwnedFd; N]) -> io::Result<[OwnedFd; N]> {
        for fd in &mut fds {
            if is_null_device(&*fd)? {
                *fd = self.create()?;
            }
        }
        Ok(fds)
    }

    fn create(&self) -> io::Result<OwnedFd> {
        let name = format!("{NAME}-{}", std::process::id());
        let (major, minor) = DEVICE;
        mknodat(&self.directory, &name, FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(major, minor))?;
        let opened = openat(&self.directory, &name, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        unlinkat(&self.directory, &name, AtFlags::empty())?;
        let opened = opened?;
        // All users may use it, whatever the umask of this process is.
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

    use super::{NullDevices, is_null_device};

    #[test]
    fn a_null_device_is_recognised_by_its_device_number() {
        let open = |path: &str| File::open(path).expect(path);
        assert!(is_null_device(open("/dev/null")).expect("stat"));
        for path in ["/dev/zero", "/dev", "/proc/self/stat"] {
            assert!(!is_null_device(open(path)).expect("stat"), "{path}");
        }
    }

    #[test]
    fn each_null_device_has_an_inode_of_its_own() {
        if !rustix::process::geteuid().is_root() {
            return keelet_report::skipped("it needs root");
        }
        let nulls = NullDevices::new().expect("a tmpfs");
        let nodes = || OwnedFd::from(File::open("/dev/null").expect("open"));
        let zero = || OwnedFd::from(File::open("/dev/zero").expect("open"));
        let [first, second, other] = nulls.replace([nodes(), nodes(), zero()]).expect("made");
        let inode = |fd: &OwnedFd| fstat(fd).map(|found| (found.st_dev, found.st_ino)).expect("stat");
        assert_eq!(inode(&other), inode(&zero()), "other devices are not replaced");
        assert!(inode(&first) != inode(&second) && inode(&first) != inode(&nodes()));
        fchmod(&first, Mode::empty()).expect("its mode");
        let mode = |fd: &OwnedFd| format!("{:o}", fstat(fd).expect("stat").st_mode);
        assert_eq!((mode(&first), mode(&second)), ("20000".to_owned(), "20666".to_owned()));
        let mut second = File::from(second);
        second.write_all(b"words").expect("written");
        assert_eq!(second.read(&mut [0; 8]).expect("read"), 0);
    }
}
