//! Changing the limits of a container that runs.

use std::{fs, io};

use keelet_cri::v1;
use keelet_shim::cgroup::Mounts;
use tonic::Status;

use crate::{engine::Engine, records};

/// Files to write: controller, name, text.
fn files(mounts: &Mounts, asked: &v1::LinuxContainerResources) -> Vec<(&'static str, String, String)> {
    let mut files: Vec<(&'static str, String, String)> = Vec::new();
    let mut add = |controller, name: &str, text: String| files.push((controller, name.to_owned(), text));
    for (name, text) in [("cpuset.cpus", &asked.cpuset_cpus), ("cpuset.mems", &asked.cpuset_mems)] {
        if !text.is_empty() {
            add("cpuset", name, text.clone());
        }
    }
    match mounts {
        Mounts::V1(_) => {
            for (name, number) in [
                ("cpu.shares", asked.cpu_shares),
                ("cpu.cfs_period_us", asked.cpu_period),
                ("cpu.cfs_quota_us", asked.cpu_quota),
            ] {
                if number != 0 {
                    add("cpu", name, number.to_string());
                }
            }
            if asked.memory_limit_in_bytes != 0 {
                add("memory", "memory.limit_in_bytes", asked.memory_limit_in_bytes.to_string());
            }
            if asked.memory_swap_limit_in_bytes != 0 {
                add("memory", "memory.memsw.limit_in_bytes", asked.memory_swap_limit_in_bytes.to_string());
            }
        }
        Mounts::V2(_) => {
            if let Ok(shares) = u64::try_from(asked.cpu_shares)
                && shares > 0
            {
                add("cpu", "cpu.weight", weight(shares).to_string());
            }
            if asked.cpu_quota != 0 {
                let quota = if asked.cpu_quota < 0 { "max".to_owned() } else { asked.cpu_quota.to_string() };
                let period = if asked.cpu_period > 0 { asked.cpu_period } else { 100_000 };
                add("cpu", "cpu.max", format!("{quota} {period}"));
            }
            if asked.memory_limit_in_bytes != 0 {
                let limit = asked.memory_limit_in_bytes;
                add("memory", "memory.max", if limit < 0 { "max".to_owned() } else { limit.to_string() });
            }
            for (name, text) in &asked.unified {
                if !name.contains('/') {
                    add("cpu", name, text.clone());
                }
            }
        }
    }
    files
}

/// Shares of the first generation as a weight of the second: 2 to 262144 becomes 1 to 10000.
fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9_999 / 262_142
}

/// The limits after an update. Zero and empty mean: as before.
fn updated(before: v1::LinuxContainerResources, asked: v1::LinuxContainerResources) -> v1::LinuxContainerResources {
    let number = |asked: i64, before: i64| if asked == 0 { before } else { asked };
    let text = |asked: String, before: String| if asked.is_empty() { before } else { asked };
    let mut unified = before.unified;
    unified.extend(asked.unified);
    v1::LinuxContainerResources {
        cpu_period: number(asked.cpu_period, before.cpu_period),
        cpu_quota: number(asked.cpu_quota, before.cpu_quota),
        cpu_shares: number(asked.cpu_shares, before.cpu_shares),
        memory_limit_in_bytes: number(asked.memory_limit_in_bytes, before.memory_limit_in_bytes),
        memory_swap_limit_in_bytes: number(asked.memory_swap_limit_in_bytes, before.memory_swap_limit_in_bytes),
        cpuset_cpus: text(asked.cpuset_cpus, before.cpuset_cpus),
        cpuset_mems: text(asked.cpuset_mems, before.cpuset_mems),
        unified,
        // An update does not reach these.
        oom_score_adj: before.oom_score_adj,
        hugepage_limits: before.hugepage_limits,
    }
}

// === impl Engine ===

impl Engine {
    pub(crate) async fn update_resources(&self, id: &str, asked: v1::LinuxContainerResources) -> Result<(), Status> {
        let container = self.container(id)?;
        if !container.is_running() {
            return Err(Status::failed_precondition(format!("the container {} does not run", container.id)));
        }
        let cgroup = container.cgroup();
        let wanted = asked.clone();
        let written = self.blocking(move |parts| {
            files(&parts.cgroups, &wanted).into_iter().try_for_each(|(controller, name, text)| {
                let dir = parts.cgroups.directory(controller, &cgroup).ok_or_else(|| {
                    io::Error::new(io::ErrorKind::NotFound, format!("this node has no cgroup controller {controller}"))
                })?;
                fs::write(dir.join(&name), &text)
                    .map_err(|error| io::Error::new(error.kind(), format!("{name} = {text}: {error}")))
            })
        });
        written.await.map_err(|error| Status::internal(format!("cannot change the limits: {error}")))?;
        let now = {
            let mut resources = container.resources();
            let now = updated(resources.take().unwrap_or_default(), asked);
            *resources = Some(now.clone());
            now
        };
        // For the next server.
        let mut config = container.config.clone();
        config.linux.get_or_insert_default().resources = Some(now);
        records::write_container_config(&container.dir, &config)
            .map_err(|error| Status::internal(format!("the new limits cannot be remembered: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use keelet_cri::v1::LinuxContainerResources;

    use super::{updated, weight};

    #[test]
    fn what_an_update_does_not_name_stays() {
        let before = LinuxContainerResources {
            cpu_shares: 2,
            memory_limit_in_bytes: 64,
            oom_score_adj: 7,
            ..Default::default()
        };
        let asked =
            LinuxContainerResources { memory_limit_in_bytes: 128, cpuset_cpus: "0".to_owned(), ..Default::default() };
        let expected =
            LinuxContainerResources { memory_limit_in_bytes: 128, cpuset_cpus: "0".to_owned(), ..before.clone() };
        assert_eq!(updated(before, asked), expected);
    }

    #[test]
    fn shares_become_weights_from_end_to_end() {
        assert_eq!((weight(2), weight(262_144), weight(0)), (1, 10_000, 1));
        assert_eq!(weight(1024), 39);
    }
}
