//! The root directory in which a container with a user namespace is created.
//!
//! Its creator becomes root of the user namespace long before the container is complete, and has no privileges on the node from then on:
//! it could not even reach the container's files, let alone map the owners of a mount. So root of the node puts everything that the
//! creator needs into a small root directory beforehand, in a mount namespace that disappears with the creator:
//!
//! ```text
//! /rootfs             the container's files; owners of the layers below them are mapped already
//! /0, /1, ...         sources of bind mounts at and below /proc and /sys, with mapped owners where requested
//! /job                the container's directory, for libcontainer's own files
//! /proc /dev /sys     the node's, with devices and cgroups to bind; the devices that every container has are replaced
//! ```
//!
//! For the same reason namespaces are opened before: later the creator may not access the processes that hold them.

use std::{
    fs::{self, File},
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use keelet_linux::{mount::detached, userns};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    unistd::{chdir, pivot_root},
};
use oci_spec::runtime::{LinuxNamespace, LinuxNamespaceType, Mount, Spec};
use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, chmod, fstat, mknodat, statat},
    mount::{MoveMountFlags, move_mount},
};

use super::{CreateError, mounts::MountError};
use crate::error::{StepError, step};

/// Directories of the node that are visible in this root.
const OF_NODE: [&str; 3] = ["proc", "dev", "sys"];

/// A configuration for this root.
pub(super) struct Prepared {
    pub(super) spec: Spec,
    pub(super) dir: PathBuf,
    /// The configuration names them as `/proc/self/fd/...`.
    _namespaces: Vec<OwnedFd>,
}

/// A detached mount with its name in this root.
struct NamedMount {
    name: String,
    tree: OwnedFd,
}

/// Enters such a root if the container has a user namespace, and adapts the configuration to it. Any other container keeps its
/// configuration.
pub(super) fn prepare(mut spec: Spec, dir: &Path) -> Result<Prepared, CreateError> {
    let mut namespaces = spec.linux().as_ref().and_then(|linux| linux.namespaces().clone()).unwrap_or_default();
    let Some(user_namespace) = user_namespace(&spec)? else {
        return Ok(Prepared { spec, dir: dir.to_owned(), _namespaces: Vec::new() });
    };
    let open = namespaces.iter_mut().filter_map(|one| open_namespace(one).transpose()).collect::<Result<_, _>>()?;
    if let Some(linux) = spec.linux_mut() {
        linux.set_namespaces(Some(namespaces));
    }
    unshare(CloneFlags::CLONE_NEWNS).map_err(step("create a mount namespace"))?;
    let none = None::<&str>;
    // A slave still receives later mounts of the node.
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none).map_err(step("make all mounts slaves"))?;
    let mut entries = Vec::new();
    for name in OF_NODE {
        entries.push(NamedMount::open(&Path::new("/").join(name), name, true)?);
    }
    entries.push(NamedMount::open(dir, "job", true)?);
    if let Some(root) = spec.root_mut() {
        entries.push(NamedMount::open(root.path(), "rootfs", true)?);
        root.set_path(PathBuf::from("/rootfs"));
    }
    let mut mounts = spec.mounts().clone().unwrap_or_default();
    for (index, mount) in mounts.iter_mut().filter(|mount| is_elsewhere(mount)).enumerate() {
        entries.push(bind_source(mount, index, &user_namespace)?);
    }
    spec.set_mounts(Some(mounts));
    enter(dir, &entries)?;
    Ok(Prepared { spec, dir: PathBuf::from("/job"), _namespaces: open })
}

/// The user namespace that a container is created in, if it has one.
pub(super) fn user_namespace(spec: &Spec) -> Result<Option<File>, StepError> {
    let namespaces = spec.linux().as_ref().and_then(|linux| linux.namespaces().as_ref()).into_iter().flatten();
    let path = namespaces.filter(|one| one.typ() == LinuxNamespaceType::User).find_map(|one| one.path().clone());
    path.map(|path| File::open(&path).map_err(step(format!("open {}", path.display())))).transpose()
}

/// Opens a namespace that another process holds, and names it by its descriptor.
fn open_namespace(namespace: &mut LinuxNamespace) -> Result<Option<OwnedFd>, StepError> {
    let Some(path) = namespace.path().clone() else { return Ok(None) };
    let open = OwnedFd::from(File::open(&path).map_err(step(format!("open {}", path.display())))?);
    namespace.set_path(Some(PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()))));
    Ok(Some(open))
}

/// Whether a mount binds something that is not visible in this root by its own path. Cgroups are: they do not exist yet, so they cannot be
/// opened now.
fn is_elsewhere(mount: &Mount) -> bool {
    let source = mount.source().clone().unwrap_or_default();
    let is_visible = OF_NODE.iter().any(|name| source.starts_with(Path::new("/").join(name)));
    mount.typ().as_deref() == Some("bind") && (!is_visible || mount.uid_mappings().is_some())
}

/// Opens the source of a bind mount, and names it by its path in this root.
fn bind_source(mount: &mut Mount, index: usize, user_namespace: &File) -> Result<NamedMount, CreateError> {
    let source = mount.source().clone().unwrap_or_default();
    let recursive = mount.options().iter().flatten().any(|option| option == "rbind");
    let entry = NamedMount::open(&source, &index.to_string(), recursive)?;
    let is_mapped = mount.uid_mappings().is_some();
    mount.set_source(Some(PathBuf::from(format!("/{index}")))).set_uid_mappings(None).set_gid_mappings(None);
    if is_mapped {
        userns::map_owners(entry.tree.as_fd(), user_namespace.as_fd())
            .map_err(|error| MountError::map_owners(mount.destination(), source, error))?;
    }
    Ok(entry)
}

/// Attaches all entries to a tmpfs and makes that the root.
fn enter(dir: &Path, entries: &[NamedMount]) -> Result<(), StepError> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("none"), dir, Some("tmpfs"), flags, Some("size=64k,mode=711"))
        .map_err(step(format!("mount a tmpfs on {}", dir.display())))?;
    chdir(dir).map_err(step(format!("enter {}", dir.display())))?;
    for entry in entries {
        entry.attach().map_err(step(format!("attach {:?} to the root for the creator", entry.name)))?;
    }
    replace_devices().map_err(step("replace the devices of the node"))?;
    pivot_root(".", ".").map_err(step("pivot_root to the root for the creator"))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(step("unmount the old root"))?;
    chdir("/").map_err(step("enter the root for the creator"))
}

/// Devices that every container has.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Mounts device nodes of the container's own over those of the node. Root of a user namespace cannot create device nodes, so the
/// creator binds those that it finds here. All users may write to these devices, and a process that may write may set their times and lock
/// them: the user namespace prevents only changes of mode and owner.
fn replace_devices() -> io::Result<()> {
    let (place, of_node) = (Path::new("devices"), Path::new("dev"));
    fs::create_dir(place)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount(Some("none"), place, Some("tmpfs"), flags, Some("size=64k,mode=755"))?;
    for name in DEVICES {
        let (own, node) = (place.join(name), of_node.join(name));
        // A device that the node lacks the container lacks too.
        let Ok(found) = statat(CWD, &node, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if FileType::from_raw_mode(found.st_mode) != FileType::CharacterDevice {
            continue;
        }
        let mode = Mode::from_raw_mode(0o666);
        mknodat(CWD, &own, FileType::CharacterDevice, mode, found.st_rdev)?;
        // The umask of this process may have removed permissions.
        chmod(&own, mode)?;
        mount(Some(&own), &node, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    }
    umount2(place, MntFlags::MNT_DETACH)?;
    fs::remove_dir(place)
}

// === impl NamedMount ===

impl NamedMount {
    fn open(source: &Path, name: &str, recursive: bool) -> Result<Self, StepError> {
        let tree = detached(source, recursive).map_err(step(format!("clone the mount {}", source.display())))?;
        Ok(Self { name: name.to_owned(), tree })
    }

    /// Attaches it in the current directory.
    fn attach(&self) -> io::Result<()> {
        match FileType::from_raw_mode(fstat(&self.tree)?.st_mode) {
            FileType::Directory => fs::create_dir(&self.name)?,
            _ => drop(File::create(&self.name)?),
        }
        Ok(move_mount(&self.tree, "", CWD, self.name.as_str(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
    }
}
