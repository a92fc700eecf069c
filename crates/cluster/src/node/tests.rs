use super::*;

fn node(ready: &str, heartbeat: &str) -> v1::Node {
    serde_json::from_value(json!({
        "metadata": { "name": "worker" },
        "status": {
            "addresses": [{ "type": "InternalIP", "address": "192.0.2.7" }],
            "conditions": [{
                "type": "Ready", "status": ready, "lastHeartbeatTime": heartbeat, "lastTransitionTime": "2026-01-01T01:00:00Z",
            }],
            "nodeInfo": {
                "architecture": "amd64", "bootID": "b", "containerRuntimeVersion": "r", "kernelVersion": "6", "kubeProxyVersion": "",
                "kubeletVersion": "k", "machineID": "m", "operatingSystem": "linux", "osImage": "o", "systemUUID": "s",
            },
        },
    }))
    .expect("a node")
}

fn registration() -> Registration {
    Registration {
        labels: [("pool".to_owned(), "blue".to_owned())].into(),
        taints: vec!["readiness.k8s.io/CNIReady:NoSchedule".parse().unwrap()],
        features: vec!["RestartAllContainersOnContainerExits".to_owned()],
        ..Registration::default()
    }
}

/// CLU-23, CLU-25, GATE-4, GATE-5: each gate is a label too; where nodes may not set it, everything else stays.
#[test]
fn a_new_node_has_its_labels_taints_and_features() {
    let object = new_node(&node("True", "2026-01-01T02:00:00Z"), &registration(), GateLabels::Set);
    assert_eq!(object["spec"], json!({ "taints": [{ "key": "readiness.k8s.io/CNIReady", "effect": "NoSchedule" }] }));
    let mut labels = json!({
        "kubernetes.io/hostname": "worker", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "pool": "blue",
        "readiness.k8s.io/CNIReady": "true",
    });
    assert_eq!(object["metadata"]["labels"], labels);
    let without = new_node(&node("True", "2026-01-01T02:00:00Z"), &registration(), GateLabels::LeftOut);
    labels.as_object_mut().expect("labels").remove("readiness.k8s.io/CNIReady");
    assert_eq!((&without["metadata"]["labels"], &without["spec"]), (&labels, &object["spec"]));
    assert_eq!(object["status"]["declaredFeatures"], json!(["RestartAllContainersOnContainerExits"]));
}

/// CLU-23, GATE-2: of a node that exists labels are reconciled, taints never are.
#[test]
fn an_existing_node_gets_the_labels_that_it_lacks_and_nothing_else() {
    let own = node("True", "2026-01-01T02:00:00Z");
    let mut object = new_node(&own, &registration(), GateLabels::Set);
    let label_patch = |object: &Value| label_patch(&own, &registration(), GateLabels::Set, object);
    assert_eq!(label_patch(&object), None);
    object["metadata"]["labels"] = json!({ "pool": "red", "team": "x", "kubernetes.io/os": "linux" });
    object["spec"] = json!({});
    let patch = label_patch(&object).expect("a patch");
    let expected = json!({
        "kubernetes.io/hostname": "worker", "kubernetes.io/arch": "amd64", "pool": "blue", "readiness.k8s.io/CNIReady": "true",
    });
    assert_eq!(patch, json!({ "metadata": { "labels": expected } }));
}

/// CLU-26, GATE-15: a heartbeat alone is reported every five minutes, a change at once; an agent restart changes no transition time.
#[test]
fn a_status_is_reported_when_it_changes_and_every_five_minutes() {
    let mut reporter = Reporter::default();
    let minutes = |minutes: u64| Time {
        running: Duration::from_secs(60 * minutes),
        wall: "2026-01-01T02:00:00Z".parse().unwrap(),
    };
    let object = json!({ "status": { "conditions": [
        { "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" },
    ], "addresses": [{ "type": "ExternalIP", "address": "203.0.113.1" }] } });
    let mut patch = |ready, heartbeat, now| reporter.patch(&node(ready, heartbeat), &registration(), &[], &object, now);
    let first = patch("True", "2026-01-01T02:00:00Z", minutes(0)).expect("the first is always said");
    assert_eq!(first.pointer("/status/conditions/0/lastTransitionTime"), Some(&json!("2026-01-01T00:00:00Z")));
    assert_eq!(first.pointer("/status/addresses/1"), Some(&json!({ "$patch": "delete", "type": "ExternalIP" })));
    assert_eq!(patch("True", "2026-01-01T02:01:00Z", minutes(1)), None);
    assert_eq!(patch("True", "2026-01-01T02:04:00Z", minutes(4)), None);
    assert!(patch("True", "2026-01-01T02:05:00Z", minutes(5)).is_some());
    let changed = patch("False", "2026-01-01T02:06:00Z", minutes(6)).expect("a change is said");
    assert_eq!(changed.pointer("/status/conditions/0/lastTransitionTime"), Some(&json!("2026-01-01T01:00:00Z")));
    reporter.failed();
    let again = reporter.patch(&node("False", "2026-01-01T02:06:00Z"), &registration(), &[], &object, minutes(6));
    assert!(again.is_some(), "what was not received is said again");
}

/// CLU-27
#[test]
fn a_lease_lasts_forty_seconds_and_belongs_to_its_node() {
    let now = "2026-01-01T00:00:00.5Z".parse().unwrap();
    let (path, lease) = new_lease("worker", "uid", now);
    assert_eq!(path, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases");
    assert_eq!(lease.pointer("/metadata/ownerReferences/0/uid"), Some(&json!("uid")));
    let spec =
        json!({ "holderIdentity": "worker", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.500000Z" });
    assert_eq!((&lease["spec"], &lease_patch("worker", now)["spec"]), (&spec, &spec));
}

/// CLU-26, GATE-13, GATE-16: an agent that starts says nothing that the object says already. The heartbeats of the agent before it count; a
/// condition that nothing reports any more is taken back.
#[test]
fn a_new_agent_reports_only_what_the_object_does_not_say() {
    let time = |seconds: u64, wall: &str| Time { running: Duration::from_secs(seconds), wall: wall.parse().unwrap() };
    let own = node("True", "2026-01-01T02:00:00Z");
    let mut object = new_node(&own, &registration(), GateLabels::Set);
    // Fields and conditions of others.
    object["status"]["volumesInUse"] = json!(["x"]);
    object["status"]["conditions"].as_array_mut().unwrap().push(json!({ "type": "Other", "status": "True" }));
    let mut reporter = Reporter::default();
    let mut patch = |own: &v1::Node, object: &Value, time| reporter.patch(own, &registration(), &[], object, time);
    assert_eq!(patch(&own, &object, time(0, "2026-01-01T02:01:00Z")), None, "the object says it already");
    assert_eq!(patch(&own, &object, time(239, "2026-01-01T02:04:59Z")), None);
    assert!(patch(&own, &object, time(240, "2026-01-01T02:05:00Z")).is_some(), "five minutes after the last heartbeat");
    let first = |own: &v1::Node, retired: &[String], object: &Value, wall: &str| {
        Reporter::default().patch(own, &registration(), retired, object, time(0, wall))
    };
    assert!(first(&own, &[], &object, "2026-01-01T03:00:00Z").is_some(), "an old heartbeat is renewed at once");
    assert_eq!(first(&own, &[], &object, "2026-01-01T01:00:00Z"), None, "a heartbeat of the future is fresh");
    let now = "2026-01-01T02:01:00Z";
    assert!(first(&node("False", "2026-01-01T02:00:00Z"), &[], &object, now).is_some(), "another status");
    let mut older = object.clone();
    older["status"]["nodeInfo"]["kernelVersion"] = "5".into();
    assert!(first(&own, &[], &older, now).is_some(), "another kernel");
    let retired = ["Other".to_owned(), "Ready".to_owned()];
    let taken_back = first(&own, &retired, &object, now).expect("a condition is taken back");
    assert_eq!(taken_back["status"]["conditions"][1], json!({ "$patch": "delete", "type": "Other" }));
    assert_eq!(taken_back["status"]["conditions"].as_array().map(Vec::len), Some(2));
}

#[test]
fn labels_are_read_as_people_write_them() {
    assert_eq!(parse_label("a=b"), Ok(("a".to_owned(), "b".to_owned())));
    assert_eq!(parse_label("a="), Ok(("a".to_owned(), String::new())));
    for text in ["", "a", "=b", "a=b=c"] {
        assert_eq!(parse_label(text), Err(BadLabel(text.to_owned())));
    }
}
