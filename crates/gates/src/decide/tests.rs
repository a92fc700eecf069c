//! Tables and properties of decisions.

mod continuous;
mod declared;
mod properties;
mod ruled;

use std::collections::BTreeSet;

use super::*;
use crate::{
    node::{Interest, Reader, Version},
    testing::{merge, now, to_json},
};

/// The gate that most tests are about.
const CNI: &str = "readiness.k8s.io/CNIReady";

/// Decides by default settings, without rules.
fn decide_alone(node: &Node) -> Decision {
    decide_with(node, &Settings::default(), &Rules::default(), Room::Free)
}

fn decide_with(node: &Node, settings: &Settings, rules: &Rules, room: Room) -> Decision {
    decide_seeing(node, settings, rules, &[], room)
}

/// The same by a process that has seen rules select the node.
fn decide_seeing(node: &Node, settings: &Settings, rules: &Rules, seen: &[Seen], room: Room) -> Decision {
    decide(node, &Circumstances { rules, settings, seen, room, now: now() })
}

/// The node after the API server has applied a decision's patch.
fn apply(node: &Node, decision: &Decision) -> Node {
    let mut json = to_json(node);
    let patch = decision.edit.patch(node);
    assert_eq!(patch["metadata"]["uid"], json["metadata"]["uid"]);
    assert_eq!(patch["metadata"]["resourceVersion"], json["metadata"]["resourceVersion"]);
    merge(&mut json, &patch);
    let labels: BTreeSet<_> = node.labels.iter().map(|(key, _)| key.to_string()).collect();
    let mut reader = Reader::new(Interest { labels, ..Interest::default() });
    let mut after = reader.node(json.to_string().as_bytes()).unwrap();
    after.version = Version::new(&(node.version.as_str().parse::<u64>().unwrap() + 1).to_string());
    after
}

/// The taints of a node, as people write them.
fn taints(node: &Node) -> Vec<String> {
    node.taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect()
}

/// The state of the only gate.
fn only(decision: &Decision) -> &State {
    let [verdict] = &decision.verdicts[..] else { panic!("one gate expected: {decision:?}") };
    &verdict.state
}

/// The state of the gate of this key.
fn of<'a>(decision: &'a Decision, key: &str) -> &'a State {
    let found = decision.verdicts.iter().find(|verdict| &*verdict.gate.key == key);
    &found.unwrap_or_else(|| panic!("no verdict on {key}: {decision:?}")).state
}
