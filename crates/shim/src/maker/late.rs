//! Mounts that libcontainer cannot be left alone with.
//!
//! - Where `/dev` is a directory of the node, it would make its devices and links there, on the node. So it gets an empty `/dev`,
//!   and what was asked for is opened before and put over it at the end, when nothing is made any more.
//! - How far mounts travel through a volume is left to chance: to what the node has there, and to what another volume
//!   needs of the root. So it is set for each volume in the end.
//! - Each mount costs it a hundred calls into the kernel, because an image may have links in the way. On the first generation
//!   of cgroups a dozen mounts are below a directory that is ours, where nobody can have put any.

use std::{
    fs,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use nix::mount::MsFlags;
use oci_spec::runtime::{LinuxNamespaceType, Mount, MountBuilder, Spec};
use rustix::{
    fs::CWD,
    mount::{MoveMountFlags, move_mount},
};

use crate::{
    cgroup::Mounts,
    seal::{Attributes, NO_DEV, NO_EXEC, NO_SUID, READ_ONLY, detached, set_attributes},
};

/// Where a container sees its cgroups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Something of the node that is put into the container at the end.
pub(super) struct Tree {
    tree: OwnedFd,
    place: PathBuf,
}

/// The configuration without such mounts, and what to do instead.
pub(super) fn arrange(mut spec: Spec, cgroups: &Mounts) -> Result<(Spec, Vec<Tree>), String> {
    let mounts = spec.mounts().clone().unwrap_or_default();
    let dev = Path::new("/dev");
    let nodes_devices = mounts.iter().any(|mount| is_bind(mount) && mount.destination() == dev);
    let is_device = |mount: &Mount| nodes_devices && is_bind(mount) && mount.destination().starts_with(dev);
    // Who has users of its own is not the one who could put such a tree in its place.
    let namespaces = spec.linux().as_ref().and_then(|linux| linux.namespaces().as_ref());
    let own_users = namespaces.into_iter().flatten().any(|namespace| namespace.typ() == LinuxNamespaceType::User);
    let own_cgroups = matches!(cgroups, Mounts::V1(_)) && !own_users && !mounts.iter().any(is_volume_at_cgroups);
    let is_cgroup = |mount: &Mount| own_cgroups && is_bind(mount) && mount.destination().starts_with(CGROUPS);
    let (mut devices, rest): (Vec<_>, Vec<_>) = mounts.into_iter().partition(is_device);
    let (views, mut early): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_cgroup);
    if nodes_devices {
        early.insert(0, special("/dev", "tmpfs", "tmpfs", &["nosuid", "mode=755", "size=65536k"])?);
    }
    spec.set_mounts(Some(early));
    devices.sort_by_key(|mount| mount.destination().components().count());
    Ok((spec, views.iter().chain(&devices).map(Tree::open).collect::<Result<_, _>>()?))
}

fn is_bind(mount: &Mount) -> bool {
    mount.typ().as_deref() == Some("bind")
}

/// Whether somebody mounts something of his own over a container's cgroups, or into them.
fn is_volume_at_cgroups(mount: &Mount) -> bool {
    let recursive = mount.options().iter().flatten().any(|option| option == "rbind");
    let place = mount.destination();
    recursive && (place.starts_with(CGROUPS) || Path::new(CGROUPS).starts_with(place))
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
        let tree = detached(&source, has("rbind")).map_err(fail)?;
        let everywhere = if has("rro") { READ_ONLY } else { 0 };
        let all = Attributes { set: everywhere, propagation: propagation(mount), recursive: true };
        set_attributes(tree.as_fd(), &all).map_err(fail)?;
        let names = [("ro", READ_ONLY), ("nosuid", NO_SUID), ("nodev", NO_DEV), ("noexec", NO_EXEC)];
        let set = names.into_iter().filter(|(name, _)| has(name)).fold(0, |set, (_, attribute)| set | attribute);
        let top = Attributes { set, propagation: 0, recursive: false };
        set_attributes(tree.as_fd(), &top).map_err(fail)?;
        Ok(Self { tree, place })
    }

    /// Puts it in its place. This process is in the container. Nothing is left open that leads there.
    pub(super) fn put(self) -> Result<(), String> {
        if self.place.starts_with(CGROUPS) {
            // What is wrong is told by the mount that misses it.
            let _ = fs::create_dir(&self.place);
        }
        move_mount(&self.tree, "", CWD, &self.place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(|error| format!("mount {:?}: {error}", self.place.display().to_string()))
    }
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::{Mount, MountBuilder};

    use super::{is_volume_at_cgroups, special};

    fn volume(place: &str) -> Mount {
        special(place, "bind", "/data", &["rbind", "rprivate"]).expect("a mount")
    }

    #[test]
    fn a_volume_over_cgroups_or_in_them_is_seen() {
        for place in ["/sys/fs/cgroup", "/sys/fs", "/sys", "/", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu/deep"] {
            assert!(is_volume_at_cgroups(&volume(place)), "{place}");
        }
        for place in ["/sys/fs/cgroups", "/sys/fs/bpf", "/data"] {
            assert!(!is_volume_at_cgroups(&volume(place)), "{place}");
        }
        let usual = special("/sys/fs/cgroup/cpu", "bind", "/x", &["bind", "rprivate", "ro"]).expect("a mount");
        assert!(!is_volume_at_cgroups(&usual), "its own cgroups are no volume");
        let kernels = MountBuilder::default().destination("/sys").typ("sysfs").build().expect("a mount");
        assert!(!is_volume_at_cgroups(&kernels));
    }
}
