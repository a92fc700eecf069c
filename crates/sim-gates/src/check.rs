//! What a controller may do to a node, whatever happens.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use keelet_gates::settings::{Enforcement, MaxHeld, Settings};
use keelet_sim_api::{Clock, Identity, LogEntry, Write};
use serde_json::Value;

use crate::{
    rules,
    world::{GATE, World, taints, user},
};

/// The prefix of the taints that are gates.
const GATES: &str = "readiness.k8s.io/";

/// What no gate is about, and no controller may touch.
const FOREIGN_PARTS: [&str; 4] = ["/status", "/spec/unschedulable", "/spec/providerID", "/spec/podCIDR"];

/// A controller may act on rules and labels that are as old as this: a watch that is dead is noticed after 90 s, and what it missed is
/// listed soon after.
const LAG: Duration = Duration::from_secs(150);

/// A leader takes so long at most to notice that etcd was restored, and to count again.
const RESTORED: Duration = Duration::from_secs(120);

/// The record of a controller on a node.
const RECORD: &str = "keelet.dev/gates";

/// A checker that looks at every write of a controller to a node, and collects what is wrong with it.
pub struct Watched(Arc<Mutex<Checker>>);

/// What is known of the cluster, by every write to it.
struct Checker {
    clock: Clock,
    settings: Settings,
    user: String,
    /// The nodes that are held by a taint that a controller added.
    held: BTreeMap<String, bool>,
    /// When the labels of a node last changed.
    labels: BTreeMap<String, Duration>,
    rules: BTreeMap<String, Watch>,
    /// When etcd was last restored.
    restored: Option<Duration>,
    faults: Vec<String>,
}

/// A rule, and since when it asks for the same.
struct Watch {
    rule: Value,
    since: Duration,
}

/// Looks at every write of a controller to a node, and collects what is wrong with it.
///
/// # Panics
///
/// If controllers were the administrator: then their writes could not be told from those of the world.
pub fn watch_over(world: &World, settings: &Settings) -> Watched {
    let user = user().user;
    assert_ne!(user, Identity::admin().user);
    let checker = Checker {
        clock: world.api.clock(),
        settings: settings.clone(),
        user,
        held: BTreeMap::new(),
        labels: BTreeMap::new(),
        rules: BTreeMap::new(),
        restored: None,
        faults: Vec::new(),
    };
    let watched = Watched(Arc::new(Mutex::new(checker)));
    watched.look(world);
    let checker = Arc::clone(&watched.0);
    world.api.observe(move |entry, write| {
        checker.lock().unwrap_or_else(PoisonError::into_inner).take(entry, write);
    });
    watched
}

/// Whether a write removes the gate from a node.
pub fn removes_gate(write: &Write) -> bool {
    let (Some(before), Some(after)) = (&write.before, &write.after) else { return false };
    &*write.key.resource == "nodes" && has_gate(before) && !has_gate(after)
}

// === impl Watched ===

impl Watched {
    /// What is wrong so far.
    pub fn faults(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).faults.clone()
    }

    /// Something else is wrong.
    pub fn accuse(&self, fault: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).faults.push(fault);
    }

    /// Etcd was restored from a backup.
    pub fn restored(&self, world: &World) {
        self.look(world);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).restored = Some(world.api.clock().elapsed());
    }

    fn look(&self, world: &World) {
        let at = world.api.clock().elapsed();
        let (nodes, rules) = (world.api.stored_of("nodes"), world.api.stored_of(rules::RESOURCE));
        let mut checker = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        checker.held = nodes.iter().map(|node| (name(node), is_held(node))).collect();
        checker.labels = nodes.iter().map(|node| (name(node), at)).collect();
        let since = |rule: &Arc<Value>| (name(rule), Watch { rule: (**rule).clone(), since: at });
        checker.rules = rules.iter().map(since).collect();
    }
}

// === impl Checker ===

impl Checker {
    fn take(&mut self, entry: &LogEntry, write: &Write) {
        let name = &write.key.name;
        match &*write.key.resource {
            "nodes" => {
                if *write.user == *self.user {
                    let mut found = self.judge(entry, write);
                    found.extend(self.over_limit(entry, write));
                    self.faults.extend(found.into_iter().map(|fault| format!("{} {name}: {fault}", entry.client)));
                }
                let labels = |node: &Option<Arc<Value>>| node.as_ref().map(|node| node["metadata"]["labels"].clone());
                if *write.user != *self.user && labels(&write.before) != labels(&write.after) {
                    self.labels.insert(name.clone(), entry.at);
                }
                match &write.after {
                    Some(node) => drop(self.held.insert(name.clone(), is_held(node))),
                    None => drop(self.held.remove(name)),
                }
            }
            rules::RESOURCE => match &write.after {
                Some(rule) => {
                    let same = |watch: &Watch| {
                        let parts = ["/spec", "/metadata/deletionTimestamp", "/metadata/uid"];
                        parts.iter().all(|part| watch.rule.pointer(part) == rule.pointer(part))
                    };
                    let since = self.rules.get(name).filter(|watch| same(watch)).map_or(entry.at, |watch| watch.since);
                    self.rules.insert(name.clone(), Watch { rule: (**rule).clone(), since });
                }
                None => drop(self.rules.remove(name)),
            },
            _ => {}
        }
    }

    /// Whether a write holds one more node than allowed.
    fn over_limit(&self, entry: &LogEntry, write: &Write) -> Option<String> {
        let MaxHeld::Nodes(allowed) = self.settings.max_held else { return None };
        let was_held = self.held.get(&write.key.name).copied().unwrap_or_default();
        let adds = write.after.as_ref().is_some_and(|node| is_held(node)) && !was_held;
        let held = self.held.values().filter(|held| **held).count() + 1;
        let restored = self.restored.is_some_and(|at| entry.at.saturating_sub(at) < RESTORED);
        (adds && held > allowed && !restored).then(|| format!("{held} nodes are held, {allowed} may be"))
    }

    /// What is wrong with a write of a controller.
    fn judge(&self, entry: &LogEntry, write: &Write) -> Vec<String> {
        let (Some(before), Some(after)) = (&write.before, &write.after) else {
            return vec!["a controller neither creates nor deletes nodes".to_owned()];
        };
        let mut faults = Vec::new();
        let foreign = |node: &Value| -> Vec<Value> {
            let list = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            list.into_iter().filter(|taint| !taint["key"].as_str().unwrap_or_default().starts_with(GATES)).collect()
        };
        if foreign(before) != foreign(after) {
            faults.push(format!("foreign taints changed: {:?} -> {:?}", foreign(before), foreign(after)));
        }
        for part in FOREIGN_PARTS.into_iter().filter(|part| before.pointer(part) != after.pointer(part)) {
            faults.push(format!("{part} changed"));
        }
        let (had, has) = (taints(before), taints(after));
        for taint in had.iter().filter(|taint| !has.contains(taint)) {
            faults.extend(self.opened(entry, taint, before, after));
        }
        for taint in has.iter().filter(|taint| !had.contains(taint)) {
            faults.extend(self.closed(taint, before));
        }
        faults
    }

    /// What is wrong with a taint that was removed.
    fn opened(&self, entry: &LogEntry, taint: &str, before: &Value, after: &Value) -> Option<String> {
        if taint == rules::TAINT {
            // A rule that has asked for the taint on this node for so long that every controller knows it.
            let settled = |at: Duration| entry.at.saturating_sub(at) > LAG;
            let relabelled = self.labels.get(&name(before)).copied().unwrap_or_default();
            let asks = |watch: &&Watch| settled(watch.since) && rules::asks(&watch.rule, before);
            let unmet = |watch: &Watch| self.status(before, rules::condition(&watch.rule), entry.at) != "True";
            let asks = settled(relabelled) && self.rules.values().filter(asks).any(unmet);
            return asks.then(|| "a rule's gate was opened, and its condition is not True".to_owned());
        }
        let (key, effect) = taint.rsplit_once(':').unwrap_or_default();
        let status = self.status(before, key.strip_prefix(GATES).unwrap_or_default(), entry.at);
        if effect != "NoSchedule" || status != "True" {
            return Some(format!("{taint} opened while the condition is {status:?}"));
        }
        (after["metadata"]["annotations"][key] != "passed").then(|| format!("{taint} opened without the annotation"))
    }

    /// What is wrong with a taint that was added.
    fn closed(&self, taint: &str, before: &Value) -> Option<String> {
        let is_rules = taint == rules::TAINT;
        if !is_rules && self.settings.enforcement == Enforcement::Bootstrap {
            return Some(format!("{taint} came back"));
        }
        let kind = taint.rsplit_once(':').and_then(|(key, _)| key.strip_prefix(GATES)).unwrap_or_default();
        let max_age = self.settings.condition_max_age.is_some();
        let holds = !is_rules && !max_age && reported(before, kind).is_some_and(|found| found["status"] == "True");
        holds.then(|| format!("{taint} closed while the condition is True"))
    }

    /// The status of a condition, as far as it may be believed.
    fn status<'a>(&self, node: &'a Value, kind: &str, at: Duration) -> &'a str {
        let Some(found) = reported(node, kind) else { return "" };
        let beat: Option<Timestamp> = found["lastHeartbeatTime"].as_str().and_then(|text| text.parse().ok());
        let now = self.clock.at(at);
        match (self.settings.condition_max_age, beat) {
            // A second for the request on its way.
            (Some(age), Some(beat)) if now.duration_since(beat) > age + SignedDuration::from_secs(1) => "too old",
            _ => found["status"].as_str().unwrap_or_default(),
        }
    }
}

fn reported<'a>(node: &'a Value, kind: &str) -> Option<&'a Value> {
    node["status"]["conditions"].as_array()?.iter().find(|found| found["type"] == kind)
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Whether a node in use is held by a taint that a controller added.
pub(crate) fn is_held(node: &Value) -> bool {
    let record = node["metadata"]["annotations"][RECORD].as_str().unwrap_or_default();
    let record: Value = serde_json::from_str(record).unwrap_or_default();
    let held = record["gates"].as_object().into_iter().flatten().filter(|(_, entry)| entry["held"].is_string());
    let taints = taints(node);
    record["node"] == node["metadata"]["uid"] && held.map(|(taint, _)| taint).any(|taint| taints.contains(taint))
}

fn has_gate(node: &Value) -> bool {
    taints(node).iter().any(|taint| taint.starts_with(GATE))
}
