//! What goes wrong on the way: each fault as a client sees it, and what is stored then.

use keelet_sim_api::{Fate, Identity, Odds, Partition, SimApi, Verb, WatchOdds};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::{admin, ask, create, node, node_key, secs, simulate, watch};

const NODES: &str = "/api/v1/nodes";

/// CLU-50: a request may be carried out or not, whatever its client gets to see.
#[test]
fn requests_are_lost_refused_and_answered_wrongly() {
    let table = [
        (Fate::Answered, "201", true),
        (Fate::AnswerLost, "connection reset by peer", true),
        (Fate::Lost, "connection reset by peer", false),
        (Fate::Refused, "connection refused", false),
        (Fate::TooManyRequests(3), "429", false),
        (Fate::Error(500), "500", false),
        (Fate::Error(503), "503", false),
        (Fate::ErrorApplied(504), "504", true),
        (Fate::Page(502), "502", false),
        (Fate::Page(200), "200", false),
    ];
    for (fate, seen, stored) in table {
        simulate(async {
            let api = SimApi::new(1);
            let client = admin(&api);
            client.faults(|faults| faults.seal(Verb::Create, "nodes", fate, 1));
            let got = ask(&client, "POST", NODES, &node("n1")).await;
            let text = got.map_or_else(|error| error, |(code, _)| code.to_string());
            assert_eq!((text.as_str(), api.stored(&node_key("n1")).is_some()), (seen, stored), "{fate:?}");
            assert_eq!(ask(&client, "GET", NODES, &Value::Null).await.map(|(code, _)| code), Ok(200), "once only");
        });
    }
}

#[test]
fn a_busy_server_says_when_to_try_again() {
    simulate(async {
        let api = SimApi::new(1);
        let client = admin(&api);
        client.faults(|faults| faults.seal(Verb::List, "nodes", Fate::TooManyRequests(3), 1));
        let request = http::Request::builder().uri(NODES).body(http_body_util::Full::<bytes::Bytes>::default());
        let response = tower::ServiceExt::oneshot(client.clone(), request.unwrap_or_default()).await;
        let headers = response.map(|response| response.headers().clone()).unwrap_or_default();
        assert_eq!(headers.get("retry-after").and_then(|value| value.to_str().ok()), Some("3"));
        client.faults(|faults| faults.seal(Verb::List, "nodes", Fate::Page(502), 1));
        let (_, page) = ask(&client, "GET", NODES, &Value::Null).await.unwrap_or_default();
        assert!(page.as_str().is_some_and(|page| page.starts_with("<html>")), "{page}");
    });
}

/// CLU-50: reads that allow it show the past; reads that promise the newest do so only where a test asks for it.
#[test]
fn stale_reads_show_the_past() {
    simulate(async {
        let api = SimApi::new(1);
        let client = admin(&api);
        create(&api, NODES, &node("a"));
        tokio::time::sleep(secs(60)).await;
        create(&api, NODES, &node("b"));
        let newest = api.revision();
        tokio::time::sleep(secs(1)).await;
        let count = |list: &Value| list["items"].as_array().map_or(0, Vec::len);
        for (fate, query, expected) in [
            (Fate::Stale(secs(30)), "?resourceVersion=0".to_owned(), 1),
            (Fate::Stale(secs(30)), String::new(), 2),
            (Fate::Stale(secs(30)), format!("?resourceVersion={newest}"), 2),
            (Fate::StaleAlways(secs(30)), String::new(), 1),
        ] {
            client.faults(|faults| faults.seal(Verb::List, "nodes", fate, 1));
            let (_, list) = ask(&client, "GET", &format!("{NODES}{query}"), &Value::Null).await.unwrap_or_default();
            assert_eq!(count(&list), expected, "{fate:?} {query}");
            let shown = list["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse::<u64>().ok()).unwrap_or(0);
            assert_eq!(shown == newest, expected == 2, "the version is that of the state");
        }
        client.faults(|faults| faults.seal(Verb::Get, "nodes b", Fate::StaleAlways(secs(30)), 1));
        assert_eq!(ask(&client, "GET", "/api/v1/nodes/b", &Value::Null).await.map(|(code, _)| code), Ok(404));
    });
}

/// CLU-50: hours of silence. Nothing arrives, nothing is answered; afterwards the connection is broken.
#[test]
fn a_partition_is_silent_for_hours() {
    simulate(async {
        let api = SimApi::new(1);
        let (one, other) = (api.connect("one", Identity::admin()), api.connect("other", Identity::admin()));
        let mut lines = watch(&one, &format!("{NODES}?watch=1&resourceVersion={}", api.revision())).await;
        one.faults(|faults| faults.partition = Partition::Silent);
        let request = tokio::spawn({
            let one = one.clone();
            async move { ask(&one, "POST", NODES, &node("n1")).await }
        });
        tokio::time::sleep(secs(3 * 3600)).await;
        assert!(!request.is_finished() && api.stored(&node_key("n1")).is_none());
        assert_eq!(ask(&other, "POST", NODES, &node("n2")).await.map(|(code, _)| code), Ok(201), "others see no fault");
        assert!(timeout(secs(600), lines.next()).await.is_err(), "the watch is silent");
        one.faults(|faults| faults.partition = Partition::Open);
        assert_eq!(request.await.ok(), Some(Err("connection reset by peer".to_owned())));
        assert_eq!(lines.next().await, None);
        assert_eq!(ask(&one, "GET", "/api/v1/nodes/n2", &Value::Null).await.map(|(code, _)| code), Ok(200));
    });
}

#[test]
fn a_refusing_server_breaks_watches() {
    simulate(async {
        let api = SimApi::new(1);
        let client = admin(&api);
        let mut lines = watch(&client, &format!("{NODES}?watch=1&resourceVersion={}", api.revision())).await;
        client.faults(|faults| faults.partition = Partition::Refused);
        assert_eq!(lines.next().await, None);
        assert_eq!(ask(&client, "GET", NODES, &Value::Null).await, Err("connection refused".to_owned()));
    });
}

/// A request that hangs ends when the faults do; by then it is carried out or not.
#[test]
fn hanging_requests_end_with_the_faults() {
    for (fate, stored) in [(Fate::Hangs, false), (Fate::HangsApplied, true)] {
        simulate(async {
            let api = SimApi::new(1);
            let client = admin(&api);
            client.faults(|faults| faults.seal(Verb::Create, "nodes", fate, 1));
            let request = tokio::spawn(async move { ask(&client, "POST", NODES, &node("n1")).await });
            tokio::time::sleep(secs(3600)).await;
            assert_eq!((request.is_finished(), api.stored(&node_key("n1")).is_some()), (false, stored));
            api.calm();
            assert_eq!(request.await.ok(), Some(Err("connection reset by peer".to_owned())));
        });
    }
}

/// CLU-50: watches end early, break, go silent, or get 410; as an event, or when they are opened.
#[test]
fn watches_end_in_every_way() {
    let odds = WatchOdds::default();
    let table = [
        (WatchOdds { ends: 1000, ..odds }, "end"),
        (WatchOdds { breaks: 1000, ..odds }, "end"),
        (WatchOdds { gone: 1000, ..odds }, "ERROR 410"),
    ];
    for (odds, expected) in table {
        simulate(async {
            let api = SimApi::new(1);
            let client = admin(&api);
            client.faults(|faults| faults.watches = odds);
            let began = Instant::now();
            let mut lines = watch(&client, &format!("{NODES}?watch=1&resourceVersion={}", api.revision())).await;
            assert_eq!(lines.short().await, expected, "{odds:?}");
            assert!(Instant::now() - began < secs(100), "{odds:?}");
        });
    }
    simulate(async {
        let api = SimApi::new(1);
        let client = admin(&api);
        client.faults(|faults| faults.watches = WatchOdds { stalls: 1000, ..odds });
        let mut lines =
            watch(&client, &format!("{NODES}?watch=1&timeoutSeconds=200&resourceVersion={}", api.revision())).await;
        tokio::time::sleep(secs(100)).await;
        create(&api, NODES, &node("n1"));
        // A watch that was read before it went silent may have shown this one.
        assert!(timeout(secs(4000), async { while lines.next().await.is_some() {} }).await.is_err());
        client.faults(|faults| faults.watches = WatchOdds { refused_gone: 1000, ..odds });
        let got = ask(&client, "GET", &format!("{NODES}?watch=1"), &Value::Null).await;
        assert_eq!(got.map(|(code, status)| (code, status["reason"].clone())), Ok((410, json!("Expired"))));
    });
}

/// CLU-50: a watch may lag behind, each by its own time, but never shows events in another order.
#[test]
fn watches_lag_in_order() {
    simulate(async {
        let api = SimApi::new(4);
        let client = admin(&api);
        client.faults(|faults| faults.watches.lag = secs(30));
        let from = api.revision();
        let began = Instant::now();
        let mut seen = Vec::new();
        for _ in 0..3 {
            let mut lines = watch(&client, &format!("{NODES}?watch=1&resourceVersion={from}")).await;
            seen.push(tokio::spawn(async move { (lines.shorts(3).await, Instant::now() - began) }));
        }
        for name in ["a", "b", "c"] {
            create(&api, NODES, &node(name));
            tokio::time::sleep(secs(1)).await;
        }
        let mut lags = Vec::new();
        for watch in seen {
            let (events, when) = watch.await.unwrap_or_default();
            assert_eq!(
                events,
                [format!("ADDED a {}", from + 1), format!("ADDED b {}", from + 2), format!("ADDED c {}", from + 3)]
            );
            lags.push(when);
        }
        lags.dedup();
        assert_eq!(lags.len(), 3, "{lags:?}");
    });
}

/// Odds bring about every fault, and the same seed brings about the same ones.
#[test]
fn odds_bring_about_every_fault() {
    let run = |seed: u64| {
        simulate(async move {
            let api = SimApi::new(seed);
            let client = admin(&api);
            create(&api, NODES, &node("n1"));
            let odds = Odds {
                answer_lost: 80,
                lost: 80,
                refused: 80,
                hangs: 20,
                too_many: 80,
                errors: 100,
                pages: 80,
                stale: 80,
                stale_always: 80,
                staleness: secs(10),
                slow: secs(5),
            };
            client.faults(|faults| faults.requests = odds);
            for index in 0..400 {
                let client = client.clone();
                let request = async move {
                    let label = json!({ "metadata": { "labels": { "count": index.to_string() } } });
                    drop(ask(&client, "PATCH", "/api/v1/nodes/n1", &label).await);
                    drop(ask(&client, "GET", NODES, &Value::Null).await);
                };
                drop(timeout(secs(30), request).await);
            }
            api.calm();
            api.log().to_string()
        })
    };
    let log = run(1);
    for fault in [
        "(answer lost)",
        "(lost)",
        "(connection refused)",
        "(hangs)",
        "(applied, hangs)",
        "(429, retry",
        "(error 500)",
        "(error 503)",
        "(applied, error",
        "(a proxy's page, 502)",
        "(stale by",
    ] {
        assert!(log.contains(fault), "{fault} never happened");
    }
    assert_eq!(log, run(1));
    assert_ne!(log, run(2));
}

#[test]
fn clocks_differ_between_clients() {
    simulate(async {
        let api = SimApi::new(1);
        let (one, other) = (api.connect("one", Identity::admin()), api.connect("other", Identity::admin()));
        one.set_skew(jiff::SignedDuration::from_mins(-7));
        tokio::time::sleep(secs(60)).await;
        assert_eq!(other.now().duration_since(one.now()), jiff::SignedDuration::from_mins(7));
        assert_eq!(other.now(), api.clock().now());
    });
}
