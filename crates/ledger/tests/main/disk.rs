//! A disk in memory that counts its calls, fails on demand, and can lose power.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    rc::Rc,
};

use keelet_ledger::{Disk, DiskEntry, EntryKind, Lock, Sheet};

pub(crate) const ENOSPC: i32 = 28;
pub(crate) const EROFS: i32 = 30;
pub(crate) const EIO: i32 = 5;
pub(crate) const EACCES: i32 = 13;
pub(crate) const EMFILE: i32 = 24;
pub(crate) const ENFILE: i32 = 23;
pub(crate) const ENOMEM: i32 = 12;

#[derive(Clone, Default)]
pub(crate) struct SimDisk(Rc<RefCell<World>>);

#[derive(Default)]
struct World {
    live: BTreeMap<PathBuf, DiskNode>,
    /// The names that would survive a power cut.
    stable: BTreeMap<PathBuf, DiskNode>,
    calls: Vec<Call>,
    crash_at: Option<usize>,
    fault: Option<Fault>,
    /// An action of another process, run after that many reads.
    meanwhile: Option<(usize, Box<dyn FnOnce()>)>,
}

#[derive(Clone)]
enum DiskNode {
    Dir,
    File(Rc<RefCell<Inode>>),
}

#[derive(Clone, Default)]
struct Inode {
    data: Vec<u8>,
    synced: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Read,
    List,
    MakeDir,
    Create,
    Write,
    SyncFile,
    Rename,
    RenameAside,
    SyncDir,
    Remove,
    Lock,
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) op: Op,
    pub(crate) path: PathBuf,
}

/// Calls of these kinds under this path fail so.
#[derive(Clone)]
pub(crate) struct Fault {
    pub(crate) under: PathBuf,
    pub(crate) ops: Vec<Op>,
    pub(crate) errno: i32,
    /// A failing write takes this many bytes first.
    pub(crate) short: Option<usize>,
}

/// What is left after the power comes back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PowerCut {
    /// Only what was synced.
    LosesUnsynced,
    /// All names, but only synced contents: file systems may write names first.
    KeepsNames,
}

impl Op {
    const WRITING: [Self; 7] =
        [Self::MakeDir, Self::Create, Self::Write, Self::SyncFile, Self::Rename, Self::RenameAside, Self::SyncDir];
}

impl Fault {
    pub(crate) fn every_write(under: &str, errno: i32) -> Self {
        let mut ops = Op::WRITING.to_vec();
        ops.push(Op::Remove);
        Self { under: under.into(), ops, errno, short: None }
    }

    pub(crate) fn on(op: Op, under: &str, errno: i32) -> Self {
        Self { under: under.into(), ops: vec![op], errno, short: None }
    }
}

fn crashed() -> io::Error {
    io::Error::other("the process is dead")
}

impl SimDisk {
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.0.borrow().calls.clone()
    }

    pub(crate) fn count(&self, op: Op, under: &str) -> usize {
        self.0.borrow().calls.iter().filter(|call| call.op == op && call.path.starts_with(under)).count()
    }

    /// Calls that change something below that path.
    pub(crate) fn writes(&self, under: &str) -> usize {
        Op::WRITING.iter().map(|op| self.count(*op, under)).sum::<usize>() + self.count(Op::Remove, under)
    }

    pub(crate) fn forget_calls(&self) {
        self.0.borrow_mut().calls.clear();
    }

    /// From the call of that number on no call has an effect; a write has half of it.
    pub(crate) fn crash_at(&self, call: usize) {
        self.0.borrow_mut().crash_at = Some(call);
    }

    pub(crate) fn is_dead(&self) -> bool {
        let world = self.0.borrow();
        world.crash_at.is_some_and(|at| world.calls.len() > at)
    }

    pub(crate) fn fail(&self, fault: Option<Fault>) {
        self.0.borrow_mut().fault = fault;
    }

    /// Runs an action of another process before the read of that number.
    pub(crate) fn before_read(&self, read: usize, act: impl FnOnce() + 'static) {
        self.0.borrow_mut().meanwhile = Some((read, Box::new(act)));
    }

    /// Whether there were fewer reads than that.
    pub(crate) fn was_not_read(&self) -> bool {
        self.0.borrow().meanwhile.is_some()
    }

    /// The machine after the agent died.
    pub(crate) fn after_crash(&self) -> Self {
        let world = self.0.borrow();
        Self(Rc::new(RefCell::new(World { live: deep(&world.live), stable: deep(&world.stable), ..World::default() })))
    }

    /// The machine after a power cut: nothing is left below the tmpfs root.
    pub(crate) fn after_power_cut(&self, cut: PowerCut, tmpfs: &str) -> Self {
        let world = self.0.borrow();
        let names = match cut {
            PowerCut::LosesUnsynced => &world.stable,
            PowerCut::KeepsNames => &world.live,
        };
        let mut left = deep(names);
        left.retain(|path, _| !path.starts_with(tmpfs));
        for node in left.values() {
            if let DiskNode::File(inode) = node {
                let synced = inode.borrow().synced.clone();
                inode.borrow_mut().data = synced;
            }
        }
        Self(Rc::new(RefCell::new(World { live: left.clone(), stable: left, ..World::default() })))
    }

    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let world = self.0.borrow();
        world.live.iter().filter(|(_, node)| matches!(node, DiskNode::File(_))).map(|(path, _)| path.clone()).collect()
    }

    pub(crate) fn contents(&self, path: &str) -> Option<Vec<u8>> {
        match self.0.borrow().live.get(Path::new(path)) {
            Some(DiskNode::File(inode)) => Some(inode.borrow().data.clone()),
            Some(DiskNode::Dir) | None => None,
        }
    }

    pub(crate) fn put(&self, path: &str, data: Vec<u8>) {
        let inode = Inode { synced: data.clone(), data };
        self.0.borrow_mut().live.insert(path.into(), DiskNode::File(Rc::new(RefCell::new(inode))));
    }

    /// Counts a call and returns whether it fails; `Some(n)` bytes of a write still succeed.
    fn enter(&self, op: Op, path: &Path, len: usize) -> Result<(), (io::Error, usize)> {
        let mut world = self.0.borrow_mut();
        let number = world.calls.len();
        world.calls.push(Call { op, path: path.to_owned() });
        if let Some(at) = world.crash_at
            && number >= at
        {
            return Err((crashed(), if number == at { len / 2 } else { 0 }));
        }
        match &world.fault {
            Some(fault) if fault.ops.contains(&op) && path.starts_with(&fault.under) => {
                Err((io::Error::from_raw_os_error(fault.errno), fault.short.unwrap_or(0)))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn simple(&self, op: Op, path: &Path) -> io::Result<()> {
        self.enter(op, path, 0).map_err(|(error, _)| error)
    }

    fn parent_exists(&self, path: &Path) -> io::Result<()> {
        match self.0.borrow().live.get(path.parent().unwrap_or(path)) {
            Some(DiskNode::Dir) => Ok(()),
            Some(DiskNode::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn moved(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.parent_exists(to)?;
        let mut world = self.0.borrow_mut();
        if !world.live.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        world.live.retain(|path, _| !path.starts_with(to));
        let subtree: Vec<PathBuf> = world.live.keys().filter(|path| path.starts_with(from)).cloned().collect();
        for path in subtree {
            let node = world.live.remove(&path).unwrap();
            let rest = path.strip_prefix(from).unwrap();
            let target = if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) };
            world.live.insert(target, node);
        }
        Ok(())
    }
}

/// A deep copy of names and contents.
fn deep(names: &BTreeMap<PathBuf, DiskNode>) -> BTreeMap<PathBuf, DiskNode> {
    let copy = |node: &DiskNode| match node {
        DiskNode::Dir => DiskNode::Dir,
        DiskNode::File(inode) => DiskNode::File(Rc::new(RefCell::new(inode.borrow().clone()))),
    };
    names.iter().map(|(path, node)| (path.clone(), copy(node))).collect()
}

impl Disk for SimDisk {
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        self.simple(Op::Read, path)?;
        let due = match &mut self.0.borrow_mut().meanwhile {
            Some((reads, _)) if *reads > 0 => {
                *reads -= 1;
                None
            }
            meanwhile => meanwhile.take(),
        };
        if let Some((_, act)) = due {
            act();
        }
        match self.0.borrow().live.get(path) {
            Some(DiskNode::File(inode)) if inode.borrow().data.len() <= limit => Ok(inode.borrow().data.clone()),
            Some(DiskNode::File(_)) => Err(io::ErrorKind::FileTooLarge.into()),
            Some(DiskNode::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DiskEntry>> {
        self.simple(Op::List, directory)?;
        let world = self.0.borrow();
        match world.live.get(directory) {
            Some(DiskNode::Dir) => {}
            Some(DiskNode::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        let children = world.live.iter().filter(|(path, _)| path.parent() == Some(directory));
        let entry = |(path, node): (&PathBuf, &DiskNode)| DiskEntry {
            name: path.file_name().unwrap().to_string_lossy().into_owned(),
            kind: if matches!(node, DiskNode::Dir) { EntryKind::Directory } else { EntryKind::File },
        };
        Ok(children.map(entry).collect())
    }

    fn make_dir(&self, directory: &Path) -> io::Result<()> {
        self.simple(Op::MakeDir, directory)?;
        let mut world = self.0.borrow_mut();
        for path in directory.ancestors() {
            world.live.entry(path.to_owned()).or_insert(DiskNode::Dir);
        }
        // The root of the simulated machine always exists.
        world.stable.insert("/".into(), DiskNode::Dir);
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Sheet>> {
        self.simple(Op::Create, path)?;
        self.parent_exists(path)?;
        let inode = Rc::new(RefCell::new(Inode::default()));
        self.0.borrow_mut().live.insert(path.to_owned(), DiskNode::File(Rc::clone(&inode)));
        Ok(Box::new(SimSheet { disk: self.clone(), path: path.to_owned(), inode }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.simple(Op::Rename, to)?;
        self.moved(from, to)
    }

    fn rename_aside(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.simple(Op::RenameAside, to)?;
        if self.0.borrow().live.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.moved(from, to)
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        self.simple(Op::SyncDir, directory)?;
        let mut world = self.0.borrow_mut();
        let is_child = |path: &PathBuf| path.parent() == Some(directory);
        let live: BTreeMap<PathBuf, DiskNode> =
            world.live.iter().filter(|(p, _)| is_child(p)).map(|(p, n)| (p.clone(), n.clone())).collect();
        let lost: Vec<PathBuf> =
            world.stable.keys().filter(|p| is_child(p) && !live.contains_key(*p)).cloned().collect();
        world.stable.retain(|path, _| !lost.iter().any(|lost| path.starts_with(lost)));
        world.stable.extend(live);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.simple(Op::Remove, path)?;
        self.0.borrow_mut().live.retain(|name, _| !name.starts_with(path));
        Ok(())
    }

    fn lock(&self, directory: &Path) -> io::Result<Option<Lock>> {
        self.simple(Op::Lock, directory)?;
        Ok(Some(Lock::pretended()))
    }
}

struct SimSheet {
    disk: SimDisk,
    path: PathBuf,
    inode: Rc<RefCell<Inode>>,
}

impl Sheet for SimSheet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Always a short write, so that no caller relies on complete ones.
        let some = bytes.len().min(4000);
        let (taken, result) = match self.disk.enter(Op::Write, &self.path, some) {
            Ok(()) => (some, Ok(some)),
            Err((error, taken)) => (taken.min(some), Err(error)),
        };
        self.inode.borrow_mut().data.extend_from_slice(&bytes[..taken]);
        result
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.simple(Op::SyncFile, &self.path)?;
        let data = self.inode.borrow().data.clone();
        self.inode.borrow_mut().synced = data;
        Ok(())
    }
}
