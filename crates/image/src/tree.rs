//! Whole directory trees: counting them and removing them, without ever leaving them.
//!
//! Both walk by directory descriptors, follow no links and stay on one mount: what somebody mounted into a tree (a
//! volume of a container) is neither counted nor removed.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// What a tree takes on its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// bytes of disk blocks
    pub bytes: u64,
    /// files, directories and links
    pub inodes: u64,
}

/// How to open a directory to look into it: itself, not what a link points to.
pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How often a directory is read before what is still in it counts as put there by somebody else. Those disks that hide names need
/// two rounds.
const MOST_ROUNDS: u32 = 8;

/// A directory on the way down. Its names are read as they are visited: somebody may have made millions of them.
struct Level {
    directory: Dir,
    /// how often it was read from its start
    rounds: u32,
}

/// Opens a directory that is no link.
pub(crate) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())?)
}

/// Counts a tree. Files that vanish meanwhile are not counted; hard links are counted once.
pub(crate) fn usage(path: &Path) -> io::Result<Usage> {
    let root = open_directory(path)?;
    let mut total = Usage::default();
    total.add(&rustix::fs::fstat(&root)?);
    let mut linked = BTreeSet::new();
    let mut levels = vec![Level::new(root)?];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.next()? else {
            levels.pop();
            continue;
        };
        let stat = match rustix::fs::statat(level.directory.fd()?, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            stat => stat?,
        };
        if !is_directory(&stat) {
            if stat.st_nlink == 1 || linked.insert(stat.st_ino) {
                total.add(&stat);
            }
            continue;
        }
        match open_child(level.directory.fd()?, &name) {
            Ok(child) => {
                total.add(&stat);
                levels.push(Level::new(child)?);
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::LOOP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(total)
}

/// Removes a file or tree; one that is not there is fine. A mount within it is an error, and is left alone.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let parent = match open_directory(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        parent => parent?,
    };
    let name = CString::new(name.as_encoded_bytes()).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(remove_at(&parent, &name)?)
}

/// Removes what has this name in a directory, all of it if it is a directory itself.
pub(crate) fn remove_at(parent: impl AsFd, name: &CStr) -> Result<(), Errno> {
    if unlink(parent.as_fd(), name)? {
        return Ok(());
    }
    let mut levels = vec![Level::new(open_child(parent.as_fd(), name)?)?];
    // The name under which each level but the first is found in the one above.
    let mut path: Vec<CString> = Vec::new();
    while let Some(level) = levels.last_mut() {
        if let Some(child) = level.next()? {
            if !unlink(level.directory.fd()?, &child)? {
                let directory = open_child(level.directory.fd()?, &child)?;
                levels.push(Level::new(directory)?);
                path.push(child);
            }
            continue;
        }
        let above = levels.len().checked_sub(2).and_then(|above| levels.get(above));
        let (above, name) = match (above, path.last()) {
            (Some(above), Some(child)) => (above.directory.fd()?, child.as_c_str()),
            _ => (parent.as_fd(), name),
        };
        match rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => drop((levels.pop(), path.pop())),
            Err(error) => match levels.last_mut() {
                // What is removed while it is read may hide some of the rest from the reader.
                Some(level) if error == Errno::NOTEMPTY && level.rounds < MOST_ROUNDS => level.start_again(),
                _ => return Err(error),
            },
        }
    }
    Ok(())
}

/// Removes what is no directory. False if it is one.
fn unlink(parent: impl AsFd, name: &CStr) -> Result<bool, Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Opens a directory within a directory: not a link, not on another mount.
fn open_child(parent: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    rustix::fs::openat2(parent, name, DIRECTORY, Mode::empty(), resolve)
}

fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

// === impl Usage ===

impl Usage {
    fn add(&mut self, stat: &Stat) {
        // Blocks are counted in units of 512 bytes whatever the file system's own are.
        self.bytes += stat.st_blocks as u64 * 512;
        self.inodes += 1;
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.inodes += other.inodes;
    }
}

// === impl Level ===

impl Level {
    fn new(directory: OwnedFd) -> Result<Self, Errno> {
        Ok(Self { directory: Dir::new(directory)?, rounds: 1 })
    }

    /// The next name.
    fn next(&mut self) -> Result<Option<CString>, Errno> {
        while let Some(entry) = self.directory.read() {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_bytes() != b"." && name.to_bytes() != b".." {
                return Ok(Some(name.to_owned()));
            }
        }
        Ok(None)
    }

    fn start_again(&mut self) {
        self.directory.rewind();
        self.rounds += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn removing_a_tree_leaves_what_its_links_point_to() {
        let place = tempfile::tempdir().unwrap();
        let (tree, outside) = (place.path().join("tree"), place.path().join("outside"));
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "kept").unwrap();
        fs::write(tree.join("a/b/file"), "x").unwrap();
        symlink(&outside, tree.join("a/link")).unwrap();
        remove(&tree).unwrap();
        assert!(!tree.exists());
        assert!(outside.join("kept").exists());
        remove(&tree).unwrap();
        remove(&outside.join("kept")).unwrap();
        assert!(!outside.join("kept").exists());
    }

    #[test]
    fn usage_counts_inodes_and_hard_links_once() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("d")).unwrap();
        fs::write(place.path().join("d/file"), vec![1; 100_000]).unwrap();
        fs::hard_link(place.path().join("d/file"), place.path().join("again")).unwrap();
        let usage = usage(place.path()).unwrap();
        assert_eq!(usage.inodes, 3);
        assert!((100_000..200_000).contains(&usage.bytes), "{usage:?}");
    }

    #[test]
    fn a_directory_with_more_names_than_are_read_at_a_time_is_counted_and_removed() {
        let place = tempfile::tempdir().unwrap();
        let tree = place.path().join("tree");
        for directory in ["a", "b"] {
            fs::create_dir_all(tree.join(directory)).unwrap();
            for number in 0..2000 {
                fs::write(tree.join(directory).join(format!("a file with a long name, number {number}")), "").unwrap();
            }
        }
        assert_eq!(usage(&tree).unwrap().inodes, 4003);
        remove(&tree).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn a_deep_tree_is_removed_without_a_deep_stack() {
        let place = tempfile::tempdir().unwrap();
        let mut path = place.path().join("deep");
        for _ in 0..400 {
            path.push("d");
        }
        fs::create_dir_all(&path).unwrap();
        remove(&place.path().join("deep")).unwrap();
        assert!(!place.path().join("deep").exists());
    }
}
