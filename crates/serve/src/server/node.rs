//! The node, in the shape of the Kubernetes API, and what is used of it.

use std::{fs, sync::Arc};

use axum::{Json, extract::State, http::Uri};
use keelet_agent::{DiskPressure, OverdueProbe};
use keelet_cri::v1;
use keelet_pod::Pod;
use serde_json::{Value, json};

use super::{Local, failure::Refusal, pods, runtime::identity};
use crate::api::{ContainerUsage, NodeUsage, Stats};

/// Probes that a condition names; their number is reported in any case.
const MOST_NAMED: usize = 5;

/// Facts of the kernel's own file systems; none of them waits for anything.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

pub(super) async fn node(State(local): State<Arc<Local>>, uri: Uri) -> Result<Json<Value>, Refusal> {
    pods::no_query(&uri)?;
    let (version, status) = tokio::join!(local.runtime.version(), local.runtime.status());
    let now = pods::time(local.clock.now().wall);
    let mut conditions = conditions(status, &local.agent.disk_pressure(), &now);
    conditions.push(probe_pressure(&local.agent.overdue_probes(), &now));
    let runtime = version.map_or_else(
        |_| "unknown".to_owned(),
        |version| format!("{}://{}", version.runtime_name, version.runtime_version),
    );
    let facts = &local.facts;
    let mut addresses: Vec<Value> =
        facts.address.iter().map(|address| json!({ "type": "InternalIP", "address": address })).collect();
    addresses.push(json!({ "type": "Hostname", "address": facts.name }));
    let uname = rustix::system::uname();
    let (kernel, machine) = (uname.release().to_string_lossy(), uname.machine().to_string_lossy());
    Ok(Json(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": facts.name, "creationTimestamp": pods::time(local.started.wall) },
        "status": {
            "addresses": addresses,
            "capacity": {
                "cpu": cpus(facts.cpu_millis),
                "memory": format!("{}Ki", facts.memory_bytes / 1024),
            },
            "conditions": conditions,
            "nodeInfo": {
                "kernelVersion": kernel,
                "osImage": os_image(&read("/etc/os-release")),
                "operatingSystem": "linux",
                "architecture": architecture(&machine),
                "bootID": local.clock.now().boot_id,
                "machineID": read("/etc/machine-id").trim(),
                "containerRuntimeVersion": runtime,
                "kubeletVersion": format!("keelet/{}", env!("CARGO_PKG_VERSION")),
            },
        },
    })))
}

/// Whether a disk is nearly full, what the runtime says of itself, and whether that is enough for pods.
fn conditions(status: Result<v1::RuntimeStatus, keelet_cri::Error>, pressure: &DiskPressure, now: &str) -> Vec<Value> {
    let condition = |kind: &str, status: bool, reason: &str, message: &str| {
        json!({
            "type": kind, "status": if status { "True" } else { "False" },
            "reason": reason, "message": message, "lastHeartbeatTime": now,
        })
    };
    let reason = if pressure.holds { "KeeletHasDiskPressure" } else { "KeeletHasNoDiskPressure" };
    let mut disk = condition("DiskPressure", pressure.holds, reason, &pressure.message);
    match pressure.since {
        Some(since) => disk["lastTransitionTime"] = json!(pods::time(since.wall)),
        None => disk["status"] = json!("Unknown"),
    }
    match status {
        Err(error) => vec![disk, condition("Ready", false, "RuntimeNotAnswering", &error.to_string())],
        Ok(status) => {
            let missing: Vec<_> = status.conditions.iter().filter(|condition| !condition.status).collect();
            let ready = match missing.first() {
                None => condition("Ready", true, "KeeletReady", "keelet runs and the runtime is ready"),
                Some(first) => condition("Ready", false, &first.reason, &first.message),
            };
            let own = status.conditions.iter().map(|c| condition(&c.r#type, c.status, &c.reason, &c.message));
            [disk].into_iter().chain(own).chain([ready]).collect()
        }
    }
}

/// Whether the node cannot keep up with its probes, so that what they say is not up to date.
fn probe_pressure(overdue: &[(Arc<Pod>, OverdueProbe)], now: &str) -> Value {
    let names: Vec<String> = overdue
        .iter()
        .take(MOST_NAMED)
        .map(|(pod, probe)| format!("{}/{} {} {}", pod.namespace, pod.name, probe.container, probe.kind))
        .collect();
    let (status, reason, message) = match overdue.len() {
        0 => ("False", "ProbesOnTime", "all probes are made in time".to_owned()),
        count => {
            let rest = if count > names.len() { ", ..." } else { "" };
            ("True", "ProbesLate", format!("late for too long: {count} probes: {}{rest}", names.join(", ")))
        }
    };
    json!({
        "type": "ProbePressure", "status": status, "reason": reason, "message": message, "lastHeartbeatTime": now,
    })
}

fn cpus(millis: i64) -> String {
    if millis % 1000 == 0 { (millis / 1000).to_string() } else { format!("{millis}m") }
}

fn os_image(os_release: &str) -> String {
    let name = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or("Linux", |name| name.trim_matches('"')).to_owned()
}

/// As Go names it, and so everybody in this field.
fn architecture(machine: &str) -> &str {
    match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

pub(super) async fn stats(State(local): State<Arc<Local>>, uri: Uri) -> Result<Json<Stats>, Refusal> {
    pods::no_query(&uri)?;
    let containers = local.runtime.list_container_stats(None).await?;
    let facts = &local.facts;
    let node = NodeUsage {
        name: facts.name.clone(),
        taken_at_ms: local.clock.now().wall.as_millis(),
        cpu_busy_ms: busy_ms(&read("/proc/stat"), rustix::param::clock_ticks_per_second()),
        cpu_capacity_millis: facts.cpu_millis,
        memory_used_bytes: used_bytes(&read("/proc/meminfo")),
        memory_capacity_bytes: u64::try_from(facts.memory_bytes).unwrap_or(0),
    };
    Ok(Json(Stats { node, containers: containers.into_iter().map(usage).filter(uses).collect() }))
}

/// Those that have ended are listed too, without any numbers.
fn uses(usage: &ContainerUsage) -> bool {
    usage.cpu_total_ns.is_some() || usage.memory_working_set_bytes.is_some()
}

fn usage(stats: v1::ContainerStats) -> ContainerUsage {
    let attributes = stats.attributes.unwrap_or_default();
    let (namespace, pod, _) = identity(&attributes.labels);
    let cpu = stats.cpu.unwrap_or_default();
    let memory = stats.memory.unwrap_or_default();
    let number = |value: Option<v1::UInt64Value>| value.map(|value| value.value);
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

/// How long all processors together were busy: user, nice, system, irq, softirq and steal of `/proc/stat`.
fn busy_ms(stat: &str, ticks_per_second: u64) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|number| number.parse().ok()).collect();
    let busy: u64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|index| ticks.get(*index)).sum();
    (busy * 1000).checked_div(ticks_per_second)
}

fn used_bytes(meminfo: &str) -> Option<u64> {
    let field = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Some(field("MemTotal:")?.saturating_sub(field("MemAvailable:")?) * 1024)
}

#[cfg(test)]
mod tests {
    use keelet_lifecycle::{BootId, Moment, Wall};

    use super::*;

    #[test]
    fn usage_is_read_from_the_kernels_files() {
        assert_eq!(busy_ms("cpu  100 10 50 900 20 3 2 1 0 0\ncpu0 1 1 1\n", 100), Some(1660));
        assert_eq!(busy_ms("nonsense", 100), None);
        assert_eq!(used_bytes("MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n"), Some(600 * 1024));
        assert_eq!(used_bytes("MemTotal: 1000 kB\n"), None);
    }

    #[test]
    fn a_node_is_ready_if_all_that_the_runtime_tells_is_true() {
        let one = |kind: &str, status| v1::RuntimeCondition { r#type: kind.into(), status, ..Default::default() };
        let ready = |conditions| {
            let told = super::conditions(Ok(v1::RuntimeStatus { conditions }), &DiskPressure::default(), "now");
            told.last().map(|ready| (ready["type"].clone(), ready["status"].clone()))
        };
        assert_eq!(
            ready(vec![one("RuntimeReady", true), one("NetworkReady", true)]),
            Some(("Ready".into(), "True".into()))
        );
        assert_eq!(
            ready(vec![one("RuntimeReady", true), one("NetworkReady", false)]),
            Some(("Ready".into(), "False".into()))
        );
    }

    /// PROBE-50.
    #[test]
    fn a_node_that_cannot_keep_up_with_its_probes_says_so() {
        let manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n\
                        spec: {containers: [{name: main, image: app}]}";
        let pod = Arc::new(keelet_pod::parse_one(manifest).expect("valid"));
        let since = Moment { boot_ms: 0, wall: Wall::default(), boot_id: BootId::default() };
        let probe = OverdueProbe { container: "main".to_owned(), kind: keelet_pod::ProbeKind::Liveness, since };
        for (count, status, message) in [
            (0, "False", "all probes are made in time"),
            (1, "True", "late for too long: 1 probes: shop/web main liveness"),
        ] {
            let overdue = vec![(Arc::clone(&pod), probe.clone()); count];
            let told = probe_pressure(&overdue, "now");
            assert_eq!((&told["type"], &told["status"]), (&"ProbePressure".into(), &status.into()));
            assert_eq!(told["message"], message);
        }
        let many = probe_pressure(&vec![(pod, probe); 50], "now");
        let message = many["message"].as_str().expect("text");
        assert!(message.contains("50 probes") && message.ends_with(", ..."), "{message}");
    }

    /// NODE-8: what a cluster's node says too, and `Unknown` before the first look.
    #[test]
    fn a_full_disk_is_a_condition_of_the_node() {
        let told = |pressure: &DiskPressure| {
            let status = v1::RuntimeStatus::default();
            let condition = conditions(Ok(status), pressure, "now").remove(0);
            [&condition["type"], &condition["status"], &condition["reason"]]
                .map(|value| value.as_str().unwrap().to_owned())
        };
        let since = Some(Moment { boot_ms: 0, wall: Wall::default(), boot_id: BootId::default() });
        let full = DiskPressure { holds: true, since, message: "nodefs.available is 3 %, less than 10 %".to_owned() };
        assert_eq!(told(&full), ["DiskPressure", "True", "KeeletHasDiskPressure"]);
        let fine = DiskPressure { holds: false, ..full };
        assert_eq!(told(&fine), ["DiskPressure", "False", "KeeletHasNoDiskPressure"]);
        assert_eq!(told(&DiskPressure::default())[1], "Unknown");
    }

    #[test]
    fn names_are_those_that_people_know() {
        assert_eq!(os_image("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 13\"\n"), "Debian GNU/Linux 13");
        assert_eq!((cpus(2000), cpus(1500)), ("2".to_owned(), "1500m".to_owned()));
    }
}
