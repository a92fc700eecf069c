//! Links that lead out of the root, dangle or form a loop, and a process that swaps them.

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

use super::{Kind, MountPointError, mount_point, open_or_create};

/// A root, and a directory outside it that no path may lead to.
struct Fixture {
    _directory: tempfile::TempDir,
    root: PathBuf,
    outside: PathBuf,
    open: OwnedFd,
}

fn fixture() -> Fixture {
    let directory = tempfile::tempdir().expect("a directory");
    let (root, outside) = (directory.path().join("root"), directory.path().join("outside"));
    for dir in [&root, &outside] {
        fs::create_dir(dir).expect("made");
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = openat(CWD, &root, flags, Mode::empty()).expect("open");
    Fixture { _directory: directory, root, outside, open }
}

impl Fixture {
    /// What a path resolves to, below the root.
    fn find(&self, path: &str, kind: Kind) -> Result<PathBuf, Option<i32>> {
        let found = open_or_create(self.open.as_fd(), Path::new(path), kind).map_err(|error| error.raw_os_error())?;
        let found = fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).expect("a path");
        Ok(found
            .strip_prefix(&self.root)
            .unwrap_or_else(|_| panic!("{path} led out of the root to {}", found.display()))
            .to_owned())
    }
}

#[test]
fn every_link_is_followed_within_the_root() {
    let fixture = fixture();
    let outside = fixture.outside.display().to_string();
    let inside = outside.trim_start_matches('/');
    fs::create_dir_all(fixture.root.join("a/b")).expect("made");
    let up = "../".repeat(30);
    for (name, target) in [
        ("absolute", outside.clone()),
        ("relative", format!("{up}{outside}")),
        ("chain", "/a/../absolute".to_owned()),
        ("root", "/".to_owned()),
        ("above", up.clone()),
        ("b", "a/b".to_owned()),
    ] {
        symlink(target, fixture.root.join(name)).expect("a link");
    }
    let is = |path: &str, kind, led: &str| assert_eq!(fixture.find(path, kind), Ok(PathBuf::from(led)), "{path}");
    is("/absolute", Kind::Directory, inside);
    is("/relative/new", Kind::Directory, &format!("{inside}/new"));
    is("/chain/deep/er", Kind::Directory, &format!("{inside}/deep/er"));
    is("/chain/file", Kind::File, &format!("{inside}/file"));
    is("/root", Kind::Directory, "");
    is("/above/a", Kind::Directory, "a");
    is("/b/..", Kind::Directory, "a");
    is("//b/./c/", Kind::Directory, "a/b/c");
    is("../../x", Kind::File, "x");
    assert_eq!(fs::read_dir(&fixture.outside).expect("there").count(), 0, "created outside");
    let mode = |path: &str| fs::metadata(fixture.root.join(path)).expect("made").permissions().mode() & 0o7777;
    assert_eq!(format!("{:o} {:o}", mode("a/b/c"), mode("x")), "755 644");
}

#[test]
fn loops_and_files_on_the_path_are_errors() {
    let fixture = fixture();
    symlink("/loop", fixture.root.join("loop")).expect("a link");
    fs::write(fixture.root.join("file"), "").expect("written");
    mkfifoat(CWD, fixture.root.join("fifo"), Mode::from_raw_mode(0o600)).expect("made");
    for path in ["/loop", "/loop/x"] {
        assert_eq!(fixture.find(path, Kind::Directory), Err(Some(libc::ELOOP)), "{path}");
    }
    let proc = openat(CWD, "/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).expect("open");
    let through = open_or_create(proc.as_fd(), Path::new("/self/fd/0"), Kind::Directory);
    assert_eq!(through.err().and_then(|error| error.raw_os_error()), Some(libc::ELOOP), "a link of procfs");
    for path in ["/file/x", "/fifo/x"] {
        assert_eq!(fixture.find(path, Kind::File), Err(Some(libc::ENOTDIR)), "{path}");
    }
    // An existing file of any kind is opened; the mount fails later if it cannot be mounted on.
    assert_eq!(fixture.find("/fifo", Kind::File), Ok(PathBuf::from("fifo")));
}

/// The kernel's own path resolution would be outside after a few attempts.
#[test]
fn a_component_that_is_swapped_meanwhile_never_leads_out() {
    let fixture = fixture();
    fs::create_dir(fixture.root.join("dir")).expect("made");
    symlink(&fixture.outside, fixture.root.join("link")).expect("a link");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let (one, other) = (fixture.root.join("dir"), fixture.root.join("link"));
                renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).expect("swapped");
            }
        });
        for number in 0..300 {
            // It may be created at either place in the root.
            let _ = open_or_create(fixture.open.as_fd(), Path::new(&format!("/dir/{number}/x")), Kind::File);
        }
        done.store(true, Ordering::Relaxed);
    });
    let made: Vec<_> = fs::read_dir(&fixture.outside).expect("there").flatten().map(|entry| entry.path()).collect();
    assert!(made.is_empty(), "{} of 300 were created outside, such as {:?}", made.len(), made.first());
}

#[test]
fn only_a_directory_of_the_image_is_mounted_on() {
    let fixture = fixture();
    fs::create_dir(fixture.root.join("real")).expect("made");
    symlink("real", fixture.root.join("link")).expect("a link");
    fs::write(fixture.root.join("file"), "").expect("written");
    let opened = |name: &str| mount_point(fixture.open.as_fd(), name).map(|found| found.is_some());
    assert!(matches!(opened("real"), Ok(true)));
    assert!(matches!(opened("missing"), Ok(false)));
    for (name, what) in [("link", "a symbolic link"), ("file", "a file")] {
        let error = opened(name).expect_err(what);
        assert!(matches!(error, MountPointError::NotADirectory { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.starts_with(&format!("\"/{name}\" in the image is {what} and must be a directory")), "{text}");
    }
}
