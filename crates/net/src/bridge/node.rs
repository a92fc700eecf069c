//! The node's side: the bridge itself, and IP forwarding.

use std::collections::BTreeSet;
use std::sync::Mutex;

use ipnet::IpNet;

use super::Bridge;
use crate::kernel::{Kernel, Link};
use crate::store::Record;
use crate::{Error, addresses, firewall, names, sysctl};

/// The MTU of Ethernet, for nodes without a default route.
pub(super) const DEFAULT_MTU: u32 = 1500;

/// Log lines that appear once per agent, not once per pod.
#[derive(Debug, Default)]
pub(crate) struct LogOnce(Mutex<BTreeSet<String>>);

/// The MTU of the interface that the default route uses.
async fn uplink_mtu(kernel: &Kernel) -> Result<u32, Error> {
    let routes = kernel.routes().await?;
    let through = routes.iter().find(|route| route.to.prefix_len() == 0).and_then(|route| route.through);
    let uplink = match through {
        Some(index) => kernel.link_at(index).await?,
        None => None,
    };
    Ok(uplink.and_then(|link| link.mtu).unwrap_or(DEFAULT_MTU))
}

// === impl Bridge ===

impl Bridge<'_> {
    /// Creates the bridge if it is missing, with the first address of each range, and sets it up.
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
            None => uplink_mtu(kernel).await?,
        };
        let mut link = match kernel.link(name).await? {
            Some(link) if !link.is_bridge => return Err(Error::NotABridge { name: name.clone() }),
            Some(link) => link,
            None => {
                let hardware_address = gateways
                    .first()
                    .map_or([0x0a, 0x6b, 0, 0, 0, 1], |gateway| names::hardware_address(gateway.addr()));
                kernel.add_bridge(name, hardware_address, mtu).await?;
                tracing::info!(bridge = name, mtu, "created bridge");
                kernel.existing_link(name).await?
            }
        };
        let has_ipv6 = gateways.iter().any(|gateway| gateway.addr().is_ipv6())
            || records.iter().flat_map(Record::bridge_ips).any(std::net::IpAddr::is_ipv6);
        super::set_ipv6(name, has_ipv6)?;
        // Also on a bridge that an earlier version created.
        if let Some(alias) = self.settings.owner.as_deref().and_then(names::bridge_alias)
            && link.alias != alias
        {
            kernel.set_alias(&link, &alias).await?;
        }
        if !link.up {
            kernel.set_up(&link).await?;
        }
        // Set explicitly: otherwise the kernel derives it from the ports.
        kernel.set_mtu(&link, mtu).await?;
        link.mtu = Some(mtu);
        self.address_bridge(kernel, &link, &gateways, records).await?;
        self.enable_forwarding(ranges)?;
        Ok(link)
    }

    /// Sets the addresses of the bridge. Those of former ranges are removed when no pod needs them any more.
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
            tracing::info!(bridge = link.name, address = %old, "removing address of former range from bridge");
            kernel.delete_address(link, *old).await?;
        }
        Ok(())
    }

    /// Enables forwarding, without which pods reach nothing outside the node.
    fn enable_forwarding(&self, ranges: &[IpNet]) -> Result<(), Error> {
        let sysctls = [(true, "ipv4/ip_forward"), (false, "ipv6/conf/all/forwarding")];
        for (is_ipv4, sysctl) in sysctls {
            if !ranges.iter().any(|range| range.addr().is_ipv4() == is_ipv4) {
                continue;
            }
            if !sysctl::exists(sysctl) {
                let problem = "the kernel does not support the address family".to_owned();
                let value = ranges.iter().map(IpNet::to_string).collect::<Vec<_>>().join(", ");
                return Err(Error::Setting { field: "ranges", value, problem });
            }
            match sysctl::ensure(sysctl, "1") {
                Ok(true) => tracing::info!(sysctl, "enabled IP forwarding"),
                Ok(false) => {}
                Err(error) => self.log_once.log(sysctl, || {
                    tracing::warn!(%error, "cannot enable IP forwarding: pods cannot reach hosts outside the node");
                }),
            }
        }
        Ok(())
    }

    /// Removes the bridge and its rules, unless it has a port.
    pub(crate) async fn remove_idle_bridge(&self, kernel: &Kernel) -> Result<bool, Error> {
        let Some(link) = kernel.link(&self.settings.bridge).await? else { return Ok(true) };
        if kernel.links().await?.iter().any(|port| port.controller == Some(link.index)) {
            return Ok(false);
        }
        self.remove_bridge(kernel).await?;
        Ok(true)
    }

    /// Removes the bridge and its rules, unless another program has added a port.
    pub(super) async fn remove_bridge(&self, kernel: &Kernel) -> Result<(), Error> {
        self.applied().clear();
        if let Err(error) = firewall::clear(&self.settings.bridge) {
            tracing::debug!(%error, "cannot remove packet rules");
        }
        let Some(link) = kernel.link(&self.settings.bridge).await? else { return Ok(()) };
        let has_ports = kernel.links().await?.iter().any(|port| port.controller == Some(link.index));
        if has_ports || !link.is_bridge { Ok(()) } else { kernel.delete(&link).await }
    }
}

// === impl LogOnce ===

impl LogOnce {
    /// Logs unless this key was logged before.
    pub(crate) fn log(&self, key: &str, log: impl FnOnce()) {
        let is_new = self.0.lock().map(|mut keys| keys.insert(key.to_owned())).unwrap_or(true);
        if is_new {
            log();
        }
    }
}
