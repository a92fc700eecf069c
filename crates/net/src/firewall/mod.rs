//! Packet rules: source NAT for pods, host ports, and source address validation.
//!
//! All rules of a bridge are in one nftables table per address family, named like the bridge. The table is a function of the stored records:
//! each change replaces it in one transaction of the kernel, so that it never has stale rules and no packet sees half of it. Forwarded
//! connections continue, because the kernel tracks them apart.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::PortMapping;

mod error;
mod expression;
mod message;
mod socket;
mod source;
mod tracked;
mod watch;

use expression::Expression;
use message::Batch;

pub use error::FirewallError;
pub(crate) use message::Family;
pub(crate) use source::Guarded;
pub(crate) use tracked::delete_udp;
pub(crate) use watch::Removals;

#[cfg(test)]
mod tests;

/// A host port and its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Forward {
    pub(crate) port: PortMapping,
    pub(crate) to: IpAddr,
    /// For the comment on the rule.
    pub(crate) sandbox: String,
}

/// A table to create.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Table {
    family: Family,
    chains: Vec<Chain>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Chain {
    name: String,
    /// Where the kernel calls it; none for a chain that others jump to.
    hook: Option<Hook>,
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Hook {
    kind: &'static str,
    number: u32,
    priority: i32,
    /// The interface that a chain of the netdev family belongs to.
    device: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    expressions: Vec<Expression>,
    comment: String,
}

const PREROUTING: u32 = 0;
const OUTPUT: u32 = 3;
const POSTROUTING: u32 = 4;

/// `NF_IP_PRI_NAT_DST` and `NF_IP_PRI_NAT_SRC`.
const TRANSLATE_DESTINATION: i32 = -100;
const TRANSLATE_SOURCE: i32 = 100;
/// `NF_IP_PRI_RAW`: before connection tracking.
const RAW: i32 = -300;

/// Replaces all IPv4 and IPv6 rules of a bridge.
pub(crate) fn apply(bridge: &str, ranges: &[IpNet], forwards: &[Forward]) -> Result<(), FirewallError> {
    let mut batch = Batch::new();
    for family in families(ranges) {
        batch.replace_table(bridge, &table(family, bridge, ranges, forwards));
    }
    socket::send(batch)
}

/// The families of these ranges: the kernel may lack one that is not in use.
fn families(ranges: &[IpNet]) -> impl Iterator<Item = Family> {
    [Family::Ipv4, Family::Ipv6].into_iter().filter(|family| ranges.iter().any(|range| family.has(range.addr())))
}

/// Removes all rules of a bridge.
pub(crate) fn clear(bridge: &str) -> Result<(), FirewallError> {
    // One batch for each: a kernel may lack one family and have rules in the next.
    let clear = |family| {
        let mut batch = Batch::new();
        batch.remove_table(bridge, family);
        socket::send(batch)
    };
    [Family::Ipv4, Family::Ipv6, Family::Netdev].map(clear).into_iter().collect()
}

/// Replaces the rules that drop packets with foreign source addresses.
pub(crate) fn guard(bridge: &str, ports: &[Guarded]) -> Result<(), FirewallError> {
    let mut batch = Batch::new();
    batch.replace_table(bridge, &guard_table(ports));
    socket::send(batch)
}

fn guard_table(ports: &[Guarded]) -> Table {
    Table { family: Family::Netdev, chains: ports.iter().map(source::chain).collect() }
}

/// How many rules the tables of a bridge have, as [`apply`] and [`guard`] make them.
pub(crate) fn expected(
    bridge: &str,
    ports: &[Guarded],
    ranges: &[IpNet],
    forwards: &[Forward],
) -> BTreeMap<Family, usize> {
    let tables = families(ranges).map(|family| table(family, bridge, ranges, forwards)).chain([guard_table(ports)]);
    tables.map(|table| (table.family, table.chains.iter().map(|chain| chain.rules.len()).sum())).collect()
}

/// The rules for one family.
fn table(family: Family, bridge: &str, ranges: &[IpNet], forwards: &[Forward]) -> Table {
    let ranges: Vec<IpNet> = ranges.iter().filter(|range| family.has(range.addr())).copied().collect();
    let ports: Vec<Rule> = forwards.iter().filter(|forward| family.has(forward.to)).map(forward_rule).collect();
    let mut chains = vec![Chain {
        name: "postrouting".to_owned(),
        hook: Some(Hook::new("nat", POSTROUTING, TRANSLATE_SOURCE)),
        rules: ranges.iter().map(|range| masquerade(bridge, range)).collect(),
    }];
    if family == Family::Ipv4 {
        // Always, not only with ports: pods must not use routing of loopback addresses, whichever program enabled it.
        chains.push(Chain {
            name: "guard".to_owned(),
            hook: Some(Hook::new("filter", PREROUTING, RAW)),
            rules: vec![protect_loopback(bridge)],
        });
    }
    if !ports.is_empty() {
        chains[0].rules.extend(ranges.iter().map(hairpin));
        if family == Family::Ipv4 {
            chains[0].rules.push(from_loopback(bridge));
        }
        chains.push(Chain { name: "ports".to_owned(), hook: None, rules: ports });
        for (name, number) in [("prerouting", PREROUTING), ("output", OUTPUT)] {
            let hook = Hook::new("nat", number, TRANSLATE_DESTINATION);
            chains.push(Chain { name: name.to_owned(), hook: Some(hook), rules: vec![to_this_node()] });
        }
    }
    Table { family, chains }
}

/// Source NAT for packets that leave the node: hosts outside have no route to pods.
fn masquerade(bridge: &str, range: &IpNet) -> Rule {
    let mut expressions = Expression::source_in(range);
    expressions.extend(Expression::leaves_not_by(bridge));
    expressions.push(Expression::Masquerade);
    Rule { expressions, comment: "pods to the outside".to_owned() }
}

/// Source NAT for packets from a pod to a pod through a host port, so that replies come back through the node.
fn hairpin(range: &IpNet) -> Rule {
    let mut expressions = Expression::source_in(range);
    expressions.extend(Expression::destination_in(range));
    expressions.extend(Expression::destination_was_translated());
    expressions.push(Expression::Masquerade);
    Rule { expressions, comment: "pods to pods by way of a host port".to_owned() }
}

/// Source NAT for packets from the node's loopback address to a host port: a pod could not reply to that address.
fn from_loopback(bridge: &str) -> Rule {
    let mut expressions = Expression::source_in(&loopback());
    expressions.extend(Expression::leaves_by(bridge));
    expressions.push(Expression::Masquerade);
    Rule { expressions, comment: "localhost to a host port".to_owned() }
}

/// The rule above needs routing of loopback addresses on the bridge. It must not let pods reach the node's loopback services.
fn protect_loopback(bridge: &str) -> Rule {
    let mut expressions = Expression::came_by(bridge);
    expressions.extend(Expression::destination_in(&loopback()));
    expressions.push(Expression::Drop);
    Rule { expressions, comment: "no pod reaches the loopback of the node".to_owned() }
}

fn to_this_node() -> Rule {
    let mut expressions = Expression::destination_is_local();
    expressions.push(Expression::Jump("ports"));
    Rule { expressions, comment: "ports of the node".to_owned() }
}

fn forward_rule(forward: &Forward) -> Rule {
    let mut expressions = match forward.port.only_for() {
        Some(ip) => Expression::destination_in(&IpNet::from(ip)),
        None => Vec::new(),
    };
    expressions.extend(Expression::destination_port(forward.port.protocol, forward.port.host_port));
    expressions.extend(Expression::translate_to(forward.to, forward.port.container_port));
    Rule { expressions, comment: format!("sandbox {}", forward.sandbox) }
}

fn loopback() -> IpNet {
    IpNet::V4(ipnet::Ipv4Net::new_assert([127, 0, 0, 0].into(), 8))
}

// === impl Hook ===

impl Hook {
    fn new(kind: &'static str, number: u32, priority: i32) -> Hook {
        Hook { kind, number, priority, device: None }
    }
}

/// Simulates a kernel without netfilter in this process.
#[cfg(test)]
pub(crate) fn pretend_missing() {
    socket::MISSING.store(true, std::sync::atomic::Ordering::SeqCst);
}

/// How many rules the tables of a bridge have, by family.
pub(crate) fn rules(bridge: &str) -> Result<BTreeMap<Family, usize>, FirewallError> {
    let wanted = [bridge.as_bytes(), &[0]].concat();
    // The first attribute is the name of the table in both answers.
    let list = |kind| {
        let mut all = socket::list(kind, Family::Unspecified).map_err(FirewallError::Netlink)?;
        all.retain(|answer| tracked::attribute(answer.attributes(), 1).is_some_and(|name| name == wanted));
        Ok::<_, FirewallError>(all.into_iter().filter_map(|answer| Family::from_number(answer.family()?)))
    };
    let mut found: BTreeMap<Family, usize> = list(message::GET_TABLE)?.map(|family| (family, 0)).collect();
    for family in list(message::GET_RULE)? {
        *found.entry(family).or_default() += 1;
    }
    Ok(found)
}

/// As `nft flush ruleset`: removes every table of this network namespace.
#[cfg(test)]
pub(crate) fn flush(_bridge: &str) {
    let mut batch = Batch::new();
    batch.flush();
    socket::send(batch).unwrap();
}

/// As `nft flush table`: removes the rules of a bridge, and leaves its tables.
#[cfg(test)]
pub(crate) fn empty(bridge: &str) {
    let mut batch = Batch::new();
    for family in rules(bridge).unwrap().into_keys() {
        batch.remove_rules(bridge, family);
    }
    socket::send(batch).unwrap();
}

/// How many of the next batches the kernel seems to refuse.
#[cfg(test)]
pub(crate) fn refuse(batches: usize) {
    socket::REFUSED.store(batches, std::sync::atomic::Ordering::SeqCst);
}
