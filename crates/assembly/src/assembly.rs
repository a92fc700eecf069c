//! An agent and its servers, from what was decided about them.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use keelet_agent::{
    Agent, Doors, Settings, StartError,
    clock::{ClockError, OsClock},
    doors::Clock,
    node::Facts,
    publish::Publisher,
};
use keelet_host::{ByOrigin, Layout, LocalObjects, ObjectStore, OsHost};
use keelet_pod::Features;
use keelet_serve::{BindError, DesiredPods, Images, Listener, Local, serve_loopback};
use tokio::task::JoinSet;

use crate::{
    cluster::ClusterThread,
    embedded::ChosenRuntime,
    https::{HttpsSettings, HttpsThread},
    paths::Paths,
};

/// What an agent on this machine is built from. [`Assembly::new`] has the usual, which a command changes where it has to.
#[derive(Debug)]
pub struct Assembly {
    /// The machine's clock.
    pub clock: Arc<OsClock>,
    /// Where the files and logs of pods are.
    pub layout: Layout,
    /// Directory with config maps and secrets of pods of manifests.
    pub objects: PathBuf,
    /// Where pods of an API server find what they refer to; none on a node of its own.
    pub carried: Option<Arc<dyn ObjectStore>>,
    /// The runtime that pods run on.
    pub runtime: ChosenRuntime,
    /// The agent's settings.
    pub settings: Settings,
    /// Where others see statuses and events; none on a node of its own.
    pub publisher: Option<Arc<dyn Publisher>>,
}

/// A running agent, and what its servers answer from.
#[derive(Debug)]
pub struct Assembled {
    /// The agent.
    pub agent: Arc<Agent>,
    /// Its clock.
    pub clock: Arc<OsClock>,
    /// Where the files and logs of pods are.
    pub layout: Layout,
    /// The images of a runtime that is in this process.
    pub images: Option<Arc<dyn Images>>,
}

/// The servers of an agent. They serve for as long as this is kept.
#[derive(Debug)]
pub struct Servers {
    local: Arc<Local>,
    tasks: JoinSet<()>,
}

/// Why no agent can be built.
#[derive(Debug, thiserror::Error)]
pub enum AssemblyError {
    /// It is not known what time it is.
    #[error("cannot read the clock of this machine")]
    Clock(#[from] ClockError),
    /// The ledger needs a thread.
    #[error("cannot start the thread of the ledger")]
    Thread(#[source] io::Error),
    /// The agent does not start.
    #[error(transparent)]
    Start(#[from] StartError),
}

// === impl Assembly ===

impl Assembly {
    /// An agent in these directories, on a machine of which these facts are known.
    pub fn new(paths: &Paths, facts: Facts, features: Features, runtime: ChosenRuntime) -> Result<Self, AssemblyError> {
        let clock = Arc::new(OsClock::new()?);
        let ledger = paths.ledger_settings(clock.now().boot_id);
        Ok(Self {
            clock,
            layout: Layout::new(&paths.root_dir, Layout::LOGS),
            objects: LocalObjects::DIRECTORY.into(),
            runtime,
            settings: Settings { facts, ..Settings::new(features, ledger) },
            publisher: None,
            carried: None,
        })
    }

    /// Starts the agent. Nothing waits for the runtime.
    pub async fn start(self) -> Result<Assembled, AssemblyError> {
        let Self { clock, layout, objects, carried, runtime, settings, publisher } = self;
        let ChosenRuntime { runtime, images } = runtime;
        let local: Arc<dyn ObjectStore> = Arc::new(LocalObjects::new(&objects));
        let objects = match carried {
            Some(cluster) => Arc::new(ByOrigin { local, cluster }),
            None => local,
        };
        let host = OsHost::new(layout.clone()).with_objects(objects).with_facts(settings.facts.for_pods.clone());
        let doors = Doors::on_this_machine(runtime, Arc::clone(&clock) as Arc<dyn Clock>, Arc::new(host));
        let doors = Doors { publisher, ..doors.map_err(AssemblyError::Thread)? };
        let agent = Arc::new(Agent::start(doors, settings).await?);
        Ok(Assembled { agent, clock, layout, images })
    }
}

// === impl Assembled ===

impl Assembled {
    /// Its servers, none of which listens yet. `desired` is asked which pods are wanted, and about those that are to be deleted.
    pub fn servers(&self, desired: Arc<dyn DesiredPods>) -> Servers {
        let local =
            Local { agent: Arc::clone(&self.agent), layout: self.layout.clone(), desired, images: self.images.clone() };
        Servers { local: Arc::new(local), tasks: JoinSet::new() }
    }
}

// === impl Servers ===

impl Servers {
    /// Serves everything on a socket.
    pub fn serve(&mut self, socket: Listener) {
        let local = Arc::clone(&self.local);
        self.tasks.spawn(async move { socket.serve(local).await });
    }

    /// Serves health and metrics on a port of loopback.
    pub fn serve_health(&mut self, address: SocketAddr) {
        self.tasks.spawn(serve_loopback(address, Arc::clone(&self.local)));
    }

    /// Serves the kubelet's API to clients on the network that the cluster's API server lets in.
    pub async fn serve_https(&self, settings: HttpsSettings, cluster: &ClusterThread) -> io::Result<HttpsThread> {
        HttpsThread::start(settings, cluster.api(), Arc::clone(&self.local)).await
    }

    /// Serves on a new socket where the one before was: its directory was deleted.
    pub async fn serve_again(&mut self, path: &Path) {
        if let Ok(Some(socket)) = agent_socket(path).await {
            self.serve(socket);
        }
    }

    /// Stops serving. Returns when no request is being answered.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// The agent's socket. That another agent has it is an error; that it cannot be made is none: the pods come first.
pub async fn agent_socket(path: &Path) -> Result<Option<Listener>, BindError> {
    match Listener::bind(path).await {
        Ok(listener) => Ok(Some(listener)),
        Err(error @ BindError::Taken { .. }) => Err(error),
        Err(error) => {
            tracing::warn!(%error, "cannot serve the local API: keelet get, describe, logs and exec will not find this agent");
            Ok(None)
        }
    }
}
