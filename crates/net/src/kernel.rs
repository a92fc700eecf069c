//! Links, addresses and routes through netlink. A [`Kernel`] acts in the network namespace of the thread that opened it.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use futures::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use rtnetlink::packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use rtnetlink::{
    Handle, LinkBridge, LinkBridgePort, LinkGetRequest, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder,
    new_connection,
};

use crate::Error;

/// A netlink connection, for use inside [`crate::threads::block_on`].
#[derive(Clone)]
pub(crate) struct Kernel {
    handle: Handle,
}

/// A network interface.
#[derive(Debug, Clone, Default)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) up: bool,
    pub(crate) is_bridge: bool,
    /// The index of the bridge that it is a port of.
    pub(crate) controller: Option<u32>,
    /// The index of its veth peer, in the namespace of the peer.
    pub(crate) peer: Option<u32>,
    pub(crate) alias: String,
    pub(crate) mtu: Option<u32>,
}

/// A veth pair to create.
pub(crate) struct Pair<'a> {
    pub(crate) host_end: &'a str,
    pub(crate) bridge: u32,
    pub(crate) pod_end: &'a str,
    pub(crate) netns: BorrowedFd<'a>,
    pub(crate) hardware_address: [u8; 6],
    pub(crate) mtu: u32,
}

/// A route.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) to: IpNet,
    pub(crate) through: Option<u32>,
}

fn is_code(error: &rtnetlink::Error, code: rustix::io::Errno) -> bool {
    matches!(error, rtnetlink::Error::NetlinkError(message) if message.raw_code() == -code.raw_os_error())
}

fn read_link(message: LinkMessage) -> Link {
    let mut link =
        Link { index: message.header.index, up: message.header.flags.contains(LinkFlags::Up), ..Link::default() };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::IfAlias(alias) => link.alias = alias,
            LinkAttribute::Controller(index) => link.controller = Some(index),
            LinkAttribute::Link(index) => link.peer = Some(index),
            LinkAttribute::Mtu(mtu) => link.mtu = Some(mtu),
            LinkAttribute::LinkInfo(infos) => {
                link.is_bridge = infos.iter().any(|info| matches!(info, LinkInfo::Kind(InfoKind::Bridge)));
            }
            _ => {}
        }
    }
    link
}

fn read_route(message: &RouteMessage) -> Option<Route> {
    if message.header.kind != RouteType::Unicast {
        return None;
    }
    let unspecified = match message.header.address_family {
        AddressFamily::Inet => IpAddr::from([0; 4]),
        AddressFamily::Inet6 => IpAddr::from([0; 16]),
        _ => return None,
    };
    let mut destination = unspecified;
    let mut through = None;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(ip)) => destination = IpAddr::V4(*ip),
            RouteAttribute::Destination(RouteAddress::Inet6(ip)) => destination = IpAddr::V6(*ip),
            RouteAttribute::Oif(index) => through = Some(*index),
            _ => {}
        }
    }
    let to = IpNet::new(destination, message.header.destination_prefix_length).ok()?;
    Some(Route { to, through })
}

fn read_address(message: &AddressMessage) -> Option<IpNet> {
    let ip = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(ip) => Some(*ip),
        _ => None,
    })?;
    IpNet::new(ip, message.header.prefix_len).ok()
}

// === impl Kernel ===

impl Kernel {
    /// Opens a connection in this thread's namespace. Needs a tokio runtime.
    pub(crate) fn open() -> Result<Kernel, Error> {
        let (connection, handle, _unasked) = new_connection().map_err(Error::Netlink)?;
        tokio::spawn(connection);
        Ok(Kernel { handle })
    }

    /// All interfaces.
    pub(crate) async fn links(&self) -> Result<Vec<Link>, Error> {
        let links = self.handle.link().get().execute().map_ok(read_link);
        links.try_collect().await.map_err(Error::kernel("list interfaces"))
    }

    /// An interface by name, if it exists.
    pub(crate) async fn link(&self, name: &str) -> Result<Option<Link>, Error> {
        self.one_link(self.handle.link().get().match_name(name), name).await
    }

    /// An interface by index, if it exists.
    pub(crate) async fn link_at(&self, index: u32) -> Result<Option<Link>, Error> {
        self.one_link(self.handle.link().get().match_index(index), &index.to_string()).await
    }

    async fn one_link(&self, request: LinkGetRequest, which: &str) -> Result<Option<Link>, Error> {
        let mut found = std::pin::pin!(request.execute());
        match found.try_next().await {
            Ok(message) => Ok(message.map(read_link)),
            Err(error) if is_code(&error, rustix::io::Errno::NODEV) => Ok(None),
            Err(error) => Err(Error::kernel(format!("read the interface {which}"))(error)),
        }
    }

    /// An interface that must exist.
    pub(crate) async fn existing_link(&self, name: &str) -> Result<Link, Error> {
        self.link(name).await?.ok_or_else(|| Error::NoInterface { name: name.to_owned() })
    }

    /// Creates a bridge with a fixed hardware address, which does not change with its ports.
    pub(crate) async fn add_bridge(&self, name: &str, hardware_address: [u8; 6], mtu: u32) -> Result<(), Error> {
        let bridge = LinkBridge::new(name).address(hardware_address.to_vec()).mtu(mtu).build();
        let created = self.handle.link().add(bridge).execute().await;
        created.map_err(Error::kernel(format!("create the bridge {name}")))
    }

    /// Creates a veth pair atomically: one end in the bridge, the other one in the pod under its final name.
    pub(crate) async fn add_pair(&self, pair: Pair<'_>) -> Result<(), Error> {
        let pod_end = LinkMessageBuilder::<LinkUnspec>::new()
            .name(pair.pod_end)
            .address(pair.hardware_address.to_vec())
            .mtu(pair.mtu)
            .setns_by_fd(pair.netns.as_raw_fd())
            .build();
        let message = LinkMessageBuilder::<LinkVeth>::new_with_info_kind(InfoKind::Veth)
            .name(pair.host_end)
            .mtu(pair.mtu)
            .controller(pair.bridge)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(pod_end)))
            .build();
        let created = self.handle.link().add(message).execute().await;
        created.map_err(Error::kernel(format!("create the veth pair {} and {}", pair.host_end, pair.pod_end)))
    }

    /// Sets the alias of a host end, and lets a pod reach itself through the node (hairpin).
    pub(crate) async fn set_up_port(&self, link: &Link, alias: &str) -> Result<(), Error> {
        let doing = || format!("set up the bridge port {}", link.name);
        let port = LinkBridgePort::new(link.index).hairpin(true).build();
        self.handle.link().change(port).execute().await.map_err(Error::kernel(doing()))?;
        let named = LinkUnspec::new_with_index(link.index).alias(alias).up().build();
        self.handle.link().change(named).execute().await.map_err(Error::kernel(doing()))
    }

    /// Drops frames that the pod behind a host end sends to the loopback addresses of the node, whatever packet rules there are.
    pub(crate) async fn close_loopback(&self, link: &Link) -> Result<(), Error> {
        let closed = crate::loopback::close(&self.handle, link).await;
        closed.map_err(Error::kernel(format!("add the ingress filter to {}", link.name)))
    }

    pub(crate) async fn set_alias(&self, link: &Link, alias: &str) -> Result<(), Error> {
        let message = LinkUnspec::new_with_index(link.index).alias(alias).build();
        let set = self.handle.link().change(message).execute().await;
        set.map_err(Error::kernel(format!("set the alias of {} to {alias:?}", link.name)))
    }

    pub(crate) async fn set_controller(&self, link: &Link, bridge: u32) -> Result<(), Error> {
        let message = LinkUnspec::new_with_index(link.index).controller(bridge).build();
        let set = self.handle.link().change(message).execute().await;
        set.map_err(Error::kernel(format!("add {} to the bridge", link.name)))
    }

    pub(crate) async fn set_mtu(&self, link: &Link, mtu: u32) -> Result<(), Error> {
        let message = LinkUnspec::new_with_index(link.index).mtu(mtu).build();
        let set = self.handle.link().change(message).execute().await;
        set.map_err(Error::kernel(format!("set the MTU of {} to {mtu}", link.name)))
    }

    pub(crate) async fn set_up(&self, link: &Link) -> Result<(), Error> {
        let message = LinkUnspec::new_with_index(link.index).up().build();
        let set = self.handle.link().change(message).execute().await;
        set.map_err(Error::kernel(format!("bring up the interface {}", link.name)))
    }

    /// Deletes an interface with its peer. A missing interface is not an error.
    pub(crate) async fn delete(&self, link: &Link) -> Result<(), Error> {
        match self.handle.link().del(link.index).execute().await {
            Err(error) if is_code(&error, rustix::io::Errno::NODEV) => Ok(()),
            other => other.map_err(Error::kernel(format!("delete the interface {}", link.name))),
        }
    }

    /// The addresses of an interface, without link-local ones.
    pub(crate) async fn addresses(&self, link: &Link) -> Result<Vec<IpNet>, Error> {
        let found = self.handle.address().get().set_link_index_filter(link.index).execute();
        let found: Vec<AddressMessage> =
            found.try_collect().await.map_err(Error::kernel(format!("list addresses of {}", link.name)))?;
        let found = found.iter().filter(|message| message.header.index == link.index).filter_map(read_address);
        Ok(found.filter(|net| !matches!(net.addr(), IpAddr::V6(ip) if ip.is_unicast_link_local())).collect())
    }

    /// Adds an address to an interface, usable at once. An existing address is not an error.
    pub(crate) async fn add_address(&self, link: &Link, address: IpNet) -> Result<(), Error> {
        let mut request = self.handle.address().add(link.index, address.addr(), address.prefix_len()).replace();
        if address.addr().is_ipv6() {
            // Addresses have one owner, so duplicate address detection would only cost a second.
            request.message_mut().attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        let added = request.execute().await;
        added.map_err(Error::kernel(format!("add the address {address} to {}", link.name)))
    }

    pub(crate) async fn delete_address(&self, link: &Link, address: IpNet) -> Result<(), Error> {
        let request = self.handle.address().add(link.index, address.addr(), address.prefix_len());
        let message = { request }.message_mut().clone();
        let deleted = self.handle.address().del(message).execute().await;
        deleted.map_err(Error::kernel(format!("delete the address {address} of {}", link.name)))
    }

    /// Sets the default route.
    pub(crate) async fn set_default_route(&self, link: &Link, gateway: IpAddr) -> Result<(), Error> {
        let route = match gateway {
            IpAddr::V4(ip) => {
                RouteMessageBuilder::<std::net::Ipv4Addr>::new().gateway(ip).output_interface(link.index).build()
            }
            IpAddr::V6(ip) => {
                RouteMessageBuilder::<std::net::Ipv6Addr>::new().gateway(ip).output_interface(link.index).build()
            }
        };
        let added = self.handle.route().add(route).replace().execute().await;
        added.map_err(Error::kernel(format!("set the default route through {gateway}")))
    }

    /// All unicast routes of both families.
    pub(crate) async fn routes(&self) -> Result<Vec<Route>, Error> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            let found: Vec<RouteMessage> =
                self.handle.route().get(message).execute().try_collect().await.map_err(Error::kernel("list routes"))?;
            routes.extend(found.iter().filter_map(read_route));
        }
        Ok(routes)
    }
}
