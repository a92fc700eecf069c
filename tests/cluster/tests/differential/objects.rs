//! The objects of the random requests, and what is changed in them.

use keelet_sim_api::Random;
use serde_json::{Value, json};

fn one_of(random: &mut Random, values: &[Value]) -> Value {
    random.pick(values).clone()
}

// === Nodes ===

pub(crate) fn node(random: &mut Random) -> Value {
    let spec = one_of(
        random,
        &[
            json!({}),
            json!({ "unschedulable": true }),
            json!({ "unschedulable": false, "podCIDR": "10.1.0.0/24" }),
            json!({ "taints": [{ "key": "readiness.k8s.io/A", "effect": "NoSchedule" }] }),
            json!({ "taints": [{ "key": "a", "effect": "NoSchedule", "value": "" }, { "key": "a", "effect": "NoExecute" }] }),
            json!({ "taints": [{ "key": "a", "effect": "NoSchedule" }, { "key": "a", "effect": "NoSchedule", "value": "x" }] }),
            json!({ "taints": [{ "key": "bad key", "effect": "Never" }] }),
            json!({ "taints": [{ "key": "a" }] }),
            json!({ "taints": "nonsense" }),
            json!({ "providerID": "x://1", "unknown": 1 }),
        ],
    );
    let status = one_of(
        random,
        &[
            json!({}),
            json!({ "conditions": [{ "type": "Ready", "status": "True", "lastHeartbeatTime": "2020-01-01T00:00:00Z" }] }),
            json!({ "capacity": { "cpu": "4", "memory": "1Gi" } }),
        ],
    );
    json!({ "metadata": {}, "spec": spec, "status": status })
}

pub(crate) fn node_patch(random: &mut Random) -> Value {
    one_of(
        random,
        &[
            json!({ "spec": { "taints": [{ "key": "readiness.k8s.io/A", "effect": "NoSchedule" }, { "key": "b", "effect": "NoSchedule" }] } }),
            json!({ "spec": { "taints": [{ "key": "b", "effect": "NoSchedule" }] } }),
            json!({ "spec": { "taints": [{ "$patch": "delete", "key": "b" }] } }),
            json!({ "spec": { "taints": [] } }),
            json!({ "spec": { "taints": null } }),
            json!({ "spec": { "taints": [{ "key": "a", "effect": "NoSchedule" }, { "key": "a", "effect": "NoSchedule" }] } }),
            json!({ "spec": { "unschedulable": true } }),
            json!({ "spec": { "unschedulable": null } }),
            json!({ "spec": { "providerID": "x://2" } }),
            json!({ "metadata": { "annotations": { "readiness.k8s.io/A": "passed" } }, "spec": { "taints": [] } }),
            json!({ "metadata": { "annotations": { "readiness.k8s.io/A": null } } }),
            json!({ "metadata": { "labels": { "kubernetes.io/os": "linux" } } }),
            json!({ "metadata": { "labels": { "readiness.k8s.io/A": "true" } } }),
            json!({ "status": { "conditions": [{ "type": "Ignored", "status": "True" }] } }),
            json!({ "spec": { "taints": 5 } }),
            json!({}),
        ],
    )
}

pub(crate) fn node_status(random: &mut Random) -> Value {
    one_of(
        random,
        &[
            json!({ "status": { "conditions": [{ "type": "Ready", "status": "True", "reason": "R", "lastHeartbeatTime": "2020-01-01T00:00:01Z" }] } }),
            json!({ "status": { "conditions": [{ "type": "A", "status": "False" }, { "type": "Ready", "status": "Unknown" }] } }),
            json!({ "status": { "conditions": [{ "type": "Ready", "$patch": "delete" }] } }),
            json!({ "status": { "$setElementOrder/conditions": [{ "type": "Ready" }, { "type": "A" }], "conditions": [{ "type": "A", "status": "True" }] } }),
            json!({ "status": { "conditions": [{ "status": "True" }] } }),
            json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "192.168.0.1" }, { "type": "Hostname", "address": "a" }] } }),
            json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "192.168.0.2" }] } }),
            json!({ "status": { "addresses": [{ "type": "Hostname", "address": "a" }, { "type": "Hostname", "address": "a" }] } }),
            json!({ "status": { "images": [{ "names": ["x"], "sizeBytes": 1 }] } }),
            json!({ "status": { "nodeInfo": { "kubeletVersion": "v1" } } }),
            json!({ "status": { "allocatable": { "cpu": "2" } } }),
            json!({ "spec": { "taints": [] }, "status": { "phase": "Running" } }),
            json!({ "status": null }),
        ],
    )
}

// === Pods ===

pub(crate) fn pod(random: &mut Random) -> Value {
    let mut spec = one_of(
        random,
        &[
            json!({ "containers": [{ "name": "main", "image": "web:1" }] }),
            json!({ "nodeName": "a", "containers": [{ "name": "main", "image": "web:1" }] }),
            json!({ "nodeName": "a", "restartPolicy": "Never", "containers": [{ "name": "main", "image": "web" }] }),
            json!({ "nodeName": "b", "containers": [{ "name": "main", "image": "web:latest", "ports": [{ "containerPort": 80 }],
                "env": [{ "name": "X", "value": "" }, { "name": "Y", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }],
                "readinessProbe": { "httpGet": { "port": 80 } }, "livenessProbe": { "tcpSocket": { "port": 80 }, "periodSeconds": 3 } }] }),
            json!({ "containers": [{ "name": "main", "image": "web:1", "resources": { "limits": { "cpu": "1", "memory": "1Gi" } } }],
                "volumes": [{ "name": "v" }, { "name": "w", "configMap": { "name": "c" } }, { "name": "h", "hostPath": { "path": "/x" } }],
                "initContainers": [{ "name": "init", "image": "i:1", "resources": { "requests": { "cpu": "1" } } }] }),
            json!({ "nodeName": "a", "hostNetwork": true, "priorityClassName": "system-node-critical",
                "containers": [{ "name": "main", "image": "web:1", "ports": [{ "containerPort": 80 }] }] }),
            json!({ "containers": [] }),
            json!({ "containers": [{ "name": "main" }, { "name": "main", "image": "x" }] }),
            json!({ "containers": [{ "name": "Bad Name", "image": "x" }] }),
            json!({ "restartPolicy": "Maybe", "containers": [{ "name": "main", "image": "web:1" }] }),
            json!({ "serviceAccountName": "ghost", "containers": [{ "name": "main", "image": "web:1" }] }),
            json!({ "priorityClassName": "ghost", "containers": [{ "name": "main", "image": "web:1" }] }),
            json!({ "terminationGracePeriodSeconds": -5, "tolerations": [{ "operator": "Exists" }], "containers": [{ "name": "main", "image": "web:1" }] }),
        ],
    );
    if random.chance(700) {
        spec["automountServiceAccountToken"] = false.into();
    }
    json!({ "metadata": {}, "spec": spec, "status": { "phase": "Running" } })
}

pub(crate) fn pod_patch(random: &mut Random) -> Value {
    one_of(
        random,
        &[
            json!({ "spec": { "containers": [{ "name": "main", "image": "web:2" }] } }),
            json!({ "spec": { "activeDeadlineSeconds": 60 } }),
            json!({ "spec": { "activeDeadlineSeconds": 90 } }),
            json!({ "spec": { "activeDeadlineSeconds": null } }),
            json!({ "spec": { "nodeName": "c" } }),
            json!({ "spec": { "restartPolicy": "OnFailure" } }),
            json!({ "spec": { "tolerations": [] } }),
            json!({ "spec": { "terminationGracePeriodSeconds": 5 } }),
            json!({ "metadata": { "annotations": { "a": "b" } } }),
            json!({ "status": { "phase": "Failed" } }),
            json!({}),
        ],
    )
}

pub(crate) fn pod_status(random: &mut Random) -> Value {
    one_of(
        random,
        &[
            json!({ "status": { "phase": "Running", "podIP": "192.168.1.1", "podIPs": [{ "ip": "192.168.1.1" }] } }),
            json!({ "status": { "phase": "Succeeded" } }),
            json!({ "status": { "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z" }] } }),
            json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "observedGeneration": 1 }, { "type": "x.io/Gate", "status": "True" }] } }),
            json!({ "status": { "conditions": [{ "type": "bad type", "status": "True" }] } }),
            json!({ "status": { "containerStatuses": [{ "name": "main", "ready": true, "restartCount": 2, "image": "i", "imageID": "", "state": { "running": { "startedAt": "2020-01-01T00:00:00Z" } } }] } }),
            json!({ "status": { "containerStatuses": [{ "name": "main", "restartCount": 1, "state": { "terminated": { "exitCode": 0, "signal": 0 } } }] } }),
            json!({ "status": { "containerStatuses": [{ "name": "main", "state": { "terminated": { "exitCode": 1, "reason": "Error" } }, "lastState": {} }] } }),
            json!({ "status": { "containerStatuses": [{ "name": "main", "state": { "waiting": { "reason": "Backoff" } } }] } }),
            json!({ "status": { "containerStatuses": null } }),
            json!({ "status": { "qosClass": "Guaranteed" } }),
            json!({ "status": { "observedGeneration": 1 } }),
            json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "x", "uid": "u-2" }] } }),
            json!({ "spec": { "nodeName": "c" } }),
        ],
    )
}

// === Leases ===

pub(crate) fn lease(random: &mut Random) -> Value {
    let spec = one_of(
        random,
        &[
            json!({}),
            json!({ "holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": "2020-01-01T00:00:00.5Z", "leaseTransitions": 0 }),
            json!({ "holderIdentity": "", "acquireTime": "2020-01-01T00:00:00Z" }),
            json!({ "leaseDurationSeconds": 0, "leaseTransitions": -1 }),
        ],
    );
    json!({ "metadata": {}, "spec": spec })
}

pub(crate) fn lease_patch(random: &mut Random) -> Value {
    one_of(
        random,
        &[
            json!({ "spec": { "holderIdentity": "y", "renewTime": "2020-01-01T00:00:01.000001Z" } }),
            json!({ "spec": { "holderIdentity": null } }),
            json!({ "spec": { "leaseTransitions": 2 } }),
            json!({ "spec": { "leaseDurationSeconds": -1 } }),
            json!({ "spec": { "renewTime": "nonsense" } }),
        ],
    )
}

// === Config maps and secrets ===

pub(crate) fn config_map(random: &mut Random) -> Value {
    let mut map = one_of(
        random,
        &[
            json!({ "data": { "k": "v", "empty": "" } }),
            json!({ "binaryData": { "b": "AAE=" } }),
            json!({ "data": { "k": "v" }, "immutable": true }),
            json!({ "data": { "bad/key": "v" } }),
            json!({ "data": { "k": "v" }, "binaryData": { "k": "AAE=" } }),
            json!({ "data": { "k": 5 } }),
            json!({}),
        ],
    );
    map["metadata"] = json!({});
    map
}

pub(crate) fn config_map_patch(random: &mut Random) -> Value {
    one_of(
        random,
        &[
            json!({ "data": { "k": "w" } }),
            json!({ "data": { "k": null, "l": "" } }),
            json!({ "data": null }),
            json!({ "immutable": true }),
            json!({ "immutable": null }),
            json!({ "data": { "..": "x" } }),
        ],
    )
}

pub(crate) fn secret(random: &mut Random) -> Value {
    let mut secret = one_of(
        random,
        &[
            json!({ "stringData": { "k": "v" } }),
            json!({ "data": { "k": "dg==" }, "immutable": true }),
            json!({ "type": "kubernetes.io/tls" }),
            json!({ "type": "keelet.dev/own", "data": {} }),
        ],
    );
    secret["metadata"] = json!({});
    secret
}

pub(crate) fn secret_patch(random: &mut Random) -> Value {
    one_of(
        random,
        &[
            json!({ "stringData": { "l": "w" } }),
            json!({ "data": { "k": null } }),
            json!({ "type": "keelet.dev/other" }),
            json!({ "immutable": false }),
        ],
    )
}

// === Events ===

pub(crate) fn event(random: &mut Random) -> Value {
    let mut event = one_of(
        random,
        &[
            json!({ "involvedObject": { "kind": "Pod", "namespace": "differential", "name": "a" }, "reason": "R", "message": "m",
                "type": "Normal", "count": 1, "firstTimestamp": "2020-01-01T00:00:00Z", "source": { "component": "c" } }),
            json!({ "involvedObject": { "kind": "Node", "name": "a" } }),
            json!({ "involvedObject": { "kind": "Pod", "namespace": "other", "name": "a" } }),
            json!({ "involvedObject": { "namespace": "differential" }, "eventTime": "2020-01-01T00:00:00.5Z", "reportingComponent": "keelet.dev/x",
                "reportingInstance": "i", "action": "A", "reason": "R", "type": "Warning" }),
            json!({ "involvedObject": { "namespace": "differential" }, "eventTime": "2020-01-01T00:00:00Z" }),
        ],
    );
    event["metadata"] = json!({});
    event
}

pub(crate) fn event_patch(random: &mut Random) -> Value {
    one_of(
        random,
        &[
            json!({ "count": 2, "lastTimestamp": "2020-01-01T00:00:02Z" }),
            json!({ "message": "n" }),
            json!({ "involvedObject": { "namespace": "other" } }),
            json!({ "series": { "count": 2, "lastObservedTime": "2020-01-01T00:00:02Z" } }),
        ],
    )
}

// === Services ===

pub(crate) fn service(random: &mut Random) -> Value {
    let spec = one_of(
        random,
        &[
            json!({ "ports": [{ "port": 80 }], "selector": { "a": "b" } }),
            json!({ "ports": [{ "port": 80, "name": "x" }, { "port": 81, "name": "y", "protocol": "UDP", "targetPort": "z" }] }),
            json!({ "clusterIP": "None", "selector": { "a": "b" } }),
            json!({ "ports": [{ "port": 80 }, { "port": 81 }] }),
            json!({}),
            json!({ "ports": [{ "port": 99999 }] }),
        ],
    );
    json!({ "metadata": {}, "spec": spec })
}

pub(crate) fn service_patch(random: &mut Random) -> Value {
    one_of(
        random,
        &[
            json!({ "spec": { "ports": [{ "port": 82, "name": "new" }] } }),
            json!({ "spec": { "ports": [{ "port": 80, "targetPort": 8080 }] } }),
            json!({ "spec": { "selector": { "c": "d" } } }),
            json!({ "spec": { "clusterIP": "10.96.200.200" } }),
            json!({ "metadata": { "annotations": { "x": "y" } } }),
        ],
    )
}

// === Custom resources ===

pub(crate) fn gadget(random: &mut Random) -> Value {
    let spec = one_of(
        random,
        &[
            json!({ "mode": "once" }),
            json!({ "mode": "always", "count": 0, "names": ["a", ""], "labels": { "x": "y" }, "unknown": { "a": 1 } }),
            json!({ "mode": "once", "fixed": "f" }),
            json!({ "mode": "never" }),
            json!({ "mode": "once", "count": "three" }),
            json!({ "mode": "once", "count": -1, "names": [] }),
            json!({ "mode": "once", "names": ["too long"] }),
            json!({}),
            json!({ "mode": "once", "count": null, "labels": {} }),
        ],
    );
    let mut gadget =
        json!({ "apiVersion": "differential.keelet.dev/v1", "kind": "Gadget", "metadata": {}, "spec": spec });
    if random.chance(300) {
        gadget["status"] = json!({ "seen": 1 });
    }
    if random.chance(50) {
        gadget.as_object_mut().map(|map| map.remove("spec"));
    }
    gadget
}

pub(crate) fn gadget_patch(random: &mut Random) -> Value {
    one_of(
        random,
        &[
            json!({ "spec": { "count": 4 } }),
            json!({ "spec": { "count": null } }),
            json!({ "spec": { "mode": "always" }, "status": { "seen": 2 } }),
            json!({ "spec": { "fixed": "g" } }),
            json!({ "spec": { "mode": null } }),
            json!({ "spec": { "names": ["b"] } }),
            json!({ "metadata": { "annotations": { "x": "y" } } }),
        ],
    )
}

pub(crate) fn gadget_status(random: &mut Random) -> Value {
    one_of(
        random,
        &[
            json!({ "status": { "seen": 3 } }),
            json!({ "status": { "seen": "x" } }),
            json!({ "metadata": { "labels": { "from": "status" } }, "spec": { "count": 9 }, "status": { "seen": 4 } }),
            json!({ "status": null }),
        ],
    )
}
