//! The agent of `keelet run`: in this process, in directories of its own, with the pods that were named.

mod place;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use keelet_agent::{
    Extent, Feed, ImageRules, Settings, Upkeep, Wanted, WantedPods,
    board::{Board, Published, Recall},
    clock::OsClock,
    node::Machine,
};
use keelet_host::Layout;
use keelet_lifecycle::{evidence::RunningInstance, observed::Deletion};
use keelet_pod::{Features, Pod};
use keelet_serve::{BindError, DeleteError, DesiredPods, Listener, api::Pulling};

use self::place::OwnDirectory;
pub(crate) use self::place::PREFIX;
pub use self::place::{Place, PlaceError};
use crate::{
    assembly::{Assembled, Assembly, AssemblyError, Servers},
    embedded::ChosenRuntime,
};

/// The agent of a run and all that belongs to it.
#[derive(Debug)]
pub struct Run {
    node: Assembled,
    servers: Servers,
    /// In the order of the files.
    pods: Vec<Arc<Pod>>,
    /// The socket on which other commands reach these pods, or why there is none.
    socket: Result<PathBuf, BindError>,
    desired: Arc<Desired>,
    // Removed with it, unless it was named.
    _directory: Option<OwnDirectory>,
}

/// What is wanted to run.
#[derive(Debug)]
struct Desired {
    feed: Feed,
    /// What it means for other pods.
    extent: Extent,
    wanted: Mutex<WantedPods>,
}

/// Images may be those of the node, and which of them it needs is not for a run to say. No disk is that full.
const NO_COLLECTION: ImageRules =
    ImageRules { high_percent: 101, low_percent: 100, minimum_age: Duration::ZERO, maximum_age: None };

// === impl Run ===

impl Run {
    /// Starts the agent, and the pods with it.
    pub async fn start(
        runtime: ChosenRuntime,
        pods: Vec<Pod>,
        features: Features,
        place: Place,
        objects: &Path,
    ) -> Result<Self, AssemblyError> {
        let Place { paths, directory } = place;
        let base = &paths.root_dir;
        let pods: Vec<Arc<Pod>> = match &directory {
            // Whatever an earlier run left in the runtime has nothing to do with this one.
            Some(directory) => pods.into_iter().map(|pod| Arc::new(of_this_run(pod, directory.path()))).collect(),
            None => pods.into_iter().map(Arc::new).collect(),
        };
        // The embedded runtime has nothing but what runs on this very directory have put there, and what is left of an
        // earlier one has to go. What else is in another runtime belongs to others.
        let extent = if runtime.images.is_some() { Extent::Complete } else { Extent::Partial };
        let facts = Machine::this().facts(None, None, base);
        let usual = Assembly::new(&paths, facts, features, runtime)?;
        let assembly = Assembly {
            layout: Layout::new(base, base.join("logs")),
            objects: objects.to_owned(),
            settings: Settings {
                recall: Recall::ThisRun,
                upkeep: Upkeep { images: NO_COLLECTION, ..Upkeep::default() },
                ..usual.settings
            },
            ..usual
        };
        let node = assembly.start().await?;
        let wanted = pods.iter().map(|pod| (pod.uid.clone(), Wanted::new(Arc::clone(pod)))).collect();
        let desired = Arc::new(Desired { feed: node.agent.source(), extent, wanted: Mutex::new(wanted) });
        desired.publish();
        let mut servers = node.servers(Arc::clone(&desired) as Arc<dyn DesiredPods>);
        // Others can look at these pods too. The pods run without them.
        let socket = Listener::bind(paths.socket()).await.map(|listener| {
            let socket = listener.path().to_owned();
            servers.serve(listener);
            socket
        });
        Ok(Self { node, servers, pods, socket, desired, _directory: directory })
    }

    /// Whether a pod is one of this run.
    fn runs(&self, uid: &str) -> bool {
        self.pods.iter().any(|pod| pod.uid == uid)
    }

    /// Stops the agent.
    pub async fn stop(self) {
        self.servers.stop().await;
        self.node.agent.stop().await;
    }

    /// Its pods, in the order of the files.
    pub fn pods(&self) -> &[Arc<Pod>] {
        &self.pods
    }

    /// The newest statuses, events and probe results of the pods.
    pub fn board(&self) -> &Arc<Board> {
        self.node.agent.board()
    }

    /// Its clock.
    pub fn clock(&self) -> &OsClock {
        &self.node.clock
    }

    /// Where the logs are.
    pub fn layout(&self) -> &Layout {
        &self.node.layout
    }

    /// The socket on which other commands reach these pods, or why there is none.
    pub fn socket(&self) -> Result<&Path, &BindError> {
        self.socket.as_deref()
    }

    /// The containers of a pod that run, and what their probes have shown.
    pub fn instances(&self, pod: &Pod) -> BTreeMap<String, Box<RunningInstance>> {
        self.board().evidence(&pod.uid).map(|evidence| evidence.volatile.instances.clone()).unwrap_or_default()
    }

    /// The images that are being pulled.
    pub fn pulling(&self) -> Vec<Pulling> {
        self.node.images.as_ref().map(|images| images.pulling()).unwrap_or_default()
    }

    /// Deletes all pods, with their grace periods.
    pub fn dismiss(&self) {
        self.desired.change(WantedPods::clear);
    }

    /// Kills all pods at once.
    pub fn kill(&self) {
        let deletion = Some(Deletion { grace: Duration::ZERO });
        let wanted = |pod: &Arc<Pod>| Wanted { deletion: deletion.clone(), ..Wanted::new(Arc::clone(pod)) };
        // One that is gone already would be started again to be killed.
        let here = self.board().statuses();
        let ours =
            |published: &&Arc<Published>| self.desired.extent == Extent::Complete || self.runs(&published.pod.uid);
        let pods = here.values().filter(ours).map(|published| &published.pod);
        let killed: WantedPods = pods.map(|pod| (pod.uid.clone(), wanted(pod))).collect();
        self.desired.change(|desired| *desired = killed);
    }

    /// Whether what is here of a pod was left by an earlier run on the same directory: either this one does not have it,
    /// or wants it to run while it is on its way out.
    pub fn is_of_earlier_run(&self, published: &Published) -> bool {
        let uid = &published.pod.uid;
        !self.runs(uid) || self.desired.is_left_over(published)
    }

    /// A test for whether a pod of this run has begun. What an earlier run has left of it does not count.
    pub fn has_begun(&self, uid: &str) -> Box<dyn Fn() -> bool + Send> {
        let (board, desired, uid) = (Arc::clone(self.board()), Arc::clone(&self.desired), uid.to_owned());
        Box::new(move || board.statuses().get(&uid).is_some_and(|published| !desired.is_left_over(published)))
    }

    /// Whether nothing is left of pods that have to go, also those of an earlier run.
    pub fn is_clear(&self) -> bool {
        self.desired.extent == Extent::Partial || self.node.agent.is_empty()
    }
}

// === impl Desired ===

impl Desired {
    fn change(&self, change: impl FnOnce(&mut WantedPods)) {
        change(&mut self.wanted.lock().unwrap_or_else(PoisonError::into_inner));
        self.publish();
    }

    fn publish(&self) {
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.feed.set(wanted, self.extent);
    }

    /// Whether a pod is on its way out although it is wanted to run.
    fn is_left_over(&self, published: &Published) -> bool {
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let is_to_run = || wanted.get(&published.pod.uid).is_some_and(|wanted| wanted.deletion.is_none());
        published.leaving.is_some() && is_to_run()
    }
}

impl DesiredPods for Desired {
    fn wanted(&self) -> Option<Vec<(String, String)>> {
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        Some(wanted.values().map(|wanted| (wanted.pod.namespace.clone(), wanted.pod.name.clone())).collect())
    }

    fn delete(&self, pod: &Published) -> Result<(), DeleteError> {
        self.change(|wanted| drop(wanted.remove(&pod.pod.uid)));
        Ok(())
    }
}

/// The pod under a UID that no other run has: its own, and the name of the run's directory.
fn of_this_run(pod: Pod, directory: &Path) -> Pod {
    let run =
        directory.file_name().map(|name| name.to_string_lossy().replace(|c: char| !c.is_ascii_alphanumeric(), ""));
    let uid = format!("{}-{}", pod.uid, run.unwrap_or_default().trim_start_matches("keeletrun").to_lowercase());
    pod.with_uid(&uid)
}
