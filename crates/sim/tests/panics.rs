//! A defect in one attempt stays in that attempt. In real time, with tokio's own tasks: the simulated ones call every
//! panic a broken promise.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use keelet_agent::{Agent, Doors, Extent, Wanted};
use keelet_launch::NodeFacts;
use keelet_lifecycle::status::ConditionType;
use keelet_pod::parse_one;
use keelet_prober::{Connection, Dial};
use keelet_sim::{bare_agent, bare_runtime};

/// The port whose attempts panic.
const DEFECT: u16 = 1;

/// A door with a defect: a connection to one port panics, all others succeed.
#[derive(Debug, Default)]
struct Defective {
    panics: AtomicUsize,
    passes: AtomicUsize,
}

impl Dial for Defective {
    fn connect<'a>(&'a self, _: &'a str, _: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
        Box::pin(async move {
            if port == DEFECT {
                self.panics.fetch_add(1, Ordering::Relaxed);
                panic!("a defect, on purpose");
            }
            self.passes.fetch_add(1, Ordering::Relaxed);
            Ok(Box::new(tokio::io::duplex(1).0) as Box<dyn Connection>)
        })
    }
}

const POD: &str = "apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: main
    image: app:1
    livenessProbe: {tcpSocket: {port: 1}, initialDelaySeconds: 1, periodSeconds: 1, failureThreshold: 1}
    readinessProbe: {tcpSocket: {port: 2}, periodSeconds: 1}
";

/// PROBE-8: a panic in an attempt ends that attempt and is told as one that could not be made. The agent, the pod and
/// its other probes go on, and the probe itself is tried again.
#[tokio::test]
async fn a_panic_in_one_attempt_ends_that_attempt_only_and_is_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let dial = Arc::new(Defective::default());
    let facts = NodeFacts { name: "node".to_owned(), ..NodeFacts::default() };
    let (real, settings, _) = bare_agent(path, &path.join("volatile"), bare_runtime(1), facts);
    let doors = Doors { dial: Arc::clone(&dial) as Arc<dyn Dial>, ..real };
    let agent = Agent::start(doors, settings).await.expect("an agent");
    let pod = Arc::new(parse_one(POD).expect("a valid pod"));
    agent.set_pods([(pod.uid.clone(), Wanted::new(pod))].into(), Extent::Complete);

    // Three at once are one round; a fourth is the next period's.
    let enough = || dial.panics.load(Ordering::Relaxed) >= 4 && dial.passes.load(Ordering::Relaxed) >= 3;
    tokio::time::timeout(Duration::from_secs(60), async {
        while !enough() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("both probes go on");
    let statuses = agent.board().statuses();
    let status = &statuses.values().next().expect("a status").status;
    assert!(status.is_true(&ConditionType::Ready), "{status:?}");
    assert_eq!(
        status.container_statuses[0].restart_count, 0,
        "a liveness probe that could not be run kills no container"
    );
    let told = agent.board().events();
    let reported =
        told.iter().any(|told| told.event.reason == "Unhealthy" && told.event.message.contains("defect of keelet"));
    assert!(reported, "{told:?}");
    agent.stop().await;
}
