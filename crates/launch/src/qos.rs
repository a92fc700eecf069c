//! The QoS class of a pod, and which process the kernel kills first when memory runs out.

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use keelet_pod::Pod;

use super::{
    amount::{self, Side},
    resources,
};

/// The score of processes that the kernel kills last.
const LAST: i64 = -997;
/// The score of processes that the kernel kills first.
const FIRST: i64 = 1000;

/// How far a pod said what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// All of it: requests are limits.
    Guaranteed,
    /// Some of it.
    Burstable,
    /// None of it.
    BestEffort,
}

/// The kernel adds it to a process's share of memory in thousandths. A burstable container that uses more than it
/// requested ends up near 1000, whatever its size.
pub(super) fn oom_score_adj(spec: &PodSpec, container: &Container, node_memory: i64) -> i64 {
    if spec.priority_class_name.as_deref() == Some("system-node-critical") {
        return LAST;
    }
    match class(spec) {
        Class::Guaranteed => return LAST,
        Class::BestEffort => return FIRST,
        Class::Burstable => {}
    }
    let share = unclaimed_memory(spec);
    let score = |request: i64| {
        let thousandths = (i128::from(request) + i128::from(share)) * 1000;
        let used = thousandths.checked_div(i128::from(node_memory)).unwrap_or_default();
        FIRST - i64::try_from(used).unwrap_or(FIRST)
    };
    let mut adjustment = score(memory_request(container));
    if is_sidecar(spec, container) {
        // A sidecar does not go before the containers that it serves.
        let least = spec.containers.iter().map(memory_request).min().unwrap_or_default();
        adjustment = adjustment.min(score(least));
    }
    adjustment.clamp(FIRST + LAST, FIRST - 1)
}

/// The name of a pod's class, as its status reports it.
pub fn qos_class(pod: &Pod) -> &'static str {
    match pod.source.spec.as_ref().map_or(Class::BestEffort, class) {
        Class::Guaranteed => "Guaranteed",
        Class::Burstable => "Burstable",
        Class::BestEffort => "BestEffort",
    }
}

fn class(spec: &PodSpec) -> Class {
    if let Some(whole) = resources::of_whole_pod(spec) {
        return class_of(Some(whole));
    }
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    common(containers.map(|container| class_of(container.resources.as_ref())))
}

fn class_of(resources: Option<&ResourceRequirements>) -> Class {
    common(["cpu", "memory"].into_iter().map(|resource| {
        let request = amount::on(Side::Requests, resources, resource);
        let limit = amount::on(Side::Limits, resources, resource);
        match request == limit {
            true if request.is_zero() => Class::BestEffort,
            true => Class::Guaranteed,
            false => Class::Burstable,
        }
    }))
}

/// The class that all parts have; burstable where they differ.
fn common(mut parts: impl Iterator<Item = Class>) -> Class {
    let first = parts.next().unwrap_or(Class::BestEffort);
    if parts.all(|part| part == first) { first } else { Class::Burstable }
}

/// What the pod as a whole requests beyond its containers is shared among them.
fn unclaimed_memory(spec: &PodSpec) -> i64 {
    let whole = resources::of_whole_pod(spec);
    let whole = amount::on(Side::Requests, whole, "memory").units();
    let claimed = resources::of_containers(spec, Side::Requests, "memory").units();
    let count = spec.containers.len() + spec.init_containers.iter().flatten().count();
    whole.saturating_sub(claimed).max(0) / i64::try_from(count).unwrap_or(i64::MAX).max(1)
}

fn memory_request(container: &Container) -> i64 {
    amount::on(Side::Requests, container.resources.as_ref(), "memory").units()
}

fn is_sidecar(spec: &PodSpec, container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
        && spec.init_containers.iter().flatten().any(|init| init.name == container.name)
}
