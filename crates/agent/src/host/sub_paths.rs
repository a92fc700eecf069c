//! Parts of volumes that containers mount.
//!
//! Whoever writes to a volume can put a symbolic link where a part is to be. So a part is reached one name at a time,
//! and a link on the way is refused, wherever it leads.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Component, Path},
};

use rustix::fs::{CWD, Mode, OFlags, fstat, mkdirat, openat};
use rustix::io::Errno;

/// What the kubelet gives to directories that it makes on the way to a part.
const MODE: Mode = Mode::from_raw_mode(0o750);

/// Makes the directories that lead to a part of a volume, and the part itself, unless they are there.
pub(super) fn make(volume: &Path, part: &Path) -> io::Result<()> {
    let mut place = openat(CWD, volume, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for component in part.components() {
        let Component::Normal(name) = component else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it leads out of the volume"));
        };
        place = step(&place, Path::new(name))?;
    }
    Ok(())
}

fn step(place: &OwnedFd, name: &Path) -> io::Result<OwnedFd> {
    let open = || openat(place, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    let found = match open() {
        Err(Errno::NOENT) => {
            match mkdirat(place, name, MODE) {
                // Somebody else made it meanwhile; what it is, is seen next.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            open()?
        }
        other => other?,
    };
    if rustix::fs::FileType::from_raw_mode(fstat(&found)?.st_mode).is_symlink() {
        let message = format!("{} is a symbolic link, which could lead out of the volume", name.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::make;

    #[test]
    fn missing_directories_are_made_and_existing_ones_kept() {
        let volume = tempfile::tempdir().expect("a directory");
        fs::create_dir(volume.path().join("a")).expect("made");
        fs::write(volume.path().join("a/kept"), "x").expect("written");
        make(volume.path(), Path::new("a/b/c")).expect("made");
        make(volume.path(), Path::new("a/b/c")).expect("found");
        assert!(volume.path().join("a/b/c").is_dir());
        make(volume.path(), Path::new("a/kept")).expect("a file is a part too");
    }

    #[test]
    fn a_link_on_the_way_is_refused_and_nothing_is_made_behind_it() {
        let volume = tempfile::tempdir().expect("a directory");
        let outside = tempfile::tempdir().expect("a directory");
        symlink(outside.path(), volume.path().join("link")).expect("linked");
        for part in ["link", "link/inside", "../beside", "/etc"] {
            make(volume.path(), Path::new(part)).expect_err(part);
        }
        assert_eq!(fs::read_dir(outside.path()).expect("read").count(), 0);
    }
}
