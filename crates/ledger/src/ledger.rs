//! The ledger: opening it, the copies of the pods, removing pods, stopping.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use keelet_lifecycle::{BootId, Moment, node::NodeEvidence, observed::Absence};
use serde::Serialize;
use serde_json::{Value, value::to_raw_value};

use crate::{
    commit::page_of,
    disk::{Disk, OsDisk, shortage},
    envelope::PodRef,
    events,
    gone::{self, Gone, Places},
    guard::{Guarded, Hold},
    heartbeat::{Beat, Heartbeat},
    history::Bounds,
    load::{Loader, Loss, Mode, Recovered},
    names::{self, BadUid},
    node,
    page::Page,
    two_tiers::TwoTiers,
    write::{self, Outcome, WriteError, WriteStep},
};

/// The directories of the ledger, and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// On a disk: survives a reboot.
    pub durable_root: PathBuf,
    /// On tmpfs: survives the agent.
    pub volatile_root: PathBuf,
    /// The present boot.
    pub boot_id: BootId,
    /// How much probe history is kept.
    pub history: Bounds,
    /// The interval between retries of failed writes; a change without influence on decisions may wait ten times as long.
    pub quiet_interval: Duration,
}

/// Evidence on disk, and its newest values in memory. Only one process at a time can open it.
#[derive(Debug)]
pub struct Ledger<D = OsDisk> {
    /// With the locks on both directories.
    pub(crate) disk: Guarded<D>,
    pub(crate) settings: Settings,
    pub(crate) pages: BTreeMap<String, Page>,
    pub(crate) heartbeat: Heartbeat,
    events: TwoTiers,
    node: TwoTiers,
    gone: Places,
}

/// An open ledger and what it contained.
#[derive(Debug)]
pub struct Opened<D = OsDisk> {
    /// The ledger.
    pub ledger: Ledger<D>,
    /// The pods, by UID.
    pub pods: Vec<Recovered>,
    /// The newest removed pods, the newest last.
    pub gone: Vec<Gone>,
    /// The newest events, as the agent gave them.
    pub events: Vec<Value>,
    /// What is remembered of the node itself; of whatever boot.
    pub node: Option<NodeEvidence>,
    /// Files that cannot be used. The agent must log them.
    pub losses: Vec<Loss>,
    /// Why a tier cannot be written, such as a read-only disk. The ledger continues in memory.
    pub troubles: Vec<WriteError>,
}

/// Why a ledger cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another agent holds the lock.
    #[error("another keelet agent{} is using {}; two agents must not share a ledger", pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default(), root.display())]
    Locked {
        /// The directory.
        root: PathBuf,
        /// The PID of the other agent, if it is known.
        pid: Option<u32>,
    },
    /// The node has no more open files or no more memory. That says nothing about the content of the ledger.
    #[error("cannot read {}: {error}; no evidence is lost{}", path.display(), others.iter().map(|loss| format!("; another problem: {loss}")).collect::<String>())]
    Shortage {
        /// The file that could not be read.
        path: PathBuf,
        /// The shortage.
        error: io::Error,
        /// Files that cannot be used for other reasons, already set aside.
        others: Vec<Loss>,
    },
    /// One directory cannot be both tiers.
    #[error("the durable and the volatile ledger must not be the same directory, {}", root.display())]
    SameRoot {
        /// The directory.
        root: PathBuf,
    },
}

// === impl Settings ===

impl Settings {
    /// The default limits.
    pub fn new(durable_root: impl Into<PathBuf>, volatile_root: impl Into<PathBuf>, boot_id: BootId) -> Self {
        Self {
            durable_root: durable_root.into(),
            volatile_root: volatile_root.into(),
            boot_id,
            history: Bounds::default(),
            quiet_interval: Duration::from_secs(1),
        }
    }
}

// === impl Ledger ===

impl Ledger<OsDisk> {
    /// Opens the ledger on the machine's own disks.
    pub fn open(settings: Settings) -> Result<Opened, OpenError> {
        Self::open_on(OsDisk, settings)
    }
}

impl<D: Disk> Ledger<D> {
    /// Opens the ledger: takes its lock, loads every pod, sets aside files that cannot be used, and removes leftovers.
    pub fn open_on(disk: D, settings: Settings) -> Result<Opened<D>, OpenError> {
        if settings.durable_root == settings.volatile_root {
            return Err(OpenError::SameRoot { root: settings.durable_root });
        }
        let roots = [&settings.durable_root, &settings.volatile_root];
        let disk = Guarded::new(disk, roots.map(PathBuf::as_path));
        let mut troubles = Vec::new();
        // The directories themselves are locked, not files in them: that works on a read-only disk too. Those that are there
        // come first, so that a ledger that is refused has changed nothing.
        for root in roots {
            match disk.hold(root) {
                Ok(Hold::Ours) => {}
                Ok(Hold::Taken) => return Err(locked(&disk, root)),
                // A directory that does not exist cannot be shared yet.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if shortage(&error).is_some() => {
                    return Err(OpenError::Shortage { path: root.clone(), error, others: Vec::new() });
                }
                Err(error) => troubles.push(WriteError::at(WriteStep::MakeDirectory, root)(error)),
            }
        }
        for root in roots {
            let pods = root.join(names::PODS);
            match disk.make_dir(&pods) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Err(locked(&disk, root)),
                Err(error) if shortage(&error).is_some() => {
                    return Err(OpenError::Shortage { path: pods, error, others: Vec::new() });
                }
                Err(error) => troubles.push(WriteError::at(WriteStep::MakeDirectory, &pods)(error)),
            }
            // The PID is only for the message above, so a failure is ignored.
            let _ = write::replace(&disk, &root.join(names::PID), format!("{}\n", std::process::id()).as_bytes());
        }
        // The roots may have been created just now.
        for path in [settings.durable_root.join(names::PODS), settings.durable_root.clone()] {
            if let Err(error) = write::sync_parent(&disk, &path) {
                troubles.push(error);
            }
        }
        let mut loader = Loader {
            disk: &disk,
            durable_root: &settings.durable_root,
            volatile_root: &settings.volatile_root,
            boot_id: settings.boot_id,
            bounds: settings.history,
            mode: Mode::Repair,
            losses: Vec::new(),
        };
        let heartbeat = Heartbeat::load(&mut loader);
        let found = loader.pods();
        let (places, gone) = gone::load(&mut loader);
        let (kept_events, events) = events::load(&mut loader);
        let (kept_node, node) = node::load(&mut loader);
        let losses = loader.losses;
        if let Some((path, error)) = losses.iter().find_map(|loss| Some((loss.file.clone(), loss.why.shortage()?))) {
            let others = losses.into_iter().filter(|loss| loss.why.shortage().is_none()).collect();
            return Err(OpenError::Shortage { path, error: error.into(), others });
        }
        let mut pages = BTreeMap::new();
        let mut pods = Vec::new();
        for (uid, (page, recovered)) in found {
            pages.insert(uid, page);
            pods.push(recovered);
        }
        let ledger = Self { disk, settings, pages, heartbeat, events: kept_events, node: kept_node, gone: places };
        Ok(Opened { ledger, pods, gone, events, node, losses, troubles })
    }

    /// Keeps a copy of the pod, in the API's form. It is written when it changes.
    ///
    /// If the write fails, the pod is still known in memory; calling this again with the same copy retries.
    pub fn keep_pod(&mut self, pod: &PodRef, copy: &Value, now: Moment) -> Result<Outcome, BadUid> {
        let page = page_of(&mut self.pages, pod)?;
        page.pod.clone_from(pod);
        // A value that was parsed can be serialised.
        let Ok(json) = to_raw_value(copy) else { return Ok(Outcome::Unchanged) };
        if page.copy.json.as_ref().is_none_or(|known| known.get() != json.get()) {
            page.copy.json = Some(json);
            page.copy.unwritten = true;
            page.copy.failures.allow_retry();
        }
        if !page.copy.unwritten {
            return Ok(Outcome::Unchanged);
        }
        if let Some(until) = page.copy.failures.retry_at(self.settings.quiet_interval)
            && !now.has_reached(&until)
        {
            return Ok(Outcome::Deferred { until });
        }
        let result = write_copy(&self.disk, &self.settings, page);
        match &result {
            Ok(()) => page.copy.unwritten = false,
            Err(_) => page.durable.has_directory = false,
        }
        Ok(page.copy.failures.record(result, now))
    }

    /// Keeps the newest events of the node. Written to tmpfs at once; to the durable disk when due, or at a stop.
    pub fn keep_events(&mut self, events: &impl Serialize, now: Moment) -> Outcome {
        self.events.keep(&self.disk, &self.settings, &events::Body { events }, true, now)
    }

    /// Keeps what is remembered of the node. Written to tmpfs at once; to the durable disk, if it is to outlast the boot (`lasting`), when due, or
    /// at a stop.
    pub fn keep_node(&mut self, evidence: &NodeEvidence, lasting: bool, now: Moment) -> Outcome {
        self.node.keep(&self.disk, &self.settings, evidence, lasting, now)
    }

    /// Removes a pod permanently. Once this returns without an error, no restart and no reboot brings it back.
    ///
    /// Its durable directory is renamed first, and a rename is atomic: a crash never leaves a pod without its evidence,
    /// which would look like a new pod. A record of it is kept among the removed pods, for people.
    pub fn remove(&mut self, uid: &str, now: Moment) -> Result<(), WriteError> {
        // A UID that is not valid as a directory name was never written.
        let Ok(directory) = names::directory_name(uid) else { return Ok(()) };
        let volatile = names::pod_dir(&self.settings.volatile_root, &directory);
        let durable = names::pod_dir(&self.settings.durable_root, &directory);
        self.disk.remove(&volatile).map_err(WriteError::at(WriteStep::Remove, &volatile))?;
        let gone = names::gone(&durable);
        // Left by an interrupted removal.
        self.disk.remove(&gone).map_err(WriteError::at(WriteStep::Remove, &gone))?;
        match self.disk.rename(&durable, &gone) {
            Ok(()) => {
                write::sync_parent(&self.disk, &durable)?;
                // The next start removes the rest.
                let _ = self.disk.remove(&gone);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(WriteError::at(WriteStep::Remove, &durable)(error)),
        }
        if let Some(page) = self.pages.remove(uid) {
            // A full disk must not prevent the removal of a pod.
            let _ = self.gone.keep(&self.disk, &self.settings, &page, now);
        }
        Ok(())
    }

    /// Records that the agent is alive. May be called at any rate: it writes when a write is due.
    pub fn beat(&mut self, now: Moment) -> Beat {
        // The durable heartbeat reports the same failure, because it goes to the same disk.
        let _ = self.events.flush(&self.disk, &self.settings, now);
        let _ = self.node.flush(&self.disk, &self.settings, now);
        self.heartbeat.beat(&self.disk, &self.settings, now)
    }

    /// When the previous agent was last alive; `None` if there was none, or it is unknown.
    pub fn last_seen(&self) -> Option<Moment> {
        self.heartbeat.found()
    }

    /// How long no agent was running before this one; `None` if there was none, or it is unknown.
    pub fn absence(&self, now: Moment) -> Option<Duration> {
        self.last_seen().map(|seen| now.since(&seen))
    }

    /// The newest long absence that the previous agent knew of, for pods that it did not plan.
    pub fn long_absence(&self) -> Option<Absence> {
        self.heartbeat.absence
    }

    /// The newest long absence as this agent knows it. The heartbeat carries it to the next one.
    pub fn set_long_absence(&mut self, absence: Option<Absence>) {
        self.heartbeat.absence = absence;
    }

    /// Writes all deferred changes, and the heartbeat to the durable disk. Returns the writes that failed.
    pub fn stop(&mut self, now: Moment) -> Vec<WriteError> {
        let mut errors = self.flush_all(now);
        errors.extend(self.events.catch_up(&self.disk, &self.settings, now).err());
        errors.extend(self.node.catch_up(&self.disk, &self.settings, now).err());
        errors.extend(self.heartbeat.stop(&self.disk, &self.settings, now));
        errors
    }

    /// The UIDs of all pods in the ledger.
    pub fn uids(&self) -> impl Iterator<Item = &str> {
        self.pages.keys().map(String::as_str)
    }
}

/// Another process has a directory of the ledger, and its PID may be in there.
fn locked(disk: &impl Disk, root: &Path) -> OpenError {
    let pid = disk.read(&root.join(names::PID), 32).ok();
    let pid = pid.and_then(|text| String::from_utf8(text).ok()?.trim().parse().ok());
    OpenError::Locked { root: root.to_owned(), pid }
}

fn write_copy(disk: &impl Disk, settings: &Settings, page: &mut Page) -> Result<(), WriteError> {
    let directory = names::pod_dir(&settings.durable_root, &page.directory);
    if !page.durable.has_directory {
        disk.make_dir(&directory).map_err(WriteError::at(WriteStep::MakeDirectory, &directory))?;
        write::sync_parent(disk, &directory)?;
        page.durable.has_directory = true;
    }
    page.generation += 1;
    let path = directory.join(names::POD);
    let bytes = page.copy_file(disk, &path)?;
    write::replace_durably(disk, &path, &bytes)
}
