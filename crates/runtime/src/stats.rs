//! What containers and pods use.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use keelet_cri::v1;
use keelet_linux::cgroup::{Mounts, field};
use tokio::time::Instant;
use tonic::Status;

use crate::{
    container::Container,
    engine::{Engine, Parts, now},
    sandbox::{Sandbox, cgroup_parent},
};

/// What a cgroup says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    cpu_nanoseconds: Option<u64>,
    memory: Option<u64>,
    /// Of the memory, files that no process has used for a while.
    inactive_files: u64,
    anonymous: Option<u64>,
    faults: Option<u64>,
    major_faults: Option<u64>,
    limit: Option<u64>,
    processes: Option<u64>,
}

/// What containers take on disk, as it was counted a moment ago, by their IDs. Counting goes through all files that a
/// container has changed or made, which may be millions, and any client may ask at any time.
#[derive(Debug, Default)]
pub(crate) struct Counted(Mutex<BTreeMap<String, (Instant, v1::FilesystemUsage)>>);

/// How long a count stands. The kubelet has such numbers counted no oftener.
const COUNT_STANDS: Duration = Duration::from_secs(10);

fn usage(mounts: &Mounts, cgroup: &str) -> Usage {
    let text = |controller: &str, file: &str| {
        mounts.directory(controller, cgroup).and_then(|dir| fs::read_to_string(dir.join(file)).ok())
    };
    let number = |controller: &str, file: &str| text(controller, file).and_then(|text| text.trim().parse::<u64>().ok());
    match mounts {
        Mounts::V1(_) => {
            let stat = text("memory", "memory.stat").unwrap_or_default();
            Usage {
                cpu_nanoseconds: number("cpuacct", "cpuacct.usage"),
                memory: number("memory", "memory.usage_in_bytes"),
                inactive_files: field(&stat, "total_inactive_file").unwrap_or(0),
                anonymous: field(&stat, "total_rss"),
                faults: field(&stat, "total_pgfault"),
                major_faults: field(&stat, "total_pgmajfault"),
                // No limit is written as one that no machine has.
                limit: number("memory", "memory.limit_in_bytes").filter(|limit| *limit < 1 << 60),
                processes: number("pids", "pids.current"),
            }
        }
        Mounts::V2(_) => {
            let stat = text("memory", "memory.stat").unwrap_or_default();
            let cpu = text("cpu", "cpu.stat").and_then(|text| field(&text, "usage_usec"));
            Usage {
                cpu_nanoseconds: cpu.map(|microseconds| microseconds.saturating_mul(1_000)),
                memory: number("memory", "memory.current"),
                inactive_files: field(&stat, "inactive_file").unwrap_or(0),
                anonymous: field(&stat, "anon"),
                faults: field(&stat, "pgfault"),
                major_faults: field(&stat, "pgmajfault"),
                limit: number("memory", "memory.max"),
                processes: number("pids", "pids.current"),
            }
        }
    }
}

// === impl Counted ===

impl Counted {
    fn get(
        &self,
        id: &str,
        clock: impl Fn() -> Instant,
        count: impl FnOnce() -> Option<v1::FilesystemUsage>,
    ) -> Option<v1::FilesystemUsage> {
        let all = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock();
        // Those of containers that are gone go with the rest.
        all().retain(|_, (at, _)| now.saturating_duration_since(*at) < COUNT_STANDS);
        if let Some((_, known)) = all().get(id) {
            return Some(known.clone());
        }
        let counted = count()?;
        all().insert(id.to_owned(), (clock(), counted.clone()));
        Some(counted)
    }
}

// === impl Usage ===

impl Usage {
    fn cpu(&self, timestamp: i64) -> v1::CpuUsage {
        v1::CpuUsage { timestamp, usage_core_nano_seconds: self.cpu_nanoseconds.map(value), ..Default::default() }
    }

    fn memory(&self, timestamp: i64) -> v1::MemoryUsage {
        let working_set = self.memory.map(|memory| memory.saturating_sub(self.inactive_files));
        let available = self.limit.zip(working_set).map(|(limit, used)| limit.saturating_sub(used));
        v1::MemoryUsage {
            timestamp,
            working_set_bytes: working_set.map(value),
            available_bytes: available.map(value),
            usage_bytes: self.memory.map(value),
            rss_bytes: self.anonymous.map(value),
            page_faults: self.faults.map(value),
            major_page_faults: self.major_faults.map(value),
            psi: None,
        }
    }
}

fn value(value: u64) -> v1::UInt64Value {
    v1::UInt64Value { value }
}

fn of_container(parts: &Parts, container: &Container) -> v1::ContainerStats {
    let (timestamp, used) = (now(), usage(&parts.cgroups, &container.cgroup()));
    let layer = parts.counted.get(&container.id, Instant::now, || {
        let layer = parts.images.root_usage(&container.id).ok()?;
        Some(v1::FilesystemUsage {
            timestamp,
            fs_id: Some(v1::FilesystemIdentifier { mountpoint: mountpoint(&parts.settings.images) }),
            used_bytes: Some(value(layer.bytes)),
            inodes_used: Some(value(layer.inodes)),
        })
    });
    v1::ContainerStats {
        attributes: Some(v1::ContainerAttributes {
            id: container.id.clone(),
            metadata: container.config.metadata.clone(),
            labels: container.config.labels.clone(),
            annotations: container.config.annotations.clone(),
        }),
        cpu: Some(used.cpu(timestamp)),
        memory: Some(used.memory(timestamp)),
        writable_layer: layer,
        ..Default::default()
    }
}

fn of_sandbox(parts: &Parts, sandbox: &Sandbox, containers: &[v1::ContainerStats]) -> v1::PodSandboxStats {
    let timestamp = now();
    let used = usage(&parts.cgroups, &cgroup_parent(&parts.settings.cgroup, &sandbox.id, &sandbox.config));
    let network = sandbox.is_ready().then(|| network(sandbox, timestamp)).flatten();
    v1::PodSandboxStats {
        attributes: Some(v1::PodSandboxAttributes {
            id: sandbox.id.clone(),
            metadata: sandbox.config.metadata.clone(),
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
        }),
        linux: Some(v1::LinuxPodSandboxStats {
            cpu: Some(used.cpu(timestamp)),
            memory: Some(used.memory(timestamp)),
            network,
            process: used.processes.map(|count| v1::ProcessUsage { timestamp, process_count: Some(value(count)) }),
            containers: containers.to_vec(),
            io: None,
        }),
    }
}

/// Counters of the pod's interfaces, read through a process in its network.
fn network(sandbox: &Sandbox, timestamp: i64) -> Option<v1::NetworkUsage> {
    let text = fs::read_to_string(format!("/proc/{}/net/dev", sandbox.pause_pid())).ok()?;
    let mut interfaces = interfaces(&text);
    let default = interfaces.iter().position(|interface| interface.name != "lo").map(|index| interfaces.remove(index));
    Some(v1::NetworkUsage { timestamp, default_interface: default, interfaces })
}

fn interfaces(text: &str) -> Vec<v1::NetworkInterfaceUsage> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines
        .filter_map(|(name, numbers)| {
            let numbers: Vec<u64> = numbers.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect();
            Some(v1::NetworkInterfaceUsage {
                name: name.trim().to_owned(),
                rx_bytes: Some(value(*numbers.first()?)),
                rx_errors: Some(value(*numbers.get(2)?)),
                tx_bytes: Some(value(*numbers.get(8)?)),
                tx_errors: Some(value(*numbers.get(10)?)),
            })
        })
        .collect()
}

/// The mount point of a path: the last directory on the way up that is on the same device.
pub(crate) fn mountpoint(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    let mut place = path;
    while let Some(above) = place.parent()
        && device(above) == device(path)
    {
        place = above;
    }
    place.display().to_string()
}

// === impl Engine ===

impl Engine {
    pub(crate) async fn container_stats(&self, chosen: impl Fn(&Container) -> bool) -> Vec<v1::ContainerStats> {
        let containers: Vec<_> = self.containers().into_iter().filter(|one| one.is_running() && chosen(one)).collect();
        self.blocking(move |parts| containers.iter().map(|container| of_container(parts, container)).collect()).await
    }

    pub(crate) async fn sandbox_stats(&self, sandbox: &str) -> Result<v1::PodSandboxStats, Status> {
        let sandbox = self.sandbox(sandbox)?;
        let containers = self.container_stats(|container| container.sandbox == sandbox.id).await;
        Ok(self.blocking(move |parts| of_sandbox(parts, &sandbox, &containers)).await)
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, time::Duration};

    use keelet_cri::v1::FilesystemUsage;
    use tokio::time::Instant;

    use super::{Counted, Usage, interfaces, value};

    #[test]
    fn files_are_counted_again_only_after_a_while() {
        let (counted, start, seconds, counts) = (Counted::default(), Instant::now(), Cell::new(0), Cell::new(0));
        let get = |id: &str| {
            let count = || {
                counts.set(counts.get() + 1);
                Some(FilesystemUsage { timestamp: counts.get(), ..Default::default() })
            };
            let clock = || start + Duration::from_secs(seconds.get());
            counted.get(id, clock, count).map(|usage| usage.timestamp)
        };
        assert_eq!((get("a"), get("a"), get("b")), (Some(1), Some(1), Some(2)));
        seconds.set(9);
        assert_eq!((get("a"), get("b")), (Some(1), Some(2)));
        seconds.set(10);
        assert_eq!((get("a"), get("a")), (Some(3), Some(3)));
        assert_eq!(counted.0.lock().expect("whole").len(), 1, "a container without readers is forgotten");
    }

    #[test]
    fn the_working_set_is_memory_without_inactive_files() {
        let usage = Usage { memory: Some(100), inactive_files: 30, limit: Some(200), ..Usage::default() };
        let memory = usage.memory(1);
        assert_eq!(memory.working_set_bytes, Some(value(70)));
        assert_eq!(memory.available_bytes, Some(value(130)));
        assert_eq!(Usage { limit: None, ..usage }.memory(1).available_bytes, None);
    }

    #[test]
    fn counters_of_interfaces_are_read_by_their_columns() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
            lo:       1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  eth0:100 2 3 4 5 6 7 8 900 10 11 12 13 14 15 16\n";
        let found = interfaces(text);
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[1].name.as_str(), found[1].rx_bytes, found[1].tx_bytes),
            ("eth0", Some(value(100)), Some(value(900)))
        );
        assert_eq!((found[1].rx_errors, found[1].tx_errors), (Some(value(3)), Some(value(11))));
    }
}
