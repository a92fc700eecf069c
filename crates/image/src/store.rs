//! The store: its layout, its lock, and the removal of what is no longer used.
//!
//! The list of images changes, layers appear and layers are removed under one file lock, which is held briefly. Long
//! work (downloading, unpacking, deleting) happens in a working directory without the lock.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, Timespec, Timestamps, UTIME_NOW, flock};
use serde::{Deserialize, Serialize};

use crate::error::{At, Error};
use crate::image::{Image, ImageContent};
use crate::index::{Index, Record, Removed};
use crate::limits::Limits;
use crate::platform::Platform;
use crate::reference::{self, Wanted};
use crate::tree::{self, Usage};
use crate::work::{Work, survey};

/// How a store behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// bounds on what is unpacked
    pub limits: Limits,
    /// which images are chosen where there are several
    pub platform: Platform,
    /// whether an image survives a power cut right after it was stored, for the price of a wait for the disk
    pub durable: bool,
    /// the owner of these roots and mounts, where several share a store: a directory that is deleted with its owner.
    /// What belongs to a deleted directory is removed when the store is opened next
    pub owner: Option<PathBuf>,
    /// whether containers of that owner run although its directory is missing: it may be on a file system that is not
    /// mounted
    pub in_use: InUse,
}

/// Tells whether containers of an owner's directory run.
pub type InUse = fn(&Path) -> bool;

/// Images and roots below one directory. Clones share the store; other processes may use it at the same time.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) root: PathBuf,
    pub(crate) options: Options,
}

/// The lock of the store. Dropping it releases the lock.
pub(crate) struct Guard {
    _held: OwnedFd,
}

/// An unpacked layer that is not part of the store yet.
pub(crate) struct Unpacked {
    /// its chain ID without the algorithm
    pub(crate) chain: String,
    /// a directory with `diff` in it
    pub(crate) path: PathBuf,
}

/// The record of a layer beside its files.
#[derive(Serialize, Deserialize)]
pub(crate) struct LayerNote {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

/// The result of a garbage collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// IDs of the removed images, the least recently used first
    pub images: Vec<String>,
    /// what their layers took on disk
    pub bytes: u64,
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        let (limits, platform) = (Limits::default(), Platform::of_this_machine());
        Self { limits, platform, durable: true, owner: None, in_use: |_| false }
    }
}

// === impl Store ===

impl Store {
    /// Opens the store in a directory, which is created if it does not exist, and removes what killed processes left.
    pub fn open(root: &Path) -> Result<Self, Error> {
        Self::open_with(root, Options::default())
    }

    /// Opens a store with options.
    pub fn open_with(root: &Path, options: Options) -> Result<Self, Error> {
        make_directory(root, 0o711)?;
        let root = root.canonicalize().at("resolve", root)?;
        let store = Self { inner: Arc::new(Inner { root, options }) };
        store.make_places()?;
        let trash = {
            let guard = store.lock()?;
            let abandoned = store.take_away_abandoned(&guard)?;
            (abandoned, store.sweep(&guard, &store.index()?)?)
        };
        drop(trash);
        Ok(store)
    }

    /// All images, ordered by ID.
    pub fn list(&self) -> Result<Vec<Image>, Error> {
        let index = self.index()?;
        Ok(index.images.keys().filter_map(|id| index.image(id)).collect())
    }

    /// The image of a reference: a name, a name with a digest, an ID, a prefix of one, or `rootfs:/path`.
    pub fn find(&self, reference: &str) -> Result<Option<Image>, Error> {
        let wanted = reference::parse(reference)?;
        if let Wanted::Directory(path) = wanted {
            return Ok(path.is_dir().then(|| Image::of_directory(path)));
        }
        let index = self.index()?;
        Ok(index.find(reference, &wanted)?.and_then(|id| index.image(id)))
    }

    /// Removes a name; with the last name, or when given an ID, the image. Succeeds if it does not exist. Layers that a
    /// root uses stay until the root is removed.
    pub fn remove(&self, reference: &str) -> Result<Removed, Error> {
        let wanted = reference::parse(reference)?;
        let guard = self.lock()?;
        let mut index = self.index()?;
        let removed = index.remove(reference, &wanted)?;
        if removed == Removed::default() {
            return Ok(removed);
        }
        index.write(&self.index_path())?;
        let trash = self.sweep(&guard, &index)?;
        // Deleting takes long and happens without the lock.
        drop(guard);
        drop(trash);
        Ok(removed)
    }

    /// Pins an image, which protects it from garbage collection, or unpins it.
    pub fn set_pinned(&self, reference: &str, pinned: bool) -> Result<(), Error> {
        let wanted = reference::parse(reference)?;
        let _guard = self.lock()?;
        let mut index = self.index()?;
        let not_found = || Error::NotFound { reference: reference.to_owned() };
        let id = index.find(reference, &wanted)?.ok_or_else(not_found)?.to_owned();
        if let Some(record) = index.images.get_mut(&id) {
            record.pinned = pinned;
        }
        index.write(&self.index_path())
    }

    /// The disk usage of all layers.
    pub fn usage(&self) -> Result<Usage, Error> {
        let layers = self.path("layers");
        let mut total = Usage::default();
        for entry in std::fs::read_dir(&layers).at("list", &layers)? {
            let name = entry.at("list", &layers)?.file_name();
            if let Ok(usage) = self.layer_usage(&name.to_string_lossy()) {
                total += usage;
            }
        }
        Ok(total)
    }

    /// Removes images until the requested number of bytes is freed, the least recently used first. Images in `keep`,
    /// pinned ones and those that a root or mount uses stay.
    pub fn collect(&self, keep: &BTreeSet<String>, bytes_to_free: u64) -> Result<Collected, Error> {
        let guard = self.lock()?;
        let mut index = self.index()?;
        let used = self.images_in_use()?;
        let may_go = |(id, record): &(&String, &Record)| !record.pinned && !keep.contains(*id) && !used.contains(*id);
        let mut candidates: Vec<_> =
            index.images.iter().filter(may_go).map(|(id, _)| (self.last_used(id), id.clone())).collect();
        candidates.sort();
        let mut collected = Collected::default();
        let mut trash = Vec::new();
        for (_, id) in candidates {
            if collected.bytes >= bytes_to_free {
                break;
            }
            index.images.remove(&id);
            index.write(&self.index_path())?;
            let moved = self.sweep(&guard, &index)?;
            collected.bytes += moved.bytes;
            collected.images.push(id);
            trash.push(moved);
        }
        drop(guard);
        drop(trash);
        Ok(collected)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.inner.root.join(name)
    }

    pub(crate) fn index_path(&self) -> PathBuf {
        self.path("images.json")
    }

    pub(crate) fn index(&self) -> Result<Index, Error> {
        Index::read(&self.index_path())
    }

    /// The root of an unpacked layer.
    pub(crate) fn layer_path(&self, chain: &str) -> PathBuf {
        self.path("layers").join(chain).join("diff")
    }

    pub(crate) fn has_layer(&self, chain: &str) -> bool {
        self.layer_path(chain).is_dir()
    }

    fn layer_usage(&self, chain: &str) -> Result<Usage, Error> {
        let path = self.path("layers").join(chain).join("layer.json");
        let content = std::fs::read(&path).at("read", &path)?;
        let note: LayerNote = serde_json::from_slice(&content)
            .map_err(|error| Error::Damaged { path: path.clone(), reason: error.to_string() })?;
        Ok(Usage { bytes: note.bytes, inodes: note.inodes })
    }

    /// Makes the directories of the store.
    fn make_places(&self) -> Result<(), Error> {
        make_directory(&self.inner.root, 0o711)?;
        for (name, mode) in [
            ("layers", 0o700),
            ("tmp", 0o700),
            ("used", 0o700),
            ("mounts", 0o700),
            ("empty/a", 0o755),
            ("empty/b", 0o755),
            ("roots", 0o711),
        ] {
            make_directory(&self.path(name), mode)?;
        }
        Ok(())
    }

    /// Takes the lock of the store. Other threads are excluded like other processes.
    pub(crate) fn lock(&self) -> Result<Guard, Error> {
        let path = self.path("lock");
        // Without the lock file the whole store may have been removed while in use: it starts again empty.
        if !path.exists() {
            self.make_places()?;
        }
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).at("open", &path)?;
        loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Err(rustix::io::Errno::INTR) => {}
                locked => break locked.at("lock", &path)?,
            }
        }
        Ok(Guard { _held: file.into() })
    }

    pub(crate) fn new_work(&self) -> Result<Work, Error> {
        let _guard = self.lock()?;
        Work::new(&self.path("tmp"))
    }

    /// Adds layers and an image to the store, both or neither.
    pub(crate) fn publish(&self, layers: Vec<Unpacked>, images: Vec<(String, Record)>) -> Result<Vec<Image>, Error> {
        if self.inner.options.durable && !layers.is_empty() {
            let root = File::open(&self.inner.root).at("open", &self.inner.root)?;
            rustix::fs::syncfs(&root).at("sync", &self.inner.root)?;
        }
        let _guard = self.lock()?;
        let mut index = self.index()?;
        for layer in layers {
            let target = self.path("layers").join(&layer.chain);
            match std::fs::rename(&layer.path, &target) {
                // Another process unpacked the same layer meanwhile; that copy is equivalent.
                Err(_) if target.is_dir() => {}
                renamed => renamed.at("move into place", &target)?,
            }
        }
        let mut ids = Vec::new();
        for (id, mut record) in images {
            record.size = 0;
            for chain in &record.layers {
                record.size += self.layer_usage(chain)?.bytes;
            }
            index.add(&id, record);
            ids.push(id);
        }
        index.write(&self.index_path())?;
        for id in &ids {
            self.touch(id);
        }
        Ok(ids.iter().filter_map(|id| index.image(id)).collect())
    }

    /// Adds names to an image, if it exists.
    pub(crate) fn add_names(
        &self,
        id: &str,
        tags: BTreeSet<String>,
        digests: BTreeSet<String>,
    ) -> Result<Option<Image>, Error> {
        let _guard = self.lock()?;
        let mut index = self.index()?;
        if !index.images.contains_key(id) {
            return Ok(None);
        }
        index.add(id, Record { tags, digests, ..Record::default() });
        index.write(&self.index_path())?;
        self.touch(id);
        Ok(index.image(id))
    }

    /// Records that an image was used now, with the time of the file system; this crate reads no clock.
    pub(crate) fn touch(&self, id: &str) {
        // A directory of the host is never collected.
        if !id.starts_with("sha256:") {
            return;
        }
        let path = self.used_path(id);
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let touched = OpenOptions::new().create(true).append(true).open(&path).and_then(|file| {
            Ok(rustix::fs::futimens(&file, &Timestamps { last_access: now, last_modification: now })?)
        });
        if let Err(error) = touched {
            tracing::warn!(path = %path.display(), %error, "cannot record when an image was last used");
        }
    }

    /// The same for an image that may be a directory of the host, which is never collected and needs no record.
    pub(crate) fn touch_image(&self, image: &Image) {
        if let ImageContent::Layers(_) = image.source {
            self.touch(&image.id);
        }
    }

    fn used_path(&self, id: &str) -> PathBuf {
        self.path("used").join(id.trim_start_matches("sha256:"))
    }

    fn last_used(&self, id: &str) -> Option<std::time::SystemTime> {
        std::fs::metadata(self.used_path(id)).and_then(|metadata| metadata.modified()).ok()
    }

    /// Moves everything unused into a working directory, which deletes it when dropped.
    pub(crate) fn sweep(&self, _guard: &Guard, index: &Index) -> Result<Trash, Error> {
        let survey = survey(&self.path("tmp"))?;
        let mut trash = Trash::default();
        let mut used = survey.leased;
        used.extend(index.images.values().flat_map(|record| record.layers.iter().cloned()));
        match self.layers_in_use() {
            Ok(layers) => used.extend(layers),
            Err(error) => {
                // Without knowledge of what is in use nothing is removed.
                tracing::warn!(%error, "cannot determine which layers are in use; none is removed");
                return Ok(trash);
            }
        }
        let layers = self.path("layers");
        let mut unused = survey.abandoned;
        for entry in std::fs::read_dir(&layers).at("list", &layers)? {
            let path = entry.at("list", &layers)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !used.contains(&name) {
                trash.bytes += self.layer_usage(&name).unwrap_or_default().bytes;
                unused.push(path);
            }
        }
        let marks = self.path("used");
        for entry in std::fs::read_dir(&marks).at("list", &marks)? {
            let path = entry.at("list", &marks)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !index.images.contains_key(&format!("sha256:{name}")) {
                tree::remove(&path).at("remove", &path)?;
            }
        }
        if unused.is_empty() {
            return Ok(trash);
        }
        let work = Work::new(&self.path("tmp"))?;
        for path in unused {
            let target = work.path().join(path.file_name().unwrap_or_default());
            std::fs::rename(&path, &target).at("move away", &path)?;
        }
        trash.work = Some(work);
        Ok(trash)
    }

    /// The layers of an image from the topmost down, without those that a layer hides completely.
    pub(crate) fn lower_directories(&self, image: &Image) -> Result<Vec<PathBuf>, Error> {
        let layers = match &image.source {
            ImageContent::Directory(path) => return Ok(vec![path.canonicalize().at("resolve", path)?]),
            ImageContent::Layers(layers) => layers,
        };
        let mut directories = Vec::new();
        for chain in layers.iter().rev() {
            let path = self.layer_path(chain);
            let directory = tree::open_directory(&path).at("open", &path)?;
            directories.push(path);
            if crate::unpack::is_opaque(&directory) {
                break;
            }
        }
        Ok(directories)
    }
}

/// What a sweep moved away. Dropping it deletes it.
#[derive(Default)]
pub(crate) struct Trash {
    pub(crate) bytes: u64,
    work: Option<Work>,
}

pub(crate) fn make_directory(path: &Path, mode: u32) -> Result<(), Error> {
    match DirBuilder::new().recursive(true).mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error).at("create", path),
        _ => Ok(()),
    }
}
