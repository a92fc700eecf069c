//! The user a container runs as and what it may do: the container's word over the pod's.

use k8s_openapi::api::core::v1 as api;
use keelet_cri::v1;

use super::{ConfigError, Image, Placement, SeccompDefault};

use v1::security_profile::ProfileType;

/// Paths that reveal or change too much of the node.
const MASKED_PATHS: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

/// Paths that may be read and not written.
const READONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// How pods named AppArmor profiles before there was a field for them; the container's name follows.
const APP_ARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The largest user ID.
const LARGEST_ID: i64 = i32::MAX as i64;

/// The security context of the sandbox itself. Its seccomp profile is the runtime's, whatever the containers have:
/// the sandbox's own process needs nothing more.
pub(super) fn sandbox(placement: &Placement<'_>) -> v1::LinuxSandboxSecurityContext {
    let context = placement.security();
    v1::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(placement)),
        selinux_options: context.and_then(|context| context.se_linux_options.as_ref()).map(selinux),
        run_as_user: context.and_then(|context| context.run_as_user).map(number),
        run_as_group: context.and_then(|context| context.run_as_group).map(number),
        supplemental_groups: groups(context),
        supplemental_groups_policy: groups_policy(context).into(),
        privileged: has_privileged_container(placement),
        seccomp: Some(profile(ProfileType::RuntimeDefault, String::new())),
        ..v1::LinuxSandboxSecurityContext::default()
    }
}

/// The security context of a container.
pub(super) fn container(
    placement: &Placement<'_>,
    raw: &api::Container,
    image: &Image,
) -> Result<v1::LinuxContainerSecurityContext, ConfigError> {
    let (pod, own) = (placement.security(), raw.security_context.as_ref());
    let asked = own.and_then(|own| own.run_as_user).or(pod.and_then(|pod| pod.run_as_user));
    let must_not_be_root = own.and_then(|own| own.run_as_non_root).or(pod.and_then(|pod| pod.run_as_non_root));
    if must_not_be_root == Some(true) {
        check_not_root(placement, raw, asked, image)?;
    }
    // An image that names no user runs as root.
    let of_image = if image.user.is_empty() { Some(image.uid.unwrap_or(0)) } else { image.uid };
    let unmasked = own.and_then(|own| own.proc_mount.as_deref()) == Some("Unmasked");
    let paths = |paths: &[&str]| if unmasked { Vec::new() } else { paths.iter().map(|path| (*path).into()).collect() };
    let selinux_options = own.and_then(|own| own.se_linux_options.as_ref());
    Ok(v1::LinuxContainerSecurityContext {
        capabilities: own.and_then(|own| own.capabilities.as_ref()).map(capabilities),
        privileged: own.and_then(|own| own.privileged).unwrap_or_default(),
        namespace_options: Some(container_namespaces(placement, raw)?),
        selinux_options: selinux_options.or(pod.and_then(|pod| pod.se_linux_options.as_ref())).map(selinux),
        run_as_user: asked.or(of_image).map(number),
        run_as_group: own.and_then(|own| own.run_as_group).or(pod.and_then(|pod| pod.run_as_group)).map(number),
        run_as_username: if asked.or(of_image).is_none() { image.user.clone() } else { String::new() },
        readonly_rootfs: own.and_then(|own| own.read_only_root_filesystem).unwrap_or_default(),
        supplemental_groups: groups(pod),
        supplemental_groups_policy: groups_policy(pod).into(),
        no_new_privs: own.and_then(|own| own.allow_privilege_escalation) == Some(false),
        masked_paths: paths(&MASKED_PATHS),
        readonly_paths: paths(&READONLY_PATHS),
        seccomp: Some(seccomp(placement, raw)?),
        apparmor: app_armor(placement, raw),
        ..v1::LinuxContainerSecurityContext::default()
    })
}

fn check_not_root(
    placement: &Placement<'_>,
    raw: &api::Container,
    asked: Option<i64>,
    image: &Image,
) -> Result<(), ConfigError> {
    let refuse = |why: String| {
        let (namespace, name) = (&placement.pod.namespace, &placement.pod.name);
        Err(ConfigError::container(format!("{why} (pod: {namespace}/{name}, container: {})", raw.name)))
    };
    match (asked, image.uid) {
        (Some(0), _) => refuse("container's runAsUser breaks non-root policy".to_owned()),
        (Some(_), _) => Ok(()),
        (None, None) if !image.user.is_empty() => refuse(format!(
            "container has runAsNonRoot and image has non-numeric user ({}), cannot verify user is non-root",
            image.user
        )),
        (None, None | Some(0)) => refuse("container has runAsNonRoot and image will run as root".to_owned()),
        (None, Some(1..=LARGEST_ID)) => Ok(()),
        (None, Some(uid)) => refuse(format!(
            "container has runAsNonRoot and image has an invalid user id ({uid}), must be 1 to {LARGEST_ID}"
        )),
    }
}

fn namespaces(placement: &Placement<'_>) -> v1::NamespaceOption {
    use v1::NamespaceMode::{Container, Node, Pod};
    let spec = placement.spec();
    let is = |field: Option<bool>| field == Some(true);
    let pid = match spec {
        Some(spec) if is(spec.host_pid) => Node,
        Some(spec) if is(spec.share_process_namespace) => Pod,
        _ => Container,
    };
    let ipc = if spec.is_some_and(|spec| is(spec.host_ipc)) { Node } else { Pod };
    let network = if placement.pod.host_network { Node } else { Pod };
    let users = || v1::UserNamespace { mode: Pod.into(), uids: placement.mappings(), gids: placement.mappings() };
    v1::NamespaceOption {
        network: network.into(),
        pid: pid.into(),
        ipc: ipc.into(),
        userns_options: placement.users.map(|_| users()),
        ..v1::NamespaceOption::default()
    }
}

/// An ephemeral container may ask to see the processes of another one.
fn container_namespaces(placement: &Placement<'_>, raw: &api::Container) -> Result<v1::NamespaceOption, ConfigError> {
    let mut namespaces = namespaces(placement);
    let mut ephemeral = placement.spec().into_iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    let target = ephemeral.find(|ephemeral| ephemeral.name == raw.name);
    let target = target.and_then(|ephemeral| ephemeral.target_container_name.as_ref()).filter(|name| !name.is_empty());
    let Some(name) = target.filter(|_| namespaces.pid == i32::from(v1::NamespaceMode::Container)) else {
        return Ok(namespaces);
    };
    let id = placement.target.ok_or_else(|| {
        ConfigError::container(format!("container {:?} targets container {name:?}, which does not run", raw.name))
    })?;
    namespaces.pid = v1::NamespaceMode::Target.into();
    namespaces.target_id = id.to_owned();
    Ok(namespaces)
}

/// Volumes that belong to a group are of use to its members only.
fn groups(context: Option<&api::PodSecurityContext>) -> Vec<i64> {
    let Some(context) = context else { return Vec::new() };
    context.fs_group.into_iter().chain(context.supplemental_groups.iter().flatten().copied()).collect()
}

fn groups_policy(context: Option<&api::PodSecurityContext>) -> v1::SupplementalGroupsPolicy {
    match context.and_then(|context| context.supplemental_groups_policy.as_deref()) {
        Some("Strict") => v1::SupplementalGroupsPolicy::Strict,
        _ => v1::SupplementalGroupsPolicy::Merge,
    }
}

fn has_privileged_container(placement: &Placement<'_>) -> bool {
    let Some(spec) = placement.spec() else { return false };
    let lasting = spec.init_containers.iter().flatten().chain(&spec.containers);
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let contexts = lasting.map(|raw| &raw.security_context).chain(ephemeral.map(|raw| &raw.security_context));
    contexts.flatten().any(|context| context.privileged == Some(true))
}

fn seccomp(placement: &Placement<'_>, raw: &api::Container) -> Result<v1::SecurityProfile, ConfigError> {
    let own = raw.security_context.as_ref().and_then(|own| own.seccomp_profile.as_ref());
    let asked = own.or(placement.security().and_then(|pod| pod.seccomp_profile.as_ref()));
    match asked.map(|asked| (asked.type_.as_str(), asked.localhost_profile.as_deref().unwrap_or_default())) {
        Some(("RuntimeDefault", _)) => Ok(profile(ProfileType::RuntimeDefault, String::new())),
        Some(("Localhost", file)) => {
            let is_inside = !file.is_empty() && !file.starts_with('/') && file.split('/').all(|part| part != "..");
            if !is_inside {
                return Err(ConfigError::container(format!(
                    "seccompProfile of container {:?}: localhostProfile {file:?} must be a path below {}",
                    raw.name,
                    placement.node.seccomp_root.display()
                )));
            }
            let path = placement.node.seccomp_root.join(file);
            Ok(profile(ProfileType::Localhost, path.to_string_lossy().into_owned()))
        }
        None if placement.node.seccomp_default == SeccompDefault::Runtime => {
            Ok(profile(ProfileType::RuntimeDefault, String::new()))
        }
        _ => Ok(profile(ProfileType::Unconfined, String::new())),
    }
}

/// None is the runtime's choice.
fn app_armor(placement: &Placement<'_>, raw: &api::Container) -> Option<v1::SecurityProfile> {
    let field = |asked: &api::AppArmorProfile| {
        let name = asked.localhost_profile.clone().unwrap_or_default();
        match asked.type_.as_str() {
            "RuntimeDefault" => Some(profile(ProfileType::RuntimeDefault, String::new())),
            "Unconfined" => Some(profile(ProfileType::Unconfined, String::new())),
            "Localhost" => Some(profile(ProfileType::Localhost, name)),
            _ => None,
        }
    };
    if let Some(own) = raw.security_context.as_ref().and_then(|own| own.app_armor_profile.as_ref()) {
        return field(own);
    }
    let annotations = placement.pod.source.metadata.annotations.as_ref();
    let annotation = annotations.and_then(|all| all.get(&format!("{APP_ARMOR_ANNOTATION}{}", raw.name)));
    let noted = annotation.and_then(|text| match text.as_str() {
        "runtime/default" => Some(profile(ProfileType::RuntimeDefault, String::new())),
        "unconfined" => Some(profile(ProfileType::Unconfined, String::new())),
        other => other.strip_prefix("localhost/").map(|name| profile(ProfileType::Localhost, name.to_owned())),
    });
    noted.or_else(|| placement.security().and_then(|pod| pod.app_armor_profile.as_ref()).and_then(field))
}

fn profile(profile_type: ProfileType, localhost_ref: String) -> v1::SecurityProfile {
    v1::SecurityProfile { profile_type: profile_type.into(), localhost_ref }
}

fn capabilities(asked: &api::Capabilities) -> v1::Capability {
    v1::Capability {
        add_capabilities: asked.add.clone().unwrap_or_default(),
        drop_capabilities: asked.drop.clone().unwrap_or_default(),
        ..v1::Capability::default()
    }
}

fn selinux(options: &api::SELinuxOptions) -> v1::SeLinuxOption {
    v1::SeLinuxOption {
        user: options.user.clone().unwrap_or_default(),
        role: options.role.clone().unwrap_or_default(),
        r#type: options.type_.clone().unwrap_or_default(),
        level: options.level.clone().unwrap_or_default(),
    }
}

fn number(value: i64) -> v1::Int64Value {
    v1::Int64Value { value }
}
