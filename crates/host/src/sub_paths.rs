//! Parts of volumes that containers mount.
//!
//! A process that writes to a volume can put a symbolic link where a part is to be, at any time: also between our check
//! at it and the runtime's (CVE-2021-25741). So a part is looked up once, and a link is followed only as far as it
//! stays in the volume. What was found is held open and bound to a place in the pod's own directory, where no container
//! writes:
//!
//! ```text
//! <root>/pods/<uid>/volume-subpaths/<volume>/<container>/<number>
//! ```
//!
//! That is what the runtime gets, and it leads to what was found, whatever has become of its name. It is a mount of the
//! agent's own namespace, as the kubelet's is; every start of the container gets it anew.

use std::{
    fs::{DirBuilder, OpenOptions},
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{DirBuilderExt, OpenOptionsExt},
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2},
    io::Errno,
    mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount},
};

use super::{
    PodPaths, make_dirs, names_in,
    removal::{self, RemoveError},
};

/// What the kubelet gives to directories that it makes on the way to a part.
const MODE: Mode = Mode::from_raw_mode(0o750);

/// Lookups of one name that are tried: the kernel gives up on a link with `..` when anything is renamed meanwhile, on the whole
/// node. Others had enough of it with 32.
const LOOKUPS: usize = 64;

/// Mounts on top of each other that are unmounted: there is one, unless another process mounted more.
const STACKED: usize = 16;

/// Finds a part of a volume. Directories that lead to it, and the part itself, are made unless they are there.
pub(super) fn find(volume: &Path, part: &Path) -> Result<OwnedFd, PartError> {
    let top = openat(CWD, volume, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let top = top.map_err(|error| PartError::OpenVolume(error.into()))?;
    let mut place = top.try_clone().map_err(PartError::OpenVolume)?;
    let mut so_far = PathBuf::new();
    for component in part.components() {
        let Component::Normal(name) = component else { return Err(PartError::PathLeavesVolume) };
        so_far.push(name);
        place = step(&top, &place, &so_far, Path::new(name)).map_err(|source| match source {
            Errno::XDEV => PartError::LinkLeavesVolume(so_far.clone()),
            source => PartError::LookUp { path: so_far.clone(), source },
        })?;
    }
    Ok(place)
}

/// A part of a volume that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum PartError {
    #[error("cannot open the volume: {0}")]
    OpenVolume(#[source] io::Error),
    #[error("the path leads out of the volume")]
    PathLeavesVolume,
    #[error("{} is a symbolic link that leads out of the volume", .0.display())]
    LinkLeavesVolume(PathBuf),
    #[error("{}: {source}", path.display())]
    LookUp { path: PathBuf, source: Errno },
    #[error("cannot bind mount on {}: {source}", place.display())]
    Bind { place: PathBuf, source: io::Error },
}

/// Places that cannot be removed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReleaseError {
    #[error("cannot list {}: {source}", directory.display())]
    List { directory: PathBuf, source: io::Error },
    #[error("cannot unmount {}: {source}", place.display())]
    Unmount { place: PathBuf, source: Errno },
    #[error(transparent)]
    Remove(#[from] RemoveError),
}

/// Has a place lead to a part. There must be nothing yet.
pub(super) fn bind(part: &OwnedFd, place: &Path) -> Result<(), PartError> {
    mount_on(part, place).map_err(|source| PartError::Bind { place: place.to_owned(), source })
}

fn mount_on(part: &OwnedFd, place: &Path) -> io::Result<()> {
    make_dirs(place.parent().unwrap_or(place), 0o750)?;
    // A directory can be mounted on a directory only, and anything else on anything else.
    match FileType::from_raw_mode(fstat(part)?.st_mode) {
        FileType::Directory => DirBuilder::new().mode(0o750).create(place)?,
        _ => drop(OpenOptions::new().write(true).create_new(true).mode(0o640).open(place)?),
    }
    // Not what is mounted below it: that could be this very place, which would be there twice as often each time.
    Ok(mount_bind(format!("/proc/self/fd/{}", part.as_raw_fd()), place)?)
}

/// Removes all places of a container. It has its own mounts of what they lead to.
pub(super) fn release_container(paths: &PodPaths, container: &str) -> Result<(), ReleaseError> {
    each_in(&paths.sub_paths(), |volume| release(&volume.join(container)))
}

/// Removes all places of a pod's containers.
pub(super) fn release_pod(pod: &Path) -> Result<(), ReleaseError> {
    each_in(&PodPaths::sub_paths_in(pod), |volume| each_in(&volume, |container| release(&container)))
}

fn release(places: &Path) -> Result<(), ReleaseError> {
    each_in(places, |place| unmount_all(&place).map_err(|source| ReleaseError::Unmount { place, source }))?;
    Ok(removal::remove(places)?)
}

fn unmount_all(place: &Path) -> Result<(), Errno> {
    for _ in 0..STACKED {
        // What was mounted in the volume since is mounted here too. It goes from here, and must not go from there.
        let _ = mount_change(place, MountPropagationFlags::PRIVATE | MountPropagationFlags::REC);
        match unmount(place, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            // After a reboot, say.
            Err(Errno::INVAL | Errno::NOENT) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn each_in(directory: &Path, mut work: impl FnMut(PathBuf) -> Result<(), ReleaseError>) -> Result<(), ReleaseError> {
    let names = match names_in(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        names => names.map_err(|source| ReleaseError::List { directory: directory.to_owned(), source })?,
    };
    names.into_iter().try_for_each(|name| work(directory.join(name)))
}

/// Goes to one name more, and makes a directory if there is nothing.
fn step(top: &OwnedFd, place: &OwnedFd, so_far: &Path, name: &Path) -> Result<OwnedFd, Errno> {
    match beneath(top, so_far) {
        Err(Errno::NOENT) => match mkdirat(place, name, MODE) {
            // Another process made it meanwhile; what it is, is seen next.
            Ok(()) | Err(Errno::EXIST) => beneath(top, so_far),
            Err(error) => Err(error),
        },
        found => found,
    }
}

fn beneath(top: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let lookup = || openat2(top, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve);
    (1..LOOKUPS).map(|_| lookup()).find(|found| !matches!(found, Err(Errno::AGAIN))).unwrap_or_else(lookup)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::{fd::AsRawFd, unix::fs::symlink},
        path::{Path, PathBuf},
    };

    use super::find;

    /// Where a part of a volume really is.
    fn found(volume: &Path, part: &str) -> PathBuf {
        let found = find(volume, Path::new(part)).expect(part);
        fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).expect("a link")
    }

    #[test]
    fn missing_directories_are_made_and_existing_ones_kept() {
        let volume = tempfile::tempdir().expect("a directory");
        fs::create_dir(volume.path().join("a")).expect("made");
        fs::write(volume.path().join("a/kept"), "x").expect("written");
        assert_eq!(found(volume.path(), "a/b/c"), volume.path().join("a/b/c"));
        assert_eq!(found(volume.path(), "a/b/c"), volume.path().join("a/b/c"));
        assert!(volume.path().join("a/b/c").is_dir());
        assert_eq!(found(volume.path(), "a/kept"), volume.path().join("a/kept"), "a file is a part too");
        let error = find(volume.path(), Path::new("a/kept/x")).expect_err("nothing is in a file");
        assert!(error.to_string().starts_with("a/kept/x: "), "{error}");
    }

    #[test]
    fn a_link_that_leads_out_is_refused_and_nothing_is_made_behind_it() {
        let volume = tempfile::tempdir().expect("a directory");
        let outside = tempfile::tempdir().expect("a directory");
        fs::create_dir(volume.path().join("in")).expect("made");
        symlink(outside.path(), volume.path().join("link")).expect("linked");
        symlink("../..", volume.path().join("in/up")).expect("linked");
        // Within the volume, but not as its containers see it: they may have it anywhere.
        symlink(volume.path().join("in"), volume.path().join("absolute")).expect("linked");
        for (part, link) in [("link", "link"), ("link/inside", "link"), ("in/up/x", "in/up"), ("absolute", "absolute")]
        {
            let error = find(volume.path(), Path::new(part)).expect_err(part).to_string();
            assert_eq!(error, format!("{link} is a symbolic link that leads out of the volume"));
        }
        for part in ["../beside", "/etc"] {
            find(volume.path(), Path::new(part)).expect_err(part);
        }
        assert_eq!(fs::read_dir(outside.path()).expect("read").count(), 0);
    }

    #[test]
    fn a_link_that_stays_in_the_volume_is_followed() {
        let volume = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(volume.path().join("releases/1")).expect("made");
        symlink("releases/1", volume.path().join("current")).expect("linked");
        symlink("../releases", volume.path().join("releases/again")).expect("linked");
        assert_eq!(found(volume.path(), "current"), volume.path().join("releases/1"));
        assert_eq!(found(volume.path(), "current/new"), volume.path().join("releases/1/new"));
        assert_eq!(found(volume.path(), "releases/again/1"), volume.path().join("releases/1"));
        symlink("nowhere", volume.path().join("dangling")).expect("linked");
        let error = find(volume.path(), Path::new("dangling/x")).expect_err("it leads nowhere");
        assert!(error.to_string().starts_with("dangling: No such file"), "{error}");
        assert!(!volume.path().join("nowhere").exists());
    }
}
