//! An agent in this process, in directories of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use keelet_agent::{
    Agent, Extent, Feed, ImageRules, Settings, Upkeep, Wanted, WantedPods,
    board::{Board, Published, Recall},
    clock::OsClock,
    doors::Clock,
};
use keelet_cli::{
    paths::{Paths, absolute},
    rules,
    run::{self as view, Lives},
};
use keelet_host::{Layout, LocalObjects, OsHost, remove_directory};
use keelet_ledger::Snapshot;
use keelet_lifecycle::observed::Deletion;
use keelet_pod::{Features, Pod};
use keelet_serve::{BindError, Images, Listener, Local, Source, api::Pulling};
use tokio::task::JoinSet;

use super::leftovers::PREFIX;
use crate::{agent, embedded::Choice};

/// The agent and all that belongs to it.
#[derive(Debug)]
pub(super) struct Node {
    agent: Arc<Agent>,
    clock: Arc<OsClock>,
    layout: Layout,
    /// In the order of the files.
    pods: Vec<Arc<Pod>>,
    /// The socket on which other commands reach these pods, or why there is none.
    socket: Result<PathBuf, BindError>,
    images: Option<Arc<dyn Images>>,
    desired: Arc<Desired>,
    served: JoinSet<()>,
    // Removed with it, unless it was named.
    _directory: Option<OwnDirectory>,
}

/// The directories of one run.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) paths: Paths,
    directory: Option<OwnDirectory>,
}

/// A directory that goes with the run. Pods that could not be waited for may have mounts in it, of directories of the node
/// among others, so what is mounted is unmounted and never emptied.
#[derive(Debug)]
struct OwnDirectory(PathBuf);

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

const NO_CLOCK: &str = "the clock of this machine cannot be used";

/// Probe attempts at once: what a node allows.
const PROBES: usize = 64;

// === impl OwnDirectory ===

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        if let Err(error) = remove_directory(&self.0) {
            tracing::warn!(%error, "something of the run stays");
        }
    }
}

// === impl Place ===

impl Place {
    /// The directory that was named, or one that goes with the run.
    pub(super) fn of(root: Option<&Path>) -> Result<Self> {
        let (base, directory) = match root {
            Some(root) => (made(not_of_an_agent(absolute("--root-dir", root)?)?)?, None),
            None => {
                let made = tempfile::Builder::new().prefix(PREFIX).tempdir();
                let made = made.context("no temporary directory for the pods")?;
                let own = OwnDirectory(made.keep());
                (own.0.clone(), Some(own))
            }
        };
        Ok(Self { paths: Paths::of_run(&base), directory })
    }
}

// === impl Node ===

impl Node {
    pub(super) async fn start(
        choice: Choice,
        pods: Vec<Pod>,
        features: Features,
        place: Place,
        objects: &Path,
    ) -> Result<Self> {
        let Choice { runtime, images } = choice;
        let Place { paths, directory } = place;
        let base = paths.root_dir.clone();
        let pods: Vec<Arc<Pod>> = match &directory {
            // Whatever an earlier run left in the runtime has nothing to do with this one.
            Some(directory) => pods.into_iter().map(|pod| Arc::new(of_this_run(pod, &directory.0))).collect(),
            None => pods.into_iter().map(Arc::new).collect(),
        };
        // The embedded runtime has nothing but what runs on this very directory have put there, and what is left of an
        // earlier one has to go. What else is in another runtime belongs to others.
        let extent = if images.is_some() { Extent::Complete } else { Extent::Partial };
        let layout = Layout::new(&base, base.join("logs"));
        let clock = Arc::new(OsClock::new().context(NO_CLOCK)?);
        let facts = agent::facts::of_this_node(None, None, &base);
        let settings = Settings {
            rules: rules::of_node(&features)?,
            features,
            ledger: paths.ledger_settings(clock.now().boot_id),
            recall: Recall::ThisRun,
            probe_limit: PROBES,
            facts: facts.clone(),
            parallel_pulls: None,
            upkeep: Upkeep { images: NO_COLLECTION, ..Upkeep::default() },
        };
        let host =
            OsHost::new(layout.clone()).with_objects(Arc::new(LocalObjects::new(objects))).with_facts(facts.clone());
        let doors = agent::doors(&runtime, &clock, host)?;
        let agent = Arc::new(Agent::start(doors, settings).await?);
        let wanted = pods.iter().map(|pod| (pod.uid.clone(), Wanted::new(Arc::clone(pod)))).collect();
        let desired = Arc::new(Desired { feed: agent.source(), extent, wanted: Mutex::new(wanted) });
        desired.tell();
        let local = Local {
            agent: Arc::clone(&agent),
            runtime,
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            layout: layout.clone(),
            facts,
            started: clock.now(),
            source: Arc::clone(&desired) as Arc<dyn Source>,
            images: images.clone(),
        };
        let mut served = JoinSet::new();
        // Others can look at these pods too. The pods run without them.
        let socket = Listener::bind(paths.socket()).await.map(|listener| {
            let socket = listener.path().to_owned();
            served.spawn(async move { listener.serve(Arc::new(local)).await });
            socket
        });
        Ok(Self { agent, clock, layout, pods, socket, images, desired, served, _directory: directory })
    }

    /// Whether a pod is one of this run.
    fn runs(&self, uid: &str) -> bool {
        self.pods.iter().any(|pod| pod.uid == uid)
    }

    /// Stops the agent.
    pub(super) async fn stop(mut self) {
        self.served.shutdown().await;
        self.agent.stop().await;
    }
}

impl view::Node for Node {
    fn pods(&self) -> &[Arc<Pod>] {
        &self.pods
    }

    fn board(&self) -> &Arc<Board> {
        self.agent.board()
    }

    fn clock(&self) -> &OsClock {
        &self.clock
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn socket(&self) -> Result<&Path, &BindError> {
        self.socket.as_deref()
    }

    fn lives(&self, pod: &Pod) -> Lives {
        self.board().evidence(&pod.uid).map(|evidence| evidence.volatile.lives.clone()).unwrap_or_default()
    }

    fn pulling(&self) -> Vec<Pulling> {
        self.images.as_ref().map(|images| images.pulling()).unwrap_or_default()
    }

    fn dismiss(&self) {
        self.desired.change(WantedPods::clear);
    }

    fn kill(&self) {
        let deletion = Some(Deletion { grace: Duration::ZERO });
        let wanted = |pod: &Arc<Pod>| Wanted { deletion: deletion.clone(), ..Wanted::new(Arc::clone(pod)) };
        // One that is gone already would come back to life to be killed.
        let here = self.board().statuses();
        let ours =
            |published: &&Arc<Published>| self.desired.extent == Extent::Complete || self.runs(&published.pod.uid);
        let pods = here.values().filter(ours).map(|published| &published.pod);
        let killed: WantedPods = pods.map(|pod| (pod.uid.clone(), wanted(pod))).collect();
        self.desired.change(|desired| *desired = killed);
    }

    fn is_of_earlier_run(&self, published: &Published) -> bool {
        let uid = &published.pod.uid;
        !self.runs(uid) || self.desired.is_left_over(published)
    }

    fn has_begun(&self, uid: &str) -> Box<dyn Fn() -> bool + Send> {
        let (board, desired, uid) = (Arc::clone(self.board()), Arc::clone(&self.desired), uid.to_owned());
        Box::new(move || board.statuses().get(&uid).is_some_and(|published| !desired.is_left_over(published)))
    }

    fn is_clear(&self) -> bool {
        self.desired.extent == Extent::Partial || self.agent.is_empty()
    }
}

// === impl Desired ===

impl Desired {
    fn change(&self, change: impl FnOnce(&mut WantedPods)) {
        change(&mut self.wanted.lock().unwrap_or_else(PoisonError::into_inner));
        self.tell();
    }

    fn tell(&self) {
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

impl Source for Desired {
    fn wanted(&self) -> Option<Vec<(String, String)>> {
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        Some(wanted.values().map(|wanted| (wanted.pod.namespace.clone(), wanted.pod.name.clone())).collect())
    }

    fn delete(&self, pod: &Published) -> Result<(), String> {
        self.change(|wanted| drop(wanted.remove(&pod.pod.uid)));
        Ok(())
    }
}

/// The directory, if no agent has it. A run does not know what is in an agent's runtime, which has its state elsewhere: it
/// would take the agent's pods for gone, and remove their volumes while their containers run on.
fn not_of_an_agent(root: PathBuf) -> Result<PathBuf> {
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if real(&root) == real(Path::new(Paths::ROOT)) {
        bail!("--root-dir: {} is that of the node's agent; a run needs one of its own", root.display());
    }
    let paths = Paths::of_run(&root);
    // An earlier run has left its state there, an agent has not.
    if paths.state_dir.is_dir() {
        return Ok(root);
    }
    let clock = OsClock::new().context(NO_CLOCK)?;
    let keelet_ledger::Settings { durable_root, volatile_root, boot_id, .. } =
        paths.ledger_settings(clock.now().boot_id);
    if !Snapshot::take(&durable_root, &volatile_root, boot_id).pods.is_empty() {
        bail!("--root-dir: {} has pods of an agent in it; a run needs a directory of its own", root.display());
    }
    Ok(root)
}

fn made(root: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&root).with_context(|| format!("--root-dir: {} cannot be made", root.display()))?;
    Ok(root)
}

/// The pod under a UID that no other run has: its own, and the name of the run's directory.
fn of_this_run(pod: Pod, directory: &Path) -> Pod {
    let run =
        directory.file_name().map(|name| name.to_string_lossy().replace(|c: char| !c.is_ascii_alphanumeric(), ""));
    let uid = format!("{}-{}", pod.uid, run.unwrap_or_default().trim_start_matches("keeletrun").to_lowercase());
    pod.with_uid(&uid)
}
