//! Removal of images, disk usage, and garbage collection of unused images.

use std::collections::BTreeSet;
use std::fs;

use keelet_image::{Image, Store};

use crate::build::*;

/// Three images of different sizes on one base, the first the least recently used.
fn three(store: &Store) -> Vec<Image> {
    let base = tar(vec![Raw::file("base", &"b".repeat(100_000))]);
    ["one", "two", "three"]
        .into_iter()
        .map(|name| {
            let own = tar(vec![Raw::file("own", &name.repeat(100_000))]);
            let sample = Sample::new(vec![base.clone(), own]).tags(&[name]);
            store.import(&sample.docker_archive()[..], None).unwrap().remove(0)
        })
        .collect()
}

fn set_used(root: &std::path::Path, image: &Image, seconds: i64) {
    let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: 0 };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    let path = root.join("used").join(&image.id[7..]);
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::empty()).unwrap();
}

fn ids(images: &[Image]) -> Vec<String> {
    images.iter().map(|image| image.id.clone()).collect()
}

#[test]
fn layers_go_with_their_last_image() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let store = store(place.path());
    let empty = listing(place.path());
    let images = three(&store);
    let layers = || fs::read_dir(place.path().join("layers")).unwrap().count();
    let full = store.usage().unwrap();
    assert_eq!(layers(), 4);
    assert_eq!(full.inodes, 8);
    assert!(full.bytes > 1_000_000, "{full:?}");

    assert_eq!(store.remove("nothing").unwrap(), keelet_image::Removed::default());
    let removed = store.remove("one").unwrap();
    assert_eq!(
        (removed.names, removed.id),
        (vec!["docker.io/library/one:latest".to_owned()], Some(images[0].id.clone()))
    );
    assert_eq!(layers(), 3);
    assert!(store.usage().unwrap().bytes < full.bytes);
    store.remove(&images[1].id).unwrap();
    store.remove(&images[2].id[7..20]).unwrap();
    assert_eq!(layers(), 0);
    assert_eq!(store.usage().unwrap(), keelet_image::Usage::default());
    fs::remove_file(place.path().join("images.json")).unwrap();
    assert_eq!(listing(place.path()), empty);
}

#[test]
fn a_tag_that_is_not_the_last_leaves_the_image() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let store = store(place.path());
    let sample = Sample::new(vec![tar(vec![])]).tags(&["a:1", "a:2"]);
    let id = store.import(&sample.oci_archive()[..], None).unwrap().remove(0).id;
    assert_eq!(store.remove("a:1").unwrap().id, None);
    let image = store.find(&id).unwrap().unwrap();
    assert_eq!(image.tags, ["docker.io/library/a:2"]);
    assert_eq!(store.remove("a:2").unwrap().id, Some(id));
}

#[test]
fn the_least_recently_used_are_collected_first_and_only_as_many_as_needed() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let store = store(place.path());
    let images = three(&store);
    for (image, seconds) in images.iter().zip([300, 100, 200]) {
        set_used(place.path(), image, seconds);
    }
    assert_eq!(store.collect(&BTreeSet::new(), 0).unwrap().images, Vec::<String>::new());
    let collected = store.collect(&BTreeSet::new(), 1).unwrap();
    assert_eq!(collected.images, [images[1].id.clone()]);
    assert!(collected.bytes >= 300_000, "{collected:?}");
    let collected = store.collect(&BTreeSet::new(), u64::MAX).unwrap();
    assert_eq!(collected.images, [images[2].id.clone(), images[0].id.clone()]);
    assert!(store.list().unwrap().is_empty());
    assert_eq!(store.usage().unwrap(), keelet_image::Usage::default());
}

#[test]
fn kept_and_pinned_images_are_never_collected() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let store = store(place.path());
    let images = three(&store);
    store.set_pinned("one", true).unwrap();
    assert!(store.find("one").unwrap().unwrap().pinned);
    let keep = BTreeSet::from([images[1].id.clone()]);
    assert_eq!(store.collect(&keep, u64::MAX).unwrap().images, [images[2].id.clone()]);
    let mut left = ids(&store.list().unwrap());
    let mut expected = vec![images[0].id.clone(), images[1].id.clone()];
    left.sort();
    expected.sort();
    assert_eq!(left, expected);
    assert!(store.set_pinned("nothing", true).is_err());
}
