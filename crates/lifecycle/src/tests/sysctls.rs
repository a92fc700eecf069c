//! Kernel parameters of pods.

use crate::{
    Stage,
    status::Phase,
    sysctls::{NotNamespaced, Sysctls},
};

use super::world::World;

fn spec(extra: &str, name: &str) -> String {
    format!(
        "{extra}  securityContext: {{sysctls: [{{name: '{name}', value: '1'}}]}}\n  containers: [{{name: a, image: 'app:1'}}]\n"
    )
}

/// API-29: what is neither safe nor allowed rejects the pod, and the message names it.
#[test]
fn unsafe_sysctls_reject_a_pod_unless_the_node_allows_them() {
    let host_network = "  hostNetwork: true\n";
    let host_ipc = "  hostIPC: true\n";
    for (extra, name, allowed, runs) in [
        ("", "net.ipv4.ip_unprivileged_port_start", vec![], true),
        ("", "net/ipv4/tcp_rmem", vec![], true),
        ("", "net.ipv4.tcp_notsent_lowat", vec![], true),
        ("", "kernel.shm_rmid_forced", vec![], true),
        ("", "net.core.somaxconn", vec![], false),
        ("", "kernel.msgmax", vec!["net.*"], false),
        ("", "kernel.msgmax", vec!["kernel.msg*"], true),
        ("", "net/core/somaxconn", vec!["net.core.somaxconn"], true),
        ("", "net.core.somaxconn", vec!["net.core.somaxcon"], false),
        ("", "net.ipv4.tcp_rmem_and_more", vec![], false),
        ("", "kernel.core_pattern", vec![], false),
        (host_network, "net.ipv4.tcp_syncookies", vec![], false),
        (host_network, "net.core.somaxconn", vec!["net.*"], false),
        (host_network, "kernel.shm_rmid_forced", vec![], true),
        (host_ipc, "kernel.shm_rmid_forced", vec![], false),
    ] {
        let mut world = World::with_spec(&spec(extra, name));
        world.rules.sysctls = Sysctls::allowing(allowed.iter().map(|&name| name.to_owned()).collect()).unwrap();
        world.settle();
        let case = format!("{name} with {allowed:?} allowed{}", extra.trim_end());
        if runs {
            assert_eq!(world.running(), ["a"].into(), "{case}: {:?}", world.status().message);
            continue;
        }
        assert_eq!((world.status().phase, world.stage()), (Phase::Failed, Stage::Ended), "{case}");
        assert_eq!(world.status().reason.as_deref(), Some("SysctlForbidden"), "{case}");
        let message = world.status().message.clone().unwrap();
        assert!(message.starts_with("Pod was rejected: forbidden sysctl: ") && message.contains("\""), "{message}");
        assert!(world.started.is_empty(), "{case}");
    }
}

/// API-29: an agent that begins to refuse a sysctl, by version or configuration, stops no running pod.
#[test]
fn a_pod_that_runs_keeps_its_sysctls() {
    let mut world = World::with_spec(&spec("", "net.core.somaxconn"));
    world.rules.sysctls = Sysctls::allowing(vec!["net.*".to_owned()]).unwrap();
    world.settle();
    assert_eq!(world.running(), ["a"].into());
    world.rules.sysctls = Sysctls::default();
    world.restart_agent();
    world.settle();
    assert_eq!(world.running(), ["a"].into());
}

#[test]
fn parameters_of_the_whole_node_are_never_allowed() {
    for wrong in [
        "vm.swappiness",
        "kernel.core_pattern",
        "kernel.*",
        "*",
        "",
        "ne*",
        "net*",
        "fs.*",
        "net.*.x*",
        "kernel/core_pattern",
    ] {
        assert_eq!(
            Sysctls::allowing(vec!["net.*".to_owned(), wrong.to_owned()]),
            Err(NotNamespaced(wrong.to_owned())),
            "{wrong}"
        );
    }
}
