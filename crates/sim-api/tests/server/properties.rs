//! What holds for any sequence of requests.

use std::collections::BTreeMap;

use keelet_sim_api::{Identity, Log, Odds, Random, SimApi, WatchOdds};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{ask, create, node, secs, simulate, watch};

const NODES: &str = "/api/v1/nodes";

/// A random sequence of writes to a few nodes, some with preconditions that may be stale.
async fn play(api: &SimApi, random: &mut Random, steps: u64) {
    let clients: Vec<_> = (0..3).map(|index| api.connect(&format!("c{index}"), Identity::admin())).collect();
    let mut known: BTreeMap<&str, Value> = BTreeMap::new();
    for step in 0..steps {
        let client = random.pick(&clients).clone();
        let name = *random.pick(&["a", "b", "c", "d"]);
        let path = format!("{NODES}/{name}");
        let label = json!({ "labels": { "step": step.to_string(), "zone": *random.pick(&["x", "y"]) } });
        let work = async {
            match random.within(0..6) {
                0 => ask(&client, "POST", NODES, &json!({ "metadata": { "name": name } })).await,
                1 => ask(&client, "DELETE", &path, &Value::Null).await,
                2 => ask(&client, "PATCH", &path, &json!({ "metadata": label })).await,
                3 => ask(&client, "GET", &path, &Value::Null).await,
                _ => {
                    let mut patch = json!({ "metadata": label });
                    if let Some(node) = known.get(name) {
                        patch["metadata"]["resourceVersion"] = node["metadata"]["resourceVersion"].clone();
                        patch["metadata"]["uid"] = node["metadata"]["uid"].clone();
                    }
                    ask(&client, "PATCH", &path, &patch).await
                }
            }
        };
        if let Ok(Ok((200 | 201, object))) = timeout(secs(20), work).await
            && object["kind"] == "Node"
            && random.chance(700)
        {
            known.insert(name, object);
        }
        tokio::time::sleep(random.millis(secs(3))).await;
    }
}

fn odds() -> Odds {
    Odds {
        answer_lost: 60,
        lost: 60,
        refused: 30,
        hangs: 10,
        too_many: 40,
        errors: 60,
        pages: 20,
        slow: secs(2),
        ..Odds::default()
    }
}

/// The objects of a list, by name.
fn by_name(list: &Value) -> BTreeMap<String, Value> {
    let items = list["items"].as_array().cloned().unwrap_or_default();
    items.into_iter().map(|item| (item["metadata"]["name"].as_str().unwrap_or("").to_owned(), item)).collect()
}

/// Revisions only grow; every object carries the one of its last write; a UID is given out once.
fn check_log(log: &Log) -> Result<(), TestCaseError> {
    let mut last = 0;
    let mut living: BTreeMap<String, String> = BTreeMap::new();
    let mut dead = Vec::new();
    for write in log.writes() {
        prop_assert!(write.revision > last, "{} after {last}", write.revision);
        last = write.revision;
        let name = write.key.to_string();
        if let Some(after) = &write.after {
            prop_assert_eq!(&after["metadata"]["resourceVersion"], &json!(last.to_string()));
            let uid = after["metadata"]["uid"].as_str().unwrap_or("").to_owned();
            prop_assert!(!dead.contains(&uid), "{} was used before", uid);
            let before = living.insert(name.clone(), uid.clone());
            prop_assert!(before.is_none_or(|before| before == uid), "{} changed its UID", name);
        } else {
            dead.extend(living.remove(&name));
        }
        prop_assert_eq!(
            write.before.is_some(),
            write.before.as_ref().is_some_and(|b| b["metadata"]["uid"].is_string())
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn revisions_only_grow(seed: u64) {
        simulate(async {
            let api = SimApi::new(seed);
            for client in ["c0", "c1", "c2"] {
                api.faults(client, |faults| faults.requests = odds());
            }
            play(&api, &mut Random::new(seed), 60).await;
            check_log(&api.log())
        })?;
    }

    /// A watch from any version, played onto the list of that version, gives the final list.
    #[test]
    fn lists_and_watches_agree(seed: u64, selected: bool) {
        simulate(async {
            let api = SimApi::new(seed);
            let mut random = Random::new(seed);
            let first = api.revision();
            play(&api, &mut random, 60).await;
            let selector = if selected { "&labelSelector=zone%3Dx" } else { "" };
            let admin = api.connect("admin", Identity::admin());
            let last = api.revision();
            let (_, end) = api.act("GET", &format!("{NODES}?x{selector}"), &Value::Null);
            for _ in 0..5 {
                let from = random.within(first..last + 1);
                let (code, list) = api.act("GET", &format!("{NODES}?resourceVersion={from}&resourceVersionMatch=Exact{selector}"), &Value::Null);
                prop_assert_eq!(code, 200);
                let mut state = by_name(&list);
                let mut lines = watch(&admin, &format!("{NODES}?watch=1&timeoutSeconds=5&resourceVersion={from}{selector}")).await;
                let mut seen = from;
                while let Some(event) = lines.next().await {
                    let mut object = event["object"].clone();
                    let version = object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).unwrap_or(0);
                    prop_assert!(version > seen, "{} after {}", version, seen);
                    seen = version;
                    let name = object["metadata"]["name"].as_str().unwrap_or("").to_owned();
                    object.as_object_mut().map(|map| { map.remove("kind"); map.remove("apiVersion") });
                    match event["type"].as_str() {
                        Some("ADDED") => prop_assert!(state.insert(name, object).is_none(), "added twice"),
                        Some("MODIFIED") => prop_assert!(state.insert(name, object).is_some(), "modified before it was added"),
                        Some("DELETED") => prop_assert!(state.remove(&name).is_some(), "deleted before it was added"),
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
                prop_assert_eq!(&state, &by_name(&end));
            }
            Ok(())
        })?;
    }

    /// A write whose resourceVersion is not the stored one is never applied.
    #[test]
    fn a_stale_precondition_is_never_applied(seed: u64) {
        simulate(async {
            let api = SimApi::new(seed);
            create(&api, NODES, &node("a"));
            for client in ["w0", "w1", "w2"] {
                api.faults(client, |faults| { faults.requests = odds(); faults.watches = WatchOdds::default(); });
            }
            // Each writer counts in a label, from what it last read: no count may be lost or made twice.
            let writers: Vec<_> = (0..3u64).map(|index| {
                let client = api.connect(&format!("w{index}"), Identity::admin());
                let mut random = Random::new(seed ^ index);
                tokio::spawn(async move {
                    for _ in 0..8 {
                        let Ok(Ok((200, node))) = timeout(secs(9), ask(&client, "GET", "/api/v1/nodes/a", &Value::Null)).await else { continue };
                        // A proxy's page may have the code of a good answer.
                        if node["kind"] != "Node" {
                            continue;
                        }
                        tokio::time::sleep(random.millis(secs(1))).await;
                        let count: u64 = node["metadata"]["labels"]["count"].as_str().and_then(|c| c.parse().ok()).unwrap_or(0);
                        let patch = json!({ "metadata": {
                            "resourceVersion": node["metadata"]["resourceVersion"], "labels": { "count": (count + 1).to_string() },
                        } });
                        drop(timeout(secs(9), ask(&client, "PATCH", "/api/v1/nodes/a", &patch)).await);
                    }
                })
            }).collect();
            for writer in writers {
                drop(writer.await);
            }
            let log = api.log();
            let counts: Vec<u64> = log.writes().filter(|write| &*write.key.resource == "nodes").skip(1)
                .filter_map(|write| write.after.as_ref()?["metadata"]["labels"]["count"].as_str()?.parse().ok()).collect();
            let expected: Vec<u64> = (1..=counts.len() as u64).collect();
            prop_assert_eq!(counts, expected);
            Ok(())
        })?;
    }

    /// The same seed, the same log, byte for byte.
    #[test]
    fn a_seed_replays_byte_for_byte(seed: u64) {
        let run = || simulate(async {
            let api = SimApi::new(seed);
            for client in ["c0", "c1", "c2"] {
                api.faults(client, |faults| faults.requests = odds());
            }
            play(&api, &mut Random::new(seed), 40).await;
            api.log().to_string()
        });
        prop_assert_eq!(run(), run());
    }
}
