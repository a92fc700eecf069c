use std::{fs, io, os::unix::fs::symlink};

use rustix::mount::{MountFlags, mount, mount_bind};

use super::*;

/// A directory to be removed, `pod`, in one with things that must stay.
fn scene() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let pod = directory.path().join("pod");
    fs::create_dir_all(pod.join("volumes/data")).unwrap();
    fs::create_dir(directory.path().join("precious")).unwrap();
    fs::write(directory.path().join("precious/file"), "precious").unwrap();
    (directory, pod)
}

fn assert_precious(directory: &tempfile::TempDir) {
    assert_eq!(fs::read_to_string(directory.path().join("precious/file")).unwrap(), "precious");
}

fn skipped() {
    keelet_report::skipped("mounting needs root");
}

#[test]
fn everything_goes_and_nothing_there_is_no_error() {
    let (_directory, pod) = scene();
    fs::write(pod.join("etc-hosts"), "x").unwrap();
    fs::write(pod.join("volumes/data/file"), "x").unwrap();
    rustix::fs::mkfifoat(CWD, pod.join("volumes/data/pipe"), Mode::RWXU).unwrap();
    assert_eq!(remove(&pod), Ok(()));
    assert!(!pod.exists());
    assert_eq!(remove(&pod), Ok(()));
}

#[test]
fn links_are_removed_and_never_followed() {
    let (directory, pod) = scene();
    let precious = directory.path().join("precious");
    symlink(&precious, pod.join("volumes/data/out")).unwrap();
    symlink(precious.join("file"), pod.join("volumes/data/file")).unwrap();
    symlink("../../..", pod.join("volumes/data/up")).unwrap();
    symlink("/", pod.join("root")).unwrap();
    assert_eq!(remove(&pod), Ok(()));
    assert!(!pod.exists());
    assert_precious(&directory);
}

#[test]
fn a_link_in_the_place_of_the_directory_is_not_followed() {
    let (directory, pod) = scene();
    fs::remove_dir_all(&pod).unwrap();
    symlink(directory.path().join("precious"), &pod).unwrap();
    let error = remove(&pod).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot remove {}: ", pod.display())), "{error}");
    assert_precious(&directory);
}

/// Tells this program that it is the process with few descriptors.
const FEW_DESCRIPTORS: &str = "KEELET_TEST_FEW_DESCRIPTORS";

/// In a process of its own, which may have 128 descriptors, whatever this machine allows.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test may wait for its own child")]
fn depth_and_width_cost_nothing() {
    if std::env::var_os(FEW_DESCRIPTORS).is_none() {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "removal::tests::depth_and_width_cost_nothing", "--nocapture"])
            .env(FEW_DESCRIPTORS, "1")
            .output()
            .unwrap();
        let told = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && told.contains("1 passed"), "{told}");
        return;
    }
    let limit = rustix::process::Rlimit { current: Some(128), maximum: Some(128) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let (_directory, pod) = scene();
    // Deeper than a path can be long, and than this process can open files.
    let mut here = open(CWD, pod.join("volumes/data")).unwrap();
    for _ in 0..1_500 {
        mkdirat(&here, c"deeper", Mode::RWXU).unwrap();
        here = open(&here, c"deeper").unwrap();
    }
    for number in 0..=BATCH {
        fs::write(pod.join(format!("volumes/data/{number}")), "").unwrap();
    }
    assert_eq!(remove(&pod), Ok(()));
    assert!(!pod.exists());
}

#[test]
fn mounts_are_unmounted_and_never_emptied() {
    let (directory, pod) = scene();
    let precious = directory.path().join("precious");
    let deep = pod.join("volumes/data/a/b");
    fs::create_dir_all(&deep).unwrap();
    if mount_bind(&precious, &deep).is_err() {
        return skipped();
    }
    // A file can be a mount point too, and mounts can lie on top of each other.
    fs::write(pod.join("file"), "").unwrap();
    mount_bind(precious.join("file"), pod.join("file")).unwrap();
    for _ in 0..3 {
        mount("tmpfs", pod.join("volumes"), "tmpfs", MountFlags::empty(), c"size=64k").unwrap();
    }
    fs::write(pod.join("volumes/in-memory"), "x").unwrap();
    assert_eq!(remove(&pod), Ok(()));
    assert!(!pod.exists());
    assert_precious(&directory);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(directory.path().to_str().unwrap()), "{mounts}");
}

#[test]
fn what_cannot_be_unmounted_stays_whole_and_goes_later() {
    let (_directory, pod) = scene();
    let volume = pod.join("volumes/data");
    if mount("tmpfs", &volume, "tmpfs", MountFlags::empty(), c"size=64k").is_err() {
        return skipped();
    }
    fs::write(volume.join("file"), "in use").unwrap();
    fs::write(pod.join("other"), "").unwrap();
    // A process has a file open in it.
    let user = fs::File::open(volume.join("file")).unwrap();
    let error = remove(&pod).unwrap_err().to_string();
    assert!(error.contains("data: cannot unmount the mount point"), "{error}");
    assert_eq!(io::read_to_string(&user).unwrap(), "in use");
    assert_eq!(user.metadata().map(|metadata| std::os::unix::fs::MetadataExt::nlink(&metadata)).unwrap(), 1);
    assert!(!pod.join("other").exists(), "the rest is gone");
    assert!(remove(&pod).is_err());
    drop(user);
    assert_eq!(remove(&pod), Ok(()));
    assert!(!pod.exists());
}
