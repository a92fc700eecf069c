//! Hostile and damaged archives: each is refused by name and leaves nothing.

use std::ffi::CString;
use std::fs;

use keelet_image::{Error, Fault};

use crate::build::*;
use crate::roots::{Place, in_namespace};

fn layer(entries: Vec<Raw>) -> Vec<u8> {
    Sample::new(vec![tar(entries)]).docker_archive()
}

/// Imports into a store that has an image already, and checks that nothing changed in or around it.
fn refuse(case: &str, archive: &[u8]) -> Error {
    refuse_with(case, archive, options())
}

fn refuse_with(case: &str, archive: &[u8], options: keelet_image::Options) -> Error {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("outside"), "untouched").unwrap();
    let root = place.path().join("store");
    store(&root)
        .import(&Sample::new(vec![tar(vec![Raw::file("kept", "kept")])]).docker_archive()[..], Some("kept"))
        .unwrap();
    let store = keelet_image::Store::open_with(&root, options).unwrap();
    let before = listing(place.path());
    let Err(error) = store.import(archive, None) else { panic!("{case}: was taken") };
    assert_eq!(listing(place.path()), before, "{case}: the store changed");
    assert_eq!(store.list().unwrap().len(), 1, "{case}");
    error
}

#[test]
fn hostile_layers_are_refused_by_name_and_leave_nothing() {
    if !is_root() {
        return;
    }
    let file = || Raw::file("file", "x");
    let long = "n".repeat(300);
    let table: Vec<(&str, Vec<Raw>, &str, &str)> = vec![
        ("name goes up", vec![Raw::file("../evil", "x")], "../evil", "escapes the root"),
        ("name goes up in the middle", vec![Raw::file("a/../../evil", "x")], "a/../../evil", "escapes the root"),
        ("absolute name goes up", vec![Raw::file("/../evil", "x")], "/../evil", "escapes the root"),
        ("empty name", vec![Raw::file("", "x")], "", "invalid file name"),
        ("root as a link", vec![Raw::symlink(".", "/etc")], ".", "invalid file name"),
        (
            "hard link out",
            vec![Raw::hardlink("link", "../../../etc/passwd")],
            "link",
            "hard link to \"../../../etc/passwd\": it escapes",
        ),
        ("hard link to the host", vec![Raw::hardlink("link", "/etc/hostname")], "link", "it is not in the image"),
        ("hard link to nothing", vec![Raw::hardlink("link", "nothing")], "link", "it is not in the image"),
        ("hard link to a directory", vec![Raw::dir("d"), Raw::hardlink("link", "d")], "link", "it is a directory"),
        ("hard link to itself", vec![Raw::hardlink("link", "link")], "link", "it is not a file"),
        ("file below a file", vec![file(), Raw::file("file/below", "x")], "file/below", "\"file\" is not a directory"),
        (
            "file below a dangling link",
            vec![Raw::symlink("l", "/nowhere"), Raw::file("l/x", "x")],
            "l/x",
            "\"l\" is not a directory",
        ),
        ("file below a loop", vec![Raw::symlink("l", "l"), Raw::file("l/x", "x")], "l/x", "\"l\" is not a directory"),
        ("whiteout of nothing", vec![Raw::file(".wh.", "")], ".wh.", "whiteout"),
        ("whiteout of the directory", vec![Raw::file("d/.wh..", "")], "d/.wh..", "whiteout"),
        ("whiteout of the directory above", vec![Raw::file("d/.wh...", "")], "d/.wh...", "whiteout"),
        ("unknown type", vec![Raw::new(b'Z', "odd")], "odd", "entry type 'Z' is not supported"),
        ("directory with content", vec![Raw::dir("d").content(b"x")], "d", "directory with 1 bytes"),
        ("owner of minus one", vec![file().pax("uid", b"4294967295")], "offset 0", "uid"),
        (
            "attribute that steers overlayfs",
            vec![file().pax("SCHILY.xattr.trusted.overlay.redirect", b"/etc")],
            "file",
            "trusted.overlay.redirect",
        ),
        (
            "attribute that steers overlayfs for users",
            vec![file().pax("SCHILY.xattr.user.overlay.opaque", b"y")],
            "file",
            "user.overlay.opaque",
        ),
        ("device number out of range", vec![Raw::new(b'3', "dev").device(0o7777777, 1)], "dev", "major"),
        ("name of 300 bytes", vec![file().pax("path", "n".repeat(300).as_bytes())], &long, "File name too long"),
        ("name with a zero", vec![file().pax("path", b"a\0b")], "a\0b", "invalid file name"),
    ];
    for (case, entries, entry, message) in table {
        let error = refuse(case, &layer(entries)).to_string();
        assert!(error.contains(&format!("entry {entry:?}: ")), "{case}: {error}");
        assert!(error.contains(message), "{case}: {error}");
        assert!(error.starts_with("archive: layer "), "{case}: {error}");
    }
}

#[test]
fn broken_streams_are_refused_and_leave_nothing() {
    if !is_root() {
        return;
    }
    let good = tar(vec![Raw::file("file", "content")]);
    let with_layer = |layer: Vec<u8>| Sample::new(vec![layer]).docker_archive();
    let image = Sample::new(vec![good.clone()]);
    let whole = image.docker_archive();
    let oci = image.oci_archive();
    let swap = |archive: &[u8], from: &[u8], to: &[u8]| {
        let at = archive.windows(from.len()).position(|window| window == from).unwrap();
        let mut changed = archive.to_vec();
        changed[at..at + to.len()].copy_from_slice(to);
        changed
    };
    let other = Sample::new(vec![tar(vec![Raw::file("file", "CONTENT")])]);
    let table: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", Vec::new(), "not an image"),
        ("text", b"this is no archive at all".to_vec(), "ends in the middle"),
        ("long text", b"this is no archive ".repeat(100), "checksum"),
        ("truncated archive", whole[..whole.len() / 2].to_vec(), ""),
        ("truncated gzip", pack(&whole, Packing::Gzip)[..200].to_vec(), "ends in the middle"),
        (
            "truncated zstd",
            {
                let z = pack(&whole, Packing::Zstd);
                z[..z.len() / 2].to_vec()
            },
            "",
        ),
        ("garbage after the archive", [&whole[..], b"garbage"].concat(), "data after the end"),
        ("garbage after gzip", [&pack(&whole, Packing::Gzip)[..], b"garbage"].concat(), ""),
        ("xz", b"\xfd7zXZ\0and so on".to_vec(), "xz, which is not supported"),
        ("layer cut off", with_layer(good[..600].to_vec()), "entry \"file\": the archive ends in the middle"),
        ("layer with garbage at the end", with_layer([&good[..], b"garbage"].concat()), "data after the end"),
        ("no table", archive(&[("readme".into(), b"x".to_vec())]), "neither index.json nor manifest.json"),
        ("table is no table", archive(&[("manifest.json".into(), b"{}".to_vec())]), "manifest.json"),
        ("table is empty", archive(&[("manifest.json".into(), b"[]".to_vec())]), "no images"),
        (
            "index is empty",
            archive(&[("index.json".into(), br#"{"schemaVersion":2,"manifests":[]}"#.to_vec())]),
            "no images",
        ),
        (
            "layer missing",
            archive(&[
                ("manifest.json".into(), br#"[{"Config":"c","Layers":["../../etc/passwd"]}]"#.to_vec()),
                ("c".into(), image.config_json()),
            ]),
            "../../etc/passwd is missing from the archive",
        ),
        (
            "configuration missing",
            archive(&[("manifest.json".into(), br#"[{"Config":"/etc/passwd","Layers":[]}]"#.to_vec())]),
            "/etc/passwd is missing from the archive",
        ),
        (
            "layers and diff IDs differ in number",
            archive(&[
                ("manifest.json".into(), br#"[{"Config":"c","Layers":[]}]"#.to_vec()),
                ("c".into(), image.config_json()),
            ]),
            "0 layers, the configuration 1",
        ),
        (
            "diff ID wrong",
            {
                let mut swapped = image.clone();
                swapped.layers = other.layers.clone();
                archive(&[
                    ("manifest.json".into(), br#"[{"Config":"c","Layers":["l"]}]"#.to_vec()),
                    ("c".into(), image.config_json()),
                    ("l".into(), swapped.blobs().remove(0)),
                ])
            },
            "digest of the uncompressed layer: expected sha256:",
        ),
        (
            "blob changed",
            {
                let blob = &image.blobs()[0];
                let mut changed = blob.clone();
                changed[9] ^= 1;
                swap(&oci, blob, &changed)
            },
            "layer blobs/sha256/",
        ),
        ("configuration changed", swap(&oci, b"PATH=/bin", b"PATH=/BIN"), "expected sha256:"),
        ("configuration changed in a docker archive", swap(&whole, b"PATH=/bin", b"PATH=/BIN"), "expected sha256:"),
        ("tag is no name", image.clone().tags(&["No Name"]).docker_archive(), "\"No Name\""),
        ("sparse member", tar(vec![Raw::file("manifest.json", "abcde").pax("GNU.sparse.map", b"0,2,3,3")]), ""),
        ("device in the archive", tar(vec![Raw::new(b'3', "dev").device(1, 3)]), "entry type '3'"),
        (
            "links in a circle",
            tar(vec![Raw::symlink("manifest.json", "a"), Raw::symlink("a", "manifest.json")]),
            "manifest.json is missing from the archive",
        ),
    ];
    for (case, bytes, message) in table {
        let error = refuse(case, &bytes).to_string();
        assert!(error.contains(message), "{case}: {error}");
    }
}

#[test]
fn an_image_for_another_machine_is_refused_with_what_there_is() {
    if !is_root() {
        return;
    }
    let image = Sample::new(vec![tar(vec![])]);
    let foreign = String::from_utf8(image.config_json())
        .unwrap()
        .replace(&keelet_image::Platform::of_this_machine().architecture, "s390x");
    let bytes = archive(&[
        ("manifest.json".into(), br#"[{"Config":"c","Layers":["l"]}]"#.to_vec()),
        ("c".into(), foreign.into_bytes()),
        ("l".into(), tar(vec![])),
    ]);
    let error = refuse("foreign", &bytes);
    assert!(matches!(&error, Error::NoPlatform { found, .. } if found == "linux/s390x"), "{error}");
}

#[test]
fn bombs_stop_at_the_limits() {
    if !is_root() {
        return;
    }
    let limited = |bytes: u64, entries: u64, reserve: u64| {
        let mut options = options();
        (options.limits.bytes, options.limits.entries, options.limits.reserve) = (bytes, entries, reserve);
        options
    };
    // 16 MiB of zeros in a few kilobytes.
    let zeros = tar(vec![Raw::new(b'0', "zeros").content(&vec![0; 16 << 20])]);
    let bomb = pack(&Sample::new(vec![zeros]).packing(Packing::Gzip).docker_archive(), Packing::Gzip);
    let error = refuse_with("bytes", &bomb, limited(1 << 20, 1000, 0)).to_string();
    assert!(error.contains("entry \"zeros\"") && error.contains("more than 1048576 bytes"), "{error}");

    let many = tar((0..2000).map(|n| Raw::file(&format!("f{n}"), "")).collect());
    let error =
        refuse_with("entries", &Sample::new(vec![many]).docker_archive(), limited(64 << 20, 1000, 0)).to_string();
    assert!(error.contains("entry \"f1000\"") && error.contains("more than 1000 entries"), "{error}");

    let deep = tar(vec![Raw::file("x", "").pax("path", "d/".repeat(1500).as_bytes())]);
    let error =
        refuse_with("implied directories", &Sample::new(vec![deep]).docker_archive(), limited(64 << 20, 1000, 0))
            .to_string();
    assert!(error.contains("more than 1000 entries"), "{error}");

    let sparse = [Raw::file("hole", "ab").bytes_sparse(1 << 40), vec![0; 1024]].concat();
    let error =
        refuse_with("holes", &Sample::new(vec![sparse]).docker_archive(), limited(64 << 20, 1000, 0)).to_string();
    assert!(error.contains("entry \"hole\"") && error.contains("bytes unpacked"), "{error}");

    let error = refuse_with(
        "reserve",
        &Sample::new(vec![tar(vec![Raw::file("f", "x")])]).docker_archive(),
        limited(64 << 20, 1000, u64::MAX),
    );
    assert!(error.to_string().contains("would stay free"), "{error}");

    // Names of members that are kept until the table of contents is read.
    let names = tar((0..40_000).map(|n| Raw::symlink(&format!("{}{n}", "n".repeat(90)), "x")).collect());
    let error = refuse_with("names", &names, limited(1 << 30, 1_000_000, 0)).to_string();
    assert!(error.contains("names of more than 8388608 bytes"), "{error}");

    // Endless zeros behind the end of a layer.
    let mut padded = tar(vec![Raw::file("f", "x")]);
    padded.resize(8 << 20, 0);
    let error = refuse_with("padding", &Sample::new(vec![padded]).docker_archive(), limited(1 << 20, 1000, 0));
    assert!(matches!(&error, Error::Entry { fault: Fault::Limit(_), .. }), "{error}");
}

/// Empty files still take an inode each, and other programs need some too.
#[test]
fn files_without_content_leave_inodes_to_others() {
    in_namespace(|| {
        let place = Place::new();
        let limit = CString::new("nr_inodes=5000").unwrap();
        rustix::mount::mount("keelet", place.path(), "tmpfs", rustix::mount::MountFlags::empty(), limit.as_c_str())
            .unwrap();
        let mut options = options();
        options.limits.reserved_inodes = 2000;
        let store = keelet_image::Store::open_with(place.path(), options).unwrap();
        let many = tar((0..6000).map(|n| Raw::file(&format!("f{n}"), "")).collect());
        let error = store.import(&Sample::new(vec![many]).docker_archive()[..], None).unwrap_err();
        assert!(error.to_string().ends_with("less than 2000 inodes would stay free on the disk"), "{error}");
    });
}

/// Links that point outside may exist, but nothing goes through them to the host.
#[test]
fn links_are_never_followed_out_of_the_layer() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let outside = place.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("victim"), "untouched").unwrap();
    let out = outside.to_str().unwrap();
    let up = format!("{}{}", "../".repeat(20), &out[1..]);
    let inside = &out[1..];
    let table: Vec<(&str, Vec<Raw>)> = vec![
        ("absolute", vec![Raw::symlink("l", out), Raw::file("l/victim", "owned")]),
        ("relative", vec![Raw::symlink("l", &up), Raw::file("l/victim", "owned")]),
        ("over a link", vec![Raw::symlink("l", &format!("{out}/victim")), Raw::file("l", "owned")]),
        ("mode through a link", vec![Raw::symlink("l", &format!("{out}/victim")), Raw::dir("l").mode(0o777)]),
        ("whiteout", vec![Raw::symlink("l", out), Raw::file("l/.wh.victim", "")]),
        ("opaque", vec![Raw::symlink("l", out), Raw::file("l/.wh..wh..opq", "")]),
        ("hard link through a link", vec![Raw::symlink("l", out), Raw::hardlink("h", "l/victim")]),
        ("directory through a link", vec![Raw::symlink("l", out), Raw::dir("l/new")]),
        ("chain of links", vec![Raw::symlink("a", "b"), Raw::symlink("b", out), Raw::file("a/victim", "owned")]),
    ];
    for (case, mut entries) in table {
        let store_root = place.path().join("store");
        let before = listing(&outside);
        // The same path inside, so that following within the root succeeds.
        let mut with_inside = vec![Raw::dir(inside)];
        with_inside.append(&mut entries);
        let result = store(&store_root).import(&layer(with_inside)[..], None);
        assert_eq!(listing(&outside), before, "{case}");
        if case == "hard link through a link" {
            assert!(result.unwrap_err().to_string().contains("not in the image"));
        } else {
            let image = result.unwrap().remove(0);
            let top = top_layer(&store_root, &image);
            if case == "absolute" || case == "relative" || case == "chain of links" {
                assert_eq!(fs::read_to_string(top.join(inside).join("victim")).unwrap(), "owned", "{case}");
            }
            if case == "over a link" {
                assert_eq!(fs::read_to_string(top.join("l")).unwrap(), "owned");
                assert!(fs::symlink_metadata(top.join("l")).unwrap().is_file());
            }
        }
        fs::remove_dir_all(&store_root).unwrap();
    }
}

/// A later layer's hard link must not reach through an earlier layer's link to the host.
#[test]
fn links_of_lower_layers_are_not_followed() {
    if !is_root() {
        return;
    }
    let lower = tar(vec![Raw::symlink("l", "/etc"), Raw::symlink("file", "/etc/passwd")]);
    let through = tar(vec![Raw::hardlink("h", "l/passwd")]);
    let error = refuse("through", &Sample::new(vec![lower.clone(), through]).docker_archive()).to_string();
    assert!(error.contains("not in the image"), "{error}");

    let place = tempfile::tempdir().unwrap();
    let itself = tar(vec![Raw::hardlink("h", "file")]);
    let image =
        store(place.path()).import(&Sample::new(vec![lower, itself]).docker_archive()[..], None).unwrap().remove(0);
    let copied = top_layer(place.path(), &image).join("h");
    assert_eq!(fs::read_link(copied).unwrap().to_str(), Some("/etc/passwd"));
}

/// A damaged archive is imported whole or not at all.
#[test]
fn archives_with_random_damage_are_imported_whole_or_not_at_all() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let layer =
        tar(vec![Raw::dir("d"), Raw::file("d/f", "content"), Raw::symlink("l", "d"), Raw::hardlink("h", "d/f")]);
    let sample = Sample::new(vec![layer]);
    let store = store(place.path());
    let empty = listing(place.path());
    let mut state = 1u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut refused = 0;
    for round in 0..200 {
        let mut archive = if round % 2 == 0 { sample.docker_archive() } else { sample.oci_archive() };
        for _ in 0..3 {
            let at = next(archive.len());
            archive[at] ^= 1 << next(8);
        }
        match store.import(&archive[..], Some("damaged")) {
            Ok(images) => {
                let top = top_layer(place.path(), &images[0]);
                assert_eq!(fs::read_to_string(top.join("d/f")).unwrap(), "content");
                store.remove(&images[0].id).unwrap();
                fs::remove_file(place.path().join("images.json")).unwrap();
            }
            Err(_) => refused += 1,
        }
        assert_eq!(listing(place.path()), empty, "round {round}");
    }
    assert!(refused > 50, "{refused}");
}
