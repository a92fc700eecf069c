//! Containers, and what is known of them.

mod ends;
mod make;
mod signals;
mod stop;

use std::{
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use keelet_cri::v1::{self, ContainerState};
use keelet_linux::{ProcessRef, pidfd};
use keelet_shim::protocol::{self, Exit, STATE, State};
use tokio::sync::watch;

pub(crate) use self::{
    make::{container_of_mount, image_mounts_of},
    signals::stop_signal,
};
use crate::{
    records::{self, ContainerRecord},
    sandbox::Sandbox,
};

/// What a container is said to have ended with if it could not be started, as with containerd.
const NOT_STARTED: i32 = 128;
/// What the API says of a container whose exit status is unknown.
const NOT_KNOWN: i32 = 137;

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
    /// Held while the container is started or removed.
    lock: tokio::sync::Mutex<()>,
    /// Events of the container are emitted in the order in which they happened.
    emitting: Mutex<()>,
}

/// Its state, from created to exited.
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
    /// None if it had ended before it could be opened; then its shim is about to say how.
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
    ) -> io::Result<Self> {
        let ended = watch::Sender::new(record.failed.is_some());
        let container = Self {
            id,
            sandbox,
            dir,
            config,
            record: Mutex::new(record),
            phase: Mutex::new(Phase::Created),
            ended,
            lock: tokio::sync::Mutex::default(),
            emitting: Mutex::default(),
        };
        container.read_state()?;
        Ok(container)
    }

    pub(crate) fn record(&self) -> MutexGuard<'_, ContainerRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held while a change of its state is recorded and its event emitted.
    fn emitting(&self) -> MutexGuard<'_, ()> {
        self.emitting.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub(crate) fn process(&self) -> Option<ProcessRef> {
        match &*self.phase() {
            Phase::Running(running) => Some(running.process),
            _ => None,
        }
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.process().map(|process| process.pid)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.pid().is_some()
    }

    /// Whether it had ended when we looked for the process that is said to run.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(&*self.phase(), Phase::Running(Running { handle: None, .. }))
    }

    /// A handle on a process that only its shim knew of; none if there is nothing to watch.
    pub(crate) fn handle_without_shim(&self) -> io::Result<Option<OwnedFd>> {
        match &*self.phase() {
            Phase::Running(running) => running.handle.as_ref().map(OwnedFd::try_clone).transpose(),
            _ => Ok(None),
        }
    }

    /// Sends a signal to the first process. It may have ended.
    fn signal(&self, signal: i32) {
        if let Phase::Running(Running { handle: Some(handle), .. }) = &*self.phase() {
            let _ = pidfd::send_signal(handle, signal);
        }
    }

    /// Reads what the shim wrote; returns what is new.
    fn read_state(&self) -> io::Result<Vec<v1::ContainerEventType>> {
        use v1::ContainerEventType::{ContainerStartedEvent, ContainerStoppedEvent};
        let state: State = match protocol::read(&self.dir.join(STATE)) {
            Ok(state) => state,
            Err(error) if records::is_nothing(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut phase = self.phase();
        Ok(match (&*phase, state.exit) {
            (Phase::Ended { .. }, _) | (Phase::Running(_), None) => Vec::new(),
            (before, Some(exit)) => {
                // One that ended before that has been started all the same.
                let started = matches!(before, Phase::Created).then_some(ContainerStartedEvent);
                *phase = Phase::Ended { started_at: state.started_at, exit };
                drop(phase);
                self.ended.send_replace(true);
                started.into_iter().chain([ContainerStoppedEvent]).collect()
            }
            (Phase::Created, None) => {
                let handle = pidfd::open(state.process)?;
                *phase = Phase::Running(Running { process: state.process, started_at: state.started_at, handle });
                vec![ContainerStartedEvent]
            }
        })
    }

    /// The limits that hold: those it was made with, and what was changed since.
    pub(crate) fn resources(&self) -> Option<v1::LinuxContainerResources> {
        let changed = records::read_limits(&self.dir);
        changed.or_else(|| self.config.linux.as_ref().and_then(|linux| linux.resources.clone()))
    }

    /// Writes down that limits were changed, so that the next server knows too.
    pub(crate) fn note_limits(&self, asked: &v1::LinuxContainerResources) -> io::Result<()> {
        let limits = crate::update::merged(self.resources().unwrap_or_default(), asked);
        records::write_limits(&self.dir, &limits)
    }

    /// Resolves when it has ended.
    pub(crate) async fn wait(&self) {
        // The sender exists as long as this handle.
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
                        status.message =
                            "exit status unknown: neither the shim nor the agent saw the container exit".to_owned();
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

#[cfg(test)]
mod tests {
    use keelet_shim::protocol::Exit;

    use super::reason;

    #[test]
    fn a_reason_is_one_word() {
        let exit = Exit { code: Some(0), at: 0, oom: false };
        assert_eq!(reason(exit), "Completed");
        assert_eq!(reason(Exit { code: Some(1), ..exit }), "Error");
        assert_eq!(reason(Exit { code: Some(137), oom: true, ..exit }), "OOMKilled");
    }
}
