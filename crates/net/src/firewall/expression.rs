//! The expressions of a rule. The kernel evaluates them in order until one does not match.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv6Net};

use super::message::{Attributes, Family};
use crate::Protocol;

/// One expression. Values go through registers of the kernel; register 1 is enough, except for an address with a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expression {
    /// Loads bytes of a packet.
    Payload { header: Header, offset: u32, length: u32 },
    /// Loads metadata of a packet.
    Meta(MetaKey),
    /// Loads the flags of the packet's tracked connection.
    ConnectionStatus,
    /// Loads the type of the destination address.
    DestinationKind,
    /// Masks the loaded value.
    Mask(Vec<u8>),
    /// Matches if the loaded value is equal, or is not.
    Compare { equal: bool, to: Vec<u8> },
    /// Sets a register.
    Immediate { register: u32, value: Vec<u8> },
    /// Destination NAT to the address in register 1 and the port in register 2.
    TranslateDestination(Family),
    /// Source NAT to the address of the outgoing interface.
    Masquerade,
    /// Accepts the packet.
    Accept,
    /// Drops the packet.
    Drop,
    /// Continues in another chain.
    Jump(&'static str),
}

/// A header of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    Link = 0,
    Network = 1,
    Transport = 2,
}

/// Metadata of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetaKey {
    EtherType = 1,
    InputInterface = 6,
    OutputInterface = 7,
    TransportProtocol = 16,
}

/// The verdict register and the first general ones.
const VERDICT: u32 = 0;
const FIRST: u32 = 1;
const SECOND: u32 = 2;

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn address_in(range: &IpNet, offset: u32) -> Vec<Expression> {
    masked(Header::Network, offset, range, true)
}

/// Matches if the address at this offset is in the range, or is not.
fn masked(header: Header, offset: u32, range: &IpNet, equal: bool) -> Vec<Expression> {
    let network = octets(range.network());
    let length = network.len() as u32;
    let mut expressions = vec![Expression::Payload { header, offset, length }];
    if range.prefix_len() < range.max_prefix_len() {
        expressions.push(Expression::Mask(octets(range.netmask())));
    }
    expressions.push(Expression::Compare { equal, to: network });
    expressions
}

fn interface(key: MetaKey, name: &str, equal: bool) -> Vec<Expression> {
    // The kernel compares the whole fixed-size field of the name.
    let mut field = name.as_bytes().to_vec();
    field.resize(16, 0);
    vec![Expression::Meta(key), Expression::Compare { equal, to: field }]
}

/// A value, or a verdict.
fn data(attributes: &mut Attributes, kind: u16, value: &[u8]) {
    attributes.nested(kind, |data| data.bytes(1, value));
}

// === impl Expression ===

impl Expression {
    pub(super) fn source_in(range: &IpNet) -> Vec<Expression> {
        address_in(range, if range.addr().is_ipv4() { 12 } else { 8 })
    }

    pub(super) fn destination_in(range: &IpNet) -> Vec<Expression> {
        address_in(range, if range.addr().is_ipv4() { 16 } else { 24 })
    }

    pub(super) fn came_by(name: &str) -> Vec<Expression> {
        interface(MetaKey::InputInterface, name, true)
    }

    pub(super) fn leaves_by(name: &str) -> Vec<Expression> {
        interface(MetaKey::OutputInterface, name, true)
    }

    pub(super) fn leaves_not_by(name: &str) -> Vec<Expression> {
        interface(MetaKey::OutputInterface, name, false)
    }

    pub(super) fn ether_type(number: u16) -> Vec<Expression> {
        vec![
            Expression::Meta(MetaKey::EtherType),
            Expression::Compare { equal: true, to: number.to_be_bytes().to_vec() },
        ]
    }

    /// Matches frames from another hardware address.
    pub(super) fn hardware_source_is_not(address: [u8; 6]) -> Vec<Expression> {
        vec![
            Expression::Payload { header: Header::Link, offset: 6, length: 6 },
            Expression::Compare { equal: false, to: address.to_vec() },
        ]
    }

    /// Matches ARP messages with this sender protocol address.
    pub(super) fn arp_sender_is(ip: Ipv4Addr) -> Vec<Expression> {
        vec![
            Expression::Payload { header: Header::Network, offset: 14, length: 4 },
            Expression::Compare { equal: true, to: ip.octets().to_vec() },
        ]
    }

    pub(super) fn icmpv6_type(number: u8) -> Vec<Expression> {
        const ICMPV6: u8 = 58;
        vec![
            Expression::Meta(MetaKey::TransportProtocol),
            Expression::Compare { equal: true, to: vec![ICMPV6] },
            Expression::Payload { header: Header::Transport, offset: 0, length: 1 },
            Expression::Compare { equal: true, to: vec![number] },
        ]
    }

    /// Matches neighbour advertisements for an address outside the range.
    pub(super) fn advertised_not_in(range: &Ipv6Net) -> Vec<Expression> {
        masked(Header::Transport, 8, &IpNet::V6(*range), false)
    }

    pub(super) fn destination_was_translated() -> Vec<Expression> {
        const DESTINATION_TRANSLATED: u32 = 1 << 5;
        vec![
            Expression::ConnectionStatus,
            Expression::Mask(DESTINATION_TRANSLATED.to_ne_bytes().to_vec()),
            Expression::Compare { equal: false, to: vec![0; 4] },
        ]
    }

    pub(super) fn destination_is_local() -> Vec<Expression> {
        const LOCAL: u32 = 2;
        vec![Expression::DestinationKind, Expression::Compare { equal: true, to: LOCAL.to_ne_bytes().to_vec() }]
    }

    pub(super) fn destination_port(protocol: Protocol, port: u16) -> Vec<Expression> {
        vec![
            Expression::Meta(MetaKey::TransportProtocol),
            Expression::Compare { equal: true, to: vec![protocol.number()] },
            // TCP, UDP and SCTP have it at the same offset.
            Expression::Payload { header: Header::Transport, offset: 2, length: 2 },
            Expression::Compare { equal: true, to: port.to_be_bytes().to_vec() },
        ]
    }

    pub(super) fn translate_to(ip: IpAddr, port: u16) -> Vec<Expression> {
        vec![
            Expression::Immediate { register: FIRST, value: octets(ip) },
            Expression::Immediate { register: SECOND, value: port.to_be_bytes().to_vec() },
            Expression::TranslateDestination(Family::of(ip)),
        ]
    }

    /// The kernel's name of the expression.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Expression::Payload { .. } => "payload",
            Expression::Meta(_) => "meta",
            Expression::ConnectionStatus => "ct",
            Expression::DestinationKind => "fib",
            Expression::Mask(_) => "bitwise",
            Expression::Compare { .. } => "cmp",
            Expression::Immediate { .. } | Expression::Accept | Expression::Drop | Expression::Jump(_) => "immediate",
            Expression::TranslateDestination(_) => "nat",
            Expression::Masquerade => "masq",
        }
    }

    /// Its attributes, numbered as in `linux/netfilter/nf_tables.h`.
    pub(super) fn write(&self, out: &mut Attributes) {
        match self {
            Expression::Payload { header, offset, length } => {
                out.number(1, FIRST);
                out.number(2, *header as u32);
                out.number(3, *offset);
                out.number(4, *length);
            }
            Expression::Meta(key) => {
                out.number(1, FIRST);
                out.number(2, *key as u32);
            }
            Expression::ConnectionStatus => {
                const STATUS: u32 = 2;
                out.number(1, FIRST);
                out.number(2, STATUS);
            }
            Expression::DestinationKind => {
                const ADDRESS_KIND: u32 = 3;
                const OF_DESTINATION: u32 = 1 << 1;
                out.number(1, FIRST);
                out.number(2, ADDRESS_KIND);
                out.number(3, OF_DESTINATION);
            }
            Expression::Mask(bits) => {
                out.number(1, FIRST);
                out.number(2, FIRST);
                out.number(3, bits.len() as u32);
                data(out, 4, bits);
                data(out, 5, &vec![0; bits.len()]);
            }
            Expression::Compare { equal, to } => {
                out.number(1, FIRST);
                out.number(2, u32::from(!*equal));
                data(out, 3, to);
            }
            Expression::Immediate { register, value } => {
                out.number(1, *register);
                data(out, 2, value);
            }
            Expression::TranslateDestination(family) => {
                const DESTINATION: u32 = 1;
                out.number(1, DESTINATION);
                out.number(2, u32::from(family.number()));
                out.number(3, FIRST);
                out.number(5, SECOND);
            }
            Expression::Masquerade => {}
            Expression::Drop => verdict(out, 0, None),
            Expression::Accept => verdict(out, 1, None),
            Expression::Jump(chain) => verdict(out, -3, Some(chain)),
        }
    }
}

fn verdict(out: &mut Attributes, code: i32, chain: Option<&str>) {
    out.number(1, VERDICT);
    out.nested(2, |data| {
        data.nested(2, |verdict| {
            verdict.number(1, code as u32);
            if let Some(chain) = chain {
                verdict.text(2, chain);
            }
        });
    });
}
