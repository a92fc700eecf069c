//! Mounts that libcontainer does not get, and that are attached in the container at the end.
//!
//! - Where `/dev` is a directory of the node, libcontainer would create its devices and links in it, on the node. So it gets an empty
//!   `/dev`, and the requested directory is opened before and mounted over it at the end, when nothing is created any more.
//! - libcontainer creates devices and links in `/dev` by path, after all mounts. A volume whose mount point leads there, through a link of
//!   the image or of another volume, would be filled on the node. So libcontainer gets none of the volumes: they are opened before, and
//!   each is attached at the end, inside the container and by descriptors ([`keelet_linux::in_root`]).
//! - libcontainer does not control mount propagation of a volume: it depends on the node's mount and on what another volume needs of the
//!   root.
//! - Bind mounts at and below `/proc` and `/sys` go to libcontainer all the same, because it masks paths there after mounting. The views of
//!   cgroup v1 are an exception: a dozen mounts that take libcontainer a hundred system calls each.
//! - A read-only root is made read-only after all that, because missing mount points have to be created first.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use keelet_linux::{
    cgroup::Mounts,
    in_root::{Kind, is_same, open_or_create},
    mount::{
        ALL_ACCESS_TIMES, Attributes, NO_ACCESS_TIMES, NO_DEV, NO_DIRECTORY_ACCESS_TIMES, NO_EXEC, NO_LINKS, NO_SUID,
        READ_ONLY, detached, set_attributes,
    },
    userns,
};
use nix::mount::MsFlags;
use oci_spec::runtime::{Mount, MountBuilder, Spec};
use rustix::{
    fs::{FileType, fstat},
    io::Errno,
    mount::{MoveMountFlags, move_mount},
};

use super::{CreateError, userns_root};

/// Where a container sees its cgroups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Where libcontainer masks paths.
const MASKED: [&str; 2] = ["/proc", "/sys"];

/// Options that set an attribute. With an `r` in front they apply to all mounts below as well.
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

/// Options that are the default, or set the propagation.
const NOT_ATTRIBUTES: [&str; 13] = [
    "bind", "rbind", "rw", "suid", "dev", "exec", "defaults", "private", "rprivate", "slave", "rslave", "shared",
    "rshared",
];

/// A detached mount that is attached in the container at the end.
pub(super) struct LateMount {
    tree: OwnedFd,
    destination: PathBuf,
    kind: Kind,
}

/// Parsed options of a mount.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    /// With the mounts below it.
    recursive: bool,
    /// Attributes of the mount itself.
    top: u64,
    /// Attributes of all mounts below it as well.
    everywhere: u64,
}

/// A mount that failed.
#[derive(Debug, thiserror::Error)]
#[error("mount {destination:?}: {problem}")]
pub(super) struct MountError {
    destination: PathBuf,
    problem: Problem,
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("unknown option {0:?}")]
    UnknownOption(String),
    #[error("invalid mount: {0}")]
    Invalid(oci_spec::OciSpecError),
    #[error("cannot clone {}: {error}", path.display())]
    Clone { path: PathBuf, error: io::Error },
    #[error("cannot map the owners of {} to the user namespace: {error}", path.display())]
    MapOwners { path: PathBuf, error: io::Error },
    #[error("cannot set the attributes of the mount: {0}")]
    Attributes(io::Error),
    #[error("cannot set the propagation of the mount: {0}")]
    Propagation(nix::Error),
    #[error("cannot open the mount point: {0}")]
    MountPoint(io::Error),
    #[error("the mount point resolves to the root directory, which cannot be mounted on")]
    Root,
    #[error("cannot mount a directory on a file of the container")]
    DirectoryOnFile,
    #[error("cannot mount a file on a directory of the container")]
    FileOnDirectory,
    #[error("cannot attach the mount: {0}")]
    Attach(io::Error),
}

/// Splits a configuration: what libcontainer gets, and the mounts that are attached at the end.
pub(super) fn split(mut spec: Spec, cgroups: &Mounts) -> Result<(Spec, Vec<LateMount>), CreateError> {
    let mounts = spec.mounts().clone().unwrap_or_default();
    let dev = Path::new("/dev");
    let has_nodes_dev = mounts.iter().any(|mount| is_bind(mount) && mount.destination() == dev);
    let user_namespace = userns_root::user_namespace(&spec)?;
    // Root of a user namespace may list its cgroups and not clone their mounts.
    let attaches_cgroups =
        matches!(cgroups, Mounts::V1(_)) && user_namespace.is_none() && !mounts.iter().any(is_volume_at_cgroups);
    let is_cgroup_view = |mount: &Mount| attaches_cgroups && mount.destination().starts_with(CGROUPS);
    let is_masked = |mount: &Mount| MASKED.iter().any(|place| mount.destination().starts_with(place));
    let is_early = |mount: &Mount| !is_bind(mount) || (is_masked(mount) && !is_cgroup_view(mount));
    let (mut early, mut late): (Vec<_>, Vec<_>) = mounts.into_iter().partition(is_early);
    if has_nodes_dev {
        early.insert(0, build("/dev", "tmpfs", "tmpfs", &["nosuid", "mode=755", "size=65536k"])?);
    }
    spec.set_mounts(Some(early));
    // Mounts below a volume at `/dev` come after it, also those that every container has.
    let depth = |mount: &Mount| mount.destination().components().count();
    late.sort_by_key(|mount| (has_nodes_dev && mount.destination().starts_with(dev)).then(|| depth(mount)));
    let late = late.iter().map(|mount| LateMount::open(mount, user_namespace.as_ref())).collect::<Result<_, _>>()?;
    Ok((spec, late))
}

fn is_bind(mount: &Mount) -> bool {
    mount.typ().as_deref() == Some("bind")
}

/// Whether a volume is mounted over a container's cgroups, or below them.
fn is_volume_at_cgroups(mount: &Mount) -> bool {
    let recursive = mount.options().iter().flatten().any(|option| option == "rbind");
    let place = mount.destination();
    recursive && (place.starts_with(CGROUPS) || Path::new(CGROUPS).starts_with(place))
}

fn build(destination: &str, kind: &str, source: &str, options: &[&str]) -> Result<Mount, MountError> {
    let options = options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>();
    let built = MountBuilder::default().destination(destination).typ(kind).source(source).options(options).build();
    built.map_err(|error| Problem::Invalid(error).at(Path::new(destination)))
}

/// Sets the propagation of each volume. This process is in the container.
pub(super) fn set_propagation(mounts: &[Mount]) -> Result<(), MountError> {
    let none = None::<&str>;
    for mount in mounts.iter().filter(|mount| is_bind(mount)) {
        let destination = mount.destination();
        let flags = match propagation(mount) {
            libc::MS_SHARED => MsFlags::MS_SHARED,
            libc::MS_SLAVE => MsFlags::MS_SLAVE,
            _ => MsFlags::MS_PRIVATE,
        };
        match nix::mount::mount(none, destination, none, flags | MsFlags::MS_REC, none) {
            // Something else is mounted over it.
            Ok(()) | Err(nix::Error::EINVAL | nix::Error::ENOENT) => {}
            Err(error) => return Err(Problem::Propagation(error).at(destination)),
        }
    }
    Ok(())
}

fn options(mount: &Mount) -> Result<Options, MountError> {
    let attribute = |name: &str| ATTRIBUTES.iter().find(|(known, _)| *known == name).map(|(_, attribute)| *attribute);
    let mut options = Options { recursive: false, top: 0, everywhere: 0 };
    for name in mount.options().iter().flatten() {
        options.recursive |= name == "rbind";
        if let Some(attribute) = attribute(name) {
            options.top |= attribute;
        } else if let Some(attribute) = name.strip_prefix('r').and_then(attribute) {
            options.everywhere |= attribute;
        } else if !NOT_ATTRIBUTES.contains(&name.as_str()) {
            return Err(Problem::UnknownOption(name.clone()).at(mount.destination()));
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

// === impl MountError ===

impl MountError {
    pub(super) fn map_owners(destination: &Path, path: PathBuf, error: io::Error) -> Self {
        Problem::MapOwners { path, error }.at(destination)
    }
}

// === impl Problem ===

impl Problem {
    fn at(self, destination: &Path) -> MountError {
        MountError { destination: destination.to_owned(), problem: self }
    }
}

// === impl LateMount ===

impl LateMount {
    fn open(mount: &Mount, user_namespace: Option<&File>) -> Result<Self, MountError> {
        let destination = mount.destination().clone();
        let at = |problem: Problem| problem.at(&destination);
        let source = mount.source().clone().unwrap_or_default();
        let Options { recursive, top, everywhere } = options(mount)?;
        let tree = detached(&source, recursive);
        let tree = tree.map_err(|error| at(Problem::Clone { path: source.clone(), error }))?;
        if let (Some(user_namespace), Some(_)) = (user_namespace, mount.uid_mappings()) {
            userns::map_owners(tree.as_fd(), user_namespace.as_fd())
                .map_err(|error| at(Problem::MapOwners { path: source, error }))?;
        }
        let all = Attributes { set: everywhere, propagation: propagation(mount), recursive: true };
        let top = Attributes { set: top, propagation: 0, recursive: false };
        for attributes in [all, top] {
            set_attributes(tree.as_fd(), &attributes).map_err(|error| at(Problem::Attributes(error)))?;
        }
        let stat = fstat(&tree).map_err(|error| at(Problem::Attributes(error.into())))?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Kind::Directory,
            _ => Kind::File,
        };
        Ok(Self { tree, destination, kind })
    }

    /// Attaches it, on a mount point that is created if it is missing. This process is in the container. No descriptor of the mount stays
    /// open.
    pub(super) fn attach(self, root: BorrowedFd<'_>) -> Result<(), MountError> {
        let at = |problem: Problem| problem.at(&self.destination);
        let opening = |error: io::Error| at(Problem::MountPoint(error));
        let place = open_or_create(root, &self.destination, self.kind).map_err(opening)?;
        if is_same(place.as_fd(), root).map_err(opening)? {
            return Err(at(Problem::Root));
        }
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&self.tree, "", &place, "", flags).map_err(|error| match (error, self.kind) {
            (Errno::NOTDIR, Kind::Directory) => at(Problem::DirectoryOnFile),
            (Errno::NOTDIR, Kind::File) => at(Problem::FileOnDirectory),
            _ => at(Problem::Attach(error.into())),
        })
    }
}

#[cfg(test)]
mod tests {
    use keelet_linux::mount::{NO_ACCESS_TIMES, NO_DEV, READ_ONLY};
    use oci_spec::runtime::{Mount, MountBuilder};

    use super::{Options, build, is_volume_at_cgroups, options};

    fn volume(place: &str) -> Mount {
        build(place, "bind", "/data", &["rbind", "rprivate"]).expect("a mount")
    }

    #[test]
    fn a_volume_over_or_below_cgroups_is_recognised() {
        for place in ["/sys/fs/cgroup", "/sys/fs", "/sys", "/", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu/deep"] {
            assert!(is_volume_at_cgroups(&volume(place)), "{place}");
        }
        for place in ["/sys/fs/cgroups", "/sys/fs/bpf", "/data"] {
            assert!(!is_volume_at_cgroups(&volume(place)), "{place}");
        }
        let view = build("/sys/fs/cgroup/cpu", "bind", "/x", &["bind", "rprivate", "ro"]).expect("a mount");
        assert!(!is_volume_at_cgroups(&view), "the view of its own cgroups is not a volume");
        let sysfs = MountBuilder::default().destination("/sys").typ("sysfs").build().expect("a mount");
        assert!(!is_volume_at_cgroups(&sysfs));
    }

    #[test]
    fn options_apply_to_the_mount_or_to_all_below_it() {
        let of = |names: &[&str]| {
            options(&build("/data", "bind", "/x", names).expect("a mount")).map_err(|error| error.to_string())
        };
        let none = Options { recursive: false, top: 0, everywhere: 0 };
        assert_eq!(of(&["bind", "rprivate", "rw"]), Ok(none));
        let both = Options { recursive: true, top: NO_DEV | NO_ACCESS_TIMES, everywhere: READ_ONLY };
        assert_eq!(of(&["rbind", "rslave", "rro", "nodev", "noatime"]), Ok(both));
        assert_eq!(of(&["quick"]), Err("mount \"/data\": unknown option \"quick\"".to_owned()));
    }
}
