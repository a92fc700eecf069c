//! The node: sandboxes, containers and images. It outlives every run of the agent.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use keelet_pod::Role;
use tokio::{sync::watch, time::Instant};

use crate::{
    script::OnTerm,
    sim::State,
    timeline::{ExitCause, Happening, InstanceRef, SandboxChange},
};

/// The exit code of a container that was killed.
const KILLED: i32 = 137;

/// The exit code of a container that went down with the node.
const WENT_DOWN: i32 = 255;

/// How long an ordinary init container without a script takes to succeed.
const INIT_TAKES: Duration = Duration::from_millis(100);

/// How long a kill takes.
const KILL_TAKES: Duration = Duration::from_millis(5);

/// What is on the node.
#[derive(Debug, Default)]
pub struct Node {
    /// By ID.
    pub(crate) sandboxes: BTreeMap<String, Sandbox>,
    /// By ID.
    pub(crate) containers: BTreeMap<String, Container>,
    images: BTreeSet<String>,
    sandboxes_made: u32,
    processes: u32,
    /// Instances begun, by pod UID and container name.
    container_runs: BTreeMap<(String, String), Vec<ContainerRun>>,
    /// Instances made, by pod UID and container name.
    made: BTreeMap<(String, String), u32>,
}

/// An instance of a container, as the node counts them.
#[derive(Clone, Debug)]
pub struct ContainerRun {
    /// The instance.
    pub instance: Arc<InstanceRef>,
    /// When it began, since the world began.
    pub began: Duration,
    /// How and when it ended.
    pub ended: Option<(Duration, i32, ExitCause)>,
}

/// A sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) pod: String,
    pub(crate) pod_name: String,
    pub(crate) namespace: String,
    pub(crate) attempt: u32,
    pub(crate) ready: bool,
    pub(crate) ip: String,
    pub(crate) host_network: bool,
    pub(crate) created_ns: i64,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    /// What another program removed of it. Its containers run on.
    pub(crate) loss: Option<Loss>,
}

/// What another program can remove of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Its network: connections to its containers are refused from then on.
    Network,
    /// Its files.
    Files,
}

/// A container.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) instance: Arc<InstanceRef>,
    pub(crate) pod_name: String,
    pub(crate) image: String,
    pub(crate) created_ns: i64,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    /// What is mounted: the path on the node, by the path in the container.
    pub(crate) mounts: BTreeMap<String, String>,
    pub(crate) state: ContainerState,
    /// Turns true when it ends.
    pub(crate) ended: watch::Sender<bool>,
}

/// What a container does.
#[derive(Clone, Debug)]
pub(crate) enum ContainerState {
    Created,
    Running { started_ns: i64, since: Instant, pid: u32 },
    Exited { started_ns: i64, finished_ns: i64, exit_code: i32, reason: &'static str },
}

/// What is known of a container before it exists.
#[derive(Clone, Debug)]
pub(crate) struct Blueprint {
    pub(crate) sandbox: String,
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) image: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) mounts: BTreeMap<String, String>,
}

/// What a reboot leaves of the containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remains {
    /// Dead containers and sandboxes that are not ready.
    #[default]
    Dead,
    /// Nothing.
    Nothing,
}

/// What happened to a container, as the runtime's event stream says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    Created,
    Started,
    Stopped,
    Deleted,
}

// === impl Node ===

impl Node {
    /// The instances of a container, oldest first.
    pub fn container_runs(&self, pod: &str, container: &str) -> &[ContainerRun] {
        self.container_runs.get(&(pod.to_owned(), container.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// All instances of all containers.
    pub(crate) fn all_runs(&self) -> impl Iterator<Item = &ContainerRun> {
        self.container_runs.values().flatten()
    }

    /// The running instance of a container.
    pub fn running(&self, pod: &str, container: &str) -> Option<&Arc<InstanceRef>> {
        let is_it =
            |found: &&Container| found.instance.pod == pod && found.instance.name == container && found.is_running();
        self.containers.values().find(is_it).map(|found| &found.instance)
    }

    /// The ready sandbox of a pod.
    pub fn sandbox(&self, pod: &str) -> Option<&str> {
        self.sandboxes.values().find(|found| found.pod == pod && found.ready).map(|found| found.id.as_str())
    }

    /// Whether anything of the pod is left.
    pub fn has_pod(&self, pod: &str) -> bool {
        self.sandboxes.values().any(|found| found.pod == pod)
            || self.containers.values().any(|found| found.instance.pod == pod)
    }

    pub(crate) fn has_image(&self, image: &str) -> bool {
        self.images.contains(image)
    }

    pub(crate) fn add_image(&mut self, image: &str) {
        self.images.insert(image.to_owned());
    }

    pub(crate) fn images(&self) -> impl Iterator<Item = &str> {
        self.images.iter().map(String::as_str)
    }

    /// The next restart count of each container of a pod, by its log files.
    pub(crate) fn log_counts(&self, pod: &str) -> BTreeMap<String, u32> {
        let of_pod = self.container_runs.iter().filter(|((uid, _), _)| uid == pod);
        of_pod
            .filter_map(|((_, name), runs)| {
                runs.iter().map(|run| run.instance.attempt + 1).max().map(|next| (name.clone(), next))
            })
            .collect()
    }
}

// === impl Loss ===

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Network => "its network is gone",
            Self::Files => "its files are gone",
        })
    }
}

// === impl Container ===

impl Container {
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, ContainerState::Running { .. })
    }

    /// How long it has been running.
    pub(crate) fn age(&self) -> Duration {
        match self.state {
            ContainerState::Running { since, .. } => Instant::now() - since,
            ContainerState::Created | ContainerState::Exited { .. } => Duration::ZERO,
        }
    }
}

// === impl State ===

/// What happens on the node.
impl State {
    pub(crate) fn run_sandbox(&mut self, sandbox: Sandbox) -> String {
        self.node.sandboxes_made += 1;
        let number = self.node.sandboxes_made;
        let id = format!("{}-sandbox-{number}", sandbox.pod_name);
        let ip =
            if sandbox.host_network { String::new() } else { format!("10.0.{}.{}", number / 250, number % 250 + 1) };
        let made = Sandbox { id: id.clone(), ip, ready: true, created_ns: self.wall_ns(), ..sandbox };
        self.note(Happening::Sandbox { pod: made.pod.clone(), id: id.clone(), change: SandboxChange::Ready });
        self.node.sandboxes.insert(id.clone(), made);
        id
    }

    /// Stops a sandbox and kills what runs in it.
    pub(crate) fn stop_sandbox(&mut self, id: &str) {
        for container in self.in_sandbox(id) {
            self.exit(&container, KILLED, ExitCause::Killed);
        }
        let Some(sandbox) = self.node.sandboxes.get_mut(id).filter(|sandbox| sandbox.ready) else { return };
        sandbox.ready = false;
        let pod = sandbox.pod.clone();
        self.note(Happening::Sandbox { pod, id: id.to_owned(), change: SandboxChange::Stopped });
    }

    /// Another program removes a part of a sandbox; its containers run on. So much later the runtime notices, and calls it
    /// not ready.
    pub(crate) fn lose_of_sandbox(&mut self, id: &str, loss: Loss, noticed_after: Duration) {
        let Some(sandbox) = self.node.sandboxes.get_mut(id).filter(|sandbox| sandbox.ready) else { return };
        sandbox.loss = Some(loss);
        let (pod, id) = (sandbox.pod.clone(), id.to_owned());
        self.note(Happening::Sandbox { pod, id: id.clone(), change: SandboxChange::Damaged(loss) });
        self.later(noticed_after, move |state| state.notice_loss(&id, loss));
    }

    fn notice_loss(&mut self, id: &str, loss: Loss) {
        let Some(sandbox) = self.node.sandboxes.get_mut(id).filter(|sandbox| sandbox.ready) else { return };
        sandbox.ready = false;
        sandbox.annotations.insert(keelet_cri::LOST.to_owned(), loss.to_string());
        let pod = sandbox.pod.clone();
        let itself = InstanceRef {
            id: id.to_owned(),
            pod: pod.clone(),
            name: String::new(),
            attempt: sandbox.attempt,
            sandbox: id.to_owned(),
        };
        self.note(Happening::Sandbox { pod, id: id.to_owned(), change: SandboxChange::Lost });
        self.emit(&itself, Notice::Stopped);
    }

    pub(crate) fn remove_sandbox(&mut self, id: &str) {
        self.stop_sandbox(id);
        for container in self.in_sandbox(id) {
            self.remove(&container, true);
        }
        if let Some(sandbox) = self.node.sandboxes.remove(id) {
            self.note(Happening::Sandbox { pod: sandbox.pod, id: id.to_owned(), change: SandboxChange::Removed });
        }
    }

    fn in_sandbox(&self, id: &str) -> Vec<String> {
        let inside = self.node.containers.values().filter(|container| container.instance.sandbox == id);
        inside.map(|container| container.instance.id.clone()).collect()
    }

    /// Makes a container; `None` if there is no such sandbox.
    pub(crate) fn create(&mut self, blueprint: Blueprint) -> Option<String> {
        let sandbox = self.node.sandboxes.get(&blueprint.sandbox)?;
        let (pod, pod_name) = (sandbox.pod.clone(), sandbox.pod_name.clone());
        let number = self.node.made.entry((pod.clone(), blueprint.name.clone())).or_default();
        *number += 1;
        let instance = Arc::new(InstanceRef {
            id: format!("{pod_name}-{}-{number}", blueprint.name),
            pod,
            name: blueprint.name,
            attempt: blueprint.attempt,
            sandbox: blueprint.sandbox,
        });
        let container = Container {
            instance: Arc::clone(&instance),
            pod_name,
            image: blueprint.image,
            created_ns: self.wall_ns(),
            labels: blueprint.labels,
            annotations: blueprint.annotations,
            mounts: blueprint.mounts,
            state: ContainerState::Created,
            ended: watch::Sender::new(false),
        };
        self.node.containers.insert(instance.id.clone(), container);
        self.note(Happening::Created(Arc::clone(&instance)));
        self.emit(&instance, Notice::Created);
        Some(instance.id.clone())
    }

    /// Starts a container that was made and never started.
    pub(crate) fn start(&mut self, id: &str) {
        let (started_ns, began) = (self.wall_ns(), self.elapsed());
        self.node.processes += 1;
        let pid = 1000 + self.node.processes;
        let Some(container) = self.node.containers.get_mut(id) else { return };
        container.state = ContainerState::Running { started_ns, since: Instant::now(), pid };
        let instance = Arc::clone(&container.instance);
        let pod_name = container.pod_name.clone();
        let key = (instance.pod.clone(), instance.name.clone());
        let run = ContainerRun { instance: Arc::clone(&instance), began, ended: None };
        self.node.container_runs.entry(key).or_default().push(run);
        self.note(Happening::Started(Arc::clone(&instance)));
        self.emit(&instance, Notice::Started);
        let spec = self.pods.get(&instance.pod).and_then(|pod| pod.container(&instance.name));
        let is_init = spec.is_some_and(|container| container.role == Role::Init);
        let scripted = self.scripts.of(&pod_name, &instance.name).begin(instance.attempt);
        if let Some((after, exit_code)) = scripted.or(is_init.then_some((INIT_TAKES, 0))) {
            let id = id.to_owned();
            self.later(after, move |state| state.exit(&id, exit_code, ExitCause::Own));
        }
    }

    /// Leaves a container that was being started as one that has ended without ever having run.
    pub(crate) fn give_up_start(&mut self, id: &str) {
        let finished_ns = self.wall_ns();
        let Some(container) = self.node.containers.get_mut(id) else { return };
        container.state = ContainerState::Exited { started_ns: 0, finished_ns, exit_code: 128, reason: "StartError" };
        let instance = Arc::clone(&container.instance);
        self.note(Happening::GivenUp(Arc::clone(&instance)));
        self.emit(&instance, Notice::Stopped);
    }

    /// Sends SIGTERM, and SIGKILL after the grace period; none means SIGKILL at once.
    pub(crate) fn signal(&mut self, id: &str, grace: Duration) {
        let Some(container) = self.node.containers.get(id).filter(|container| container.is_running()) else { return };
        let on_term = self.scripts.of(&container.pod_name, &container.instance.name).on_term;
        let owned = id.to_owned();
        match on_term {
            OnTerm::Ends { after, exit_code } if after < grace => {
                self.later(after, move |state| state.exit(&owned, exit_code, ExitCause::Stopped));
            }
            OnTerm::Ends { .. } | OnTerm::Ignores => {
                self.later(grace.max(KILL_TAKES), move |state| state.exit(&owned, KILLED, ExitCause::Killed));
            }
        }
    }

    /// A container ends, if it runs.
    pub(crate) fn exit(&mut self, id: &str, exit_code: i32, cause: ExitCause) {
        let (finished_ns, at) = (self.wall_ns(), self.elapsed());
        let Some(container) = self.node.containers.get_mut(id) else { return };
        let ContainerState::Running { started_ns, .. } = container.state else { return };
        let reason = match (cause, exit_code) {
            (ExitCause::Reboot, _) => "Unknown",
            (_, 0) => "Completed",
            _ => "Error",
        };
        container.state = ContainerState::Exited { started_ns, finished_ns, exit_code, reason };
        container.ended.send_replace(true);
        let instance = Arc::clone(&container.instance);
        let pod_name = container.pod_name.clone();
        let runs = self.node.container_runs.entry((instance.pod.clone(), instance.name.clone())).or_default();
        if let Some(run) = runs.iter_mut().find(|run| run.instance.id == id) {
            run.ended = Some((at, exit_code, cause));
        }
        self.note(Happening::Exited { instance: Arc::clone(&instance), exit_code, cause });
        self.emit(&instance, Notice::Stopped);
        self.take_peers_along(&pod_name, &instance);
    }

    /// Containers whose script says that they end when this one does.
    fn take_peers_along(&mut self, pod_name: &str, ended: &InstanceRef) {
        let peers: Vec<Arc<InstanceRef>> = self
            .node
            .containers
            .values()
            .filter(|container| container.instance.pod == ended.pod && container.is_running())
            .map(|container| Arc::clone(&container.instance))
            .collect();
        for peer in peers {
            let script = self.scripts.of(pod_name, &peer.name);
            if let Some((after, exit_code)) = script.peer_ended(peer.attempt, &ended.name) {
                self.later(after, move |state| state.exit(&peer.id, exit_code, ExitCause::Own));
            }
        }
    }

    /// A container disappears.
    pub(crate) fn remove(&mut self, id: &str, asked: bool) {
        if asked {
            self.exit(id, KILLED, ExitCause::Killed);
        }
        let Some(container) = self.node.containers.remove(id) else { return };
        container.ended.send_replace(true);
        let instance = container.instance;
        self.note(Happening::Removed { instance: Arc::clone(&instance), asked });
        self.emit(&instance, Notice::Deleted);
    }

    /// The node goes down and comes back.
    pub(crate) fn go_down(&mut self, remains: Remains) {
        let ids: Vec<String> = self.node.containers.keys().cloned().collect();
        for id in &ids {
            self.exit(id, WENT_DOWN, ExitCause::Reboot);
        }
        let sandboxes: Vec<String> = self.node.sandboxes.keys().cloned().collect();
        match remains {
            Remains::Dead => {
                for id in sandboxes {
                    self.stop_sandbox(&id);
                }
            }
            Remains::Nothing => {
                for id in ids {
                    self.remove(&id, false);
                }
                for id in sandboxes {
                    self.remove_sandbox(&id);
                }
            }
        }
    }
}
