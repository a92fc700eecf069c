//! Answers with what must differ made equal, and their comparison.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::requests::Step;

/// Reasons whose messages are worded shorter on the simulated server.
const WORDED: [&str; 4] = ["Invalid", "BadRequest", "UnsupportedMediaType", ""];

/// UIDs and versions of the two servers that belong together.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    /// From the real server's to the simulated one's.
    known: BTreeMap<String, String>,
    taken: BTreeSet<String>,
}

/// What differs between two answers.
pub(crate) fn difference(pairs: &mut Pairs, step: &Step, theirs: (u16, Value), ours: (u16, Value)) -> Option<String> {
    let messages = (theirs.1["message"].clone(), ours.1["message"].clone());
    let (mut theirs, mut ours) = ((theirs.0, normal(step, theirs.1)), (ours.0, normal(step, ours.1)));
    pairs.match_up(&mut theirs.1, &mut ours.1);
    if theirs == ours {
        return None;
    }
    let mut lines = vec![format!("  real {} simulated {}", theirs.0, ours.0)];
    if messages != (Value::Null, Value::Null) {
        lines.push(format!("  said: {}\n  said: {}", messages.0, messages.1));
    }
    if theirs.0 == ours.0 || ours.0 < 300 && theirs.0 < 300 {
        differing("", &theirs.1, &ours.1, &mut lines);
    }
    Some(lines.join("\n"))
}

// === impl Pairs ===

impl Pairs {
    /// Makes UIDs and versions equal that stand at the same place and belong together.
    fn match_up(&mut self, theirs: &mut Value, ours: &mut Value) {
        match (theirs, ours) {
            (Value::Object(theirs), Value::Object(ours)) => {
                for (key, theirs) in theirs.iter_mut() {
                    let Some(ours) = ours.get_mut(key) else { continue };
                    let (Value::String(one), Value::String(other)) = (&mut *theirs, &mut *ours) else {
                        self.match_up(theirs, ours);
                        continue;
                    };
                    if ["uid", "resourceVersion"].contains(&key.as_str()) && self.belong_together(key, one, other) {
                        one.clear();
                        other.clear();
                    }
                }
            }
            (Value::Array(theirs), Value::Array(ours)) => {
                theirs.iter_mut().zip(ours).for_each(|(theirs, ours)| self.match_up(theirs, ours));
            }
            _ => {}
        }
    }

    fn belong_together(&mut self, kind: &str, theirs: &str, ours: &str) -> bool {
        let (theirs, ours) = (format!("{kind} {theirs}"), format!("{kind} {ours}"));
        if let Some(known) = self.known.get(&theirs) {
            return *known == ours;
        }
        let is_new = self.taken.insert(ours.clone());
        if is_new {
            self.known.insert(theirs, ours);
        }
        is_new
    }
}

fn differing(path: &str, theirs: &Value, ours: &Value, lines: &mut Vec<String>) {
    if theirs == ours {
        return;
    }
    match (theirs, ours) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let of = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or_else(|| json!("<absent>"));
                differing(&format!("{path}.{key}"), &of(a), &of(b), lines);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differing(&format!("{path}[{index}]"), a, b, lines);
            }
        }
        _ => lines.push(format!("  {path}\n    real      {theirs}\n    simulated {ours}")),
    }
}

/// An answer in a form that both servers share.
fn normal(step: &Step, mut answer: Value) -> Value {
    if answer["kind"] == "Status" {
        return status(&answer);
    }
    if let Some(list) = answer.get_mut("items").map(Value::take) {
        let meta = &answer["metadata"];
        let items: Vec<Value> = list.as_array().into_iter().flatten().map(|item| object(item.clone())).collect();
        return json!({
            "kind": answer["kind"], "apiVersion": answer["apiVersion"], "items": items,
            "more": meta["continue"].as_str().is_some_and(|token| !token.is_empty()), "remaining": meta.get("remainingItemCount"),
        });
    }
    if let Some(events) = answer.get_mut("events").map(Value::take) {
        let events = events.as_array().into_iter().flatten();
        // Where a bookmark is depends on what else happened on the server.
        let events = events.filter(|event| event["type"] != "BOOKMARK");
        let events: Vec<Value> = events
            .map(|event| {
                let inner = event["object"].clone();
                let inner = if inner["kind"] == "Status" { status(&inner) } else { object(inner) };
                json!({ "type": event["type"], "object": inner })
            })
            .collect();
        return json!({ "events": events });
    }
    if step.is_dry() {
        // A UID that was never stored.
        answer.get_mut("metadata").and_then(Value::as_object_mut).map(|meta| meta.remove("uid"));
    }
    object(answer)
}

fn status(status: &Value) -> Value {
    let reason = status["reason"].as_str().unwrap_or("");
    let causes: BTreeSet<String> = status["details"]["causes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|cause| format!("{} {}", cause["reason"].as_str().unwrap_or(""), cause["field"].as_str().unwrap_or("")))
        .collect();
    let mut details = status["details"].clone();
    if let Some(details) = details.as_object_mut() {
        details.remove("causes");
        if let Some(name) = details.get_mut("name") {
            plain(name);
        }
        // How long to wait is up to the server.
        details.remove("retryAfterSeconds");
    }
    let message = if WORDED.contains(&reason) || reason == "Expired" || reason == "Timeout" {
        Value::Null
    } else {
        without_numbers(status["message"].as_str().unwrap_or("")).into()
    };
    json!({
        "kind": "Status", "status": status["status"], "reason": reason, "code": status["code"], "details": details,
        "message": message, "causes": causes,
    })
}

/// A message without UIDs and versions.
fn without_numbers(message: &str) -> String {
    let is_number = |word: &str| {
        let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_uid = word.len() == 36 && word.bytes().filter(|byte| *byte == b'-').count() == 4;
        is_uid || (!word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let words = message.split(' ').map(|word| if is_number(word) { "<number>" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

fn object(mut object: Value) -> Value {
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("managedFields");
    }
    plain(&mut object);
    object
}

/// Times, addresses and generated names.
fn plain(value: &mut Value) {
    match value {
        Value::String(text) => {
            let is_time = text.len() >= 20 && text.ends_with('Z') && text.as_bytes()[4] == b'-' && text.contains('T');
            // Times that requests bring along are of the year 2020.
            if is_time && !text.starts_with("2020") {
                *text = "<time>".to_owned();
            } else if text.starts_with("kube-api-access-") {
                *text = "kube-api-access-<random>".to_owned();
            } else if text.starts_with("10.96.") || text.starts_with("10.0.0.") {
                *text = "<address>".to_owned();
            } else if let Some((name, rest)) = text.rsplit_once('-').filter(|_| text.starts_with("generated-")) {
                *text = format!("{name}-<{}>", rest.len());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        Value::Object(map) => map.values_mut().for_each(plain),
        _ => {}
    }
}
