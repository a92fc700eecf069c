//! Containers: made, started, stopped, removed, and what is known of them.

use std::{
    fs,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use keelet_cri::v1::{self, ContainerState};
use keelet_shim::{
    pidfd,
    protocol::{self, CONFIG, Exit, PLAN, Plan, ProcessRef, Request, STATE, State, container_dir},
};
use tokio::sync::watch;
use tonic::Status;

use crate::{
    engine::{Engine, new_id, now},
    records::{self, ContainerRecord, RECORD},
    sandbox::{Sandbox, cgroup_parent, failed, internal},
    security,
    shim::ShimError,
    spec::{self, Given},
    users,
};

/// What a container is said to have ended with if it could not be started, as with containerd.
const NOT_STARTED: i32 = 128;
/// What the API says of a container of which nobody knows.
const NOT_KNOWN: i32 = 137;

/// How long a killed process may take to be gone. It is the kernel's time: unmapping memory, closing files.
const KILLED: Duration = Duration::from_secs(30);

/// A container.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) sandbox: String,
    pub(crate) dir: PathBuf,
    pub(crate) config: v1::ContainerConfig,
    record: Mutex<ContainerRecord>,
    phase: Mutex<Phase>,
    /// Whether it has ended, or never ran and never will.
    ended: watch::Sender<bool>,
    /// Starting and removing take turns.
    turn: tokio::sync::Mutex<()>,
}

/// Where it is in its life.
#[derive(Debug)]
pub(crate) enum Phase {
    Created,
    Running(Running),
    Ended { started_at: i64, exit: Exit },
}

#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) process: ProcessRef,
    pub(crate) started_at: i64,
    /// None if it had ended before we could look; then its shim is about to say how.
    handle: Option<OwnedFd>,
}

// === impl Container ===

impl Container {
    pub(crate) fn new(
        id: String,
        sandbox: String,
        dir: PathBuf,
        config: v1::ContainerConfig,
        record: ContainerRecord,
    ) -> Self {
        let ended = watch::Sender::new(record.failed.is_some());
        let container = Self {
            id,
            sandbox,
            dir,
            config,
            record: Mutex::new(record),
            phase: Mutex::new(Phase::Created),
            ended,
            turn: tokio::sync::Mutex::default(),
        };
        container.read_state();
        container
    }

    pub(crate) fn record(&self) -> MutexGuard<'_, ContainerRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cgroup(&self) -> String {
        self.record().cgroup.clone()
    }

    pub(crate) fn image_mounts(&self) -> Vec<String> {
        self.record().image_mounts.clone()
    }

    /// The first process, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        match &*self.phase() {
            Phase::Running(running) => Some(running.process.pid),
            _ => None,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.pid().is_some()
    }

    /// A handle on a process that only its shim knew of; none if there is nothing to watch.
    pub(crate) fn handle_without_shim(&self) -> Option<OwnedFd> {
        match &*self.phase() {
            Phase::Running(running) => running.handle.as_ref()?.try_clone().ok(),
            _ => None,
        }
    }

    /// Sends a signal to the first process. It may have ended.
    fn signal(&self, signal: i32) {
        if let Phase::Running(Running { handle: Some(handle), .. }) = &*self.phase() {
            let _ = pidfd::send_signal(handle, signal);
        }
    }

    /// Takes up what the shim wrote; what is new of it.
    fn read_state(&self) -> Vec<v1::ContainerEventType> {
        use v1::ContainerEventType::{ContainerStartedEvent, ContainerStoppedEvent};
        let Ok(state) = protocol::read::<State>(&self.dir.join(STATE)) else { return Vec::new() };
        let mut phase = self.phase();
        match (&*phase, state.exit) {
            (Phase::Ended { .. }, _) | (Phase::Running(_), None) => Vec::new(),
            (before, Some(exit)) => {
                // One that ended before we looked has been started all the same.
                let started = matches!(before, Phase::Created).then_some(ContainerStartedEvent);
                *phase = Phase::Ended { started_at: state.started_at, exit };
                drop(phase);
                self.ended.send_replace(true);
                started.into_iter().chain([ContainerStoppedEvent]).collect()
            }
            (Phase::Created, None) => {
                let handle = pidfd::open(state.process);
                *phase = Phase::Running(Running { process: state.process, started_at: state.started_at, handle });
                vec![ContainerStartedEvent]
            }
        }
    }

    /// The limits that hold: those it was made with, and what was changed since.
    fn resources(&self) -> Option<v1::LinuxContainerResources> {
        let changed = records::read_limits(&self.dir);
        changed.or_else(|| self.config.linux.as_ref().and_then(|linux| linux.resources.clone()))
    }

    /// Writes down that limits were changed, so that the next server knows too.
    pub(crate) fn note_limits(&self, asked: &v1::LinuxContainerResources) -> std::io::Result<()> {
        let limits = crate::update::merged(self.resources().unwrap_or_default(), asked);
        records::write_limits(&self.dir, &limits)
    }

    /// Resolves when it has ended.
    pub(crate) async fn wait(&self) {
        // The sender lives as long as we do.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    fn state(&self) -> ContainerState {
        let record = self.record();
        match &*self.phase() {
            _ if record.failed.is_some() => ContainerState::ContainerExited,
            Phase::Created => ContainerState::ContainerCreated,
            Phase::Running(_) => ContainerState::ContainerRunning,
            Phase::Ended { exit: Exit { code: None, .. }, .. } if record.given_up_at.is_none() => {
                ContainerState::ContainerUnknown
            }
            Phase::Ended { .. } => ContainerState::ContainerExited,
        }
    }

    pub(crate) fn listed(&self) -> v1::Container {
        let state = self.state();
        let record = self.record();
        v1::Container {
            id: self.id.clone(),
            pod_sandbox_id: self.sandbox.clone(),
            metadata: self.config.metadata.clone(),
            image: self.config.image.clone(),
            image_ref: record.image_ref.clone(),
            state: state.into(),
            created_at: record.created_at,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            image_id: record.image_id.clone(),
        }
    }

    pub(crate) fn status(&self, sandbox: &Sandbox) -> v1::ContainerStatus {
        let state = self.state();
        let record = self.record().clone();
        let mut status = v1::ContainerStatus {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: state.into(),
            created_at: record.created_at,
            image: self.config.image.clone(),
            image_ref: record.image_ref,
            image_id: record.image_id,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            mounts: self.config.mounts.clone(),
            log_path: log_path(&self.config, &sandbox.config).unwrap_or_default().to_string_lossy().into_owned(),
            resources: self.resources().map(|linux| v1::ContainerResources { linux: Some(linux) }),
            user: Some(v1::ContainerUser {
                linux: Some(v1::LinuxContainerUser {
                    uid: record.user.uid.into(),
                    gid: record.user.gid.into(),
                    supplemental_groups: record.user.groups.iter().map(|group| (*group).into()).collect(),
                }),
            }),
            stop_signal: self.config.stop_signal,
            ..v1::ContainerStatus::default()
        };
        if let Some((message, at)) = record.failed {
            (status.exit_code, status.finished_at) = (NOT_STARTED, at);
            (status.reason, status.message) = ("StartError".to_owned(), message);
            return status;
        }
        match &*self.phase() {
            Phase::Created => {}
            Phase::Running(running) => status.started_at = running.started_at,
            Phase::Ended { started_at, exit } => {
                (status.started_at, status.finished_at) = (*started_at, exit.at);
                match exit.code {
                    Some(code) => {
                        status.exit_code = code;
                        status.reason = reason(*exit).to_owned();
                    }
                    None if record.given_up_at.is_some() => {
                        status.exit_code = NOT_KNOWN;
                        status.reason = "ContainerStatusUnknown".to_owned();
                        status.message = "nobody saw how the container ended".to_owned();
                    }
                    None => {}
                }
            }
        }
        status
    }
}

fn reason(exit: Exit) -> &'static str {
    match exit {
        Exit { oom: true, .. } => "OOMKilled",
        Exit { code: Some(0), .. } => "Completed",
        _ => "Error",
    }
}

/// Where a container's log goes; none if it is not kept.
fn log_path(config: &v1::ContainerConfig, sandbox: &v1::PodSandboxConfig) -> Option<PathBuf> {
    let known = !config.log_path.is_empty() && !sandbox.log_directory.is_empty();
    known.then(|| PathBuf::from(&sandbox.log_directory).join(&config.log_path))
}

// === impl Engine ===

/// Making and starting.
impl Engine {
    pub(crate) async fn create_container(&self, sandbox: &str, config: v1::ContainerConfig) -> Result<String, Status> {
        let sandbox = self.sandbox(sandbox)?;
        if !sandbox.is_ready() {
            return Err(Status::failed_precondition(format!("the sandbox {} is not ready", sandbox.id)));
        }
        let metadata =
            config.metadata.clone().ok_or_else(|| Status::invalid_argument("the container has no metadata"))?;
        let same = |other: &Container| other.config.metadata.as_ref() == Some(&metadata);
        if let Some(other) = self.containers_of(&sandbox.id).into_iter().find(|other| same(other)) {
            return Err(Status::already_exists(format!(
                "the container {} is attempt {} of {:?} already",
                other.id, metadata.attempt, metadata.name
            )));
        }
        check(&config)?;
        users::check(self.users(&sandbox.config)?, &config)?;
        let id = new_id()?;
        let (dir, mounts) = (container_dir(&sandbox.dir, &id), config.mounts.len());
        let made = {
            let (engine, sandbox, id, dir) = (self.clone(), Arc::clone(&sandbox), id.clone(), dir.clone());
            let target = self.target(&config)?;
            self.blocking(move |_| engine.make_container(&sandbox, id, dir, config, target)).await
        };
        match made {
            Ok(container) => {
                self.add_container(Arc::new(container));
                self.tell(&sandbox, &id, v1::ContainerEventType::ContainerCreatedEvent);
                Ok(id)
            }
            Err(status) => {
                self.blocking(move |parts| {
                    for number in 0..mounts {
                        let _ = parts.images.unmount_image(&image_mount(&id, number));
                    }
                    let _ = parts.images.remove_root(&id);
                    let _ = fs::remove_dir_all(&dir);
                })
                .await;
                Err(status)
            }
        }
    }

    /// The process of the container whose processes this one asks to see.
    fn target(&self, config: &v1::ContainerConfig) -> Result<Option<u32>, Status> {
        let options =
            config.linux.as_ref().and_then(|linux| linux.security_context.as_ref()?.namespace_options.as_ref());
        match options.filter(|options| options.pid == v1::NamespaceMode::Target as i32) {
            Some(options) => Ok(self.container(&options.target_id)?.pid()),
            None => Ok(None),
        }
    }

    fn make_container(
        &self,
        sandbox: &Sandbox,
        id: String,
        dir: PathBuf,
        config: v1::ContainerConfig,
        target: Option<u32>,
    ) -> Result<Container, Status> {
        let images = &self.parts.images;
        let wanted = config.image.as_ref().map(|image| image.image.as_str()).unwrap_or_default();
        let image = images.find(wanted).map_err(|error| internal("image", &error))?;
        let image = image.ok_or_else(|| Status::not_found(format!("the image {wanted:?} is not on this node")))?;
        fs::create_dir_all(&dir).map_err(|error| internal("the container's directory", &error))?;
        let users = users::of(&sandbox.config)?;
        let namespace = users.map(|_| users::namespace(sandbox)).transpose()?;
        let open = namespace.as_ref().map(|users| |path: &Path| keelet_shim::users::translated(path, users.as_fd()));
        let owners = open.as_ref().map(|open| -> keelet_image::Owners<'_> { open });
        let rootfs =
            images.make_root_for(&id, &image, owners).map_err(|error| internal("the container's files", &error))?;
        let security = security::of(&config, &image, &rootfs)?;
        users::check_ids(users, &security.user)?;
        let cgroup = format!("{}/{id}", cgroup_parent(&self.parts.settings.cgroup, &sandbox.id, &sandbox.config));
        let (image_mounts, places) = self.mount_images(&id, &dir, &config, owners)?;
        make_missing_directories(&config)?;
        let spec = spec::container(&Given {
            config: &config,
            sandbox_config: &sandbox.config,
            sandbox_dir: &sandbox.dir,
            pause: sandbox.pause_pid(),
            target,
            rootfs,
            cgroup: &cgroup,
            image: &image.config,
            user: &security.user,
            home: &security.home,
            capabilities: security.capabilities,
            seccomp: security.seccomp,
            image_mounts: places,
            cgroups: &self.parts.cgroups,
            users,
        });
        let spec = spec.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let write = |what: &str, result: std::io::Result<()>| result.map_err(|error| internal(what, &error));
        spec.save(dir.join(CONFIG)).map_err(|error| internal("the container's configuration", &error))?;
        let plan =
            Plan { log: log_path(&config, &sandbox.config), stdin: config.stdin, runc: self.parts.oci_runtime.clone() };
        write("the container's plan", protocol::write(&dir.join(PLAN), &plan))?;
        write("the container's request", records::write_container_config(&dir, &config))?;
        let record = ContainerRecord {
            created_at: now(),
            image_id: image.id.clone(),
            image_ref: image.digests.first().cloned().unwrap_or_else(|| image.id.clone()),
            stop_signal: stop_signal(&config, &image.config),
            user: security.user,
            cgroup,
            image_mounts,
            failed: None,
            given_up_at: None,
        };
        // From here on it is one.
        write("the container's record", protocol::write(&dir.join(RECORD), &record))?;
        Ok(Container::new(id, sandbox.id.clone(), dir, config, record))
    }

    /// Images that a container mounts like volumes: the keys of the mounts, and where they are.
    fn mount_images(
        &self,
        id: &str,
        dir: &Path,
        config: &v1::ContainerConfig,
        owners: Option<keelet_image::Owners<'_>>,
    ) -> Result<(Vec<String>, Vec<PathBuf>), Status> {
        let (mut keys, mut places) = (Vec::new(), Vec::new());
        for (number, mount) in config.mounts.iter().enumerate() {
            let Some(wanted) = &mount.image else { continue };
            let found = self.parts.images.find(&wanted.image).map_err(|error| internal("image volume", &error))?;
            let image = found.ok_or_else(|| {
                Status::not_found(format!("the image {:?} to be mounted is not on this node", wanted.image))
            })?;
            let (key, place) = (image_mount(id, number), dir.join(format!("image-{number}")));
            fs::create_dir_all(&place).map_err(|error| internal("image volume", &error))?;
            let mounted = self.parts.images.mount_image_for(&key, &image, &place, owners);
            mounted.map_err(|error| internal("image volume", &error))?;
            keys.push(key);
            let inside = security::below(&place, &mount.image_sub_path)
                .map_err(|error| internal(&format!("image volume, sub path {:?}", mount.image_sub_path), &error))?;
            places.push(inside);
        }
        Ok((keys, places))
    }

    pub(crate) async fn start_container(&self, id: &str) -> Result<(), Status> {
        let container = self.container(id)?;
        let _turn = container.turn.lock().await;
        let sandbox = self.sandbox(&container.sandbox)?;
        let is = |what: &str| Err(Status::failed_precondition(format!("the container {} {what}", container.id)));
        match &*container.phase() {
            _ if container.record().failed.is_some() => return is("could not be started and cannot be again"),
            Phase::Created => {}
            Phase::Running(_) => return is("runs already"),
            Phase::Ended { .. } => return is("has ended and cannot be started again"),
        }
        if !sandbox.is_ready() {
            return is("is in a sandbox that is not ready");
        }
        let started = sandbox.shim().run(&Request::Start { id: container.id.clone() }).await;
        match started {
            Ok(_) => {
                self.refresh(&container);
                Ok(())
            }
            Err(ShimError::Refused(message)) => {
                let record = {
                    let mut record = container.record();
                    record.failed = Some((message.clone(), now()));
                    record.clone()
                };
                let _ = protocol::write(&container.dir.join(RECORD), &record);
                container.ended.send_replace(true);
                self.tell(&sandbox, &container.id, v1::ContainerEventType::ContainerStoppedEvent);
                Err(Status::unknown(format!("failed to start container {:?}: {message}", container.id)))
            }
            Err(error) => Err(failed(&error)),
        }
    }

    /// Takes up what the shim wrote of a container.
    pub(crate) fn refresh(&self, container: &Arc<Container>) {
        for kind in container.read_state() {
            if let Ok(sandbox) = self.sandbox(&container.sandbox) {
                self.tell(&sandbox, &container.id, kind);
            }
        }
    }

    /// Its shim is gone, and it ended when nobody was there to see how.
    pub(crate) fn lost(&self, container: &Arc<Container>) {
        // The old shim may have had the time to write it down.
        self.refresh(container);
        let state = {
            let Phase::Running(running) = &*container.phase() else { return };
            let exit = Exit { code: None, at: now(), oom: false };
            State { process: running.process, started_at: running.started_at, exit: Some(exit) }
        };
        let _ = protocol::write(&container.dir.join(STATE), &state);
        self.refresh(container);
    }
}

/// Stopping and removing.
impl Engine {
    pub(crate) async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), Status> {
        let Ok(container) = self.container(id) else { return Ok(()) };
        if !grace.is_zero() && container.is_running() {
            container.signal(container.record().stop_signal);
            if tokio::time::timeout(grace, container.wait()).await.is_ok() {
                return Ok(());
            }
        }
        self.stop_container_now(&container).await
    }

    /// Kills a container and waits for its end.
    pub(crate) async fn stop_container_now(&self, container: &Arc<Container>) -> Result<(), Status> {
        let unknown = matches!(&*container.phase(), Phase::Ended { exit: Exit { code: None, .. }, .. });
        if unknown {
            let record = {
                let mut record = container.record();
                record.given_up_at.get_or_insert_with(now);
                record.clone()
            };
            return protocol::write(&container.dir.join(RECORD), &record).map_err(|error| internal("record", &error));
        }
        if !container.is_running() {
            return Ok(());
        }
        container.signal(libc::SIGKILL);
        tokio::time::timeout(KILLED, container.wait()).await.map_err(|_| {
            Status::deadline_exceeded(format!("the container {} was killed and has not ended yet", container.id))
        })
    }

    /// Removes a container, by force if it runs. May be repeated.
    pub(crate) async fn remove_container(&self, id: &str) -> Result<(), Status> {
        let Ok(container) = self.container(id) else { return Ok(()) };
        let _turn = container.turn.lock().await;
        self.stop_container_now(&container).await?;
        let one = Arc::clone(&container);
        let removed = self.blocking(move |parts| {
            parts.cgroups.kill(&one.cgroup());
            for mount in one.image_mounts() {
                parts.images.unmount_image(&mount).map_err(|error| internal("image volume", &error))?;
            }
            parts.images.remove_root(&one.id).map_err(|error| internal("the container's files", &error))?;
            parts.cgroups.clear(&one.cgroup()).map_err(|error| internal("the container's cgroup", &error))?;
            match fs::remove_dir_all(&one.dir) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(internal("the container's directory", &error))
                }
                _ => Ok(()),
            }
        });
        removed.await?;
        self.forget_container(&container.id);
        if let Ok(sandbox) = self.sandbox(&container.sandbox) {
            self.tell(&sandbox, &container.id, v1::ContainerEventType::ContainerDeletedEvent);
        }
        Ok(())
    }

    pub(crate) async fn reopen_log(&self, id: &str) -> Result<(), Status> {
        let container = self.container(id)?;
        if !container.is_running() {
            return Err(Status::failed_precondition(format!("the container {} does not run", container.id)));
        }
        let sandbox = self.sandbox(&container.sandbox)?;
        let request = Request::ReopenLog { id: container.id.clone() };
        sandbox.shim().done(&request, &[]).await.map_err(|error| failed(&error))
    }
}

/// The key of an image that a container mounts, by the number of the mount.
fn image_mount(id: &str, number: usize) -> String {
    format!("{id}-{number}")
}

/// What cannot be passed on is refused before anything is made.
fn check(config: &v1::ContainerConfig) -> Result<(), Status> {
    use std::path::Component;
    let wrong = |what: String| Err(Status::invalid_argument(what));
    if !Path::new(&config.log_path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return wrong(format!("log_path {:?} leads out of the pod's directory of logs", config.log_path));
    }
    if let Some(word) = config.command.iter().chain(&config.args).find(|word| word.contains('\0')) {
        return wrong(format!("the argument {word:?} contains a zero byte"));
    }
    for v1::KeyValue { key, value } in &config.envs {
        if key.is_empty() || key.contains(['\0', '=']) {
            return wrong(format!("{key:?} is not the name of a variable"));
        }
        if value.contains(&0) {
            return wrong(format!("the variable {key} contains a zero byte"));
        }
    }
    Ok(())
}

/// Directories of the node that a container mounts and that are not there are made, as containerd does.
fn make_missing_directories(config: &v1::ContainerConfig) -> Result<(), Status> {
    for mount in config.mounts.iter().filter(|mount| mount.image.is_none()) {
        let path = Path::new(&mount.host_path);
        if let Err(error) = path.symlink_metadata()
            && error.kind() == std::io::ErrorKind::NotFound
        {
            fs::create_dir_all(path).map_err(|error| internal(&format!("cannot make {}", path.display()), &error))?;
        }
    }
    Ok(())
}

/// What a container is asked to stop with: its own word, the image's, or SIGTERM.
fn stop_signal(config: &v1::ContainerConfig, image: &keelet_image::ImageConfig) -> i32 {
    let asked = v1::Signal::try_from(config.stop_signal).unwrap_or_default();
    let name = match asked {
        v1::Signal::RuntimeDefault => image.stop_signal.clone(),
        named => named.as_str_name().trim_start_matches("SIGNAL_").to_owned(),
    };
    signal_number(&name).unwrap_or(libc::SIGTERM)
}

/// `SIGTERM`, `TERM` or `15`; `SIGRTMIN+3`, and CRI's way to write that.
fn signal_number(name: &str) -> Option<i32> {
    if let Ok(number) = name.parse() {
        return (1..=64).contains(&number).then_some(number);
    }
    let name = name.to_ascii_uppercase().replace("MINUS", "-").replace("PLUS", "+");
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    // The C library keeps the first two real-time signals for itself.
    let (first, last) = (34, 64);
    match name {
        "RTMIN" => Some(first),
        "RTMAX" => Some(last),
        _ => {
            let plus = name.strip_prefix("RTMIN+").and_then(|more| Some(first + more.parse::<i32>().ok()?));
            let minus = name.strip_prefix("RTMAX-").and_then(|less| Some(last - less.parse::<i32>().ok()?));
            plus.or(minus).filter(|number| (first..=last).contains(number)).or_else(|| named(name))
        }
    }
}

fn named(name: &str) -> Option<i32> {
    let names = [
        ("HUP", libc::SIGHUP),
        ("INT", libc::SIGINT),
        ("QUIT", libc::SIGQUIT),
        ("ILL", libc::SIGILL),
        ("TRAP", libc::SIGTRAP),
        ("ABRT", libc::SIGABRT),
        ("IOT", libc::SIGIOT),
        ("BUS", libc::SIGBUS),
        ("FPE", libc::SIGFPE),
        ("KILL", libc::SIGKILL),
        ("USR1", libc::SIGUSR1),
        ("SEGV", libc::SIGSEGV),
        ("USR2", libc::SIGUSR2),
        ("PIPE", libc::SIGPIPE),
        ("ALRM", libc::SIGALRM),
        ("TERM", libc::SIGTERM),
        ("STKFLT", libc::SIGSTKFLT),
        ("CHLD", libc::SIGCHLD),
        ("CLD", libc::SIGCHLD),
        ("CONT", libc::SIGCONT),
        ("STOP", libc::SIGSTOP),
        ("TSTP", libc::SIGTSTP),
        ("TTIN", libc::SIGTTIN),
        ("TTOU", libc::SIGTTOU),
        ("URG", libc::SIGURG),
        ("XCPU", libc::SIGXCPU),
        ("XFSZ", libc::SIGXFSZ),
        ("VTALRM", libc::SIGVTALRM),
        ("PROF", libc::SIGPROF),
        ("WINCH", libc::SIGWINCH),
        ("IO", libc::SIGIO),
        ("POLL", libc::SIGPOLL),
        ("PWR", libc::SIGPWR),
        ("SYS", libc::SIGSYS),
    ];
    names.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use keelet_cri::v1;
    use keelet_shim::protocol::Exit;

    use super::{reason, signal_number, stop_signal};

    #[test]
    fn signals_are_known_by_all_their_names() {
        assert_eq!(signal_number("SIGTERM"), Some(15));
        assert_eq!(signal_number("quit"), Some(3));
        assert_eq!(signal_number("9"), Some(9));
        assert_eq!(signal_number("SIGRTMIN+3"), Some(37));
        assert_eq!(signal_number("SIGRTMAX-1"), Some(63));
        assert_eq!(signal_number("SIGRTMIN+99"), None);
        assert_eq!(signal_number("nonsense"), None);
    }

    #[test]
    fn a_container_is_stopped_with_its_own_signal_or_the_images() {
        let with = |signal: v1::Signal| v1::ContainerConfig { stop_signal: signal.into(), ..Default::default() };
        let image = keelet_image::ImageConfig { stop_signal: "SIGINT".to_owned(), ..Default::default() };
        assert_eq!(stop_signal(&with(v1::Signal::Sigusr1), &image), libc::SIGUSR1);
        assert_eq!(stop_signal(&with(v1::Signal::Sigrtminplus3), &image), 37);
        assert_eq!(stop_signal(&with(v1::Signal::RuntimeDefault), &image), libc::SIGINT);
        assert_eq!(
            stop_signal(&with(v1::Signal::RuntimeDefault), &keelet_image::ImageConfig::default()),
            libc::SIGTERM
        );
    }

    #[test]
    fn a_reason_is_one_word() {
        let exit = Exit { code: Some(0), at: 0, oom: false };
        assert_eq!(reason(exit), "Completed");
        assert_eq!(reason(Exit { code: Some(1), ..exit }), "Error");
        assert_eq!(reason(Exit { code: Some(137), oom: true, ..exit }), "OOMKilled");
    }
}
