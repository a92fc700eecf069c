//! What is at other paths: the version, the list of resources, whether the server is well.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Answer, Body, Call, Result};
use crate::resources::{Registry, Resource};

/// The version that the server says it has.
const VERSION: &str = "v1.37.1";

pub(super) fn answer(registry: &Registry, call: &Call<'_>) -> Result<Answer> {
    let parts: Vec<&str> = call.path.trim_matches('/').split('/').collect();
    Ok(match parts[..] {
        ["version"] => Answer::json(200, version()),
        ["healthz" | "livez" | "readyz"] => Answer { code: 200, body: Body::Text("ok") },
        ["api"] => Answer::json(200, json!({ "kind": "APIVersions", "versions": ["v1"] })),
        ["apis"] => Answer::json(
            200,
            json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups(registry).map(group).collect::<Vec<_>>() }),
        ),
        ["apis", name] => match groups(registry).find(|(found, _)| *found == name) {
            Some(found) => {
                let mut group = group(found);
                group["kind"] = "APIGroup".into();
                group["apiVersion"] = "v1".into();
                Answer::json(200, group)
            }
            None => Answer::not_there(),
        },
        ["api", "v1"] => resources(registry, "", "v1"),
        ["apis", group, version] => resources(registry, group, version),
        _ => Answer::not_there(),
    })
}

fn version() -> Value {
    json!({ "major": "1", "minor": "37", "gitVersion": VERSION, "platform": "linux/amd64" })
}

/// Names and versions of all groups but the core one.
fn groups(registry: &Registry) -> impl Iterator<Item = (&str, &str)> {
    let all: BTreeSet<(&str, &str)> =
        registry.iter().map(|resource| (resource.group.as_str(), resource.version.as_str())).collect();
    all.into_iter().filter(|(group, _)| !group.is_empty())
}

fn group((name, version): (&str, &str)) -> Value {
    let version = json!({ "groupVersion": format!("{name}/{version}"), "version": version });
    json!({ "name": name, "versions": [version], "preferredVersion": version })
}

fn resources(registry: &Registry, group: &str, version: &str) -> Answer {
    let found: Vec<&Resource> = registry
        .iter()
        .map(AsRef::as_ref)
        .filter(|resource| resource.group == group && resource.version == version)
        .collect();
    if found.is_empty() {
        return Answer::not_there();
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let verbs = json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]);
    let mut list = Vec::new();
    for resource in found {
        let mut entry = |name: String, verbs: &Value| {
            list.push(json!({
                "name": name, "singularName": resource.kind.to_lowercase(), "namespaced": resource.namespaced,
                "kind": resource.kind, "verbs": verbs,
            }));
        };
        entry(resource.plural.clone(), &verbs);
        for subresource in &resource.subresources {
            let verbs = if ["token", "binding"].contains(subresource) {
                json!(["create"])
            } else {
                json!(["get", "patch", "update"])
            };
            entry(format!("{}/{subresource}", resource.plural), &verbs);
        }
    }
    Answer::json(
        200,
        json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list }),
    )
}
