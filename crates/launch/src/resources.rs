//! Shares, quotas and limits.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use keelet_cri::v1;
use keelet_pod::{Pod, Quantity};

use super::{
    Cgroups, NodeFacts, Placement,
    amount::{self, Side},
    qos,
};

/// Shares of one processor.
const SHARES_PER_CPU: i64 = 1024;
/// The kernel takes no fewer shares.
const LEAST_SHARES: i64 = 2;
/// The kernel takes no more shares.
const MOST_SHARES: i64 = 262_144;
/// Microseconds after which a quota is renewed.
const PERIOD: i64 = 100_000;
/// The kernel takes no smaller quota.
const LEAST_QUOTA: i64 = 1000;
/// The kernel takes no larger quota: 44 bits are left of its 64 for whole microseconds.
const MOST_QUOTA: i64 = (1 << 44) - 1;
const HUGE_PAGES: &str = "hugepages-";

/// The resources of a container. Where it has no limit of its own, the whole pod's applies.
pub(super) fn container(placement: &Placement<'_>, raw: &Container) -> v1::LinuxContainerResources {
    let Some(spec) = placement.spec() else { return v1::LinuxContainerResources::default() };
    let (own, whole) = (raw.resources.as_ref(), of_whole_pod(spec));
    let limit = |resource| match amount::on(Side::Limits, own, resource) {
        unset if unset.is_zero() => amount::on(Side::Limits, whole, resource),
        limit => limit,
    };
    let has_request = own.and_then(|own| own.requests.as_ref()).is_some_and(|requests| requests.contains_key("cpu"));
    let request = if has_request { amount::on(Side::Requests, own, "cpu") } else { limit("cpu") };
    let mut resources = linux(request, limit("cpu"), limit("memory"));
    resources.oom_score_adj = qos::oom_score_adj(spec, raw, placement.node.memory_bytes);
    resources.hugepage_limits = huge_pages(placement.node, own, whole);
    match placement.node.cgroups {
        Cgroups::V1 if placement.node.swap_limits => {
            resources.memory_swap_limit_in_bytes = resources.memory_limit_in_bytes;
        }
        Cgroups::V1 => {}
        Cgroups::V2 => resources.unified = unified(placement.node),
    }
    resources
}

/// What all containers of the pod together may use. One without a limit leaves the pod without.
pub(super) fn pod(placement: &Placement<'_>) -> v1::LinuxContainerResources {
    let Some(spec) = placement.spec() else { return v1::LinuxContainerResources::default() };
    let request = total(spec, Side::Requests, "cpu");
    let request = if request.is_zero() { total(spec, Side::Limits, "cpu") } else { request };
    let mut resources = linux(request, limit_of_all(spec, "cpu"), limit_of_all(spec, "memory"));
    if placement.node.swap_limits {
        resources.memory_swap_limit_in_bytes = resources.memory_limit_in_bytes;
    }
    resources
}

/// The bytes of memory that all containers of a pod together may use, if there is a limit.
pub fn memory_limit(pod: &Pod) -> Option<u64> {
    let limit = limit_of_all(pod.source.spec.as_ref()?, "memory").units();
    u64::try_from(limit).ok().filter(|limit| *limit > 0)
}

fn limit_of_all(spec: &PodSpec, resource: &str) -> Quantity {
    if is_limited(spec, resource) { total(spec, Side::Limits, resource) } else { Quantity::default() }
}

fn total(spec: &PodSpec, side: Side, resource: &str) -> Quantity {
    match amount::on(side, of_whole_pod(spec), resource) {
        unset if unset.is_zero() => of_containers(spec, side, resource),
        amount => amount,
    }
}

/// Whether the pod as a whole has a limit, or else each of its containers.
fn is_limited(spec: &PodSpec, resource: &str) -> bool {
    let has_limit = |of: Option<&ResourceRequirements>| !amount::on(Side::Limits, of, resource).is_zero();
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    has_limit(of_whole_pod(spec)) || containers.all(|container| has_limit(container.resources.as_ref()))
}

/// What the sandbox needs beside its containers.
pub(super) fn overhead(placement: &Placement<'_>) -> v1::LinuxContainerResources {
    let Some(overhead) = placement.spec().and_then(|spec| spec.overhead.as_ref()) else {
        return v1::LinuxContainerResources::default();
    };
    let cpu = amount::of(Some(overhead), "cpu");
    linux(cpu, cpu, amount::of(Some(overhead), "memory"))
}

/// The resources of the pod as a whole, if it names any that can be named there.
pub(super) fn of_whole_pod(spec: &PodSpec) -> Option<&ResourceRequirements> {
    spec.resources.as_ref().filter(|resources| {
        let names = [&resources.requests, &resources.limits].into_iter().flatten().flat_map(BTreeMap::keys);
        names.into_iter().any(|name| matches!(name.as_str(), "cpu" | "memory") || name.starts_with(HUGE_PAGES))
    })
}

/// What the containers need at the most demanding moment: all that run side by side, or one init container with the
/// sidecars before it.
pub(super) fn of_containers(spec: &PodSpec, side: Side, resource: &str) -> Quantity {
    let asked = |container: &Container| amount::on(side, container.resources.as_ref(), resource);
    let (mut sidecars, mut peak) = (Quantity::default(), Quantity::default());
    for container in spec.init_containers.iter().flatten() {
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = sidecars + asked(container);
        } else {
            peak = peak.max(sidecars + asked(container));
        }
    }
    peak.max(sidecars + spec.containers.iter().map(asked).sum())
}

fn linux(cpu_request: Quantity, cpu_limit: Quantity, memory_limit: Quantity) -> v1::LinuxContainerResources {
    v1::LinuxContainerResources {
        cpu_period: PERIOD,
        cpu_quota: quota(cpu_limit.millis()),
        cpu_shares: shares(cpu_request.millis()),
        memory_limit_in_bytes: memory_limit.units(),
        ..v1::LinuxContainerResources::default()
    }
}

fn shares(millis: i64) -> i64 {
    (millis.saturating_mul(SHARES_PER_CPU) / 1000).clamp(LEAST_SHARES, MOST_SHARES)
}

/// Microseconds of each period; zero is as much as there is.
fn quota(millis: i64) -> i64 {
    if millis == 0 { 0 } else { millis.saturating_mul(PERIOD / 1000).clamp(LEAST_QUOTA, MOST_QUOTA) }
}

/// Every size that the node has is limited, to zero unless the container or the pod says otherwise.
fn huge_pages(
    node: &NodeFacts,
    own: Option<&ResourceRequirements>,
    whole: Option<&ResourceRequirements>,
) -> Vec<v1::HugepageLimit> {
    let mut limits = BTreeMap::new();
    for resources in [whole, own].into_iter().flatten() {
        for (resource, limit) in resources.limits.iter().flatten() {
            if let Some(size) = resource.strip_prefix(HUGE_PAGES) {
                let size = Quantity::parse(size).unwrap_or_default().units();
                limits.insert(size, u64::try_from(amount::read(limit).units()).unwrap_or_default());
            }
        }
    }
    let of_size = |size: &i64| v1::HugepageLimit {
        page_size: size_name(*size),
        limit: limits.get(size).copied().unwrap_or_default(),
    };
    node.huge_page_sizes.iter().map(of_size).collect()
}

/// A size as the kernel names it, in the largest unit that leaves no rest.
fn size_name(mut bytes: i64) -> String {
    let mut units = ["B", "KB", "MB", "GB", "TB", "PB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    while bytes > 0 && bytes % 1024 == 0 {
        let Some(larger) = units.next() else { break };
        (bytes, unit) = (bytes / 1024, larger);
    }
    format!("{bytes}{unit}")
}

/// A container dies as a whole when it runs out of memory, and does not swap.
fn unified(node: &NodeFacts) -> BTreeMap<String, String> {
    let swap = node.swap_limits.then_some(("memory.swap.max", "0"));
    let files = [("memory.oom.group", "1")].into_iter().chain(swap);
    files.map(|(file, value)| (file.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::{quota, shares, size_name};

    #[test]
    fn shares_follow_the_request_within_the_kernels_bounds() {
        let cases = [(0, 2), (1, 2), (10, 10), (100, 102), (250, 256), (1000, 1024), (4500, 4608), (256_000, 262_144)];
        for (millis, expected) in cases.into_iter().chain([(300_000, 262_144), (i64::MAX, 262_144)]) {
            assert_eq!(shares(millis), expected, "{millis}");
        }
    }

    #[test]
    fn quotas_follow_the_limit_and_are_not_too_small() {
        let cases = [(0, 0), (5, 1000), (9, 1000), (10, 1000), (200, 20_000), (500, 50_000), (1000, 100_000)];
        for (millis, expected) in cases.into_iter().chain([(1500, 150_000)]) {
            assert_eq!(quota(millis), expected, "{millis}");
        }
    }

    #[test]
    fn sizes_of_huge_pages_are_named_as_the_kernel_does() {
        for (bytes, name) in [(0, "0B"), (64 << 10, "64KB"), (2 << 20, "2MB"), (1 << 30, "1GB"), (16 << 30, "16GB")] {
            assert_eq!(size_name(bytes), name);
        }
    }
}
