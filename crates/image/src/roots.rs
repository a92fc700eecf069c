//! Root file systems for containers, and images as read-only volumes.
//!
//! A root is a directory below `roots` with a record, a directory for changes and the mount point of the overlay of
//! both. The record is written first: from then on the layers stay, and an unfinished root, or one without its mount
//! (after a reboot), is completed by the next request for it.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{At, Error};
use crate::image::{Image, ImageContent};
use crate::index::write_file;
use crate::overlay::{Overlay, Owners, Upper, is_mount_point, mount_memory, mount_overlay, unmount_all};
use crate::store::{Guard, Store, make_directory};
use crate::tree::{self, Usage};
use crate::work::Work;

/// The record of a root or mount.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// the image's ID
    image: String,
    /// chain IDs of its layers
    layers: Vec<String>,
    /// where a volume is mounted
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<PathBuf>,
    /// whether changes are kept in memory
    #[serde(default)]
    in_memory: bool,
    /// the container or pod that it was made for
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<Owner>,
}

/// The owner of a root or mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    /// goes when its owner does
    directory: PathBuf,
    /// the boot, and the mount namespace that the directory was seen from
    boot: String,
    mounts: String,
}

/// A root's key and its note, if it has one that can be read.
type Noted = (String, Result<Option<Note>, Error>);

const NOTE: &str = "root.json";

// === impl Store ===

impl Store {
    /// Makes a root from an image, or finds the one with this key, and returns its mount point. Files have the owners
    /// that the image has.
    pub fn make_root(&self, key: &str, image: &Image) -> Result<PathBuf, Error> {
        self.make_root_for(key, image, None)
    }

    /// The same with mapped owners. Changes are kept with those.
    pub fn make_root_for(&self, key: &str, image: &Image, owners: Option<Owners<'_>>) -> Result<PathBuf, Error> {
        let directory = self.root_directory(key)?;
        let _guard = self.lock()?;
        let lowers = self.lower_directories(image)?;
        // A directory for changes within a lower directory: Linux 6.18 mounts it, but the behaviour is undefined, and
        // walking into it returns ELOOP. On another file system the two cannot overlap.
        let in_memory = lowers.iter().any(|lower| self.inner.root.starts_with(lower));
        let note =
            Note { image: image.id.clone(), layers: layers_of(image), target: None, in_memory, owner: self.owner() };
        match read_note(&directory.join(NOTE))? {
            Some(existing) if existing.image != note.image => {
                return Err(Error::KeyInUse { key: key.to_owned(), image: existing.image });
            }
            Some(_) => {}
            None => {
                // A process was killed before it wrote the record: nothing here is worth keeping.
                self.take_away(&directory)?;
                make_directory(&directory, 0o711)?;
                write_note(&directory.join(NOTE), &note)?;
            }
        }
        let target = directory.join("rootfs");
        make_directory(&target, 0o755)?;
        self.touch_image(image);
        if is_mount_point(&target)? {
            return Ok(target);
        }
        let upper = self.make_upper(&directory, &note, lowers.first(), owners)?;
        let lowers = if lowers.is_empty() { vec![self.path("empty/a")] } else { lowers };
        mount_overlay(&Overlay { lowers: &lowers, owners, upper: Some(upper) }, &target)?;
        Ok(target)
    }

    /// Unmounts and removes a root with all changes. Succeeds if it does not exist.
    pub fn remove_root(&self, key: &str) -> Result<(), Error> {
        let directory = self.root_directory(key)?;
        let guard = self.lock()?;
        let trash = self.take_away(&directory)?;
        let layers = self.sweep(&guard, &self.index()?)?;
        drop(guard);
        drop((trash, layers));
        Ok(())
    }

    /// Where a root with this key is or would be mounted.
    pub fn root_path(&self, key: &str) -> Result<PathBuf, Error> {
        Ok(self.root_directory(key)?.join("rootfs"))
    }

    /// The keys of all roots of this owner, also of those that are not mounted.
    pub fn roots(&self) -> Result<Vec<String>, Error> {
        let is_own =
            |note: Result<Option<Note>, Error>| note.is_ok_and(|note| note.is_some_and(|note| self.owns(&note)));
        Ok(self.all_roots()?.into_iter().filter_map(|(key, note)| is_own(note).then_some(key)).collect())
    }

    /// IDs of the images that roots and mounts of other owners use.
    pub fn images_of_others(&self) -> Result<BTreeSet<String>, Error> {
        let others = self.notes()?.into_iter().filter(|note| !self.owns(note));
        Ok(others.map(|note| note.image).collect())
    }

    /// The disk or memory usage of the changes in a root.
    pub fn root_usage(&self, key: &str) -> Result<Usage, Error> {
        let directory = self.root_directory(key)?;
        let note = read_note(&directory.join(NOTE))?;
        let Some(note) = note else { return Err(Error::NotFound { reference: key.to_owned() }) };
        let changes = upper_of(&directory, &note).changes;
        tree::usage(&changes).at("count", changes)
    }

    /// Mounts an image read-only at an existing directory. The key is for [`Store::unmount_image`].
    pub fn mount_image(&self, key: &str, image: &Image, target: &Path) -> Result<(), Error> {
        self.mount_image_for(key, image, target, None)
    }

    /// The same with mapped owners.
    pub fn mount_image_for(
        &self,
        key: &str,
        image: &Image,
        target: &Path,
        owners: Option<Owners<'_>>,
    ) -> Result<(), Error> {
        let path = self.mount_note(key)?;
        let _guard = self.lock()?;
        let note = Note {
            image: image.id.clone(),
            layers: layers_of(image),
            target: Some(target.to_owned()),
            in_memory: false,
            owner: self.owner(),
        };
        match read_note(&path)? {
            Some(existing) if (&existing.image, &existing.target) != (&note.image, &note.target) => {
                return Err(Error::KeyInUse { key: key.to_owned(), image: existing.image });
            }
            Some(_) => {}
            None => write_note(&path, &note)?,
        }
        self.touch_image(image);
        if is_mount_point(target)? {
            return Ok(());
        }
        let mut lowers = self.lower_directories(image)?;
        // Without a directory for changes overlayfs needs at least two distinct lower directories.
        let fill = [self.path("empty/a"), self.path("empty/b")];
        lowers.extend(fill.into_iter().take(2usize.saturating_sub(lowers.len())));
        mount_overlay(&Overlay { lowers: &lowers, owners, upper: None }, target)
    }

    /// Unmounts an image. Succeeds if it does not exist.
    pub fn unmount_image(&self, key: &str) -> Result<(), Error> {
        let path = self.mount_note(key)?;
        let guard = self.lock()?;
        let Some(note) = read_note(&path)? else { return Ok(()) };
        if let Some(target) = &note.target {
            unmount_all(target)?;
        }
        tree::remove(&path).at("remove", &path)?;
        let trash = self.sweep(&guard, &self.index()?)?;
        drop(guard);
        drop(trash);
        Ok(())
    }

    /// The keys of all images that this owner has mounted or was about to mount.
    pub fn image_mounts(&self) -> Result<Vec<String>, Error> {
        let mut keys = Vec::new();
        for name in names_in(&self.path("mounts"))? {
            let note = read_note(&self.path("mounts").join(&name));
            if note.is_ok_and(|note| note.is_some_and(|note| self.owns(&note))) {
                keys.extend(name.strip_suffix(".json").map(str::to_owned));
            }
        }
        Ok(keys)
    }

    fn root_directory(&self, key: &str) -> Result<PathBuf, Error> {
        Ok(self.path("roots").join(checked(key)?))
    }

    fn mount_note(&self, key: &str) -> Result<PathBuf, Error> {
        Ok(self.path("mounts").join(format!("{}.json", checked(key)?)))
    }

    /// Prepares the directory for changes. The overlay shows its owner and mode as those of the root directory, so they
    /// are copied from the topmost layer.
    fn make_upper(
        &self,
        directory: &Path,
        note: &Note,
        topmost: Option<&PathBuf>,
        owners: Option<Owners<'_>>,
    ) -> Result<Upper, Error> {
        let upper = upper_of(directory, note);
        if note.in_memory {
            let memory = directory.join("memory");
            make_directory(&memory, 0o700)?;
            if !is_mount_point(&memory)? {
                mount_memory(&memory)?;
            }
        }
        let is_new = !upper.changes.is_dir();
        make_directory(&upper.changes, 0o755)?;
        make_directory(&upper.work, 0o700)?;
        if is_new {
            let like = topmost.map_or_else(|| self.path("empty/a"), Clone::clone);
            let metadata = match owners {
                None => std::fs::metadata(&like),
                Some(open) => open(&like).and_then(|tree| std::fs::File::from(tree).metadata()),
            };
            let metadata = metadata.at("stat", &like)?;
            std::os::unix::fs::chown(&upper.changes, Some(metadata.uid()), Some(metadata.gid()))
                .at("set owner of", &upper.changes)?;
            let mode = std::fs::Permissions::from_mode(metadata.mode() & 0o7777);
            std::fs::set_permissions(&upper.changes, mode).at("set mode of", &upper.changes)?;
        }
        Ok(upper)
    }

    /// Unmounts everything in a root's directory and moves the directory to a working directory.
    fn take_away(&self, directory: &Path) -> Result<Option<Work>, Error> {
        if !directory.exists() {
            return Ok(None);
        }
        unmount_all(&directory.join("rootfs"))?;
        unmount_all(&directory.join("memory"))?;
        let work = Work::new(&self.path("tmp"))?;
        std::fs::rename(directory, work.path().join("root")).at("move away", directory)?;
        Ok(Some(work))
    }

    /// Removes what belongs to deleted owner directories, and what has no record: no root is being made while the guard
    /// is held.
    pub(crate) fn take_away_abandoned(&self, _guard: &Guard) -> Result<Vec<Work>, Error> {
        let (boot, mounts) = (this_boot(), this_mount_namespace());
        let is_abandoned = |note: &Note| {
            note.owner.as_ref().is_some_and(|owner| {
                // A process in another mount namespace cannot tell whether a directory is deleted. After a reboot no
                // process uses anything.
                let can_tell = owner.boot != boot || owner.mounts == mounts;
                can_tell
                    && !owner.directory.exists()
                    && (owner.boot != boot || !(self.inner.options.in_use)(&owner.directory))
            })
        };
        let mut trash = Vec::new();
        for (key, note) in self.all_roots()? {
            if note.is_ok_and(|note| note.as_ref().is_none_or(is_abandoned)) {
                trash.extend(self.take_away(&self.path("roots").join(key))?);
            }
        }
        for path in names_in(&self.path("mounts"))?.into_iter().map(|name| self.path("mounts").join(name)) {
            if let Ok(Some(note)) = read_note(&path)
                && is_abandoned(&note)
            {
                note.target.as_deref().map(unmount_all).transpose()?;
                tree::remove(&path).at("remove", &path)?;
            }
        }
        Ok(trash)
    }

    fn owner(&self) -> Option<Owner> {
        let directory = self.inner.options.owner.clone()?;
        Some(Owner { directory, boot: this_boot(), mounts: this_mount_namespace() })
    }

    fn owns(&self, note: &Note) -> bool {
        note.owner.as_ref().map(|owner| &owner.directory) == self.inner.options.owner.as_ref()
    }

    /// The roots of all owners, with their notes.
    fn all_roots(&self) -> Result<Vec<Noted>, Error> {
        let roots = self.path("roots");
        let with_note = |key: String| (key.clone(), read_note(&roots.join(key).join(NOTE)));
        Ok(names_in(&roots)?.into_iter().map(with_note).collect())
    }

    fn notes(&self) -> Result<Vec<Note>, Error> {
        let mut notes = Vec::new();
        for (_, note) in self.all_roots()? {
            notes.extend(note?);
        }
        for name in names_in(&self.path("mounts"))? {
            notes.extend(read_note(&self.path("mounts").join(name))?);
        }
        Ok(notes)
    }

    pub(crate) fn layers_in_use(&self) -> Result<BTreeSet<String>, Error> {
        Ok(self.notes()?.into_iter().flat_map(|note| note.layers).collect())
    }

    /// IDs of the images that roots and mounts use, of all owners.
    pub fn images_in_use(&self) -> Result<BTreeSet<String>, Error> {
        Ok(self.notes()?.into_iter().map(|note| note.image).collect())
    }
}

fn this_boot() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    boot.map(|boot| boot.trim().to_owned()).unwrap_or_default()
}

fn this_mount_namespace() -> String {
    let namespace = std::fs::read_link("/proc/thread-self/ns/mnt");
    namespace.map(|namespace| namespace.display().to_string()).unwrap_or_default()
}

fn layers_of(image: &Image) -> Vec<String> {
    match &image.source {
        ImageContent::Layers(layers) => layers.clone(),
        ImageContent::Directory(_) => Vec::new(),
    }
}

fn upper_of(directory: &Path, note: &Note) -> Upper {
    let base = if note.in_memory { directory.join("memory") } else { directory.to_owned() };
    Upper { changes: base.join("upper"), work: base.join("work") }
}

/// Keys become file names.
fn checked(key: &str) -> Result<&str, Error> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let begins_well = key.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
    if begins_well && key.len() <= 128 && key.bytes().all(is_allowed) {
        return Ok(key);
    }
    Err(Error::Key { key: key.to_owned() })
}

fn read_note(path: &Path) -> Result<Option<Note>, Error> {
    let content = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        content => content.at("read", path)?,
    };
    let note = serde_json::from_slice(&content);
    note.map(Some).map_err(|error| Error::Damaged { path: path.into(), reason: error.to_string() })
}

fn write_note(path: &Path, note: &Note) -> Result<(), Error> {
    let content =
        serde_json::to_vec(note).map_err(|error| Error::Damaged { path: path.into(), reason: error.to_string() })?;
    write_file(path, &content)
}

fn names_in(directory: &Path) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).at("list", directory)? {
        let name = entry.at("list", directory)?.file_name().to_string_lossy().into_owned();
        if !name.ends_with(".new") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}
