//! Pods that spoof addresses or routers, and another program that removes the packet rules.

use std::net::{Ipv6Addr, UdpSocket};

use super::frames::{Wire, listen, marks, received};
use super::ports::{rules_work, send_loopback_to_the_node};
use super::*;
use crate::{firewall, names};

/// A pod adds a foreign address and sends a datagram from it, then one from its own. Returns the datagrams that arrive, up to the second one.
fn arrived(from: &PodNetwork, [own, foreign]: [IpAddr; 2], to: &PodNetwork, target: IpAddr) -> Vec<String> {
    let server = at(Some(&to.netns), || UdpSocket::bind(SocketAddr::new(target, 7000)).unwrap());
    server.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    at(Some(&from.netns), || {
        let add = async {
            let kernel = Kernel::open()?;
            kernel.add_address(&kernel.existing_link("eth0").await?, IpNet::from(foreign)).await
        };
        threads::block_on(add).unwrap();
        for (source, text) in [(foreign, "foreign"), (own, "own")] {
            // An IPv6 address can be used after duplicate address detection.
            let mut bound = None;
            until("the address can be used", || {
                bound = UdpSocket::bind(SocketAddr::new(source, 0)).ok();
                bound.is_some()
            });
            bound.unwrap().send_to(text.as_bytes(), (target, 7000)).unwrap();
        }
    });
    let mut seen = Vec::new();
    let mut buffer = [0; 64];
    while seen.last().is_none_or(|last| last != "own") {
        let (length, _) = server.recv_from(&mut buffer).expect("the datagram from the pod's own address");
        seen.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
    }
    seen
}

/// NET-1
#[test]
fn a_pod_cannot_send_with_the_address_of_another() {
    inside("tests::hostile::a_pod_cannot_send_with_the_address_of_another", |mut scene| {
        if !rules_work(&scene) {
            return;
        }
        scene.settings.ranges = vec![net("10.98.0.0/24"), net("fd98::/64")];
        let (hostile, victim, target) = (scene.pod("hostile"), scene.pod("victim"), scene.pod("target"));
        let own = scene.attach(&hostile).unwrap();
        let foreign = scene.attach(&victim).unwrap();
        let targets = scene.attach(&target).unwrap();
        for ((own, foreign), target_ip) in own.iter().zip(&foreign).zip(&targets) {
            // The target's hardware address is resolved first, so that no datagram waits for it.
            serve(Some(&target.netns), &SocketAddr::new(*target_ip, 80).to_string());
            ask(Some(&hostile.netns), *target_ip, 80).unwrap();
            let seen = arrived(&hostile, [*own, *foreign], &target, *target_ip);
            assert_eq!(seen, ["own"], "a datagram in the name of {foreign} reached another pod");
        }
    });
}

/// NET-1, NET-2: frames that a pod writes past its own network stack. Another pod sees those in its own name only.
#[test]
fn frames_in_the_name_of_others_reach_no_pod() {
    inside("tests::hostile::frames_in_the_name_of_others_reach_no_pod", |mut scene| {
        if !rules_work(&scene) {
            return;
        }
        scene.settings.ranges = vec![net("10.98.0.0/24"), net("fd98::/64")];
        let (hostile, victim, target) = (scene.pod("hostile"), scene.pod("victim"), scene.pod("target"));
        let [own, foreign, targets] = [&hostile, &victim, &target].map(|pod| scene.attach(pod).unwrap());
        if !firewall::rules("keelet0").unwrap().contains_key(&firewall::Family::Netdev) {
            return keelet_report::skipped("this kernel has no packet rules for single interfaces");
        }
        let (own4, own6) = addresses(&own);
        let (foreign4, foreign6) = addresses(&foreign);
        let target4 = addresses(&targets).0;
        let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
        serve(Some(&target.netns), &SocketAddr::new(targets[0], 80).to_string());
        ask(Some(&hostile.netns), targets[0], 80).unwrap();
        // Otherwise the target's answers quote the datagrams.
        let _open = at(Some(&target.netns), || UdpSocket::bind(SocketAddr::new(targets[0], 7000)).unwrap());
        let wire = Wire::open(&hostile, targets[0], 7000);
        let datagram = || wire.datagram(target4, "");
        let ipv6 = |from| wire.icmpv6(from, ECHO, &[0; 4]);
        let advertises =
            |address: Ipv6Addr| wire.icmpv6(own6, 136, &[&[0x20, 0, 0, 0][..], &address.octets()].concat());
        let interface = listen(&target);
        for (frame, mark) in [
            (datagram().with_source_hardware([2, 9, 9, 9, 9, 9]), "#IPv4 from a foreign hardware address"),
            (wire.arp_reply(own4).with_source_hardware([2, 9, 9, 9, 9, 9]), "#ARP from a foreign hardware address"),
            (datagram().with_source_address(foreign4), "#IPv4 from a foreign address"),
            (datagram().tagged(&[0x8100]), "#a VLAN tag"),
            (wire.arp_reply(foreign4), "#ARP for a foreign address"),
            (ipv6(foreign6), "#IPv6 from a foreign address"),
            (advertises(foreign6), "#a neighbour advertisement for a foreign address"),
            (wire.icmpv6(link_local, 134, &[0; 12]), "#a router advertisement"),
            (wire.icmpv6(link_local, 137, &[0; 36]), "#a redirect"),
            (wire.frame(0x88cc, &[&[0; 46]]), "#another protocol"),
            (datagram(), "#own IPv4"),
            (wire.arp_reply(own4), "#own ARP"),
            (ipv6(own6), "#own IPv6"),
            (ipv6(link_local), "#link-local IPv6"),
            (advertises(own6), "#own neighbour advertisement"),
            (datagram(), "#last"),
        ] {
            wire.send(&frame.marked(mark));
        }
        let own = ["#own IPv4", "#own ARP", "#own IPv6", "#link-local IPv6", "#own neighbour advertisement", "#last"];
        assert_eq!(marks(&interface, "#last"), own);
    });
}

/// An echo request.
const ECHO: u8 = 128;

fn addresses(ips: &[IpAddr]) -> ([u8; 4], Ipv6Addr) {
    match ips {
        [IpAddr::V4(v4), IpAddr::V6(v6)] => (v4.octets(), *v6),
        other => panic!("an address of each family: {other:?}"),
    }
}

/// NET-2
#[test]
fn no_interface_accepts_router_advertisements() {
    inside("tests::hostile::no_interface_accepts_router_advertisements", |mut scene| {
        if !crate::sysctl::exists("ipv6/conf/all/forwarding") {
            return keelet_report::skipped("this kernel has no IPv6");
        }
        let switches = |interface: &str| {
            ["accept_ra", "disable_ipv6"].map(|name| {
                let path = format!("/proc/sys/net/ipv6/conf/{interface}/{name}");
                std::fs::read_to_string(path).unwrap().trim().to_owned()
            })
        };
        for (range, ipv6) in [("10.98.0.0/24", false), ("fd98::/64", true)] {
            scene.settings.ranges = vec![net(range)];
            let pod = scene.pod(if ipv6 { "with" } else { "without" });
            scene.attach(&pod).unwrap();
            let off = if ipv6 { "0" } else { "1" };
            assert_eq!(switches("keelet0"), ["0", off], "the bridge with {range}");
            assert_eq!(switches(&names::host_end(&pod.sandbox_id)), ["0", "1"], "the host end with {range}");
            let inner = at(Some(&pod.netns), || switches("eth0"));
            assert_eq!(inner, ["0", off], "the pod with {range}");
            scene.detach(&pod).unwrap();
        }
    });
}

/// NET-3: all rules go at once, or table by table, or out of their tables.
#[test]
fn rules_that_another_program_removes_are_restored() {
    inside("tests::hostile::rules_that_another_program_removes_are_restored", |scene| {
        if !rules_work(&scene) {
            return;
        }
        let (mut server, hostile) = (scene.pod("server"), scene.pod("hostile"));
        server.ports = vec![port(80, 8080)];
        let network = scene.network();
        let attached = |pod: &PodNetwork| scene.runtime.block_on(network.attach(pod)).unwrap();
        attached(&server);
        attached(&hostile);
        serve(Some(&server.netns), "0.0.0.0:80");
        let keeping = network.clone();
        let keeper = scene.runtime.spawn(async move { keeping.keep_rules().await });
        let rules = firewall::rules("keelet0").unwrap();
        assert_eq!(rules.len(), 2, "{rules:?}");
        for remove in [firewall::flush as fn(&str), |bridge| firewall::clear(bridge).unwrap()] {
            remove("keelet0");
            until("the rules are back", || firewall::rules("keelet0").is_ok_and(|found| found == rules));
            assert!(ask(None, ip("127.0.0.1"), 8080).is_ok(), "the host port leads into its pod again");
        }
        keeper.abort();
    });
}

/// NET-3: the kernel refuses the first attempts to restore the rules. No notification and no pod asks for another one.
#[test]
fn rules_that_the_kernel_refuses_are_tried_again() {
    inside("tests::hostile::rules_that_the_kernel_refuses_are_tried_again", |scene| {
        if !rules_work(&scene) {
            return;
        }
        let network = scene.network();
        scene.runtime.block_on(network.attach(&scene.pod("one"))).unwrap();
        let rules = firewall::rules("keelet0").unwrap();
        firewall::flush("keelet0");
        // Each attempt has a batch for the guard, which is tried three times, and one for the other rules.
        firewall::refuse(4);
        let keeping = network.clone();
        let keeper = scene.runtime.spawn(async move { keeping.keep_rules().await });
        until("the rules are back", || firewall::rules("keelet0").is_ok_and(|found| found == rules));
        keeper.abort();
    });
}

/// NET-3: a table that has lost rules is not whole.
#[test]
fn rules_that_are_missing_in_a_table_are_restored() {
    inside("tests::hostile::rules_that_are_missing_in_a_table_are_restored", |scene| {
        if !rules_work(&scene) {
            return;
        }
        let network = scene.network();
        scene.runtime.block_on(network.attach(&scene.pod("one"))).unwrap();
        let rules = firewall::rules("keelet0").unwrap();
        firewall::empty("keelet0");
        let emptied = firewall::rules("keelet0").unwrap();
        assert!(emptied.keys().eq(rules.keys()) && emptied.values().all(|rules| *rules == 0), "{emptied:?}");
        // Its first look is at the rules as they are: an emptied table causes no notification.
        let keeping = network.clone();
        let keeper = scene.runtime.spawn(async move { keeping.keep_rules().await });
        until("the rules are back", || firewall::rules("keelet0").is_ok_and(|found| found == rules));
        keeper.abort();
    });
}

/// NET-3: no agent runs, and another program removes all packet rules. The switch that host ports need stays on.
#[test]
fn loopback_services_stay_closed_without_packet_rules() {
    inside("tests::hostile::loopback_services_stay_closed_without_packet_rules", |scene| {
        if !rules_work(&scene) {
            return;
        }
        let (mut server, hostile) = (scene.pod("server"), scene.pod("hostile"));
        server.ports = vec![port(80, 8080)];
        scene.attach(&server).unwrap();
        scene.attach(&hostile).unwrap();
        serve(Some(&server.netns), "0.0.0.0:80");
        assert!(ask(None, ip("127.0.0.1"), 8080).is_ok(), "the host port leads into its pod");
        serve(None, "127.0.0.1:7000");
        let node = UdpSocket::bind("0.0.0.0:7000").unwrap();
        firewall::flush("keelet0");
        let switch = std::fs::read_to_string("/proc/sys/net/ipv4/conf/keelet0/route_localnet").unwrap();
        assert_eq!(switch, "1\n", "the host port was in use");
        let wire = Wire::open(&hostile, ip("10.213.0.1"), 7000);
        for tags in [&[][..], &[0x8100], &[0x8100, 0x8100], &[0x88a8, 0x8100]] {
            wire.send(&wire.datagram([127, 0, 0, 1], &format!("loopback with tags {tags:x?}")).tagged(tags));
        }
        wire.send(&wire.datagram([10, 213, 0, 1], "last"));
        assert_eq!(received(&node, "last"), ["template", "last"], "a pod reached the loopback address of the node");
        send_loopback_to_the_node(&hostile);
        assert!(is_silent(Some(&hostile.netns), ip("127.0.0.1"), 7000), "a loopback service of the node is open");
    });
}
