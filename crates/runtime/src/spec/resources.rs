//! How much of the node a container may have.

use keelet_cri::v1;
use oci_spec::runtime::{
    LinuxCpu, LinuxCpuBuilder, LinuxHugepageLimitBuilder, LinuxMemory, LinuxMemoryBuilder, LinuxResources,
    LinuxResourcesBuilder,
};

use super::{Given, SpecError, builder, devices};

pub(super) fn resources(
    given: &Given<'_>,
    security: &v1::LinuxContainerSecurityContext,
) -> Result<LinuxResources, SpecError> {
    let asked = given.config.linux.as_ref().and_then(|linux| linux.resources.clone()).unwrap_or_default();
    let mut resources = limits(&asked, given.unified_cgroups())?;
    resources.set_devices(Some(devices::rules(&given.config.devices, security.privileged)?));
    Ok(resources)
}

/// The limits alone, as an update has them. Zero and empty mean: not set.
pub(crate) fn limits(asked: &v1::LinuxContainerResources, unified: bool) -> Result<LinuxResources, SpecError> {
    let mut resources = LinuxResourcesBuilder::default().build().map_err(builder)?;
    resources.set_devices(None);
    if let Some(cpu) = cpu(asked)? {
        resources.set_cpu(Some(cpu));
    }
    if let Some(memory) = memory(asked)? {
        resources.set_memory(Some(memory));
    }
    let pages = asked.hugepage_limits.iter().map(|page| {
        let limit = i64::try_from(page.limit).unwrap_or(i64::MAX);
        LinuxHugepageLimitBuilder::default().page_size(&page.page_size).limit(limit).build().map_err(builder)
    });
    let pages = pages.collect::<Result<Vec<_>, _>>()?;
    if !pages.is_empty() {
        resources.set_hugepage_limits(Some(pages));
    }
    if unified && !asked.unified.is_empty() {
        resources.set_unified(Some(asked.unified.clone().into_iter().collect()));
    }
    Ok(resources)
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

fn memory(asked: &v1::LinuxContainerResources) -> Result<Option<LinuxMemory>, SpecError> {
    let mut memory = LinuxMemoryBuilder::default().build().map_err(builder)?;
    let (limit, swap) = (asked.memory_limit_in_bytes, asked.memory_swap_limit_in_bytes);
    if limit == 0 && swap == 0 {
        return Ok(None);
    }
    memory.set_limit((limit != 0).then_some(limit)).set_swap((swap != 0).then_some(swap));
    Ok(Some(memory))
}
