//! How much of the node a container may have.

use std::collections::BTreeMap;

use keelet_cri::v1;
use keelet_linux::cgroup::Mounts;
use oci_spec::runtime::{
    LinuxCpu, LinuxCpuBuilder, LinuxHugepageLimitBuilder, LinuxMemory, LinuxMemoryBuilder, LinuxResources,
    LinuxResourcesBuilder,
};

use super::{Given, SpecError, builder, devices};

/// Where the second generation of cgroups has the limit of swap.
pub(crate) const SWAP_FILE: &str = "memory.swap.max";

/// The controller of huge pages.
pub(crate) const HUGE_PAGES: &str = "hugetlb";

pub(super) fn resources(
    given: &Given<'_>,
    security: &v1::LinuxContainerSecurityContext,
) -> Result<LinuxResources, SpecError> {
    let asked = given.config.linux.as_ref().and_then(|linux| linux.resources.clone()).unwrap_or_default();
    let mut resources = limits(&asked, given.cgroups)?;
    resources.set_devices(Some(devices::rules(&given.config.devices, security.privileged)?));
    Ok(resources)
}

/// The limits alone. Zero and empty mean: not set.
fn limits(asked: &v1::LinuxContainerResources, cgroups: &Mounts) -> Result<LinuxResources, SpecError> {
    let unified = matches!(cgroups, Mounts::V2(_));
    let mut resources = LinuxResourcesBuilder::default().build().map_err(builder)?;
    resources.set_devices(None);
    if let Some(cpu) = cpu(asked)? {
        resources.set_cpu(Some(cpu));
    }
    if let Some(memory) = memory(asked, unified)? {
        resources.set_memory(Some(memory));
    }
    let pages = asked.hugepage_limits.iter().map(|page| {
        let limit = i64::try_from(page.limit).unwrap_or(i64::MAX);
        LinuxHugepageLimitBuilder::default().page_size(&page.page_size).limit(limit).build().map_err(builder)
    });
    let pages = pages.collect::<Result<Vec<_>, _>>()?;
    // The runtime cannot limit huge pages where the node has no controller for them. Kubelets ask for it all the same,
    // and containerd lets them.
    if !pages.is_empty() && cgroups.has(HUGE_PAGES) {
        resources.set_hugepage_limits(Some(pages));
    }
    if !unified && !asked.unified.is_empty() {
        return Err(SpecError(
            "limits of cgroup v2 (unified) are for nodes that have it, and this one has v1".to_owned(),
        ));
    }
    if unified {
        // libcontainer leaves swap alone where none is allowed.
        let swap = swap_alone(asked.memory_limit_in_bytes, asked.memory_swap_limit_in_bytes)?;
        let mut files: BTreeMap<_, _> = swap.map(|swap| (SWAP_FILE.to_owned(), swap)).into_iter().collect();
        files.extend(asked.unified.clone());
        if !files.is_empty() {
            resources.set_unified(Some(files.into_iter().collect()));
        }
    }
    Ok(resources)
}

/// How much may be swapped as the second generation of cgroups wants it: without the memory, which CRI counts in. None is
/// as it was.
pub(crate) fn swap_alone(limit: i64, swap: i64) -> Result<Option<String>, SpecError> {
    match (limit, swap) {
        (_, 0) => Ok(None),
        (_, ..0) => Ok(Some("max".to_owned())),
        (..=0, _) => Err(SpecError(format!("a limit of memory and swap ({swap}) needs one of memory"))),
        (limit, swap) if swap < limit => {
            Err(SpecError(format!("the limit of memory and swap ({swap}) is below that of memory ({limit})")))
        }
        (limit, swap) => Ok(Some((swap - limit).to_string())),
    }
}

fn cpu(asked: &v1::LinuxContainerResources) -> Result<Option<LinuxCpu>, SpecError> {
    let mut cpu = LinuxCpuBuilder::default().build().map_err(builder)?;
    let positive = |value: i64| u64::try_from(value).ok().filter(|value| *value > 0);
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    cpu.set_shares(positive(asked.cpu_shares))
        .set_period(positive(asked.cpu_period))
        // Minus one is no limit.
        .set_quota((asked.cpu_quota != 0).then_some(asked.cpu_quota))
        .set_cpus(text(&asked.cpuset_cpus))
        .set_mems(text(&asked.cpuset_mems));
    Ok((cpu != LinuxCpuBuilder::default().build().map_err(builder)?).then_some(cpu))
}

fn memory(asked: &v1::LinuxContainerResources, unified: bool) -> Result<Option<LinuxMemory>, SpecError> {
    let mut memory = LinuxMemoryBuilder::default().build().map_err(builder)?;
    let swap = if unified { 0 } else { asked.memory_swap_limit_in_bytes };
    let limit = asked.memory_limit_in_bytes;
    if limit == 0 && swap == 0 {
        return Ok(None);
    }
    memory.set_limit((limit != 0).then_some(limit)).set_swap((swap != 0).then_some(swap));
    Ok(Some(memory))
}

#[cfg(test)]
mod tests {
    use super::swap_alone;

    #[test]
    fn swap_is_distinguished_from_memory() {
        let swap_of = |limit, swap| swap_alone(limit, swap).map(|swap| swap.unwrap_or_else(|| "as it was".to_owned()));
        assert_eq!(swap_of(100, 0).as_deref(), Ok("as it was"));
        assert_eq!(swap_of(100, 100).as_deref(), Ok("0"), "nothing is a limit too");
        assert_eq!(swap_of(100, 150).as_deref(), Ok("50"));
        assert_eq!(swap_of(100, -1).as_deref(), Ok("max"));
        assert_eq!(swap_of(0, -1).as_deref(), Ok("max"));
        assert!(swap_of(100, 99).is_err_and(|error| error.0.contains("(99) is below that of memory (100)")));
        assert!(swap_of(0, 100).is_err());
        assert!(swap_of(-1, 100).is_err());
    }
}
