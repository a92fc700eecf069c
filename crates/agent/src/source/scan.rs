//! One scan of a manifest directory. Blocks.

use std::{
    collections::BTreeMap,
    fs::{self, DirEntry, File, Metadata, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

use keelet_pod::MAX_MANIFEST_BYTES;
use rustix::fs::OFlags;

use super::Content;

/// What a scan showed.
#[derive(Debug)]
pub(super) struct Scan {
    /// Which directory it was, whatever its name means later.
    pub(super) directory: Identity,
    pub(super) files: Vec<(String, Content)>,
    /// For the next scan.
    pub(super) stamps: Stamps,
}

/// Device and inode.
pub(super) type Identity = (u64, u64);

/// What each file was like, by name.
pub(super) type Stamps = BTreeMap<String, Stamp>;

/// It changes when a process writes to a file or puts another one in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    identity: Identity,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Whether something happened in the directory a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Air {
    /// Nothing: what is in a file is what its writer meant to write.
    Quiet,
    /// Something, and still does. Files that are not as they were at the last scan may be half-written.
    Busy,
}

/// Which directory this is.
pub(super) fn identify(directory: &Path) -> io::Result<Identity> {
    Ok(identity(&fs::metadata(directory)?))
}

/// Reads all files of a directory, sorted by name.
pub(super) fn scan(directory: &Path, before: &Stamps, air: Air) -> io::Result<Scan> {
    let mut scan = Scan { directory: identify(directory)?, files: Vec::new(), stamps: Stamps::new() };
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_ignored(&name) {
            continue;
        }
        match read(&entry) {
            Ok(Reading::Settled(bytes, stamp)) => {
                let settled = air == Air::Quiet || before.get(&name) == Some(&stamp);
                scan.stamps.insert(name.clone(), stamp);
                scan.files.push((name, if settled { Content::Bytes(bytes) } else { Content::Busy }));
            }
            Ok(Reading::Changing) => scan.files.push((name, Content::Busy)),
            Ok(Reading::NotAFile(what)) => scan.files.push((name, Content::NotAFile(what))),
            // Removed since the directory was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound && entry.metadata().is_err() => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                scan.files.push((name, Content::Unreadable("dangling symbolic link".to_owned())));
            }
            Err(error) => scan.files.push((name, Content::Unreadable(error.to_string()))),
        }
    }
    scan.files.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(scan)
}

/// Whether a file of that name is no manifest: hidden ones, and what editors leave beside the file they edit.
fn is_ignored(name: &str) -> bool {
    name.starts_with('.')
        || name.ends_with('~')
        || name.ends_with(".swp")
        || (name.starts_with('#') && name.ends_with('#'))
}

enum Reading {
    Settled(Vec<u8>, Stamp),
    /// It changed while it was read.
    Changing,
    NotAFile(&'static str),
}

/// Reads a file, through links as the kubelet does. Never waits for the other end of a pipe.
fn read(entry: &DirEntry) -> io::Result<Reading> {
    if entry.file_name().to_str().is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidFilename, "its name is not UTF-8"));
    }
    let path = entry.path();
    // Before it is opened: a device may do something when it is.
    if let Some(what) = not_a_file(&fs::metadata(&path)?) {
        return Ok(Reading::NotAFile(what));
    }
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(&path)?;
    let before = file.metadata()?;
    if let Some(what) = not_a_file(&before) {
        return Ok(Reading::NotAFile(what));
    }
    let bytes = read_all(&file)?;
    let (before, after) = (stamp(&before), stamp(&file.metadata()?));
    Ok(if before == after && bytes.len() as u64 == after.size {
        Reading::Settled(bytes, after)
    } else {
        Reading::Changing
    })
}

fn read_all(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than allowed shows that there is more.
    file.take(MAX_MANIFEST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_MANIFEST_BYTES {
        let message = format!("it is larger than {} MiB, the limit for a manifest", MAX_MANIFEST_BYTES >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

fn not_a_file(metadata: &Metadata) -> Option<&'static str> {
    match metadata.file_type() {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a directory"),
        kind if kind.is_fifo() => Some("a pipe"),
        kind if kind.is_socket() => Some("a socket"),
        _ => Some("a device"),
    }
}

fn stamp(metadata: &Metadata) -> Stamp {
    Stamp {
        identity: identity(metadata),
        size: metadata.size(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    }
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(scan: &Scan) -> Vec<(&str, &Content)> {
        scan.files.iter().map(|(name, content)| (name.as_str(), content)).collect()
    }

    #[test]
    fn a_file_is_not_taken_while_it_is_being_written() {
        let directory = tempfile::tempdir().unwrap();
        let (old, new) = (directory.path().join("old"), directory.path().join("new"));
        fs::write(&old, "old").unwrap();
        let scan = |before: &Scan, air| scan(directory.path(), &before.stamps, air).unwrap();
        let nothing = Scan { directory: (0, 0), files: Vec::new(), stamps: Stamps::new() };
        let first = scan(&nothing, Air::Quiet);
        assert_eq!(contents(&first), [("old", &Content::Bytes(b"old".to_vec()))]);
        // Something is going on. What was there before is what it was.
        fs::write(&new, "ne").unwrap();
        let second = scan(&first, Air::Busy);
        assert_eq!(contents(&second), [("new", &Content::Busy), ("old", &Content::Bytes(b"old".to_vec()))]);
        fs::write(&new, "new").unwrap();
        let third = scan(&second, Air::Busy);
        assert_eq!(contents(&third)[0], ("new", &Content::Busy));
        // It stays as it is, whatever else is going on.
        let fourth = scan(&third, Air::Busy);
        assert_eq!(contents(&fourth)[0], ("new", &Content::Bytes(b"new".to_vec())));
        // As large as before, and yet another one.
        fs::write(directory.path().join(".other"), "NEW").unwrap();
        fs::rename(directory.path().join(".other"), &new).unwrap();
        assert_eq!(contents(&scan(&fourth, Air::Busy))[0], ("new", &Content::Busy));
        assert_eq!(contents(&scan(&fourth, Air::Quiet))[0], ("new", &Content::Bytes(b"NEW".to_vec())));
    }

    #[test]
    fn a_name_that_is_not_unicode_is_reported() {
        use std::os::unix::ffi::OsStrExt;
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(std::ffi::OsStr::from_bytes(b"\xff.yaml")), "").unwrap();
        let scan = scan(directory.path(), &Stamps::new(), Air::Quiet).unwrap();
        assert_eq!(contents(&scan), [("\u{fffd}.yaml", &Content::Unreadable("its name is not UTF-8".to_owned()))]);
    }
}
