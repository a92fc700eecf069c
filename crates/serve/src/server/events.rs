//! Events, in the shape of the Kubernetes API.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Json,
    extract::State,
    http::Uri,
    response::{IntoResponse, Response},
};
use keelet_agent::board::{Involved, PodEvent};
use keelet_lifecycle::{Severity, Wall};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Local, change, failure::Refusal, pods};
use crate::api::List;

/// What can be asked of the list.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EventQuery {
    namespace: Option<String>,
    pod: Option<String>,
    watch: bool,
}

/// An event and all its repeats.
#[derive(Debug)]
struct Folded {
    newest: Arc<PodEvent>,
    first: Wall,
    /// Its place among all events. Those of one plan have the same time.
    number: usize,
}

pub(super) async fn list(State(local): State<Arc<Local>>, uri: Uri) -> Result<Response, Refusal> {
    let EventQuery { namespace, pod, watch } = pods::query(&uri)?;
    let wanted = move |told: &PodEvent| {
        namespace.as_ref().is_none_or(|wanted| *wanted == told.pod.namespace)
            && pod.as_ref().is_none_or(|wanted| told.involved == Involved::Pod && *wanted == told.pod.name)
    };
    let node = local.facts().name.clone();
    if watch {
        let board = Arc::clone(local.board());
        // What has not changed has to be the same `Arc` in the next round.
        let before: Mutex<BTreeMap<String, Arc<Folded>>> = Mutex::default();
        let list = move || {
            let mut now = fold(board.events().into_iter().filter(|told| wanted(told)));
            let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
            for (key, event) in &mut now {
                if let Some(old) = before.get(key).filter(|old| Arc::ptr_eq(&old.newest, &event.newest)) {
                    *event = Arc::clone(old);
                }
            }
            before.clone_from(&now);
            now
        };
        let show = move |event: &Folded| Ok(object(event, &node));
        return Ok(change::answer(local.board().changes(), Box::new(list), Box::new(show)));
    }
    let events = in_order(fold(local.board().events().into_iter().filter(|told| wanted(told))));
    let items = events.iter().map(|event| object(event, &node)).collect();
    Ok(Json(List::<Value> { items }).into_response())
}

/// One for each thing that happened, with its newest repeat. By the name of the event.
fn fold(told: impl Iterator<Item = Arc<PodEvent>>) -> BTreeMap<String, Arc<Folded>> {
    let mut events: BTreeMap<String, Arc<Folded>> = BTreeMap::new();
    for (number, told) in told.enumerate() {
        let key = name(&told);
        let first = events.get(&key).map_or(told.event.at.wall, |event| event.first);
        events.insert(key, Arc::new(Folded { newest: told, first, number }));
    }
    events
}

/// As they happened, the newest last.
fn in_order(events: BTreeMap<String, Arc<Folded>>) -> Vec<Arc<Folded>> {
    let mut events: Vec<_> = events.into_values().collect();
    events.sort_by_key(|event| event.number);
    events
}

/// The name of an event: the same for all its repeats.
fn name(told: &PodEvent) -> String {
    let event = &told.event;
    // Combined events have a new message each time.
    let combined = event.message.starts_with("(combined from similar events)");
    let message = if combined { "" } else { &event.message };
    let parts = [&told.pod.uid, event.container.as_deref().unwrap_or_default(), &event.reason, message];
    // FNV-1a: short, and the same in every run.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in parts.iter().flat_map(|part| part.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{}.{hash:016x}", told.pod.name)
}

fn object(event: &Folded, node: &str) -> Value {
    let (told, record) = (&event.newest, &event.newest.event);
    let mut involved = json!({
        "apiVersion": "v1", "kind": told.involved.kind(),
        "namespace": told.pod.namespace, "name": told.pod.name, "uid": told.pod.uid,
    });
    if let Some(path) = &told.field_path {
        involved["fieldPath"] = json!(path);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": name(told), "namespace": told.pod.namespace, "creationTimestamp": pods::time(event.first) },
        "type": match record.severity { Severity::Normal => "Normal", Severity::Warning => "Warning" },
        "reason": record.reason,
        "message": record.message,
        "count": record.count,
        "firstTimestamp": pods::time(event.first),
        "lastTimestamp": pods::time(record.at.wall),
        "involvedObject": involved,
        "source": { "component": "keelet", "host": node },
    })
}

#[cfg(test)]
mod tests {
    use keelet_agent::events::EventRecord;
    use keelet_lifecycle::{BootId, Moment};

    use super::*;

    #[test]
    fn events_of_one_moment_are_listed_as_they_happened() {
        let pod = keelet_pod::parse_one(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: a}]}",
        );
        let pod = Arc::new(pod.unwrap());
        let told = |reason: &str| {
            let at = Moment { boot_ms: 1, wall: Wall::from_millis(1), boot_id: BootId::default() };
            let (reason, message) = (reason.to_owned(), String::new());
            let event = EventRecord { at, container: None, reason, severity: Severity::Normal, message, count: 1 };
            Arc::new(PodEvent::new(&pod, event))
        };
        for reasons in [["Pulling", "Pulled", "Created", "Started"], ["Started", "Created", "Pulled", "Pulling"]] {
            let events = in_order(fold(reasons.iter().map(|reason| told(reason))));
            let listed: Vec<&str> = events.iter().map(|event| event.newest.event.reason.as_str()).collect();
            assert_eq!(listed, reasons);
        }
    }
}
