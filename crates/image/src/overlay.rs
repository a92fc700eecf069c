//! Mounting overlays.
//!
//! Layers are passed to the kernel one by one, as open directories where it supports that (Linux 6.13), else by path
//! (6.8), so that any number of them fits. Older kernels get one string of options, which must fit into a page: those
//! before 6.5 accept layers one by one but then ignore them.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_fd, fsconfig_set_string, fsmount, fsopen, mount, move_mount, unmount,
};

use crate::error::{At, Error};

/// An overlay to mount.
pub(crate) struct Overlay<'a> {
    /// directories from the topmost down
    pub(crate) lowers: &'a [PathBuf],
    /// how to open them, if the owners differ from those on disk
    pub(crate) owners: Option<Owners<'a>>,
    /// where changes go, and a place for the kernel to prepare them; without it the mount is read-only
    pub(crate) upper: Option<Upper>,
}

/// Opens a directory as a mount that maps the owners of its files.
pub type Owners<'a> = &'a dyn Fn(&Path) -> std::io::Result<OwnedFd>;

/// Two directories on one file system.
pub(crate) struct Upper {
    pub(crate) changes: PathBuf,
    pub(crate) work: PathBuf,
}

/// How a directory is passed to the kernel.
#[derive(Clone, Copy)]
enum Hand {
    Descriptor,
    Path,
}

/// The kernel's limit on layers.
pub(crate) const MOST_LAYERS: usize = 500;
/// Options of the old call must fit into a page with the terminating NUL.
const LONGEST_OPTIONS: usize = 4095;

/// Mounts an overlay.
pub(crate) fn mount_overlay(overlay: &Overlay<'_>, target: &Path) -> Result<(), Error> {
    if overlay.lowers.len() > MOST_LAYERS {
        let reason = format!("{} layers, the kernel allows {MOST_LAYERS}", overlay.lowers.len());
        return Err(failed(target, reason));
    }
    for hand in [Hand::Descriptor, Hand::Path] {
        match configure(overlay, hand) {
            Ok(file_system) => return attach(&file_system, overlay, target),
            // A mapped mount has no path.
            Err(Refusal::Unknown | Refusal::OldKernel) if overlay.owners.is_some() => {
                return Err(failed(target, "this kernel does not support ID-mapped layers (Linux 6.15 does)".into()));
            }
            Err(Refusal::Unknown) => {}
            Err(Refusal::OldKernel) => break,
            Err(Refusal::Failed(reason)) => return Err(failed(target, reason)),
        }
    }
    mount_by_options(overlay, target)
}

/// Mounts a tmpfs limited to a tenth of the machine's memory. The kernel's default is half. A container that writes
/// more should use an image and a disk.
pub(crate) fn mount_memory(target: &Path) -> Result<(), Error> {
    let options = CString::new("mode=755,size=10%").unwrap_or_default();
    let mounted = mount("keelet", target, "tmpfs", MountFlags::empty(), options.as_c_str());
    mounted.map_err(|error| Error::Mount { what: "tmpfs".into(), target: target.into(), reason: error.to_string() })
}

/// Unmounts everything at a path, even if it is in use.
pub(crate) fn unmount_all(target: &Path) -> Result<(), Error> {
    while is_mount_point(target)? {
        match unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(error) => return Err(error).at("unmount", target),
        }
    }
    Ok(())
}

/// Whether something is mounted at a path. A missing path is not a mount point.
pub(crate) fn is_mount_point(target: &Path) -> Result<bool, Error> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    match rustix::fs::statx(CWD, target, flags, StatxFlags::TYPE) {
        Ok(stat) => Ok(stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(error) => Err(error).at("stat", target),
    }
}

enum Refusal {
    /// the kernel does not support this mount API
    Unknown,
    /// overlayfs of this kernel supports one string of options only
    OldKernel,
    Failed(String),
}

fn configure(overlay: &Overlay<'_>, hand: Hand) -> Result<OwnedFd, Refusal> {
    let file_system = match fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC) {
        Err(Errno::NOSYS) => return Err(Refusal::Unknown),
        opened => opened.map_err(|error| Refusal::Failed(error.to_string()))?,
    };
    let told = |error: Errno| Refusal::Failed(explain(&file_system, error));
    fsconfig_set_string(&file_system, "source", "keelet").map_err(told)?;
    // A detached mount vanishes when it is closed, so it must stay open until the overlay is mounted.
    let mut trees = Vec::new();
    for lower in overlay.lowers {
        let handed = match overlay.owners {
            None => hand_over(&file_system, "lowerdir+", lower, hand),
            Some(open) => {
                let tree = open(lower).map_err(|error| Refusal::Failed(format!("{}: {error}", lower.display())))?;
                let handed = fsconfig_set_fd(&file_system, "lowerdir+", &tree);
                trees.push(tree);
                handed
            }
        };
        match handed {
            Err(Errno::INVAL) => return Err(Refusal::Unknown),
            Err(Errno::OPNOTSUPP) => return Err(Refusal::OldKernel),
            set => {
                set.map_err(|error| Refusal::Failed(format!("{}: {}", lower.display(), explain(&file_system, error))))?
            }
        }
    }
    if let Some(upper) = &overlay.upper {
        for (key, path) in [("upperdir", &upper.changes), ("workdir", &upper.work)] {
            match hand_over(&file_system, key, path, hand) {
                Err(Errno::INVAL) => return Err(Refusal::Unknown),
                Err(Errno::OPNOTSUPP) => return Err(Refusal::OldKernel),
                set => set.map_err(|error| {
                    Refusal::Failed(format!("{}: {}", path.display(), explain(&file_system, error)))
                })?,
            }
        }
    }
    fsconfig_create(&file_system).map_err(|error| Refusal::Failed(explain(&file_system, error)))?;
    Ok(file_system)
}

fn hand_over(file_system: &OwnedFd, key: &str, path: &Path, hand: Hand) -> Result<(), Errno> {
    match hand {
        Hand::Path => fsconfig_set_string(file_system, key, path),
        Hand::Descriptor => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
            match fsconfig_set_fd(file_system, key, &directory) {
                // Kernels that accept descriptors may still refuse O_PATH descriptors.
                Err(Errno::BADF) => {
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                    let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
                    fsconfig_set_fd(file_system, key, &directory)
                }
                set => set,
            }
        }
    }
}

fn attach(file_system: &OwnedFd, overlay: &Overlay<'_>, target: &Path) -> Result<(), Error> {
    let attributes = match overlay.upper {
        Some(_) => MountAttrFlags::empty(),
        None => {
            MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV
        }
    };
    let mounted = fsmount(file_system, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        .map_err(|error| failed(target, explain(file_system, error)))?;
    move_mount(mounted.as_fd(), "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(|error| failed(target, error.to_string()))
}

/// The error, with the messages of the kernel's mount log.
fn explain(file_system: &OwnedFd, error: Errno) -> String {
    let mut message = error.to_string();
    let mut buffer = [0; 1024];
    while let Ok(length) = rustix::io::read(file_system, &mut buffer) {
        let line = String::from_utf8_lossy(&buffer[..length]);
        message.push_str("; ");
        message.push_str(line.trim_start_matches(['e', 'w', 'i', ' ']).trim_end());
    }
    message
}

fn mount_by_options(overlay: &Overlay<'_>, target: &Path) -> Result<(), Error> {
    let mut options = String::new();
    let mut add = |key: &str, paths: &[&Path]| {
        let names: Option<Vec<&str>> = paths.iter().map(|path| path.to_str()).collect();
        let names = names.filter(|names| !names.iter().any(|name| name.contains([':', ',', '\\'])));
        let names = names
            .ok_or_else(|| failed(target, "this kernel does not support paths with ':', ',' or '\\' in them".into()))?;
        options.push_str(if options.is_empty() { "" } else { "," });
        options.push_str(&format!("{key}={}", names.join(":")));
        Ok::<_, Error>(())
    };
    let lowers: Vec<&Path> = overlay.lowers.iter().map(PathBuf::as_path).collect();
    add("lowerdir", &lowers)?;
    if let Some(upper) = &overlay.upper {
        add("upperdir", &[&upper.changes])?;
        add("workdir", &[&upper.work])?;
    }
    if options.len() > LONGEST_OPTIONS {
        let reason = format!(
            "{} layers need {} bytes of options, but this kernel allows {LONGEST_OPTIONS}; Linux 6.8 has no such limit",
            lowers.len(),
            options.len()
        );
        return Err(failed(target, reason));
    }
    let flags = match overlay.upper {
        Some(_) => MountFlags::empty(),
        None => MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV,
    };
    let options = CString::new(options).map_err(|error| failed(target, error.to_string()))?;
    mount("keelet", target, "overlay", flags, options.as_c_str()).map_err(|error| failed(target, error.to_string()))
}

fn failed(target: &Path, reason: String) -> Error {
    Error::Mount { what: "overlay".into(), target: target.into(), reason }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::mount::{MountPropagationFlags, mount_change};

    use super::*;

    type Way = fn(&Overlay<'_>, &Path) -> Result<(), Error>;

    fn by(hand: Hand, overlay: &Overlay<'_>, target: &Path) -> Result<(), Error> {
        // An old kernel returns this for a descriptor.
        let old = matches!(configure(overlay, Hand::Descriptor), Err(Refusal::OldKernel));
        match if old { Err(Refusal::OldKernel) } else { configure(overlay, hand) } {
            Ok(file_system) => attach(&file_system, overlay, target),
            Err(Refusal::Unknown | Refusal::OldKernel) => {
                Err(failed(target, "the kernel does not support this mount API".into()))
            }
            Err(Refusal::Failed(reason)) => Err(failed(target, reason)),
        }
    }

    /// The kernel decides which API is used; each has to work where it is supported.
    #[test]
    fn every_way_to_mount_gives_the_same_overlay() {
        if !rustix::process::geteuid().is_root() {
            return keelet_report::skipped("mounting needs root");
        }
        let ways: [(&str, Way); 4] = [
            ("what it takes", mount_overlay),
            ("descriptors", |overlay, target| by(Hand::Descriptor, overlay, target)),
            ("paths", |overlay, target| by(Hand::Path, overlay, target)),
            ("options", mount_by_options),
        ];
        let test = move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
            for (name, way) in ways {
                let place = tempfile::tempdir().unwrap();
                let path = |name: &str| place.path().join(name);
                for directory in ["top", "bottom", "upper", "work", "target"] {
                    fs::create_dir(path(directory)).unwrap();
                }
                fs::write(path("top/file"), "top").unwrap();
                fs::write(path("bottom/file"), "bottom").unwrap();
                fs::write(path("bottom/other"), "bottom").unwrap();
                let lowers = [path("top"), path("bottom")];
                let target = path("target");
                for writable in [true, false] {
                    let upper = writable.then(|| Upper { changes: path("upper"), work: path("work") });
                    match way(&Overlay { lowers: &lowers, owners: None, upper }, &target) {
                        Err(error) if error.to_string().contains("does not know") => {
                            keelet_report::skipped(format_args!("{name}: {error}"));
                            continue;
                        }
                        mounted => mounted.unwrap_or_else(|error| panic!("{name}: {error}")),
                    }
                    assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "top", "{name}");
                    assert_eq!(fs::read_to_string(target.join("other")).unwrap(), "bottom", "{name}");
                    assert_eq!(fs::write(target.join("new"), "new").is_ok(), writable, "{name}");
                    unmount_all(&target).unwrap();
                    assert!(!is_mount_point(&target).unwrap());
                }
                assert!(path("upper/new").exists() && !path("top/new").exists(), "{name}");
            }
        };
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn old_kernels_say_what_does_not_fit() {
        let target = Path::new("/nonexistent");
        let lowers: Vec<PathBuf> = (0..60).map(|n| PathBuf::from(format!("/{n:080}"))).collect();
        let error =
            mount_by_options(&Overlay { lowers: &lowers, owners: None, upper: None }, target).unwrap_err().to_string();
        assert!(error.contains("60 layers need 4") && error.contains("Linux 6.8"), "{error}");
        let lowers = [PathBuf::from("/a:b")];
        let error =
            mount_by_options(&Overlay { lowers: &lowers, owners: None, upper: None }, target).unwrap_err().to_string();
        assert!(error.contains("does not support paths with ':'"), "{error}");
    }

    #[test]
    fn a_refusal_of_the_kernel_is_explained() {
        if !rustix::process::geteuid().is_root() {
            return keelet_report::skipped("mounting needs root");
        }
        let place = tempfile::tempdir().unwrap();
        let lowers = [place.path().join("missing")];
        let error = mount_overlay(&Overlay { lowers: &lowers, owners: None, upper: None }, place.path())
            .unwrap_err()
            .to_string();
        assert!(error.contains("missing") && error.contains("No such file"), "{error}");
    }
}
