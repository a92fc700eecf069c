//! Watches: what they show and when, where they begin, how they end.

use keelet_sim_api::SimApi;
use serde_json::{Value, json};

use super::{admin, create, node, pod, secs, simulate, watch};

const NODES: &str = "/api/v1/nodes";

#[test]
fn a_watch_shows_every_change_after_its_version() {
    simulate(async {
        let api = SimApi::new(1);
        create(&api, NODES, &node("a"));
        let from = api.revision();
        let mut lines = watch(&admin(&api), &format!("{NODES}?watch=1&resourceVersion={from}")).await;
        api.act("PATCH", "/api/v1/nodes/a", &json!({ "metadata": { "labels": { "x": "y" } } }));
        create(&api, NODES, &node("b"));
        create(&api, "/api/v1/namespaces/default/pods", &pod("web"));
        api.act("DELETE", "/api/v1/nodes/a", &Value::Null);
        let expected =
            [format!("MODIFIED a {}", from + 1), format!("ADDED b {}", from + 2), format!("DELETED a {}", from + 4)];
        assert_eq!(lines.shorts(3).await, expected);
        let mut again = watch(&admin(&api), &format!("{NODES}?watch=1&resourceVersion={}", from + 1)).await;
        assert_eq!(again.shorts(2).await, expected[1..]);
    });
}

#[test]
fn without_a_version_a_watch_begins_with_what_is_there() {
    simulate(async {
        let api = SimApi::new(1);
        create(&api, NODES, &node("a"));
        let version = api.revision();
        for query in ["watch=1", "watch=1&resourceVersion=0"] {
            let mut lines = watch(&admin(&api), &format!("{NODES}?{query}")).await;
            assert_eq!(lines.short().await, format!("ADDED a {version}"), "{query}");
        }
        let streamed = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let mut lines = watch(&admin(&api), &format!("{NODES}?{streamed}")).await;
        assert_eq!(lines.short().await, format!("ADDED a {version}"));
        let end = lines.next().await.unwrap_or_default();
        assert_eq!(end["type"], "BOOKMARK");
        assert_eq!(end["object"]["metadata"]["annotations"], json!({ "k8s.io/initial-events-end": "true" }));
        assert_eq!(end["object"]["metadata"]["resourceVersion"], version.to_string());
        create(&api, NODES, &node("b"));
        assert_eq!(lines.short().await, format!("ADDED b {}", version + 1));
    });
}

/// An object that comes into the selection is added, one that leaves it is deleted.
#[test]
fn selections_make_changes_arrivals_and_departures() {
    simulate(async {
        let api = SimApi::new(1);
        let pods = "/api/v1/namespaces/default/pods";
        create(&api, pods, &pod("web"));
        let from = api.revision();
        let client = admin(&api);
        let mut bound =
            watch(&client, &format!("/api/v1/pods?watch=1&resourceVersion={from}&fieldSelector=spec.nodeName%3Dn1"))
                .await;
        let mut labelled =
            watch(&client, &format!("/api/v1/pods?watch=1&resourceVersion={from}&labelSelector=a")).await;
        let mut elsewhere =
            watch(&client, &format!("/api/v1/namespaces/kube-system/pods?watch=1&resourceVersion={from}")).await;
        let (code, _) =
            api.act("POST", &format!("{pods}/web/binding"), &json!({ "target": { "kind": "Node", "name": "n1" } }));
        assert_eq!(code, 201);
        api.act("PATCH", &format!("{pods}/web"), &json!({ "metadata": { "labels": { "a": "1" } } }));
        api.act("PATCH", &format!("{pods}/web"), &json!({ "metadata": { "labels": { "a": null } } }));
        let expected = [
            format!("ADDED web {}", from + 1),
            format!("MODIFIED web {}", from + 2),
            format!("MODIFIED web {}", from + 3),
        ];
        assert_eq!(bound.shorts(3).await, expected);
        assert_eq!(labelled.short().await, format!("ADDED web {}", from + 2));
        let gone = labelled.next().await.unwrap_or_default();
        assert_eq!(super::short(&gone), format!("DELETED web {}", from + 3));
        assert_eq!(gone["object"]["metadata"]["labels"], json!({ "a": "1" }), "as it was when it was last selected");
        create(&api, "/api/v1/namespaces/kube-system/pods", &pod("other"));
        assert_eq!(elsewhere.short().await, format!("ADDED other {}", from + 4));
    });
}

/// Bookmarks say how far the watch is, also when nothing changed that it shows.
#[test]
fn bookmarks_come_every_minute_and_before_the_end() {
    simulate(async {
        let api = SimApi::new(1);
        let from = api.revision();
        let began = tokio::time::Instant::now();
        let uri = format!("{NODES}?watch=1&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=150");
        let mut lines = watch(&admin(&api), &uri).await;
        create(&api, "/api/v1/namespaces/default/configmaps", &json!({ "metadata": { "name": "m" } }));
        assert_eq!(lines.short().await, format!("BOOKMARK {}", from + 1));
        assert_eq!((tokio::time::Instant::now() - began).as_secs(), 60);
        assert_eq!(lines.short().await, format!("BOOKMARK {}", from + 1));
        assert_eq!(lines.short().await, format!("BOOKMARK {}", from + 1));
        assert_eq!((tokio::time::Instant::now() - began).as_secs(), 148);
        assert_eq!(lines.short().await, "end");
        assert_eq!((tokio::time::Instant::now() - began).as_secs(), 150);
        let mut plain = watch(&admin(&api), &format!("{NODES}?watch=1&resourceVersion={from}&timeoutSeconds=70")).await;
        assert_eq!(plain.short().await, "end", "no bookmarks for clients that do not ask for them");
    });
}

#[test]
fn a_watch_without_a_timeout_ends_within_an_hour() {
    simulate(async {
        let api = SimApi::new(1);
        let began = tokio::time::Instant::now();
        let mut lines = watch(&admin(&api), &format!("{NODES}?watch=1&resourceVersion={}", api.revision())).await;
        assert_eq!(lines.short().await, "end");
        let lasted = tokio::time::Instant::now() - began;
        assert!((1800..=3600).contains(&lasted.as_secs()), "{lasted:?}");
    });
}

/// What is compacted cannot be watched; a watch that is open goes on.
#[test]
fn an_old_version_gets_410_as_an_event() {
    simulate(async {
        let api = SimApi::new(1);
        let from = api.revision();
        create(&api, NODES, &node("a"));
        create(&api, NODES, &node("b"));
        let mut early = watch(&admin(&api), &format!("{NODES}?watch=1&resourceVersion={from}")).await;
        api.compact(from + 1);
        let mut late = watch(&admin(&api), &format!("{NODES}?watch=1&resourceVersion={from}")).await;
        let error = late.next().await.unwrap_or_default();
        assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
        assert_eq!(error["object"]["reason"], "Expired");
        assert_eq!(error["object"]["message"], format!("too old resource version: {from} ({})", from + 1));
        assert_eq!(late.short().await, "end");
        let mut just = watch(&admin(&api), &format!("{NODES}?watch=1&resourceVersion={}", from + 1)).await;
        assert_eq!(just.short().await, format!("ADDED b {}", from + 2));
        assert_eq!(early.shorts(2).await, [format!("ADDED a {}", from + 1), format!("ADDED b {}", from + 2)]);
    });
}

#[test]
fn options_that_do_not_fit_are_refused() {
    simulate(async {
        let api = SimApi::new(1);
        for query in [
            "watch=1&sendInitialEvents=true",
            "watch=1&resourceVersionMatch=NotOlderThan",
            "watch=1&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1",
            "sendInitialEvents=true",
        ] {
            let (code, status) = api.act("GET", &format!("{NODES}?{query}"), &Value::Null);
            assert_eq!((code, &status["details"]["kind"]), (422, &json!("ListOptions")), "{query}");
        }
    });
}

/// A version that the server has not reached yet, as after a restore: the watch waits for it.
#[test]
fn a_watch_of_the_future_waits() {
    simulate(async {
        let api = SimApi::new(1);
        let from = api.revision() + 2;
        let mut lines = watch(&admin(&api), &format!("{NODES}?watch=1&resourceVersion={from}")).await;
        for name in ["a", "b", "c"] {
            create(&api, NODES, &node(name));
        }
        assert_eq!(lines.short().await, format!("ADDED c {}", from + 1));
        let uri = format!(
            "{NODES}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={}",
            from + 9
        );
        assert_eq!(watch(&admin(&api), &uri).await.shorts(2).await, ["ERROR 504", "end"]);
        tokio::time::sleep(secs(1)).await;
    });
}

#[test]
fn metadata_alone_can_be_watched_and_listed() {
    simulate(async {
        let api = SimApi::new(1);
        create(&api, NODES, &node("a"));
        let client = admin(&api);
        let request = http::Request::builder()
            .uri(NODES)
            .header("accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
            .body(http_body_util::Full::<bytes::Bytes>::default())
            .unwrap_or_default();
        let response = tower::ServiceExt::oneshot(client, request).await.unwrap_or_else(|error| panic!("{error}"));
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap_or_default().to_bytes();
        let list: Value = serde_json::from_slice(&body).unwrap_or_default();
        assert_eq!(
            (&list["kind"], &list["items"][0]["kind"]),
            (&json!("PartialObjectMetadataList"), &json!("PartialObjectMetadata"))
        );
        assert_eq!((list["items"][0].get("spec"), &list["items"][0]["metadata"]["name"]), (None, &json!("a")));
    });
}
