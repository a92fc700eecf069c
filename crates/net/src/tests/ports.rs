//! Packet rules: host ports, and connections to outside hosts.

use std::net::UdpSocket;

use super::*;
use crate::Error;

/// Creates an outside host, which is one more namespace, and connects it to the node.
fn outside(scene: &Scene) -> PathBuf {
    let netns = scene.netns("outside");
    let make = async {
        let kernel = Kernel::open()?;
        kernel.add_bridge("uplink0", [2, 0, 0, 0, 0, 1], 1400).await?;
        let uplink = kernel.existing_link("uplink0").await?;
        kernel.add_address(&uplink, net("192.0.2.1/24")).await?;
        let file = File::open(&netns).unwrap();
        let pair = crate::kernel::Pair {
            host_end: "uplink1",
            bridge: uplink.index,
            pod_end: "eth0",
            netns: std::os::fd::AsFd::as_fd(&file),
            hardware_address: [2, 0, 0, 0, 0, 2],
            mtu: 1400,
        };
        kernel.add_pair(pair).await?;
        kernel.set_up(&kernel.existing_link("uplink1").await?).await?;
        kernel.set_default_route(&uplink, ip("192.0.2.2")).await
    };
    // The default route needs the other side to be up first.
    let far = || {
        threads::block_on(async {
            let kernel = Kernel::open()?;
            let link = kernel.existing_link("eth0").await?;
            kernel.add_address(&link, net("192.0.2.2/24")).await?;
            kernel.set_up(&link).await
        })
    };
    threads::block_on(make).unwrap();
    threads::inside(&netns, far).unwrap();
    netns
}

/// Whether this kernel supports packet rules.
pub(super) fn rules_work(scene: &Scene) -> bool {
    match crate::firewall::apply("probe0", &[net("10.0.0.0/24")], &[]) {
        Ok(()) => {
            crate::firewall::clear("probe0").unwrap();
            assert_eq!(crate::firewall::rules("probe0").unwrap(), BTreeMap::new());
            true
        }
        Err(reason) => {
            let _ = scene;
            keelet_report::skipped(reason);
            false
        }
    }
}

#[test]
fn pods_reach_outside_hosts_with_the_address_of_the_node() {
    inside("tests::ports::pods_reach_outside_hosts_with_the_address_of_the_node", |mut scene| {
        if !rules_work(&scene) {
            return;
        }
        let outside = outside(&scene);
        let pod = scene.pod("one");
        scene.attach(&pod).unwrap();
        serve(Some(&outside), "0.0.0.0:80");
        assert_eq!(ask(Some(&pod.netns), ip("192.0.2.2"), 80).unwrap(), "192.0.2.1");
        assert_eq!(link("keelet0").unwrap().mtu, Some(1400), "the MTU of the way out");

        scene.settings.ranges = vec![net("10.99.0.0/24")];
        let new = scene.pod("two");
        scene.attach(&new).unwrap();
        for pod in [&pod, &new] {
            assert_eq!(ask(Some(&pod.netns), ip("192.0.2.2"), 80).unwrap(), "192.0.2.1", "after a change of ranges");
        }
    });
}

/// Bridged packets pass the IP rules only with the sysctl bridge-nf-call-iptables; both settings have to work.
#[test]
fn a_host_port_is_forwarded_from_everywhere() {
    inside("tests::ports::a_host_port_is_forwarded_from_everywhere", |scene| {
        if !rules_work(&scene) {
            return;
        }
        let outside = outside(&scene);
        let switch = "bridge/bridge-nf-call-iptables";
        for value in ["1", "0"] {
            if crate::sysctl::exists(switch) {
                crate::sysctl::ensure(switch, value).unwrap();
            }
            ports_work(&scene, &outside, value);
        }
    });
}

fn ports_work(scene: &Scene, outside: &Path, round: &str) {
    let (mut server, client) = (scene.pod(&format!("server{round}")), scene.pod(&format!("client{round}")));
    server.ports = vec![port(80, 8080)];
    let server_ip = scene.attach(&server).unwrap()[0];
    let client_ip = scene.attach(&client).unwrap()[0];
    serve(Some(&server.netns), "0.0.0.0:80");
    let node = ip("192.0.2.1");
    let says = |netns: Option<&Path>, ip| ask(netns, ip, 8080).unwrap_or_else(|error| error.to_string());
    assert_eq!(says(Some(outside), node), "192.0.2.2", "from outside, with the caller's address");
    assert_eq!(says(None, node), "192.0.2.1", "from the node");
    assert_eq!(says(None, ip("127.0.0.1")), "10.213.0.1", "from the node's loopback");
    assert_eq!(says(Some(&client.netns), node), "10.213.0.1", "from another pod");
    assert_eq!(says(Some(&server.netns), node), "10.213.0.1", "from the pod itself");
    assert_eq!(ask(Some(&client.netns), server_ip, 80).unwrap(), client_ip.to_string(), "not translated");
    assert!(is_silent(None, node, 80), "only the host port is forwarded");

    scene.detach(&server).unwrap();
    assert!(is_silent(None, node, 8080));
    assert!(is_silent(Some(outside), node, 8080));
    scene.detach(&client).unwrap();
}

#[test]
fn a_host_port_does_not_open_the_loopback_of_the_node_to_pods() {
    inside("tests::ports::a_host_port_does_not_open_the_loopback_of_the_node_to_pods", |scene| {
        if !rules_work(&scene) {
            return;
        }
        let (mut one, two) = (scene.pod("one"), scene.pod("two"));
        one.ports = vec![port(80, 8080)];
        scene.attach(&one).unwrap();
        scene.attach(&two).unwrap();
        serve(None, "127.0.0.1:7000");
        send_loopback_to_the_node(&two);
        assert!(is_silent(Some(&two.netns), ip("127.0.0.1"), 7000));
        let switch = "/proc/sys/net/ipv4/conf/keelet0/route_localnet";
        assert_eq!(std::fs::read_to_string(switch).unwrap(), "1\n");
        scene.detach(&one).unwrap();
        assert_eq!(std::fs::read_to_string(switch).unwrap(), "0\n", "only while there are ports");
    });
}

/// The pod sends packets for 127.0.0.1 to the node, as a hostile one would.
pub(super) fn send_loopback_to_the_node(pod: &PodNetwork) {
    let route = || {
        crate::sysctl::ensure("ipv4/conf/all/route_localnet", "1")?;
        threads::block_on(async {
            let kernel = Kernel::open()?;
            let lo = kernel.existing_link("lo").await?;
            kernel.delete_address(&lo, net("127.0.0.1/8")).await?;
            kernel.set_default_route(&kernel.existing_link("eth0").await?, ip("10.213.0.1")).await
        })
    };
    threads::inside(&pod.netns, route).unwrap();
}

/// Connection tracking would keep a client that keeps its source port with the first pod.
#[test]
fn a_udp_client_reaches_the_next_pod_of_a_host_port() {
    inside("tests::ports::a_udp_client_reaches_the_next_pod_of_a_host_port", |scene| {
        if !rules_work(&scene) {
            return;
        }
        let outside = outside(&scene);
        let client = at(Some(&outside), || UdpSocket::bind("0.0.0.0:5000").unwrap());
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        client.connect("192.0.2.1:5353").unwrap();
        // Before there is a pod: tracked as a connection to the node itself. The refusal shows that the datagram has arrived; on a busy
        // machine it could otherwise wait for the neighbour's address until there is a pod, and be answered too.
        client.send(b"anybody?").unwrap();
        let refusal = client.recv(&mut [0; 64]).unwrap_err();
        assert_eq!(refusal.kind(), io::ErrorKind::ConnectionRefused, "{refusal}");
        for name in ["first", "second"] {
            let mut pod = scene.pod(name);
            pod.ports = vec![PortMapping { protocol: Protocol::Udp, ..port(53, 5353) }];
            scene.attach(&pod).unwrap();
            let server = at(Some(&pod.netns), || UdpSocket::bind("0.0.0.0:53").unwrap());
            std::thread::spawn(move || {
                let mut buffer = [0; 64];
                while let Ok((_, from)) = server.recv_from(&mut buffer) {
                    let _ = server.send_to(name.as_bytes(), from);
                }
            });
            client.send(b"who?").unwrap();
            let mut buffer = [0; 64];
            let length = client.recv(&mut buffer).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(String::from_utf8_lossy(&buffer[..length]), name);
            scene.detach(&pod).unwrap();
        }
    });
}

#[test]
fn a_host_port_belongs_to_one_pod() {
    inside("tests::ports::a_host_port_belongs_to_one_pod", |scene| {
        if !rules_work(&scene) {
            return;
        }
        let (mut one, mut two) = (scene.pod("one"), scene.pod("two"));
        one.ports = vec![port(80, 8080)];
        two.ports = vec![PortMapping { host_ip: Some(ip("127.0.0.1")), ..port(81, 8080) }];
        scene.attach(&one).unwrap();
        let error = scene.attach(&two).unwrap_err().to_string();
        assert_eq!(error, "host port 127.0.0.1 8080/tcp is already used by sandbox sandbox-one");
        assert_eq!(scene.files(), ["sandbox-one.json"]);
        scene.detach(&one).unwrap();
        scene.attach(&two).unwrap();
    });
}

/// NODE-7: the error names the process, nothing is created, and the process keeps its clients. A pod that is attached already is not checked
/// again.
#[test]
fn a_host_port_that_a_process_of_the_node_listens_on_is_refused() {
    inside("tests::ports::a_host_port_that_a_process_of_the_node_listens_on_is_refused", |scene| {
        if !rules_work(&scene) {
            return;
        }
        let me = format!("(PID {})", std::process::id());
        let listens = TcpListener::bind("127.0.0.1:8080").unwrap();
        let datagrams = UdpSocket::bind("0.0.0.0:8053").unwrap();
        let on = |name: &str, port: PortMapping| {
            let mut pod = scene.pod(name);
            pod.ports = vec![port];
            pod
        };
        let udp = |number| PortMapping { protocol: Protocol::Udp, ..port(53, number) };
        for (name, wanted) in [("tcp", port(80, 8080)), ("udp", udp(8053))] {
            let port = format!("host port {wanted}");
            let pod = on(name, wanted);
            let before = scene.snapshot();
            let error = scene.attach(&pod).unwrap_err();
            assert!(matches!(error, Error::HostPortInUse { .. }), "{error}");
            let text = error.to_string();
            assert!(text.starts_with(&format!("{port} is taken by a process of the node: ")), "{text}");
            assert!(text.contains(&me), "{text}: this is {me}");
            assert_eq!((scene.snapshot(), scene.files()), (before, vec![]), "nothing is made");
        }
        // Another protocol, another address, another port: no conflict.
        outside(&scene);
        let elsewhere = PortMapping { host_ip: Some(ip("192.0.2.1")), ..port(80, 8080) };
        for (name, free) in [("protocol", udp(8080)), ("address", elsewhere), ("port", port(80, 8081))] {
            let pod = on(name, free);
            scene.attach(&pod).unwrap_or_else(|error| panic!("another {name}: {error}"));
            scene.detach(&pod).unwrap();
        }
        drop((listens, datagrams));
        let pod = on("late", port(80, 8080));
        scene.attach(&pod).unwrap();
        let _late = TcpListener::bind("0.0.0.0:8080").unwrap();
        scene.attach(&pod).unwrap();
        scene.detach(&pod).unwrap();
    });
}

#[test]
fn a_port_for_one_address_is_forwarded_there_only() {
    inside("tests::ports::a_port_for_one_address_is_forwarded_there_only", |scene| {
        if !rules_work(&scene) {
            return;
        }
        outside(&scene);
        let mut pod = scene.pod("one");
        pod.ports = vec![PortMapping { host_ip: Some(ip("192.0.2.1")), ..port(80, 8080) }];
        scene.attach(&pod).unwrap();
        serve(Some(&pod.netns), "0.0.0.0:80");
        assert!(ask(None, ip("192.0.2.1"), 8080).is_ok());
        assert!(is_silent(None, ip("127.0.0.1"), 8080));
    });
}

#[test]
fn the_error_for_a_port_of_a_missing_family_names_it() {
    inside("tests::ports::the_error_for_a_port_of_a_missing_family_names_it", |scene| {
        let before = scene.snapshot();
        let mut pod = scene.pod("one");
        pod.ports = vec![PortMapping { host_ip: Some(ip("::")), ..port(80, 8080) }];
        let error = scene.attach(&pod).unwrap_err();
        assert!(matches!(error, Error::HostPortFamily { .. }), "{error}");
        assert_eq!((scene.snapshot(), scene.files()), (before, vec![]));
    });
}

#[test]
fn without_packet_rules_host_ports_are_an_error_and_other_pods_run() {
    inside("tests::ports::without_packet_rules_host_ports_are_an_error_and_other_pods_run", |scene| {
        crate::firewall::pretend_missing();
        let before = scene.snapshot();
        let (plain, mut with_port) = (scene.pod("plain"), scene.pod("port"));
        with_port.ports = vec![port(80, 8080)];
        let error = scene.attach(&with_port).unwrap_err().to_string();
        assert!(error.starts_with("cannot forward the host ports of the pod: nftables: Protocol not"), "{error}");
        assert_eq!((scene.snapshot(), scene.files()), (before, vec![]));
        let address = scene.attach(&plain).unwrap()[0];
        serve(Some(&plain.netns), "0.0.0.0:80");
        assert!(ask(None, address, 80).is_ok());
        scene.detach(&plain).unwrap();
    });
}

#[test]
fn hundreds_of_host_ports_are_forwarded() {
    inside("tests::ports::hundreds_of_host_ports_are_forwarded", |scene| {
        if !rules_work(&scene) {
            return;
        }
        let mut pod = scene.pod("one");
        pod.ports = (0..1000).map(|n| port(1000 + n, 20000 + n)).collect();
        scene.attach(&pod).unwrap();
        serve(Some(&pod.netns), "0.0.0.0:1999");
        assert!(ask(None, ip("10.213.0.1"), 20999).is_ok());
    });
}
