//! Source address validation: a pod can send with its own addresses only.
//!
//! A pod controls its end of the veth pair and can send any frame. The rules are on the ingress of the host end: they drop frames without
//! the pod's hardware address and one of its IP addresses, and messages that only a router sends. Each interface has a chain of its own, so
//! the cost of a packet does not grow with the number of pods.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};

use super::expression::Expression;
use super::{Chain, Hook, RAW, Rule};

/// The host end of a pod, and the addresses that are allowed on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Guarded {
    pub(crate) interface: String,
    pub(crate) hardware_address: [u8; 6],
    pub(crate) ips: Vec<IpAddr>,
    /// For the comments on the rules.
    pub(crate) sandbox: String,
}

const INGRESS: u32 = 0;

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

/// The rules of one interface. The last one drops the rest.
pub(super) fn chain(port: &Guarded) -> Chain {
    let rule = |parts: Vec<Vec<Expression>>, verdict: Expression, comment: &str| {
        let expressions = parts.into_iter().flatten().chain([verdict]).collect();
        Rule { expressions, comment: format!("{comment}, sandbox {}", port.sandbox) }
    };
    let accept = |parts, comment| rule(parts, Expression::Accept, comment);
    let drop = |parts, comment| rule(parts, Expression::Drop, comment);
    let mut rules =
        vec![drop(vec![Expression::hardware_source_is_not(port.hardware_address)], "a foreign hardware address")];
    for ip in &port.ips {
        if let IpAddr::V4(v4) = ip {
            let own = Expression::source_in(&IpNet::from(*ip));
            rules.push(accept(vec![Expression::ether_type(IPV4), own], "IPv4"));
            rules.push(accept(vec![Expression::ether_type(ARP), Expression::arp_sender_is(*v4)], "ARP"));
        }
    }
    let addresses: Vec<Ipv6Addr> = port.ips.iter().filter_map(ipv6).collect();
    if !addresses.is_empty() {
        let icmp = |kind| vec![Expression::ether_type(IPV6), Expression::icmpv6_type(kind)];
        rules.push(drop(icmp(ROUTER_ADVERTISEMENT), "a router advertisement"));
        rules.push(drop(icmp(REDIRECT), "a redirect"));
        let mut foreign = icmp(NEIGHBOUR_ADVERTISEMENT);
        let own = addresses.iter().copied().map(Ipv6Net::from).chain([link_local()]);
        foreign.extend(own.map(|own| Expression::advertised_not_in(&own)));
        rules.push(drop(foreign, "a neighbour advertisement for a foreign address"));
        // Duplicate address detection sends from the unspecified address.
        let sources = addresses.iter().copied().map(Ipv6Net::from).chain([link_local(), Ipv6Addr::UNSPECIFIED.into()]);
        for source in sources {
            let own = Expression::source_in(&IpNet::V6(source));
            rules.push(accept(vec![Expression::ether_type(IPV6), own], "IPv6"));
        }
    }
    rules.push(drop(Vec::new(), "anything else"));
    let hook = Hook { device: Some(port.interface.clone()), ..Hook::new("filter", INGRESS, RAW) };
    Chain { name: port.interface.clone(), hook: Some(hook), rules }
}

fn ipv6(ip: &IpAddr) -> Option<Ipv6Addr> {
    match ip {
        IpAddr::V4(_) => None,
        IpAddr::V6(ip) => Some(*ip),
    }
}

fn link_local() -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded(ips: &[&str]) -> Guarded {
        Guarded {
            interface: "kl1".to_owned(),
            hardware_address: [10, 107, 10, 0, 0, 2],
            ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
            sandbox: "some-id".to_owned(),
        }
    }

    fn verdicts(chain: &Chain) -> Vec<&Expression> {
        chain.rules.iter().filter_map(|rule| rule.expressions.last()).collect()
    }

    #[test]
    fn the_last_rule_drops_the_rest() {
        for ips in [&[][..], &["10.0.0.2"], &["fd00::2"], &["10.0.0.2", "fd00::2"]] {
            let chain = chain(&guarded(ips));
            assert_eq!(chain.rules.last().unwrap().expressions, [Expression::Drop], "{ips:?}");
            assert_eq!(chain.hook.unwrap().device.as_deref(), Some("kl1"));
        }
    }

    #[test]
    fn a_pod_without_ipv6_sends_none() {
        let chain = chain(&guarded(&["10.0.0.2"]));
        let (accept, drop) = (&Expression::Accept, &Expression::Drop);
        assert_eq!(verdicts(&chain), [drop, accept, accept, drop]);
    }

    /// NET-1, NET-2: every rule of a pod with an address of each family, in order.
    #[test]
    fn a_pod_with_both_families_has_a_rule_for_each_of_its_addresses() {
        let chain = chain(&guarded(&["10.0.0.2", "fd00::2"]));
        let comments = chain.rules.iter().map(|rule| rule.comment.strip_suffix(", sandbox some-id").unwrap());
        let (ipv4, arp) = (|| Expression::ether_type(0x0800), || Expression::ether_type(0x0806));
        let ipv6 = |parts: Vec<Expression>| [Expression::ether_type(0x86dd), parts].concat();
        let from = |range: &str| Expression::source_in(&range.parse().unwrap());
        let outside = |range: &str| Expression::advertised_not_in(&range.parse().unwrap());
        let advertised = [Expression::icmpv6_type(136), outside("fd00::2/128"), outside("fe80::/64")].concat();
        let table = [
            (
                "a foreign hardware address",
                Expression::hardware_source_is_not([10, 107, 10, 0, 0, 2]),
                Expression::Drop,
            ),
            ("IPv4", [ipv4(), from("10.0.0.2/32")].concat(), Expression::Accept),
            ("ARP", [arp(), Expression::arp_sender_is([10, 0, 0, 2].into())].concat(), Expression::Accept),
            ("a router advertisement", ipv6(Expression::icmpv6_type(134)), Expression::Drop),
            ("a redirect", ipv6(Expression::icmpv6_type(137)), Expression::Drop),
            ("a neighbour advertisement for a foreign address", ipv6(advertised), Expression::Drop),
            ("IPv6", ipv6(from("fd00::2/128")), Expression::Accept),
            ("IPv6", ipv6(from("fe80::/64")), Expression::Accept),
            ("IPv6", ipv6(from("::/128")), Expression::Accept),
            ("anything else", Vec::new(), Expression::Drop),
        ];
        for (rule, (comment, parts, verdict)) in chain.rules.iter().zip(&table) {
            let expected: Vec<Expression> = parts.iter().chain([verdict]).cloned().collect();
            assert_eq!(rule.expressions, expected, "{comment}");
        }
        assert!(comments.eq(table.iter().map(|(comment, ..)| *comment)), "{:?}", chain.rules);
    }
}
