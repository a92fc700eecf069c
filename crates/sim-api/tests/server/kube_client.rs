//! The real client on the simulated server.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use keelet_sim_api::{Fate, Identity, SimApi, Verb};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::json;

use super::{node, simulate};

fn client(api: &SimApi) -> Client {
    Client::new(api.connect("one", Identity::admin()), "default")
}

#[test]
fn the_client_reads_and_writes() {
    simulate(async {
        let api = SimApi::new(1);
        let nodes: Api<Node> = Api::all(client(&api));
        let given: Node = serde_json::from_value(node("n1")).unwrap_or_default();
        let created = nodes.create(&PostParams::default(), &given).await.unwrap_or_else(|error| panic!("{error}"));
        let patch = Patch::Strategic(json!({
            "metadata": { "uid": created.metadata.uid, "resourceVersion": created.metadata.resource_version },
            "spec": { "taints": [{ "key": "a", "effect": "NoSchedule" }] },
        }));
        let patched =
            nodes.patch("n1", &PatchParams::default(), &patch).await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(patched.spec.and_then(|spec| spec.taints).map(|taints| taints.len()), Some(1));
        let again = nodes.patch("n1", &PatchParams::default(), &patch).await;
        assert!(matches!(&again, Err(kube::Error::Api(status)) if status.is_conflict()), "{again:?}");
        let listed = nodes.list(&ListParams::default().limit(10)).await.map(|list| list.items.len());
        assert_eq!(listed.ok(), Some(1));
        let deleted = nodes.delete("n1", &DeleteParams::default()).await;
        assert!(deleted.is_ok_and(|deleted| deleted.is_right()));
        assert!(matches!(nodes.get("n1").await, Err(kube::Error::Api(status)) if status.is_not_found()));
    });
}

#[test]
fn the_client_watches() {
    simulate(async {
        let api = SimApi::new(1);
        let leases: Api<Lease> = Api::default_namespaced(client(&api));
        let params = WatchParams::default().timeout(100);
        let stream = leases.watch(&params, &api.revision().to_string()).await.unwrap_or_else(|error| panic!("{error}"));
        let lease = json!({ "metadata": { "name": "l" }, "spec": { "renewTime": "2027-01-15T08:00:00.123456Z" } });
        api.act("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", &lease);
        let events: Vec<_> = stream.take(2).try_collect().await.unwrap_or_else(|error| panic!("{error}"));
        assert!(
            matches!(&events[..], [WatchEvent::Added(lease), WatchEvent::Bookmark(_)] if lease.metadata.name.as_deref() == Some("l")),
            "{events:?}"
        );
    });
}

/// What the client makes of the faults: an error of the API where the server answered, another one where it did not.
#[test]
fn the_client_sees_faults() {
    simulate(async {
        let api = SimApi::new(1);
        let nodes: Api<Node> = Api::all(client(&api));
        let mut seen = Vec::new();
        for fate in [Fate::Lost, Fate::TooManyRequests(2), Fate::Error(500), Fate::Page(502), Fate::Page(200)] {
            api.faults("one", |faults| faults.seal(Verb::List, "nodes", fate, 1));
            seen.push(match nodes.list(&ListParams::default()).await {
                Err(kube::Error::Api(status)) => format!("api {}", status.code),
                Err(kube::Error::SerdeError(_)) => "not json".to_owned(),
                Err(kube::Error::Service(_)) => "no answer".to_owned(),
                other => format!("{other:?}"),
            });
        }
        assert_eq!(seen, ["no answer", "api 429", "api 500", "api 502", "not json"]);
    });
}
