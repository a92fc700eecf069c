//! Volumes that this node can never provide, of pods that an API server accepted.

use keelet_pod::{Features, Pod};
use serde_json::{Value, json};

use crate::{Stage, status::Phase};

use super::world::World;

const PLAIN: &str = "  containers: [{name: a, image: 'app:1'}]\n";

/// A pod of an API server with these volumes and these devices of its container.
fn pod(volumes: Value, devices: Value) -> Pod {
    let mut pod = World::with_spec(PLAIN).pod.to_json().unwrap();
    pod["spec"]["volumes"] = volumes;
    pod["spec"]["containers"][0]["volumeDevices"] = devices;
    Pod::from_json(pod, &Features::default()).unwrap()
}

fn projected(source: &Value) -> Value {
    json!([{ "name": "v", "projected": { "sources": [source] } }])
}

/// NODE-5: a pod whose volumes or devices this node can never provide is rejected with the reason, and does not wait for its mount
/// for ever.
#[test]
fn volumes_that_the_node_can_never_provide_reject_a_pod() {
    let claim = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]);
    for (volumes, devices, why) in [
        (claim.clone(), json!([]), Some("volume \"data\": this node has no driver for persistentVolumeClaim volumes")),
        (
            json!([{"name": "ok", "emptyDir": {}}, {"name": "x", "csi": {"driver": "d.example"}}]),
            json!([]),
            Some("volume \"x\": this node has no driver for csi volumes"),
        ),
        (
            json!([{"name": "huge", "emptyDir": {"medium": "HugePages"}}]),
            json!([]),
            Some("volume \"huge\": this node has no medium \"HugePages\""),
        ),
        (
            projected(&json!({"podCertificate": {"signerName": "s.example/x", "keyType": "ED25519"}})),
            json!([]),
            Some("volume \"v\": this node cannot provide a projected podCertificate"),
        ),
        (
            projected(&json!({"clusterTrustBundle": {"name": "c", "path": "p"}})),
            json!([]),
            Some("volume \"v\": this node cannot provide a projected clusterTrustBundle"),
        ),
        (
            json!([]),
            json!([{"name": "v", "devicePath": "/dev/x"}]),
            Some("container \"a\": this node has no driver for block"),
        ),
        (json!([{"name": "v"}]), json!([]), None),
        (json!([{"name": "v", "emptyDir": {"medium": "Memory"}}]), json!([]), None),
        (projected(&json!({"clusterTrustBundle": {"name": "c", "path": "p", "optional": true}})), json!([]), None),
        (projected(&json!({"serviceAccountToken": {"path": "token"}})), json!([]), None),
    ] {
        let mut world = World::with_spec(PLAIN);
        world.pod = pod(volumes.clone(), devices.clone());
        world.settle();
        let case = format!("{volumes} {devices}");
        let Some(why) = why else {
            assert_eq!(world.running(), ["a"].into(), "{case}: {:?}", world.status().message);
            continue;
        };
        assert_eq!((world.status().phase, world.stage()), (Phase::Failed, Stage::Ended), "{case}");
        assert_eq!(world.status().reason.as_deref(), Some("UnsupportedVolume"), "{case}");
        let message = world.status().message.clone().unwrap();
        assert!(message.starts_with(&format!("Pod was rejected: {why}")), "{case}: {message}");
        assert!(world.started.is_empty(), "{case}");
    }
}

/// NODE-5: an agent that begins to refuse a volume, by version, stops no running pod.
#[test]
fn a_pod_that_runs_keeps_its_volumes() {
    let mut world = World::with_spec(PLAIN);
    world.settle();
    assert_eq!(world.running(), ["a"].into());
    world.pod = pod(json!([{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]), json!([]));
    world.evidence.durable.admission = crate::evidence::Admission::Undecided;
    world.restart_agent();
    world.settle();
    assert_eq!((world.running(), world.status().reason.as_deref()), (["a"].into(), None));
}
