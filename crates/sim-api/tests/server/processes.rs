//! Clients that are killed and frozen: what becomes of their requests.

use std::sync::{Arc, Mutex};

use keelet_sim_api::{Death, Identity, InFlight, SimApi};
use serde_json::{Value, json};

use super::{ask, create, node, node_key, secs, simulate, watch};

const NODES: &str = "/api/v1/nodes";

/// Death comes before or after a write; the process never learns what became of it.
#[test]
fn a_process_dies_at_a_write() {
    for (death, stored) in
        [(Death::Before(2), vec!["a"]), (Death::After(2), vec!["a", "b"]), (Death::After(1), vec!["a"])]
    {
        simulate(async {
            let api = SimApi::new(1);
            let client = api.connect("one", Identity::admin());
            client.process().die_at(death, InFlight::Lost);
            let done = Arc::new(Mutex::new(0));
            let count = Arc::clone(&done);
            let process = client.process().clone();
            drop(tokio::spawn(process.own(async move {
                for name in ["a", "b", "c"] {
                    drop(ask(&client, "POST", NODES, &node(name)).await);
                    *count.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += 1;
                }
            })));
            process.death().await;
            tokio::time::sleep(secs(10)).await;
            let names: Vec<String> = api
                .stored_of("nodes")
                .iter()
                .map(|n| n["metadata"]["name"].as_str().unwrap_or("").to_owned())
                .collect();
            assert_eq!(names, stored, "{death:?}");
            let answered = stored.len() - usize::from(matches!(death, Death::After(_)));
            assert_eq!(*done.lock().unwrap_or_else(std::sync::PoisonError::into_inner), answered, "{death:?}");
            api.end();
        });
    }
}

/// What is on its way when a process is killed arrives, or does not.
#[test]
fn requests_on_their_way_arrive_or_not() {
    for (in_flight, stored) in [(InFlight::Applied, true), (InFlight::Lost, false)] {
        simulate(async {
            let api = SimApi::new(1);
            let client = api.connect("one", Identity::admin());
            client.process().die_at(Death::Before(99), in_flight);
            let sending = client.clone();
            drop(tokio::spawn(client.process().own(async move { ask(&sending, "POST", NODES, &node("a")).await })));
            tokio::task::yield_now().await;
            client.process().kill();
            tokio::time::sleep(secs(1)).await;
            assert_eq!(api.stored(&node_key("a")).is_some(), stored, "{in_flight:?}");
            api.end();
        });
    }
}

/// A client that does not wait for an answer does not take its request back.
#[test]
fn a_request_goes_on_when_its_client_gives_up() {
    simulate(async {
        let api = SimApi::new(1);
        let client = api.connect("one", Identity::admin());
        client.faults(|faults| faults.requests.slow = secs(20));
        let given_up =
            tokio::time::timeout(std::time::Duration::from_micros(10), ask(&client, "POST", NODES, &node("a"))).await;
        assert!(given_up.is_err());
        tokio::time::sleep(secs(30)).await;
        assert!(api.stored(&node_key("a")).is_some());
    });
}

/// A frozen process sends nothing; when it is thawed, it goes on with what it knew.
#[test]
fn a_frozen_process_writes_late() {
    simulate(async {
        let api = SimApi::new(1);
        let created = create(&api, NODES, &node("a"));
        let client = api.connect("one", Identity::admin());
        let process = client.process().clone();
        process.freeze();
        let version = created["metadata"]["resourceVersion"].clone();
        let write = tokio::spawn(process.own(async move {
            let patch = json!({ "metadata": { "resourceVersion": version, "labels": { "late": "yes" } } });
            ask(&client, "PATCH", "/api/v1/nodes/a", &patch).await
        }));
        tokio::time::sleep(secs(60)).await;
        api.act("PATCH", "/api/v1/nodes/a", &json!({ "metadata": { "labels": { "other": "first" } } }));
        process.thaw();
        let answer = write.await.ok().and_then(Result::ok);
        assert_eq!(answer.map(|(code, _)| code), Some(409), "the precondition is the fence");
        let stored = api.stored(&node_key("a")).map(|node| node["metadata"]["labels"].clone());
        assert_eq!(stored, Some(json!({ "other": "first" })));
    });
}

#[test]
fn a_frozen_process_reads_its_watch_later() {
    simulate(async {
        let api = SimApi::new(1);
        let client = api.connect("one", Identity::admin());
        let mut lines = watch(&client, &format!("{NODES}?watch=1&resourceVersion={}", api.revision())).await;
        client.process().freeze();
        create(&api, NODES, &node("a"));
        assert!(tokio::time::timeout(secs(60), lines.next()).await.is_err());
        client.process().thaw();
        assert_eq!(lines.next().await.map(|event| event["type"].clone()), Some(Value::from("ADDED")));
    });
}
