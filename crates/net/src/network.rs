//! [`Network`], the entry point of this crate: one per agent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use ipnet::IpNet;

use crate::bridge::{self, Bridge, LogOnce};
use crate::cni::{self, Cni, Found, NetworkList};
use crate::firewall::{self, Family};
use crate::kernel::Kernel;
use crate::names::{self, POD_INTERFACE};
use crate::pod::check_sandbox_id;
use crate::store::{Progress, Record, Store, Via};
use crate::{Attached, Error, PodNetwork, Settings, failpoint, threads};

/// Between two looks at the packet rules without a notification: as long as a runtime leaves a sandbox unchecked.
const BETWEEN_CHECKS: Duration = Duration::from_secs(30);

/// Between two attempts to restore packet rules that the kernel refused.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(1);

/// The pod network of this node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Network {
    inner: Arc<Inner>,
}

/// Which kind of network new pods get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A CNI network.
    Cni {
        /// Name of the network.
        name: String,
        /// Its configuration.
        file: PathBuf,
    },
    /// The built-in bridge.
    Bridge {
        /// Name of the bridge.
        name: String,
        /// The address ranges of pods.
        ranges: Vec<IpNet>,
    },
}

#[derive(Debug)]
struct Inner {
    settings: Settings,
    store: Store,
    locks: SandboxLocks,
    log_once: LogOnce,
    rules: Mutex<BTreeSet<Family>>,
    closed: Mutex<BTreeSet<u32>>,
}

/// A lock for each sandbox: one operation at a time.
#[derive(Debug, Default)]
struct SandboxLocks {
    sandboxes: Mutex<BTreeSet<String>>,
    changed: Condvar,
}

/// A bridge, and the directory of the program that created it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedBridge {
    /// Its name.
    pub name: String,
    /// That directory, which may have been deleted.
    pub owner: PathBuf,
}

/// The lock of a sandbox, released on drop.
struct SandboxGuard<'a> {
    locks: &'a SandboxLocks,
    sandbox: String,
}

// === impl Network ===

impl Network {
    /// Checks the settings and opens the store. Nothing of the node is changed until the first pod.
    ///
    /// # Errors
    ///
    /// When a setting is invalid, or the state directory cannot be created.
    pub fn open(settings: Settings) -> Result<Network, Error> {
        settings.check()?;
        let store = Store::open(&settings.state_dir)?;
        let inner = Inner {
            settings,
            store,
            locks: SandboxLocks::default(),
            log_once: LogOnce::default(),
            rules: Mutex::default(),
            closed: Mutex::default(),
        };
        Ok(Network { inner: Arc::new(inner) })
    }

    /// The network that the next pod would get.
    ///
    /// # Errors
    ///
    /// Why the next pod would get none.
    pub async fn status(&self) -> Result<Kind, Error> {
        self.work("keelet-net status", Inner::status).await
    }

    /// The bridges of this machine that carry the directory of the program that created them.
    ///
    /// # Errors
    ///
    /// When the kernel does not answer.
    pub async fn owned_bridges() -> Result<Vec<OwnedBridge>, Error> {
        let links =
            threads::aside("keelet-net bridges", || threads::block_on(async { Kernel::open()?.links().await })).await?;
        let bridges = links.into_iter().filter(|link| link.is_bridge);
        Ok(bridges
            .filter_map(|link| Some(OwnedBridge { owner: names::owner_in(&link.alias)?, name: link.name }))
            .collect())
    }

    /// Removes the bridge of the settings with its packet rules, unless it has a port. Returns whether it is gone.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub async fn remove_idle_bridge(&self) -> Result<bool, Error> {
        self.work("keelet-net remove bridge", |inner| {
            threads::block_on(async { inner.bridge().remove_idle_bridge(&Kernel::open()?).await })
        })
        .await
    }

    /// Attaches a sandbox to the network. Idempotent: a repeated call repairs what is missing.
    ///
    /// # Errors
    ///
    /// What failed. The changes up to then are reverted as far as possible; [`Network::detach`] or [`Network::sweep`] remove the rest.
    pub async fn attach(&self, pod: &PodNetwork) -> Result<Attached, Error> {
        let pod = pod.clone();
        self.work("keelet-net attach", move |inner| inner.attach(&pod)).await
    }

    /// The addresses of a sandbox, for a caller that lost them; none if they are not known any more.
    ///
    /// # Errors
    ///
    /// When the record or the links cannot be read.
    pub async fn addresses(&self, sandbox_id: &str) -> Result<Vec<IpAddr>, Error> {
        let sandbox = sandbox_id.to_owned();
        self.work("keelet-net addresses", move |inner| inner.addresses(&sandbox)).await
    }

    /// Removes the network of a sandbox. Idempotent, and works without the namespace.
    ///
    /// # Errors
    ///
    /// What failed. The record of the sandbox is kept then, so that a later call continues.
    pub async fn detach(&self, sandbox_id: &str, netns: Option<&Path>) -> Result<(), Error> {
        let (sandbox, netns) = (sandbox_id.to_owned(), netns.map(Path::to_owned));
        self.work("keelet-net detach", move |inner| inner.detach(&sandbox, netns.as_deref())).await
    }

    /// Brings up the loopback interface of a namespace, and nothing else.
    ///
    /// # Errors
    ///
    /// When the namespace cannot be entered, or the kernel refuses.
    pub async fn loopback_only(&self, netns: &Path) -> Result<(), Error> {
        let netns = netns.to_owned();
        self.work("keelet-net loopback", move |_| bridge::loopback(&netns)).await
    }

    /// Removes the networks of all sandboxes that are not in `live`: addresses, interfaces, rules, results of plugins. A sandbox that is
    /// being attached has to be in `live` too.
    ///
    /// # Errors
    ///
    /// The first failure; the others are removed all the same.
    pub async fn sweep(&self, live: &BTreeSet<String>) -> Result<(), Error> {
        let live = live.clone();
        self.work("keelet-net sweep", move |inner| inner.sweep(&live)).await
    }

    /// Restores the packet rules of the bridge whenever another program removes them, or some of them, until the future is dropped. The
    /// kernel notifies about removed tables; whatever no notification tells, and whatever could not be restored, is found by looking.
    pub async fn keep_rules(&self) {
        let mut removals = firewall::Removals::listen()
            .inspect_err(|error| tracing::debug!(%error, "the kernel does not notify about packet rules; they are checked regularly"))
            .ok();
        let mut restored = true;
        loop {
            // Also before the first notification: rules may have been removed before.
            let whole = self.work("keelet-net rules", |inner| inner.bridge().restore_rules()).await;
            if let Err(error) = &whole
                && restored
            {
                tracing::warn!(%error, "cannot restore packet rules; retrying");
            }
            restored = matches!(whole, Ok(true));
            let removal = async {
                match &mut removals {
                    Some(removals) => removals.next().await,
                    None => std::future::pending().await,
                }
            };
            let pause = if restored { BETWEEN_CHECKS } else { BETWEEN_ATTEMPTS };
            match tokio::time::timeout(pause, removal).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "no longer notified about packet rules; they are checked regularly");
                    removals = None;
                }
                Err(_) => {
                    removals = removals.or_else(|| firewall::Removals::listen().ok());
                }
            }
        }
    }

    /// What is missing of the networks of these sandboxes, for people, by sandbox ID. Each comes with its network namespace.
    ///
    /// # Errors
    ///
    /// When the links or records cannot be read.
    pub async fn missing(&self, sandboxes: BTreeMap<String, PathBuf>) -> Result<BTreeMap<String, String>, Error> {
        if sandboxes.is_empty() {
            return Ok(BTreeMap::new());
        }
        self.work("keelet-net audit", move |inner| inner.missing(&sandboxes)).await
    }

    async fn work<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce(&Inner) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let inner = self.inner.clone();
        threads::aside(name, move || work(&inner)).await
    }
}

// === impl Inner ===

impl Inner {
    fn status(&self) -> Result<Kind, Error> {
        if let Some((file, list)) = self.configured()? {
            self.cni().status(&list)?;
            return Ok(Kind::Cni { name: list.name, file });
        }
        let ranges = threads::block_on(async { self.bridge().ranges(&Kernel::open()?, &self.store.lock()?).await })?;
        Ok(Kind::Bridge { name: self.settings.bridge.clone(), ranges })
    }

    fn attach(&self, pod: &PodNetwork) -> Result<Attached, Error> {
        pod.check()?;
        let _guard = self.locks.lock(&pod.sandbox_id);
        bridge::loopback(&pod.netns)?;
        let before = self.store.lock()?.record(&pod.sandbox_id)?;
        let was_done = before.as_ref().is_some_and(|record| record.progress == Progress::Done);
        let configured = self.configured();
        // A sandbox keeps its kind of network.
        let made = match before.map(|record| record.via) {
            Some(Via::Bridge { .. }) => self.bridge().attach(pod),
            Some(Via::Cni { .. }) => self.cni().attach(pod, configured?.map(|(_, list)| list).as_ref()),
            None => match configured? {
                Some((_, list)) => self.cni().attach(pod, Some(&list)),
                None => self.bridge().attach(pod),
            },
        };
        match &made {
            Ok(_) => {}
            // A network that was complete before may be in use, so a failed repair does not remove it.
            Err(error) if was_done || failpoint::is_stop(error) => {}
            Err(_) => {
                if let Err(error) = self.remove(&pod.sandbox_id, Some(&pod.netns)) {
                    tracing::warn!(sandbox = pod.sandbox_id, %error, "cannot remove incomplete network of sandbox yet");
                }
            }
        }
        made
    }

    fn addresses(&self, sandbox: &str) -> Result<Vec<IpAddr>, Error> {
        match self.store.lock()?.record(sandbox)?.map(|record| record.via) {
            Some(Via::Bridge { ips }) => Ok(ips),
            Some(Via::Cni { result, .. }) => Ok(cni::addresses(&result)),
            // If the record is lost, the alias of the interface has the addresses.
            None => threads::block_on(async {
                let link = Kernel::open()?.link(&names::host_end(sandbox)).await?;
                Ok(link.map(|link| names::addresses_in(&link.alias)).unwrap_or_default())
            }),
        }
    }

    fn detach(&self, sandbox: &str, netns: Option<&Path>) -> Result<(), Error> {
        check_sandbox_id(sandbox)?;
        let _guard = self.locks.lock(sandbox);
        self.remove(sandbox, netns)
    }

    fn remove(&self, sandbox: &str, netns: Option<&Path>) -> Result<(), Error> {
        let store = self.store.lock()?;
        let record = store.record(sandbox)?;
        let is_broken = store.broken()?.iter().any(|other| other == sandbox);
        drop(store);
        match record {
            Some(record @ Record { via: Via::Cni { .. }, .. }) => self.cni().detach(&record, netns),
            Some(_) => self.bridge().detach(sandbox),
            None if is_broken => {
                if let Ok(Some((_, list))) = self.configured() {
                    self.cni().detach_unknown(sandbox, netns, &list)?;
                }
                self.bridge().detach(sandbox)
            }
            None => self.bridge().detach(sandbox),
        }
    }

    fn sweep(&self, live: &BTreeSet<String>) -> Result<(), Error> {
        let store = self.store.lock()?;
        let mut deleted: BTreeSet<(String, PathBuf)> =
            store.records()?.into_iter().map(|record| (record.sandbox, record.netns)).collect();
        deleted.extend(store.broken()?.into_iter().map(|sandbox| (sandbox, PathBuf::new())));
        drop(store);
        deleted.retain(|(sandbox, _)| !live.contains(sandbox));
        let mut first = Ok(());
        for (sandbox, netns) in deleted {
            let _guard = self.locks.lock(&sandbox);
            tracing::info!(sandbox, "removing network of deleted sandbox");
            // A path in /proc has a PID, which may be reused. A bind mount of the namespace is safe.
            let netns = Some(netns).filter(|path| !path.starts_with("/proc"));
            let removed = self.remove(&sandbox, netns.as_deref());
            first = first.and(removed);
        }
        first.and(self.bridge().sweep_links(live))
    }

    fn missing(&self, sandboxes: &BTreeMap<String, PathBuf>) -> Result<BTreeMap<String, String>, Error> {
        let store = self.store.lock()?;
        let records: BTreeMap<_, _> =
            store.records()?.into_iter().map(|record| (record.sandbox.clone(), record)).collect();
        drop(store);
        let links = threads::block_on(async { Kernel::open()?.links().await })?;
        let mut missing = BTreeMap::new();
        for (sandbox, netns) in sandboxes {
            let found = match records.get(sandbox) {
                Some(Record { via: Via::Bridge { .. }, .. }) => self.bridge().missing(sandbox, &links),
                // A plugin may use no veth pair, and without a record only the interface in the namespace is known.
                _ => match bridge::has_interface(netns) {
                    Ok(false) => Some(format!("interface {POD_INTERFACE} is missing in the network namespace")),
                    // The namespace may be gone, which the runtime notices.
                    Ok(true) | Err(_) => None,
                },
            };
            missing.extend(found.map(|what| (sandbox.clone(), what)));
        }
        Ok(missing)
    }

    /// The configured CNI network, if there is one. Invalid files are logged once.
    fn configured(&self) -> Result<Option<(PathBuf, NetworkList)>, Error> {
        match cni::find(&self.settings.cni_conf_dir) {
            Found::Absent => Ok(None),
            Found::Usable { file, list, problems } => {
                for error in problems {
                    let log = || tracing::warn!(%error, "ignoring invalid CNI configuration");
                    self.log_once.log(&error.to_string(), log);
                }
                Ok(Some((file, list)))
            }
            Found::Broken(problems) => {
                Err(Error::CniConfiguration { dir: self.settings.cni_conf_dir.clone(), problems })
            }
        }
    }

    fn bridge(&self) -> Bridge<'_> {
        Bridge {
            settings: &self.settings,
            store: &self.store,
            log_once: &self.log_once,
            rules: &self.rules,
            closed: &self.closed,
        }
    }

    fn cni(&self) -> Cni<'_> {
        Cni { settings: &self.settings, store: &self.store }
    }
}

// === impl SandboxLocks ===

impl SandboxLocks {
    /// Locks a sandbox. Blocks; runs on a thread of its own.
    fn lock(&self, sandbox: &str) -> SandboxGuard<'_> {
        let mut sandboxes = self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner);
        while !sandboxes.insert(sandbox.to_owned()) {
            sandboxes = self.changed.wait(sandboxes).unwrap_or_else(PoisonError::into_inner);
        }
        SandboxGuard { locks: self, sandbox: sandbox.to_owned() }
    }
}

impl Drop for SandboxGuard<'_> {
    fn drop(&mut self) {
        self.locks.sandboxes.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.sandbox);
        self.locks.changed.notify_all();
    }
}

// === impl Kind ===

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Cni { name, file } => write!(f, "CNI network {name} from {}", file.display()),
            Kind::Bridge { name, ranges } => {
                let ranges: Vec<String> = ranges.iter().map(IpNet::to_string).collect();
                write!(f, "bridge {name} with {}", ranges.join(" and "))
            }
        }
    }
}
