//! The ledger's disk: two tiers in memory, a power switch, and moods.
//!
//! The durable tier keeps two pictures: what the processes see, and what is on the medium. Only what was synced gets
//! from one to the other, and a reboot leaves nothing but the medium. The volatile tier is empty after a reboot.

use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use keelet_ledger::{Disk, DiskEntry, EntryKind, Lock, Sheet};

use crate::{
    faults::DiskMood,
    process::{AgentProcess, Permit},
    sim::Sim,
    timeline::Happening,
};

/// Where the durable tier begins.
pub(crate) const DURABLE: &str = "/sim/durable";
/// Where the volatile tier begins.
pub(crate) const VOLATILE: &str = "/sim/volatile";

/// Bytes taken by one write at most, so that no caller relies on more.
const CHUNK: usize = 4096;

/// What is on the disks.
#[derive(Debug, Default)]
pub(crate) struct Medium {
    live: Inodes,
    stable: Inodes,
    /// Directories that some run of the agent has locked.
    locks: BTreeMap<PathBuf, Arc<AgentProcess>>,
    /// Calls made, by name.
    pub(crate) calls: BTreeMap<&'static str, u64>,
    /// Counts whatever may have changed what can be read.
    pub(crate) changes: u64,
}

/// By path.
type Inodes = BTreeMap<String, Inode>;

#[derive(Clone, Debug)]
enum Inode {
    Directory,
    File(Arc<Mutex<File>>),
}

#[derive(Clone, Debug, Default)]
struct File {
    data: Vec<u8>,
    synced: Vec<u8>,
}

/// The disk as one run of the agent sees it.
#[derive(Clone)]
pub(crate) struct SimDisk {
    pub(crate) sim: Arc<Sim>,
    pub(crate) process: Arc<AgentProcess>,
}

struct SimSheet {
    disk: SimDisk,
    path: PathBuf,
    file: Arc<Mutex<File>>,
}

fn dead() -> io::Error {
    io::Error::other("the agent is dead")
}

// === impl Medium ===

impl Medium {
    /// The power is gone, and back.
    pub(crate) fn reboot(&mut self) {
        self.changes += 1;
        self.live = self
            .stable
            .iter()
            .filter(|(path, _)| !Path::new(path).starts_with(VOLATILE))
            .map(|(path, node)| {
                let kept = match node {
                    Inode::Directory => Inode::Directory,
                    Inode::File(file) => {
                        let synced = file.lock().unwrap_or_else(PoisonError::into_inner).synced.clone();
                        Inode::File(Arc::new(Mutex::new(File { data: synced.clone(), synced })))
                    }
                };
                (path.clone(), kept)
            })
            .collect();
        self.stable = self.live.clone();
    }

    /// Everything is gone.
    pub(crate) fn wipe(&mut self) {
        self.changes += 1;
        self.live.clear();
        self.stable.clear();
    }

    fn get(&self, path: &Path) -> Option<&Inode> {
        self.live.get(key(path))
    }

    /// Whether there is a directory of a ledger.
    pub(crate) fn has_ledger(&self) -> bool {
        [DURABLE, VOLATILE].into_iter().any(|root| self.get(Path::new(root)).is_some())
    }

    fn parent_exists(&self, path: &Path) -> io::Result<()> {
        match self.get(path.parent().unwrap_or(path)) {
            Some(Inode::Directory) => Ok(()),
            Some(Inode::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.parent_exists(to)?;
        match self.get(from) {
            None => return Err(io::ErrorKind::NotFound.into()),
            // Nearly all that the ledger renames are files, onto files: nothing is below either of them.
            Some(Inode::File(_)) if !matches!(self.get(to), Some(Inode::Directory)) => {
                let file = self.live.remove(key(from));
                self.live.extend(file.map(|file| (key(to).to_owned(), file)));
                return Ok(());
            }
            Some(_) => {}
        }
        self.remove(to);
        for path in self.subtree(from) {
            let Some(node) = self.live.remove(&path) else { continue };
            let target = format!("{}{}", key(to), &path[key(from).len()..]);
            self.live.insert(target, node);
        }
        Ok(())
    }

    /// Everything at and below a path.
    fn subtree(&self, root: &Path) -> Vec<String> {
        let root = key(root);
        let own = self.live.contains_key(root).then(|| root.to_owned());
        own.into_iter().chain(below(&self.live, root).map(|(path, _)| path.clone())).collect()
    }

    fn remove(&mut self, root: &Path) {
        for path in self.subtree(root) {
            self.live.remove(&path);
        }
    }

    fn sync_dir(&mut self, directory: &Path) {
        let directory = key(directory);
        let gone: Vec<String> = below(&self.stable, directory)
            .filter(|(path, _)| is_child(directory, path) && !self.live.contains_key(*path))
            .map(|(path, _)| path.clone())
            .collect();
        for gone in gone {
            self.stable.retain(|path, _| !Path::new(path).starts_with(&gone));
        }
        let kept = below(&self.live, directory).filter(|(path, _)| is_child(directory, path));
        self.stable.extend(kept.map(|(path, node)| (path.clone(), node.clone())));
    }
}

/// A path as a key: compared by its bytes, because comparing part by part is dear and done for every call.
fn key(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

/// Everything below a directory, which stands together: all of it begins with the directory's name and a slash.
fn below<'a>(nodes: &'a Inodes, directory: &str) -> impl Iterator<Item = (&'a String, &'a Inode)> {
    let prefix = format!("{}/", directory.trim_end_matches('/'));
    nodes
        .range(prefix.clone()..)
        .take_while(move |(path, _)| path.starts_with(&prefix))
        .filter(|(path, _)| *path != "/")
}

/// Whether a path that is below a directory is in it.
fn is_child(directory: &str, path: &str) -> bool {
    !path[directory.trim_end_matches('/').len() + 1..].contains('/')
}

// === impl SimDisk ===

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDisk of run {}", self.process.number)
    }
}

impl SimDisk {
    /// A call that changes nothing on the disk that another run could see.
    fn access<T>(&self, name: &'static str, act: impl FnOnce(&mut Medium) -> io::Result<T>) -> io::Result<T> {
        if self.process.is_over() {
            return Err(dead());
        }
        let mut state = self.sim.lock();
        *state.medium.calls.entry(name).or_default() += 1;
        act(&mut state.medium)
    }

    /// A call that changes names.
    fn change(
        &self,
        name: &'static str,
        path: &Path,
        act: impl FnOnce(&mut Medium) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.process.effect() == Permit::Dead {
            self.sim.announce(&self.process);
            return Err(dead());
        }
        let done = {
            let mut state = self.sim.lock();
            *state.medium.calls.entry(name).or_default() += 1;
            state.medium.changes += 1;
            match refusal(state.faults.disk, name, path) {
                Some(error) => {
                    state.note(Happening::DiskFailed { what: format!("{name} {}", path.display()) });
                    Err(error)
                }
                None => act(&mut state.medium),
            }
        };
        self.sim.announce(&self.process);
        // Its last deed is done, but it never learns so.
        if self.process.is_over() { Err(dead()) } else { done }
    }
}

/// What a disk in a bad mood says.
fn refusal(mood: DiskMood, name: &str, path: &Path) -> Option<io::Error> {
    let takes_room = matches!(name, "create" | "write" | "make_dir" | "sync");
    let full = || Some(io::Error::new(io::ErrorKind::StorageFull, "no space left on device"));
    match mood {
        DiskMood::Well => None,
        DiskMood::DurableFull if takes_room && path.starts_with(DURABLE) => full(),
        DiskMood::Full if takes_room => full(),
        DiskMood::DurableFull | DiskMood::Full => None,
        DiskMood::ReadOnly => Some(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "read-only file system")),
    }
}

impl Disk for SimDisk {
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        self.access("read", |medium| match medium.get(path) {
            Some(Inode::File(file)) => {
                let file = file.lock().unwrap_or_else(PoisonError::into_inner);
                if file.data.len() > limit { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(file.data.clone()) }
            }
            Some(Inode::Directory) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        })
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DiskEntry>> {
        self.access("list", |medium| {
            match medium.get(directory) {
                Some(Inode::Directory) => {}
                Some(Inode::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => return Err(io::ErrorKind::NotFound.into()),
            }
            let directory = key(directory);
            let children = below(&medium.live, directory).filter(|(path, _)| is_child(directory, path));
            let entry = |(path, node): (&String, &Inode)| DiskEntry {
                name: path.rsplit('/').next().unwrap_or_default().to_owned(),
                kind: if matches!(node, Inode::Directory) { EntryKind::Directory } else { EntryKind::File },
            };
            Ok(children.map(entry).collect())
        })
    }

    fn make_dir(&self, directory: &Path) -> io::Result<()> {
        let there = self.access("make_dir", |medium| Ok(medium.get(directory).is_some()))?;
        if there {
            return Ok(());
        }
        self.change("make_dir", directory, |medium| {
            for path in directory.ancestors() {
                medium.live.entry(key(path).to_owned()).or_insert(Inode::Directory);
            }
            for root in ["/", "/sim"] {
                medium.stable.insert(root.into(), Inode::Directory);
            }
            Ok(())
        })
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Sheet>> {
        let file = Arc::new(Mutex::new(File::default()));
        let node = Inode::File(Arc::clone(&file));
        self.change("create", path, |medium| {
            medium.parent_exists(path)?;
            medium.live.insert(key(path).to_owned(), node);
            Ok(())
        })?;
        Ok(Box::new(SimSheet { disk: self.clone(), path: path.to_owned(), file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change("rename", to, |medium| medium.rename(from, to))
    }

    fn rename_aside(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change("rename_aside", to, |medium| {
            if medium.get(to).is_some() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            medium.rename(from, to)
        })
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        self.access("sync_dir", |medium| {
            medium.sync_dir(directory);
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let there = self.access("remove", |medium| Ok(!medium.subtree(path).is_empty()))?;
        if !there {
            return Ok(());
        }
        self.change("remove", path, |medium| {
            medium.remove(path);
            Ok(())
        })
    }

    fn lock(&self, directory: &Path) -> io::Result<Option<Lock>> {
        self.access("lock", |medium| {
            if medium.get(directory).is_none() {
                return Err(io::ErrorKind::NotFound.into());
            }
            let holder = medium.locks.entry(directory.to_owned()).or_insert_with(|| Arc::clone(&self.process));
            // A lock goes with the process that has it.
            if holder.is_over() {
                *holder = Arc::clone(&self.process);
            }
            Ok(Arc::ptr_eq(holder, &self.process).then(Lock::pretended))
        })
    }
}

// === impl SimSheet ===

impl SimSheet {
    fn file(&self) -> MutexGuard<'_, File> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allowed(&self, name: &'static str) -> io::Result<()> {
        if self.disk.process.is_over() {
            return Err(dead());
        }
        let mut state = self.disk.sim.lock();
        *state.medium.calls.entry(name).or_default() += 1;
        state.medium.changes += 1;
        let Some(error) = refusal(state.faults.disk, name, &self.path) else { return Ok(()) };
        state.note(Happening::DiskFailed { what: format!("{name} {}", self.path.display()) });
        Err(error)
    }
}

impl Sheet for SimSheet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.allowed("write")?;
        let some = bytes.len().min(CHUNK);
        let mut file = self.file();
        // The rest comes in the next calls.
        file.data.reserve(bytes.len());
        file.data.extend_from_slice(&bytes[..some]);
        Ok(some)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.allowed("sync")?;
        let mut file = self.file();
        file.synced = file.data.clone();
        Ok(())
    }
}
