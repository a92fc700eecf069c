//! A node for tests of the agent's own parts: the real agent, host and ledger in a directory of the test, over a runtime that
//! can be made to wait or to fail at any call. What takes crashes, time and chance belongs into the simulation.

mod disk;
mod runtime;

use std::{num::NonZeroUsize, path::Path, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use keelet_host::{Layout, NoObjects, ObjectStore, OsHost};
use keelet_ledger::{Disk, Ledger, OsDisk, PodCommit, PodRef};
use keelet_lifecycle::{BootId, Evidence, Moment, Wall, node::NodeProbe, status::ConditionType};
use keelet_pod::{Features, Pod, Taint};
use keelet_prober::{Dial, TcpDial};
use tempfile::TempDir;
use tokio::time::Instant;

pub(crate) use self::{disk::FaultyDisk, runtime::FakeRuntime};
use crate::{
    Agent, Doors, Settings, Wanted, WantedPods,
    board::Board,
    doors::{Clock, Tasks},
    node::Gating,
};

const BOOT: BootId = BootId::from_u128(1);

/// A node without an agent.
pub(crate) struct Bed {
    pub(crate) runtime: FakeRuntime,
    /// Pulls that an agent may have under way at once.
    pub(crate) parallel_pulls: Option<NonZeroUsize>,
    /// Probes of components of the node, and gates that hold pods back.
    pub(crate) node_probes: Vec<NodeProbe>,
    pub(crate) gates: Vec<Taint>,
    /// How probes connect.
    pub(crate) dial: Arc<dyn Dial>,
    /// Where pods find config maps and secrets.
    pub(crate) objects: Arc<dyn ObjectStore>,
    clock: Arc<TestClock>,
    directory: TempDir,
}

/// A clock that reads tokio's time, which tests pause.
#[derive(Debug)]
pub(crate) struct TestClock(Instant);

/// Tasks on the test's own runtime. What blocks is done in place, so that no time passes meanwhile.
#[derive(Debug)]
pub(crate) struct InPlace;

/// A pod of one container `main`, in the namespace `default`.
pub(crate) fn pod(name: &str, uid: &str) -> Arc<Pod> {
    pod_of(&format!("metadata: {{name: {name}, uid: {uid}}}\nspec: {{containers: [{{name: main, image: app}}]}}\n"))
}

/// A pod of which kind and version go without saying.
pub(crate) fn pod_of(manifest: &str) -> Arc<Pod> {
    let pod = keelet_pod::parse_one(&format!("apiVersion: v1\nkind: Pod\n{manifest}"));
    Arc::new(pod.unwrap_or_else(|report| panic!("bad manifest: {report}")))
}

/// These pods and no others.
pub(crate) fn wanted(pods: &[&Arc<Pod>]) -> WantedPods {
    pods.iter().map(|pod| (pod.uid.clone(), Wanted::new(Arc::clone(pod)))).collect()
}

// === impl Bed ===

impl Bed {
    pub(crate) fn new() -> Self {
        Self {
            runtime: FakeRuntime::default(),
            parallel_pulls: None,
            node_probes: Vec::new(),
            gates: Vec::new(),
            dial: Arc::new(TcpDial::default()),
            objects: Arc::new(NoObjects),
            clock: Arc::new(TestClock(Instant::now())),
            directory: tempfile::tempdir().expect("a directory"),
        }
    }

    /// Where everything of this node is: `logs`, `kubelet`, `ledger`, `run`.
    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }

    fn ledger_settings(&self) -> keelet_ledger::Settings {
        let root = self.root();
        keelet_ledger::Settings::new(root.join("ledger"), root.join("run"), BOOT)
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// The ledger, which no agent has open.
    pub(crate) fn ledger(&self) -> keelet_ledger::Opened<OsDisk> {
        Ledger::open(self.ledger_settings()).expect("no agent has it")
    }

    /// What an earlier agent left of a pod: its evidence, and a copy of the pod where one is given.
    pub(crate) fn remember(&self, pod: &Pod, evidence: Evidence, copy: Option<&Pod>) {
        let mut ledger = self.ledger().ledger;
        let reference = PodRef { uid: pod.uid.clone(), namespace: pod.namespace.clone(), name: pod.name.clone() };
        let now = self.clock.now();
        let entry = PodCommit { pod: &reference, evidence: &Arc::new(evidence), results: &[], why: None };
        assert!(ledger.commit(&entry, now).expect("a good UID").durable.is_written());
        if let Some(copy) = copy {
            let json = copy.to_json().expect("a pod is JSON");
            assert!(ledger.keep_pod(&reference, &json, now).expect("a good UID").is_written());
        }
        assert!(ledger.stop(now).is_empty());
    }

    /// The UIDs of the pods that an agent would find in the ledger if it started now.
    pub(crate) fn remembered(&self) -> Vec<String> {
        let settings = self.ledger_settings();
        let snapshot = keelet_ledger::Snapshot::take(&settings.durable_root, &settings.volatile_root, BOOT);
        snapshot.pods.into_iter().map(|pod| pod.uid).collect()
    }

    pub(crate) async fn agent(&self) -> Agent {
        self.agent_on(OsDisk).await
    }

    /// An agent whose ledger is on that disk.
    pub(crate) async fn agent_on<D: Disk + Send + 'static>(&self, disk: D) -> Agent {
        let root = self.root();
        let doors = Doors {
            runtime: keelet_cri::Runtime::in_process(self.runtime.clone(), self.runtime.clone()),
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            dial: Arc::clone(&self.dial),
            disk,
            host: Arc::new(
                OsHost::new(Layout::new(root.join("kubelet"), root.join("logs")))
                    .with_objects(Arc::clone(&self.objects)),
            ),
            publisher: None,
            observer: None,
            tasks: Arc::new(InPlace),
        };
        let settings = Settings {
            probe_limit: 4,
            parallel_pulls: self.parallel_pulls,
            node_probes: self.node_probes.clone(),
            gating: Gating { gates: self.gates.clone(), built_in: Vec::new() },
            ..Settings::new(Features::default(), self.ledger_settings())
        };
        Agent::start(doors, settings).await.expect("an agent")
    }
}

/// Whether the condition Ready of a pod is True on the board.
pub(crate) fn is_ready(board: &Board, uid: &str) -> bool {
    board.statuses().get(uid).is_some_and(|published| published.status.is_true(&ConditionType::Ready))
}

/// Lets that much of the test's time pass. Everything that happens within it has happened afterwards.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

// === impl TestClock ===

impl Clock for TestClock {
    fn now(&self) -> Moment {
        let since = i64::try_from(self.0.elapsed().as_millis()).expect("tests are short");
        Moment { boot_ms: 1_000_000 + since, wall: Wall::from_millis(1_800_000_000_000 + since), boot_id: BOOT }
    }
}

// === impl InPlace ===

impl Tasks for InPlace {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        drop(tokio::spawn(task));
    }

    fn block(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        Box::pin(async move { work() })
    }
}
