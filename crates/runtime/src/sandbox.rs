//! Sandboxes: the namespaces, the address and the files that a pod's containers share.

use std::{
    collections::BTreeMap,
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use keelet_cri::{
    LOST,
    v1::{self, NamespaceMode},
};
use keelet_linux::{
    pidfd,
    userns::{self, Users},
};
use keelet_net::{PodNetwork, PortMapping, Protocol};
use keelet_shim::{
    protocol::{self, CONTAINERS, PAUSE, Request},
    running::running_shims,
};
use tonic::Status;

use crate::{
    engine::{Engine, make_private, new_id, now},
    files, keeper,
    records::{self, RECORD, SandboxRecord},
    shim::{Shim, ShimError},
    update, users,
};

/// A sandbox.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) dir: PathBuf,
    pub(crate) config: v1::PodSandboxConfig,
    record: Mutex<SandboxRecord>,
    /// The process that holds its namespaces; none if it had ended before it could be opened.
    pause: Option<OwnedFd>,
    /// Held while the sandbox is stopped or removed, and while a container is made in it.
    pub(crate) lock: tokio::sync::Mutex<()>,
    leaving: std::sync::atomic::AtomicBool,
    /// What is missing of it, once that was noticed.
    lost: OnceLock<String>,
}

// === impl Sandbox ===

impl Sandbox {
    pub(crate) fn new(
        id: String,
        dir: PathBuf,
        config: v1::PodSandboxConfig,
        record: SandboxRecord,
    ) -> io::Result<Self> {
        let pause = pidfd::open(record.pause)?;
        Ok(Self {
            id,
            dir,
            config,
            record: Mutex::new(record),
            pause,
            lock: tokio::sync::Mutex::default(),
            leaving: false.into(),
            lost: OnceLock::new(),
        })
    }

    pub(crate) fn record(&self) -> MutexGuard<'_, SandboxRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.is_stopped()
            && self.lost.get().is_none()
            && self.pause.as_ref().is_some_and(|pause| !pidfd::has_exited(pause))
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.record().stopped
    }

    /// Takes it for lost from now on. Whether that is new.
    pub(crate) fn lose(&self, missing: String) -> bool {
        self.lost.set(missing).is_ok()
    }

    /// The namespace of its network; none if it has the node's, or is not there any more.
    pub(crate) fn own_network(&self) -> Option<PathBuf> {
        (self.namespaces().network != NamespaceMode::Node as i32 && self.is_ready()).then(|| netns(self.pause_pid()))
    }

    /// Its annotations, with what is missing of it.
    fn annotations(&self) -> BTreeMap<String, String> {
        let mut annotations = self.config.annotations.clone();
        annotations.remove(LOST);
        annotations.extend(self.lost.get().map(|missing| (LOST.to_owned(), missing.clone())));
        annotations
    }

    /// Whether the runtime has asked its shim to exit.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(std::sync::atomic::Ordering::Acquire)
    }

    pub(crate) fn shim(&self) -> Shim {
        Shim::of(&self.dir)
    }

    pub(crate) fn namespaces(&self) -> v1::NamespaceOption {
        namespaces(&self.config)
    }

    fn state(&self) -> v1::PodSandboxState {
        if self.is_ready() { v1::PodSandboxState::SandboxReady } else { v1::PodSandboxState::SandboxNotready }
    }

    pub(crate) fn listed(&self) -> v1::PodSandbox {
        let record = self.record().clone();
        v1::PodSandbox {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state().into(),
            created_at: record.created_at,
            labels: self.config.labels.clone(),
            annotations: self.annotations(),
            runtime_handler: record.runtime_handler,
        }
    }

    pub(crate) fn status(&self) -> v1::PodSandboxStatus {
        let record = self.record().clone();
        let mut ips = record.ips.into_iter();
        let network = v1::PodSandboxNetworkStatus {
            ip: ips.next().unwrap_or_default(),
            additional_ips: ips.map(|ip| v1::PodIp { ip }).collect(),
        };
        let namespaces = v1::Namespace { options: Some(self.namespaces()) };
        v1::PodSandboxStatus {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state().into(),
            created_at: record.created_at,
            network: Some(network),
            linux: Some(v1::LinuxPodSandboxStatus { namespaces: Some(namespaces) }),
            labels: self.config.labels.clone(),
            annotations: self.annotations(),
            runtime_handler: record.runtime_handler,
        }
    }

    /// The PID of the process that holds its namespaces, for processes that join them.
    pub(crate) fn pause_pid(&self) -> u32 {
        self.record().pause.pid
    }
}

pub(crate) fn namespaces(config: &v1::PodSandboxConfig) -> v1::NamespaceOption {
    let context = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    context.and_then(|context| context.namespace_options.clone()).unwrap_or_default()
}

/// The cgroup that a sandbox's containers get theirs in.
pub(crate) fn cgroup_parent(usual: &str, id: &str, config: &v1::PodSandboxConfig) -> String {
    match config.linux.as_ref().map(|linux| linux.cgroup_parent.as_str()) {
        None | Some("") => format!("{usual}/{id}"),
        Some(parent) => format!("/{}", parent.trim_matches('/')),
    }
}

/// Whether that cgroup is the sandbox's alone. One that was named belongs to the caller that named it.
fn has_own_cgroup(config: &v1::PodSandboxConfig) -> bool {
    config.linux.as_ref().is_none_or(|linux| linux.cgroup_parent.is_empty())
}

// === impl Engine ===

impl Engine {
    pub(crate) async fn run_sandbox(&self, config: v1::PodSandboxConfig, handler: &str) -> Result<String, Status> {
        let metadata =
            config.metadata.clone().ok_or_else(|| Status::invalid_argument("the sandbox has no metadata"))?;
        if !handler.is_empty() && handler != "keelet" {
            return Err(Status::invalid_argument(format!(
                "no runtime for {handler:?} is configured; handlers: \"keelet\""
            )));
        }
        check(&config)?;
        self.users(&config)?;
        let same = |other: &Sandbox| other.config.metadata.as_ref() == Some(&metadata);
        if let Some(other) = self.sandboxes().into_iter().find(|other| same(other)) {
            return Err(Status::already_exists(format!(
                "sandbox {} is already attempt {} of pod {}/{}",
                other.id, metadata.attempt, metadata.namespace, metadata.name
            )));
        }
        let id = new_id()?;
        let dir = self.parts.settings.sandboxes().join(&id);
        match self.make_sandbox(&id, &dir, config, handler).await {
            Ok(sandbox) => {
                self.add_sandbox(Arc::clone(&sandbox));
                keeper::keep(self, Arc::clone(&sandbox)).await;
                self.emit(&sandbox, &id, v1::ContainerEventType::ContainerCreatedEvent);
                self.emit(&sandbox, &id, v1::ContainerEventType::ContainerStartedEvent);
                Ok(id)
            }
            Err(status) => {
                self.remove_unfinished(&id, &dir).await;
                Err(status)
            }
        }
    }

    /// Why pods cannot have users of their own here; none if they can.
    pub(crate) fn no_users(&self) -> Option<String> {
        match &self.parts.oci_runtime {
            None => userns::unsupported(),
            Some(program) => {
                Some(format!("user namespaces are not supported with the OCI runtime {}", program.display()))
            }
        }
    }

    /// The node's IDs for the users of a sandbox, if user namespaces can be had here.
    pub(crate) fn users(&self, config: &v1::PodSandboxConfig) -> Result<Option<Users>, Status> {
        let users = users::of(config)?;
        match users.and_then(|_| self.no_users()) {
            Some(why) => Err(Status::unimplemented(format!("hostUsers: false: {why}"))),
            None => Ok(users),
        }
    }

    /// Makes the directories of the runtime, for root alone; those that were removed meanwhile too.
    pub(crate) fn make_places(&self) -> io::Result<()> {
        self.parts.settings.places().iter().try_for_each(|place| make_private(place))
    }

    async fn make_sandbox(
        &self,
        id: &str,
        dir: &Path,
        config: v1::PodSandboxConfig,
        handler: &str,
    ) -> Result<Arc<Sandbox>, Status> {
        let prepared = config.clone();
        let (place, files) = (dir.to_owned(), self.parts.settings.pod_files().join(id));
        let users = users::of(&config)?;
        self.make_places().map_err(|error| internal("the directories of pods", &error))?;
        self.blocking(move |_| prepare(&place, &files, &prepared, users))
            .await
            .map_err(|error| internal("the pod's files", &error))?;
        let shim = self.parts.launcher.launch(dir).map_err(|error| internal("the pod's shim", &error))?;
        let pid = shim.run(&Request::Sandbox(wanted(&config, users))).await.map_err(|error| failed(&error))?;
        let pause = pidfd::identify(pid).map_err(|error| internal("the pod's process", &error))?;
        let mut record = SandboxRecord {
            created_at: now(),
            runtime_handler: handler.to_owned(),
            pause,
            ips: Vec::new(),
            stopped: false,
        };
        if namespaces(&config).network != NamespaceMode::Node as i32 {
            let attached = self.parts.network.attach(&pod_network(id, pid, &config)?).await;
            let attached =
                attached.map_err(|error| Status::internal(format!("cannot attach the pod to its network: {error}")))?;
            record.ips = attached.ips.iter().map(ToString::to_string).collect();
        }
        let resources = config.linux.as_ref().and_then(|linux| linux.resources.clone()).unwrap_or_default();
        let pids = self.parts.settings.pids_limit.on(&self.parts.cgroups);
        self.limit_sandbox(id, &config, resources, pids).await?;
        // From here on it is one.
        protocol::write(&dir.join(RECORD), &record).map_err(|error| internal("the pod's record", &error))?;
        let sandbox = Sandbox::new(id.to_owned(), dir.to_owned(), config, record);
        sandbox.map(Arc::new).map_err(|error| internal("the pod's process", &error))
    }

    /// Gives the cgroup that is a sandbox's alone its shares and limits, so that pods compete by what they ask for.
    async fn limit_sandbox(
        &self,
        id: &str,
        config: &v1::PodSandboxConfig,
        asked: v1::LinuxContainerResources,
        pids: Option<u32>,
    ) -> Result<(), Status> {
        if !has_own_cgroup(config) {
            return Ok(());
        }
        let cgroup = cgroup_parent(&self.parts.settings.cgroup, id, config);
        let limited = self.blocking(move |parts| {
            let changes = update::changes_of_pod(&parts.cgroups, &cgroup, &asked);
            let mut files = changes.map_err(io::Error::other)?;
            files.extend(pids.map(|most| ("pids", "pids.max".to_owned(), most.to_string())));
            parts.cgroups.limit(&cgroup, &files)
        });
        limited.await.map_err(|error| internal("the pod's limits", &error))
    }

    /// Changes the limits of a sandbox; what is not named stays.
    pub(crate) async fn update_sandbox(&self, id: &str, asked: v1::LinuxContainerResources) -> Result<(), Status> {
        let sandbox = self.sandbox(id)?;
        self.limit_sandbox(&sandbox.id, &sandbox.config, asked, None).await
    }

    /// What a sandbox left that never came to be, or whose files cannot be read.
    pub(crate) async fn remove_unfinished(&self, id: &str, dir: &Path) {
        let _ = self.parts.network.detach(id, None).await;
        // The process that holds its namespaces goes with the shim's last word on it, or by what that wrote down.
        if let Ok(pause) = protocol::read(&dir.join(PAUSE))
            && let Ok(Some(pause)) = pidfd::open(pause)
        {
            let _ = pidfd::send_signal(pause, libc::SIGKILL);
        }
        if Shim::of(dir).done(&Request::Quit { kill: true }, &[]).await.is_err() {
            let dir = dir.to_owned();
            self.blocking(move |_| kill_shim(&dir)).await;
        }
        let (place, cgroup) = (dir.to_owned(), format!("{}/{id}", self.parts.settings.cgroup));
        let files = self.parts.settings.pod_files().join(id);
        self.blocking(move |parts| {
            if let Err(error) = parts.cgroups.clear(&cgroup) {
                tracing::warn!(cgroup, %error, "cannot remove cgroup of unfinished sandbox");
            }
            if let Err(error) = discard(&place, &files) {
                tracing::warn!(dir = %place.display(), %error, "cannot remove files of unfinished sandbox");
            }
        })
        .await;
    }

    /// Ends whatever runs in a sandbox and gives its network back. May be repeated.
    pub(crate) async fn stop_sandbox(&self, id: &str) -> Result<(), Status> {
        let Ok(sandbox) = self.sandbox(id) else { return Ok(()) };
        let _lock = sandbox.lock.lock().await;
        self.stop_locked(&sandbox).await
    }

    async fn stop_locked(&self, sandbox: &Arc<Sandbox>) -> Result<(), Status> {
        let was_ready = sandbox.is_ready();
        let record = {
            let mut record = sandbox.record();
            record.stopped = true;
            record.clone()
        };
        // Where there is no room for it, ending pods is what makes some. The next server finds its processes gone.
        if let Err(error) = protocol::write(&sandbox.dir.join(RECORD), &record) {
            tracing::warn!(sandbox = sandbox.id, %error, "cannot record that a sandbox was stopped");
        }
        let containers = self.containers_of(&sandbox.id);
        let stops = containers.iter().map(|container| self.stop_container_now(container));
        futures::future::try_join_all(stops).await?;
        self.kill_unknown_containers(sandbox).await.map_err(|error| internal("the pod's containers", &error))?;
        if sandbox.namespaces().network != NamespaceMode::Node as i32 {
            let netns =
                sandbox.pause.as_ref().filter(|pause| !pidfd::has_exited(pause)).map(|_| netns(record.pause.pid));
            let detached = self.parts.network.detach(&sandbox.id, netns.as_deref()).await;
            detached.map_err(|error| Status::internal(format!("cannot remove the pod's network: {error}")))?;
        }
        if let Some(pause) = &sandbox.pause {
            // It may have ended.
            let _ = pidfd::send_signal(pause, libc::SIGKILL);
        }
        if was_ready {
            self.emit(sandbox, &sandbox.id, v1::ContainerEventType::ContainerStoppedEvent);
        }
        Ok(())
    }

    /// Removes a sandbox with all its containers. May be repeated.
    pub(crate) async fn remove_sandbox(&self, id: &str) -> Result<(), Status> {
        let Ok(sandbox) = self.sandbox(id) else { return Ok(()) };
        let _lock = sandbox.lock.lock().await;
        self.stop_locked(&sandbox).await?;
        for container in self.containers_of(&sandbox.id) {
            self.remove_container(&container.id).await?;
        }
        self.remove_unknown_containers(&sandbox).await?;
        sandbox.leaving.store(true, std::sync::atomic::Ordering::Release);
        if sandbox.shim().done(&Request::Quit { kill: true }, &[]).await.is_err() {
            let dir = sandbox.dir.clone();
            self.blocking(move |_| kill_shim(&dir)).await;
        }
        let (dir, cgroup) =
            (sandbox.dir.clone(), cgroup_parent(&self.parts.settings.cgroup, &sandbox.id, &sandbox.config));
        let own = has_own_cgroup(&sandbox.config);
        let files = self.parts.settings.pod_files().join(&sandbox.id);
        let removed = self.blocking(move |parts| {
            if own {
                parts.cgroups.clear(&cgroup)?;
            }
            discard(&dir, &files)
        });
        removed.await.map_err(|error| internal("the pod's files", &error))?;
        self.forget_sandbox(&sandbox.id);
        self.emit(&sandbox, &sandbox.id, v1::ContainerEventType::ContainerDeletedEvent);
        Ok(())
    }

    pub(crate) fn tell_sandbox_stopped(&self, sandbox: &Sandbox) {
        if !sandbox.is_stopped() {
            self.emit(sandbox, &sandbox.id, v1::ContainerEventType::ContainerStoppedEvent);
        }
    }

    /// Emits an event: something happened to a sandbox or to one of its containers.
    pub(crate) fn emit(&self, sandbox: &Sandbox, id: &str, kind: v1::ContainerEventType) {
        let containers = self.containers_of(&sandbox.id);
        self.parts.events.emit(v1::ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: kind.into(),
            created_at: now(),
            pod_sandbox_status: Some(sandbox.status()),
            containers_statuses: containers.iter().map(|container| container.status(sandbox)).collect(),
        });
    }
}

/// Namespaces that only this runtime's settings could give are refused before anything is made.
fn check(config: &v1::PodSandboxConfig) -> Result<(), Status> {
    let options = namespaces(config);
    let parent = config.linux.as_ref().map(|linux| linux.cgroup_parent.as_str()).unwrap_or_default();
    if parent.split('/').any(|part| part == "..") || parent.contains('\0') {
        return Err(Status::invalid_argument(format!("cgroup_parent {parent:?} is not the path of a cgroup")));
    }
    let uid = config.metadata.as_ref().map(|metadata| metadata.uid.as_str()).unwrap_or_default();
    if !uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        // Plugins of the network get it in a list that other characters would add to.
        return Err(Status::invalid_argument(format!("uid {uid:?} must consist of letters, digits and '-'")));
    }
    let (own_network, own_ipc) =
        (options.network != NamespaceMode::Node as i32, options.ipc != NamespaceMode::Node as i32);
    for name in config.linux.iter().flat_map(|linux| linux.sysctls.keys()) {
        let name = name.replace('/', ".");
        let allowed = match name.as_str() {
            name if name.starts_with("net.") => own_network,
            "kernel.sem" => own_ipc,
            name if ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|prefix| name.starts_with(prefix)) => own_ipc,
            _ => false,
        };
        if !allowed {
            return Err(Status::invalid_argument(format!(
                "sysctl {name:?} is not of a namespace that this pod has for itself"
            )));
        }
    }
    Ok(())
}

fn wanted(config: &v1::PodSandboxConfig, users: Option<Users>) -> protocol::Sandbox {
    let options = namespaces(config);
    let own_network = options.network != NamespaceMode::Node as i32;
    protocol::Sandbox {
        hostname: own_network.then(|| config.hostname.clone()),
        network: own_network,
        ipc: options.ipc != NamespaceMode::Node as i32,
        processes: options.pid == NamespaceMode::Pod as i32,
        sysctls: config.linux.iter().flat_map(|linux| linux.sysctls.clone()).collect(),
        users,
    }
}

fn netns(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/ns/net"))
}

fn pod_network(id: &str, pid: u32, config: &v1::PodSandboxConfig) -> Result<PodNetwork, Status> {
    let metadata = config.metadata.clone().unwrap_or_default();
    let ports = config.port_mappings.iter().filter(|mapping| mapping.host_port > 0).map(port_mapping);
    Ok(PodNetwork {
        sandbox_id: id.to_owned(),
        netns: netns(pid),
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        ports: ports.collect::<Result<_, _>>()?,
        annotations: config.annotations.clone().into_iter().collect(),
    })
}

fn port_mapping(mapping: &v1::PortMapping) -> Result<PortMapping, Status> {
    let wrong = |what: &str| Status::invalid_argument(format!("port mapping {mapping:?}: {what}"));
    let port = |number: i32| u16::try_from(number).ok().filter(|port| *port > 0).ok_or_else(|| wrong("not a port"));
    let host_ip = match mapping.host_ip.as_str() {
        "" => None,
        text => Some(text.parse().map_err(|_| wrong("not an address"))?),
    };
    let protocol = match v1::Protocol::try_from(mapping.protocol) {
        Ok(v1::Protocol::Tcp) => Protocol::Tcp,
        Ok(v1::Protocol::Udp) => Protocol::Udp,
        Ok(v1::Protocol::Sctp) => Protocol::Sctp,
        Err(_) => return Err(wrong("not a protocol")),
    };
    Ok(PortMapping {
        protocol,
        container_port: port(mapping.container_port)?,
        host_port: port(mapping.host_port)?,
        host_ip,
    })
}

/// The directory of a sandbox, with what its containers find in `/etc` and `/dev/shm`.
fn prepare(dir: &Path, files: &Path, config: &v1::PodSandboxConfig, users: Option<Users>) -> io::Result<()> {
    fs::create_dir_all(dir.join(CONTAINERS))?;
    records::write_sandbox_config(dir, config)?;
    let options = namespaces(config);
    files::write(dir, files, config, options.network == NamespaceMode::Node as i32)?;
    let root = users.map(|users| (users.uids.first, users.gids.first));
    if let Some(root) = root {
        files::give(dir, root)?;
    }
    if options.ipc != NamespaceMode::Node as i32 {
        files::mount_shm(dir, root.unwrap_or_default())?;
    }
    Ok(())
}

/// Kills a shim that cannot be asked to exit, because its socket is gone.
fn kill_shim(dir: &Path) {
    for shim in running_shims().unwrap_or_default().iter().filter(|shim| shim.dir == dir) {
        shim.kill();
    }
}

/// Removes a sandbox's directory and its files elsewhere; what is mounted first.
fn discard(dir: &Path, files: &Path) -> io::Result<()> {
    files::unmount_shm(dir)?;
    [files, dir].into_iter().try_for_each(|dir| match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    })
}

pub(crate) fn internal(what: &str, error: &dyn std::fmt::Display) -> Status {
    Status::internal(format!("{what}: {error}"))
}

pub(crate) fn failed(error: &ShimError) -> Status {
    match error {
        ShimError::Refused(message) => Status::unknown(message.clone()),
        ShimError::Exhausted => Status::resource_exhausted(error.to_string()),
        ShimError::Gone(_) | ShimError::Late => Status::unavailable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use keelet_cri::v1;

    use super::{cgroup_parent, check};

    fn with_sysctl(name: &str, network: v1::NamespaceMode) -> v1::PodSandboxConfig {
        let options = v1::NamespaceOption { network: network.into(), ..Default::default() };
        let security_context =
            Some(v1::LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() });
        let sysctls = [(name.to_owned(), "1".to_owned())].into();
        let linux = Some(v1::LinuxPodSandboxConfig { sysctls, security_context, ..Default::default() });
        v1::PodSandboxConfig { linux, ..Default::default() }
    }

    #[test]
    fn only_kernel_parameters_of_its_own_namespaces_are_a_pods_to_set() {
        use v1::NamespaceMode::{Node, Pod};
        for name in ["net.ipv4.ip_local_port_range", "kernel.shm_rmid_forced", "kernel.sem", "fs.mqueue.msg_max"] {
            check(&with_sysctl(name, Pod)).expect(name);
        }
        for name in ["kernel.hostname", "vm.swappiness", "kernel.core_pattern", "net"] {
            let status = check(&with_sysctl(name, Pod)).expect_err(name);
            assert!(status.message().contains(name), "{status}");
        }
        check(&with_sysctl("net.core.somaxconn", Node)).expect_err("the node's network is not the pod's");
    }

    #[test]
    fn containers_are_put_where_the_agent_says_or_below_the_runtimes_own() {
        let asked = v1::LinuxPodSandboxConfig { cgroup_parent: "/kubepods/pod1/".to_owned(), ..Default::default() };
        let config = v1::PodSandboxConfig { linux: Some(asked), ..Default::default() };
        assert_eq!(cgroup_parent("/keelet", "a", &config), "/kubepods/pod1");
        assert_eq!(cgroup_parent("/keelet", "a", &v1::PodSandboxConfig::default()), "/keelet/a");
    }

    /// API-30
    #[test]
    fn a_uid_is_letters_digits_and_dashes() {
        let with_uid = |uid: &str| v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata { uid: uid.to_owned(), ..Default::default() }),
            ..Default::default()
        };
        for uid in ["", "7", "2c2ec1b4-5c5c-4b5c-9e0f-0d7c4a1f0b1e", "Abc"] {
            check(&with_uid(uid)).expect(uid);
        }
        for uid in ["a;K8S_POD_NAME=other", "../x", "a_b", "a/b", "a b"] {
            let status = check(&with_uid(uid)).expect_err(uid);
            assert!(status.message().contains(&format!("{uid:?}")), "{status}");
        }
    }
}
