use std::path::Path;

use keelet_cri::v1::{self, NamespaceMode};
use keelet_linux::cgroup::Mounts;
use oci_spec::runtime::{LinuxNamespaceType, Spec};

use super::{Given, container};
use crate::records::User;

fn options(network: NamespaceMode, ipc: NamespaceMode, pid: NamespaceMode) -> v1::NamespaceOption {
    v1::NamespaceOption { network: network.into(), ipc: ipc.into(), pid: pid.into(), ..Default::default() }
}

/// A container that says this of its namespaces, in a sandbox that says that of its own.
fn made(container_options: Option<v1::NamespaceOption>, sandbox_options: v1::NamespaceOption) -> Spec {
    made_on(&Mounts::V2("/sys/fs/cgroup".into()), container_options, sandbox_options)
}

fn made_on(
    cgroups: &Mounts,
    container_options: Option<v1::NamespaceOption>,
    sandbox_options: v1::NamespaceOption,
) -> Spec {
    let security = v1::LinuxContainerSecurityContext { namespace_options: container_options, ..Default::default() };
    let linux = v1::LinuxContainerConfig { security_context: Some(security), ..Default::default() };
    let config = v1::ContainerConfig { command: vec!["sh".to_owned()], linux: Some(linux), ..Default::default() };
    made_of(cgroups, &config, sandbox_options)
}

fn made_of(cgroups: &Mounts, config: &v1::ContainerConfig, sandbox_options: v1::NamespaceOption) -> Spec {
    let security = v1::LinuxSandboxSecurityContext { namespace_options: Some(sandbox_options), ..Default::default() };
    let linux = v1::LinuxPodSandboxConfig { security_context: Some(security), ..Default::default() };
    let sandbox_config = v1::PodSandboxConfig { linux: Some(linux), ..Default::default() };
    let spec = container(&Given {
        config,
        sandbox_config: &sandbox_config,
        sandbox_dir: Path::new("/sandbox"),
        pause: 7,
        target: None,
        rootfs: "/rootfs".into(),
        cgroup: "/keelet/a/b",
        image: &keelet_image::ImageConfig::default(),
        user: &User::default(),
        home: "/",
        capabilities: Default::default(),
        seccomp: None,
        image_mounts: Vec::new(),
        cgroups,
        users: crate::users::of(&sandbox_config).expect("users"),
    });
    spec.expect("a configuration")
}

/// `Some(None)` is one of its own, `None` the node's.
fn namespace(spec: &Spec, kind: LinuxNamespaceType) -> Option<Option<String>> {
    let all = spec.linux().as_ref().and_then(|linux| linux.namespaces().clone()).unwrap_or_default();
    let found = all.into_iter().find(|one| one.typ() == kind)?;
    Some(found.path().as_ref().map(|path| path.display().to_string()))
}

/// A process in a user namespace cannot make devices; those of the node are bound.
#[test]
fn users_of_a_pods_own_are_joined_first_and_get_devices_bound() {
    let range = vec![v1::IdMapping { host_id: 65_536, container_id: 0, length: 65_536 }];
    let users = v1::UserNamespace { mode: NamespaceMode::Pod.into(), uids: range.clone(), gids: range };
    let sandbox = v1::NamespaceOption { userns_options: Some(users), ..Default::default() };
    let config = v1::ContainerConfig {
        command: vec!["sh".to_owned()],
        devices: vec![v1::Device {
            host_path: "/dev/null".to_owned(),
            container_path: "/dev/nothing".to_owned(),
            permissions: "rw".to_owned(),
        }],
        ..Default::default()
    };
    let cgroups = Mounts::V2("/sys/fs/cgroup".into());
    let spec = made_of(&cgroups, &config, sandbox.clone());
    assert_eq!(namespace(&spec, LinuxNamespaceType::User), Some(Some("/proc/7/ns/user".to_owned())));
    let linux = spec.linux().clone().expect("linux");
    for mappings in [linux.uid_mappings(), linux.gid_mappings()] {
        let mappings = mappings.clone().expect("mappings");
        assert_eq!((mappings[0].container_id(), mappings[0].host_id(), mappings[0].size()), (0, 65_536, 65_536));
    }
    assert_eq!(linux.devices().clone().unwrap_or_default(), []);
    let bound = |spec: &Spec| {
        let mounts = spec.mounts().clone().unwrap_or_default().into_iter();
        let of_device = |mount: &oci_spec::runtime::Mount| mount.destination() == Path::new("/dev/nothing");
        mounts.filter(of_device).map(|mount| mount.source().clone().unwrap_or_default()).collect::<Vec<_>>()
    };
    assert_eq!(bound(&spec), [Path::new("/dev/null")]);
    let spec = made_of(&cgroups, &config, v1::NamespaceOption::default());
    assert_eq!(namespace(&spec, LinuxNamespaceType::User), None);
    assert!(bound(&spec).is_empty());
    assert_eq!(spec.linux().clone().and_then(|linux| linux.devices().clone()).unwrap_or_default().len(), 1);
}

#[test]
fn a_container_never_gets_the_nodes_processes_by_saying_nothing() {
    use NamespaceMode::{Container, Node, Pod};
    let of = |asked: Option<NamespaceMode>, sandbox: NamespaceMode| {
        let asked = asked.map(|pid| options(Pod, Pod, pid));
        namespace(&made(asked, options(Pod, Pod, sandbox)), LinuxNamespaceType::Pid)
    };
    let pause = Some(Some("/proc/7/ns/pid".to_owned()));
    assert_eq!(of(None, Pod), pause);
    assert_eq!(of(None, Container), Some(None), "the sandbox's process is one of the node's");
    assert_eq!(of(Some(Pod), Container), Some(None));
    assert_eq!(of(Some(Container), Pod), Some(None));
    assert_eq!(of(Some(Node), Node), None);
}

#[test]
fn network_and_memory_are_those_of_the_sandbox() {
    use NamespaceMode::{Node, Pod};
    let of = |asked: Option<NamespaceMode>, sandbox| {
        let spec = made(asked.map(|mode| options(mode, mode, Pod)), options(sandbox, sandbox, Pod));
        let shm = spec.mounts().clone().unwrap_or_default().into_iter().find(|mount| mount.destination() == "/dev/shm");
        let shm = shm.and_then(|mount| mount.source().clone()).unwrap_or_default();
        let network = namespace(&spec, LinuxNamespaceType::Network).flatten();
        (network, namespace(&spec, LinuxNamespaceType::Ipc).flatten(), shm.display().to_string())
    };
    let sandboxed = (Some("/proc/7/ns/net".to_owned()), Some("/proc/7/ns/ipc".to_owned()), "/sandbox/shm".to_owned());
    let node = (None, None, "/dev/shm".to_owned());
    for asked in [None, Some(Pod), Some(Node)] {
        assert_eq!(of(asked, Pod), sandboxed, "{asked:?}");
        assert_eq!(of(asked, Node), node, "{asked:?}");
    }
}

#[test]
fn a_container_sees_its_own_cgroups_and_cannot_change_them() {
    let both = "/sys/fs/cgroup/cpu,cpuacct";
    let points = [("cpu", both), ("cpuacct", both), ("memory", "/sys/fs/cgroup/memory"), ("name=systemd", "/x")];
    let cgroups = Mounts::V1(points.map(|(name, point)| (name.to_owned(), point.into())).into());
    let spec = made_on(&cgroups, None, v1::NamespaceOption::default());
    let mounts = spec.mounts().clone().unwrap_or_default();
    let source = |path: &str| {
        let found = mounts.iter().find(|mount| mount.destination() == path)?;
        assert!(path.ends_with("cgroup") || found.options().as_ref()?.contains(&"ro".to_owned()), "{path}");
        Some(found.source().as_ref()?.display().to_string())
    };
    assert_eq!(source("/sys/fs/cgroup/cpu").as_deref(), Some("/sys/fs/cgroup/cpu,cpuacct/keelet/a/b"));
    assert_eq!(source("/sys/fs/cgroup/cpuacct").as_deref(), Some("/sys/fs/cgroup/cpu,cpuacct/keelet/a/b"));
    assert_eq!(source("/sys/fs/cgroup/memory").as_deref(), Some("/sys/fs/cgroup/memory/keelet/a/b"));
    assert_eq!(source("/sys/fs/cgroup").as_deref(), Some("tmpfs"));
    assert!(mounts.iter().all(|mount| mount.source().as_ref().is_none_or(|source| !source.starts_with("/x"))));
}
