//! `NodeReadinessRule` objects.

use std::time::Duration;

use keelet_sim_api::{Fate, Key, Verb};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    secs, simulate,
    world::{GATE, World},
};

use keelet_sim_gates::rules::{RULES, TAINT, install_version};
pub(crate) use keelet_sim_gates::rules::{create, install};

/// A rule as it is stored.
pub(crate) fn get(world: &World, name: &str) -> Value {
    let key = Key {
        resource: "nodereadinessrules.readiness.node.x-k8s.io".into(),
        namespace: String::new(),
        name: name.to_owned(),
    };
    world.api.stored(&key).map(|rule| (*rule).clone()).unwrap_or_default()
}

/// PEER-1, PEER-9, PEER-17, PEER-22, SCN-G5, SCN-G7, SCN-G10: labels that no node was read with before decide; the kind of object may come later.
#[test]
fn rules_that_come_later_are_honoured_and_leave_nothing_behind() {
    simulate(async {
        let world = World::new(1);
        world.node("worker", &[]);
        let (code, _) = world.api.act("POST", "/api/v1/nodes", &json!({"metadata": {"name": "other"}}));
        assert_eq!(code, 201);
        let replica = world.replica("a");
        world.until("it leads", |_| replica.leads()).await;
        sleep(secs(5)).await;
        install(&world);
        create(&world, "net", "continuous");
        let took = world.until("the taint is there", |world| world.taints("worker") == [TAINT]).await;
        assert!(took < secs(70), "{took:?}: the kind of object is looked for every minute");
        assert_eq!(world.taints("other"), Vec::<String>::new());
        world
            .until("the finalizer is there", |world| {
                get(world, "net")["metadata"]["finalizers"][0] == "readiness.node.x-k8s.io/cleanup-taints"
            })
            .await;
        world.report("worker", "CNI", "True");
        world.until("the taint is gone", |world| world.taints("worker").is_empty()).await;
        world.report("worker", "CNI", "False");
        world.until("the taint is back", |world| world.taints("worker") == [TAINT]).await;
        sleep(secs(10)).await;
        let reasons: Vec<_> = world.events("worker").into_iter().collect();
        assert!(
            reasons.contains(&("TaintAdded".to_owned(), 2)) && reasons.contains(&("TaintRemoved".to_owned(), 1)),
            "{reasons:?}"
        );
        world.api.act("DELETE", &format!("{RULES}/net"), &json!({}));
        world.until("the rule is gone", |world| get(world, "net").is_null()).await;
        assert_eq!(world.taints("worker"), Vec::<String>::new());
    });
}

/// PEER-10, PEER-12, PEER-16
#[test]
fn a_bootstrap_rule_is_over_once_it_has_passed() {
    simulate(async {
        let world = World::new(1);
        install(&world);
        create(&world, "net", "bootstrap-only");
        let _replica = world.replica("a");
        world.node("late", &[]);
        world.node("ready", &[]);
        world.report("ready", "CNI", "True");
        world.until("the taint is there", |world| world.taints("late") == [TAINT]).await;
        world.report("late", "CNI", "True");
        world.until("the taint is gone", |world| world.taints("late").is_empty()).await;
        let key =
            format!("readiness.k8s.io/bootstrap-completed-{}", get(&world, "net")["metadata"]["uid"].as_str().unwrap());
        for name in ["late", "ready"] {
            assert_eq!(world.get(name)["metadata"]["annotations"][&key], "{\"rule-name\":\"net\"}", "{name}");
            world.report(name, "CNI", "False");
        }
        sleep(secs(120)).await;
        assert!(world.taints("late").is_empty() && world.taints("ready").is_empty());
    });
}

/// PEER-7, PEER-8, PEER-18, SCN-G6: the status has counts, and what the other controller left there is cleared.
#[test]
fn a_rule_is_tried_and_reports_counts() {
    simulate(async {
        let world = World::new(1);
        install(&world);
        create(&world, "net", "continuous");
        world.api.act("PATCH", &format!("{RULES}/net"), &json!({"spec": {"dryRun": true}}));
        let left = json!({"status": {"appliedNodes": ["gone"], "nodeEvaluations": [{"nodeName": "gone"}], "failedNodes": [{"nodeName": "gone"}]}});
        world.api.act("PATCH", &format!("{RULES}/net/status"), &left);
        for name in ["a", "b", "c"] {
            world.node(name, &[]);
        }
        world.report("a", "CNI", "True");
        world.report("b", "CNI", "False");
        let _replica = world.replica("r");
        world.until("the status is there", |world| get(world, "net")["status"]["observedGeneration"] == 2).await;
        world
            .until("the counts are there", |world| get(world, "net")["status"]["dryRunResults"]["taintsToAdd"] == 2)
            .await;
        let status = get(&world, "net")["status"].clone();
        assert_eq!(
            status["dryRunResults"]["summary"],
            "of 3 nodes: 2 taints to add, 0 to remove; 1 nodes lack a condition"
        );
        assert_eq!(
            (&status["appliedNodes"], &status["nodeEvaluations"], &status["failedNodes"]),
            (&Value::Null, &Value::Null, &Value::Null)
        );
        sleep(secs(60)).await;
        assert!(["a", "b", "c"].iter().all(|name| world.taints(name).is_empty()));
        world.api.act("PATCH", &format!("{RULES}/net"), &json!({"spec": {"dryRun": false}}));
        world.until("it is enforced", |world| world.taints("b") == [TAINT] && world.taints("c") == [TAINT]).await;
        sleep(secs(20)).await;
        assert_eq!(get(&world, "net")["status"]["dryRunResults"], Value::Null);
    });
}

/// GN-8: a node that is relabelled loses what a rule added; a rule that is deleted while nodes are reconciled leaves nothing.
#[test]
fn nodes_and_rules_that_part() {
    simulate(async {
        let world = World::new(1);
        install(&world);
        create(&world, "net", "continuous");
        let names: Vec<String> = (0..50).map(|number| format!("n{number}")).collect();
        for name in &names {
            world.node(name, &[]);
        }
        let _replica = world.replica("a");
        world.until("n0 is held", |world| world.taints("n0") == [TAINT]).await;
        world.api.act("PATCH", "/api/v1/nodes/n0", &json!({"metadata": {"labels": {"role": "infra"}}}));
        world.until("n0 is free", |world| world.taints("n0").is_empty()).await;
        let late = json!({"metadata": {"labels": {"role": "worker"}}});
        world.api.act("PATCH", "/api/v1/nodes/n0", &late);
        sleep(Duration::from_millis(5)).await;
        world.api.act("DELETE", &format!("{RULES}/net"), &json!({}));
        world.until("the rule is gone", |world| get(world, "net").is_null()).await;
        sleep(secs(30)).await;
        let tainted: Vec<_> = names.iter().filter(|name| !world.taints(name).is_empty()).collect();
        assert_eq!(tainted, Vec::<&String>::new());
    });
}

/// GN-8: the definition of rules is removed with all rules in it.
#[test]
fn rules_that_are_uninstalled_leave_nothing_behind() {
    simulate(async {
        let world = World::new(1);
        install(&world);
        create(&world, "net", "continuous");
        world.node("n", &[]);
        let _replica = world.replica("a");
        world.until("n is held", |world| world.taints("n") == [TAINT]).await;
        world.api.uninstall("readiness.node.x-k8s.io", "nodereadinessrules");
        world.until("n is free", |world| world.taints("n").is_empty()).await;
    });
}

/// GN-8: the definition of rules serves another version, which keelet cannot read. No gate opens.
#[test]
fn a_definition_that_serves_another_version_opens_nothing() {
    simulate(async {
        let world = World::new(1);
        install(&world);
        create(&world, "net", "continuous");
        world.node("n", &[]);
        let replica = world.replica("a");
        world.until("n is held", |world| world.taints("n") == [TAINT]).await;
        world.api.uninstall("readiness.node.x-k8s.io", "nodereadinessrules");
        install_version(&world, "v1beta1");
        sleep(secs(600)).await;
        assert_eq!(world.taints("n"), [TAINT]);
        // Nor does one that never saw a rule wait for them.
        replica.process.kill();
        let _next = world.replica("b");
        world.gated("other");
        world.report("other", "CNIReady", "True");
        world.until("a gate without a rule opens", |world| world.taints("other").is_empty()).await;
        assert_eq!(world.taints("n"), [TAINT]);
    });
}

/// GN-8: a proxy on the way answers that there is no such page.
#[test]
fn a_page_that_says_not_found_opens_nothing() {
    simulate(async {
        let world = World::new(1);
        install(&world);
        create(&world, "net", "continuous");
        world.node("n", &[]);
        let replica = world.replica("a");
        world.until("n is held", |world| world.taints("n") == [TAINT]).await;
        replica.connection.faults(|faults| {
            for verb in [Verb::Watch, Verb::List] {
                faults.seal(verb, "nodereadinessrules", Fate::Page(404), 5);
            }
        });
        sleep(secs(1200)).await;
        assert_eq!(world.taints("n"), [TAINT]);
        let lists = world.requests("a", "list", "nodereadinessrules");
        assert!(lists > 5, "{lists}: all of the pages were seen");
        let removed = replica.metric("readiness_gate_controller_taints_removed_total");
        assert_eq!(removed, 0.0, "nor was it removed meanwhile");
        world.report("n", "CNI", "True");
        world.until("and the rule is followed again", |world| world.taints("n").is_empty()).await;
    });
}

/// GN-8: a new leader whose watch of rules stalls meets a node that is held for a rule it has not seen.
#[test]
fn a_leader_that_does_not_know_a_rule_leaves_its_taint() {
    simulate(async {
        let world = World::new(1);
        install(&world);
        world.node("n", &[]);
        let a = world.replica("a");
        world.until("a leads", |_| a.leads()).await;
        let b = world.replica("b");
        b.connection.faults(|faults| faults.seal(Verb::Watch, "nodereadinessrules", Fate::Hangs, 4));
        sleep(secs(5)).await;
        create(&world, "net", "continuous");
        world.until("n is held", |world| world.taints("n") == [TAINT]).await;
        a.process.kill();
        world.until("b leads", |_| b.leads()).await;
        sleep(secs(60)).await;
        assert_eq!(world.taints("n"), [TAINT]);
        sleep(secs(120)).await;
        world.report("n", "CNI", "True");
        world.until("it learns of the rule", |world| world.taints("n").is_empty()).await;
    });
}

/// GN-3: a node writes a record that says its taint was added for a rule.
#[test]
fn a_node_opens_no_gate_by_a_record_of_its_own() {
    simulate(async {
        let world = World::new(1);
        install(&world);
        create(&world, "net", "continuous");
        let (_a, _b) = (world.replica("a"), world.replica("b"));
        let uid = get(&world, "net")["metadata"]["uid"].as_str().unwrap().to_owned();
        for (name, rule) in [("gone", "x"), ("other", &*uid)] {
            world.gated(name);
            world.api.act("PATCH", &format!("/api/v1/nodes/{name}"), &json!({"metadata": {"labels": {"role": null}}}));
            let node = world.get(name)["metadata"]["uid"].as_str().unwrap().to_owned();
            let record = json!({"node": node, "gates": {format!("{GATE}:NoSchedule"): {"rule": rule}}}).to_string();
            let patch = json!({"metadata": {"annotations": {"keelet.dev/gates": record}}});
            assert_eq!(world.api.act("PATCH", &format!("/api/v1/nodes/{name}"), &patch).0, 200);
        }
        sleep(secs(120)).await;
        for name in ["gone", "other"] {
            assert_eq!(world.taints(name).len(), 1, "{name}");
        }
    });
}
