//! Roots and volumes, in a mount namespace that only the test's own thread has.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use rustix::mount::{MountPropagationFlags, mount_change};

use crate::build::*;

/// Runs a function in a private mount namespace.
pub(crate) fn in_namespace(test: impl FnOnce() + Send) {
    if !is_root() {
        return;
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if let Err(error) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS) {
                keelet_report::skipped(format_args!("no mount namespace: {error}"));
                return;
            }
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
            test();
        });
        thread.join().unwrap();
    });
}

/// A directory that unmounts everything in it when dropped, also when a test fails: removing must never reach the
/// host's own files.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
        let places = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(Path::new);
        let below: Vec<&Path> = places.filter(|place| place.starts_with(self.path())).collect();
        for place in below.into_iter().rev() {
            let _ = rustix::mount::unmount(place, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

/// Bytes of memory.
fn machine_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    total.unwrap().parse::<u64>().unwrap() * 1024
}

fn mounts_below(directory: &Path) -> usize {
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    mounts.lines().filter(|line| line.split(' ').nth(4).is_some_and(|at| Path::new(at).starts_with(directory))).count()
}

fn sample() -> Sample {
    Sample::new(vec![
        tar(vec![
            Raw::dir("./").mode(0o711).owner(3, 4),
            Raw::dir("etc"),
            Raw::file("etc/a", "below"),
            Raw::file("etc/gone", "x"),
            Raw::dir("dir"),
            Raw::file("dir/hidden", "x"),
        ]),
        tar(vec![
            Raw::file("etc/a", "above"),
            Raw::file("etc/.wh.gone", ""),
            Raw::dir("dir"),
            Raw::file("dir/.wh..wh..opq", ""),
            Raw::file("dir/new", "y"),
        ]),
    ])
}

#[test]
fn a_root_shows_the_layers_and_keeps_changes_to_itself() {
    in_namespace(|| {
        let place = Place::new();
        let store = store(place.path());
        let image = store.import(&sample().docker_archive()[..], None).unwrap().remove(0);
        let one = store.make_root("one", &image).unwrap();
        let two = store.make_root("two", &image).unwrap();
        assert_eq!(one, place.path().canonicalize().unwrap().join("roots/one/rootfs"));
        assert_eq!(fs::read_to_string(one.join("etc/a")).unwrap(), "above");
        assert!(!one.join("etc/gone").exists() && !one.join("dir/hidden").exists() && one.join("dir/new").exists());
        let root = fs::metadata(&one).unwrap();
        assert_eq!(access(&root), "711 3:4", "the root");

        let before = store.root_usage("one").unwrap();
        fs::write(one.join("etc/a"), vec![b'x'; 200_000]).unwrap();
        fs::write(one.join("new"), "new").unwrap();
        let after = store.root_usage("one").unwrap();
        assert!(
            after.bytes >= before.bytes + 200_000 && after.inodes > before.inodes,
            "one file of 200,000 bytes and one more: from {before:?} to {after:?}"
        );
        assert_eq!(fs::read_to_string(two.join("etc/a")).unwrap(), "above");
        assert_eq!(fs::read_to_string(top_layer(place.path(), &image).join("etc/a")).unwrap(), "above");

        assert_eq!(store.make_root("one", &image).unwrap(), one, "found in place");
        assert_eq!(mounts_below(&one), 1, "not mounted twice");
        assert_eq!(fs::read_to_string(one.join("new")).unwrap(), "new");
        assert_eq!(store.roots().unwrap(), ["one", "two"]);
        for key in ["one", "two", "one"] {
            store.remove_root(key).unwrap();
        }
        assert!(store.roots().unwrap().is_empty());
        assert_eq!(mounts_below(place.path()), 0);
        assert!(store.root_usage("one").is_err());
    });
}

#[test]
fn a_root_outlives_its_image_and_a_restart() {
    in_namespace(|| {
        let place = Place::new();
        let opened = store(place.path());
        let image = opened.import(&sample().docker_archive()[..], None).unwrap().remove(0);
        let root = opened.make_root("r", &image).unwrap();
        fs::write(root.join("written"), "kept").unwrap();
        assert!(opened.collect(&Default::default(), u64::MAX).unwrap().images.is_empty(), "in use");
        opened.remove(&image.id).unwrap();
        let reopened = store(place.path());
        assert_eq!(fs::read_to_string(root.join("etc/a")).unwrap(), "above");
        // As after a reboot: the directories are there, the mount is not.
        rustix::mount::unmount(&root, rustix::mount::UnmountFlags::empty()).unwrap();
        assert_eq!(reopened.make_root("r", &image).unwrap(), root);
        assert_eq!(fs::read_to_string(root.join("written")).unwrap(), "kept");
        // Killed before the note was written.
        fs::create_dir_all(place.path().join("roots/half/upper")).unwrap();
        fs::write(place.path().join("roots/half/upper/stale"), "x").unwrap();
        let half = reopened.make_root("half", &image).unwrap();
        assert!(!half.join("stale").exists());
        reopened.remove_root("half").unwrap();
        rustix::mount::unmount(&root, rustix::mount::UnmountFlags::empty()).unwrap();
        reopened.remove_root("r").unwrap();
        assert_eq!(fs::read_dir(place.path().join("layers")).unwrap().count(), 0, "layers go with the last root");
        assert_eq!(fs::read_dir(place.path().join("tmp")).unwrap().count(), 0);
    });
}

#[test]
fn removing_a_root_spares_what_is_mounted_in_it() {
    in_namespace(|| {
        let place = Place::new();
        let volume = Place::new();
        fs::write(volume.path().join("precious"), "data").unwrap();
        let store = store(place.path());
        let image = store.import(&sample().docker_archive()[..], None).unwrap().remove(0);
        let root = store.make_root("r", &image).unwrap();
        fs::create_dir(root.join("data")).unwrap();
        rustix::mount::mount_bind(volume.path(), root.join("data")).unwrap();
        // Twice, and one straight in the directory for changes.
        rustix::mount::mount_bind(&root, &root).unwrap();
        store.remove_root("r").unwrap();
        assert_eq!(fs::read_to_string(volume.path().join("precious")).unwrap(), "data");
        assert_eq!(mounts_below(place.path()), 0);
    });
}

#[test]
fn a_key_belongs_to_one_image_and_is_a_plain_name() {
    in_namespace(|| {
        let place = Place::new();
        let store = store(place.path());
        let image = store.import(&sample().docker_archive()[..], None).unwrap().remove(0);
        let other =
            store.import(&Sample::new(vec![tar(vec![])]).docker_archive()[..], Some("other")).unwrap().remove(0);
        store.make_root("r", &image).unwrap();
        let error = store.make_root("r", &other).unwrap_err().to_string();
        assert!(error.contains(&image.id), "{error}");
        for key in ["", ".", "..", "a/b", "../x", "-x", &"x".repeat(129)] {
            assert!(store.make_root(key, &image).is_err() && store.remove_root(key).is_err(), "{key:?}");
        }
        store.remove_root("r").unwrap();
    });
}

#[test]
fn images_without_layers_and_with_hundreds_have_roots() {
    in_namespace(|| {
        let place = Place::new();
        let store = store(place.path());
        let none = store.import(&Sample::new(vec![]).docker_archive()[..], Some("none")).unwrap().remove(0);
        let root = store.make_root("none", &none).unwrap();
        fs::write(root.join("x"), "x").unwrap();
        store.remove_root("none").unwrap();

        // 200 layers of 64 digits each are far more than a page of mount options.
        let layers = (0..200).map(|n| tar(vec![Raw::file(&format!("f{n}"), "x")])).collect();
        let many = store
            .import(&Sample::new(layers).packing(Packing::Plain).docker_archive()[..], Some("many"))
            .unwrap()
            .remove(0);
        let root = store.make_root("many", &many).unwrap();
        assert_eq!(fs::read_dir(&root).unwrap().count(), 200);
        store.remove_root("many").unwrap();

        let layers = (0..501).map(|n| tar(vec![Raw::file(&format!("g{n}"), "x")])).collect();
        let error = store
            .import(&Sample::new(layers).packing(Packing::Plain).docker_archive()[..], Some("too-many"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("501 layers, the kernel allows 500"), "{error}");
    });
}

#[test]
fn a_layer_that_hides_everything_stands_alone() {
    in_namespace(|| {
        let place = Place::new();
        let store = store(place.path());
        let sample = Sample::new(vec![
            tar(vec![Raw::file("old", "x")]),
            tar(vec![Raw::file(".wh..wh..opq", ""), Raw::file("new", "y")]),
        ]);
        let image = store.import(&sample.docker_archive()[..], None).unwrap().remove(0);
        let root = store.make_root("r", &image).unwrap();
        assert!(root.join("new").exists() && !root.join("old").exists());
        store.remove_root("r").unwrap();
    });
}

#[test]
fn an_image_is_mounted_read_only_as_a_volume() {
    in_namespace(|| {
        let place = Place::new();
        let target = Place::new();
        let store = store(place.path());
        let samples = [sample(), Sample::new(vec![tar(vec![Raw::file("etc/a", "above")])]), Sample::new(vec![])];
        for (index, sample) in samples.iter().enumerate() {
            let image = store.import(&sample.docker_archive()[..], Some("volume")).unwrap().remove(0);
            store.mount_image("v", &image, target.path()).unwrap();
            store.mount_image("v", &image, target.path()).unwrap();
            assert_eq!(mounts_below(target.path()), 1);
            if index < 2 {
                assert_eq!(fs::read_to_string(target.path().join("etc/a")).unwrap(), "above");
            } else {
                assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
            }
            let error = fs::write(target.path().join("x"), "x").unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
            assert!(store.mount_image("v", &image, place.path()).is_err(), "another target");
            store.remove(&image.id).unwrap();
            store.unmount_image("v").unwrap();
            store.unmount_image("v").unwrap();
            assert_eq!(mounts_below(target.path()), 0);
            assert_eq!(fs::read_dir(place.path().join("layers")).unwrap().count(), 0);
        }
    });
}

#[test]
fn a_directory_stands_in_for_an_image() {
    in_namespace(|| {
        let place = Place::new();
        let directory = Place::new();
        fs::write(directory.path().join("file"), "host").unwrap();
        let store = store(place.path());
        let reference = format!("rootfs:{}", directory.path().display());
        let image = store.find(&reference).unwrap().unwrap();
        assert_eq!(store.find(&image.id).unwrap().as_ref(), Some(&image));
        assert!(image.config.env[0].starts_with("PATH="));
        assert!(store.list().unwrap().is_empty());
        assert!(store.find("rootfs:/nonexistent").unwrap().is_none());
        let root = store.make_root("d", &image).unwrap();
        fs::write(root.join("file"), "changed").unwrap();
        assert_eq!(fs::read_to_string(directory.path().join("file")).unwrap(), "host");
        store.remove_root("d").unwrap();
        assert_eq!(fs::read_to_string(directory.path().join("file")).unwrap(), "host");
    });
}

#[test]
fn the_hosts_own_root_stands_in_for_an_image_with_changes_in_memory() {
    in_namespace(|| {
        let place = Place::new();
        let store = store(place.path());
        let image = store.find("rootfs:/").unwrap().unwrap();
        let root = store.make_root("host", &image).unwrap();
        assert!(root.join("etc").is_dir());
        assert_eq!(fs::read_dir(root.join("proc")).unwrap().count(), 0, "other mounts are not shown");
        let marker = format!("keelet-test-{}", std::process::id());
        fs::write(root.join(&marker), "x").unwrap();
        assert!(!Path::new("/").join(&marker).exists());
        assert!(store.root_usage("host").unwrap().inodes >= 2);
        // The store's own place is a plain directory in there, not a loop.
        assert!(fs::read_dir(root.join(place.path().strip_prefix("/").unwrap())).is_ok());
        assert_eq!(mounts_below(place.path()), 2);
        let memory = rustix::fs::statvfs(place.path().join("roots/host/memory")).unwrap();
        let size = memory.f_blocks * memory.f_frsize;
        assert!(size <= machine_memory() / 9, "{size} bytes of {}", machine_memory());
        store.remove_root("host").unwrap();
        assert_eq!(mounts_below(place.path()), 0);
        assert!(place.path().join("images.json").exists() || store.list().unwrap().is_empty());
        assert!(Path::new("/etc").is_dir());
    });
}

#[test]
fn a_program_of_an_image_runs_in_its_root() {
    in_namespace(|| {
        let place = Place::new();
        let store = store(place.path());
        let programs = keelet_fixtures::files(&["echo"]);
        let files: Vec<(&str, Vec<u8>)> =
            programs.iter().map(|(place, file)| (place.as_str(), fs::read(file).unwrap())).collect();
        let mut layer: Vec<Raw> =
            files.iter().map(|(place, content)| Raw::new(b'0', place).content(content).mode(0o755)).collect();
        layer.extend([Raw::hardlink("bin/say", "bin/echo"), Raw::new(b'3', "null").device(1, 3).mode(0o666)]);
        let image = store
            .import(&Sample::new(vec![tar(layer)]).packing(Packing::Plain).docker_archive()[..], None)
            .unwrap()
            .remove(0);
        let root = store.make_root("b", &image).unwrap();
        for program in ["/bin/echo", "/bin/say"] {
            #[expect(clippy::disallowed_methods, reason = "a test may wait for its own child")]
            let output = std::process::Command::new("chroot").arg(&root).args([program, "hello"]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n", "{program}: {output:?}");
        }
        assert!(fs::metadata(root.join("null")).unwrap().file_type().is_char_device());
        store.remove_root("b").unwrap();
    });
}

/// Two runtimes on one store: each sees its own roots, and the images of the other as such.
#[test]
fn owners_of_one_store_leave_each_other_alone() {
    in_namespace(|| {
        let (place, owners) = (Place::new(), tempfile::tempdir().unwrap());
        let owned = |name: &str| {
            let directory = owners.path().join(name);
            fs::create_dir_all(&directory).unwrap();
            keelet_image::Store::open_with(place.path(), keelet_image::Options { owner: Some(directory), ..options() })
                .unwrap()
        };
        let (agent, run) = (owned("agent"), owned("run"));
        let image = agent.import(sample().docker_archive().as_slice(), None).unwrap().remove(0);
        assert_eq!(run.find(&image.id).unwrap().as_ref(), Some(&image), "what one imports the other has");
        let root = agent.make_root("one", &image).unwrap();
        run.make_root("two", &image).unwrap();
        assert_eq!((agent.roots().unwrap(), run.roots().unwrap()), (vec!["one".to_owned()], vec!["two".to_owned()]));
        assert_eq!(run.images_of_others().unwrap().into_iter().collect::<Vec<_>>(), std::slice::from_ref(&image.id));
        // The run was killed, and its directory was removed.
        drop(run);
        fs::remove_dir(owners.path().join("run")).unwrap();
        // A process in another mount namespace cannot know that.
        let elsewhere = std::thread::scope(|scope| {
            let look = || {
                nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
                drop(owned("elsewhere"));
            };
            scope.spawn(look).join()
        });
        elsewhere.unwrap();
        assert!(place.path().join("roots/two").exists(), "it may be there all the same");
        let next = owned("next");
        assert!(!place.path().join("roots/two").exists(), "it has no owner");
        assert!(root.join("etc").is_dir() && place.path().join("roots/one").exists(), "the other is in use");
        assert_eq!(mounts_below(place.path()), 1);
        assert_eq!(next.roots().unwrap(), Vec::<String>::new());
        // An unfinished one without a record has no owner either.
        fs::create_dir(place.path().join("roots/half")).unwrap();
        assert_eq!(agent.roots().unwrap(), ["one"]);
        owned("last");
        assert!(!place.path().join("roots/half").exists());
        agent.remove_root("one").unwrap();
    });
}
