//! Mounts that libcontainer cannot be left alone with.
//!
//! - Where `/dev` is a directory of the node, it would make its devices and links there, on the node. So it gets an empty `/dev`,
//!   and what was asked for is opened before and put over it at the end, when nothing is made any more.
//! - It makes devices and links in `/dev` by path, after all mounts. What is mounted on a path that leads there, through a link of the
//!   image or of another volume, would be filled by it, on the node. So it gets none of the volumes: they are opened before, and each is put
//!   in its place at the end, in the container and by descriptors ([`crate::place`]).
//! - How far mounts travel through a volume it leaves to chance: to what the node has there, and to what another volume needs of
//!   the root.
//! - What is bound at and below `/proc` and `/sys` it gets all the same, because it masks paths in there once that is in its place.
//!   Not so the views of cgroups of the first generation, which are a dozen mounts of a hundred calls into the kernel each.
//! - A root that is read-only is made so after all that, because what is missing has to be made first.

use std::{
    fmt,
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use keelet_linux::{
    cgroup::Mounts,
    mount::{
        ALL_ACCESS_TIMES, Attributes, NO_ACCESS_TIMES, NO_DEV, NO_DIRECTORY_ACCESS_TIMES, NO_EXEC, NO_LINKS, NO_SUID,
        READ_ONLY, detached, set_attributes,
    },
    place::{self, Kind},
    userns,
};
use nix::mount::MsFlags;
use oci_spec::runtime::{Mount, MountBuilder, Spec};
use rustix::{
    fs::{FileType, fstat},
    io::Errno,
    mount::{MoveMountFlags, move_mount},
};

use super::stage;

/// Where a container sees its cgroups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Something of the node that is put into the container at the end.
pub(super) struct Tree {
    tree: OwnedFd,
    place: PathBuf,
    kind: Kind,
}

/// What a mount is to be.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    /// With what is mounted below it.
    recursive: bool,
    /// Attributes of the mount itself.
    top: u64,
    /// And of all that is below it as well.
    everywhere: u64,
}

/// Options that have an attribute. With an `r` in front they are for all that is mounted below as well.
const ATTRIBUTES: [(&str, u64); 9] = [
    ("ro", READ_ONLY),
    ("nosuid", NO_SUID),
    ("nodev", NO_DEV),
    ("noexec", NO_EXEC),
    ("noatime", NO_ACCESS_TIMES),
    ("strictatime", ALL_ACCESS_TIMES),
    ("nodiratime", NO_DIRECTORY_ACCESS_TIMES),
    ("nosymfollow", NO_LINKS),
    ("relatime", 0),
];

/// Options that say what a mount is anyway, or how far mounts travel through it.
const NOT_ATTRIBUTES: [&str; 13] = [
    "bind", "rbind", "rw", "suid", "dev", "exec", "defaults", "private", "rprivate", "slave", "rslave", "shared",
    "rshared",
];

/// Where libcontainer masks paths.
const KERNELS: [&str; 2] = ["/proc", "/sys"];

/// The configuration without what is mounted at the end, and that.
pub(super) fn arrange(mut spec: Spec, cgroups: &Mounts) -> Result<(Spec, Vec<Tree>), String> {
    let mounts = spec.mounts().clone().unwrap_or_default();
    let dev = Path::new("/dev");
    let nodes_devices = mounts.iter().any(|mount| is_bind(mount) && mount.destination() == dev);
    let users = stage::users(&spec)?;
    // Where the pod has users of its own, its root may look at its cgroups and not open them.
    let own_cgroups = matches!(cgroups, Mounts::V1(_)) && users.is_none() && !mounts.iter().any(is_volume_at_cgroups);
    let is_view = |mount: &Mount| own_cgroups && mount.destination().starts_with(CGROUPS);
    let is_kernels = |mount: &Mount| KERNELS.iter().any(|place| mount.destination().starts_with(place));
    let is_early = |mount: &Mount| !is_bind(mount) || (is_kernels(mount) && !is_view(mount));
    let (mut early, mut late): (Vec<_>, Vec<_>) = mounts.into_iter().partition(is_early);
    if nodes_devices {
        early.insert(0, special("/dev", "tmpfs", "tmpfs", &["nosuid", "mode=755", "size=65536k"])?);
    }
    spec.set_mounts(Some(early));
    // What is in a volume at `/dev` comes after it, also what every container has there.
    let depth = |mount: &Mount| mount.destination().components().count();
    late.sort_by_key(|mount| (nodes_devices && mount.destination().starts_with(dev)).then(|| depth(mount)));
    let trees = late.iter().map(|mount| Tree::open(mount, users.as_ref())).collect::<Result<_, _>>()?;
    Ok((spec, trees))
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

fn options(mount: &Mount) -> Result<Options, String> {
    let attribute = |name: &str| ATTRIBUTES.iter().find(|(known, _)| *known == name).map(|(_, attribute)| *attribute);
    let mut options = Options { recursive: false, top: 0, everywhere: 0 };
    for name in mount.options().iter().flatten() {
        options.recursive |= name == "rbind";
        if let Some(attribute) = attribute(name) {
            options.top |= attribute;
        } else if let Some(attribute) = name.strip_prefix('r').and_then(attribute) {
            options.everywhere |= attribute;
        } else if !NOT_ATTRIBUTES.contains(&name.as_str()) {
            let place = mount.destination().display().to_string();
            return Err(format!("mount {place:?}: the option {name:?} is not known"));
        }
    }
    Ok(options)
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
    fn open(mount: &Mount, users: Option<&File>) -> Result<Self, String> {
        let place = mount.destination().clone();
        let fail = |error: io::Error| format!("mount {:?}: {error}", place.display().to_string());
        let source = mount.source().clone().unwrap_or_default();
        let fail_at = |error: io::Error| fail(io::Error::new(error.kind(), format!("{}: {error}", source.display())));
        let Options { recursive, top, everywhere } = options(mount)?;
        let tree = detached(&source, recursive).map_err(fail_at)?;
        if let (Some(users), Some(_)) = (users, mount.uid_mappings()) {
            userns::translate(tree.as_fd(), users.as_fd()).map_err(fail_at)?;
        }
        let all = Attributes { set: everywhere, propagation: propagation(mount), recursive: true };
        set_attributes(tree.as_fd(), &all).map_err(fail)?;
        let top = Attributes { set: top, propagation: 0, recursive: false };
        set_attributes(tree.as_fd(), &top).map_err(fail)?;
        let kind = match FileType::from_raw_mode(fstat(&tree).map_err(|error| fail(error.into()))?.st_mode) {
            FileType::Directory => Kind::Directory,
            _ => Kind::File,
        };
        Ok(Self { tree, place, kind })
    }

    /// Puts it in its place, which is made if it is missing. This process is in the container. Nothing is left open that leads there.
    pub(super) fn put(self, root: BorrowedFd<'_>) -> Result<(), String> {
        let fail = |error: &dyn fmt::Display| format!("mount {:?}: {error}", self.place.display().to_string());
        let place = place::find_or_make(root, &self.place, self.kind).map_err(|error| fail(&error))?;
        if place::is_same(place.as_fd(), root).map_err(|error| fail(&error))? {
            return Err(fail(&"it leads to the root directory, where nothing can be mounted"));
        }
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&self.tree, "", &place, "", flags).map_err(|error| match (error, self.kind) {
            (Errno::NOTDIR, Kind::Directory) => {
                fail(&"a directory is mounted there, and the container has a file there")
            }
            (Errno::NOTDIR, Kind::File) => fail(&"a file is mounted there, and the container has a directory there"),
            _ => fail(&error),
        })
    }
}

#[cfg(test)]
mod tests {
    use keelet_linux::mount::{NO_ACCESS_TIMES, NO_DEV, READ_ONLY};
    use oci_spec::runtime::{Mount, MountBuilder};

    use super::{Options, is_volume_at_cgroups, options, special};

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

    #[test]
    fn options_are_for_the_mount_or_for_all_below_it() {
        let of = |names: &[&str]| options(&special("/data", "bind", "/x", names).expect("a mount"));
        let none = Options { recursive: false, top: 0, everywhere: 0 };
        assert_eq!(of(&["bind", "rprivate", "rw"]), Ok(none));
        let both = Options { recursive: true, top: NO_DEV | NO_ACCESS_TIMES, everywhere: READ_ONLY };
        assert_eq!(of(&["rbind", "rslave", "rro", "nodev", "noatime"]), Ok(both));
        assert_eq!(of(&["quick"]), Err("mount \"/data\": the option \"quick\" is not known".to_owned()));
    }
}
