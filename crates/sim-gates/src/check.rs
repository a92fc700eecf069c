//! What a controller may do to a node, whatever happens.

use std::sync::{Arc, Mutex, PoisonError};

use keelet_gates::settings::Enforcement;
use keelet_sim_api::{Identity, Write};
use serde_json::Value;

use crate::world::{GATE, World, taints, user};

/// The prefix of the taints that are gates.
const GATES: &str = "readiness.k8s.io/";

/// What no gate is about, and no controller may touch.
const FOREIGN_PARTS: [&str; 4] = ["/status", "/spec/unschedulable", "/spec/providerID", "/spec/podCIDR"];

/// Looks at every write of a controller to a node, and collects what is wrong with it.
///
/// # Panics
///
/// If controllers were the administrator: then their writes could not be told from those of the world.
pub fn watch_over(world: &World, enforcement: Enforcement) -> Arc<Mutex<Vec<String>>> {
    let faults = Arc::new(Mutex::new(Vec::new()));
    let found = Arc::clone(&faults);
    let controllers = user().user;
    assert_ne!(controllers, Identity::admin().user);
    world.api.observe(move |entry, write| {
        if *write.user != *controllers || &*write.key.resource != "nodes" {
            return;
        }
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        found.extend(judge(write, enforcement).map(|fault| format!("{} {}: {fault}", entry.client, write.key.name)));
    });
    faults
}

/// Whether a write removes the gate from a node.
pub fn removes_gate(write: &Write) -> bool {
    let (Some(before), Some(after)) = (&write.before, &write.after) else { return false };
    &*write.key.resource == "nodes" && has_gate(before) && !has_gate(after)
}

/// What is wrong with a write of a controller.
fn judge(write: &Write, enforcement: Enforcement) -> impl Iterator<Item = String> {
    let mut faults = Vec::new();
    match (&write.before, &write.after) {
        (Some(before), Some(after)) => compare(before, after, enforcement, &mut faults),
        _ => faults.push("a controller neither creates nor deletes nodes".to_owned()),
    }
    faults.into_iter()
}

fn compare(before: &Value, after: &Value, enforcement: Enforcement, faults: &mut Vec<String>) {
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
    let conditions = before["status"]["conditions"].as_array();
    let condition = conditions.and_then(|list| list.iter().find(|found| found["type"] == "CNIReady"));
    let status = condition.and_then(|condition| condition["status"].as_str()).unwrap_or_default();
    match (has_gate(before), has_gate(after)) {
        (true, false) => {
            if status != "True" {
                faults.push(format!("opened while the condition is {status:?}"));
            }
            if after["metadata"]["annotations"][GATE] != "passed" {
                faults.push("opened without the annotation".to_owned());
            }
        }
        (false, true) if enforcement == Enforcement::Bootstrap => faults.push("the taint came back".to_owned()),
        (false, true) if status == "True" => faults.push("closed while the condition is True".to_owned()),
        _ => {}
    }
}

fn has_gate(node: &Value) -> bool {
    taints(node).iter().any(|taint| taint.starts_with(GATE))
}
