//! Changing the limits of a container that runs.

use std::{fs, io};

use keelet_cri::v1;
use keelet_linux::cgroup::Mounts;
use tonic::Status;

use crate::{
    engine::Engine,
    spec::{HUGE_PAGES, SWAP_FILE, SpecError, swap_alone},
};

/// Files to write: controller, name, text.
///
/// `holds` is what holds afterwards; `grows` is set if more memory is allowed than before; `quota` is the file of
/// cgroup v2 that has the quota of processors and its period, as it is now.
fn files(
    mounts: &Mounts,
    asked: &v1::LinuxContainerResources,
    holds: &v1::LinuxContainerResources,
    grows: bool,
    quota: &str,
) -> Result<Vec<(&'static str, String, String)>, SpecError> {
    let mut files: Vec<(&'static str, String, String)> = Vec::new();
    let mut add = |controller, name: &str, text: String| files.push((controller, name.to_owned(), text));
    for (name, text) in [("cpuset.cpus", &asked.cpuset_cpus), ("cpuset.mems", &asked.cpuset_mems)] {
        if !text.is_empty() {
            add("cpuset", name, text.clone());
        }
    }
    let most = if matches!(mounts, Mounts::V2(_)) { "max" } else { "limit_in_bytes" };
    for page in asked.hugepage_limits.iter().filter(|_| mounts.has(HUGE_PAGES)) {
        add(HUGE_PAGES, &format!("{HUGE_PAGES}.{}.{most}", page.page_size), page.limit.to_string());
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
            if asked.cpu_quota != 0 || asked.cpu_period > 0 {
                add("cpu", "cpu.max", cpu_max(asked, quota));
            }
            let limit = asked.memory_limit_in_bytes;
            if limit != 0 {
                add("memory", "memory.max", if limit < 0 { "max".to_owned() } else { limit.to_string() });
            }
            if let Some(swap) = swap_alone(holds.memory_limit_in_bytes, asked.memory_swap_limit_in_bytes)? {
                add("memory", SWAP_FILE, swap);
            }
            for (name, text) in &asked.unified {
                if !name.contains('/') {
                    add("cpu", name, text.clone());
                }
            }
        }
    }
    Ok(files)
}

/// The files that change a cgroup, which may not be there yet, from what it has now.
fn changes(
    mounts: &Mounts,
    cgroup: &str,
    asked: &v1::LinuxContainerResources,
    holds: &v1::LinuxContainerResources,
) -> Result<Vec<(&'static str, String, String)>, SpecError> {
    let now = |controller, name| fs::read_to_string(mounts.directory(controller, cgroup)?.join(name)).ok();
    let limit = now("memory", "memory.limit_in_bytes").and_then(|text| text.trim().parse::<i64>().ok());
    let wanted = asked.memory_limit_in_bytes;
    let grows = wanted < 0 || limit.is_some_and(|limit| limit < wanted);
    files(mounts, asked, holds, grows, &now("cpu", "cpu.max").unwrap_or_default())
}

/// The same for a pod as a whole. Which processors its containers may use is for each of them to say.
pub(crate) fn changes_of_pod(
    mounts: &Mounts,
    cgroup: &str,
    asked: &v1::LinuxContainerResources,
) -> Result<Vec<(&'static str, String, String)>, SpecError> {
    let mut files = changes(mounts, cgroup, asked, asked)?;
    files.retain(|(controller, ..)| *controller != "cpuset");
    Ok(files)
}

/// Quota and period in one file, where what is not named stays.
fn cpu_max(asked: &v1::LinuxContainerResources, before: &str) -> String {
    let (quota, period) = before.trim().split_once(' ').unwrap_or(("max", "100000"));
    let quota = match asked.cpu_quota {
        0 => quota.to_owned(),
        ..0 => "max".to_owned(),
        quota => quota.to_string(),
    };
    let period = if asked.cpu_period > 0 { asked.cpu_period.to_string() } else { period.to_owned() };
    format!("{quota} {period}")
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
    for page in &asked.hugepage_limits {
        limits.hugepage_limits.retain(|limit| limit.page_size != page.page_size);
        limits.hugepage_limits.push(page.clone());
    }
    limits.unified.extend(asked.unified.clone());
    limits
}

/// Shares of the first generation as a weight of the second: the least, the usual and the most, 2, 1024 and 262144, become 1,
/// 100 and 10000, and in between weights grow as shares do. libcontainer, crun and runc from 1.3.2 on have the same.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers"
)]
fn weight(shares: u64) -> u64 {
    let log = (shares.clamp(2, 262_144) as f64).log2();
    let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
    (10_f64.powf(exponent).ceil() as u64).clamp(1, 10_000)
}

// === impl Engine ===

impl Engine {
    pub(crate) async fn update_resources(&self, id: &str, asked: v1::LinuxContainerResources) -> Result<(), Status> {
        let container = self.container(id)?;
        if !container.is_running() {
            return Err(Status::failed_precondition(format!("container {} is not running", container.id)));
        }
        let cgroup = container.cgroup();
        let written = self.blocking(move |parts| {
            let holds = merged(container.resources().unwrap_or_default(), &asked);
            let files = changes(&parts.cgroups, &cgroup, &asked, &holds).map_err(io::Error::other)?;
            files.into_iter().try_for_each(|(controller, name, text)| {
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

    use super::{cpu_max, merged, weight};

    #[test]
    fn what_a_change_does_not_name_stays() {
        let pages = |sizes: &[(&str, u64)]| -> Vec<_> {
            let limit =
                |(size, limit): &(&str, u64)| v1::HugepageLimit { page_size: (*size).to_owned(), limit: *limit };
            sizes.iter().map(limit).collect()
        };
        let before = v1::LinuxContainerResources {
            cpu_shares: 2,
            cpuset_cpus: "0".to_owned(),
            hugepage_limits: pages(&[("2MB", 1), ("1GB", 2)]),
            ..Default::default()
        };
        let asked = v1::LinuxContainerResources {
            cpu_quota: -1,
            cpu_shares: 3,
            hugepage_limits: pages(&[("2MB", 3)]),
            ..Default::default()
        };
        let after = merged(before, &asked);
        assert_eq!((after.cpu_shares, after.cpu_quota, after.cpuset_cpus.as_str()), (3, -1, "0"));
        assert_eq!(after.hugepage_limits, pages(&[("1GB", 2), ("2MB", 3)]));
    }

    #[test]
    fn shares_become_weights_from_end_to_end() {
        assert_eq!((weight(2), weight(262_144), weight(0)), (1, 10_000, 1));
        assert_eq!((weight(102), weight(512), weight(1024), weight(22_000)), (17, 59, 100, 1204));
    }

    #[test]
    fn of_quota_and_period_each_can_be_changed_alone() {
        let asked = |cpu_quota, cpu_period| v1::LinuxContainerResources { cpu_quota, cpu_period, ..Default::default() };
        assert_eq!(cpu_max(&asked(50_000, 0), "max 200000\n"), "50000 200000");
        assert_eq!(cpu_max(&asked(0, 50_000), "20000 100000\n"), "20000 50000");
        assert_eq!(cpu_max(&asked(-1, 0), "20000 100000\n"), "max 100000");
        assert_eq!(cpu_max(&asked(7000, 9000), ""), "7000 9000");
    }
}
