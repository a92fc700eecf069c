use serde_json::json;

use super::*;

const NODE: &str = "worker";

fn pods() -> Pods {
    Pods::new(Features::default())
}

/// A pod object as an API server sends it.
pub(crate) fn object(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "default", "name": name, "uid": format!("uid-{name}"), "resourceVersion": version,
            "managedFields": [{ "manager": "x" }],
        },
        "spec": { "nodeName": NODE, "containers": [{ "name": "main", "image": "app:1" }] },
        "status": { "phase": "Pending" },
    })
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[key] = value;
    object
}

fn uids(pods: &Pods) -> Vec<String> {
    pods.wanted().0.into_keys().collect()
}

/// CLU-16: nothing is an orphan before the first list is complete.
#[test]
fn a_list_is_partial_until_its_end() {
    let mut pods = pods();
    assert_eq!((pods.wanted().1, pods.known("uid-a")), (Extent::Partial, Known::NotAskedYet));
    pods.list_begins();
    pods.changed(object("a", "1"), NODE).unwrap();
    assert_eq!((pods.wanted().1, pods.known("uid-a")), (Extent::Partial, Known::NotAskedYet));
    pods.list_ends();
    assert_eq!((pods.wanted().1, uids(&pods)), (Extent::Complete, vec!["uid-a".to_owned()]));
    assert_eq!(pods.known("uid-a"), Known::NoCopy, "no agent has written a status");
}

/// CLU-15: a relist is not a deletion before its end, and at its end it is.
#[test]
fn a_pod_that_a_new_list_does_not_have_is_gone_at_its_end() {
    let mut pods = pods();
    pods.list_begins();
    pods.changed(object("a", "1"), NODE).unwrap();
    pods.changed(object("b", "1"), NODE).unwrap();
    pods.list_ends();
    pods.list_begins();
    pods.changed(object("b", "2"), NODE).unwrap();
    assert_eq!((uids(&pods).len(), pods.wanted().1), (2, Extent::Relisting));
    pods.list_ends();
    assert_eq!((uids(&pods), pods.wanted().1), (vec!["uid-b".to_owned()], Extent::Complete));
}

/// Our own status patches come back as changes: they wake no pod.
#[test]
fn a_change_of_the_status_alone_is_no_change_of_the_pod() {
    let mut pods = pods();
    pods.changed(object("a", "1"), NODE).unwrap();
    let before = pods.wanted().0;
    let status = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
    pods.changed(with(object("a", "2"), "/status", status), NODE).unwrap();
    let after = pods.wanted().0;
    assert_eq!(before, after);
    assert!(Arc::ptr_eq(&before["uid-a"].pod, &after["uid-a"].pod), "the same pod is not kept twice");
    let image = with(object("a", "3"), "/spec/containers/0/image", json!("app:2"));
    pods.changed(image, NODE).unwrap();
    assert_ne!(pods.wanted().0, after, "a change of the spec is one");
}

/// CLU-50: a watch that begins again may show what is older than an answer that is known already.
#[test]
fn an_older_version_changes_nothing() {
    let mut pods = pods();
    pods.changed(with(object("a", "10"), "/status/phase", json!("Running")), NODE).unwrap();
    pods.changed(object("a", "9"), NODE).unwrap();
    assert_eq!(pods.get("uid-a").unwrap().status["phase"], "Running");
}

/// CLU-6: the grace period of a deletion is the one that the API server has now.
#[test]
fn a_deletion_has_the_grace_period_of_the_object() {
    let mut pods = pods();
    let deleted = with(object("a", "2"), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    let grace = |pods: &Pods| pods.wanted().0["uid-a"].deletion.as_ref().map(|deletion| deletion.grace.as_secs());
    pods.changed(deleted.clone(), NODE).unwrap();
    assert_eq!(grace(&pods), Some(30), "without one it is the pod's");
    pods.changed(
        with(with(deleted, "/metadata/deletionGracePeriodSeconds", json!(5)), "/metadata/resourceVersion", json!("3")),
        NODE,
    )
    .unwrap();
    assert_eq!(grace(&pods), Some(5));
    assert!(pods.finish("uid-a"), "its object has to go");
    assert_eq!(uids(&pods), Vec::<String>::new(), "what is finished is not run again, however long its object stays");
}

/// CLU-28: pods of other nodes, and objects that are no pods, are refused by name.
#[test]
fn what_is_not_a_pod_of_this_node_is_refused() {
    let mut pods = pods();
    let foreign = with(object("a", "1"), "/spec/nodeName", json!("other"));
    assert_eq!(pods.changed(foreign, NODE), Err(NotOurs::OtherNode("default/a".to_owned(), "other".to_owned())));
    assert_eq!(pods.changed(json!({}), NODE), Err(NotOurs::Nameless("a namespace")));
    let broken = with(object("b", "1"), "/spec/containers", json!("none"));
    pods.changed(broken, NODE).unwrap();
    assert_eq!(uids(&pods), Vec::<String>::new());
    let refused: Vec<_> = pods.refused().map(|(uid, _)| uid.clone()).collect();
    assert_eq!(refused, ["uid-b"]);
}

/// CLU-1: the copy is the status that an agent has written, as the rules read it.
#[test]
fn the_copy_of_a_status_is_known_once_an_agent_has_written_one() {
    let mut pods = pods();
    pods.list_begins();
    let status = json!({
        "phase": "Running", "startTime": "2026-01-01T00:00:00Z", "qosClass": "BestEffort", "hostIP": "192.0.2.1",
        "conditions": [{ "type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:05Z" }],
        "containerStatuses": [{
            "name": "main", "ready": true, "started": true, "restartCount": 2, "image": "app:1", "imageID": "x", "containerID": "r://1",
            "state": { "running": { "startedAt": "2026-01-01T00:00:01Z" } }, "lastState": {}, "resources": {},
        }],
    });
    pods.changed(with(object("a", "1"), "/status", status), NODE).unwrap();
    pods.list_ends();
    let Known::Copy(copy) = pods.known("uid-a") else { panic!("{:?}", pods.known("uid-a")) };
    assert_eq!((copy.container_statuses[0].restart_count, copy.container_statuses[0].ready), (2, true));
    assert_eq!(pods.known("uid-other"), Known::NoCopy);
}

/// A pod that runs is not ended by what this version of the agent cannot understand, neither after a change nor after a restart of the agent.
#[test]
fn a_pod_that_runs_is_kept_although_it_cannot_be_understood() {
    let broken = |version: &str| with(object("a", version), "/spec/containers", json!("none"));
    let mut running = pods();
    running.list_begins();
    running.changed(object("a", "1"), NODE).unwrap();
    running.list_ends();
    running.changed(broken("2"), NODE).unwrap();
    assert_eq!((uids(&running), running.wanted().1), (vec!["uid-a".to_owned()], Extent::Complete));
    let mut after_restart = pods();
    after_restart.list_begins();
    after_restart.changed(with(broken("2"), "/status/startTime", json!("2026-01-01T00:00:00Z")), NODE).unwrap();
    after_restart.list_ends();
    assert_eq!(after_restart.refused().count(), 0, "it is not rejected");
    assert_eq!(after_restart.wanted().1, Extent::Partial, "what runs of it is no orphan");
}

/// CLU-14, CLU-28: the object of a pod that never ran here waits for this node all the same, once its deletion is requested. An object that waits for
/// its finalizers does not, nor one of a pod that may run.
#[test]
fn a_refused_pod_that_is_deleted_has_its_object_deleted() {
    let broken = |version: &str| with(object("b", version), "/spec/containers", json!("none"));
    let deleted = |version: &str, grace: u64| {
        let deleted = with(broken(version), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
        with(deleted, "/metadata/deletionGracePeriodSeconds", json!(grace))
    };
    let mut pods = pods();
    let mut due = |object: Value| {
        pods.changed(object, NODE).unwrap();
        pods.refused_and_deleted().cloned().collect::<Vec<_>>()
    };
    assert_eq!(due(broken("1")), Vec::<String>::new(), "its deletion was not requested");
    assert_eq!(due(deleted("2", 30)), ["uid-b"]);
    assert_eq!(due(with(deleted("3", 30), "/status/phase", json!("Failed"))), ["uid-b"], "after its rejection too");
    assert_eq!(due(deleted("4", 0)), Vec::<String>::new(), "its finalizers are awaited");
    let accepted = with(deleted("5", 30), "/status/startTime", json!("2026-01-01T00:00:00Z"));
    assert_eq!(due(accepted), Vec::<String>::new(), "it may run here");
}
