//! A private file system: layers are unpacked as root, with devices and owners, and a fault in that must not
//! reach the machine. And a way to see whether anything on it changed.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    unistd::geteuid,
};

/// Where it is, for this process alone.
pub const GROUND: &str = "/dev/shm";

/// What can be seen of a file: kind and mode, owner, size, number of names, change time, and the content or target.
pub type Look = (u32, u32, u32, u64, u64, (i64, i64), Vec<u8>);

/// Mounts an empty file system over [`GROUND`], in a mount namespace of this thread. To be called before any other
/// thread is started.
pub fn prepare() {
    if !geteuid().is_root() {
        quit("this target unpacks layers with devices and owners, so it needs root");
    }
    let prepared = unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>))
        .and_then(|()| {
            let flags = MsFlags::MS_NODEV | MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
            mount(Some("tmpfs"), GROUND, Some("tmpfs"), flags, Some("size=512m,mode=755"))
        });
    if let Err(error) = prepared {
        quit(&format!("no file system of one's own to unpack layers on: {error}"));
    }
}

/// Everything below a directory, links not followed.
pub fn look(directory: &Path) -> io::Result<BTreeMap<PathBuf, Look>> {
    let mut seen = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        let metadata = fs::symlink_metadata(&path)?;
        let content = if metadata.is_symlink() {
            fs::read_link(&path)?.into_os_string().into_encoded_bytes()
        } else if metadata.is_file() {
            fs::read(&path)?
        } else {
            Vec::new()
        };
        if metadata.is_dir() {
            for entry in fs::read_dir(&path)? {
                open.push(entry?.path());
            }
        }
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        let (mode, uid, gid) = (metadata.mode(), metadata.uid(), metadata.gid());
        let size = if metadata.is_dir() { 0 } else { metadata.len() };
        seen.insert(path, (mode, uid, gid, size, metadata.nlink(), changed, content));
    }
    Ok(seen)
}

/// The names in a directory.
pub fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn quit(why: &str) -> ! {
    eprintln!("{why}");
    std::process::exit(2)
}
