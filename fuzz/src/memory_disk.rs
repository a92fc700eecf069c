//! A disk in memory for the ledger. Nothing on it fails; clones are the same disk.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    rc::Rc,
};

use keelet_ledger::{Disk, DiskEntry, EntryKind, Lock, Sheet};

/// Files by their paths; `None` is a directory.
type Nodes = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// The disk.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk(Rc<RefCell<Nodes>>);

struct Open {
    disk: MemoryDisk,
    path: PathBuf,
}

// === impl MemoryDisk ===

impl MemoryDisk {
    /// Puts a file there, and the directories above it.
    pub fn put(&self, path: impl Into<PathBuf>, content: &[u8]) {
        let path = path.into();
        for above in path.ancestors().skip(1) {
            self.0.borrow_mut().entry(above.to_owned()).or_insert(None);
        }
        self.0.borrow_mut().insert(path, Some(content.to_vec()));
    }

    /// All that is there.
    pub fn nodes(&self) -> Nodes {
        self.0.borrow().clone()
    }

    /// A disk of its own with the same on it.
    pub fn copied(&self) -> Self {
        Self(Rc::new(RefCell::new(self.nodes())))
    }

    fn move_all(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut nodes = self.0.borrow_mut();
        let moved: Vec<PathBuf> = nodes.keys().filter(|path| path.starts_with(from)).cloned().collect();
        if moved.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        for path in moved {
            let Ok(below) = path.strip_prefix(from) else { continue };
            let target = if below.as_os_str().is_empty() { to.to_owned() } else { to.join(below) };
            if let Some(node) = nodes.remove(&path) {
                nodes.insert(target, node);
            }
        }
        Ok(())
    }
}

impl Disk for MemoryDisk {
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        match self.0.borrow().get(path) {
            None => Err(io::ErrorKind::NotFound.into()),
            Some(None) => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a directory")),
            Some(Some(content)) if content.len() > limit => Err(io::ErrorKind::FileTooLarge.into()),
            Some(Some(content)) => Ok(content.clone()),
        }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DiskEntry>> {
        let nodes = self.0.borrow();
        match nodes.get(directory) {
            None => return Err(io::ErrorKind::NotFound.into()),
            Some(Some(_)) => return Err(io::ErrorKind::NotADirectory.into()),
            Some(None) => {}
        }
        let children = nodes.iter().filter(|(path, _)| path.parent() == Some(directory));
        let entry = |(path, node): (&PathBuf, &Option<Vec<u8>>)| DiskEntry {
            name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            kind: if node.is_some() { EntryKind::File } else { EntryKind::Directory },
        };
        Ok(children.map(entry).collect())
    }

    fn make_dir(&self, directory: &Path) -> io::Result<()> {
        for path in directory.ancestors() {
            if self.0.borrow_mut().entry(path.to_owned()).or_insert(None).is_some() {
                return Err(io::ErrorKind::NotADirectory.into());
            }
        }
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Sheet>> {
        self.0.borrow_mut().insert(path.to_owned(), Some(Vec::new()));
        Ok(Box::new(Open { disk: self.clone(), path: path.to_owned() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.move_all(from, to)
    }

    fn rename_aside(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.0.borrow().contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.move_all(from, to)
    }

    fn sync_dir(&self, _directory: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.borrow_mut().retain(|other, _| !other.starts_with(path));
        Ok(())
    }

    fn lock(&self, _directory: &Path) -> io::Result<Option<Lock>> {
        Ok(Some(Lock::pretended()))
    }
}

// === impl Open ===

impl Sheet for Open {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(Some(content)) = self.disk.0.borrow_mut().get_mut(&self.path) {
            content.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}
