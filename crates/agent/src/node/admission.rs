//! Admission: whether a pod of an API server fits on this node beside those that are here (CLU-20).
//!
//! A scheduler has asked the same before, but it may have gone by an older view of the node, and a pod may name its node without a scheduler.
//! What does not fit is rejected with the kubelet's reasons and messages, before anything of it is started. A pod that was admitted stays
//! admitted: the claim of one that an earlier agent admitted is made without a question.
//!
//! [`Claims`] is the one owner of what is taken. Asking and claiming happen within one step of a pod's task, so that two pods never get the same
//! room.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use keelet_lifecycle::observed::Objection;
use keelet_pod::{HostPort, Pod, Requests, Trust};

use super::Resources;

/// What the pods of the node have taken, by UID.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<BTreeMap<String, Claim>>);

/// What a pod takes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    requests: Requests,
    ports: Vec<HostPort>,
}

/// Why a pod does not fit on a node with this much for pods, where others have claimed their part. Pure.
fn objection(claim: &Claim, others: &[&Claim], allocatable: &Resources) -> Option<Objection> {
    if claim
        .ports
        .iter()
        .any(|port| others.iter().flat_map(|other| &other.ports).any(|taken| taken.conflicts_with(port)))
    {
        let why = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        return Some(Objection { reason: "NodePorts", message: why.to_owned() });
    }
    let used = others.iter().map(|other| other.requests).fold(Requests::default(), Requests::plus);
    let pods = i64::try_from(others.len()).unwrap_or(i64::MAX);
    let most_pods = allocatable.pods.map_or(i64::MAX, i64::from);
    let (own, has) = (claim.requests, allocatable);
    for (reason, resource, requested, used, capacity) in [
        ("OutOfpods", "pods", 1, pods, most_pods),
        ("OutOfcpu", "cpu", own.cpu_millis, used.cpu_millis, has.cpu_millis),
        ("OutOfmemory", "memory", own.memory_bytes, used.memory_bytes, has.memory_bytes),
        ("OutOfephemeral-storage", "ephemeral-storage", own.storage_bytes, used.storage_bytes, has.storage_bytes),
    ] {
        if requested > 0 && used.saturating_add(requested) > capacity {
            let message = format!(
                "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
            );
            return Some(Objection { reason, message });
        }
    }
    None
}

// === impl Claims ===

impl Claims {
    fn claims(&self) -> MutexGuard<'_, BTreeMap<String, Claim>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why a pod that was not admitted yet does not fit; none if it does. Static pods are critical: they are let in, and counted.
    pub(crate) fn objection(&self, pod: &Pod, allocatable: &Resources) -> Option<Objection> {
        if pod.trust == Trust::Node {
            return None;
        }
        let claims = self.claims();
        let others: Vec<&Claim> = claims.iter().filter(|(uid, _)| **uid != pod.uid).map(|(_, claim)| claim).collect();
        objection(&Claim::of(pod), &others, allocatable)
    }

    /// The pod is admitted, by whichever agent: what it takes is taken.
    pub(crate) fn claim(&self, pod: &Pod) {
        self.claims().insert(pod.uid.clone(), Claim::of(pod));
    }

    /// Nothing of the pod runs any more, or will.
    pub(crate) fn release(&self, uid: &str) {
        self.claims().remove(uid);
    }
}

// === impl Claim ===

impl Claim {
    fn of(pod: &Pod) -> Self {
        Self { requests: pod.requests(), ports: pod.host_ports() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::bed::pod_of;

    fn pod(name: &str, spec: &str) -> Arc<Pod> {
        let pod = pod_of(&format!("metadata: {{name: {name}, uid: {name}}}\nspec: {spec}\n"));
        Arc::new(Pod { trust: Trust::Cluster, ..(*pod).clone() })
    }

    fn takes(name: &str, requests: &str) -> Arc<Pod> {
        pod(name, &format!("{{containers: [{{name: a, image: i, resources: {{requests: {{{requests}}}}}}}]}}"))
    }

    fn node() -> Resources {
        Resources { cpu_millis: 2000, memory_bytes: 1000, storage_bytes: 100, pods: Some(3), ..Resources::default() }
    }

    /// CLU-20: the kubelet's reasons and messages, with what is asked for, used and there.
    #[test]
    fn what_does_not_fit_is_rejected_with_the_figures() {
        let claims = Claims::default();
        claims.claim(&takes("here", "cpu: 1500m, memory: '600', ephemeral-storage: '60'"));
        for (requests, expected) in [
            ("", None),
            ("cpu: 500m, memory: '400', ephemeral-storage: '40'", None),
            (
                "cpu: 501m",
                Some(("OutOfcpu", "Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000")),
            ),
            (
                "memory: '401'",
                Some((
                    "OutOfmemory",
                    "Node didn't have enough resource: memory, requested: 401, used: 600, capacity: 1000",
                )),
            ),
            (
                "ephemeral-storage: '41'",
                Some((
                    "OutOfephemeral-storage",
                    "Node didn't have enough resource: ephemeral-storage, requested: 41, used: 60, capacity: 100",
                )),
            ),
        ] {
            let found = claims.objection(&takes("new", requests), &node());
            let found = found.as_ref().map(|found| (found.reason, found.message.as_str()));
            assert_eq!(found, expected, "{requests}");
        }
    }

    /// CLU-20
    #[test]
    fn pods_and_ports_count_too() {
        let claims = Claims::default();
        let reason = |pod: &Pod| claims.objection(pod, &node()).map(|objection| objection.reason);
        let web =
            |name: &str| pod(name, "{containers: [{name: a, image: i, ports: [{containerPort: 80, hostPort: 80}]}]}");
        claims.claim(&web("a"));
        assert_eq!(reason(&web("b")), Some("NodePorts"));
        assert_eq!(reason(&web("a")), None, "its own claim is none against it");
        claims.claim(&takes("b", ""));
        claims.claim(&takes("c", ""));
        assert_eq!(reason(&takes("d", "")), Some("OutOfpods"));
        let of_manifest = Pod { trust: Trust::Node, ..(*takes("d", "")).clone() };
        assert_eq!(reason(&of_manifest), None, "static pods are critical");
        claims.release("c");
        assert_eq!(reason(&takes("d", "")), None);
    }
}
