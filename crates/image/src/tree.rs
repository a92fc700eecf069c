//! Directory trees: measuring and removing them, without ever leaving them.
//!
//! Both walk by directory descriptors, follow no links and stay on one mount: what is mounted into a tree (a volume of
//! a container) is neither counted nor removed. Neither memory nor descriptors grow with the size or depth of a tree,
//! because a container controls both: measuring keeps few levels open and returns by `..`, and removing moves
//! directories to the top.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// The disk usage of a tree.
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

/// How often a directory is read before the remaining entries count as concurrently created. File systems that hide
/// names during removal need two rounds.
const MOST_ROUNDS: u32 = 8;
/// So many levels at the top of a tree, and as many at the place that is being counted, stay open.
const OPEN_LEVELS: usize = 16;

/// A directory on the way down. Its names are read as they are visited: there may be millions of them.
struct Level {
    /// none if it was closed to be opened again on the way back
    directory: Option<Dir>,
    /// device and inode
    identity: (u64, u64),
    /// where reading goes on
    position: i64,
}

/// A sum of shares. A file with several names is counted at each of them, as its part of all: to remember which were counted
/// would take memory without a bound. 64 bits of a fraction are enough for the sum of any number of names to be exact when
/// rounded.
#[derive(Default)]
struct Shares {
    bytes: u128,
    inodes: u128,
}

/// Opens a directory that is not a link.
pub(crate) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())?)
}

/// Counts a tree. Files that vanish meanwhile are not counted; a hard link is counted as its share of the file.
pub(crate) fn usage(path: &Path) -> io::Result<Usage> {
    let root = open_directory(path)?;
    let mut total = Shares::default();
    total.add(&rustix::fs::fstat(&root)?);
    walk(root, |stat, _| {
        total.add(stat);
        Ok(true)
    })?;
    Ok(total.sum())
}

/// Walks a tree below a directory. Each file and directory is seen once, a directory with a descriptor of it, and what is said of
/// a directory is whether to walk into it.
pub(crate) fn walk(
    root: OwnedFd,
    mut visit: impl FnMut(&Stat, Option<BorrowedFd<'_>>) -> io::Result<bool>,
) -> io::Result<()> {
    let stat = rustix::fs::fstat(&root)?;
    let mut levels = vec![Level::new(root, &stat)?];
    while let Some(level) = levels.last_mut() {
        let Some(directory) = &mut level.directory else {
            // It was moved elsewhere while it was closed; its other content is not part of this tree.
            levels.pop();
            continue;
        };
        let Some((name, position)) = next_name(directory)? else {
            let below = levels.pop();
            climb(below.as_ref(), levels.last_mut())?;
            continue;
        };
        level.position = position;
        let stat = match rustix::fs::statat(directory.fd()?, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            stat => stat?,
        };
        if !is_directory(&stat) {
            visit(&stat, None)?;
            continue;
        }
        match open_child(directory.fd()?, &name) {
            Ok(child) => {
                if !visit(&stat, Some(child.as_fd()))? {
                    continue;
                }
                levels.push(Level::new(child, &stat)?);
                if let Some(level) = levels.len().checked_sub(OPEN_LEVELS + 1).filter(|level| *level >= OPEN_LEVELS) {
                    levels[level].directory = None;
                }
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::LOOP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Opens a level again that was closed, from the one below it. It stays closed if it is no longer there.
fn climb(below: Option<&Level>, above: Option<&mut Level>) -> io::Result<()> {
    let (Some(Level { directory: Some(below), .. }), Some(above @ Level { directory: None, .. })) = (below, above)
    else {
        return Ok(());
    };
    let parent = rustix::fs::openat(below.fd()?, c"..", DIRECTORY, Mode::empty())?;
    let stat = rustix::fs::fstat(&parent)?;
    if identity(&stat) == above.identity {
        let mut directory = Dir::new(parent)?;
        directory.seek(above.position)?;
        above.directory = Some(directory);
    }
    Ok(())
}

/// Removes a file or tree; succeeds if it does not exist. A mount within it is an error, and is not touched.
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

/// Removes an entry of a directory, recursively. Depth costs nothing: a directory that is not empty is moved to the top
/// and emptied there.
pub(crate) fn remove_at(parent: impl AsFd, name: &CStr) -> Result<(), Errno> {
    if unlink(parent.as_fd(), name)? {
        return Ok(());
    }
    let mut top = Dir::new(open_child(parent.as_fd(), name)?)?;
    let mut moved = Numbers(0);
    loop {
        let mut seen = false;
        while let Some((child, _)) = next_name(&mut top)? {
            seen = true;
            if !remove_empty(top.fd()?, &child)? {
                empty_into(top.fd()?, &child, &mut moved)?;
            }
        }
        if !seen {
            break;
        }
        // Some of what was moved here came before the place that was read last.
        top.rewind();
    }
    match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Empties a directory within the top, and removes it.
fn empty_into(top: BorrowedFd<'_>, name: &CStr, moved: &mut Numbers) -> Result<(), Errno> {
    let mut directory = match open_child(top, name) {
        Err(Errno::NOENT) => return Ok(()),
        directory => Dir::new(directory?)?,
    };
    for round in 1.. {
        while let Some((child, _)) = next_name(&mut directory)? {
            if !remove_empty(directory.fd()?, &child)? {
                moved.move_to(top, directory.fd()?, &child)?;
            }
        }
        match rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => break,
            // What is removed while it is read may hide some of the rest from the reader.
            Err(Errno::NOTEMPTY) if round < MOST_ROUNDS => directory.rewind(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Removes a file or an empty directory. False for a directory that is not empty. A mount point is an error that the
/// kernel reports first.
fn remove_empty(parent: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
    if unlink(parent, name)? {
        return Ok(true);
    }
    match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Names for what is moved.
struct Numbers(u64);

/// Removes a file. False for a directory.
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

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// The next name in a directory, and where the one after it is.
fn next_name(directory: &mut Dir) -> Result<Option<(CString, i64)>, Errno> {
    while let Some(entry) = directory.read() {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_bytes() != b"." && name.to_bytes() != b".." {
            return Ok(Some((name.to_owned(), entry.offset())));
        }
    }
    Ok(None)
}

// === impl Usage ===

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.inodes += other.inodes;
    }
}

// === impl Level ===

impl Level {
    fn new(directory: OwnedFd, stat: &Stat) -> Result<Self, Errno> {
        Ok(Self { directory: Some(Dir::new(directory)?), identity: identity(stat), position: 0 })
    }
}

// === impl Shares ===

impl Shares {
    fn add(&mut self, stat: &Stat) {
        // Blocks are counted in units of 512 bytes whatever the file system's own are. A directory has one name; what counts as
        // its links are those within it.
        let names = if is_directory(stat) { 1 } else { u128::from(stat.st_nlink.max(1)) };
        let share = |whole: u64| (u128::from(whole) << 64) / names;
        self.bytes += share(stat.st_blocks.cast_unsigned() * 512);
        self.inodes += share(1);
    }

    fn sum(&self) -> Usage {
        let rounded = |shares: u128| u64::try_from((shares + (1 << 63)) >> 64).unwrap_or(u64::MAX);
        Usage { bytes: rounded(self.bytes), inodes: rounded(self.inodes) }
    }
}

// === impl Numbers ===

impl Numbers {
    /// Moves a directory to the top under a name that nothing there has.
    fn move_to(&mut self, top: BorrowedFd<'_>, from: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
        loop {
            let number = CString::new(self.0.to_string()).map_err(|_| Errno::INVAL)?;
            self.0 += 1;
            match rustix::fs::renameat_with(from, name, top, &number, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                Err(Errno::NOENT) => return Ok(()),
                moved => return moved,
            }
        }
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
