//! The books on disk: one file per sandbox, and one for the ranges. A lock keeps two agents apart.
//!
//! A file is replaced by renaming, so that `kill -9` leaves the old one or the new one. A file that cannot be read is
//! set aside beside its place and said; what it held is found again through the kernel's links.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::addresses::{self, Cursor};
use crate::{Error, PodNetwork, PortMapping};

#[cfg(test)]
mod tests;

/// The version of all files here. A file of another version is set aside like a broken one.
const VERSION: u32 = 1;

/// Where the books are.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    dir: PathBuf,
}

/// The books, while nobody else can write them.
#[derive(Debug)]
pub(crate) struct Books {
    dir: PathBuf,
    /// All records, once somebody has asked for all. Nobody else writes while the lock is held.
    known: RefCell<Option<BTreeMap<String, Record>>>,
    _lock: File,
}

/// What is remembered of a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) version: u32,
    pub(crate) sandbox: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) netns: PathBuf,
    pub(crate) ports: Vec<PortMapping>,
    pub(crate) via: Via,
    pub(crate) progress: Progress,
}

/// Which kind of network a sandbox has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Via {
    /// Ours.
    Bridge { ips: Vec<IpAddr> },
    /// That of plugins. Deleting needs what adding was told, even if the configuration has changed since.
    Cni {
        /// The configuration as it was.
        list: Value,
        /// What plugins that ask for it were told at run time, by capability.
        capabilities: Value,
        /// What the last plugin answered; null until then.
        result: Value,
    },
}

/// How far attaching came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Progress {
    /// Some of it may be there.
    Begun,
    /// All of it was there.
    Done,
}

#[derive(Debug, Serialize, Deserialize)]
struct Ranges {
    version: u32,
    cursors: Vec<Cursor>,
}

/// What a file turned out to be.
enum Read<T> {
    Absent,
    Good(T),
    SetAside,
}

fn read<T: DeserializeOwned>(path: &Path, version: impl Fn(&T) -> u32) -> Result<Read<T>, Error> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Read::Absent),
        Err(source) => return Err(Error::State { doing: "read", path: path.to_owned(), source }),
    };
    let problem = match serde_json::from_slice::<T>(&bytes) {
        Ok(value) if version(&value) == VERSION => return Ok(Read::Good(value)),
        Ok(value) => format!("has version {}, only {VERSION} is known", version(&value)),
        Err(error) => error.to_string(),
    };
    let aside = path.with_extension("broken");
    fs::rename(path, &aside).map_err(Error::state("set aside", path))?;
    tracing::warn!(file = %path.display(), aside = %aside.display(), problem, "a broken network file is set aside");
    Ok(Read::SetAside)
}

/// Whether a file has to survive a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Durable {
    /// It is about things that do not survive it either: links, and who has which address.
    No,
    /// It is about what plugins keep on disk, and have to be asked to delete.
    Yes,
}

/// Replaces a file.
fn write(path: &Path, value: &impl Serialize, durable: Durable) -> Result<(), Error> {
    let new = path.with_extension("new");
    let fill = || -> io::Result<()> {
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec_pretty(value)?)?;
        file.write_all(b"\n")?;
        if durable == Durable::Yes {
            file.sync_all()?;
        }
        fs::rename(&new, path)
    };
    fill().map_err(Error::state("write", path))
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::state("remove", path)(error)),
        _ => Ok(()),
    }
}

// === impl Store ===

impl Store {
    /// Makes the directory if it is not there.
    pub(crate) fn open(dir: &Path) -> Result<Store, Error> {
        let sandboxes = dir.join("sandboxes");
        fs::create_dir_all(&sandboxes).map_err(Error::state("create", &sandboxes))?;
        Ok(Store { dir: dir.to_owned() })
    }

    /// Waits until no other agent and no other thread has the books. Blocks.
    pub(crate) fn lock(&self) -> Result<Books, Error> {
        let path = self.dir.join("lock");
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        let file = match options.open(&path) {
            // Removed while pods run: what they have is known to the kernel, and the books begin anew.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Store::open(&self.dir)?;
                options.open(&path)
            }
            opened => opened,
        };
        let file = file.map_err(Error::state("open", &path))?;
        file.lock().map_err(Error::state("lock", &path))?;
        Ok(Books { dir: self.dir.clone(), known: RefCell::default(), _lock: file })
    }
}

// === impl Books ===

impl Books {
    /// What is remembered of one sandbox.
    pub(crate) fn record(&self, sandbox: &str) -> Result<Option<Record>, Error> {
        if let Some(known) = &*self.known.borrow() {
            return Ok(known.get(sandbox).cloned());
        }
        match read(&self.path_of(sandbox), |record: &Record| record.version)? {
            Read::Good(record) => Ok(Some(record)),
            Read::Absent | Read::SetAside => Ok(None),
        }
    }

    /// All that can be read.
    pub(crate) fn records(&self) -> Result<Vec<Record>, Error> {
        if let Some(known) = &*self.known.borrow() {
            return Ok(known.values().cloned().collect());
        }
        let mut records = BTreeMap::new();
        for sandbox in self.names("json")? {
            records.extend(self.record(&sandbox)?.map(|record| (sandbox, record)));
        }
        self.known.replace(Some(records.clone()));
        Ok(records.into_values().collect())
    }

    /// Sandboxes whose file was set aside.
    pub(crate) fn broken(&self) -> Result<Vec<String>, Error> {
        self.names("broken")
    }

    pub(crate) fn write(&self, record: &Record) -> Result<(), Error> {
        let durable = match record.via {
            Via::Bridge { .. } => Durable::No,
            Via::Cni { .. } => Durable::Yes,
        };
        write(&self.path_of(&record.sandbox), record, durable)?;
        if let Some(known) = &mut *self.known.borrow_mut() {
            known.insert(record.sandbox.clone(), record.clone());
        }
        Ok(())
    }

    /// Forgets a sandbox, also what was set aside of it. Its addresses are free with that.
    pub(crate) fn forget(&self, sandbox: &str) -> Result<(), Error> {
        if let Some(Record { via: Via::Bridge { ips }, .. }) = self.record(sandbox)? {
            self.note_freed(&ips)?;
        }
        let path = self.path_of(sandbox);
        for path in [path.with_extension("new"), path.with_extension("broken"), path] {
            remove(&path)?;
        }
        if let Some(known) = &mut *self.known.borrow_mut() {
            known.remove(sandbox);
        }
        Ok(())
    }

    /// Reserves an address of each range for a sandbox; those that it has in a range already stay. `seen` are
    /// addresses that links of the kernel have, whatever the books say.
    pub(crate) fn reserve(
        &self,
        ranges: &[IpNet],
        mut record: Record,
        seen: &BTreeSet<IpAddr>,
    ) -> Result<Record, Error> {
        let Via::Bridge { ips: before } = &record.via else { return Ok(record) };
        let mut taken = seen.clone();
        for other in self.records()? {
            match other.via {
                Via::Bridge { ips } if other.sandbox != record.sandbox => taken.extend(ips),
                _ => {}
            }
        }
        let mut cursors = self.cursors()?;
        let mut ips = Vec::new();
        for range in ranges {
            if let Some(ip) = before.iter().find(|ip| range.contains(*ip)) {
                ips.push(*ip);
                continue;
            }
            let cursor = cursor_of(&mut cursors, *range);
            let full = || Error::RangeFull { range: *range, size: addresses::capacity(*range) };
            let ip = addresses::pick(cursor, &taken).ok_or_else(full)?;
            cursor.given = Some(ip);
            ips.push(ip);
        }
        record.via = Via::Bridge { ips };
        self.write(&record)?;
        self.write_cursors(cursors)?;
        Ok(record)
    }

    /// The ranges in use before, and where picking stands in each.
    pub(crate) fn cursors(&self) -> Result<Vec<Cursor>, Error> {
        match read(&self.dir.join("ranges.json"), |ranges: &Ranges| ranges.version)? {
            Read::Good(ranges) => Ok(ranges.cursors),
            // Only the order of addresses is lost, not who has which.
            Read::Absent | Read::SetAside => Ok(Vec::new()),
        }
    }

    /// Remembers which ranges new pods get addresses from, and behind them those that pods still live in.
    pub(crate) fn remember_ranges(&self, ranges: &[IpNet]) -> Result<(), Error> {
        let before = self.cursors()?;
        let records = self.records()?;
        let in_use = |range: &IpNet| records.iter().flat_map(Record::bridge_ips).any(|ip| range.contains(ip));
        let of_now = |range: &IpNet| before.iter().find(|cursor| cursor.range == *range).copied();
        let mut cursors: Vec<Cursor> =
            ranges.iter().map(|range| of_now(range).unwrap_or(Cursor::new(*range))).collect();
        cursors.extend(before.iter().filter(|cursor| !ranges.contains(&cursor.range) && in_use(&cursor.range)));
        if cursors == before { Ok(()) } else { self.write_cursors(cursors) }
    }

    fn note_freed(&self, ips: &[IpAddr]) -> Result<(), Error> {
        let mut cursors = self.cursors()?;
        for cursor in &mut cursors {
            let freed = ips.iter().find(|ip| cursor.range.contains(*ip));
            cursor.freed = freed.copied().or(cursor.freed);
        }
        self.write_cursors(cursors)
    }

    fn write_cursors(&self, cursors: Vec<Cursor>) -> Result<(), Error> {
        write(&self.dir.join("ranges.json"), &Ranges { version: VERSION, cursors }, Durable::No)
    }

    fn path_of(&self, sandbox: &str) -> PathBuf {
        // Not `with_extension`, which would cut an ID at its last dot.
        self.dir.join("sandboxes").join(format!("{sandbox}.json"))
    }

    /// Sandboxes that have a file with this ending, in order.
    fn names(&self, ending: &str) -> Result<Vec<String>, Error> {
        let dir = self.dir.join("sandboxes");
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(&dir).map_err(Error::state("list", &dir))? {
            let path = entry.map_err(Error::state("list", &dir))?.path();
            if path.extension().is_some_and(|found| found == ending)
                && let Some(name) = path.file_stem().and_then(|name| name.to_str())
            {
                names.insert(name.to_owned());
            }
        }
        Ok(names.into_iter().collect())
    }
}

fn cursor_of(cursors: &mut Vec<Cursor>, range: IpNet) -> &mut Cursor {
    let place = cursors.iter().position(|cursor| cursor.range == range).unwrap_or_else(|| {
        cursors.push(Cursor::new(range));
        cursors.len() - 1
    });
    &mut cursors[place]
}

// === impl Record ===

impl Record {
    /// Nothing is there yet.
    pub(crate) fn new(pod: &PodNetwork, via: Via) -> Record {
        Record {
            version: VERSION,
            sandbox: pod.sandbox_id.clone(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            netns: pod.netns.clone(),
            ports: pod.forwarded(),
            via,
            progress: Progress::Begun,
        }
    }

    /// Its addresses on the bridge; none for other kinds.
    pub(crate) fn bridge_ips(&self) -> &[IpAddr] {
        match &self.via {
            Via::Bridge { ips } => ips,
            Via::Cni { .. } => &[],
        }
    }
}
