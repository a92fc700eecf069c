//! A store of images on a file system of its own, with files outside of it that must not change.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use keelet_image::{Image, Limits, Options, ImageContent, Store, groups_of, resolve_user};

use crate::ground::{self, GROUND, Look};

/// Only outside of the store there is a user with this number.
const STRANGER: u32 = 424_242;

struct Scene {
    store: Store,
    root: PathBuf,
    outside: BTreeMap<PathBuf, Look>,
}

static SCENE: OnceLock<Scene> = OnceLock::new();

/// Makes the store and what lies beside it. To be called before any other thread is started.
pub fn prepare() {
    ground::prepare();
    let ground = Path::new(GROUND);
    let outside = ground.join("outside");
    fs::create_dir_all(outside.join("etc")).expect("a directory");
    fs::write(outside.join("etc/passwd"), format!("stranger:x:{STRANGER}:{STRANGER}::/:/bin/sh\n")).expect("a file");
    fs::write(outside.join("file"), "untouched").expect("a file");
    let mut limits = Limits::default();
    (limits.bytes, limits.entries, limits.reserve) = (64 << 20, 4096, 0);
    let root = ground.join("store");
    let options = Options { limits, durable: false, ..Options::default() };
    let store = Store::open_with(&root, options).expect("a store");
    let outside = ground::look(&outside).expect("what was just made");
    assert!(SCENE.set(Scene { store, root, outside }).is_ok(), "prepared twice");
}

/// What it may cost to unpack layers, in KiB: the budget of an image, whatever it holds.
const MEMORY: u64 = 64 * 1024;

/// Does something to the store that must stay within the budget of memory.
fn within_budget<T>(work: impl FnOnce() -> T) -> T {
    let status = |field: &str| -> u64 {
        let text = fs::read_to_string("/proc/self/status").expect("the process's status");
        let line = text.lines().find_map(|line| line.strip_prefix(field)).expect(field);
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().expect("a number")
    };
    let (used, most) = (status("VmRSS"), status("VmHWM"));
    let done = work();
    let now = status("VmHWM");
    // Without a new mark nothing grew further than before.
    assert!(now == most || now.saturating_sub(used) <= MEMORY, "unpacking took {} KiB", now.saturating_sub(used));
    done
}

/// Pulls an image, and sees to it that the store is as it was afterwards.
pub fn check_pull(pull: impl FnOnce(&Store) -> Result<Image, keelet_image::Error>) {
    let scene = SCENE.get().expect("prepared");
    match within_budget(|| pull(&scene.store)) {
        Ok(image) => {
            assert_eq!(scene.store.find(&image.id).expect("a lookup").map(|found| found.id), Some(image.id.clone()));
            scene.look_up_users(&image);
            scene.store.remove(&image.id).expect("what was pulled can be removed");
        }
        Err(error) => {
            let told = error.to_string();
            assert!(!told.is_empty() && told.len() < 64 * 1024, "{} bytes of reasons", told.len());
        }
    }
    scene.check();
}

/// Imports an archive and sees to it that the store is as it was afterwards.
pub fn check_import(archive: &[u8]) {
    let scene = SCENE.get().expect("prepared");
    match within_budget(|| scene.store.import(archive, None)) {
        Ok(images) => {
            assert!(!images.is_empty(), "taken, and nothing was in it");
            for image in &images {
                scene.look_up_users(image);
            }
            for image in &images {
                scene.store.remove(&image.id).expect("what was imported can be removed");
            }
        }
        Err(error) => {
            let told = error.to_string();
            assert!(!told.is_empty() && !told.contains('\0'), "{told:?}");
        }
    }
    scene.check();
}

// === impl Scene ===

impl Scene {
    /// A container of this image reads its own files, and into no others.
    fn look_up_users(&self, image: &Image) {
        let ImageContent::Layers(chains) = &image.source else { panic!("no layers: {image:?}") };
        let Some(top) = chains.last() else { return };
        let rootfs = self.root.join("layers").join(top).join("diff");
        for spec in ["stranger", "424242", "0:stranger", ""] {
            if let Ok(user) = resolve_user(&rootfs, spec) {
                assert!(user.name.as_deref() != Some("stranger"), "{spec}: read outside of the image: {user:?}");
            }
        }
        let _ = groups_of(&rootfs, STRANGER);
    }

    fn check(&self) {
        for directory in ["layers", "tmp", "used", "mounts", "roots"] {
            let left = ground::names(&self.root.join(directory));
            assert!(left.is_empty(), "left behind in {directory}: {left:?}");
        }
        assert!(self.store.list().expect("a list").is_empty(), "an image is left");
        let mut beside = ground::names(Path::new(GROUND));
        beside.sort();
        assert_eq!(beside, ["outside", "store"], "something was written beside the store");
        let outside = ground::look(&Path::new(GROUND).join("outside")).expect("it is still there");
        assert_eq!(outside, self.outside, "something outside of the store was touched");
    }
}
