//! Valid archives.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use keelet_image::ImageContent;

use crate::build::*;

fn get_xattr(path: &std::path::Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 4096];
    let length = rustix::fs::lgetxattr(path, name, &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}

#[test]
fn both_kinds_of_archives_in_every_packing_give_the_same_image() {
    if !is_root() {
        return;
    }
    let layers = vec![tar(vec![Raw::dir("bin"), Raw::file("bin/a", "one")]), tar(vec![Raw::file("bin/b", "two")])];
    for packing in [Packing::Plain, Packing::Gzip, Packing::Zstd] {
        for outer in [Packing::Plain, Packing::Gzip, Packing::Zstd] {
            let sample = Sample::new(layers.clone()).packing(packing);
            for archive in [sample.docker_archive(), sample.oci_archive()] {
                let place = tempfile::tempdir().unwrap();
                let store = store(place.path());
                let images = store.import(&pack(&archive, outer)[..], None).unwrap();
                assert_eq!(images.len(), 1, "{packing:?} in {outer:?}");
                let image = &images[0];
                assert_eq!(
                    (image.id.as_str(), image.tags.as_slice()),
                    (sample.id().as_str(), &["docker.io/library/sample:v1".to_owned()][..])
                );
                assert_eq!(
                    (image.config.env.as_slice(), image.config.cmd.as_slice()),
                    (&["PATH=/bin".to_owned()][..], &["sh".to_owned()][..])
                );
                assert!(image.size > 0);
                assert_eq!(fs::read_to_string(top_layer(place.path(), image).join("bin/b")).unwrap(), "two");
                assert_eq!(store.find("sample:v1").unwrap().as_ref(), Some(image));
                assert_eq!(store.list().unwrap(), images);
                assert_eq!(fs::read_dir(place.path().join("tmp")).unwrap().count(), 0);
            }
        }
    }
}

#[test]
fn an_archive_may_hold_several_images_that_share_layers() {
    if !is_root() {
        return;
    }
    let base = tar(vec![Raw::file("base", "base")]);
    let samples = [
        Sample::new(vec![base.clone(), tar(vec![Raw::file("one", "1")])]).tags(&["one:v1", "example.org/one"]),
        Sample::new(vec![base, tar(vec![Raw::file("two", "2")])]).tags(&["two:v1"]),
    ];
    for archive in [docker_archive(&samples), oci_archive(&samples)] {
        let place = tempfile::tempdir().unwrap();
        let store = store(place.path());
        assert_eq!(store.import(&archive[..], None).unwrap().len(), 2);
        assert_eq!(fs::read_dir(place.path().join("layers")).unwrap().count(), 3);
        assert_eq!(store.find("example.org/one:latest").unwrap().unwrap().id, samples[0].id());
        assert_eq!(store.find("two:v1").unwrap().unwrap().id, samples[1].id());
        let error = store.import(&archive[..], Some("both")).unwrap_err().to_string();
        assert!(error.contains("2 images, but one name"), "{error}");
    }
}

#[test]
fn a_name_replaces_those_in_the_archive() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let store = store(place.path());
    let sample = Sample::new(vec![tar(vec![])]);
    let image = store.import(&sample.oci_archive()[..], Some("registry.example/mine")).unwrap().remove(0);
    assert_eq!(image.tags, ["registry.example/mine:latest"]);
    assert_eq!(image.digests, [format!("registry.example/mine@{}", sha256(&sample.manifest_json()))]);
    assert!(store.find(&image.digests[0]).unwrap().is_some());
    assert!(store.find("sample:v1").unwrap().is_none());
    assert!(store.import(&sample.oci_archive()[..], Some("mine@sha256:00")).is_err());
}

#[test]
fn the_image_for_this_machine_is_taken_from_nested_indexes() {
    if !is_root() {
        return;
    }
    let sample = Sample::new(vec![tar(vec![Raw::file("here", "")])]);
    let manifest = sample.manifest_json();
    let platform = keelet_image::Platform::of_this_machine();
    let elsewhere = format!("sha256:{}", "0".repeat(64));
    let inner = serde_json::to_vec(&serde_json::json!({"schemaVersion": 2, "manifests": [
        {"digest": elsewhere, "size": 1, "platform": {"os": "linux", "architecture": "s390x"}},
        {"digest": sha256(&manifest), "size": manifest.len(), "platform": {"os": "linux", "architecture": platform.architecture}},
        {"digest": elsewhere, "size": 1, "platform": {"os": "unknown", "architecture": "unknown"}},
    ]})).unwrap();
    let outer = serde_json::to_vec(&serde_json::json!({"schemaVersion": 2, "manifests": [
        {"digest": sha256(&inner), "size": inner.len(), "annotations": {"org.opencontainers.image.ref.name": "multi:v1"}},
    ]})).unwrap();
    let mut members: Vec<(String, Vec<u8>)> =
        sample.all_blobs().into_iter().map(|(digest, blob)| (format!("blobs/sha256/{}", &digest[7..]), blob)).collect();
    members.push((format!("blobs/sha256/{}", &sha256(&inner)[7..]), inner.clone()));
    members.push(("./index.json".into(), outer));
    let place = tempfile::tempdir().unwrap();
    let image = store(place.path()).import(&archive(&members)[..], None).unwrap().remove(0);
    assert_eq!((image.id, image.tags), (sample.id(), vec!["docker.io/library/multi:v1".to_owned()]));
    assert_eq!(image.digests, [format!("docker.io/library/multi@{}", sha256(&inner))]);
}

#[test]
fn names_of_a_docker_table_beside_an_index_are_used() {
    if !is_root() {
        return;
    }
    let sample = Sample::new(vec![tar(vec![])]);
    let manifest = sample.manifest_json();
    let mut members: Vec<(String, Vec<u8>)> =
        sample.all_blobs().into_iter().map(|(digest, blob)| (format!("blobs/sha256/{}", &digest[7..]), blob)).collect();
    let index =
        serde_json::json!({"schemaVersion": 2, "manifests": [{"digest": sha256(&manifest), "size": manifest.len()}]});
    members.push(("index.json".into(), serde_json::to_vec(&index).unwrap()));
    let table = serde_json::json!([{"Config": format!("blobs/sha256/{}", &sample.id()[7..]), "RepoTags": ["from-table:v1"], "Layers": []}]);
    members.push(("manifest.json".into(), serde_json::to_vec(&table).unwrap()));
    let place = tempfile::tempdir().unwrap();
    let image = store(place.path()).import(&archive(&members)[..], None).unwrap().remove(0);
    assert_eq!(image.tags, ["docker.io/library/from-table:v1"]);
}

#[test]
fn everything_a_layer_can_hold_is_unpacked_as_it_was() {
    if !is_root() {
        return;
    }
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let long = format!("{}/{}", "long".repeat(30), "name".repeat(40));
    let layer = tar(vec![
        Raw::dir("./").mode(0o751).owner(7, 8),
        Raw::file("setid", "x").mode(0o6755).owner(10, 20),
        Raw::file("big-owner", "x").pax("uid", b"3000000000"),
        Raw::dir("sticky").mode(0o1777),
        Raw::file("sticky/inside", "x"),
        Raw::new(b'3', "null").mode(0o666).device(1, 3),
        Raw::new(b'4', "disk").mode(0o660).device(8, 1).owner(0, 6),
        Raw::new(b'6', "pipe").mode(0o622),
        Raw::symlink("link", "/out/of/here").owner(5, 6),
        Raw::hardlink("hard", "setid"),
        Raw::file("capable", "x").mode(0o755).owner(1, 1).pax("SCHILY.xattr.security.capability", &capability),
        Raw::file("attributed", "x").pax("SCHILY.xattr.user.note", b"hello"),
        Raw::file("labelled", "x").pax("SCHILY.xattr.security.selinux", b"system_u:object_r:t:s0"),
        Raw::file("x", "long").pax("path", long.as_bytes()),
        Raw::file("/absolute", "inside"),
        Raw::file("late", "x").pax("mtime", b"1500000000.25"),
        Raw::dir("was-dir"),
        Raw::file("was-dir/inside", "x"),
        Raw::file("was-dir", "now a file"),
        Raw::file("was-file", "x"),
        Raw::dir("was-file"),
        Raw::file("twice", "first"),
        Raw::file("twice", "second"),
    ]);
    let layer = [&layer[..layer.len() - 1024], &Raw::file("sparse", "ab").bytes_sparse(1 << 20), &[0; 1024]].concat();
    let place = tempfile::tempdir().unwrap();
    let image = store(place.path()).import(&Sample::new(vec![layer]).docker_archive()[..], None).unwrap().remove(0);
    let top = top_layer(place.path(), &image);
    let stat = |name: &str| fs::symlink_metadata(top.join(name)).unwrap();
    assert_eq!(access(&stat("")), "751 7:8", "the root");
    assert_eq!(access(&stat("setid")), "6755 10:20", "setid");
    assert_eq!(stat("setid").mtime(), 1_000_000_000);
    assert_eq!(stat("big-owner").uid(), 3_000_000_000);
    assert_eq!(access(&stat("sticky")), "1777 0:0", "sticky");
    assert_eq!(stat("sticky").mtime(), 1_000_000_000);
    assert!(stat("null").file_type().is_char_device() && stat("disk").file_type().is_block_device());
    assert_eq!(stat("null").rdev(), rustix::fs::makedev(1, 3));
    assert_eq!(access(&stat("null")), "666 0:0", "null");
    assert_eq!((stat("disk").rdev(), stat("disk").gid()), (rustix::fs::makedev(8, 1), 6));
    assert!(stat("pipe").file_type().is_fifo());
    assert_eq!(access(&stat("pipe")), "622 0:0", "pipe");
    assert_eq!((fs::read_link(top.join("link")).unwrap().to_str(), stat("link").uid()), (Some("/out/of/here"), 5));
    assert_eq!(stat("hard").ino(), stat("setid").ino());
    assert_eq!(get_xattr(&top.join("capable"), "security.capability").as_deref(), Some(&capability[..]));
    assert_eq!(stat("capable").uid(), 1);
    assert_eq!(get_xattr(&top.join("attributed"), "user.note").as_deref(), Some(&b"hello"[..]));
    assert_ne!(get_xattr(&top.join("labelled"), "security.selinux").as_deref(), Some(&b"system_u:object_r:t:s0"[..]));
    assert_eq!(fs::read_to_string(top.join(&long)).unwrap(), "long");
    assert_eq!(fs::read_to_string(top.join("absolute")).unwrap(), "inside");
    assert_eq!((stat("late").mtime(), stat("late").mtime_nsec()), (1_500_000_000, 250_000_000));
    assert_eq!(fs::read_to_string(top.join("was-dir")).unwrap(), "now a file");
    assert!(stat("was-file").is_dir());
    assert_eq!(fs::read_to_string(top.join("twice")).unwrap(), "second");
    assert_eq!(stat("sparse").len(), 1 << 20);
    assert!(stat("sparse").blocks() < 1024, "holes are kept");
    assert_eq!(&fs::read(top.join("sparse")).unwrap()[..3], b"ab\0");
}

#[test]
fn whiteouts_become_what_overlayfs_reads_in_any_order() {
    if !is_root() {
        return;
    }
    let layer = tar(vec![
        Raw::file(".wh.gone", ""),
        Raw::dir("opaque"),
        Raw::file("opaque/.wh..wh..opq", ""),
        Raw::file("opaque/new", "x"),
        Raw::dir("before"),
        Raw::file(".wh.before", ""),
        Raw::file(".wh.after", ""),
        Raw::dir("after"),
        Raw::file(".wh.replaced", ""),
        Raw::file("replaced", "new"),
        Raw::file("kept", "new"),
        Raw::file(".wh.kept", ""),
        Raw::file(".wh..wh.plnk", ""),
    ]);
    let place = tempfile::tempdir().unwrap();
    let image = store(place.path()).import(&Sample::new(vec![layer]).docker_archive()[..], None).unwrap().remove(0);
    let top = top_layer(place.path(), &image);
    let gone = fs::symlink_metadata(top.join("gone")).unwrap();
    assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
    for opaque in ["opaque", "before", "after"] {
        assert_eq!(get_xattr(&top.join(opaque), "trusted.overlay.opaque").as_deref(), Some(&b"y"[..]), "{opaque}");
    }
    assert_eq!(fs::read_to_string(top.join("replaced")).unwrap(), "new");
    assert_eq!(fs::read_to_string(top.join("kept")).unwrap(), "new");
    let names: Vec<String> =
        fs::read_dir(&top).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(!names.iter().any(|name| name.starts_with(".wh.")), "{names:?}");
}

#[test]
fn directories_that_a_layer_only_goes_through_stay_as_they_are_below() {
    if !is_root() {
        return;
    }
    let below = tar(vec![
        Raw::dir("private").mode(0o700).owner(5, 6),
        Raw::file("private/one", "1"),
        Raw::file("linked", "content").owner(9, 9).mode(0o4755),
    ]);
    let above =
        tar(vec![Raw::file("private/two", "2"), Raw::file("fresh/three", "3"), Raw::hardlink("again", "linked")]);
    let hides = tar(vec![Raw::file(".wh.private", "")]);
    let over_hidden = tar(vec![Raw::file("private/four", "4")]);
    let place = tempfile::tempdir().unwrap();
    let sample = Sample::new(vec![below, above, hides, over_hidden]);
    let image = store(place.path()).import(&sample.docker_archive()[..], None).unwrap().remove(0);
    let ImageContent::Layers(layers) = &image.source else { panic!("no layers") };
    let layer = |index: usize| place.path().join("layers").join(&layers[index]).join("diff");
    let private = fs::metadata(layer(1).join("private")).unwrap();
    assert_eq!(access(&private), "700 5:6", "a directory that the layer below has");
    assert_eq!(private.mtime(), 1_000_000_000);
    let fresh = fs::metadata(layer(1).join("fresh")).unwrap();
    assert_eq!(access(&fresh), "755 0:0", "a directory that no layer has");
    let copied = fs::metadata(layer(1).join("again")).unwrap();
    assert_eq!(access(&copied), "4755 9:9", "a hard link to a file of the layer below");
    assert_eq!(copied.len(), 7);
    let new = fs::metadata(layer(3).join("private")).unwrap();
    assert_eq!(access(&new), "755 0:0", "a hidden directory is not inherited");
}

/// Directories as the layer below has them, as new ones are, and as an entry names them: mode, owner and an attribute.
const OLD: &str = "700 5:6 below";
const NEW: &str = "755 0:0 ";
const NAMED: &str = "711 7:8 ";

/// IMG-2: a whiteout hides from the layer itself too, whether it hides the directory, a parent, or the content of a
/// parent: a directory created again is a new one, and a hard link has no target there.
#[test]
fn a_directory_made_again_over_a_whiteout_inherits_nothing() {
    if !is_root() {
        return;
    }
    let below = || {
        tar(vec![
            Raw::dir("d").mode(0o700).owner(5, 6).pax("SCHILY.xattr.user.of", b"below"),
            Raw::dir("d/e").mode(0o700).owner(5, 6).pax("SCHILY.xattr.user.of", b"below"),
            Raw::dir("d/e/f").mode(0o700).owner(5, 6).pax("SCHILY.xattr.user.of", b"below"),
            Raw::file("d/e/target", "hidden"),
        ])
    };
    let file = || Raw::file("d/e/f/new", "new");
    let table: Vec<(&str, Vec<Raw>, &[&str])> = vec![
        ("the directory at the top", vec![Raw::file(".wh.d", ""), file()], &["d", "d/e", "d/e/f"]),
        ("a directory in the middle", vec![Raw::file("d/.wh.e", ""), file()], &["d/e", "d/e/f"]),
        ("the last directory", vec![Raw::file("d/e/.wh.f", ""), file()], &["d/e/f"]),
        ("all in the first", vec![Raw::file("d/.wh..wh..opq", ""), file()], &["d/e", "d/e/f"]),
        ("all there is", vec![Raw::file(".wh..wh..opq", ""), file()], &["d", "d/e", "d/e/f"]),
    ];
    for (case, above, new) in table {
        let place = tempfile::tempdir().unwrap();
        let sample = Sample::new(vec![below(), tar(above)]);
        let image = store(place.path()).import(&sample.docker_archive()[..], None).unwrap().remove(0);
        let top = top_layer(place.path(), &image);
        for directory in ["d", "d/e", "d/e/f"] {
            let found = fs::metadata(top.join(directory)).unwrap();
            let expected = if new.contains(&directory) { (0o755, 0, 0) } else { (0o700, 5, 6) };
            let found = (found.mode() & 0o7777, found.uid(), found.gid());
            let shown = |(mode, uid, gid)| format!("mode {mode:o}, owner {uid}:{gid}");
            assert_eq!(shown(found), shown(expected), "{case} is hidden: {directory}");
        }
    }
    // Entries may come in any order: what was only gone through is hidden later, and what was named stays as it was named.
    let named = |name: &str| Raw::dir(name).mode(0o711).owner(7, 8);
    let table: Vec<(&str, Vec<Raw>, [&str; 3])> = vec![
        ("the directory at the top, later", vec![file(), Raw::file(".wh.d", "")], [NEW, NEW, NEW]),
        ("a directory in the middle, later", vec![file(), Raw::file("d/.wh.e", "")], [OLD, NEW, NEW]),
        ("all in the first, later", vec![file(), Raw::file("d/.wh..wh..opq", "")], [OLD, NEW, NEW]),
        ("all there is, later", vec![file(), Raw::file(".wh..wh..opq", "")], [NEW, NEW, NEW]),
        ("twice, from below", vec![file(), Raw::file("d/e/.wh.f", ""), Raw::file(".wh.d", "")], [NEW, NEW, NEW]),
        ("named before", vec![named("d/e"), file(), Raw::file(".wh.d", "")], [NEW, NAMED, NEW]),
        ("named between", vec![file(), named("d/e"), Raw::file(".wh.d", "")], [NEW, NAMED, NEW]),
        ("named after", vec![file(), Raw::file(".wh.d", ""), named("d/e")], [NEW, NAMED, NEW]),
    ];
    for (case, above, expected) in table {
        let place = tempfile::tempdir().unwrap();
        let sample = Sample::new(vec![below(), tar(above)]);
        let image = store(place.path()).import(&sample.docker_archive()[..], None).unwrap().remove(0);
        let top = top_layer(place.path(), &image);
        let found = |directory: &str| {
            let path = top.join(directory);
            let attribute = get_xattr(&path, "user.of").map(|value| String::from_utf8(value).unwrap());
            format!("{} {}", access(&fs::metadata(&path).unwrap()), attribute.unwrap_or_default())
        };
        assert_eq!(["d", "d/e", "d/e/f"].map(found), expected.map(str::to_owned), "{case}");
    }
    for hidden in [".wh.d", "d/.wh.e", "d/e/.wh.target", "d/.wh..wh..opq", ".wh..wh..opq"] {
        let above = tar(vec![Raw::file(hidden, ""), Raw::hardlink("link", "d/e/target")]);
        let place = tempfile::tempdir().unwrap();
        let taken = store(place.path()).import(&Sample::new(vec![below(), above]).docker_archive()[..], None);
        let error = taken.expect_err(&format!("a hard link to what {hidden} hides was made")).to_string();
        assert!(error.contains("it is not in the image"), "{hidden}: {error}");
    }
}

#[test]
fn leftovers_of_a_killed_process_are_removed_and_those_of_a_live_one_are_not() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let sample = Sample::new(vec![tar(vec![Raw::file("f", "x")])]);
    store(place.path()).import(&sample.docker_archive()[..], None).unwrap();
    let before = listing(place.path());
    // Killed while unpacking, and killed between moving a layer into place and naming the image.
    fs::create_dir_all(place.path().join("tmp/999-0/layer-x/diff/deep")).unwrap();
    fs::write(place.path().join("tmp/999-0/files"), "half").unwrap();
    fs::create_dir_all(place.path().join("layers").join("0".repeat(64)).join("diff")).unwrap();
    fs::write(place.path().join("images.new"), "half").unwrap();
    // Another process at work.
    let held = place.path().join("tmp/998-0");
    fs::create_dir(&held).unwrap();
    let leased = "1".repeat(64);
    fs::write(held.join("lease"), &leased).unwrap();
    fs::create_dir_all(place.path().join("layers").join(&leased).join("diff")).unwrap();
    let lock = fs::File::open(&held).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let opened = store(place.path());
    assert!(!place.path().join("tmp/999-0").exists());
    assert!(!place.path().join("layers").join("0".repeat(64)).exists());
    assert!(held.exists() && place.path().join("layers").join(&leased).exists());
    drop(lock);
    drop(opened);
    store(place.path());
    fs::remove_file(place.path().join("images.new")).unwrap();
    assert_eq!(listing(place.path()), before);
}

#[test]
fn a_store_that_cannot_be_read_is_not_overwritten() {
    let place = tempfile::tempdir().unwrap();
    store(place.path());
    for (content, part) in [("{", "images.json"), (r#"{"format":99,"images":{}}"#, "format 99")] {
        fs::write(place.path().join("images.json"), content).unwrap();
        let error = keelet_image::Store::open(place.path()).err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
        assert_eq!(fs::read_to_string(place.path().join("images.json")).unwrap(), content);
    }
}

#[test]
fn several_writers_at_once_lose_nothing() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let base = tar(vec![Raw::file("base", "shared")]);
    std::thread::scope(|scope| {
        for n in 0..8 {
            let (root, base) = (place.path(), base.clone());
            scope.spawn(move || {
                let name: &'static str = ["a", "b", "c", "d", "e", "f", "g", "h"][n];
                let sample = Sample::new(vec![base, tar(vec![Raw::file("own", name)])]).tags(&[name]);
                let store = store(root);
                store.import(&sample.docker_archive()[..], None).unwrap();
                if n % 2 == 1 {
                    store.remove(name).unwrap();
                }
            });
        }
    });
    let store = store(place.path());
    let tags: Vec<String> = store.list().unwrap().into_iter().flat_map(|image| image.tags).collect();
    assert_eq!(tags.len(), 4, "{tags:?}");
    for image in store.list().unwrap() {
        assert!(top_layer(place.path(), &image).join("own").exists());
    }
    assert_eq!(fs::read_dir(place.path().join("layers")).unwrap().count(), 5);
    assert_eq!(fs::read_dir(place.path().join("tmp")).unwrap().count(), 0);
}

const CHILD: &str = "KEELET_IMAGE_TEST_STORE";

/// Not a test by itself and never counted as one: the process that the next test kills.
#[test]
#[ignore = "it is the process that an_import_that_is_killed_leaves_nothing_after_the_next_start starts and kills"]
fn child_that_imports_from_its_standard_input() {
    let Some(root) = std::env::var_os(CHILD) else {
        return keelet_report::skipped("another test starts it as its child");
    };
    let ended = store(std::path::Path::new(&root)).import(std::io::stdin().lock(), None);
    panic!("half an archive was imported to its end: {ended:?}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test may wait for its own child")]
fn an_import_that_is_killed_leaves_nothing_after_the_next_start() {
    use std::io::Write as _;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    store(place.path());
    let before = listing(place.path());
    let archive = Sample::new(vec![tar(vec![Raw::new(b'0', "f").content(&vec![7; 400_000])])])
        .packing(Packing::Plain)
        .docker_archive();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "import::child_that_imports_from_its_standard_input"])
        .env(CHILD, place.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&archive[..archive.len() / 2]).unwrap();
    input.flush().unwrap();
    let tmp = place.path().join("tmp");
    let has_begun = || listing(&tmp).iter().any(|line| line.contains("/files/"));
    for _ in 0..6000 {
        if has_begun() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(has_begun(), "the child puts files aside");
    // While the child is alive, no other process removes its working directory.
    store(place.path());
    assert!(has_begun());
    child.kill().unwrap();
    let ended = child.wait().unwrap();
    assert_eq!(
        ended.signal(),
        Some(rustix::process::Signal::KILL.as_raw()),
        "the import did not end before it was killed: {ended}"
    );
    store(place.path());
    assert_eq!(listing(place.path()), before);
}
