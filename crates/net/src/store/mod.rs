//! The state on disk: one record per sandbox, and one file for the ranges. A file lock excludes other agents.
//!
//! A file is replaced by renaming, so that a crash leaves the old one or the new one. An invalid file is renamed and logged; the links of the
//! kernel have the same information.

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

/// The version of all files here. A file of another version is treated as invalid.
const VERSION: u32 = 1;

/// The state directory.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    dir: PathBuf,
}

/// The state directory while its lock is held.
#[derive(Debug)]
pub(crate) struct LockedStore {
    dir: PathBuf,
    /// All records, once they were listed. No other agent writes while the lock is held.
    known: RefCell<Option<BTreeMap<String, Record>>>,
    _lock: File,
}

/// The record of a sandbox.
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

/// The kind of network of a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Via {
    /// The built-in bridge.
    Bridge { ips: Vec<IpAddr> },
    /// CNI. DEL needs the input of ADD, even if the configuration has changed since.
    Cni {
        /// The configuration at the time of ADD.
        list: Value,
        /// The runtime configuration for plugins, by capability.
        capabilities: Value,
        /// The result of the last plugin; null until then.
        result: Value,
    },
}

/// The progress of attaching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Progress {
    /// Attaching was interrupted or is in progress.
    Begun,
    /// Attaching was completed.
    Done,
}

#[derive(Debug, Serialize, Deserialize)]
struct Ranges {
    version: u32,
    cursors: Vec<Cursor>,
}

/// The content of a file.
enum Read<T> {
    Absent,
    Good(T),
    Invalid,
}

fn read<T: DeserializeOwned>(path: &Path, version: impl Fn(&T) -> u32) -> Result<Read<T>, Error> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Read::Absent),
        Err(source) => return Err(Error::State { doing: "read", path: path.to_owned(), source }),
    };
    let problem = match serde_json::from_slice::<T>(&bytes) {
        Ok(value) if version(&value) == VERSION => return Ok(Read::Good(value)),
        Ok(value) => format!("unsupported version {}, expected {VERSION}", version(&value)),
        Err(error) => error.to_string(),
    };
    let renamed = path.with_extension("broken");
    fs::rename(path, &renamed).map_err(Error::state("rename", path))?;
    tracing::warn!(file = %path.display(), renamed = %renamed.display(), problem, "renaming invalid network state file");
    Ok(Read::Invalid)
}

/// Whether a file has to survive a power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Durable {
    /// No: it describes links and addresses, which do not survive it either.
    No,
    /// Yes: it describes state that plugins keep on disk and have to delete.
    Yes,
}

/// Replaces a file atomically.
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
    /// Creates the directory if it is missing.
    pub(crate) fn open(dir: &Path) -> Result<Store, Error> {
        let sandboxes = dir.join("sandboxes");
        fs::create_dir_all(&sandboxes).map_err(Error::state("create", &sandboxes))?;
        Ok(Store { dir: dir.to_owned() })
    }

    /// Locks the store against other agents and threads. Blocks.
    pub(crate) fn lock(&self) -> Result<LockedStore, Error> {
        let path = self.dir.join("lock");
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        let file = match options.open(&path) {
            // Removed while pods run: the links of the kernel have the addresses, and the store starts empty.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Store::open(&self.dir)?;
                options.open(&path)
            }
            opened => opened,
        };
        let file = file.map_err(Error::state("open", &path))?;
        file.lock().map_err(Error::state("lock", &path))?;
        Ok(LockedStore { dir: self.dir.clone(), known: RefCell::default(), _lock: file })
    }
}

// === impl LockedStore ===

impl LockedStore {
    /// The record of a sandbox.
    pub(crate) fn record(&self, sandbox: &str) -> Result<Option<Record>, Error> {
        if let Some(known) = &*self.known.borrow() {
            return Ok(known.get(sandbox).cloned());
        }
        match read(&self.path_of(sandbox), |record: &Record| record.version)? {
            Read::Good(record) => Ok(Some(record)),
            Read::Absent | Read::Invalid => Ok(None),
        }
    }

    /// All valid records.
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

    /// Sandboxes whose record was invalid.
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

    /// Removes the record of a sandbox, also an invalid one, and frees its addresses.
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

    /// Reserves an address of each range for a sandbox; addresses that it has already are kept. `seen` are addresses of links in the kernel,
    /// which may have no record.
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

    /// The stored ranges with their cursors.
    pub(crate) fn cursors(&self) -> Result<Vec<Cursor>, Error> {
        match read(&self.dir.join("ranges.json"), |ranges: &Ranges| ranges.version)? {
            Read::Good(ranges) => Ok(ranges.cursors),
            // Only the order of allocation is lost, not the ownership of addresses.
            Read::Absent | Read::Invalid => Ok(Vec::new()),
        }
    }

    /// Stores the ranges for new pods, followed by former ranges in which pods still have addresses.
    pub(crate) fn store_ranges(&self, ranges: &[IpNet]) -> Result<(), Error> {
        let before = self.cursors()?;
        let records = self.records()?;
        let in_use = |range: &IpNet| records.iter().flat_map(Record::bridge_ips).any(|ip| range.contains(ip));
        let cursor_of = |range: &IpNet| before.iter().find(|cursor| cursor.range == *range).copied();
        let mut cursors: Vec<Cursor> =
            ranges.iter().map(|range| cursor_of(range).unwrap_or(Cursor::new(*range))).collect();
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

    /// Sandboxes that have a file with this extension, in order.
    fn names(&self, extension: &str) -> Result<Vec<String>, Error> {
        let dir = self.dir.join("sandboxes");
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(&dir).map_err(Error::state("list", &dir))? {
            let path = entry.map_err(Error::state("list", &dir))?.path();
            if path.extension().is_some_and(|found| found == extension)
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
    /// The record of a sandbox that is not attached yet.
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

    /// Its addresses on the bridge; none with CNI.
    pub(crate) fn bridge_ips(&self) -> &[IpAddr] {
        match &self.via {
            Via::Bridge { ips } => ips,
            Via::Cni { .. } => &[],
        }
    }
}
