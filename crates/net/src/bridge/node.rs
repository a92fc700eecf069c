//! The node's side: the bridge itself, and the switches that let packets through.

use std::collections::BTreeSet;
use std::sync::Mutex;

use ipnet::IpNet;

use super::Bridge;
use crate::kernel::{Kernel, Link};
use crate::store::Record;
use crate::{Error, addresses, firewall, names, sysctl};

/// What Ethernet has, for hosts without a default route.
pub(super) const USUAL_MTU: u32 = 1500;

/// Things that are said once per agent, not once per pod.
#[derive(Debug, Default)]
pub(crate) struct OnceSaid(Mutex<BTreeSet<String>>);

/// The MTU of the interface that the default route uses.
async fn outward_mtu(kernel: &Kernel) -> Result<u32, Error> {
    let routes = kernel.routes().await?;
    let through = routes.iter().find(|route| route.to.prefix_len() == 0).and_then(|route| route.through);
    let outward = match through {
        Some(index) => kernel.link_at(index).await?,
        None => None,
    };
    Ok(outward.and_then(|link| link.mtu).unwrap_or(USUAL_MTU))
}

// === impl Bridge ===

impl Bridge<'_> {
    /// The bridge, up, with the first address of each range.
    pub(super) async fn ensure_bridge(
        &self,
        kernel: &Kernel,
        ranges: &[IpNet],
        records: &[Record],
    ) -> Result<Link, Error> {
        let name = &self.settings.bridge;
        let gateways: Vec<IpNet> =
            ranges.iter().filter_map(|range| IpNet::new(addresses::gateway(*range), range.prefix_len()).ok()).collect();
        let mtu = match self.settings.mtu {
            Some(mtu) => mtu,
            None => outward_mtu(kernel).await?,
        };
        let mut link = match kernel.link(name).await? {
            Some(link) if !link.is_bridge => return Err(Error::NotABridge { name: name.clone() }),
            Some(link) => link,
            None => {
                let hardware_address = gateways
                    .first()
                    .map_or([0x0a, 0x6b, 0, 0, 0, 1], |gateway| names::hardware_address(gateway.addr()));
                kernel.add_bridge(name, hardware_address, mtu).await?;
                tracing::info!(bridge = name, mtu, "made the bridge for pods");
                kernel.existing_link(name).await?
            }
        };
        let speaks_ipv6 = gateways.iter().any(|gateway| gateway.addr().is_ipv6())
            || records.iter().flat_map(Record::bridge_ips).any(std::net::IpAddr::is_ipv6);
        super::switch_ipv6(name, speaks_ipv6)?;
        if !link.up {
            kernel.set_up(&link).await?;
        }
        // Said apart from making it: else the kernel changes it with what is plugged in.
        kernel.set_mtu(&link, mtu).await?;
        link.mtu = Some(mtu);
        self.address_bridge(kernel, &link, &gateways, records).await?;
        self.let_packets_through(ranges)?;
        Ok(link)
    }

    /// Gives the bridge its addresses. Those of ranges of before go when no pod needs them any more.
    async fn address_bridge(
        &self,
        kernel: &Kernel,
        link: &Link,
        gateways: &[IpNet],
        records: &[Record],
    ) -> Result<(), Error> {
        let current = kernel.addresses(link).await?;
        for gateway in gateways.iter().filter(|gateway| !current.contains(gateway)) {
            kernel.add_address(link, *gateway).await?;
        }
        let in_use = |net: &IpNet| records.iter().flat_map(Record::bridge_ips).any(|ip| net.contains(ip));
        for old in current.iter().filter(|net| !gateways.contains(net) && !in_use(net)) {
            tracing::info!(bridge = link.name, address = %old, "taking an address of an old range from the bridge");
            kernel.delete_address(link, *old).await?;
        }
        Ok(())
    }

    /// Turns on forwarding, without which the node drops what pods send beyond it.
    fn let_packets_through(&self, ranges: &[IpNet]) -> Result<(), Error> {
        let switches = [(true, "ipv4/ip_forward"), (false, "ipv6/conf/all/forwarding")];
        for (is_ipv4, switch) in switches {
            if !ranges.iter().any(|range| range.addr().is_ipv4() == is_ipv4) {
                continue;
            }
            if !sysctl::exists(switch) {
                let problem = "this kernel does not have the address family".to_owned();
                let value = ranges.iter().map(IpNet::to_string).collect::<Vec<_>>().join(", ");
                return Err(Error::Setting { field: "ranges", value, problem });
            }
            match sysctl::ensure(switch, "1") {
                Ok(true) => tracing::info!(switch, "turned on forwarding, so that pods reach beyond this node"),
                Ok(false) => {}
                Err(error) => self.said.once(switch, || {
                    tracing::warn!(%error, "forwarding is off: pods do not reach beyond this node");
                }),
            }
        }
        Ok(())
    }

    /// Removes the bridge and its rules, unless somebody else plugged something in.
    pub(super) async fn remove_bridge(&self, kernel: &Kernel) -> Result<(), Error> {
        self.made().clear();
        if let Err(reason) = firewall::clear(&self.settings.bridge) {
            tracing::debug!(reason, "no rules to remove");
        }
        let Some(link) = kernel.link(&self.settings.bridge).await? else { return Ok(()) };
        let plugged_in = kernel.links().await?.iter().any(|port| port.controller == Some(link.index));
        if plugged_in || !link.is_bridge { Ok(()) } else { kernel.delete(&link).await }
    }
}

// === impl OnceSaid ===

impl OnceSaid {
    /// Says it if it was not said yet.
    pub(crate) fn once(&self, about: &str, say: impl FnOnce()) {
        let new = self.0.lock().map(|mut said| said.insert(about.to_owned())).unwrap_or(true);
        if new {
            say();
        }
    }
}
