//! Mounts that libcontainer cannot be left alone with.
//!
//! - Where `/dev` is a directory of the node, it would make its devices and links there, on the node. So it gets an empty `/dev`,
//!   and what was asked for is opened before and put over it at the end, when nothing is made any more.
//! - How far mounts travel through a volume is left to chance: to what the node has there, and to what another volume
//!   needs of the root. So it is set for each volume in the end.
//! - On the first generation of cgroups it looks for itself under a process number that need not be its own where
//!   processes are shared. So it gets plain bind mounts of the container's cgroups.

use std::{
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use nix::mount::MsFlags;
use oci_spec::runtime::{Mount, MountBuilder, Spec};
use rustix::{
    fs::CWD,
    mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree},
};

use crate::{
    cgroup::{Mounts, UNIFIED},
    seal::{Attributes, set_attributes},
};

/// Something of the node that is put into the container at the end.
pub(super) struct Tree {
    tree: OwnedFd,
    place: PathBuf,
}

/// The configuration without such mounts, and what to do instead.
pub(super) fn arrange(mut spec: Spec, cgroups: &Mounts) -> Result<(Spec, Vec<Tree>), String> {
    let mounts = spec.mounts().clone().unwrap_or_default();
    let cgroup = spec.linux().as_ref().and_then(|linux| linux.cgroups_path().clone()).unwrap_or_default();
    let dev = Path::new("/dev");
    let nodes_devices = mounts.iter().any(|mount| is_bind(mount) && mount.destination() == dev);
    let is_late = |mount: &Mount| nodes_devices && is_bind(mount) && mount.destination().starts_with(dev);
    let (mut late, early): (Vec<_>, Vec<_>) = mounts.into_iter().partition(is_late);
    let mut arranged = Vec::new();
    if nodes_devices {
        arranged.push(special("/dev", "tmpfs", "tmpfs", &["nosuid", "mode=755", "size=65536k"])?);
    }
    for mount in early {
        match cgroups {
            Mounts::V1(_) if mount.typ().as_deref() == Some("cgroup") => {
                arranged.extend(first_generation(&mount, cgroups, &cgroup.to_string_lossy())?);
            }
            _ => arranged.push(mount),
        }
    }
    spec.set_mounts(Some(arranged));
    late.sort_by_key(|mount| mount.destination().components().count());
    Ok((spec, late.iter().map(Tree::open).collect::<Result<_, _>>()?))
}

fn is_bind(mount: &Mount) -> bool {
    mount.typ().as_deref() == Some("bind")
}

/// A container's own cgroups, each by the names that its hierarchy and its controllers have.
fn first_generation(mount: &Mount, cgroups: &Mounts, cgroup: &str) -> Result<Vec<Mount>, String> {
    let Mounts::V1(controllers) = cgroups else { return Ok(Vec::new()) };
    let place = mount.destination();
    let read_only = mount.options().iter().flatten().any(|option| option == "ro");
    let mode = if read_only { "ro" } else { "rw" };
    let mut names: Vec<(String, &PathBuf)> = Vec::new();
    for (controller, point) in controllers.iter().filter(|(name, _)| *name != UNIFIED) {
        let hierarchy = point.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = if controller.starts_with("name=") { hierarchy.clone() } else { controller.clone() };
        names.extend([(hierarchy, point), (name, point)]);
    }
    names.sort();
    names.dedup();
    let top = place.display().to_string();
    let mut mounts = vec![special(&top, "tmpfs", "tmpfs", &["nosuid", "noexec", "nodev", "mode=755", "size=64k"])?];
    for (name, point) in names {
        let source = point.join(cgroup.trim_start_matches('/')).display().to_string();
        let inside = place.join(name).display().to_string();
        mounts.push(special(&inside, "bind", &source, &["bind", "private", "nosuid", "noexec", "nodev", mode])?);
    }
    Ok(mounts)
}

fn special(place: &str, kind: &str, source: &str, options: &[&str]) -> Result<Mount, String> {
    let options = options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>();
    let built = MountBuilder::default().destination(place).typ(kind).source(source).options(options).build();
    built.map_err(|error| error.to_string())
}

/// Sets how far mounts travel through each volume. This process is in the container.
pub(super) fn set_propagation(mounts: &[Mount]) -> Result<(), String> {
    let none = None::<&str>;
    for mount in mounts.iter().filter(|mount| is_bind(mount)) {
        let place = mount.destination();
        let flags = match propagation(mount) {
            libc::MS_SHARED => MsFlags::MS_SHARED,
            libc::MS_SLAVE => MsFlags::MS_SLAVE,
            _ => MsFlags::MS_PRIVATE,
        };
        match nix::mount::mount(none, place, none, flags | MsFlags::MS_REC, none) {
            // Something else is mounted over it.
            Ok(()) | Err(nix::Error::EINVAL | nix::Error::ENOENT) => {}
            Err(error) => return Err(format!("mount {:?}: propagation: {error}", place.display().to_string())),
        }
    }
    Ok(())
}

fn propagation(mount: &Mount) -> libc::c_ulong {
    let has = |name: &str| mount.options().iter().flatten().any(|option| option == name);
    match (has("rshared"), has("rslave")) {
        (true, _) => libc::MS_SHARED,
        (_, true) => libc::MS_SLAVE,
        _ => libc::MS_PRIVATE,
    }
}

// === impl Tree ===

impl Tree {
    fn open(mount: &Mount) -> Result<Self, String> {
        let place = mount.destination().clone();
        let fail = |error: std::io::Error| format!("mount {:?}: {error}", place.display().to_string());
        let source = mount.source().clone().unwrap_or_default();
        let has = |name: &str| mount.options().iter().flatten().any(|option| option == name);
        let recursive = OpenTreeFlags::AT_RECURSIVE;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, &source, flags | recursive).map_err(|error| fail(error.into()))?;
        let all = Attributes { read_only: has("rro"), propagation: propagation(mount), recursive: true };
        set_attributes(tree.as_fd(), &all).map_err(fail)?;
        if has("ro") {
            let top = Attributes { read_only: true, propagation: 0, recursive: false };
            set_attributes(tree.as_fd(), &top).map_err(fail)?;
        }
        Ok(Self { tree, place })
    }

    /// Puts it in its place. This process is in the container.
    pub(super) fn put(&self) -> Result<(), String> {
        move_mount(&self.tree, "", CWD, &self.place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(|error| format!("mount {:?}: {error}", self.place.display().to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{Mounts, first_generation, special};

    #[test]
    fn each_controller_is_found_by_its_name() {
        let point = PathBuf::from("/sys/fs/cgroup/cpu,cpuacct");
        let controllers = [
            ("cpu".to_owned(), point.clone()),
            ("cpuacct".to_owned(), point),
            ("name=systemd".to_owned(), PathBuf::from("/sys/fs/cgroup/systemd")),
        ];
        let mount = special("/sys/fs/cgroup", "cgroup", "cgroup", &["ro"]).expect("a mount");
        let mounts = first_generation(&mount, &Mounts::V1(controllers.into()), "/pod/a").expect("mounts");
        let places: Vec<_> = mounts.iter().map(|mount| mount.destination().display().to_string()).collect();
        let expected = ["", "/cpu", "/cpu,cpuacct", "/cpuacct", "/systemd"].map(|name| format!("/sys/fs/cgroup{name}"));
        assert_eq!(places, expected);
        assert_eq!(mounts[1].source().clone(), Some(PathBuf::from("/sys/fs/cgroup/cpu,cpuacct/pod/a")));
    }
}
