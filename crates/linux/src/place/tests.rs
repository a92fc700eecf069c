//! Links that lead out, nowhere and in a circle, and a process that swaps them.

use std::{
    fs,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::{PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, mkfifoat, openat, renameat_with};

use super::{Kind, find_or_make, own_directory};

/// A root, and a directory beside it that no path in it may lead to.
struct Stand {
    _directory: tempfile::TempDir,
    root: PathBuf,
    outside: PathBuf,
    open: OwnedFd,
}

fn stand() -> Stand {
    let directory = tempfile::tempdir().expect("a directory");
    let (root, outside) = (directory.path().join("root"), directory.path().join("outside"));
    for dir in [&root, &outside] {
        fs::create_dir(dir).expect("made");
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = openat(CWD, &root, flags, Mode::empty()).expect("open");
    Stand { _directory: directory, root, outside, open }
}

impl Stand {
    /// Where a path leads, below the root.
    fn find(&self, path: &str, kind: Kind) -> Result<PathBuf, Option<i32>> {
        let found = find_or_make(self.open.as_fd(), Path::new(path), kind).map_err(|error| error.raw_os_error())?;
        let found = fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).expect("a path");
        Ok(found
            .strip_prefix(&self.root)
            .unwrap_or_else(|_| panic!("{path} led out to {}", found.display()))
            .to_owned())
    }
}

#[test]
fn every_link_is_followed_within_the_root() {
    let stand = stand();
    let outside = stand.outside.display().to_string();
    let inside = outside.trim_start_matches('/');
    fs::create_dir_all(stand.root.join("a/b")).expect("made");
    let up = "../".repeat(30);
    for (name, target) in [
        ("absolute", outside.clone()),
        ("relative", format!("{up}{outside}")),
        ("chain", "/a/../absolute".to_owned()),
        ("root", "/".to_owned()),
        ("above", up.clone()),
        ("b", "a/b".to_owned()),
    ] {
        symlink(target, stand.root.join(name)).expect("a link");
    }
    let is = |path: &str, kind, led: &str| assert_eq!(stand.find(path, kind), Ok(PathBuf::from(led)), "{path}");
    is("/absolute", Kind::Directory, inside);
    is("/relative/new", Kind::Directory, &format!("{inside}/new"));
    is("/chain/deep/er", Kind::Directory, &format!("{inside}/deep/er"));
    is("/chain/file", Kind::File, &format!("{inside}/file"));
    is("/root", Kind::Directory, "");
    is("/above/a", Kind::Directory, "a");
    is("/b/..", Kind::Directory, "a");
    is("//b/./c/", Kind::Directory, "a/b/c");
    is("../../x", Kind::File, "x");
    assert_eq!(fs::read_dir(&stand.outside).expect("there").count(), 0, "made outside");
    let mode = |path: &str| fs::metadata(stand.root.join(path)).expect("made").permissions().mode() & 0o7777;
    assert_eq!(format!("{:o} {:o}", mode("a/b/c"), mode("x")), "755 644");
}

#[test]
fn circles_and_files_on_the_way_are_errors() {
    let stand = stand();
    symlink("/circle", stand.root.join("circle")).expect("a link");
    fs::write(stand.root.join("file"), "").expect("written");
    mkfifoat(CWD, stand.root.join("fifo"), Mode::from_raw_mode(0o600)).expect("made");
    for path in ["/circle", "/circle/x"] {
        assert_eq!(stand.find(path, Kind::Directory), Err(Some(libc::ELOOP)), "{path}");
    }
    let proc = openat(CWD, "/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).expect("open");
    let through = find_or_make(proc.as_fd(), Path::new("/self/fd/0"), Kind::Directory);
    assert_eq!(through.err().and_then(|error| error.raw_os_error()), Some(libc::ELOOP), "a link of procfs");
    for path in ["/file/x", "/fifo/x"] {
        assert_eq!(stand.find(path, Kind::File), Err(Some(libc::ENOTDIR)), "{path}");
    }
    // What is there is found; whether something can be mounted on it is known to whoever mounts.
    assert_eq!(stand.find("/fifo", Kind::File), Ok(PathBuf::from("fifo")));
}

/// The kernel's own walk would be outside after a few turns.
#[test]
fn what_is_swapped_meanwhile_leads_out_never() {
    let stand = stand();
    fs::create_dir(stand.root.join("dir")).expect("made");
    symlink(&stand.outside, stand.root.join("link")).expect("a link");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let (one, other) = (stand.root.join("dir"), stand.root.join("link"));
                renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).expect("swapped");
            }
        });
        for number in 0..300 {
            // Where in the root is a matter of luck.
            let _ = find_or_make(stand.open.as_fd(), Path::new(&format!("/dir/{number}/x")), Kind::File);
        }
        done.store(true, Ordering::Relaxed);
    });
    let made: Vec<_> = fs::read_dir(&stand.outside).expect("there").flatten().map(|entry| entry.path()).collect();
    assert!(made.is_empty(), "{} of 300 were made outside, such as {:?}", made.len(), made.first());
}

#[test]
fn only_a_directory_of_the_image_itself_will_do() {
    let stand = stand();
    fs::create_dir(stand.root.join("real")).expect("made");
    symlink("real", stand.root.join("link")).expect("a link");
    fs::write(stand.root.join("file"), "").expect("written");
    let refused = |name: &str| own_directory(stand.open.as_fd(), name).map(|found| found.is_some());
    assert_eq!(refused("real"), Ok(true));
    assert_eq!(refused("missing"), Ok(false));
    for (name, what) in [("link", "a symbolic link"), ("file", "a file")] {
        let why = refused(name).expect_err(what);
        assert!(why.contains(&format!("\"/{name}\" in the image: it is {what}, and must be a directory")), "{why}");
    }
}
