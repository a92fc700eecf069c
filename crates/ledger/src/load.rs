//! Loading what an earlier agent wrote.
//!
//! Each file is read on its own. A file that cannot be used is set aside and reported; the others are loaded, and
//! nothing is invented in its place.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use keelet_lifecycle::{BootId, Evidence, ProbeRecord, evidence::Durable, journal::Note};
use serde::de::DeserializeOwned;
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use crate::{
    disk::{Disk, EntryKind},
    envelope::{Damage, Decoded, Kind, LARGEST_FILE, PodRef},
    history::{Bounds, History},
    journal::{self, Journal},
    names,
    page::{Explanation, Page, ReadVolatileBody},
    set_aside::set_aside,
};

/// The recovered state of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovered {
    /// Its UID, after which its directory is named.
    pub uid: String,
    /// Namespace and name; `None` if every file that contains them is lost.
    pub pod: Option<PodRef>,
    /// The copy of the pod; `None` if there is none or it is lost.
    pub copy: Option<Value>,
    /// The evidence. A part that was not kept is empty.
    pub evidence: Evidence,
    /// The state of the durable part.
    pub durable: Fate,
    /// The state of the volatile part.
    pub volatile: Fate,
    /// The newest probe results, by container and probe, oldest first.
    pub history: Vec<ProbeRecord>,
    /// The reasons of the newest status.
    pub explanation: Option<Explanation>,
    /// The newest changes, oldest first.
    pub journal: Vec<Note>,
}

/// The state of a part of the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is as committed in this generation.
    Kept {
        /// The generation.
        generation: u64,
    },
    /// There was none.
    Absent,
    /// It is from before the last reboot, and no longer valid.
    OtherBoot,
    /// It existed and cannot be used. A [`Loss`] has the reason.
    Lost,
}

/// A file that cannot be used.
#[derive(Debug)]
pub struct Loss {
    /// The pod it was about.
    pub uid: Option<String>,
    /// Its path.
    pub file: PathBuf,
    /// Its kind; `None` for an unknown file.
    pub kind: Option<Kind>,
    /// Why it cannot be used.
    pub why: Damage,
    /// What happened to it.
    pub place: Place,
}

/// What happened to a file that cannot be used.
#[derive(Debug)]
pub enum Place {
    /// It was moved there.
    SetAside(PathBuf),
    /// It was left where it is.
    Left,
    /// It is still in its place, because it could not be moved. It is never overwritten.
    Stuck(io::Error),
}

/// Whether loading may change files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Sets files aside and removes leftovers. For the holder of the lock.
    Repair,
    /// Reads only.
    Read,
}

/// Reads what is there.
pub(crate) struct Loader<'a, D> {
    pub(crate) disk: &'a D,
    pub(crate) durable_root: &'a Path,
    pub(crate) volatile_root: &'a Path,
    pub(crate) boot_id: BootId,
    pub(crate) bounds: Bounds,
    pub(crate) mode: Mode,
    pub(crate) losses: Vec<Loss>,
}

/// The result of reading a file.
enum Found<B> {
    Good(Decoded<B>),
    Absent,
    OtherBoot,
    Lost,
}

/// What a file of a pod is called.
fn file_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Durable | Kind::Volatile => names::EVIDENCE,
        Kind::Pod => names::POD,
        Kind::Journal => names::JOURNAL,
        Kind::History => names::HISTORY,
        Kind::Why => names::WHY,
        Kind::Heartbeat | Kind::Events | Kind::Gone | Kind::Node => unreachable!("not a file in a pod's directory"),
    }
}

// === impl Loader ===

impl<D: Disk> Loader<'_, D> {
    /// The UIDs of all pods.
    pub(crate) fn uids(&mut self) -> BTreeSet<String> {
        let mut uids = BTreeSet::new();
        for root in [self.volatile_root, self.durable_root] {
            self.uids_under(root, &mut uids);
        }
        uids
    }

    /// All pods, by UID.
    pub(crate) fn pods(&mut self) -> BTreeMap<String, (Page, Recovered)> {
        self.uids().into_iter().filter_map(|uid| self.pod(&uid).map(|found| (uid, found))).collect()
    }

    /// One pod; `None` if no file of it exists.
    pub(crate) fn pod(&mut self, uid: &str) -> Option<(Page, Recovered)> {
        let directory = names::directory_name(uid).ok()?;
        let volatile_dir = names::pod_dir(self.volatile_root, &directory);
        let durable_dir = names::pod_dir(self.durable_root, &directory);
        let has_volatile = self.has_entries(uid, &volatile_dir);
        let has_durable = self.has_entries(uid, &durable_dir);
        if !has_volatile && !has_durable {
            return None;
        }
        let mut blocked = BTreeSet::new();
        // The volatile file before the durable one, in the order of writing: so a reader beside a running agent never
        // mistakes an older durable file for one that lost a write.
        let mut volatile: Found<ReadVolatileBody> = self.file(uid, &volatile_dir, Kind::Volatile, &mut blocked);
        if let Found::Good(found) = &volatile
            && let Err(damage) = found.body.check(found.generation)
        {
            self.set_aside(uid, &volatile_dir.join(names::EVIDENCE), Kind::Volatile, damage, &mut blocked);
            volatile = Found::Lost;
        }
        let history: Found<Box<RawValue>> = self.file(uid, &volatile_dir, Kind::History, &mut blocked);
        let explanation: Found<Explanation> = self.file(uid, &volatile_dir, Kind::Why, &mut blocked);
        let durable: Found<Durable> = self.file(uid, &durable_dir, Kind::Durable, &mut blocked);
        let copy: Found<Value> = self.file(uid, &durable_dir, Kind::Pod, &mut blocked);
        let journal: Found<journal::Body> = self.file(uid, &durable_dir, Kind::Journal, &mut blocked);

        let pods = [volatile.pod(), durable.pod(), copy.pod(), history.pod(), explanation.pod(), journal.pod()];
        let pod = pods.into_iter().flatten().next().cloned();
        let unknown = || PodRef { uid: uid.to_owned(), namespace: String::new(), name: String::new() };
        let mut page = Page::new(pod.clone().unwrap_or_else(unknown), directory);
        page.in_the_way = blocked;
        page.volatile.has_directory = has_volatile;
        page.durable.has_directory = has_durable;
        page.generation = [volatile.generation(), history.generation(), explanation.generation()]
            .into_iter()
            .chain([durable.generation(), copy.generation(), journal.generation()])
            .max()
            .unwrap_or(0);

        let volatile_fate = volatile.fate();
        let mut durable_fate = durable.fate();
        if let Found::Good(durable) = durable {
            page.take_found(durable.body, durable.generation, durable.generation);
        }
        let mut news = None;
        if let Found::Good(volatile) = volatile {
            self.notice_step_back(uid, &durable_dir, &durable_fate, &volatile.body);
            if volatile.body.durable_generation > page.durable.generation {
                match serde_json::from_str(volatile.body.durable.get()) {
                    Ok(durable) => {
                        let generation = volatile.body.durable_generation;
                        page.take_found(durable, generation, page.durable.on_disk);
                        durable_fate = Fate::Kept { generation };
                    }
                    Err(error) => {
                        let path = volatile_dir.join(names::EVIDENCE);
                        self.lose(Some(uid), &path, Some(Kind::Durable), Damage::Fields(error), Place::Left);
                    }
                }
            }
            news = Some((volatile.generation, volatile.body.notes));
            page.volatile.explanation = volatile.body.explanation;
            Arc::make_mut(&mut page.evidence).volatile = volatile.body.volatile;
            page.volatile.written = Some((Arc::clone(&page.evidence), volatile.body.durable_generation));
        }
        if let Found::Good(history) = history {
            match History::parse(&history.body, self.bounds) {
                Ok(history) => page.volatile.history = history,
                Err(error) => {
                    let path = volatile_dir.join(names::HISTORY);
                    self.set_aside(uid, &path, Kind::History, Damage::Fields(error), &mut page.in_the_way);
                }
            }
        }
        if let (Found::Good(explanation), None) = (explanation, &page.volatile.explanation) {
            page.volatile.explanation = Some(explanation.body);
        }
        let journal_generation = journal.generation();
        if let Found::Good(journal) = journal {
            page.journal = Journal::found(journal.body);
        }
        // A journal that was written after the evidence has these changes already.
        if let Some((_, notes)) = news.filter(|(generation, _)| *generation > journal_generation) {
            page.journal.append(notes);
        }
        let copy = match copy {
            Found::Good(copy) => Some(copy.body),
            Found::Absent | Found::OtherBoot | Found::Lost => None,
        };
        page.copy.json = copy.as_ref().and_then(|copy| to_raw_value(copy).ok());
        let recovered = Recovered {
            uid: uid.to_owned(),
            pod,
            copy,
            evidence: Evidence::clone(&page.evidence),
            durable: durable_fate,
            volatile: volatile_fate,
            history: page.volatile.history.records(self.boot_id),
            explanation: page.volatile.explanation.clone(),
            journal: page.journal.notes().to_vec(),
        };
        Some((page, recovered))
    }

    /// The bytes of each file of a pod, where they can be read: two times the same bytes are the same commit, because
    /// every commit has a number of its own.
    pub(crate) fn bytes(&self, uid: &str) -> Vec<Option<Vec<u8>>> {
        let Ok(directory) = names::directory_name(uid) else { return Vec::new() };
        let of = |root: &Path, kinds: [Kind; 3]| {
            let directory = names::pod_dir(root, &directory);
            kinds.map(|kind| self.disk.read(&directory.join(file_name(kind)), LARGEST_FILE).ok())
        };
        let volatile = of(self.volatile_root, [Kind::Volatile, Kind::History, Kind::Why]);
        volatile.into_iter().chain(of(self.durable_root, [Kind::Durable, Kind::Pod, Kind::Journal])).collect()
    }

    /// A file that belongs to no pod.
    pub(crate) fn node_file<B: DeserializeOwned>(&mut self, path: &Path, kind: Kind) -> Option<Decoded<B>> {
        match self.read(path, kind) {
            Ok(decoded) => decoded,
            // It is written without a sync, so a power cut may leave it empty.
            Err(Damage::Empty) if matches!(kind, Kind::Events | Kind::Gone | Kind::Node) => None,
            Err(damage) => {
                let place = self.move_away(path, &damage);
                self.lose(None, path, Some(kind), damage, place);
                None
            }
        }
    }

    fn file<B: DeserializeOwned>(
        &mut self,
        uid: &str,
        directory: &Path,
        kind: Kind,
        blocked: &mut BTreeSet<PathBuf>,
    ) -> Found<B> {
        let path = directory.join(file_name(kind));
        let is_volatile = matches!(kind, Kind::Volatile | Kind::History | Kind::Why);
        match self.read(&path, kind).and_then(|found| found.map(|decoded| decoded.about(uid)).transpose()) {
            Ok(None) => Found::Absent,
            Ok(Some(decoded)) if is_volatile && decoded.boot_id != Some(self.boot_id) => {
                if self.mode == Mode::Repair {
                    // If the removal fails, the next write replaces it.
                    let _ = self.disk.remove(&path);
                }
                Found::OtherBoot
            }
            Ok(Some(decoded)) => Found::Good(decoded),
            // It is written without a sync, so a power cut may leave it empty.
            Err(Damage::Empty) if kind == Kind::Journal => Found::Absent,
            Err(damage) => {
                self.set_aside(uid, &path, kind, damage, blocked);
                Found::Lost
            }
        }
    }

    fn read<B: DeserializeOwned>(&self, path: &Path, kind: Kind) -> Result<Option<Decoded<B>>, Damage> {
        match self.disk.read(path, LARGEST_FILE) {
            Ok(bytes) => kind.decode(&bytes).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Damage::Unreadable(error)),
        }
    }

    /// Checks that the durable file is not older than the volatile one recorded.
    fn notice_step_back(&mut self, uid: &str, directory: &Path, durable: &Fate, seen: &ReadVolatileBody) {
        let confirmed = seen.durable_on_disk;
        let why = match durable {
            Fate::Kept { generation } if *generation < confirmed => Damage::WentBack { found: *generation, confirmed },
            Fate::Absent if confirmed > 0 => Damage::Missing { confirmed },
            Fate::Kept { .. } | Fate::Absent | Fate::OtherBoot | Fate::Lost => return,
        };
        self.lose(Some(uid), &directory.join(names::EVIDENCE), Some(Kind::Durable), why, Place::Left);
    }

    fn uids_under(&mut self, root: &Path, uids: &mut BTreeSet<String>) {
        let pods = root.join(names::PODS);
        let entries = match self.disk.list(&pods) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => {
                self.lose(None, &pods, None, Damage::Unreadable(error), Place::Left);
                return;
            }
        };
        for entry in entries {
            let path = pods.join(&entry.name);
            match (names::uid_of(&entry.name), entry.kind) {
                (Some(uid), EntryKind::Directory) => {
                    uids.insert(uid);
                }
                (Some(uid), EntryKind::File | EntryKind::Other) => {
                    let place = self.move_away(&path, &Damage::Foreign);
                    self.lose(Some(&uid), &path, None, Damage::Foreign, place);
                }
                (None, _) if names::is_leftover(&entry.name) => self.tidy(&path),
                (None, _) if names::is_aside(&entry.name) => {}
                (None, _) => self.lose(None, &path, None, Damage::Foreign, Place::Left),
            }
        }
    }

    /// Whether a pod's directory contains anything but leftovers.
    fn has_entries(&mut self, uid: &str, directory: &Path) -> bool {
        match self.disk.list(directory) {
            Ok(entries) => {
                let (leftovers, others): (Vec<_>, Vec<_>) =
                    entries.into_iter().partition(|entry| names::is_leftover(&entry.name));
                for leftover in leftovers {
                    self.tidy(&directory.join(leftover.name));
                }
                if others.is_empty() {
                    // A commit was interrupted before its first file.
                    self.tidy(directory);
                }
                !others.is_empty()
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => {
                // Its files may still be readable by name.
                self.lose(Some(uid), directory, None, Damage::Unreadable(error), Place::Left);
                true
            }
        }
    }

    pub(crate) fn tidy(&self, path: &Path) {
        if self.mode == Mode::Repair {
            // What stays is removed another time, and is never read.
            let _ = self.disk.remove(path);
        }
    }

    fn set_aside(&mut self, uid: &str, path: &Path, kind: Kind, why: Damage, blocked: &mut BTreeSet<PathBuf>) {
        let place = self.move_away(path, &why);
        if matches!(place, Place::Stuck(_)) {
            blocked.insert(path.to_owned());
        }
        self.lose(Some(uid), path, Some(kind), why, place);
    }

    fn move_away(&self, path: &Path, why: &Damage) -> Place {
        match self.mode {
            Mode::Read => Place::Left,
            Mode::Repair if why.shortage().is_some() => Place::Left,
            Mode::Repair => match set_aside(self.disk, path) {
                Ok(to) => Place::SetAside(to),
                Err(error) => Place::Stuck(error),
            },
        }
    }

    fn lose(&mut self, uid: Option<&str>, file: &Path, kind: Option<Kind>, why: Damage, place: Place) {
        self.losses.push(Loss { uid: uid.map(str::to_owned), file: file.to_owned(), kind, why, place });
    }
}

// === impl Found ===

impl<B> Found<B> {
    fn fate(&self) -> Fate {
        match self {
            Self::Good(decoded) => Fate::Kept { generation: decoded.generation },
            Self::Absent => Fate::Absent,
            Self::OtherBoot => Fate::OtherBoot,
            Self::Lost => Fate::Lost,
        }
    }

    fn generation(&self) -> u64 {
        match self {
            Self::Good(decoded) => decoded.generation,
            Self::Absent | Self::OtherBoot | Self::Lost => 0,
        }
    }

    fn pod(&self) -> Option<&PodRef> {
        match self {
            Self::Good(decoded) => decoded.pod.as_ref(),
            Self::Absent | Self::OtherBoot | Self::Lost => None,
        }
    }
}

// === impl Loss ===

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(kind) = self.kind {
            write!(f, " ({})", kind.title())?;
        }
        write!(f, ": {}", self.why)?;
        match &self.place {
            Place::SetAside(to) => write!(f, "; set aside as {}", to.display()),
            Place::Left => Ok(()),
            Place::Stuck(error) => {
                write!(f, "; cannot be set aside ({error}), so it is not overwritten")
            }
        }
    }
}
