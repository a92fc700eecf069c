//! From what CRI asks for to an OCI configuration. Functions only: what has to be looked up comes in as [`Given`].

mod devices;
mod mounts;
mod process;
mod resources;

use std::path::{Path, PathBuf};

use keelet_cri::v1::{self, NamespaceMode};
use keelet_linux::{
    cgroup::Mounts,
    userns::{IdRange, Users},
};
use oci_spec::runtime::{
    Linux, LinuxBuilder, LinuxIdMapping, LinuxIdMappingBuilder, LinuxNamespace, LinuxNamespaceBuilder,
    LinuxNamespaceType, LinuxSeccomp, RootBuilder, Spec, SpecBuilder,
};

pub(crate) use self::{
    mounts::{HOSTNAME, HOSTS, RESOLV_CONF, SHM},
    resources::{HUGE_PAGES, SWAP_FILE, swap_alone},
};
use crate::records::User;

/// What a container's configuration depends on besides the request.
#[derive(Debug)]
pub(crate) struct Given<'a> {
    pub(crate) config: &'a v1::ContainerConfig,
    pub(crate) sandbox_config: &'a v1::PodSandboxConfig,
    /// The sandbox's directory, with the files that every container gets.
    pub(crate) sandbox_dir: &'a Path,
    /// The process that holds the sandbox's namespaces.
    pub(crate) pause: u32,
    /// The process whose tree of processes it asks to see.
    pub(crate) target: Option<u32>,
    pub(crate) rootfs: PathBuf,
    pub(crate) cgroup: &'a str,
    pub(crate) image: &'a keelet_image::ImageConfig,
    pub(crate) user: &'a User,
    /// The home directory of that user.
    pub(crate) home: &'a str,
    /// Names of capabilities.
    pub(crate) capabilities: oci_spec::runtime::LinuxCapabilities,
    pub(crate) seccomp: Option<LinuxSeccomp>,
    /// Where images that are mounted lie, in the order of the mounts that name them.
    pub(crate) image_mounts: Vec<PathBuf>,
    pub(crate) cgroups: &'a Mounts,
    /// The node's IDs for the pod's users, if the pod has its own.
    pub(crate) users: Option<Users>,
}

/// Why there is no configuration for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SpecError(pub(crate) String);

// === impl Given ===

impl Given<'_> {
    fn security(&self) -> v1::LinuxContainerSecurityContext {
        self.config.linux.as_ref().and_then(|linux| linux.security_context.clone()).unwrap_or_default()
    }

    fn namespaces(&self) -> v1::NamespaceOption {
        self.security().namespace_options.unwrap_or_default()
    }

    fn unified_cgroups(&self) -> bool {
        matches!(self.cgroups, Mounts::V2(_))
    }

    /// Network and IPC belong to the sandbox: what a container says of them changes nothing.
    fn shared(&self) -> v1::NamespaceOption {
        crate::sandbox::namespaces(self.sandbox_config)
    }
}

/// The OCI configuration of a container.
pub(crate) fn container(given: &Given<'_>) -> Result<Spec, SpecError> {
    let security = given.security();
    let root = RootBuilder::default().path(&given.rootfs).readonly(security.readonly_rootfs).build();
    let spec = SpecBuilder::default()
        .root(root.map_err(builder)?)
        .process(process::process(given, &security)?)
        .mounts(mounts::mounts(given, &security)?)
        .linux(linux(given, &security)?)
        .build();
    let mut spec = spec.map_err(builder)?;
    // Its namespace has its name already.
    spec.set_hostname(None).set_annotations(None);
    Ok(spec)
}

fn linux(given: &Given<'_>, security: &v1::LinuxContainerSecurityContext) -> Result<Linux, SpecError> {
    let mut linux = LinuxBuilder::default()
        .namespaces(namespaces(given)?)
        .cgroups_path(given.cgroup)
        .resources(resources::resources(given, security)?)
        .devices(devices::made(given, security.privileged)?)
        .build()
        .map_err(builder)?;
    let shown = |paths: &[String]| (!security.privileged).then(|| paths.to_vec());
    linux
        .set_masked_paths(shown(&security.masked_paths))
        .set_readonly_paths(shown(&security.readonly_paths))
        .set_seccomp(given.seccomp.clone())
        .set_rootfs_propagation(mounts::root_propagation(&given.config.mounts).map(str::to_owned));
    if let Some(users) = given.users {
        linux.set_uid_mappings(Some(mapping(users.uids)?)).set_gid_mappings(Some(mapping(users.gids)?));
    }
    Ok(linux)
}

fn mapping(range: IdRange) -> Result<Vec<LinuxIdMapping>, SpecError> {
    let mapping = LinuxIdMappingBuilder::default().container_id(0u32).host_id(range.first).size(range.length);
    Ok(vec![mapping.build().map_err(builder)?])
}

fn namespaces(given: &Given<'_>) -> Result<Vec<LinuxNamespace>, SpecError> {
    let options = given.namespaces();
    let own = |kind| LinuxNamespaceBuilder::default().typ(kind).build().map_err(builder);
    let of = |kind, pid: u32, name: &str| {
        LinuxNamespaceBuilder::default().typ(kind).path(format!("/proc/{pid}/ns/{name}")).build().map_err(builder)
    };
    let mut namespaces = vec![own(LinuxNamespaceType::Mount)?];
    if given.users.is_some() {
        namespaces.push(of(LinuxNamespaceType::User, given.pause, "user")?);
    }
    let mode = |mode: i32| NamespaceMode::try_from(mode).unwrap_or(NamespaceMode::Pod);
    let shared = given.shared();
    if mode(shared.network) != NamespaceMode::Node {
        namespaces.push(of(LinuxNamespaceType::Network, given.pause, "net")?);
        namespaces.push(of(LinuxNamespaceType::Uts, given.pause, "uts")?);
    }
    if mode(shared.ipc) != NamespaceMode::Node {
        namespaces.push(of(LinuxNamespaceType::Ipc, given.pause, "ipc")?);
    }
    match mode(options.pid) {
        NamespaceMode::Node => {}
        NamespaceMode::Container => namespaces.push(own(LinuxNamespaceType::Pid)?),
        // Such a sandbox has none to share: its own process is one of the node's.
        NamespaceMode::Pod if mode(shared.pid) == NamespaceMode::Container => {
            namespaces.push(own(LinuxNamespaceType::Pid)?);
        }
        NamespaceMode::Pod => namespaces.push(of(LinuxNamespaceType::Pid, given.pause, "pid")?),
        NamespaceMode::Target => {
            let target = given
                .target
                .ok_or_else(|| SpecError(format!("target container {:?} is not running", options.target_id)))?;
            namespaces.push(of(LinuxNamespaceType::Pid, target, "pid")?);
        }
    }
    // A process that is not the node's root can only mount what it owns.
    if given.unified_cgroups() && (!given.security().privileged || given.users.is_some()) {
        namespaces.push(own(LinuxNamespaceType::Cgroup)?);
    }
    Ok(namespaces)
}

/// Builders fail only where something is missing that we always give.
fn builder(error: impl std::fmt::Display) -> SpecError {
    SpecError(format!("cannot build the OCI configuration: {error}"))
}

#[cfg(test)]
mod tests;
