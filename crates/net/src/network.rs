//! The door of this crate: one [`Network`] per agent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use ipnet::IpNet;

use crate::bridge::{self, Bridge, OnceSaid};
use crate::cni::{self, Cni, Found, NetworkList};
use crate::firewall::{self, Family};
use crate::kernel::Kernel;
use crate::names::{self, POD_INTERFACE};
use crate::pod::check_sandbox_id;
use crate::store::{Progress, Record, Store, Via};
use crate::{Attached, Error, PodNetwork, Settings, failpoint, threads};

/// The pod network of this node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Network {
    inner: Arc<Inner>,
}

/// Which kind of network new pods get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// That of CNI plugins.
    Cni {
        /// Name of the network.
        name: String,
        /// Its configuration.
        file: PathBuf,
    },
    /// The built-in one.
    Bridge {
        /// Name of the bridge.
        name: String,
        /// Where addresses come from.
        ranges: Vec<IpNet>,
    },
}

#[derive(Debug)]
struct Inner {
    settings: Settings,
    store: Store,
    busy: Busy,
    said: OnceSaid,
    rules: Mutex<BTreeSet<Family>>,
}

/// Sandboxes that are being worked on: one operation at a time for each.
#[derive(Debug, Default)]
struct Busy {
    sandboxes: Mutex<BTreeSet<String>>,
    changed: Condvar,
}

/// Held while a sandbox is worked on.
struct Turn<'a> {
    busy: &'a Busy,
    sandbox: String,
}

// === impl Network ===

impl Network {
    /// Checks the settings and opens the books. Nothing of the host is changed until the first pod.
    ///
    /// # Errors
    ///
    /// When a setting cannot work, or the state directory cannot be made.
    pub fn open(settings: Settings) -> Result<Network, Error> {
        settings.check()?;
        let store = Store::open(&settings.state_dir)?;
        let inner =
            Inner { settings, store, busy: Busy::default(), said: OnceSaid::default(), rules: Mutex::default() };
        Ok(Network { inner: Arc::new(inner) })
    }

    /// Which network the next pod would get.
    ///
    /// # Errors
    ///
    /// Why it would get none, as a sentence for people.
    pub async fn status(&self) -> Result<Kind, String> {
        self.work("keelet-net status", Inner::status).await.map_err(|error| error.to_string())
    }

    /// Gives a sandbox its network. The same sandbox again gets the same again, or what was missing of it.
    ///
    /// # Errors
    ///
    /// What failed; what was made until then is taken away again as far as possible. [`Network::detach`] or
    /// [`Network::sweep`] take away the rest.
    pub async fn attach(&self, pod: &PodNetwork) -> Result<Attached, Error> {
        let pod = pod.clone();
        self.work("keelet-net attach", move |inner| inner.attach(&pod)).await
    }

    /// The addresses that a sandbox was given, for a caller that lost them; none if that is not known any more.
    ///
    /// # Errors
    ///
    /// When that cannot be said.
    pub async fn addresses(&self, sandbox_id: &str) -> Result<Vec<IpAddr>, Error> {
        let sandbox = sandbox_id.to_owned();
        self.work("keelet-net addresses", move |inner| inner.addresses(&sandbox)).await
    }

    /// Takes a sandbox's network away. Works any number of times, and without the namespace.
    ///
    /// # Errors
    ///
    /// What failed. The sandbox stays in the books then, so that the next call goes on.
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

    /// Takes away what belongs to sandboxes that are not in `live`: addresses, interfaces, rules, results of plugins.
    /// A sandbox that is just being attached has to be in `live` too.
    ///
    /// # Errors
    ///
    /// The first failure; the others are still swept.
    pub async fn sweep(&self, live: &BTreeSet<String>) -> Result<(), Error> {
        let live = live.clone();
        self.work("keelet-net sweep", move |inner| inner.sweep(&live)).await
    }

    /// Restores the packet rules of the bridge whenever another program removes them, until it is dropped. Only where the kernel
    /// cannot say that a table was removed does it end, and the log says so.
    pub async fn keep_rules(&self) {
        let mut removals = match firewall::Removals::listen() {
            Ok(removals) => removals,
            Err(error) => {
                return tracing::warn!(%error, "packet rules that another program removes come back with the next pod only");
            }
        };
        loop {
            // Also before the first removal: one may have happened while nothing listened.
            if let Err(error) = self.work("keelet-net rules", |inner| inner.bridge().restore_rules()).await {
                tracing::warn!(%error, "the packet rules of the pods' bridge cannot be restored");
            }
            if let Err(error) = removals.next().await {
                return tracing::warn!(%error, "removals of packet rules are no longer noticed");
            }
        }
    }

    /// What is missing of the networks of these sandboxes, in words, by their IDs; each comes with its network namespace.
    ///
    /// # Errors
    ///
    /// When that cannot be said.
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
        let _turn = self.busy.take(&pod.sandbox_id);
        bridge::loopback(&pod.netns)?;
        let before = self.store.lock()?.record(&pod.sandbox_id)?;
        let was_done = before.as_ref().is_some_and(|record| record.progress == Progress::Done);
        let configured = self.configured();
        // A sandbox stays with the kind of network that it has begun with.
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
            // What works for somebody already is not torn down because a second look failed.
            Err(error) if was_done || failpoint::is_stop(error) => {}
            Err(_) => {
                if let Err(error) = self.take_away(&pod.sandbox_id, Some(&pod.netns)) {
                    tracing::warn!(sandbox = pod.sandbox_id, %error, "a failed pod network could not be taken away yet");
                }
            }
        }
        made
    }

    fn addresses(&self, sandbox: &str) -> Result<Vec<IpAddr>, Error> {
        match self.store.lock()?.record(sandbox)?.map(|record| record.via) {
            Some(Via::Bridge { ips }) => Ok(ips),
            Some(Via::Cni { result, .. }) => Ok(cni::addresses(&result)),
            // If the books are lost, the interface still knows.
            None => threads::block_on(async {
                let link = Kernel::open()?.link(&names::host_end(sandbox)).await?;
                Ok(link.map(|link| names::addresses_in(&link.alias)).unwrap_or_default())
            }),
        }
    }

    fn detach(&self, sandbox: &str, netns: Option<&Path>) -> Result<(), Error> {
        check_sandbox_id(sandbox)?;
        let _turn = self.busy.take(sandbox);
        self.take_away(sandbox, netns)
    }

    fn take_away(&self, sandbox: &str, netns: Option<&Path>) -> Result<(), Error> {
        let books = self.store.lock()?;
        let record = books.record(sandbox)?;
        let broken = books.broken()?.iter().any(|other| other == sandbox);
        drop(books);
        match record {
            Some(record @ Record { via: Via::Cni { .. }, .. }) => self.cni().detach(&record, netns),
            Some(_) => self.bridge().detach(sandbox),
            None if broken => {
                if let Ok(Some((_, list))) = self.configured() {
                    self.cni().detach_unknown(sandbox, netns, &list)?;
                }
                self.bridge().detach(sandbox)
            }
            None => self.bridge().detach(sandbox),
        }
    }

    fn sweep(&self, live: &BTreeSet<String>) -> Result<(), Error> {
        let books = self.store.lock()?;
        let mut gone: BTreeSet<(String, PathBuf)> =
            books.records()?.into_iter().map(|record| (record.sandbox, record.netns)).collect();
        gone.extend(books.broken()?.into_iter().map(|sandbox| (sandbox, PathBuf::new())));
        drop(books);
        gone.retain(|(sandbox, _)| !live.contains(sandbox));
        let mut first = Ok(());
        for (sandbox, netns) in gone {
            let _turn = self.busy.take(&sandbox);
            tracing::info!(sandbox, "taking away the network of a sandbox that is gone");
            // The number of a process may belong to somebody else by now; a file of its own does not.
            let netns = Some(netns).filter(|path| !path.starts_with("/proc"));
            let swept = self.take_away(&sandbox, netns.as_deref());
            first = first.and(swept);
        }
        first.and(self.bridge().sweep_links(live))
    }

    fn missing(&self, sandboxes: &BTreeMap<String, PathBuf>) -> Result<BTreeMap<String, String>, Error> {
        let books = self.store.lock()?;
        let records: BTreeMap<_, _> =
            books.records()?.into_iter().map(|record| (record.sandbox.clone(), record)).collect();
        drop(books);
        let links = threads::block_on(async { Kernel::open()?.links().await })?;
        let mut missing = BTreeMap::new();
        for (sandbox, netns) in sandboxes {
            let found = match records.get(sandbox) {
                Some(Record { via: Via::Bridge { .. }, .. }) => self.bridge().missing(sandbox, &links),
                // Plugins may do without a veth pair, and without a record nothing is known but that there was an interface.
                _ => match bridge::has_interface(netns) {
                    Ok(false) => Some(format!("its interface {POD_INTERFACE} is gone")),
                    // Its namespace may have just ended, which others notice.
                    Ok(true) | Err(_) => None,
                },
            };
            missing.extend(found.map(|what| (sandbox.clone(), what)));
        }
        Ok(missing)
    }

    /// The CNI network that is configured, if one is. Broken files are said once per change.
    fn configured(&self) -> Result<Option<(PathBuf, NetworkList)>, Error> {
        match cni::find(&self.settings.cni_conf_dir) {
            Found::Absent => Ok(None),
            Found::Usable { file, list, problems } => {
                for problem in problems {
                    self.said.once(&problem, || tracing::warn!(problem, "a CNI configuration is left out"));
                }
                Ok(Some((file, list)))
            }
            Found::Broken(problems) => {
                Err(Error::CniConfiguration { dir: self.settings.cni_conf_dir.clone(), problems })
            }
        }
    }

    fn bridge(&self) -> Bridge<'_> {
        Bridge { settings: &self.settings, store: &self.store, said: &self.said, rules: &self.rules }
    }

    fn cni(&self) -> Cni<'_> {
        Cni { settings: &self.settings, store: &self.store }
    }
}

// === impl Busy ===

impl Busy {
    /// Waits for the turn of a sandbox. Blocks; on a thread of its own.
    fn take(&self, sandbox: &str) -> Turn<'_> {
        let mut sandboxes = self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner);
        while !sandboxes.insert(sandbox.to_owned()) {
            sandboxes = self.changed.wait(sandboxes).unwrap_or_else(PoisonError::into_inner);
        }
        Turn { busy: self, sandbox: sandbox.to_owned() }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.busy.sandboxes.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.sandbox);
        self.busy.changed.notify_all();
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
