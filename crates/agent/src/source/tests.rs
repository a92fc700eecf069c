//! Manifests as people write them: the pure part in tables, the rest in real directories.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use keelet_pod::{Features, MAX_MANIFEST_BYTES, Strictness};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use tokio::{sync::watch, task::AbortHandle};

use super::{
    changes::{ChangeKind, Reported},
    manifests::manifest_of,
    *,
};

mod pure;

/// A manifest of that name, which differs from others by its image.
fn manifest(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{ name: {name} }}
spec:
  containers: [{{ name: main, image: \"{image}\" }}]
"
    )
}

fn invalid(name: &str) -> String {
    manifest(name, "i").replace("main", "Not a name")
}

/// `name=image` of every pod, sorted.
fn pods(listing: &Listing) -> Vec<String> {
    let mut pods: Vec<_> =
        listing.pods.values().map(|pod| format!("{}={}", pod.name, pod.containers[0].image)).collect();
    pods.sort();
    pods
}

fn problems(listing: &Listing) -> Vec<String> {
    listing.problems.iter().map(SourceProblem::to_string).collect()
}

/// A running source, and what it says.
struct Source {
    listings: watch::Receiver<Arc<Listing>>,
    task: AbortHandle,
}

impl Source {
    /// Without scans on its own: the source sees only what hints report.
    fn start(directory: &Path) -> Self {
        Self::start_with(directory, Duration::from_secs(100_000))
    }

    fn start_with(directory: &Path, rescan: Duration) -> Self {
        let source = ManifestDir::new(directory, Features::default(), Strictness::Strict).rescan_every(rescan);
        let (sender, listings) = watch::channel(Arc::default());
        Self { listings, task: tokio::spawn(source.run(sender)).abort_handle() }
    }

    /// Waits for a listing like this. The deadline only ends a test that failed.
    async fn until(&mut self, what: &str, is_it: impl Fn(&Listing) -> bool) -> Arc<Listing> {
        let found = self.listings.wait_for(|listing| is_it(listing));
        match tokio::time::timeout(Duration::from_secs(60), found).await {
            Ok(Ok(listing)) => return Arc::clone(&listing),
            Ok(Err(_)) => panic!("the source ended"),
            Err(_) => {}
        }
        panic!("waited for {what}, got {:?}, {:?}", pods(&self.listings.borrow()), problems(&self.listings.borrow()))
    }

    async fn until_pods(&mut self, expected: &[&str]) -> Arc<Listing> {
        self.until(&format!("{expected:?}"), |listing| listing.complete && pods(listing) == expected).await
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn directory() -> (tempfile::TempDir, PathBuf) {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path().join("manifests");
    fs::create_dir(&directory).unwrap();
    (temporary, directory)
}

#[tokio::test]
async fn files_that_come_change_and_go_are_followed() {
    let (_temporary, directory) = directory();
    fs::write(directory.join("a.yaml"), manifest("a", "1")).unwrap();
    let mut source = Source::start(&directory);
    source.until_pods(&["a=1"]).await;
    fs::write(directory.join("b.yaml"), manifest("b", "1")).unwrap();
    source.until_pods(&["a=1", "b=1"]).await;
    fs::write(directory.join("a.yaml"), manifest("a", "2")).unwrap();
    source.until_pods(&["a=2", "b=1"]).await;
    fs::rename(directory.join("b.yaml"), directory.join("c.yaml")).unwrap();
    fs::remove_file(directory.join("a.yaml")).unwrap();
    let listing = source.until_pods(&["b=1"]).await;
    assert!(listing.problems.is_empty());
    fs::remove_file(directory.join("c.yaml")).unwrap();
    source.until_pods(&[]).await;
}

#[tokio::test]
async fn a_file_renamed_over_another_replaces_it() {
    let (temporary, directory) = directory();
    fs::write(directory.join("a.yaml"), manifest("a", "1")).unwrap();
    let mut source = Source::start(&directory);
    source.until_pods(&["a=1"]).await;
    // As careful writers do, from outside and from inside.
    fs::write(temporary.path().join("new"), manifest("a", "2")).unwrap();
    fs::rename(temporary.path().join("new"), directory.join("a.yaml")).unwrap();
    source.until_pods(&["a=2"]).await;
    fs::write(directory.join(".a.yaml.tmp"), manifest("a", "3")).unwrap();
    fs::rename(directory.join(".a.yaml.tmp"), directory.join("a.yaml")).unwrap();
    source.until_pods(&["a=3"]).await;
}

#[tokio::test]
async fn a_file_may_turn_invalid_and_valid_again() {
    let (_temporary, directory) = directory();
    let path = directory.join("a.yaml");
    fs::write(&path, manifest("a", "1")).unwrap();
    let mut source = Source::start(&directory);
    source.until_pods(&["a=1"]).await;
    fs::write(&path, invalid("a")).unwrap();
    let listing = source.until("a problem", |listing| !listing.problems.is_empty()).await;
    assert_eq!(pods(&listing), ["a=1"]);
    assert!(problems(&listing)[0].starts_with(&format!("{}:5:", path.display())), "{:?}", problems(&listing));
    fs::write(&path, manifest("a", "1")).unwrap();
    let listing = source.until("no problem", |listing| listing.problems.is_empty()).await;
    assert_eq!(pods(&listing), ["a=1"]);
}

#[tokio::test]
async fn half_a_file_keeps_the_old_pod_until_it_is_completed() {
    let (_temporary, directory) = directory();
    let path = directory.join("a.yaml");
    fs::write(&path, manifest("a", "1")).unwrap();
    let mut source = Source::start(&directory);
    source.until_pods(&["a=1"]).await;
    let new = manifest("a", "2");
    let (half, rest) = new.split_at(new.find("spec").unwrap() + 3);
    // Truncated, then written by a process that stalls.
    let mut file = File::create(&path).unwrap();
    file.write_all(half.as_bytes()).unwrap();
    let listing = source.until("a problem", |listing| !listing.problems.is_empty()).await;
    assert_eq!(pods(&listing), ["a=1"]);
    file.write_all(rest.as_bytes()).unwrap();
    let listing = source.until_pods(&["a=2"]).await;
    assert!(listing.problems.is_empty());
}

#[tokio::test]
async fn two_files_with_the_same_pod_are_both_named() {
    let (_temporary, directory) = directory();
    fs::write(directory.join("b.yaml"), manifest("web", "b")).unwrap();
    let mut source = Source::start(&directory);
    let first = source.until_pods(&["web=b"]).await;
    fs::write(directory.join("a.yaml"), manifest("web", "a")).unwrap();
    let listing = source.until("a problem", |listing| !listing.problems.is_empty()).await;
    assert_eq!(pods(&listing), ["web=b"], "the file that runs a pod keeps it");
    let [problem] = problems(&listing).try_into().unwrap();
    assert!(
        problem.contains("a.yaml: pod default/web ignored: ") && problem.contains("b.yaml already has"),
        "{problem}"
    );
    fs::remove_file(directory.join("a.yaml")).unwrap();
    let listing = source.until("no problem", |listing| listing.problems.is_empty()).await;
    assert!(listing.pods.keys().eq(first.pods.keys()), "{:?}", pods(&listing));
    // Copied and renamed, as `cp` and `mv` do.
    fs::copy(directory.join("b.yaml"), directory.join("0.yaml")).unwrap();
    let listing = source.until("a problem", |listing| !listing.problems.is_empty()).await;
    assert!(listing.pods.keys().eq(first.pods.keys()), "copied: {:?}", listing.files);
    fs::rename(directory.join("b.yaml"), directory.join("c.yaml")).unwrap();
    let moved = |listing: &Listing| listing.files.values().all(|file| !file.ends_with("/b.yaml"));
    let listing = source.until("another file", moved).await;
    assert!(listing.pods.keys().eq(first.pods.keys()), "renamed: {:?}", listing.files);
}

#[tokio::test]
async fn what_is_no_manifest_is_left_alone() {
    let (temporary, directory) = directory();
    for name in [".hidden.yaml", "a.yaml~", ".a.yaml.swp", "a.yaml.swp", ".#a.yaml", "#a.yaml#"] {
        fs::write(directory.join(name), manifest("ignored", "1")).unwrap();
    }
    fs::create_dir(directory.join("sub")).unwrap();
    fs::write(directory.join("sub/a.yaml"), manifest("ignored", "1")).unwrap();
    rustix::fs::mkfifoat(CWD, directory.join("pipe"), rustix::fs::Mode::RWXU).unwrap();
    symlink("/dev/zero", directory.join("device")).unwrap();
    fs::write(temporary.path().join("target"), manifest("linked", "1")).unwrap();
    symlink(temporary.path().join("target"), directory.join("link.yaml")).unwrap();
    let mut source = Source::start(&directory);
    let listing = source.until_pods(&["linked=1"]).await;
    let path = directory.display();
    let expected = [
        format!("{path}/device: ignored: a device, not a regular file"),
        format!("{path}/pipe: ignored: a pipe, not a regular file"),
        format!("{path}/sub: ignored: a directory, not a regular file"),
    ];
    assert_eq!(problems(&listing), expected);
}

#[tokio::test]
async fn what_cannot_be_read_is_named() {
    let (_temporary, directory) = directory();
    fs::write(directory.join("large.yaml"), vec![b'#'; MAX_MANIFEST_BYTES + 1]).unwrap();
    symlink("nowhere", directory.join("link.yaml")).unwrap();
    let mut source = Source::start(&directory);
    let listing = source.until("two problems", |listing| listing.problems.len() == 2).await;
    let path = directory.display();
    let expected = [
        format!("{path}/large.yaml: cannot read: it is larger than 3 MiB, the limit for a manifest"),
        format!("{path}/link.yaml: cannot read: dangling symbolic link"),
    ];
    assert_eq!(problems(&listing), expected);
    // No earlier agent left a pod that came from one of them.
    assert!(listing.complete && listing.pods.is_empty());
}

#[tokio::test]
async fn a_directory_may_come_later_and_go_and_come_back() {
    let (temporary, directory) = directory();
    fs::remove_dir(&directory).unwrap();
    let mut source = Source::start(&directory);
    let listing = source.until("no directory", |listing| !listing.problems.is_empty()).await;
    assert_eq!(problems(&listing), [format!("{}: cannot list: it does not exist", directory.display())]);
    assert!(!listing.complete);
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("a.yaml"), manifest("a", "1")).unwrap();
    source.until_pods(&["a=1"]).await;
    // Moved away as a whole.
    fs::rename(&directory, temporary.path().join("away")).unwrap();
    let listing = source.until("no directory", |listing| !listing.problems.is_empty()).await;
    assert_eq!(pods(&listing), ["a=1"], "that is no request to stop everything");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("b.yaml"), manifest("b", "1")).unwrap();
    source.until_pods(&["b=1"]).await;
    // The new one is watched, not the old one.
    fs::write(directory.join("c.yaml"), manifest("c", "1")).unwrap();
    source.until_pods(&["b=1", "c=1"]).await;
}

#[tokio::test]
async fn a_directory_swapped_for_another_is_noticed_and_watched() {
    let (temporary, directory) = directory();
    let other = temporary.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(directory.join("a.yaml"), manifest("a", "1")).unwrap();
    fs::write(other.join("b.yaml"), manifest("b", "1")).unwrap();
    let mut source = Source::start(&directory);
    source.until_pods(&["a=1"]).await;
    renameat_with(CWD, &directory, CWD, &other, RenameFlags::EXCHANGE).unwrap();
    source.until_pods(&["b=1"]).await;
    fs::write(directory.join("c.yaml"), manifest("c", "1")).unwrap();
    source.until_pods(&["b=1", "c=1"]).await;
}

#[tokio::test]
async fn a_path_that_is_no_directory_is_named() {
    let (_temporary, directory) = directory();
    fs::remove_dir(&directory).unwrap();
    fs::write(&directory, manifest("a", "1")).unwrap();
    let mut source = Source::start(&directory);
    let listing = source.until("a problem", |listing| !listing.problems.is_empty()).await;
    assert!(problems(&listing)[0].contains("cannot list: Not a directory"), "{:?}", problems(&listing));
}

/// The target of a link is elsewhere, in a directory without a watch.
#[tokio::test]
async fn a_change_without_a_hint_is_seen_at_the_next_scan() {
    let (temporary, directory) = directory();
    let target = temporary.path().join("target");
    fs::write(&target, manifest("a", "1")).unwrap();
    symlink(&target, directory.join("a.yaml")).unwrap();
    let mut source = Source::start_with(&directory, Duration::from_millis(50));
    source.until_pods(&["a=1"]).await;
    fs::write(&target, manifest("a", "2")).unwrap();
    source.until_pods(&["a=2"]).await;
}

#[tokio::test]
async fn two_hundred_files_are_one_listing() {
    let (_temporary, directory) = directory();
    let mut source = Source::start(&directory);
    source.until_pods(&[]).await;
    for number in 0..200 {
        fs::write(directory.join(format!("{number}.yaml")), manifest(&format!("pod-{number}"), "1")).unwrap();
    }
    let listing = source.until("200 pods", |listing| listing.pods.len() == 200).await;
    assert!(listing.problems.is_empty() && listing.complete);
    for number in 0..199 {
        fs::remove_file(directory.join(format!("{number}.yaml"))).unwrap();
    }
    source.until_pods(&["pod-199=1"]).await;
}

#[tokio::test]
async fn a_source_without_a_listener_ends() {
    let (_temporary, directory) = directory();
    let source = ManifestDir::new(&directory, Features::default(), Strictness::Strict);
    let (sender, listings) = watch::channel(Arc::default());
    let task = tokio::spawn(source.run(sender));
    drop(listings);
    tokio::time::timeout(Duration::from_secs(60), task).await.unwrap().unwrap();
}
