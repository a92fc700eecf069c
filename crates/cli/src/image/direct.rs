//! A store of images without an agent: any number of processes may use one at once, and this is one more of them.

use std::{
    fs::{self, File, Permissions},
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context, Result, bail};
use keelet_assembly::{Paths, image_name, prepare_to_pull, pull_progress};
use keelet_image::{Image, PullOptions, Store, Tally, docker_config_path};
use keelet_serve::api;

use super::POLL_EVERY;
use crate::{
    progress::{Meter, Part, of_pull},
    registries::Registries,
};

/// The store.
pub(super) struct Direct {
    store: Store,
}

/// An archive, and how much of it was read.
struct Counted<R> {
    archive: R,
    read: Arc<AtomicU64>,
}

/// Where the images of this node are.
pub(super) fn of_this_node() -> PathBuf {
    Path::new(Paths::ROOT).join(Paths::IMAGES)
}

// === impl Direct ===

impl Direct {
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let place = directory.display();
        if !rustix::process::geteuid().is_root() {
            bail!("the image store {place} is for root: try again with sudo");
        }
        let unusable = || format!("cannot open the image store {place}");
        if !directory.exists() {
            // As the runtime makes it: what is above is for others too, and what is in there is not.
            fs::create_dir_all(directory).with_context(unusable)?;
            fs::set_permissions(directory, Permissions::from_mode(0o700)).with_context(unusable)?;
        }
        let options = keelet_image::Options { in_use: keelet_runtime::runs_in, ..keelet_image::Options::default() };
        Ok(Self { store: Store::open_with(directory, options).with_context(unusable)? })
    }

    /// All images, ordered as an agent has them. Images that containers use are pinned, whichever process runs these.
    pub(super) fn list(&self) -> Result<Vec<api::Image>> {
        let used = self.store.images_in_use()?;
        let told = |image: Image| api::Image {
            pinned: image.pinned || used.contains(&image.id),
            id: image.id,
            tags: image.tags,
            digests: image.digests,
            size: image.size,
        };
        let mut images: Vec<api::Image> = self.store.list()?.into_iter().map(told).collect();
        images.sort_by(|a, b| (&a.tags, &a.digests, &a.id).cmp(&(&b.tags, &b.digests, &b.id)));
        Ok(images)
    }

    /// Fetches an image; its ID.
    pub(super) async fn pull(&self, image: &str, registries: &Registries) -> Result<String> {
        prepare_to_pull();
        let mut options = PullOptions::default();
        options.docker_config = docker_config_path();
        registries.apply(&mut options)?;
        let mut meter = Meter::begin(format!("fetching {image}"));
        let tally = Mutex::new(Tally::default());
        let tally = || tally.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pulling = std::pin::pin!(self.store.pull(image, None, &options, |progress| tally().note(progress)));
        loop {
            tokio::select! {
                pulled = &mut pulling => return Ok(pulled?.id),
                () = tokio::time::sleep(POLL_EVERY) => {
                    let (words, part) = of_pull(&pull_progress(image.to_owned(), &tally()));
                    meter.show(&words, part);
                }
            }
        }
    }

    /// Removes an image, with all its names.
    pub(super) fn remove(&self, image: &str, force: bool) -> Result<()> {
        let Some(found) = self.store.find(image)? else { bail!("image {image:?} not found on this node") };
        if !force && self.store.images_in_use()?.contains(&found.id) {
            bail!("image {image:?} is used by a container; use --force to remove it anyway");
        }
        self.store.remove(&found.id)?;
        Ok(())
    }

    /// Brings in what is in an archive; the names of the images.
    pub(super) async fn import(&self, path: &Path) -> Result<Vec<String>> {
        let mut meter = Meter::begin(format!("importing {}", path.display()));
        let unreadable = || format!("cannot read {}", path.display());
        let (archive, all): (Box<dyn Read + Send>, _) = match path == Path::new("-") {
            true => (Box::new(io::stdin()), None),
            false => {
                let file = File::open(path).with_context(unreadable)?;
                let metadata = file.metadata().with_context(unreadable)?;
                (Box::new(file), metadata.is_file().then_some(metadata.len()))
            }
        };
        let read = Arc::new(AtomicU64::new(0));
        let (store, archive) = (self.store.clone(), Counted { archive, read: Arc::clone(&read) });
        let mut importing = tokio::task::spawn_blocking(move || store.import(archive, None));
        loop {
            tokio::select! {
                imported = &mut importing => return Ok(imported??.iter().map(image_name).collect()),
                () = tokio::time::sleep(POLL_EVERY) => {
                    if let Some(part) = all.map(|all| Part { done: read.load(Ordering::Relaxed), all }) {
                        meter.show(&part.words(), Some(part));
                    }
                }
            }
        }
    }
}

// === impl Counted ===

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.archive.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
