//! Changing the limits of a container that runs.

use std::{fs, io};

use keelet_cri::v1;
use keelet_shim::cgroup::Mounts;
use tonic::Status;

use crate::engine::Engine;

/// Files to write: controller, name, text.
///
/// `grows` tells that more memory is allowed than before.
fn files(mounts: &Mounts, asked: &v1::LinuxContainerResources, grows: bool) -> Vec<(&'static str, String, String)> {
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
            let (limit, swap) = (asked.memory_limit_in_bytes, asked.memory_swap_limit_in_bytes);
            let (limit, swap) = (("memory.limit_in_bytes", limit), ("memory.memsw.limit_in_bytes", swap));
            // The one includes the other, and the kernel refuses it the other way round even for a moment.
            for (name, number) in if grows { [swap, limit] } else { [limit, swap] } {
                if number != 0 {
                    add("memory", name, number.to_string());
                }
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

/// The limits that hold after a change: what it does not name stays.
pub(crate) fn merged(
    mut limits: v1::LinuxContainerResources,
    asked: &v1::LinuxContainerResources,
) -> v1::LinuxContainerResources {
    for (number, new) in [
        (&mut limits.cpu_period, asked.cpu_period),
        (&mut limits.cpu_quota, asked.cpu_quota),
        (&mut limits.cpu_shares, asked.cpu_shares),
        (&mut limits.memory_limit_in_bytes, asked.memory_limit_in_bytes),
        (&mut limits.memory_swap_limit_in_bytes, asked.memory_swap_limit_in_bytes),
    ] {
        if new != 0 {
            *number = new;
        }
    }
    for (text, new) in [(&mut limits.cpuset_cpus, &asked.cpuset_cpus), (&mut limits.cpuset_mems, &asked.cpuset_mems)] {
        if !new.is_empty() {
            text.clone_from(new);
        }
    }
    limits.unified.extend(asked.unified.clone());
    limits
}

/// Shares of the first generation as a weight of the second: 2 to 262144 becomes 1 to 10000.
fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9_999 / 262_142
}

// === impl Engine ===

impl Engine {
    pub(crate) async fn update_resources(&self, id: &str, asked: v1::LinuxContainerResources) -> Result<(), Status> {
        let container = self.container(id)?;
        if !container.is_running() {
            return Err(Status::failed_precondition(format!("the container {} does not run", container.id)));
        }
        let cgroup = container.cgroup();
        let written = self.blocking(move |parts| {
            let limit = parts.cgroups.directory("memory", &cgroup).map(|dir| dir.join("memory.limit_in_bytes"));
            let limit = limit.and_then(|path| fs::read_to_string(path).ok()?.trim().parse::<i64>().ok());
            let wanted = asked.memory_limit_in_bytes;
            let grows = wanted < 0 || limit.is_some_and(|limit| limit < wanted);
            files(&parts.cgroups, &asked, grows).into_iter().try_for_each(|(controller, name, text)| {
                let dir = parts.cgroups.directory(controller, &cgroup).ok_or_else(|| {
                    io::Error::new(io::ErrorKind::NotFound, format!("this node has no cgroup controller {controller}"))
                })?;
                fs::write(dir.join(&name), &text)
                    .map_err(|error| io::Error::new(error.kind(), format!("{name} = {text}: {error}")))
            })?;
            container.note_limits(&asked)
        });
        written.await.map_err(|error| Status::internal(format!("cannot change the limits: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use keelet_cri::v1;

    use super::{merged, weight};

    #[test]
    fn what_a_change_does_not_name_stays() {
        let before = v1::LinuxContainerResources { cpu_shares: 2, cpuset_cpus: "0".to_owned(), ..Default::default() };
        let asked = v1::LinuxContainerResources { cpu_quota: -1, cpu_shares: 3, ..Default::default() };
        let after = merged(before, &asked);
        assert_eq!((after.cpu_shares, after.cpu_quota, after.cpuset_cpus.as_str()), (3, -1, "0"));
    }

    #[test]
    fn shares_become_weights_from_end_to_end() {
        assert_eq!((weight(2), weight(262_144), weight(0)), (1, 10_000, 1));
        assert_eq!(weight(1024), 39);
    }
}
