//! The node, in the shape of the Kubernetes API, and what is used of it.

use std::sync::Arc;

use axum::{Json, extract::State, http::Uri};
use k8s_openapi::api::core::v1;
use keelet_agent::node::Machine;
use keelet_cri::v1::{ContainerStats, UInt64Value};

use super::{Local, failure::Refusal, pods, runtime::identity};
use crate::api::{ContainerUsage, NodeUsage, Stats};

pub(super) async fn node(State(local): State<Arc<Local>>, uri: Uri) -> Result<Json<v1::Node>, Refusal> {
    pods::no_query(&uri)?;
    Ok(Json(local.agent.observe_node().await))
}

pub(super) async fn stats(State(local): State<Arc<Local>>, uri: Uri) -> Result<Json<Stats>, Refusal> {
    pods::no_query(&uri)?;
    let containers = local.runtime().list_container_stats(None).await?;
    let (capacity, usage) = (&local.agent.facts().capacity, Machine::this().usage());
    let node = NodeUsage {
        name: local.facts().name.clone(),
        taken_at_ms: local.now().wall.as_millis(),
        cpu_busy_ms: usage.cpu_busy_ms,
        cpu_capacity_millis: capacity.cpu_millis,
        memory_used_bytes: usage.memory_used_bytes,
        memory_capacity_bytes: u64::try_from(capacity.memory_bytes).unwrap_or(0),
    };
    Ok(Json(Stats { node, containers: containers.into_iter().map(usage_of).filter(uses).collect() }))
}

/// Those that have ended are listed too, without any numbers.
fn uses(usage: &ContainerUsage) -> bool {
    usage.cpu_total_ns.is_some() || usage.memory_working_set_bytes.is_some()
}

fn usage_of(stats: ContainerStats) -> ContainerUsage {
    let attributes = stats.attributes.unwrap_or_default();
    let (namespace, pod, _) = identity(&attributes.labels);
    let cpu = stats.cpu.unwrap_or_default();
    let memory = stats.memory.unwrap_or_default();
    let number = |value: Option<UInt64Value>| value.map(|value| value.value);
    ContainerUsage {
        id: attributes.id,
        namespace,
        pod,
        container: attributes.metadata.unwrap_or_default().name,
        cpu_taken_at_ns: cpu.timestamp,
        cpu_total_ns: number(cpu.usage_core_nano_seconds),
        cpu_nano_cores: number(cpu.usage_nano_cores),
        memory_working_set_bytes: number(memory.working_set_bytes),
    }
}
