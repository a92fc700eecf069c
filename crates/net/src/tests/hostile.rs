//! Pods that spoof addresses or routers, and another program that removes the packet rules.

use std::net::UdpSocket;

use super::ports::{rules_work, send_loopback_to_the_node};
use super::*;
use crate::names;

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

/// NET-3
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
        serve(None, "127.0.0.1:7000");
        send_loopback_to_the_node(&hostile);
        let keeping = network.clone();
        let keeper = scene.runtime.spawn(async move { keeping.keep_rules().await });
        let tables = crate::firewall::tables("keelet0").unwrap();
        assert_eq!(tables.len(), 2, "{tables:?}");
        for remove in [crate::firewall::flush as fn(&str), |bridge| crate::firewall::clear(bridge).unwrap()] {
            remove("keelet0");
            until("the rules are back", || crate::firewall::tables("keelet0").is_ok_and(|found| found == tables));
            assert!(is_silent(Some(&hostile.netns), ip("127.0.0.1"), 7000), "a loopback service of the node is open");
            assert!(ask(None, ip("127.0.0.1"), 8080).is_ok(), "the host port leads into its pod again");
        }
        keeper.abort();
    });
}
