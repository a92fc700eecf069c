//! Changes of the tree before it is decoded: repeated keys, the alias in restart rules, fields that keelet never reads.

use std::collections::BTreeSet;

use crate::{
    path::{FieldPath, Segment},
    problem::{MAX_PROBLEMS, duplicate, forbidden, quoted, unknown_field},
    review::Review,
    tree::{MapEntry, Position, TreeNode, Value},
};

/// The three lists of containers.
const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Normalises the tree of one pod.
pub(crate) fn normalise(pod: &mut TreeNode, review: &mut Review<'_>) {
    drop_repeated_keys(pod, &FieldPath::root(), review);
    // Managed fields are the API server's own records; a node has no use for them.
    if let Some(metadata) = pod.get_mut("metadata") {
        remove(metadata, "managedFields");
    }
    let Some(spec) = pod.get_mut("spec") else { return };
    let path = FieldPath::root().field("spec");
    for list in CONTAINER_LISTS {
        let Some(containers) = spec.get_mut(list) else { continue };
        for (index, container) in containers.items_mut().iter_mut().enumerate() {
            let path = path.field(list).index(index).field("restartPolicyRules");
            let Some(rules) = container.get_mut("restartPolicyRules") else { continue };
            for (index, rule) in rules.items_mut().iter_mut().enumerate() {
                flatten_rule(rule, &path.index(index), review);
            }
        }
    }
}

/// Of repeated keys the last one counts, as in JSON; each of the others is reported.
pub(crate) fn drop_repeated_keys(node: &mut TreeNode, path: &FieldPath, review: &mut Review<'_>) {
    match &mut node.value {
        Value::List(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                if matches!(item.value, Value::List(_) | Value::Map(_)) {
                    drop_repeated_keys(item, &path.index(index), review);
                }
            }
        }
        Value::Map(entries) => {
            report_repeats(entries, path, review);
            for entry in entries {
                if matches!(entry.node.value, Value::List(_) | Value::Map(_)) {
                    drop_repeated_keys(&mut entry.node, &path.field(entry.key.to_string()), review);
                }
            }
        }
        Value::Null | Value::Plain(_) | Value::Text(_) => {}
    }
}

fn report_repeats(entries: &mut Vec<MapEntry>, path: &FieldPath, review: &mut Review<'_>) {
    let mut seen = BTreeSet::new();
    let repeats: Vec<(Box<str>, Position)> = entries
        .iter()
        .filter(|entry| !seen.insert(entry.key.clone()))
        .map(|entry| (entry.key.clone(), entry.at))
        .collect();
    if repeats.is_empty() {
        return;
    }
    review.leave_out(repeats.len().saturating_sub(MAX_PROBLEMS));
    for (key, at) in repeats.into_iter().take(MAX_PROBLEMS) {
        let mut detail = duplicate(quoted(&key));
        detail.message = "this key was already given above; the last one counts".to_owned();
        review.surplus(&path.with(Segment::Field(key.to_string().into())), at, detail);
    }
    let mut last = BTreeSet::new();
    entries.reverse();
    entries.retain(|entry| last.insert(entry.key.clone()));
    entries.reverse();
}

/// `onExit: {exitCodes: ...}`, as KEP-5532 writes it, becomes `exitCodes`, as the API has it.
fn flatten_rule(rule: &mut TreeNode, path: &FieldPath, review: &mut Review<'_>) {
    let Value::Map(entries) = &mut rule.value else { return };
    let Some(position) = entries.iter().position(|entry| &*entry.key == "onExit") else { return };
    let alias = entries.remove(position);
    let at = alias.at;
    let path = path.field("onExit");
    match alias.node.value {
        Value::Null => {}
        Value::Map(inner) => {
            for entry in inner {
                if &*entry.key != "exitCodes" {
                    let detail = unknown_field("onExit takes exitCodes and nothing else");
                    review.surplus(&path.field(entry.key.to_string()), entry.at, detail);
                } else if entries.iter().any(|entry| &*entry.key == "exitCodes") {
                    let detail = forbidden("onExit.exitCodes is another spelling of exitCodes; give one of them");
                    review.refuse_at(&path, at, detail);
                } else {
                    entries.push(entry);
                }
            }
        }
        _ => review.refuse_at(&path, at, forbidden("must be a map with exitCodes")),
    }
}

fn remove(node: &mut TreeNode, key: &str) {
    if let Value::Map(entries) = &mut node.value {
        entries.retain(|entry| &*entry.key != key);
    }
}
