//! Sandboxes: identity, name, resolver, ports, isolation.

use keelet_cri::v1::{NamespaceMode, Protocol, SupplementalGroupsPolicy, security_profile::ProfileType};

use super::*;

#[test]
fn a_sandbox_is_known_by_the_kubelets_names() {
    let metadata = "labels: {app: web, io.kubernetes.pod.name: liar}\nannotations: {note: hello}";
    let config = Place::with(metadata, "", "").sandbox();
    let identity = config.metadata.expect("metadata");
    assert_eq!((&*identity.name, &*identity.namespace, &*identity.uid, identity.attempt), ("web", "shop", "u-1", 2));
    let labels = [
        ("app", "web"),
        ("io.kubernetes.pod.name", "web"),
        ("io.kubernetes.pod.namespace", "shop"),
        ("io.kubernetes.pod.uid", "u-1"),
    ];
    assert_eq!(config.labels, map(labels));
    assert_eq!(config.annotations, map([("note", "hello")]));
    assert_eq!(config.log_directory, "/var/log/pods/shop_web_u-1");
    assert_eq!(config.linux.expect("linux").cgroup_parent, "");
}

#[test]
fn the_host_name_is_the_pods_unless_it_says_otherwise() {
    let cases = [
        ("", "web"),
        ("hostname: shop-front", "shop-front"),
        ("hostname: shop-front\nsubdomain: svc", "shop-front"),
        ("subdomain: sub\nsetHostnameAsFQDN: true", "web.sub.shop.svc.cluster.local"),
        ("hostname: h\nsubdomain: sub\nsetHostnameAsFQDN: true", "h.sub.shop.svc.cluster.local"),
        ("setHostnameAsFQDN: true", "web"),
        ("hostnameOverride: over.ride\nsubdomain: sub\nsetHostnameAsFQDN: true", "over.ride"),
        ("hostNetwork: true\nhostname: h", ""),
    ];
    for (spec, name) in cases {
        let mut place = Place::spec(spec);
        place.node.cluster_domain = "cluster.local".to_owned();
        assert_eq!(place.sandbox().hostname, name, "{spec}");
    }
    let place = Place::spec("subdomain: sub\nsetHostnameAsFQDN: true");
    assert_eq!(place.sandbox().hostname, "web.sub.shop.svc", "no cluster, no domain of it");
}

#[test]
fn a_long_name_is_cut_without_a_loose_end() {
    let cases = [
        ("x".repeat(63), "x".repeat(63)),
        ("x".repeat(80), "x".repeat(63)),
        (format!("{}-.-{}", "x".repeat(60), "y"), "x".repeat(60)),
        (format!("{}--y", "x".repeat(60)), format!("{}--y", "x".repeat(60))),
    ];
    for (name, cut) in cases {
        let mut place = Place::spec("");
        place.pod.name = name;
        assert_eq!(place.sandbox().hostname, cut);
    }
}

#[test]
fn a_full_name_that_the_kernel_cannot_take_is_refused() {
    let mut place = Place::spec("subdomain: sub\nsetHostnameAsFQDN: true");
    // web.sub.shop.svc. and 47 characters are 64.
    place.node.cluster_domain = "d".repeat(47);
    assert_eq!(place.sandbox().hostname.len(), 64);
    place.node.cluster_domain = "d".repeat(48);
    let error = sandbox_config(&place.placement(), 0).expect_err("too long");
    assert_eq!(error.reason, "CreatePodSandboxError");
    assert!(error.message.contains("65 characters"), "{error}");
}

#[test]
fn a_pod_that_wants_users_of_its_own_never_gets_the_nodes() {
    let mut place = Place::spec("hostUsers: false");
    let error = sandbox_config(&place.placement(), 0).expect_err("refused");
    assert!(error.message.contains("hostUsers"), "{error}");
    place.users = Some(IdRange { first: 131_072, length: 65_536 });
    let users = |config: v1::PodSandboxConfig| {
        let options = config.linux.and_then(|linux| linux.security_context?.namespace_options);
        options.expect("namespaces").userns_options
    };
    let range = vec![v1::IdMapping { host_id: 131_072, container_id: 0, length: 65_536 }];
    let wanted = v1::UserNamespace { mode: NamespaceMode::Pod.into(), uids: range.clone(), gids: range };
    assert_eq!(users(place.sandbox()), Some(wanted.clone()));
    assert_eq!(place.security().namespace_options.and_then(|options| options.userns_options), Some(wanted));
    assert_eq!(users(Place::spec("hostUsers: true").sandbox()), None);
}

const RESOLV_CONF: &str = "# a remark\nnameserver 192.0.2.53\nnameserver 192.0.2.54\n\
    search first.example\nsearch example.com. . example.org\noptions ndots:2 rotate\noptions ndots:3\nnonsense\n";

#[test]
fn the_resolver_follows_the_policy() {
    let on_node = (vec!["192.0.2.53", "192.0.2.54"], vec!["example.com", "example.org"], vec!["ndots:3", "rotate"]);
    let in_cluster = (
        vec!["10.96.0.10"],
        vec!["shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.com", "example.org"],
        vec!["ndots:5"],
    );
    let none = (vec!["192.0.2.99"], vec![], vec![]);
    let cases = [
        ("dnsPolicy: Default", false, &on_node),
        ("dnsPolicy: Default", true, &on_node),
        ("", false, &on_node),
        ("", true, &in_cluster),
        ("dnsPolicy: ClusterFirst\nhostNetwork: true", true, &on_node),
        ("dnsPolicy: ClusterFirstWithHostNet\nhostNetwork: true", true, &in_cluster),
        ("dnsPolicy: ClusterFirstWithHostNet", false, &on_node),
        ("dnsPolicy: None\ndnsConfig: {nameservers: [192.0.2.99]}", true, &none),
    ];
    for (spec, cluster, (servers, searches, options)) in cases {
        let mut place = Place::spec(spec);
        place.node.resolv_conf = Some(RESOLV_CONF.to_owned());
        if cluster {
            place.node.cluster_dns = vec!["10.96.0.10".to_owned()];
            place.node.cluster_domain = "cluster.local".to_owned();
        }
        let config = place.sandbox().dns_config.expect("a resolver");
        assert_eq!(config.servers, *servers, "{spec}");
        assert_eq!(config.searches, *searches, "{spec}");
        assert_eq!(config.options, *options, "{spec}");
    }
}

#[test]
fn a_pods_own_resolver_settings_are_added() {
    let mut place = Place::spec(
        "dnsConfig:\n  nameservers: [192.0.2.53, 192.0.2.99]\n  searches: [example.com, own.example]\n  \
         options: [{name: ndots, value: '7'}, {name: edns0}, {name: rotate, value: ''}]",
    );
    place.node.resolv_conf = Some(RESOLV_CONF.to_owned());
    let config = place.sandbox().dns_config.expect("a resolver");
    assert_eq!(config.servers, ["192.0.2.53", "192.0.2.54", "192.0.2.99"]);
    assert_eq!(config.searches, ["example.com", "example.org", "own.example"]);
    assert_eq!(config.options, ["ndots:7", "rotate", "edns0"]);
}

#[test]
fn a_node_without_a_resolver_gives_none() {
    for (address, server) in [(None, "127.0.0.1"), (Some("192.0.2.1"), "127.0.0.1"), (Some("fd00::1"), "::1")] {
        let mut place = Place::spec("");
        place.node.resolv_conf = None;
        place.node.address = address.map(str::to_owned);
        let config = place.sandbox().dns_config.expect("a resolver");
        assert_eq!((config.servers, config.searches), (vec![server.to_owned()], vec![".".to_owned()]));
    }
}

#[test]
fn a_resolver_is_cut_to_what_the_c_library_takes() {
    let mut place = Place::spec("");
    let domains: Vec<_> = (10..50).map(|n| format!("d{n}.example")).collect();
    let servers = "nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 192.0.2.3\nnameserver 192.0.2.4\n";
    place.node.resolv_conf = Some(format!("{servers}search {}\n", domains.join(" ")));
    let config = place.sandbox().dns_config.expect("a resolver");
    assert_eq!((config.servers.len(), config.searches.len()), (3, 32));

    let (wide, long) = ("w".repeat(253), "l".repeat(254));
    place.node.resolv_conf = Some(format!("search {}\n", [&long, &wide].map(String::as_str).join(" ")));
    assert_eq!(place.sandbox().dns_config.expect("a resolver").searches, [wide]);
    let lines: Vec<_> = (0..10).map(|n| format!("{}{n}", "w".repeat(252))).collect();
    place.node.resolv_conf = Some(format!("search {}\n", lines.join(" ")));
    // Eight of them and seven blanks are 2031 characters.
    assert_eq!(place.sandbox().dns_config.expect("a resolver").searches.len(), 8);
}

#[test]
fn ports_of_the_node_lead_to_containers_that_run_side_by_side() {
    let init = "initContainers:\n- {name: once, image: a, ports: [{containerPort: 1, hostPort: 1}]}\n\
        - {name: side, image: a, restartPolicy: Always, ports: [{containerPort: 53, hostPort: 5353, protocol: UDP}]}";
    let ports = "ports:\n- {containerPort: 80, hostPort: 8080, hostIP: 127.0.0.1}\n- {containerPort: 81}\n\
        - {containerPort: 82, hostPort: 0}\n\
        - {containerPort: 9, hostPort: 90, protocol: SCTP}";
    let mappings = Place::with("", init, ports).sandbox().port_mappings;
    let mappings: Vec<_> = mappings
        .iter()
        .map(|mapping| (mapping.protocol(), mapping.container_port, mapping.host_port, mapping.host_ip.as_str()))
        .collect();
    assert_eq!(
        mappings,
        [(Protocol::Udp, 53, 5353, ""), (Protocol::Tcp, 80, 8080, "127.0.0.1"), (Protocol::Sctp, 9, 90, "")]
    );
    assert!(Place::with("", "hostNetwork: true", ports).sandbox().port_mappings.is_empty());
}

#[test]
fn a_sandbox_has_the_pods_isolation() {
    use NamespaceMode::{Container, Node, Pod};
    let cases = [
        ("", (Pod, Container, Pod)),
        ("hostNetwork: true", (Node, Container, Pod)),
        ("hostPID: true", (Pod, Node, Pod)),
        ("hostIPC: true", (Pod, Container, Node)),
        ("shareProcessNamespace: true", (Pod, Pod, Pod)),
    ];
    for (spec, modes) in cases {
        let context = Place::spec(spec).sandbox().linux.and_then(|linux| linux.security_context).expect("a context");
        let options = context.namespace_options.expect("namespaces");
        assert_eq!((options.network(), options.pid(), options.ipc()), modes, "{spec}");
    }
}

#[test]
fn a_sandbox_has_the_pods_security_context() {
    let spec = "securityContext:\n  runAsUser: 1\n  runAsGroup: 2\n  fsGroup: 3\n  supplementalGroups: [4, 5]\n  \
        supplementalGroupsPolicy: Strict\n  seLinuxOptions: {user: u, role: r, type: t, level: l}\n  \
        seccompProfile: {type: Unconfined}\n  sysctls: [{name: net.core.somaxconn, value: '1024'}]";
    let linux = Place::spec(spec).sandbox().linux.expect("linux");
    assert_eq!(linux.sysctls, map([("net.core.somaxconn", "1024")]));
    let context = linux.security_context.expect("a context");
    assert_eq!(context.run_as_user.map(|id| id.value), Some(1));
    assert_eq!(context.run_as_group.map(|id| id.value), Some(2));
    assert_eq!(context.supplemental_groups, [3, 4, 5]);
    assert_eq!(context.supplemental_groups_policy(), SupplementalGroupsPolicy::Strict);
    let selinux = context.selinux_options.as_ref().expect("options");
    assert_eq!((&*selinux.user, &*selinux.role, &*selinux.r#type, &*selinux.level), ("u", "r", "t", "l"));
    assert_eq!(context.seccomp.as_ref().expect("a profile").profile_type(), ProfileType::RuntimeDefault);
    assert!(!context.privileged);
}

#[test]
fn a_sandbox_is_privileged_if_one_of_its_containers_is() {
    let privileged = "securityContext: {privileged: true}";
    let init = format!("initContainers: [{{name: setup, image: a, {privileged}}}]");
    let ephemeral = format!("ephemeralContainers: [{{name: debug, image: a, {privileged}}}]");
    for (place, expected) in [
        (Place::container(privileged), true),
        (Place::spec(&init), true),
        (Place::spec(&ephemeral), true),
        (Place::container("securityContext: {privileged: false}"), false),
    ] {
        let context = place.sandbox().linux.and_then(|linux| linux.security_context).expect("a context");
        assert_eq!(context.privileged, expected);
    }
}
