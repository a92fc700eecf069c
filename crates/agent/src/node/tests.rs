//! A node whose component comes up late: what the node says of it, and which pods wait.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use futures::{FutureExt, future::BoxFuture};
use keelet_lifecycle::status::ConditionType;
use keelet_pod::{Handler, HttpGet, HttpProtocol, PortRef, Probe, Scheme};
use keelet_prober::{Connection, Dial};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::{
    Agent, Extent,
    bed::{Bed, is_ready, pass, pod_of, wanted},
};

const KIND: &str = "example.com/NetworkReady";
const GATE: &str = "readiness.k8s.io/NetworkReady:NoSchedule";

/// A component that answers over HTTP while it is up.
#[derive(Debug, Default)]
struct Component {
    up: AtomicBool,
    asked: AtomicUsize,
}

impl Component {
    fn set(&self, up: bool) {
        self.up.store(up, Ordering::Relaxed);
    }
}

impl Dial for Component {
    fn connect<'a>(&'a self, _: &'a str, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if !self.up.load(Ordering::Relaxed) {
            return async { Err(io::ErrorKind::ConnectionRefused.into()) }.boxed();
        }
        let (ours, mut theirs) = tokio::io::duplex(4096);
        drop(tokio::spawn(async move {
            let mut request = [0; 1024];
            let _ = theirs.read(&mut request).await;
            let _ = theirs.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").await;
        }));
        async { Ok(Box::new(ours) as Box<dyn Connection>) }.boxed()
    }
}

fn network() -> NodeProbe {
    let get = HttpGet {
        host: None,
        port: PortRef::Number(9090),
        path: "/healthz".to_owned(),
        scheme: Scheme::Http,
        headers: Vec::new(),
        protocol: HttpProtocol::Http1,
    };
    NodeProbe {
        name: "network".to_owned(),
        condition: KIND.to_owned(),
        probe: Probe {
            handler: Handler::HttpGet(get),
            initial_delay: Duration::ZERO,
            timeout: Duration::from_secs(1),
            period: Duration::from_secs(2),
            success_threshold: 1,
            failure_threshold: 3,
            termination_grace: None,
        },
    }
}

fn bed(component: &Arc<Component>) -> Bed {
    let mut bed = Bed::new();
    bed.node_probes = vec![network()];
    bed.gates = vec![GATE.parse().expect("a taint")];
    bed.dial = Arc::clone(component) as Arc<dyn Dial>;
    bed
}

fn condition(agent: &Agent) -> Condition {
    let found = agent.node_conditions().into_iter().find(|condition| condition.kind == KIND);
    found.expect("the condition of the probe")
}

fn status(agent: &Agent) -> (ConditionStatus, String) {
    let Condition { status, reason, .. } = condition(agent);
    (status, reason)
}

fn pod(name: &str, tolerations: &str) -> Arc<Pod> {
    pod_of(&format!(
        "metadata: {{name: {name}, uid: {name}}}\nspec: {{tolerations: [{tolerations}], containers: [{{name: main, image: app}}]}}\n"
    ))
}

/// GATE-7, GATE-10, GATE-11, GATE-12, GATE-14, GATE-24: a pod that does not tolerate the gate waits until the component answers; one that does starts at once; a
/// component that fails later stops nothing, and changes the condition.
#[tokio::test(start_paused = true)]
async fn pods_wait_for_a_component_and_are_not_stopped_by_it() {
    let component = Arc::new(Component::default());
    let bed = bed(&component);
    let agent = bed.agent().await;
    let (web, cni, later) = (pod("web", ""), pod("cni", "{operator: Exists}"), pod("later", ""));
    agent.set_pods(wanted(&[&web, &cni]), Extent::Complete);
    pass(Duration::from_secs(1)).await;
    assert_eq!(status(&agent), (ConditionStatus::Unknown, "ProbePending".to_owned()));
    pass(Duration::from_secs(9)).await;
    assert_eq!(status(&agent), (ConditionStatus::False, "ProbeFailed".to_owned()));
    let board = Arc::clone(agent.board());
    assert!(is_ready(&board, "cni") && !is_ready(&board, "web"));
    let published = board.statuses()["web"].status.clone();
    let scheduled = published.condition(&ConditionType::PodScheduled).expect("a condition").message.clone();
    assert!(
        scheduled.is_some_and(|message| message.contains(GATE) && message.contains("ProbeFailed")),
        "{published:?}"
    );
    let taints = serde_json::to_value(agent.node()).expect("JSON")["spec"]["taints"].clone();
    assert_eq!(taints[0]["key"], "readiness.k8s.io/NetworkReady");

    component.set(true);
    pass(Duration::from_secs(5)).await;
    assert_eq!(status(&agent), (ConditionStatus::True, "ProbeSucceeded".to_owned()));
    assert_eq!(condition(&agent).message, "probe network (http://127.0.0.1:9090/healthz) passed");
    assert!(is_ready(&board, "web"), "{:?}", board.statuses()["web"].status);
    assert!(serde_json::to_value(agent.node()).expect("JSON")["spec"].is_null(), "the gate has passed");

    component.set(false);
    pass(Duration::from_secs(30)).await;
    assert_eq!(status(&agent), (ConditionStatus::False, "ProbeFailed".to_owned()));
    agent.set_pods(wanted(&[&web, &cni, &later]), Extent::Complete);
    pass(Duration::from_secs(5)).await;
    assert!(
        is_ready(&board, "web") && is_ready(&board, "later"),
        "a gate that has passed stays open until the next boot"
    );
    let events: Vec<String> = board
        .events()
        .iter()
        .filter(|told| told.involved.kind() == "Node")
        .map(|told| told.event.reason.clone())
        .collect();
    assert_eq!(events, ["NodeProbeFailed", "NodeProbeSucceeded", "NodeProbeFailed"]);
    pass(Duration::from_secs(700)).await;
    let again =
        board.events().iter().filter(|told| told.event.reason == "NodeProbeFailed").map(|told| told.event.count).max();
    assert_eq!(again, Some(3), "one that goes on failing is told of every ten minutes");
    let asked = component.asked.load(Ordering::Relaxed);
    pass(Duration::from_secs(10)).await;
    assert!(component.asked.load(Ordering::Relaxed) > asked, "probing never ends");
    agent.stop().await;
}

/// GATE-16, CLU-26, NODE-9: an agent restart changes no condition and no transition time, from the first moment on; gates that have passed stay
/// open.
#[tokio::test(start_paused = true)]
async fn an_agent_restart_changes_no_condition() {
    let component = Arc::new(Component::default());
    component.set(true);
    let bed = bed(&component);
    let mut agent = bed.agent().await;
    pass(Duration::from_secs(30)).await;
    let said = |agent: &Agent| -> Vec<_> {
        agent.node_conditions().into_iter().map(|c| (c.kind, c.status, c.reason, c.message, c.since)).collect()
    };
    let before = said(&agent);
    assert_eq!(before.iter().filter(|said| said.1 == ConditionStatus::Unknown).count(), 0, "{before:?}");
    for _ in 0..3 {
        agent.stop().await;
        drop(agent);
        // Its tasks end, and with them the lock of the ledger.
        pass(Duration::from_secs(1)).await;
        // The component does not answer the next agent's first attempts.
        component.set(false);
        agent = bed.agent().await;
        assert_eq!(said(&agent), before, "before anything was looked at");
        let web = pod("web", "");
        agent.set_pods(wanted(&[&web]), Extent::Complete);
        pass(Duration::from_secs(3)).await;
        assert_eq!(said(&agent), before, "after the first looks and attempts");
        assert!(is_ready(agent.board(), "web"), "the gate has passed in this boot");
        component.set(true);
        pass(Duration::from_secs(20)).await;
        assert_eq!(said(&agent), before, "after a verdict");
    }
    agent.stop().await;
}
