//! The engine against an API server in a map: every order of events is a test.

mod answers;
mod budget;
mod flow;
mod objects;

use std::collections::BTreeSet;

use jiff::SignedDuration;
use serde_json::Value;

use super::*;
use crate::{
    node::{Interest, Reader, Status},
    testing::{Builder, merge, node, now as test_time, to_json},
};

const GATE: &str = "readiness.k8s.io/A:NoSchedule";

/// An engine, the nodes of an API server, and a clock.
struct Bed {
    engine: Engine,
    metrics: Arc<Metrics>,
    server: BTreeMap<Text, Node>,
    version: u64,
    at: Duration,
}

/// What the API server does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Answers it.
    Answered,
    /// Does it, and the answer is lost.
    AnswerLost,
    /// Never gets it.
    RequestLost,
}

impl Bed {
    fn new(settings: Settings) -> Self {
        Self::in_mode(settings, Mode::Act)
    }

    fn in_mode(settings: Settings, mode: Mode) -> Self {
        let metrics = Arc::new(Metrics::new());
        let engine = Engine::new(settings, mode, Arc::clone(&metrics));
        Self { engine, metrics, server: BTreeMap::new(), version: 100, at: Duration::from_secs(1000) }
    }

    /// One that leads and knows these nodes.
    fn leading(settings: Settings, nodes: impl IntoIterator<Item = Node>) -> Self {
        let mut bed = Self::new(settings);
        for node in nodes {
            bed.write(node);
        }
        let now = bed.now();
        bed.engine.set_rules(Rules::default(), now);
        bed.engine.lead(true, now);
        bed.engine.count_anew();
        bed.list();
        bed
    }

    fn now(&self) -> Now {
        let since = SignedDuration::try_from(self.at - Duration::from_secs(1000)).unwrap();
        Now { at: self.at, wall: test_time() + since }
    }

    fn pass(&mut self, time: Duration) {
        self.at += time;
    }

    /// A change by someone else, which the engine does not see yet.
    fn write(&mut self, node: Node) -> Node {
        self.version += 1;
        let node = Node { version: Version::new(&self.version.to_string()), ..node };
        self.server.insert(Text::clone(&node.name), node.clone());
        node
    }

    /// A change by someone else, which a watch reports.
    fn change(&mut self, node: Node) {
        let node = self.write(node);
        let now = self.now();
        self.engine.observe(node, now);
    }

    /// A condition of a node changes.
    fn report(&mut self, name: &str, kind: &str, status: Status) {
        let wall = self.now().wall;
        let node = Builder::from(self.server[name].clone()).condition_since(kind, status, wall).build();
        self.change(node);
    }

    fn list(&mut self) {
        let now = self.now();
        self.engine.list_begins(false);
        for node in self.server.values().cloned() {
            self.engine.listed(node, now);
        }
        self.engine.list_ends(now);
    }

    fn next(&mut self) -> Option<Call> {
        let now = self.now();
        let call = self.engine.next(now);
        if call.is_none() && self.engine.rules().list.is_empty() {
            let wake_at = self.engine.wake_at();
            assert!(wake_at.is_none_or(|at| at > now.at), "it would be asked again and again: {wake_at:?}");
        }
        call
    }

    /// What the API server does with a request.
    fn serve(&mut self, call: &Call) -> Outcome {
        let Some(node) = self.server.get(&call.node).cloned() else { return Outcome::NotFound };
        let Request::Patch(patch) = &call.request else { return Outcome::Node(Box::new(node)) };
        let mut patch: Value = serde_json::from_slice(patch).unwrap();
        let metadata = patch["metadata"].as_object_mut().unwrap();
        let (uid, version) = (metadata.remove("uid").unwrap(), metadata.remove("resourceVersion").unwrap());
        if uid != *node.uid || version != node.version.as_str() {
            return Outcome::Conflict;
        }
        let mut json = to_json(&node);
        merge(&mut json, &patch);
        let labels: BTreeSet<_> = node.labels.iter().map(|(key, _)| key.to_string()).collect();
        let mut reader = Reader::new(Interest { labels, ..Interest::default() });
        let node = reader.node(json.to_string().as_bytes()).unwrap();
        Outcome::Node(Box::new(self.write(node)))
    }

    fn finish(&mut self, call: &Call, outcome: Outcome) {
        let now = self.now();
        self.engine.finished(call.id, &call.node, outcome, now);
    }

    /// Serves the next request; whether there was one.
    fn turn(&mut self, fate: Fate) -> Option<Call> {
        let call = self.next()?;
        let outcome = if fate == Fate::RequestLost { None } else { Some(self.serve(&call)) };
        let lost = || Outcome::Unavailable("lost".to_owned());
        self.finish(&call, outcome.filter(|_| fate == Fate::Answered).unwrap_or_else(lost));
        Some(call)
    }

    /// Serves requests until there are no more, and returns them.
    fn settle(&mut self) -> Vec<Call> {
        let calls: Vec<_> = std::iter::from_fn(|| self.turn(Fate::Answered)).take(1000).collect();
        assert!(calls.len() < 1000, "it never ends");
        calls
    }

    /// Serves requests, and lets time pass where the engine waits, for at most this long.
    fn settle_in_time(&mut self, time: Duration) -> Vec<Call> {
        let end = self.at + time;
        let mut calls = self.settle();
        while let Some(at) = self.engine.wake_at().filter(|at| *at <= end) {
            self.at = self.at.max(at) + Duration::from_millis(1);
            calls.extend(self.settle());
        }
        self.at = end;
        calls
    }

    fn taints(&self, name: &str) -> Vec<String> {
        self.server[name].taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect()
    }

    /// What was said since the last time, by node and reason.
    fn said(&mut self) -> Vec<String> {
        self.engine.said().iter().map(|said| format!("{} {}", said.node, said.report.reason)).collect()
    }

    /// The value of a metric that has no labels, or is written with them.
    fn metric(&self, name: &str) -> String {
        let text = self.metrics.encode();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}")).to_owned()
    }
}

/// A node with the gate A.
fn gated(name: &str, status: Status) -> Node {
    node(name).taint(GATE).labelled("readiness.k8s.io/A", "true").condition("A", status).build()
}
