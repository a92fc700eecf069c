//! The wire format of nftables: netlink messages with nested attributes, a batch of which is one transaction.

use std::net::IpAddr;

use super::{Chain, Rule, Table};

/// An address family of the kernel's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    /// All of them, in a request for a list.
    Unspecified,
    Ipv4,
    Ipv6,
    /// Frames of one interface, before all other processing.
    Netdev,
}

/// Messages that take effect together or not at all.
#[derive(Debug)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    sequence: u32,
}

/// Attributes of a message: each has a length, a type and a value, padded to four bytes.
#[derive(Debug, Default)]
pub(super) struct Attributes(Vec<u8>);

/// The upper byte of the message type is the subsystem of netfilter.
const NFTABLES: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u16 = NFTABLES << 8;
pub(super) const GET_TABLE: u16 = NFTABLES << 8 | 1;
pub(super) const DELETE_TABLE: u16 = NFTABLES << 8 | 2;
const NEW_CHAIN: u16 = NFTABLES << 8 | 3;
const NEW_RULE: u16 = NFTABLES << 8 | 6;
pub(super) const GET_RULE: u16 = NFTABLES << 8 | 7;
#[cfg(test)]
const DELETE_RULE: u16 = NFTABLES << 8 | 8;

const REQUEST: u16 = 0x1;
pub(super) const ACKNOWLEDGE: u16 = 0x4;
pub(super) const DUMP: u16 = 0x300;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

const NESTED: u16 = 0x8000;

/// The length of a comment is one byte, including a zero at the end.
const LONGEST_COMMENT: usize = 250;

/// A message: length, type, flags, sequence, sender, then family, version and resource.
pub(super) fn message(
    kind: u16,
    flags: u16,
    sequence: u32,
    family: u8,
    resource: u16,
    attributes: &Attributes,
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(20 + attributes.0.len());
    bytes.extend((20 + attributes.0.len() as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((REQUEST | flags).to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([family, 0]);
    bytes.extend(resource.to_be_bytes());
    bytes.extend(&attributes.0);
    bytes
}

/// A rule's comment in the form that the `nft` tool shows.
fn comment(text: &str) -> Vec<u8> {
    let text: String = text.chars().filter(|char| char.is_ascii() && !char.is_ascii_control()).collect();
    let text = &text.as_bytes()[..text.len().min(LONGEST_COMMENT)];
    let mut bytes = vec![0, text.len() as u8 + 1];
    bytes.extend(text);
    bytes.push(0);
    bytes
}

// === impl Family ===

impl Family {
    pub(crate) fn of(ip: IpAddr) -> Family {
        if ip.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 }
    }

    pub(super) fn has(self, ip: IpAddr) -> bool {
        self == Family::of(ip)
    }

    /// The family with this number, if our tables use it.
    pub(super) fn from_number(number: u8) -> Option<Family> {
        [Family::Ipv4, Family::Ipv6, Family::Netdev].into_iter().find(|family| family.number() == number)
    }

    pub(super) fn number(self) -> u8 {
        match self {
            Family::Unspecified => 0,
            Family::Ipv4 => 2,
            Family::Netdev => 5,
            Family::Ipv6 => 10,
        }
    }
}

// === impl Batch ===

impl Batch {
    pub(super) fn new() -> Batch {
        let begin = message(BATCH_BEGIN, 0, 0, 0, NFTABLES, &Attributes::default());
        Batch { bytes: begin, sequence: 1 }
    }

    /// Replaces a table that may exist: creates it, deletes it and creates it again, so that it is empty.
    pub(super) fn replace_table(&mut self, name: &str, table: &Table) {
        self.remove_table(name, table.family);
        self.push(NEW_TABLE, CREATE, table.family, |out| out.text(1, name));
        for chain in &table.chains {
            self.push(NEW_CHAIN, CREATE, table.family, |out| write_chain(out, name, chain));
        }
        for chain in &table.chains {
            for rule in &chain.rules {
                self.push(NEW_RULE, CREATE | APPEND, table.family, |out| write_rule(out, name, &chain.name, rule));
            }
        }
    }

    /// Removes a table that may exist: creates it first, so that deleting does not fail.
    pub(super) fn remove_table(&mut self, name: &str, family: Family) {
        self.push(NEW_TABLE, CREATE, family, |out| out.text(1, name));
        self.push(DELETE_TABLE, 0, family, |out| out.text(1, name));
    }

    #[cfg(test)]
    pub(super) fn flush(&mut self) {
        self.push(DELETE_TABLE, 0, Family::Unspecified, |_| {});
    }

    #[cfg(test)]
    pub(super) fn remove_rules(&mut self, table: &str, family: Family) {
        self.push(DELETE_RULE, 0, family, |out| out.text(1, table));
    }

    /// The bytes to send, and the sequence number of the message whose acknowledgement confirms the batch.
    pub(super) fn finish(mut self) -> (Vec<u8>, u32) {
        let end = message(BATCH_END, 0, self.sequence, 0, NFTABLES, &Attributes::default());
        self.bytes.extend(end);
        (self.bytes, 1)
    }

    fn push(&mut self, kind: u16, flags: u16, family: Family, fill: impl FnOnce(&mut Attributes)) {
        let mut attributes = Attributes::default();
        fill(&mut attributes);
        // One acknowledgement is enough: the kernel sends them when the whole batch is committed.
        let flags = if self.sequence == 1 { flags | ACKNOWLEDGE } else { flags };
        self.bytes.extend(message(kind, flags, self.sequence, family.number(), 0, &attributes));
        self.sequence += 1;
    }
}

fn write_chain(out: &mut Attributes, table: &str, chain: &Chain) {
    out.text(1, table);
    out.text(3, &chain.name);
    if let Some(hook) = &chain.hook {
        out.nested(4, |out| {
            out.number(1, hook.number);
            out.number(2, hook.priority as u32);
            if let Some(device) = &hook.device {
                out.text(3, device);
            }
        });
        out.text(7, hook.kind);
    }
}

fn write_rule(out: &mut Attributes, table: &str, chain: &str, rule: &Rule) {
    out.text(1, table);
    out.text(2, chain);
    out.nested(4, |list| {
        for expression in &rule.expressions {
            list.nested(1, |element| {
                element.text(1, expression.name());
                element.nested(2, |operands| expression.write(operands));
            });
        }
    });
    out.bytes(7, &comment(&rule.comment));
}

// === impl Attributes ===

impl Attributes {
    pub(super) fn bytes(&mut self, kind: u16, value: &[u8]) {
        self.0.extend((4 + value.len() as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Encoded attributes.
    pub(super) fn raw(&mut self, attributes: &[u8]) {
        self.0.extend(attributes);
    }

    #[cfg(test)]
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Numbers in nftables are big endian.
    pub(super) fn number(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub(super) fn text(&mut self, kind: u16, value: &str) {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes);
    }

    pub(super) fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Attributes)) {
        let mut inner = Attributes::default();
        fill(&mut inner);
        self.bytes(kind | NESTED, &inner.0);
    }
}
