//! From a condition to a free node.

use keelet_gates::{
    controller::Election,
    engine::Mode,
    settings::{Enforcement, MaxHeld, Settings},
};
use keelet_sim_api::{Fate, Partition, Verb};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    secs, simulate,
    world::{GATE, World, options},
};

/// VEC-66, SCN-G1, CTRL-4, CTRL-5, CTRL-18, EVT-9, SCN-G7, CTRL-19: in one patch, with the permissions that it asks for and no more.
#[test]
fn a_gate_opens_when_its_condition_is_true() {
    simulate(async {
        let world = World::new(1);
        world.node("n", &["other.io/T:NoExecute", &format!("{GATE}:NoSchedule")]);
        let replica = world.replica("a");
        world.until("it leads", |_| replica.leads()).await;
        world.until("the label is there", |world| world.get("n")["metadata"]["labels"][GATE] == "true").await;
        let patches = world.requests("a", "patch", "nodes");
        world.report("n", "vendor.example.com/CNIReady", "True");
        let took = world.until("the gate is open", |world| world.taints("n").len() == 1).await;
        assert!(took < secs(1), "{took:?}");
        assert_eq!(world.taints("n"), ["other.io/T:NoExecute"]);
        assert_eq!(world.get("n")["metadata"]["annotations"][GATE], "passed");
        world.until("the event is there", |world| !world.events("n").is_empty()).await;
        assert_eq!(world.events("n"), [("ReadinessGatePassed".to_owned(), 1)]);
        assert_eq!(world.requests("a", "patch", "nodes") - patches, 1, "one patch");
        world.report("n", "vendor.example.com/CNIReady", "False");
        sleep(secs(600)).await;
        assert_eq!(world.taints("n"), ["other.io/T:NoExecute"], "it stays open");
        assert_eq!(world.requests("a", "patch", "nodes") - patches, 1);
        assert_eq!(replica.metric("readiness_gate_controller_taints_removed_total"), 1.0);
    });
}

/// CTRL-13, GN-10: an hour of heartbeats costs nothing but the watch.
#[test]
fn heartbeats_cause_no_requests() {
    simulate(async {
        let world = World::new(1);
        world.gated("n");
        let replica = world.replica("a");
        world.until("it leads", |_| replica.leads()).await;
        sleep(secs(5)).await;
        let before = world.requests("a", "patch", "nodes") + world.requests("a", "get", "nodes");
        for _ in 0..360 {
            world.report("n", "Ready", "True");
            sleep(secs(10)).await;
        }
        let after = world.requests("a", "patch", "nodes") + world.requests("a", "get", "nodes");
        assert_eq!(after, before);
        assert!(world.requests("a", "list", "nodes") <= 3, "nor are nodes listed again and again");
    });
}

/// VEC-74, GN-1, SCN-G18, CTRL-7: ten writers at full speed, and none of their taints is lost.
#[test]
fn a_storm_of_other_writers_loses_no_taint() {
    simulate(async {
        let world = World::new(1);
        for name in ["n1", "n2", "n3"] {
            world.gated(name);
        }
        let replica = world.replica("a");
        world.until("it leads", |_| replica.leads()).await;
        for name in ["n1", "n2", "n3"] {
            world.report(name, "CNIReady", "True");
        }
        for round in 0..200 {
            for name in ["n1", "n2", "n3"] {
                let mut node = world.get(name);
                let writer = round % 10;
                let list = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
                let mut list: Vec<_> =
                    list.into_iter().filter(|taint| taint["key"] != format!("w{writer}.io/T")).collect();
                list.push(
                    json!({"key": format!("w{writer}.io/T"), "value": round.to_string(), "effect": "NoSchedule"}),
                );
                node["spec"]["taints"] = json!(list);
                let (code, answer) = world.api.act("PUT", &format!("/api/v1/nodes/{name}"), &node);
                assert_eq!(code, 200, "{answer}");
            }
            sleep(std::time::Duration::from_millis(2)).await;
        }
        world
            .until("all gates are open", |world| {
                ["n1", "n2", "n3"].iter().all(|name| world.taints(name).iter().all(|taint| !taint.starts_with(GATE)))
            })
            .await;
        for name in ["n1", "n2", "n3"] {
            let taints = world.taints(name);
            assert_eq!(taints.len(), 10, "{taints:?}");
            let values: Vec<_> = world.get(name)["spec"]["taints"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|taint| taint["value"].as_str()?.parse::<u32>().ok())
                .collect();
            assert!(values.iter().all(|value| *value >= 190), "the last value of each writer: {values:?}");
        }
        assert!(replica.metric("keelet_gates_patches_total{outcome=\"conflict\"}") > 0.0, "there were conflicts");
        sleep(secs(1)).await;
        assert_eq!(replica.metric("readiness_gate_controller_taints_removed_total"), 3.0);
    });
}

/// VEC-79: an answer that is lost, whatever became of the patch, ends in one taint less and one event.
#[test]
fn a_lost_answer_is_found_out() {
    for fate in [
        Fate::AnswerLost,
        Fate::Lost,
        Fate::HangsApplied,
        Fate::Hangs,
        Fate::ErrorApplied(504),
        Fate::Error(500),
        Fate::Page(502),
        Fate::Page(200),
        Fate::TooManyRequests(3),
        Fate::Refused,
    ] {
        simulate(async {
            let world = World::new(1);
            world.gated("n");
            let replica = world.replica("a");
            world.until("it leads", |_| replica.leads()).await;
            sleep(secs(2)).await;
            replica.connection.faults(|faults| faults.seal(Verb::Patch, "nodes n", fate, 1));
            world.report("n", "CNIReady", "True");
            world.until("the gate is open", |world| world.taints("n").is_empty()).await;
            world.until("the event is there", |world| !world.events("n").is_empty()).await;
            sleep(secs(30)).await;
            assert_eq!(world.events("n"), [("ReadinessGatePassed".to_owned(), 1)], "{fate:?}");
            assert_eq!(replica.metric("readiness_gate_controller_taints_removed_total"), 1.0, "{fate:?}");
            assert!(replica.leads(), "{fate:?}");
        });
    }
}

/// CTRL-12, CTRL-14: hours without an API server change nothing, and what happened meanwhile is found afterwards.
#[test]
fn an_outage_of_hours() {
    for partition in [Partition::Refused, Partition::Silent] {
        simulate(async {
            let world = World::new(1);
            for name in ["a", "b", "c"] {
                world.gated(name);
            }
            let replica = world.replica("r");
            world.until("it leads", |_| replica.leads()).await;
            sleep(secs(2)).await;
            replica.connection.faults(|faults| faults.partition = partition);
            sleep(secs(60)).await;
            assert!(!replica.leads(), "without the API server it does not lead");
            world.report("a", "CNIReady", "True");
            assert_eq!(world.api.act("DELETE", "/api/v1/nodes/b", &json!({})).0, 200);
            world.gated("b");
            world.gated("d");
            world.report("d", "CNIReady", "True");
            sleep(secs(2 * 3600)).await;
            assert_eq!(world.taints("a").len(), 1);
            replica.connection.faults(|faults| faults.partition = Partition::Open);
            let took = world
                .until("a and d are free", |world| world.taints("a").is_empty() && world.taints("d").is_empty())
                .await;
            assert!(took < secs(130), "{took:?}");
            assert_eq!((world.taints("b").len(), world.taints("c").len()), (1, 1));
        });
    }
}

/// GN-6, VEC-78
#[test]
fn a_node_that_is_created_again_is_gated_again() {
    simulate(async {
        let world = World::new(1);
        world.gated("n");
        world.report("n", "CNIReady", "True");
        let _replica = world.replica("a");
        world.until("the gate is open", |world| world.taints("n").is_empty()).await;
        world.api.act("DELETE", "/api/v1/nodes/n", &json!({}));
        world.gated("n");
        sleep(secs(60)).await;
        assert_eq!(world.taints("n").len(), 1);
        world.report("n", "CNIReady", "True");
        world.until("the gate is open", |world| world.taints("n").is_empty()).await;
    });
}

/// SCN-G3, CTRL-17, CTRL-16: no more than allowed, and never a condition, a pod or another taint.
#[test]
fn continuous_enforcement_holds_no_more_nodes_than_allowed() {
    simulate(async {
        let world = World::new(1);
        let settings =
            Settings { enforcement: Enforcement::Continuous, max_held: MaxHeld::Nodes(2), ..Settings::default() };
        let _replica = world.start("a", keelet_gates::controller::Options { settings, ..options("a") });
        let names: Vec<String> = (0..10).map(|number| format!("n{number}")).collect();
        for name in &names {
            world.gated(name);
            world.report(name, "CNIReady", "True");
        }
        let held = |world: &World| names.iter().filter(|name| !world.taints(name).is_empty()).count();
        world.until("all are free", |world| held(world) == 0).await;
        for name in &names {
            world.report(name, "CNIReady", "False");
        }
        world.until("two are held", |world| held(world) == 2).await;
        sleep(secs(600)).await;
        assert_eq!(held(&world), 2);
        for name in &names {
            world.report(name, "CNIReady", "True");
        }
        world.until("all are free", |world| held(world) == 0).await;
        let by_controller = |write: &keelet_sim_api::Write| write.user.starts_with("system:serviceaccount");
        let touched: std::collections::BTreeSet<_> = world
            .api
            .log()
            .writes()
            .filter(|write| by_controller(write))
            .map(|write| write.key.resource.to_string())
            .collect();
        assert_eq!(touched, ["events", "leases.coordination.k8s.io", "nodes"].map(str::to_owned).into());
    });
}

/// SCN-G6: a dry run needs no lease and writes nothing at all.
#[test]
fn a_dry_run_writes_nothing() {
    simulate(async {
        let world = World::new(1);
        world.gated("n");
        world.report("n", "CNIReady", "True");
        let replica = world.start(
            "a",
            keelet_gates::controller::Options { mode: Mode::DryRun, election: Election::Alone, ..options("a") },
        );
        sleep(secs(600)).await;
        assert_eq!(world.taints("n").len(), 1);
        assert_eq!(replica.metric("keelet_gates_would_total{change=\"remove\"}"), 1.0);
        assert_eq!(replica.process.writes(), 0);
    });
}

/// The same seed gives the same run, byte for byte.
#[test]
fn a_run_can_be_played_again() {
    let run = || {
        simulate(async {
            let world = World::new(7);
            let (_a, _b) = (world.replica("a"), world.replica("b"));
            for number in 0..20 {
                world.gated(&format!("n{number}"));
                world.report(&format!("n{number}"), "CNIReady", if number % 3 == 0 { "False" } else { "True" });
            }
            sleep(secs(120)).await;
            world.api.log().to_string()
        })
    };
    let (first, second) = (run(), run());
    let different = first.lines().zip(second.lines()).find(|(first, second)| first != second);
    assert_eq!(different, None);
    assert_eq!(first.lines().count(), second.lines().count());
}
