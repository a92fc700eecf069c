//! What the node, its pods and their containers use: `/stats/summary`, and as metrics under the names of the kubelet and of cAdvisor.
//!
//! metrics-server reads `/metrics/resource`: `node_cpu_usage_seconds_total`, `node_memory_working_set_bytes`, and of each container
//! `container_cpu_usage_seconds_total`, `container_memory_working_set_bytes` and `container_start_time_seconds`, with labels `container`,
//! `pod` and `namespace`.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use jiff::Timestamp;
use keelet_agent::node::Machine;
use keelet_cri::v1::{self, UInt64Value};
use keelet_lifecycle::status::ContainerState;
use serde_json::{Value, json};

use super::shared::Shared;
use crate::server::{Local, failure::Refusal, pods::time, runtime::identity};

/// The content type of metrics: the text format that metrics-server and cAdvisor's readers expect.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const NANOS: f64 = 1e9;

/// What is used. Requests share what was read, and the text that was made of it: many clients that ask at once, and take their answers slowly,
/// cost no more than one.
#[derive(Debug, Default)]
pub(super) struct Usage {
    samples: Shared<Result<Arc<Vec<Sample>>, Refusal>>,
    resource: Shared<Bytes>,
    cadvisor: Shared<Bytes>,
    summary: Shared<Result<Bytes, Refusal>>,
    /// Of the node (no ID) and of each container: what was read last.
    readings: Mutex<BTreeMap<String, Reading>>,
}

/// Processor time at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    at_ns: i64,
    total_ns: u64,
    /// What was used of it for each second since the reading before.
    rate: Option<u64>,
}

/// What one container uses, with its pod.
#[derive(Clone, Debug, PartialEq)]
struct Sample {
    namespace: String,
    pod: String,
    uid: String,
    container: String,
    id: String,
    image: String,
    started_ms: Option<i64>,
    cpu_at_ns: i64,
    cpu_ns: Option<u64>,
    memory_at_ns: i64,
    working_set: Option<u64>,
    usage: Option<u64>,
    rss: Option<u64>,
    page_faults: Option<u64>,
    major_page_faults: Option<u64>,
    layer: Option<(Option<u64>, Option<u64>)>,
}

/// A metric: its name, kind, help, and a value for each set of labels.
struct Family<'a> {
    name: &'a str,
    kind: &'a str,
    help: &'a str,
}

fn resource_text(
    samples: &[Sample],
    cpu_busy_ms: Option<u64>,
    memory_used: Option<u64>,
    now_ms: i64,
    failed: f64,
) -> String {
    let mut text = String::new();
    let labels = |sample: &Sample| {
        let Sample { container, namespace, pod, .. } = sample;
        let [container, namespace, pod] = [container, namespace, pod].map(|value| escaped(value));
        format!("{{container=\"{container}\",namespace=\"{namespace}\",pod=\"{pod}\"}}")
    };
    let family = |name, kind, help| Family { name, kind, help };
    let cpu = family(
        "container_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the container in core-seconds",
    );
    cpu.write(
        &mut text,
        samples
            .iter()
            .filter_map(|sample| Some((labels(sample), seconds(sample.cpu_ns?), Some(sample.cpu_at_ns / 1_000_000)))),
    );
    let memory = family("container_memory_working_set_bytes", "gauge", "Current working set of the container in bytes");
    memory.write(
        &mut text,
        samples.iter().filter_map(|sample| {
            Some((labels(sample), float(sample.working_set?), Some(sample.memory_at_ns / 1_000_000)))
        }),
    );
    let started =
        family("container_start_time_seconds", "gauge", "Start time of the container since unix epoch in seconds");
    started
        .write(&mut text, samples.iter().filter_map(|sample| Some((labels(sample), millis(sample.started_ms?), None))));
    let node_cpu =
        family("node_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the node in core-seconds");
    node_cpu.write(&mut text, cpu_busy_ms.into_iter().map(|busy| (String::new(), float(busy) / 1e3, Some(now_ms))));
    let node_memory = family("node_memory_working_set_bytes", "gauge", "Current working set of the node in bytes");
    node_memory.write(&mut text, memory_used.into_iter().map(|used| (String::new(), float(used), Some(now_ms))));
    let mut pods: BTreeMap<(&str, &str), (u64, u64, i64)> = BTreeMap::new();
    for sample in samples {
        let sum = pods.entry((&sample.namespace, &sample.pod)).or_default();
        sum.0 += sample.cpu_ns.unwrap_or_default();
        sum.1 += sample.working_set.unwrap_or_default();
        sum.2 = sum.2.max(sample.cpu_at_ns / 1_000_000);
    }
    let of_pod =
        |(namespace, pod): &(&str, &str)| format!("{{namespace=\"{}\",pod=\"{}\"}}", escaped(namespace), escaped(pod));
    let pod_cpu =
        family("pod_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the pod in core-seconds");
    pod_cpu.write(&mut text, pods.iter().map(|(pod, (cpu, _, at))| (of_pod(pod), seconds(*cpu), Some(*at))));
    let pod_memory = family("pod_memory_working_set_bytes", "gauge", "Current working set of the pod in bytes");
    pod_memory.write(&mut text, pods.iter().map(|(pod, (_, memory, at))| (of_pod(pod), float(*memory), Some(*at))));
    for name in ["resource_scrape_error", "scrape_error"] {
        let help = "1 if there was an error while getting container metrics, 0 otherwise";
        family(name, "gauge", help).write(&mut text, [(String::new(), failed, None)].into_iter());
    }
    text
}

fn cadvisor_text(samples: &[Sample], cpu_millis: i64, memory_bytes: i64) -> String {
    let mut text = String::new();
    let labels = |sample: &Sample| {
        let Sample { container, namespace, pod, id, image, uid, .. } = sample;
        let [container, namespace, pod, id, image, uid] =
            [container, namespace, pod, id, image, uid].map(|value| escaped(value));
        format!(
            "{{container=\"{container}\",id=\"/kubepods/pod{uid}/{id}\",image=\"{image}\",name=\"{id}\",namespace=\"{namespace}\",pod=\"{pod}\"}}"
        )
    };
    type Number = fn(&Sample) -> Option<f64>;
    let families: [(&str, &str, &str, Number); 7] = [
        ("container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed in seconds.", |s| {
            s.cpu_ns.map(seconds)
        }),
        ("container_memory_working_set_bytes", "gauge", "Current working set in bytes.", |s| s.working_set.map(float)),
        ("container_memory_usage_bytes", "gauge", "Current memory usage in bytes.", |s| s.usage.map(float)),
        ("container_memory_rss", "gauge", "Size of RSS in bytes.", |s| s.rss.map(float)),
        ("container_fs_usage_bytes", "gauge", "Bytes consumed by the container on its writable layer.", |s| {
            s.layer.and_then(|(bytes, _)| bytes).map(float)
        }),
        ("container_fs_inodes_total", "gauge", "Inodes of the writable layer.", |s| {
            s.layer.and_then(|(_, inodes)| inodes).map(float)
        }),
        ("container_start_time_seconds", "gauge", "Start time of the container since unix epoch in seconds.", |s| {
            s.started_ms.map(millis)
        }),
    ];
    for (name, kind, help, number) in families {
        let values = samples.iter().filter_map(|sample| Some((labels(sample), number(sample)?, None)));
        Family { name, kind, help }.write(&mut text, values);
    }
    let of_machine = |name, help, value: i64| (Family { name, kind: "gauge", help }, value);
    for (family, value) in [
        of_machine("machine_cpu_cores", "Number of logical CPU cores.", cpu_millis / 1000),
        of_machine("machine_memory_bytes", "Amount of memory installed on the machine.", memory_bytes),
    ] {
        family.write(&mut text, [(String::new(), value as f64, None)].into_iter());
    }
    text
}

/// What the runtime reports of the containers that run.
async fn samples(local: &Local) -> Result<Vec<Sample>, Refusal> {
    let stats = local.runtime().list_container_stats(None).await?;
    let pods = local.board().statuses();
    let number = |value: Option<UInt64Value>| value.map(|value| value.value);
    let mut samples: Vec<Sample> = stats
        .into_iter()
        .map(|stats| {
            let v1::ContainerAttributes { id, metadata, labels, .. } = stats.attributes.unwrap_or_default();
            let (namespace, pod, uid) = identity(&labels);
            let container = metadata.unwrap_or_default().name;
            let (cpu, memory) = (stats.cpu.unwrap_or_default(), stats.memory.unwrap_or_default());
            let published = pods.get(&uid);
            let status = published.and_then(|published| published.status.container(&container));
            let started = status.and_then(|status| match &status.state {
                ContainerState::Running(running) => Some(running.started_at),
                _ => None,
            });
            Sample {
                image: status.map(|status| status.image.clone()).unwrap_or_default(),
                started_ms: started.map(|wall| wall.as_millis()),
                namespace,
                pod,
                uid,
                container,
                id,
                cpu_at_ns: cpu.timestamp,
                cpu_ns: number(cpu.usage_core_nano_seconds),
                memory_at_ns: memory.timestamp,
                working_set: number(memory.working_set_bytes),
                usage: number(memory.usage_bytes),
                rss: number(memory.rss_bytes),
                page_faults: number(memory.page_faults),
                major_page_faults: number(memory.major_page_faults),
                layer: stats.writable_layer.map(|layer| (number(layer.used_bytes), number(layer.inodes_used))),
            }
        })
        // Those that have ended are listed too, without any numbers.
        .filter(|sample| sample.cpu_ns.is_some() || sample.working_set.is_some())
        .collect();
    samples
        .sort_by(|a, b| (&a.namespace, &a.pod, &a.container, &a.id).cmp(&(&b.namespace, &b.pod, &b.container, &b.id)));
    Ok(samples)
}

fn float(number: u64) -> f64 {
    number as f64
}

fn seconds(nanos: u64) -> f64 {
    float(nanos) / NANOS
}

fn millis(millis: i64) -> f64 {
    millis as f64 / 1e3
}

/// A label's value: what the text format gives a meaning is escaped.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn moment(nanos: i64) -> Value {
    match Timestamp::from_nanosecond(nanos.into()) {
        Ok(at) if nanos > 0 => json!(at.to_string()),
        _ => Value::Null,
    }
}

// === impl Family ===

impl Family<'_> {
    fn write(&self, text: &mut String, values: impl Iterator<Item = (String, f64, Option<i64>)>) {
        let Self { name, kind, help } = self;
        let mut values = values.peekable();
        if values.peek().is_none() {
            return;
        }
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value, at_ms) in values {
            let _ = match at_ms.filter(|at| *at > 0) {
                Some(at) => writeln!(text, "{name}{labels} {value} {at}"),
                None => writeln!(text, "{name}{labels} {value}"),
            };
        }
    }
}

// === impl Usage ===

impl Usage {
    /// `/metrics/resource`
    pub(super) async fn resource(&self, local: &Local) -> Bytes {
        let make = async {
            let (samples, failed) = match self.samples(local).await {
                Ok(samples) => (samples, 0.0),
                Err(_) => (Arc::default(), 1.0),
            };
            let (usage, now) = (Machine::this().usage(), local.now().wall.as_millis());
            resource_text(&samples, usage.cpu_busy_ms, usage.memory_used_bytes, now, failed).into()
        };
        self.resource.get(make).await
    }

    /// `/metrics/cadvisor`: what dashboards use of it, as far as a CRI runtime reports it.
    pub(super) async fn cadvisor(&self, local: &Local) -> Bytes {
        let make = async {
            let samples = self.samples(local).await.unwrap_or_default();
            let capacity = &local.agent.facts().capacity;
            cadvisor_text(&samples, capacity.cpu_millis, capacity.memory_bytes).into()
        };
        self.cadvisor.get(make).await
    }

    /// `/stats/summary`
    pub(super) async fn summary(&self, local: &Local) -> Result<Bytes, Refusal> {
        let make = async { Ok(serde_json::to_vec(&self.summarized(local).await?)?.into()) };
        self.summary.get(make).await
    }

    async fn samples(&self, local: &Local) -> Result<Arc<Vec<Sample>>, Refusal> {
        let read = async {
            let samples = samples(local).await.map(Arc::new);
            if let Err(error) = &samples {
                tracing::warn!(error = error.message(), "cannot read usage of containers");
            }
            samples
        };
        self.samples.get(read).await
    }

    /// Takes note of how much processor time was used. What is not among it has ended.
    fn read(&self, current: impl Iterator<Item = (String, (i64, u64))>) -> BTreeMap<String, Reading> {
        let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        let reading = |(id, now): (String, _)| {
            let reading = Reading::after(readings.get(&id), now);
            (id, reading)
        };
        let current: BTreeMap<_, _> = current.map(reading).collect();
        readings.clone_from(&current);
        current
    }

    async fn summarized(&self, local: &Local) -> Result<Value, Refusal> {
        let samples = self.samples(local).await?;
        let now_ns = local.now().wall.as_millis().saturating_mul(1_000_000);
        let (usage, capacity) = (Machine::this().usage(), &local.agent.facts().capacity);
        let busy = usage.cpu_busy_ms.map(|ms| ms.saturating_mul(1_000_000));
        let current = samples.iter().filter_map(|sample| Some((sample.id.clone(), (sample.cpu_at_ns, sample.cpu_ns?))));
        let current = self.read(current.chain(busy.map(|busy| (String::new(), (now_ns, busy)))));
        let rate = |id: &str| current.get(id).and_then(|reading| reading.rate);
        let mut pods: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
        for sample in samples.iter() {
            pods.entry(&sample.uid).or_default().push(sample);
        }
        let statuses = local.board().statuses();
        let pods: Vec<Value> = pods
            .into_iter()
            .map(|(uid, samples)| {
                let started = statuses.get(uid).and_then(|published| published.status.start_time);
                of_pod(&samples, started.map(time), &rate)
            })
            .collect();
        let memory = u64::try_from(capacity.memory_bytes).unwrap_or(0);
        let started = local.now();
        let booted = Timestamp::from_millisecond(started.wall.as_millis().saturating_sub(started.boot_ms));
        Ok(json!({
            "node": {
                "nodeName": local.facts().name,
                "startTime": booted.map(|at| at.to_string()).unwrap_or_default(),
                "cpu": cpu(now_ns, busy, rate("")),
                "memory": {
                    "time": moment(now_ns),
                    "availableBytes": usage.memory_used_bytes.map(|used| memory.saturating_sub(used)),
                    "usageBytes": usage.memory_used_bytes,
                    "workingSetBytes": usage.memory_used_bytes,
                },
            },
            "pods": pods,
        }))
    }
}

// === impl Reading ===

impl Reading {
    /// A reading after another one. The same one again says nothing new.
    fn after(before: Option<&Self>, (at_ns, total_ns): (i64, u64)) -> Self {
        match before {
            Some(before) if (before.at_ns, before.total_ns) == (at_ns, total_ns) => *before,
            Some(before) => Self { at_ns, total_ns, rate: rate((before.at_ns, before.total_ns), (at_ns, total_ns)) },
            None => Self { at_ns, total_ns, rate: None },
        }
    }
}

fn of_pod(samples: &[&Sample], started: Option<String>, rate: &dyn Fn(&str) -> Option<u64>) -> Value {
    let sum = |of: &dyn Fn(&Sample) -> Option<u64>| samples.iter().filter_map(|sample| of(sample)).reduce(|a, b| a + b);
    let first = samples.first();
    let at = samples.iter().map(|sample| sample.cpu_at_ns).max().unwrap_or_default();
    let containers: Vec<Value> = samples
        .iter()
        .map(|sample| {
            let mut shown = json!({
                "name": sample.container,
                "startTime": moment(sample.started_ms.unwrap_or_default().saturating_mul(1_000_000)),
                "cpu": cpu(sample.cpu_at_ns, sample.cpu_ns, rate(&sample.id)),
                "memory": {
                    "time": moment(sample.memory_at_ns),
                    "usageBytes": sample.usage,
                    "workingSetBytes": sample.working_set,
                    "rssBytes": sample.rss,
                    "pageFaults": sample.page_faults,
                    "majorPageFaults": sample.major_page_faults,
                },
            });
            if let Some((bytes, inodes)) = sample.layer {
                shown["rootfs"] =
                    json!({ "time": moment(sample.memory_at_ns), "usedBytes": bytes, "inodesUsed": inodes });
            }
            shown
        })
        .collect();
    json!({
        "podRef": {
            "name": first.map(|sample| &sample.pod),
            "namespace": first.map(|sample| &sample.namespace),
            "uid": first.map(|sample| &sample.uid),
        },
        "startTime": started,
        "containers": containers,
        "cpu": cpu(at, sum(&|sample| sample.cpu_ns), sum(&|sample| rate(&sample.id))),
        "memory": {
            "time": moment(at),
            "usageBytes": sum(&|sample| sample.usage),
            "workingSetBytes": sum(&|sample| sample.working_set),
        },
    })
}

fn cpu(at_ns: i64, total: Option<u64>, rate: Option<u64>) -> Value {
    json!({ "time": moment(at_ns), "usageNanoCores": rate, "usageCoreNanoSeconds": total })
}

/// Nanoseconds of processor time for each second between two readings; none if they are the same one, or of another instance.
fn rate((before_at, before): (i64, u64), (at, now): (i64, u64)) -> Option<u64> {
    let elapsed = u128::try_from(at.checked_sub(before_at)?).ok().filter(|elapsed| *elapsed > 0)?;
    u64::try_from(u128::from(now.checked_sub(before)?) * 1_000_000_000 / elapsed).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Sample {
        Sample {
            namespace: "shop".to_owned(),
            pod: "web".to_owned(),
            uid: "u".to_owned(),
            container: "main".to_owned(),
            id: "c1".to_owned(),
            image: "a\"b".to_owned(),
            started_ms: Some(1_500),
            cpu_at_ns: 2_000_000_000,
            cpu_ns: Some(1_250_000_000),
            memory_at_ns: 2_000_000_000,
            working_set: Some(4096),
            usage: Some(8192),
            rss: Some(1024),
            page_faults: None,
            major_page_faults: None,
            layer: Some((Some(7), None)),
        }
    }

    /// CLU-40: what metrics-server reads of a node, in the text format, with times in milliseconds.
    #[test]
    fn resource_metrics_have_what_metrics_server_reads() {
        let text = resource_text(&[sample()], Some(5_000), Some(1 << 20), 3_000, 0.0);
        for line in [
            "# TYPE container_cpu_usage_seconds_total counter",
            "container_cpu_usage_seconds_total{container=\"main\",namespace=\"shop\",pod=\"web\"} 1.25 2000",
            "container_memory_working_set_bytes{container=\"main\",namespace=\"shop\",pod=\"web\"} 4096 2000",
            "container_start_time_seconds{container=\"main\",namespace=\"shop\",pod=\"web\"} 1.5",
            "node_cpu_usage_seconds_total 5 3000",
            "node_memory_working_set_bytes 1048576 3000",
            "pod_cpu_usage_seconds_total{namespace=\"shop\",pod=\"web\"} 1.25 2000",
            "pod_memory_working_set_bytes{namespace=\"shop\",pod=\"web\"} 4096 2000",
            "scrape_error 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let hostile = Sample { pod: "web\"} 1\nx{a=\"".to_owned(), ..sample() };
        for text in
            [resource_text(std::slice::from_ref(&hostile), None, None, 3_000, 0.0), cadvisor_text(&[hostile], 1, 1)]
        {
            assert!(!text.contains("\nx{"), "a name of a runtime's container becomes no line: {text}");
        }
        let failed = resource_text(&[], None, None, 3_000, 1.0);
        assert!(failed.contains("scrape_error 1") && !failed.contains("container_"), "{failed}");
    }

    /// CLU-40
    #[test]
    fn metrics_of_containers_have_the_names_that_dashboards_use() {
        let text = cadvisor_text(&[sample()], 2_000, 1 << 30);
        let labels =
            "{container=\"main\",id=\"/kubepods/podu/c1\",image=\"a\\\"b\",name=\"c1\",namespace=\"shop\",pod=\"web\"}";
        for line in [
            format!("container_cpu_usage_seconds_total{labels} 1.25"),
            format!("container_memory_working_set_bytes{labels} 4096"),
            format!("container_memory_usage_bytes{labels} 8192"),
            format!("container_memory_rss{labels} 1024"),
            format!("container_fs_usage_bytes{labels} 7"),
            "machine_cpu_cores 2".to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("container_fs_inodes_total{"), "what is not known is left out");
    }

    #[test]
    fn rates_are_of_two_readings() {
        assert_eq!(rate((0, 0), (2_000_000_000, 1_000_000_000)), Some(500_000_000));
        assert_eq!(rate((5, 10), (5, 10)), None, "the same reading");
        assert_eq!(rate((5, 10), (6, 9)), None, "another instance");
        let usage = Usage::default();
        let read = |at, total| usage.read([("c1".to_owned(), (at, total))].into_iter())["c1"].rate;
        let seconds = 1_000_000_000;
        assert_eq!([read(0, 0), read(0, 0), read(2 * seconds, 7)], [None, None, Some(3)]);
        assert_eq!(read(2 * seconds, 7), Some(3), "clients that read at once do not take the rate from each other");
    }
}
