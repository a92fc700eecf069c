//! The generated tables. Tests with real namespaces show that the kernel accepts them, and their effect.

use super::*;
use crate::Protocol;

fn forward(to: &str, host_ip: Option<&str>) -> Forward {
    let port = PortMapping {
        protocol: Protocol::Tcp,
        container_port: 80,
        host_port: 8080,
        host_ip: host_ip.map(|ip| ip.parse().unwrap()),
    };
    Forward { port, to: to.parse().unwrap(), sandbox: "some-id".to_owned() }
}

fn ranges() -> Vec<IpNet> {
    vec!["10.1.0.0/16".parse().unwrap(), "fd00::/64".parse().unwrap()]
}

fn chains(table: &Table) -> Vec<(&str, usize)> {
    table.chains.iter().map(|chain| (chain.name.as_str(), chain.rules.len())).collect()
}

#[test]
fn without_ports_there_are_only_source_nat_and_the_guard() {
    assert_eq!(chains(&table(Family::Ipv4, "br", &ranges(), &[])), [("postrouting", 1), ("guard", 1)]);
    assert_eq!(chains(&table(Family::Ipv6, "br", &ranges(), &[])), [("postrouting", 1)]);
}

#[test]
fn ports_come_with_source_nat_for_replies_and_a_guard() {
    let forwards = [forward("10.1.0.2", None), forward("fd00::2", None)];
    assert_eq!(
        chains(&table(Family::Ipv4, "br", &ranges(), &forwards)),
        [("postrouting", 3), ("guard", 1), ("ports", 1), ("prerouting", 1), ("output", 1)]
    );
    assert_eq!(
        chains(&table(Family::Ipv6, "br", &ranges(), &forwards)),
        [("postrouting", 2), ("ports", 1), ("prerouting", 1), ("output", 1)]
    );
}

#[test]
fn a_rule_names_its_sandbox() {
    assert_eq!(forward_rule(&forward("10.1.0.2", None)).comment, "sandbox some-id");
}

#[test]
fn a_port_for_one_address_matches_the_address() {
    let everywhere = forward_rule(&forward("10.1.0.2", Some("0.0.0.0")));
    let only = forward_rule(&forward("10.1.0.2", Some("192.0.2.7")));
    assert_eq!(only.expressions.len(), everywhere.expressions.len() + 2);
    assert_eq!(only.expressions[1], Expression::Compare { equal: true, to: vec![192, 0, 2, 7] });
}

#[test]
fn messages_are_aligned_and_have_their_length() {
    let mut batch = Batch::new();
    batch.replace_table("odd", &table(Family::Ipv4, "odd", &ranges(), &[forward("10.1.0.2", None)]));
    let (bytes, _) = batch.finish();
    let mut rest = &bytes[..];
    let mut count = 0;
    while !rest.is_empty() {
        let length = u32::from_ne_bytes(rest[..4].try_into().unwrap()) as usize;
        assert_eq!(length % 4, 0);
        rest = &rest[length..];
        count += 1;
    }
    // Begin and end, the table three times, five chains, seven rules.
    assert_eq!(count, 2 + 3 + 5 + 7);
}
