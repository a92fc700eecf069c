//! The built-in network: a bridge on the node, and a veth pair per pod.
//!
//! Each step is idempotent. What a crash leaves behind is found by the next attach, detach or sweep: the record is written first and removed
//! last, and the name of the host end is derived from the sandbox ID.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;

use crate::firewall::{self, Family, Forward, Guarded};
use crate::kernel::{Kernel, Link, Pair};
use crate::names::{self, POD_INTERFACE};
use crate::store::{LockedStore, Progress, Record, Store, Via};
use crate::{
    Attached, Error, PodNetwork, PortMapping, Protocol, Settings, addresses, failpoint, listeners, ranges, sysctl,
    threads,
};

mod node;

pub(crate) use node::LogOnce;

/// The bridge of a node. `rules` has the families in which the kernel has accepted rules, `closed` the indexes of host ends that have the
/// filter of [`crate::loopback`]: the kernel does not use an index twice.
pub(crate) struct Bridge<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
    pub(crate) log_once: &'a LogOnce,
    pub(crate) rules: &'a Mutex<BTreeSet<Family>>,
    pub(crate) closed: &'a Mutex<BTreeSet<u32>>,
}

/// Brings up the loopback interface of a namespace.
pub(crate) fn loopback(netns: &Path) -> Result<(), Error> {
    threads::inside(netns, || {
        threads::block_on(async {
            let kernel = Kernel::open()?;
            let link = kernel.existing_link("lo").await?;
            if link.up { Ok(()) } else { kernel.set_up(&link).await }
        })
    })
}

/// Whether a namespace has the interface of a pod.
pub(crate) fn has_interface(netns: &Path) -> Result<bool, Error> {
    threads::inside(netns, || threads::block_on(async { Ok(Kernel::open()?.link(POD_INTERFACE).await?.is_some()) }))
}

/// The first of the wanted ports that another sandbox uses.
fn first_conflict(wanted: &[PortMapping], sandbox: &str, records: &[Record]) -> Option<Error> {
    let others = records.iter().filter(|other| other.sandbox != sandbox && matches!(other.via, Via::Bridge { .. }));
    others.flat_map(|other| other.ports.iter().map(move |port| (other, port))).find_map(|(other, held)| {
        let port = wanted.iter().find(|port| port.conflicts_with(held))?;
        Some(Error::HostPortTaken { port: port.to_string(), holder: other.sandbox.clone() })
    })
}

/// The forwarding rules of all pods.
fn forwards(records: &[Record]) -> Vec<Forward> {
    let mut forwards = Vec::new();
    for record in records {
        for port in &record.ports {
            for ip in record.bridge_ips().iter().filter(|ip| port.serves(**ip)) {
                forwards.push(Forward { port: port.clone(), to: *ip, sandbox: record.sandbox.clone() });
            }
        }
    }
    forwards
}

/// The address ranges, also former ones in which pods still have addresses.
fn former_and_present(store: &LockedStore) -> Result<Vec<IpNet>, Error> {
    Ok(store.cursors()?.iter().map(|cursor| cursor.range).collect())
}

/// Deletes tracked UDP connections, which would keep leading to the pod before. If that fails they expire.
fn delete_connections(ports: &[PortMapping]) {
    let udp = ports.iter().filter(|port| port.protocol == Protocol::Udp).map(|port| port.host_port).collect();
    if let Err(error) = firewall::delete_udp(&udp) {
        tracing::warn!(%error, "cannot delete tracked UDP connections; clients of host ports may reach a deleted pod until they expire");
    }
}

/// Checks that the pod has an address of the family of each port.
fn check_families(ports: &[PortMapping], ips: &[IpAddr]) -> Result<(), Error> {
    for port in ports {
        if let Some(host_ip) = port.host_ip
            && !ips.iter().any(|ip| port.serves(*ip))
        {
            let port = format!("{}/{}", port.host_port, port.protocol);
            return Err(Error::HostPortFamily { port, host_ip });
        }
    }
    Ok(())
}

/// Enables or disables IPv6 on an interface of this namespace. Router advertisements are always disabled: all routes are ours, and only
/// pods could send them on the bridge.
pub(super) fn set_ipv6(interface: &str, on: bool) -> Result<(), Error> {
    let sysctl_of = |name: &str| format!("ipv6/conf/{interface}/{name}");
    if !on && !sysctl::exists(&sysctl_of("disable_ipv6")) {
        return Ok(());
    }
    sysctl::ensure(&sysctl_of("accept_ra"), "0")?;
    // The default for new interfaces may be disabled, so that addresses would be refused.
    sysctl::ensure(&sysctl_of("disable_ipv6"), if on { "0" } else { "1" })?;
    Ok(())
}

/// The allowed addresses on the host end of each pod.
fn guarded(records: &[Record], links: &[Link]) -> Vec<Guarded> {
    let guard = |record: &Record| {
        let (interface, ips) = (names::host_end(&record.sandbox), record.bridge_ips());
        // The kernel refuses a chain for a missing interface, and the whole batch with it.
        links.iter().find(|link| link.name == interface)?;
        let hardware_address = names::hardware_address(*ips.first()?);
        Some(Guarded { interface, hardware_address, ips: ips.to_vec(), sandbox: record.sandbox.clone() })
    };
    records.iter().filter_map(guard).collect()
}

/// Sets up the pod's end, inside its namespace.
async fn set_up_pod_end(ranges: &[IpNet], ips: &[IpAddr]) -> Result<(), Error> {
    let kernel = Kernel::open()?;
    let link = kernel.existing_link(POD_INTERFACE).await?;
    set_ipv6(POD_INTERFACE, ips.iter().any(IpAddr::is_ipv6))?;
    let places = || ips.iter().filter_map(|ip| Some((*ip, *ranges.iter().find(|range| range.contains(ip))?)));
    for (ip, range) in places() {
        let address = IpNet::new(ip, range.prefix_len()).unwrap_or(range);
        kernel.add_address(&link, address).await?;
    }
    kernel.set_up(&link).await?;
    for (_, range) in places() {
        kernel.set_default_route(&link, addresses::gateway(range)).await?;
    }
    Ok(())
}

// === impl Bridge ===

impl Bridge<'_> {
    /// Attaches a sandbox. Blocks; runs on a thread of its own.
    pub(crate) fn attach(&self, pod: &PodNetwork) -> Result<Attached, Error> {
        threads::block_on(async {
            let kernel = Kernel::open()?;
            let store = self.store.lock()?;
            let ranges = self.ranges(&kernel, &store).await?;
            let mut record = match store.record(&pod.sandbox_id)? {
                Some(record) => Record { netns: pod.netns.clone(), ports: pod.forwarded(), ..record },
                // If the record is lost, the alias of the interface has the addresses.
                None => {
                    let link = kernel.link(&names::host_end(&pod.sandbox_id)).await?;
                    let ips = link.map(|link| names::addresses_in(&link.alias)).unwrap_or_default();
                    Record::new(pod, Via::Bridge { ips })
                }
            };
            if let Some(conflict) = first_conflict(&record.ports, &record.sandbox, &store.records()?) {
                return Err(conflict);
            }
            if let Some(ips) = self.attached(&kernel, &record).await? {
                check_families(&record.ports, &ips)?;
                store.write(&record)?;
                self.ensure_bridge(&kernel, &ranges, &store.records()?).await?;
                self.apply_rules(&kernel, &store, &store.records()?, &record.ports).await?;
                return Ok(Attached { ips, interface: POD_INTERFACE.to_owned() });
            }
            let families =
                [ranges.iter().any(|range| range.addr().is_ipv4()), ranges.iter().any(|range| range.addr().is_ipv6())];
            if let Some((port, holder)) = listeners::first_conflict(&record.ports, families) {
                return Err(Error::HostPortInUse { port: port.to_string(), holder });
            }
            let links = kernel.links().await?;
            let seen: BTreeSet<IpAddr> = links.iter().flat_map(|link| names::addresses_in(&link.alias)).collect();
            record = store.reserve(&ranges, record, &seen)?;
            failpoint::pass("addresses reserved")?;
            let ips = record.bridge_ips().to_vec();
            check_families(&record.ports, &ips)?;

            let bridge = self.ensure_bridge(&kernel, &ranges, &store.records()?).await?;
            failpoint::pass("bridge made")?;
            self.ensure_pair(&kernel, &bridge, &record).await?;
            threads::inside(&pod.netns, || threads::block_on(set_up_pod_end(&ranges, &ips)))?;
            failpoint::pass("pod side set up")?;
            self.apply_rules(&kernel, &store, &store.records()?, &record.ports).await?;
            delete_connections(&record.ports);
            failpoint::pass("rules made")?;
            store.write(&Record { progress: Progress::Done, ..record })?;
            Ok(Attached { ips, interface: POD_INTERFACE.to_owned() })
        })
    }

    /// Detaches a sandbox; the bridge is removed with the last one.
    pub(crate) fn detach(&self, sandbox: &str) -> Result<(), Error> {
        threads::block_on(async {
            let kernel = Kernel::open()?;
            let store = self.store.lock()?;
            if let Some(link) = kernel.link(&names::host_end(sandbox)).await? {
                kernel.delete(&link).await?;
            }
            failpoint::pass("link deleted")?;
            let ports = store.record(sandbox)?.map(|record| record.ports);
            let mut left = store.records()?;
            left.retain(|record| record.sandbox != sandbox && matches!(record.via, Via::Bridge { .. }));
            if left.is_empty() {
                self.remove_bridge(&kernel).await?;
            } else {
                self.apply_rules(&kernel, &store, &left, &[]).await?;
            }
            delete_connections(&ports.unwrap_or_default());
            failpoint::pass("rules removed")?;
            store.forget(sandbox)
        })
    }

    /// What is missing of a sandbox among all links of the node, for people.
    pub(crate) fn missing(&self, sandbox: &str, links: &[Link]) -> Option<String> {
        let (bridge, host_end) = (&self.settings.bridge, names::host_end(sandbox));
        let named = |name: &str| links.iter().find(|link| link.name == name);
        match (named(bridge), named(&host_end)) {
            (None, _) => Some(format!("bridge {bridge} is missing")),
            (_, None) => Some(format!("interface {host_end} is missing")),
            (Some(bridge), Some(link)) if link.controller == Some(bridge.index) => None,
            (Some(_), Some(_)) => Some(format!("interface {host_end} is not in the bridge {bridge}")),
        }
    }

    /// Removes host ends in the bridge that belong to none of `live`.
    pub(crate) fn sweep_links(&self, live: &BTreeSet<String>) -> Result<(), Error> {
        let wanted: BTreeSet<String> = live.iter().map(|sandbox| names::host_end(sandbox)).collect();
        threads::block_on(async {
            let kernel = Kernel::open()?;
            let store = self.store.lock()?;
            let Some(bridge) = kernel.link(&self.settings.bridge).await? else { return Ok(()) };
            for link in kernel.links().await? {
                let ours = link.controller == Some(bridge.index) && names::is_host_end(&link.name);
                if ours && !wanted.contains(&link.name) {
                    tracing::info!(link = link.name, alias = link.alias, "removing interface of deleted sandbox");
                    kernel.delete(&link).await?;
                }
            }
            let mut left = store.records()?;
            left.retain(|record| matches!(record.via, Via::Bridge { .. }));
            match left.is_empty() {
                true => self.remove_bridge(&kernel).await,
                false => self.apply_rules(&kernel, &store, &left, &[]).await,
            }
        })
    }

    /// The ranges in use: the configured ones, else the one chosen before, else a new choice.
    pub(crate) async fn ranges(&self, kernel: &Kernel, store: &LockedStore) -> Result<Vec<IpNet>, Error> {
        if !self.settings.ranges.is_empty() {
            store.store_ranges(&self.settings.ranges)?;
            return Ok(self.settings.ranges.clone());
        }
        let own = kernel.link(&self.settings.bridge).await?.map(|link| link.index);
        let routes = kernel.routes().await?;
        let routes: Vec<IpNet> = routes
            .iter()
            .filter(|route| route.through.is_none() || route.through != own)
            .map(|route| route.to)
            .collect();
        let before = store.cursors()?.iter().map(|cursor| cursor.range).find(|range| range.addr().is_ipv4());
        let in_use = store.records()?.iter().any(|record| !record.bridge_ips().is_empty());
        let range = ranges::choose(before, in_use, &routes)?;
        if ranges::overlaps(&range, &routes) {
            self.log_once.log(&format!("{range}"), || {
                tracing::warn!(%range, "a route of this node overlaps the address range of running pods");
            });
        }
        store.store_ranges(&[range])?;
        Ok(vec![range])
    }

    /// Enables or disables routing of loopback addresses on the bridge, so that the node reaches host ports by its loopback address. Only
    /// while every host end has the filter that keeps its pod from using it.
    async fn route_loopback(&self, kernel: &Kernel, wanted: bool) -> Result<(), Error> {
        let mut closed = true;
        if wanted {
            let links = kernel.links().await?;
            let bridge = links.iter().find(|link| link.name == self.settings.bridge).map(|link| link.index);
            for link in links.iter().filter(|link| link.controller == bridge && names::is_host_end(&link.name)) {
                closed &= self.close_loopback(kernel, link).await;
            }
        }
        self.set_route_localnet(wanted && closed);
        Ok(())
    }

    fn set_route_localnet(&self, on: bool) {
        let sysctl = format!("ipv4/conf/{}/route_localnet", self.settings.bridge);
        if let Err(error) = sysctl::ensure(&sysctl, if on { "1" } else { "0" }) {
            self.log_once.log(&sysctl, || tracing::warn!(%error, "host ports are not reachable at 127.0.0.1"));
        }
    }

    /// Whether a host end has its filter now.
    async fn close_loopback(&self, kernel: &Kernel, link: &Link) -> bool {
        let closed = || self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if closed().contains(&link.index) {
            return true;
        }
        match kernel.close_loopback(link).await {
            Ok(()) => closed().insert(link.index),
            Err(error) => {
                self.log_once.log("no filter", || {
                    tracing::warn!(%error, "host ports are not reachable at 127.0.0.1: pods could reach loopback services of this node");
                });
                false
            }
        }
    }

    /// The addresses of a sandbox that is attached completely. It keeps them, also when the configured ranges have changed.
    async fn attached(&self, kernel: &Kernel, record: &Record) -> Result<Option<Vec<IpAddr>>, Error> {
        let ips = record.bridge_ips();
        if record.progress != Progress::Done || ips.is_empty() {
            return Ok(None);
        }
        let Some(link) = kernel.link(&names::host_end(&record.sandbox)).await? else { return Ok(None) };
        let named = link.up && link.controller.is_some() && link.alias == names::alias(&record.sandbox, ips);
        Ok((named && self.is_complete(&link, &record.netns)?).then(|| ips.to_vec()))
    }

    /// Creates the veth pair and sets it up. A complete pair is kept, so that connections survive.
    async fn ensure_pair(&self, kernel: &Kernel, bridge: &Link, record: &Record) -> Result<(), Error> {
        let host_end = names::host_end(&record.sandbox);
        let alias = names::alias(&record.sandbox, record.bridge_ips());
        if let Some(link) = kernel.link(&host_end).await? {
            if self.is_complete(&link, &record.netns)? && (link.alias == alias || link.alias.is_empty()) {
                if link.controller != Some(bridge.index) {
                    kernel.set_controller(&link, bridge.index).await?;
                }
                return kernel.set_up_port(&link, &alias).await;
            }
            kernel.delete(&link).await?;
        }
        let netns =
            File::open(&record.netns).map_err(|source| Error::Namespace { path: record.netns.clone(), source })?;
        let hardware_address =
            record.bridge_ips().first().copied().map_or([0x0a, 0x6b, 0, 0, 0, 0], names::hardware_address);
        let pair = Pair {
            host_end: &host_end,
            bridge: bridge.index,
            pod_end: POD_INTERFACE,
            netns: netns.as_fd(),
            hardware_address,
            mtu: bridge.mtu.unwrap_or(node::DEFAULT_MTU),
        };
        kernel.add_pair(pair).await?;
        failpoint::pass("pair made")?;
        // The bridge has the node's addresses; its ports need none.
        set_ipv6(&host_end, false)?;
        let link = kernel.existing_link(&host_end).await?;
        if !self.close_loopback(kernel, &link).await {
            self.set_route_localnet(false);
        }
        kernel.set_up_port(&link, &alias).await?;
        failpoint::pass("host end set up")
    }

    /// Whether the peer of a link is the pod's interface in this namespace.
    fn is_complete(&self, link: &Link, netns: &Path) -> Result<bool, Error> {
        let inner = threads::inside(netns, || threads::block_on(async { Kernel::open()?.link(POD_INTERFACE).await }))?;
        Ok(inner.is_some_and(|inner| link.peer == Some(inner.index) && inner.peer == Some(link.index)))
    }

    /// Restores the rules if another program removed some of them. Returns whether they are whole.
    pub(crate) fn restore_rules(&self) -> Result<bool, Error> {
        threads::block_on(async {
            let kernel = Kernel::open()?;
            let store = self.store.lock()?;
            let mut records = store.records()?;
            records.retain(|record| matches!(record.via, Via::Bridge { .. }));
            if records.is_empty() || self.has_rules(&kernel, &store, &records).await? {
                return Ok(true);
            }
            tracing::warn!(bridge = self.settings.bridge, "restoring packet rules that another program removed");
            self.apply_rules(&kernel, &store, &records, &[]).await?;
            self.has_rules(&kernel, &store, &records).await
        })
    }

    /// Whether all rules are there that the kernel has accepted before.
    async fn has_rules(&self, kernel: &Kernel, store: &LockedStore, records: &[Record]) -> Result<bool, Error> {
        let ports = guarded(records, &kernel.links().await?);
        let expected =
            firewall::expected(&self.settings.bridge, &ports, &former_and_present(store)?, &forwards(records));
        let found = firewall::rules(&self.settings.bridge).unwrap_or_default();
        let applied = self.applied();
        Ok(applied.iter().all(|family| expected.get(family).is_none_or(|rules| found.get(family) == Some(rules))))
    }

    fn applied(&self) -> MutexGuard<'_, BTreeSet<Family>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies source address validation. A kernel without support runs pods all the same, with a warning in the log.
    async fn validate_sources(&self, kernel: &Kernel, records: &[Record]) -> Result<(), Error> {
        // Retried: an interface may be removed between listing and applying, with its sandbox.
        let mut refused = None;
        for _ in 0..3 {
            let ports = guarded(records, &kernel.links().await?);
            match firewall::guard(&self.settings.bridge, &ports) {
                Ok(()) => {
                    self.applied().insert(Family::Netdev);
                    return Ok(());
                }
                Err(error) => refused = Some(error),
            }
        }
        if let Some(error) = refused {
            self.log_once.log("no guard", || {
                tracing::warn!(%error, "source addresses of pods are not validated: a pod can send with the address of another");
            });
        }
        Ok(())
    }

    /// Applies the rules of all pods. Without them pods reach nothing outside the node, which is logged; a pod with host ports fails.
    async fn apply_rules(
        &self,
        kernel: &Kernel,
        store: &LockedStore,
        records: &[Record],
        wanted: &[PortMapping],
    ) -> Result<(), Error> {
        self.validate_sources(kernel, records).await?;
        let ranges = former_and_present(store)?;
        let forwards = forwards(records);
        match firewall::apply(&self.settings.bridge, &ranges, &forwards) {
            Ok(()) => {
                self.applied().extend(ranges.iter().map(|range| Family::of(range.addr())));
                self.route_loopback(kernel, forwards.iter().any(|forward| forward.to.is_ipv4())).await
            }
            Err(error) if !wanted.is_empty() => Err(Error::HostPortUnsupported(error)),
            Err(error) => {
                self.log_once.log("no rules", || {
                    tracing::warn!(%error, "pods cannot reach hosts outside the node");
                });
                Ok(())
            }
        }
    }
}
