//! What of the node a container sees: volumes, its hosts file, the file for its termination message.

use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1 as api;
use keelet_cri::v1;
use keelet_pod::{Container, Pod};

use super::{ConfigError, Placement, container, env, env::Environment, expand::expand};

/// A part of a volume that a container mounts. It has to be there before the container is made, and it must not lead
/// out of the volume: a process that can write to the volume can put a symbolic link in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubPath {
    /// The volume's name.
    pub name: String,
    /// The volume on the node.
    pub volume: PathBuf,
    /// The part: relative, without `..`.
    pub path: PathBuf,
    /// The writer of the volume.
    pub writer: Writer,
}

/// What writes to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// The pod, or a process outside it: what is in it cannot be trusted.
    Pod,
    /// The agent alone. Its links are its own, and a part that is not there will not come from the pod.
    Agent,
}

/// The kernel's limit for a path.
const LONGEST_PATH: usize = 4096;

const ETC_HOSTS: &str = "/etc/hosts";

/// The parts of volumes that a container mounts.
pub fn sub_paths(placement: &Placement<'_>, container: &Container) -> Result<Vec<SubPath>, ConfigError> {
    let raw = &*container::required(placement, container)?;
    let environment = env::environment(placement, raw)?;
    let mut parts = Vec::new();
    for mount in raw.volume_mounts.iter().flatten() {
        if let Some(path) = sub_path(mount, &environment, &raw.name)? {
            let writer = match kind(placement, &mount.name) {
                Kind::Content => Writer::Agent,
                Kind::Room | Kind::Foreign => Writer::Pod,
            };
            let volume = volume(placement, &mount.name, &raw.name)?.to_owned();
            parts.push(SubPath { name: mount.name.clone(), volume, path, writer });
        }
    }
    Ok(parts)
}

/// Whether the agent fills any of a pod's volumes.
pub fn has_contents(pod: &Pod) -> bool {
    let mut volumes = pod.source.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.any(|volume| kind_of(volume) == Kind::Content)
}

/// Everything that is mounted into a container.
pub(super) fn mounts(
    placement: &Placement<'_>,
    raw: &api::Container,
    environment: &Environment,
) -> Result<Vec<v1::Mount>, ConfigError> {
    if let Some(device) = raw.volume_devices.iter().flatten().next() {
        return Err(refusal(&device.name, &raw.name, "raw block volumes are not available on this node yet"));
    }
    let given = raw.volume_mounts.as_deref().unwrap_or_default();
    let mut mounts =
        given.iter().map(|mount| volume_mount(placement, raw, mount, environment)).collect::<Result<Vec<_>, _>>()?;
    let has_hosts = given.iter().any(|mount| mount.mount_path == ETC_HOSTS);
    if let Some(file) = placement.etc_hosts.filter(|_| !has_hosts) {
        mounts.push(own_file(file, ETC_HOSTS));
    }
    let message_path = raw.termination_message_path.as_deref().unwrap_or_default();
    if let Some(file) = placement.termination_file.filter(|_| !message_path.is_empty()) {
        mounts.push(own_file(file, message_path));
    }
    // Each user owns the same files as without a user namespace.
    for mount in &mut mounts {
        (mount.uid_mappings, mount.gid_mappings) = (placement.mappings(), placement.mappings());
    }
    Ok(mounts)
}

fn volume_mount(
    placement: &Placement<'_>,
    raw: &api::Container,
    mount: &api::VolumeMount,
    environment: &Environment,
) -> Result<v1::Mount, ConfigError> {
    let volume = volume(placement, &mount.name, &raw.name)?;
    let host_path = match sub_path(mount, environment, &raw.name)? {
        Some(part) => {
            let asked = volume.join(part);
            placement.parts.get(&asked).cloned().unwrap_or(asked)
        }
        None => volume.to_owned(),
    };
    let kind = kind(placement, &mount.name);
    let propagation = match mount.mount_propagation.as_deref() {
        Some("HostToContainer") => v1::MountPropagation::PropagationHostToContainer,
        Some("Bidirectional") => v1::MountPropagation::PropagationBidirectional,
        _ => v1::MountPropagation::PropagationPrivate,
    };
    let recursive = match mount.recursive_read_only.as_deref() {
        Some("Enabled") if !placement.recursive_read_only => {
            return Err(refusal(&mount.name, &raw.name, "recursiveReadOnly: Enabled is more than the runtime can do"));
        }
        Some("Enabled") => true,
        Some("IfPossible") => {
            placement.recursive_read_only
                && mount.read_only == Some(true)
                && propagation == v1::MountPropagation::PropagationPrivate
        }
        _ => false,
    };
    if recursive && propagation != v1::MountPropagation::PropagationPrivate {
        return Err(refusal(&mount.name, &raw.name, "recursiveReadOnly and mountPropagation exclude each other"));
    }
    Ok(v1::Mount {
        container_path: absolute(&mount.mount_path),
        host_path: text(&host_path),
        readonly: mount.read_only == Some(true) || kind == Kind::Content,
        selinux_relabel: kind != Kind::Foreign,
        propagation: propagation.into(),
        recursive_read_only: recursive,
        mount_options: mount.bind_mount_options.clone().unwrap_or_default(),
        ..v1::Mount::default()
    })
}

/// Whether it matters for this container what the runtime can do.
pub fn wants_recursive_read_only(pod: &Pod, container: &Container) -> bool {
    let asks = |name: &str, mounts: &Option<Vec<api::VolumeMount>>| {
        name == container.name && mounts.iter().flatten().any(|mount| mount.recursive_read_only.is_some())
    };
    pod.source.spec.as_ref().is_some_and(|spec| {
        let mut ordinary = spec.init_containers.iter().flatten().chain(&spec.containers);
        let mut ephemeral = spec.ephemeral_containers.iter().flatten();
        ordinary.any(|raw| asks(&raw.name, &raw.volume_mounts))
            || ephemeral.any(|raw| asks(&raw.name, &raw.volume_mounts))
    })
}

/// The owner of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The pod's own room.
    Room,
    /// The pod's own, filled by the agent: containers only read it.
    Content,
    /// Not the pod's own; its labels are left alone.
    Foreign,
}

fn kind(placement: &Placement<'_>, name: &str) -> Kind {
    let mut volumes = placement.spec().into_iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.find(|volume| volume.name == name).map_or(Kind::Foreign, kind_of)
}

fn kind_of(volume: &api::Volume) -> Kind {
    let filled = volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some();
    match filled {
        _ if volume.empty_dir.is_some() => Kind::Room,
        true => Kind::Content,
        false => Kind::Foreign,
    }
}

fn volume<'a>(placement: &Placement<'a>, name: &str, container: &str) -> Result<&'a Path, ConfigError> {
    let path = placement.volumes.get(name);
    path.map(PathBuf::as_path).ok_or_else(|| refusal(name, container, "the volume is not there"))
}

/// The part of the volume that is asked for, in plain components.
fn sub_path(
    mount: &api::VolumeMount,
    environment: &Environment,
    container: &str,
) -> Result<Option<PathBuf>, ConfigError> {
    let refuse = |why: &str| refusal(&mount.name, container, why);
    let asked = match mount.sub_path_expr.as_deref() {
        None | Some("") => mount.sub_path.clone().unwrap_or_default(),
        Some(expression) => {
            let mut missing = Vec::new();
            let asked = expand(expression, LONGEST_PATH, |name| {
                let value = environment.get(name).unwrap_or_default();
                if value.is_empty() {
                    missing.push(name.to_owned());
                }
                value.to_owned()
            });
            if !missing.is_empty() {
                let names = missing.join(", ");
                return Err(refuse(&format!("subPathExpr {expression:?} has no value for {names}")));
            }
            asked.ok_or_else(|| refuse(&format!("subPathExpr {expression:?} is longer than {LONGEST_PATH} bytes")))?
        }
    };
    let mut plain = PathBuf::new();
    for component in Path::new(&asked).components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::ParentDir => return Err(refuse(&format!("the sub-path {asked:?} must not contain '..'"))),
            Component::RootDir | Component::Prefix(_) => {
                return Err(refuse(&format!("the sub-path {asked:?} must be relative")));
            }
        }
    }
    Ok(Some(plain).filter(|plain| !plain.as_os_str().is_empty()))
}

/// A file of the pod's own that the container may write to.
fn own_file(file: &Path, container_path: &str) -> v1::Mount {
    v1::Mount {
        container_path: absolute(container_path),
        host_path: text(file),
        selinux_relabel: true,
        ..v1::Mount::default()
    }
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn refusal(volume: &str, container: &str, why: &str) -> ConfigError {
    ConfigError::container(format!("volume {volume:?} cannot be mounted into container {container:?}: {why}"))
}
