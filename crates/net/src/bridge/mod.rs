//! The built-in network: a bridge on the node, and a veth pair per pod with one end in it.
//!
//! Each step can be repeated. What a step leaves behind when the agent dies is found by the next attach, detach or
//! sweep: the record is written first and forgotten last, and the name of the host end follows from the sandbox's ID.

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
use crate::store::{Books, Progress, Record, Store, Via};
use crate::{
    Attached, Error, PodNetwork, PortMapping, Protocol, Settings, addresses, failpoint, listeners, ranges, sysctl,
    threads,
};

mod node;

pub(crate) use node::OnceSaid;

/// What the bridge works with. `rules` has the families in which the kernel has taken rules.
pub(crate) struct Bridge<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
    pub(crate) said: &'a OnceSaid,
    pub(crate) rules: &'a Mutex<BTreeSet<Family>>,
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

/// Somebody else's claim on one of the wanted ports.
fn first_clash(wanted: &[PortMapping], sandbox: &str, records: &[Record]) -> Option<Error> {
    let others = records.iter().filter(|other| other.sandbox != sandbox && matches!(other.via, Via::Bridge { .. }));
    others.flat_map(|other| other.ports.iter().map(move |port| (other, port))).find_map(|(other, held)| {
        let port = wanted.iter().find(|port| port.clashes(held))?;
        Some(Error::HostPortTaken { port: port.to_string(), holder: other.sandbox.clone() })
    })
}

/// The ports of all pods as rules.
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

/// Connections of before would keep leading elsewhere. Without the way to forget them they end by themselves.
fn forget_connections(ports: &[PortMapping]) {
    let udp = ports.iter().filter(|port| port.protocol == Protocol::Udp).map(|port| port.host_port).collect();
    if let Err(reason) = firewall::forget_udp(&udp) {
        tracing::warn!(reason, "UDP clients of host ports may be led to the pod of before for a while");
    }
}

/// Each port must lead somewhere.
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

/// Whether an interface of this namespace speaks IPv6. It takes no router advertisements either way: all routes are ours, and what
/// advertises itself on the bridge is a pod.
pub(super) fn switch_ipv6(interface: &str, on: bool) -> Result<(), Error> {
    let switch = |name: &str| format!("ipv6/conf/{interface}/{name}");
    if !on && !sysctl::exists(&switch("disable_ipv6")) {
        return Ok(());
    }
    sysctl::ensure(&switch("accept_ra"), "0")?;
    // The namespace's own switch for new interfaces may be off; addresses would be refused.
    sysctl::ensure(&switch("disable_ipv6"), if on { "0" } else { "1" })?;
    Ok(())
}

/// What may come in by the host end of each pod.
fn guarded(records: &[Record], links: &[Link]) -> Vec<Guarded> {
    let guard = |record: &Record| {
        let (interface, ips) = (names::host_end(&record.sandbox), record.bridge_ips());
        // A chain for an interface that is not there is refused, and all others with it.
        links.iter().find(|link| link.name == interface)?;
        let hardware_address = names::hardware_address(*ips.first()?);
        Some(Guarded { interface, hardware_address, ips: ips.to_vec(), sandbox: record.sandbox.clone() })
    };
    records.iter().filter_map(guard).collect()
}

/// The pod's side, inside its namespace.
async fn set_up_pod_side(ranges: &[IpNet], ips: &[IpAddr]) -> Result<(), Error> {
    let kernel = Kernel::open()?;
    let link = kernel.existing_link(POD_INTERFACE).await?;
    switch_ipv6(POD_INTERFACE, ips.iter().any(IpAddr::is_ipv6))?;
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
    /// Connects a pod. Blocks; on a thread of its own.
    pub(crate) fn attach(&self, pod: &PodNetwork) -> Result<Attached, Error> {
        threads::block_on(async {
            let kernel = Kernel::open()?;
            let books = self.store.lock()?;
            let ranges = self.ranges(&kernel, &books).await?;
            let mut record = match books.record(&pod.sandbox_id)? {
                Some(record) => Record { netns: pod.netns.clone(), ports: pod.forwarded(), ..record },
                // If the books are lost, the interface still knows.
                None => {
                    let link = kernel.link(&names::host_end(&pod.sandbox_id)).await?;
                    let ips = link.map(|link| names::addresses_in(&link.alias)).unwrap_or_default();
                    Record::new(pod, Via::Bridge { ips })
                }
            };
            if let Some(clash) = first_clash(&record.ports, &record.sandbox, &books.records()?) {
                return Err(clash);
            }
            if let Some(ips) = self.settled(&kernel, &record).await? {
                check_families(&record.ports, &ips)?;
                books.write(&record)?;
                self.ensure_bridge(&kernel, &ranges, &books.records()?).await?;
                self.apply_rules(&kernel, &books, &books.records()?, &record.ports).await?;
                return Ok(Attached { ips, interface: POD_INTERFACE.to_owned() });
            }
            let families =
                [ranges.iter().any(|range| range.addr().is_ipv4()), ranges.iter().any(|range| range.addr().is_ipv6())];
            if let Some((port, holder)) = listeners::first_clash(&record.ports, families) {
                return Err(Error::HostPortInUse { port: port.to_string(), holder });
            }
            let links = kernel.links().await?;
            let seen: BTreeSet<IpAddr> = links.iter().flat_map(|link| names::addresses_in(&link.alias)).collect();
            record = books.reserve(&ranges, record, &seen)?;
            failpoint::pass("addresses reserved")?;
            let ips = record.bridge_ips().to_vec();
            check_families(&record.ports, &ips)?;

            let bridge = self.ensure_bridge(&kernel, &ranges, &books.records()?).await?;
            failpoint::pass("bridge made")?;
            self.plug_in(&kernel, &bridge, &record).await?;
            threads::inside(&pod.netns, || threads::block_on(set_up_pod_side(&ranges, &ips)))?;
            failpoint::pass("pod side set up")?;
            self.apply_rules(&kernel, &books, &books.records()?, &record.ports).await?;
            forget_connections(&record.ports);
            failpoint::pass("rules made")?;
            books.write(&Record { progress: Progress::Done, ..record })?;
            Ok(Attached { ips, interface: POD_INTERFACE.to_owned() })
        })
    }

    /// Disconnects a pod; the last one takes the bridge with it.
    pub(crate) fn detach(&self, sandbox: &str) -> Result<(), Error> {
        threads::block_on(async {
            let kernel = Kernel::open()?;
            let books = self.store.lock()?;
            if let Some(link) = kernel.link(&names::host_end(sandbox)).await? {
                kernel.delete(&link).await?;
            }
            failpoint::pass("link deleted")?;
            let ports = books.record(sandbox)?.map(|record| record.ports);
            let mut left = books.records()?;
            left.retain(|record| record.sandbox != sandbox && matches!(record.via, Via::Bridge { .. }));
            if left.is_empty() {
                self.remove_bridge(&kernel).await?;
            } else {
                self.apply_rules(&kernel, &books, &left, &[]).await?;
            }
            forget_connections(&ports.unwrap_or_default());
            failpoint::pass("rules removed")?;
            books.forget(sandbox)
        })
    }

    /// What is missing between the bridge and a sandbox, among all links of the node.
    pub(crate) fn missing(&self, sandbox: &str, links: &[Link]) -> Option<String> {
        let (bridge, host_end) = (&self.settings.bridge, names::host_end(sandbox));
        let named = |name: &str| links.iter().find(|link| link.name == name);
        match (named(bridge), named(&host_end)) {
            (None, _) => Some(format!("the bridge {bridge} is gone")),
            (_, None) => Some(format!("its interface {host_end} is gone")),
            (Some(bridge), Some(link)) if link.controller == Some(bridge.index) => None,
            (Some(_), Some(_)) => Some(format!("its interface {host_end} is not in the bridge {bridge}")),
        }
    }

    /// Host ends in the bridge that belong to none of `live`.
    pub(crate) fn sweep_links(&self, live: &BTreeSet<String>) -> Result<(), Error> {
        let wanted: BTreeSet<String> = live.iter().map(|sandbox| names::host_end(sandbox)).collect();
        threads::block_on(async {
            let kernel = Kernel::open()?;
            let books = self.store.lock()?;
            let Some(bridge) = kernel.link(&self.settings.bridge).await? else { return Ok(()) };
            for link in kernel.links().await? {
                let ours = link.controller == Some(bridge.index) && names::is_host_end(&link.name);
                if ours && !wanted.contains(&link.name) {
                    tracing::info!(
                        link = link.name,
                        alias = link.alias,
                        "deleting the interface of a pod that is gone"
                    );
                    kernel.delete(&link).await?;
                }
            }
            let mut left = books.records()?;
            left.retain(|record| matches!(record.via, Via::Bridge { .. }));
            match left.is_empty() {
                true => self.remove_bridge(&kernel).await,
                false => self.apply_rules(&kernel, &books, &left, &[]).await,
            }
        })
    }

    /// The ranges in use: those of the settings, else the one chosen before, else a new choice.
    pub(crate) async fn ranges(&self, kernel: &Kernel, books: &Books) -> Result<Vec<IpNet>, Error> {
        if !self.settings.ranges.is_empty() {
            books.remember_ranges(&self.settings.ranges)?;
            return Ok(self.settings.ranges.clone());
        }
        let own = kernel.link(&self.settings.bridge).await?.map(|link| link.index);
        let routes = kernel.routes().await?;
        let routes: Vec<IpNet> = routes
            .iter()
            .filter(|route| route.through.is_none() || route.through != own)
            .map(|route| route.to)
            .collect();
        let before = books.cursors()?.iter().map(|cursor| cursor.range).find(|range| range.addr().is_ipv4());
        let in_use = books.records()?.iter().any(|record| !record.bridge_ips().is_empty());
        let range = ranges::choose(before, in_use, &routes)?;
        if ranges::collides(&range, &routes) {
            self.said.once(&format!("{range}"), || {
                tracing::warn!(%range, "a route of this host overlaps the range of running pods");
            });
        }
        books.remember_ranges(&[range])?;
        Ok(vec![range])
    }

    /// Lets the node reach host ports by its loopback address. Only behind the rule that keeps pods from doing the same.
    fn route_loopback(&self, wanted: bool) {
        let switch = format!("ipv4/conf/{}/route_localnet", self.settings.bridge);
        if let Err(error) = sysctl::ensure(&switch, if wanted { "1" } else { "0" }) {
            self.said.once(&switch, || tracing::warn!(%error, "host ports are not reached by 127.0.0.1"));
        }
    }

    /// The addresses of a pod that has all it needs. It keeps them, also when the ranges of the settings have changed.
    async fn settled(&self, kernel: &Kernel, record: &Record) -> Result<Option<Vec<IpAddr>>, Error> {
        let ips = record.bridge_ips();
        if record.progress != Progress::Done || ips.is_empty() {
            return Ok(None);
        }
        let Some(link) = kernel.link(&names::host_end(&record.sandbox)).await? else { return Ok(None) };
        let named = link.up && link.controller.is_some() && link.alias == names::alias(&record.sandbox, ips);
        Ok((named && self.is_whole(&link, &record.netns)?).then(|| ips.to_vec()))
    }

    /// The pair, in place and up. One that is there and whole is left alone, so that connections live on.
    async fn plug_in(&self, kernel: &Kernel, bridge: &Link, record: &Record) -> Result<(), Error> {
        let host_end = names::host_end(&record.sandbox);
        let alias = names::alias(&record.sandbox, record.bridge_ips());
        if let Some(link) = kernel.link(&host_end).await? {
            if self.is_whole(&link, &record.netns)? && (link.alias == alias || link.alias.is_empty()) {
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
            mtu: bridge.mtu.unwrap_or(node::USUAL_MTU),
        };
        kernel.add_pair(pair).await?;
        failpoint::pass("pair made")?;
        // The bridge speaks for the node; its ports need no addresses.
        switch_ipv6(&host_end, false)?;
        kernel.set_up_port(&kernel.existing_link(&host_end).await?, &alias).await?;
        failpoint::pass("host end set up")
    }

    /// Whether the other end of a link is the interface of the pod in this namespace: each names the other.
    fn is_whole(&self, link: &Link, netns: &Path) -> Result<bool, Error> {
        let inner = threads::inside(netns, || threads::block_on(async { Kernel::open()?.link(POD_INTERFACE).await }))?;
        Ok(inner.is_some_and(|inner| link.peer == Some(inner.index) && inner.peer == Some(link.index)))
    }

    /// Puts the rules back if another program removed them.
    pub(crate) fn restore_rules(&self) -> Result<(), Error> {
        threads::block_on(async {
            let kernel = Kernel::open()?;
            let books = self.store.lock()?;
            let mut records = books.records()?;
            records.retain(|record| matches!(record.via, Via::Bridge { .. }));
            let there = firewall::tables(&self.settings.bridge).unwrap_or_default();
            if records.is_empty() || there.is_superset(&self.made()) {
                return Ok(());
            }
            // Closed first: without the guard, pods would reach the loopback services of the node.
            self.route_loopback(false);
            tracing::warn!(bridge = self.settings.bridge, "another program removed the packet rules; restoring them");
            self.apply_rules(&kernel, &books, &records, &[]).await
        })
    }

    fn made(&self) -> MutexGuard<'_, BTreeSet<Family>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps each pod to its own addresses. A kernel that cannot do that runs pods all the same, and the log says so.
    async fn keep_to_own_addresses(&self, kernel: &Kernel, records: &[Record]) -> Result<(), Error> {
        // An interface may go between the look and the rules: its pod has just ended.
        let mut refused = String::new();
        for _ in 0..3 {
            let ports = guarded(records, &kernel.links().await?);
            match firewall::guard(&self.settings.bridge, &ports) {
                Ok(()) => {
                    self.made().insert(Family::Netdev);
                    return Ok(());
                }
                Err(reason) => refused = reason,
            }
        }
        self.said.once("no guard", || {
            tracing::warn!(reason = refused, "pods are not kept from sending with the addresses of other pods");
        });
        Ok(())
    }

    /// The rules for all pods. Without them pods only lack the way out; a pod with host ports lacks what it asked for.
    async fn apply_rules(
        &self,
        kernel: &Kernel,
        books: &Books,
        records: &[Record],
        wanted: &[PortMapping],
    ) -> Result<(), Error> {
        self.keep_to_own_addresses(kernel, records).await?;
        // Also those of before that pods still live in.
        let ranges: Vec<IpNet> = books.cursors()?.iter().map(|cursor| cursor.range).collect();
        let forwards = forwards(records);
        match firewall::apply(&self.settings.bridge, &ranges, &forwards) {
            Ok(()) => {
                self.made().extend(ranges.iter().map(|range| Family::of(range.addr())));
                self.route_loopback(forwards.iter().any(|forward| forward.to.is_ipv4()));
                Ok(())
            }
            Err(reason) if !wanted.is_empty() => Err(Error::HostPortUnsupported { reason }),
            Err(reason) => {
                self.said.once("no rules", || {
                    tracing::warn!(reason, "pods reach the node and each other, but nothing outside of it");
                });
                Ok(())
            }
        }
    }
}
