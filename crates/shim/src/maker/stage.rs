//! Where a container with users of its own is made.
//!
//! Its maker becomes the container's root long before the container is whole, and as such is nobody on the node: it
//! could not even go to where its files are, let alone have a mount translate their owners. So all that it needs is put
//! into a small root directory beforehand, by the node's root and in a mount namespace that goes with the maker:
//!
//! ```text
//! /rootfs             the container's files; the layers below them are translated already
//! /0, /1, ...         what is bound at and below its /proc and /sys, translated where that is asked for
//! /job                the container's directory, for libcontainer's own files
//! /proc /dev /sys     the node's, with devices and cgroups to bind
//! ```
//!
//! For the same reason namespaces are opened now: the processes that hold them cannot be looked at later.

use std::{
    fs::{self, File},
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
    fs::{CWD, FileType, fstat},
    mount::{MoveMountFlags, move_mount},
};

/// What of the node is there as it is.
const NODES: [&str; 3] = ["proc", "dev", "sys"];

/// How a container is made from here on.
pub(super) struct Staged {
    pub(super) spec: Spec,
    pub(super) dir: PathBuf,
    /// Named by their numbers in the configuration.
    _namespaces: Vec<OwnedFd>,
}

/// Sets the stage for a container with users of its own; for any other, everything is as it was.
pub(super) fn set(mut spec: Spec, dir: &Path) -> Result<Staged, String> {
    let mut namespaces = spec.linux().as_ref().and_then(|linux| linux.namespaces().clone()).unwrap_or_default();
    let Some(users) = users(&spec)? else {
        return Ok(Staged { spec, dir: dir.to_owned(), _namespaces: Vec::new() });
    };
    let open = namespaces.iter_mut().filter_map(|one| by_number(one).transpose()).collect::<Result<_, _>>()?;
    if let Some(linux) = spec.linux_mut() {
        linux.set_namespaces(Some(namespaces));
    }
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| format!("a mount namespace: {error}"))?;
    let none = None::<&str>;
    // What is mounted on the node later may still come in.
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none).map_err(|error| format!("mounts: {error}"))?;
    let mut props = Vec::new();
    for name in NODES {
        props.push(Prop::open(&Path::new("/").join(name), name, true)?);
    }
    props.push(Prop::open(dir, "job", true)?);
    if let Some(root) = spec.root_mut() {
        props.push(Prop::open(root.path(), "rootfs", true)?);
        root.set_path(PathBuf::from("/rootfs"));
    }
    let mut mounts = spec.mounts().clone().unwrap_or_default();
    for (number, mount) in mounts.iter_mut().filter(|mount| is_elsewhere(mount)).enumerate() {
        props.push(bound(mount, number, &users)?);
    }
    spec.set_mounts(Some(mounts));
    build(dir, &props)?;
    Ok(Staged { spec, dir: PathBuf::from("/job"), _namespaces: open })
}

/// The user namespace that a container is made in, if it has one.
pub(super) fn users(spec: &Spec) -> Result<Option<File>, String> {
    let namespaces = spec.linux().as_ref().and_then(|linux| linux.namespaces().as_ref()).into_iter().flatten();
    let users = namespaces.filter(|one| one.typ() == LinuxNamespaceType::User).find_map(|one| one.path().clone());
    users.map(|path| File::open(&path).map_err(|error| format!("{}: {error}", path.display()))).transpose()
}

/// Opens a namespace that somebody else holds, and has it found by its number.
fn by_number(namespace: &mut LinuxNamespace) -> Result<Option<OwnedFd>, String> {
    let Some(path) = namespace.path().clone() else { return Ok(None) };
    let open = OwnedFd::from(File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?);
    namespace.set_path(Some(PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()))));
    Ok(Some(open))
}

/// Whether a mount binds something that is not on the stage as it is. Cgroups, for one, are not even made yet.
fn is_elsewhere(mount: &Mount) -> bool {
    let source = mount.source().clone().unwrap_or_default();
    let is_there = NODES.iter().any(|name| source.starts_with(Path::new("/").join(name)));
    mount.typ().as_deref() == Some("bind") && (!is_there || mount.uid_mappings().is_some())
}

/// What a mount binds, as the mount will find it.
fn bound(mount: &mut Mount, number: usize, users: &File) -> Result<Prop, String> {
    let source = mount.source().clone().unwrap_or_default();
    let recursive = mount.options().iter().flatten().any(|option| option == "rbind");
    let prop = Prop::open(&source, &number.to_string(), recursive)?;
    let translated = mount.uid_mappings().is_some();
    mount.set_source(Some(PathBuf::from(format!("/{number}")))).set_uid_mappings(None).set_gid_mappings(None);
    if translated {
        userns::translate(prop.tree.as_fd(), users.as_fd()).map_err(|error| {
            let place = mount.destination().display().to_string();
            format!("mount {place:?}: {}: {error}", source.display())
        })?;
    }
    Ok(prop)
}

/// Puts everything in its place and makes that the root.
fn build(dir: &Path, props: &[Prop]) -> Result<(), String> {
    let fail = |what: &str, error: &dyn std::fmt::Display| format!("a root to make the container in: {what}: {error}");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("none"), dir, Some("tmpfs"), flags, Some("size=64k,mode=711")).map_err(|error| fail("tmpfs", &error))?;
    chdir(dir).map_err(|error| fail("tmpfs", &error))?;
    for prop in props {
        prop.put().map_err(|error| fail(&prop.name, &error))?;
    }
    pivot_root(".", ".").map_err(|error| fail("pivot_root", &error))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(|error| fail("old root", &error))?;
    chdir("/").map_err(|error| fail("new root", &error))
}

/// Something that stands on the stage.
struct Prop {
    name: String,
    tree: OwnedFd,
}

// === impl Prop ===

impl Prop {
    fn open(source: &Path, name: &str, recursive: bool) -> Result<Self, String> {
        let tree = detached(source, recursive).map_err(|error| format!("{}: {error}", source.display()))?;
        Ok(Self { name: name.to_owned(), tree })
    }

    /// Puts it into the current directory.
    fn put(&self) -> std::io::Result<()> {
        match FileType::from_raw_mode(fstat(&self.tree)?.st_mode) {
            FileType::Directory => fs::create_dir(&self.name)?,
            _ => drop(File::create(&self.name)?),
        }
        Ok(move_mount(&self.tree, "", CWD, self.name.as_str(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
    }
}
