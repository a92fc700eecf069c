//! Random requests, the same for both servers.

use std::fmt;

use keelet_sim_api::Random;
use serde_json::{Value, json};

use crate::{
    NAMESPACE, SERVICES,
    memory::Memory,
    objects::{
        config_map, config_map_patch, event, event_patch, gadget, gadget_patch, gadget_status, lease, lease_patch,
        node, node_patch, node_status, pod, pod_patch, pod_status, secret, secret_patch, service, service_patch,
    },
};

/// The client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Admin,
    /// The agent of node `a`.
    Node,
    /// A user with a role.
    Limited,
}

/// What is sent.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Nothing,
    /// As it is, with versions and UIDs filled in.
    Given(Value),
    /// The object as it was last seen, or some time before that, with changes.
    Seen {
        back: usize,
        changes: Value,
    },
    /// Not JSON.
    Nonsense,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) who: Who,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) content: Content,
    /// The path of the object that it is about.
    pub(crate) object: String,
}

/// A kind of objects.
struct Kind {
    path: &'static str,
    names: &'static [&'static str],
    strategic: bool,
    has_status: bool,
    fresh: fn(&mut Random) -> Value,
    /// Merge and strategic patches.
    patches: fn(&mut Random) -> Value,
    statuses: fn(&mut Random) -> Value,
}

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const JSON: &str = "application/json";

/// In their paths, `N` and `S` stand for the namespaces.
const KINDS: [Kind; 9] = [
    Kind {
        path: "/api/v1/nodes",
        names: &["a", "b", "c"],
        strategic: true,
        has_status: true,
        fresh: node,
        patches: node_patch,
        statuses: node_status,
    },
    Kind {
        path: "/api/v1/nodes",
        names: &["a", "b"],
        strategic: true,
        has_status: true,
        fresh: node,
        patches: node_patch,
        statuses: node_status,
    },
    Kind {
        path: "/api/v1/namespaces/N/pods",
        names: &["a", "b"],
        strategic: true,
        has_status: true,
        fresh: pod,
        patches: pod_patch,
        statuses: pod_status,
    },
    Kind {
        path: "/apis/coordination.k8s.io/v1/namespaces/N/leases",
        names: &["a", "b"],
        strategic: true,
        has_status: false,
        fresh: lease,
        patches: lease_patch,
        statuses: lease_patch,
    },
    Kind {
        path: "/api/v1/namespaces/N/configmaps",
        names: &["a", "b"],
        strategic: true,
        has_status: false,
        fresh: config_map,
        patches: config_map_patch,
        statuses: config_map_patch,
    },
    Kind {
        path: "/api/v1/namespaces/N/secrets",
        names: &["a"],
        strategic: true,
        has_status: false,
        fresh: secret,
        patches: secret_patch,
        statuses: secret_patch,
    },
    Kind {
        path: "/api/v1/namespaces/N/events",
        names: &["a", "b"],
        strategic: true,
        has_status: false,
        fresh: event,
        patches: event_patch,
        statuses: event_patch,
    },
    Kind {
        path: "/api/v1/namespaces/S/services",
        names: &["a"],
        strategic: true,
        has_status: true,
        fresh: service,
        patches: service_patch,
        statuses: service_patch,
    },
    Kind {
        path: "/apis/differential.keelet.dev/v1/gadgets",
        names: &["a", "b"],
        strategic: false,
        has_status: true,
        fresh: gadget,
        patches: gadget_patch,
        statuses: gadget_status,
    },
];

/// The collections that requests write to.
pub(crate) fn collections() -> Vec<String> {
    KINDS.iter().skip(1).map(collection).collect()
}

fn collection(kind: &Kind) -> String {
    kind.path.replace("/N/", &format!("/{NAMESPACE}/")).replace("/S/", &format!("/{SERVICES}/"))
}

// === impl Step ===

impl Step {
    /// Whether nothing is stored.
    pub(crate) fn is_dry(&self) -> bool {
        self.path.contains("dryRun=All")
    }

    /// The bytes for a server.
    pub(crate) fn body(&self, memory: &Memory) -> String {
        match &self.content {
            Content::Nothing => String::new(),
            Content::Nonsense => "{nonsense".to_owned(),
            Content::Given(value) => {
                let mut value = value.clone();
                memory.fill(&self.object, &mut value);
                value.to_string()
            }
            Content::Seen { back, changes } => {
                let mut object = memory.object(&self.object, *back).cloned().unwrap_or_else(|| json!({}));
                object["metadata"].as_object_mut().map(|meta| meta.remove("managedFields"));
                let mut changes = changes.clone();
                memory.fill(&self.object, &mut changes);
                overlay(&mut object, &changes);
                object.to_string()
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {} {} ", self.who, self.method, self.path, self.content_type)?;
        match &self.content {
            Content::Nothing => Ok(()),
            Content::Nonsense => f.write_str("nonsense"),
            Content::Given(value) => write!(f, "{value}"),
            Content::Seen { back, changes } => write!(f, "seen {back} ago with {changes}"),
        }
    }
}

fn overlay(object: &mut Value, changes: &Value) {
    match (object, changes) {
        (Value::Object(object), Value::Object(changes)) => {
            for (key, change) in changes {
                if change.is_null() {
                    object.remove(key);
                } else {
                    overlay(object.entry(key.clone()).or_insert(Value::Null), change);
                }
            }
        }
        (object, changes) => *object = changes.clone(),
    }
}

/// One random request.
pub(crate) fn random_step(random: &mut Random) -> Step {
    let kind = random.pick(&KINDS);
    let collection = collection(kind);
    let name = *random.pick(kind.names);
    let object = format!("{collection}/{name}");
    let who = match random.within(0..20) {
        0..=1 => Who::Node,
        2 => Who::Limited,
        _ => Who::Admin,
    };
    let mut step = Step {
        who,
        method: "GET",
        path: object.clone(),
        content_type: "",
        content: Content::Nothing,
        object: object.clone(),
    };
    match random.within(0..100) {
        0..=19 => {
            step.method = "POST";
            step.path.clone_from(&collection);
            step.content_type = JSON;
            let mut fresh = (kind.fresh)(random);
            fresh["metadata"]["name"] = name.into();
            decorate(&mut fresh, random);
            step.content = Content::Given(fresh);
        }
        20..=29 => update(&mut step, kind, name, random),
        30..=54 => patch(&mut step, kind, random, &object, false),
        55..=69 if kind.has_status => patch(&mut step, kind, random, &object, true),
        55..=69 => patch(&mut step, kind, random, &object, false),
        70..=79 => delete(&mut step, random),
        80..=84 => {}
        85..=94 => list(&mut step, &collection, random),
        95..=96 => watch(&mut step, &collection, random),
        _ => odd(&mut step, &collection, random),
    }
    if step.method != "GET" && step.method != "DELETE" && random.chance(40) {
        step.path = format!("{}?dryRun=All", step.path);
    }
    step
}

/// Metadata of all sorts, some of it wrong.
fn decorate(object: &mut Value, random: &mut Random) {
    let meta = &mut object["metadata"];
    match random.within(0..16) {
        0 => meta["labels"] = json!({ "zone": *random.pick(&["x", "y"]), "empty": "" }),
        1 => meta["labels"] = json!({ "zone": *random.pick(&["x", "y"]) }),
        2 => meta["labels"] = json!({ "bad key": "x" }),
        3 => meta["labels"] = json!({ "key": "bad value!" }),
        4 => meta["annotations"] = json!({ "a.b/c": "any thing", "d": "" }),
        5 => meta["finalizers"] = json!(["keelet.dev/test"]),
        6 => meta["finalizers"] = json!(["bad finalizer"]),
        7 => meta["uid"] = "11111111-1111-4111-8111-111111111111".into(),
        8 => meta["resourceVersion"] = "1".into(),
        9 => meta["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "Node", "name": "x", "uid": "u-1" }]),
        10 => meta["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "Node", "name": "x" }]),
        11 => {
            // So that lists have the same order on both servers.
            meta["generateName"] = format!("generated-{}-", random.within(100..999)).into();
            if random.chance(500) {
                meta.as_object_mut().map(|meta| meta.remove("name"));
            }
        }
        12 => meta["name"] = "Bad_Name".into(),
        _ => {}
    }
}

fn update(step: &mut Step, kind: &Kind, name: &str, random: &mut Random) {
    step.method = "PUT";
    step.content_type = JSON;
    if kind.has_status && random.chance(300) {
        step.path = format!("{}/status", step.path);
    }
    let changes = (kind.patches)(random);
    // Patches may hold directives and lists that replace; as an overlay they are only changes.
    step.content = match random.within(0..10) {
        0..=4 => Content::Seen { back: 0, changes },
        5..=6 => Content::Seen { back: 2, changes },
        7 => {
            let mut fresh = (kind.fresh)(random);
            fresh["metadata"]["name"] = name.into();
            Content::Given(fresh)
        }
        8 => {
            let mut fresh = (kind.fresh)(random);
            fresh["metadata"]["name"] = name.into();
            fresh["metadata"]["uid"] = "11111111-1111-4111-8111-111111111111".into();
            Content::Given(fresh)
        }
        _ => Content::Given((kind.fresh)(random)),
    };
}

fn patch(step: &mut Step, kind: &Kind, random: &mut Random, object: &str, status: bool) {
    step.method = "PATCH";
    if status {
        step.path = format!("{object}/status");
    }
    let make = if status { kind.statuses } else { kind.patches };
    step.content_type = match random.within(0..10) {
        0..=3 => MERGE,
        4..=7 if kind.strategic => STRATEGIC,
        4..=7 => MERGE,
        8 => STRATEGIC,
        _ => {
            step.content_type = JSON_PATCH;
            step.content = Content::Given(json_patch(random));
            return;
        }
    };
    let mut patch = make(random);
    match random.within(0..14) {
        0..=2 => {
            patch["metadata"]["resourceVersion"] = "{version}".into();
            patch["metadata"]["uid"] = "{uid}".into();
        }
        3 => patch["metadata"]["resourceVersion"] = "{old}".into(),
        4 => patch["metadata"]["uid"] = "22222222-2222-4222-8222-222222222222".into(),
        5 => patch["metadata"]["labels"] = json!({ "zone": *random.pick(&["x", "y"]) }),
        6 => patch["metadata"]["labels"] = json!({ "zone": null }),
        7 => {
            patch["metadata"]["finalizers"] = if random.chance(500) { Value::Null } else { json!(["keelet.dev/test"]) }
        }
        8 => patch["metadata"]["name"] = "other".into(),
        9 => patch["metadata"]["deletionTimestamp"] = Value::Null,
        _ => {}
    }
    step.content = Content::Given(patch);
}

fn json_patch(random: &mut Random) -> Value {
    random
        .pick(&[
            json!([{ "op": "add", "path": "/metadata/labels", "value": { "zone": "x" } }]),
            json!([{ "op": "add", "path": "/metadata/annotations", "value": { "note": "x" } }]),
            json!([{ "op": "remove", "path": "/metadata/labels" }]),
            json!([{ "op": "replace", "path": "/metadata/labels/zone", "value": "y" }]),
            json!([{ "op": "test", "path": "/metadata/name", "value": "a" }, { "op": "add", "path": "/metadata/labels", "value": {} }]),
            json!([{ "op": "test", "path": "/metadata/resourceVersion", "value": "{version}" }, { "op": "add", "path": "/metadata/labels", "value": { "zone": "y" } }]),
            json!([{ "op": "test", "path": "/metadata/nothing", "value": null }]),
            json!([{ "op": "copy", "from": "/metadata/name", "path": "/metadata/generateName" }]),
            json!([{ "op": "nonsense", "path": "/metadata" }]),
            json!([{ "op": "replace", "path": "/metadata/uid", "value": "x" }]),
            json!([]),
            json!({}),
        ])
        .clone()
}

fn delete(step: &mut Step, random: &mut Random) {
    step.method = "DELETE";
    let options = match random.within(0..12) {
        0..=4 => return,
        5 => json!({ "gracePeriodSeconds": 0 }),
        6 => json!({ "gracePeriodSeconds": 5 }),
        7 => json!({ "preconditions": { "uid": "{uid}", "resourceVersion": "{version}" } }),
        8 => json!({ "preconditions": { "uid": "22222222-2222-4222-8222-222222222222" } }),
        9 => json!({ "preconditions": { "resourceVersion": "{old}" } }),
        10 => json!({ "propagationPolicy": "Sideways" }),
        _ => json!({ "propagationPolicy": "Background", "gracePeriodSeconds": 100 }),
    };
    step.content_type = JSON;
    step.content = Content::Given(options);
}

fn list(step: &mut Step, collection: &str, random: &mut Random) {
    let query = *random.pick(&[
        "",
        "",
        "?limit=1",
        "?limit=1&continue={token}",
        "?limit=2",
        "?labelSelector=zone%3Dx",
        "?labelSelector=zone%20in%20(x,y),zone!%3Dy",
        "?labelSelector=!zone",
        "?labelSelector=%3D%3D",
        "?fieldSelector=metadata.name%3Da",
        "?fieldSelector=metadata.name!%3Da",
        "?fieldSelector=spec.nodeName%3Da",
        "?fieldSelector=spec.nothing%3Da",
        "?resourceVersion=0",
        "?resourceVersion={list}",
        "?resourceVersion={oldlist}&resourceVersionMatch=Exact",
        "?resourceVersion={list}&resourceVersionMatch=NotOlderThan",
        "?resourceVersionMatch=Exact",
        "?resourceVersion=x",
        "?continue=nonsense",
        "?limit=x",
        "?sendInitialEvents=true",
    ]);
    step.path = format!("{collection}{query}");
}

fn watch(step: &mut Step, collection: &str, random: &mut Random) {
    let query = *random.pick(&[
        "resourceVersion={oldlist}",
        "resourceVersion={oldlist}&labelSelector=zone%3Dx",
        "resourceVersion={oldlist}&fieldSelector=metadata.name%3Da",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
        "resourceVersion=0",
        "sendInitialEvents=true",
    ]);
    step.path = format!("{collection}?watch=true&timeoutSeconds=1&{query}");
}

/// Requests that go wrong in other ways.
fn odd(step: &mut Step, collection: &str, random: &mut Random) {
    match random.within(0..8) {
        0 => step.path = format!("{}/nothing", step.path),
        1 => step.path = format!("{collection}s"),
        2 => {
            step.method = "POST";
            step.path = collection.to_owned();
            step.content_type = JSON;
            step.content = Content::Nonsense;
        }
        3 => {
            step.method = "PATCH";
            step.content_type = "application/nonsense+json";
            step.content = Content::Given(json!({}));
        }
        4 => {
            step.method = "POST";
            step.path = collection.to_owned();
            step.content_type = JSON;
            step.content =
                Content::Given(json!({ "apiVersion": "v1", "kind": "Nonsense", "metadata": { "name": "a" } }));
        }
        5 => {
            step.method = "POST";
            step.path = collection.replace(NAMESPACE, "nowhere");
            step.content_type = JSON;
            step.content = Content::Given(json!({ "metadata": { "name": "a" } }));
        }
        6 => {
            step.method = "POST";
            step.content_type = JSON;
            step.content = Content::Given(json!({}));
        }
        _ => {
            step.method = "PATCH";
            step.content_type = MERGE;
            step.content = Content::Nonsense;
        }
    }
}
