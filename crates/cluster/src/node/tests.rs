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

/// CLU-23, CLU-25
#[test]
fn a_new_node_has_its_labels_taints_and_features() {
    let object = new_node(&node("True", "2026-01-01T02:00:00Z"), &registration());
    assert_eq!(object["spec"], json!({ "taints": [{ "key": "readiness.k8s.io/CNIReady", "effect": "NoSchedule" }] }));
    let labels = json!({
        "kubernetes.io/hostname": "worker", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "pool": "blue",
    });
    assert_eq!(object["metadata"]["labels"], labels);
    assert_eq!(object["status"]["declaredFeatures"], json!(["RestartAllContainersOnContainerExits"]));
}

/// CLU-23: of a node that exists labels are reconciled, taints never are.
#[test]
fn an_existing_node_gets_the_labels_that_it_lacks_and_nothing_else() {
    let own = node("True", "2026-01-01T02:00:00Z");
    let mut object = new_node(&own, &registration());
    assert_eq!(label_patch(&own, &registration(), &object), None);
    object["metadata"]["labels"] = json!({ "pool": "red", "team": "x", "kubernetes.io/os": "linux" });
    object["spec"] = json!({});
    let patch = label_patch(&own, &registration(), &object).expect("a patch");
    let expected = json!({ "kubernetes.io/hostname": "worker", "kubernetes.io/arch": "amd64", "pool": "blue" });
    assert_eq!(patch, json!({ "metadata": { "labels": expected } }));
}

/// CLU-26: a heartbeat alone is reported every five minutes, a change at once; an agent restart changes no transition time.
#[test]
fn a_status_is_reported_when_it_changes_and_every_five_minutes() {
    let mut reporter = Reporter::default();
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let object = json!({ "status": { "conditions": [
        { "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" },
    ], "addresses": [{ "type": "ExternalIP", "address": "203.0.113.1" }] } });
    let mut patch = |ready, heartbeat, now| reporter.patch(&node(ready, heartbeat), &registration(), &object, now);
    let first = patch("True", "2026-01-01T02:00:00Z", minutes(0)).expect("the first is always said");
    assert_eq!(first.pointer("/status/conditions/0/lastTransitionTime"), Some(&json!("2026-01-01T00:00:00Z")));
    assert_eq!(first.pointer("/status/addresses/1"), Some(&json!({ "$patch": "delete", "type": "ExternalIP" })));
    assert_eq!(patch("True", "2026-01-01T02:01:00Z", minutes(1)), None);
    assert_eq!(patch("True", "2026-01-01T02:04:00Z", minutes(4)), None);
    assert!(patch("True", "2026-01-01T02:05:00Z", minutes(5)).is_some());
    let changed = patch("False", "2026-01-01T02:06:00Z", minutes(6)).expect("a change is said");
    assert_eq!(changed.pointer("/status/conditions/0/lastTransitionTime"), Some(&json!("2026-01-01T01:00:00Z")));
    reporter.failed();
    let again = reporter.patch(&node("False", "2026-01-01T02:06:00Z"), &registration(), &object, minutes(6));
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

#[test]
fn taints_and_labels_are_read_as_people_write_them() {
    let taint = |text: &str| text.parse::<Taint>().map(|taint| (taint.key, taint.value, taint.effect));
    let parts = |key: &str, value: &str, effect: &str| Ok((key.to_owned(), value.to_owned(), effect.to_owned()));
    assert_eq!(taint("a/b=c:NoSchedule"), parts("a/b", "c", "NoSchedule"));
    assert_eq!(taint("a:NoExecute"), parts("a", "", "NoExecute"));
    for text in ["", "a", "a:", "a:Never", "=b:NoSchedule", ":NoSchedule", "a=b=c:NoSchedule"] {
        assert_eq!(taint(text), Err(BadTaint(text.to_owned())));
    }
    assert_eq!(parse_label("a=b"), Ok(("a".to_owned(), "b".to_owned())));
    assert_eq!(parse_label("a="), Ok(("a".to_owned(), String::new())));
    for text in ["", "a", "=b", "a=b=c"] {
        assert_eq!(parse_label(text), Err(BadLabel(text.to_owned())));
    }
}
