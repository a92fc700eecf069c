//! Shares, limits, scores.

use super::*;
use crate::Cgroups;

#[test]
fn requests_become_shares_and_limits_become_quotas() {
    let cases = [
        ("", (2, 0, 0)),
        ("requests: {cpu: 250m}", (256, 0, 0)),
        ("limits: {cpu: 500m, memory: 64Mi}", (512, 50_000, 64 << 20)),
        ("limits: {cpu: 2}, requests: {cpu: 100m}", (102, 200_000, 0)),
        ("limits: {cpu: 1m}, requests: {cpu: 1m}", (2, 1000, 0)),
        ("limits: {memory: 1.5Gi}", (2, 0, 3 << 29)),
        // However many digits an amount is written with, and however large it is, a limit is a limit.
        ("limits: {cpu: '1.0000000000000000000000000000000000000000'}", (1024, 100_000, 0)),
        ("limits: {memory: '1048576.00000000000000000000000000000000000Ki'}", (2, 0, 1 << 30)),
        ("limits: {memory: '99999999999999999999999999999999999999999999'}", (2, 0, i64::MAX)),
        ("limits: {cpu: '99999999999999999999999999999999999999999999'}", (262_144, (1 << 44) - 1, 0)),
    ];
    for (resources, (shares, quota, memory)) in cases {
        let linux = Place::container(&format!("resources: {{{resources}}}")).resources("main");
        let found = (linux.cpu_shares, linux.cpu_quota, linux.memory_limit_in_bytes);
        assert_eq!(found, (shares, quota, memory), "{resources}");
        assert_eq!(linux.cpu_period, 100_000);
    }
}

#[test]
fn the_limits_of_the_whole_pod_hold_where_a_container_has_none() {
    let whole = "resources: {limits: {cpu: 2, memory: 1Gi}}";
    let linux = Place::spec(whole).resources("main");
    assert_eq!((linux.cpu_shares, linux.cpu_quota, linux.memory_limit_in_bytes), (2048, 200_000, 1 << 30));
    let linux = Place::with("", whole, "resources: {limits: {cpu: 1}}").resources("main");
    assert_eq!((linux.cpu_shares, linux.cpu_quota, linux.memory_limit_in_bytes), (1024, 100_000, 1 << 30));
}

#[test]
fn every_size_of_huge_pages_is_limited() {
    let mut place = Place::container("resources: {limits: {hugepages-2Mi: 4Mi, hugepages-64Ki: 64Ki}}");
    place.node.huge_page_sizes = vec![2 << 20, 1 << 30];
    let limits = place.resources("main").hugepage_limits;
    let limits: Vec<_> = limits.iter().map(|limit| (&*limit.page_size, limit.limit)).collect();
    assert_eq!(limits, [("2MB", 4 << 20), ("1GB", 0)]);
}

#[test]
fn no_container_swaps_where_the_runtime_can_be_told() {
    let swap_of = |cgroups, swap_limits| {
        let mut place = Place::container("resources: {limits: {memory: 1M}}");
        (place.node.cgroups, place.node.swap_limits) = (cgroups, swap_limits);
        let linux = place.resources("main");
        (linux.unified, linux.memory_swap_limit_in_bytes)
    };
    assert_eq!(swap_of(Cgroups::V1, false), (map([]), 0));
    assert_eq!(swap_of(Cgroups::V1, true), (map([]), 1_000_000));
    assert_eq!(swap_of(Cgroups::V2, false), (map([("memory.oom.group", "1")]), 0));
    assert_eq!(swap_of(Cgroups::V2, true), (map([("memory.oom.group", "1"), ("memory.swap.max", "0")]), 0));
}

/// The kubelet's vectors where the memory of the node is eight times the least request.
#[test]
fn the_container_that_requested_less_is_killed_first() {
    let all = "resources: {limits: {cpu: 1, memory: 1G}}";
    let cases = [
        ("", "", 1000),
        ("", "resources: {limits: {memory: 0}}", 1000),
        ("", all, -997),
        ("", "resources: {limits: {cpu: 1}}", 999),
        ("", "resources: {requests: {cpu: 1, memory: 1}}", 999),
        ("", "resources: {requests: {memory: 1G}}", 875),
        ("", "resources: {requests: {memory: 4G}}", 500),
        ("", "resources: {requests: {memory: 8G}}", 3),
        ("", "resources: {requests: {memory: 7992M}}", 3),
        ("", "resources: {requests: {memory: 80G}}", 3),
        ("priorityClassName: system-node-critical", "", -997),
        ("priorityClassName: system-cluster-critical", "", 1000),
        ("initContainers: [{name: setup, image: a}]", all, 875),
        ("resources: {limits: {cpu: 1, memory: 1G}, requests: {cpu: 1, memory: 1G}}", "", -997),
        (
            "resources: {limits: {cpu: 1, memory: 1G}, requests: {cpu: 1, memory: 1G}}",
            "resources: {requests: {cpu: 1}}",
            -997,
        ),
        ("resources: {requests: {memory: 2G}}", "", 750),
        ("resources: {requests: {memory: 2G}}", "resources: {requests: {memory: 1G}}", 750),
        ("resources: {requests: {memory: 2G}}\ninitContainers: [{name: setup, image: a}]", "", 875),
    ];
    for (spec, container, score) in cases {
        assert_eq!(Place::with("", spec, container).resources("main").oom_score_adj, score, "{spec} {container}");
    }
    let mut unknown = Place::container("resources: {requests: {memory: 1G}}");
    unknown.node.memory_bytes = 0;
    assert_eq!(unknown.resources("main").oom_score_adj, 999);
}

#[test]
fn a_sidecar_is_not_killed_before_those_it_serves() {
    for (request, score) in [("100M", 875), ("1G", 875), ("4G", 500)] {
        let sidecar = format!(
            "initContainers: [{{name: side, image: a, restartPolicy: Always, resources: {{requests: {{memory: \
             {request}}}}}}}]"
        );
        let place = Place::with("", &sidecar, "resources: {requests: {memory: 1G}}");
        assert_eq!(place.resources("side").oom_score_adj, score, "{request}");
    }
    let init = "initContainers: [{name: setup, image: a, resources: {requests: {memory: 400M}}}]";
    let place = Place::with("", init, "resources: {requests: {memory: 1G}}");
    assert_eq!(place.resources("setup").oom_score_adj, 950, "an ordinary init container serves no requests");
}

#[test]
fn a_sandbox_gets_what_its_containers_need_at_the_most_demanding_moment() {
    let limited = |name: &str, policy: &str, cpu: &str, memory: &str| {
        format!("- {{name: {name}, image: a{policy}, resources: {{limits: {{cpu: {cpu}, memory: {memory}}}}}}}\n")
    };
    let sidecar = limited("side", ", restartPolicy: Always", "1", "1M");
    let init = limited("setup", "", "3", "1M");
    let spec = format!("overhead: {{cpu: 100m, memory: 2M}}\ninitContainers:\n{sidecar}{init}");
    let linux = Place::with("", &spec, "resources: {limits: {cpu: 500m, memory: 7M}}").sandbox().linux.expect("linux");
    let resources = linux.resources.expect("resources");
    assert_eq!(resources.cpu_shares, 4096, "the init container and the sidecar before it");
    assert_eq!(resources.cpu_quota, 400_000);
    assert_eq!(resources.memory_limit_in_bytes, 8_000_000, "the container and the sidecar");
    let overhead = linux.overhead.expect("overhead");
    assert_eq!((overhead.cpu_shares, overhead.cpu_quota, overhead.memory_limit_in_bytes), (102, 10_000, 2_000_000));

    assert_eq!(resources.memory_swap_limit_in_bytes, 0, "nothing could limit it");
    let mut place = Place::with("", &spec, "resources: {limits: {cpu: 500m, memory: 7M}}");
    place.node.swap_limits = true;
    let swap = place.sandbox().linux.and_then(|linux| Some(linux.resources?.memory_swap_limit_in_bytes));
    assert_eq!(swap, Some(8_000_000), "no more with swap than without");
    let linux = Place::with("", &spec, "resources: {limits: {cpu: 500m}}").sandbox().linux.expect("linux");
    let resources = linux.resources.expect("resources");
    assert_eq!(
        (resources.cpu_quota, resources.memory_limit_in_bytes),
        (400_000, 0),
        "one of them has no limit of memory"
    );

    let whole = Place::with("", "resources: {limits: {cpu: 2}}", "").sandbox().linux.expect("linux");
    assert_eq!(whole.resources.map(|resources| (resources.cpu_shares, resources.cpu_quota)), Some((2048, 200_000)));
    assert_eq!(whole.overhead, Some(v1::LinuxContainerResources::default()));
}
