//! Permissions: what is asked for is needed, and what is missing is named.

use keelet_gates::{
    api::{self, Api, Denied},
    controller::Options,
};
use keelet_sim_api::{Grant, SimApi};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    rules, secs, simulate,
    world::{World, basic, grants, options, user},
};

/// CTRL-18: without any one of its permissions the controller fails at something.
#[test]
fn every_permission_is_needed() {
    let all = options("a").permissions();
    let count: usize = all.iter().map(|permission| permission.verbs.len()).sum();
    assert_eq!(count, 14, "a new permission needs a line below");
    for permission in &all {
        for verb in &permission.verbs {
            let without: Vec<Grant> =
                grants_without(&options("a"), permission.resource, permission.name.is_some(), verb);
            let broken = simulate(works(without));
            let expected = match (permission.resource, *verb) {
                ("nodes", "list" | "watch") => "passes",
                ("nodes", "patch") => "passes",
                ("nodes", "get") => "recovers",
                ("events", "create") => "events",
                ("events", "patch") => "counts",
                ("leases", "create") => "leads",
                ("leases", "get") => "leads",
                ("leases", "patch") => "leads",
                ("leases", "watch") => "hands over",
                ("nodereadinessrules", "list") => "passes",
                // Rules are seen when they are listed again: late, and so is everything that follows.
                ("nodereadinessrules", "watch") => {
                    broken.filter(|broken| ["rules", "finalizer", "status"].contains(broken)).unwrap_or("rules")
                }
                ("nodereadinessrules", "patch") => "finalizer",
                ("nodereadinessrules/status", "patch") => "status",
                other => panic!("what fails without {other:?}?"),
            };
            assert_eq!(broken, Some(expected), "without {verb} {permission}");
        }
    }
    assert_eq!(simulate(works(grants(&options("a")))), None, "with all of them nothing fails");
}

fn grants_without(options: &Options, resource: &str, named: bool, verb: &str) -> Vec<Grant> {
    let mut grants = vec![basic()];
    for mut permission in options.permissions() {
        if permission.resource == resource && permission.name.is_some() == named {
            permission.verbs.retain(|found| *found != verb);
        }
        let mut grant =
            Grant::to_user(&user().user).verbs(&permission.verbs).on(permission.group, &[permission.resource]);
        if let Some(name) = &permission.name {
            grant = grant.named(&[name]);
        }
        if let Some(namespace) = &permission.namespace {
            grant = grant.within(namespace);
        }
        grants.push(grant);
    }
    grants
}

/// The first thing that does not work with these rights.
async fn works(rights: Vec<Grant>) -> Option<&'static str> {
    let world = World { api: SimApi::new(1) };
    world.api.grant(rights);
    rules::install(&world);
    let mut a = world.replica("a");
    // Longer than the first lease lasts.
    sleep(secs(20)).await;
    if !a.leads() {
        return Some("leads");
    }
    world.gated("n");
    sleep(secs(1)).await;
    world.report("n", "CNIReady", "True");
    sleep(secs(10)).await;
    if !world.taints("n").is_empty() {
        return Some("passes");
    }
    if world.events("n").is_empty() {
        return Some("events");
    }
    // A taint that is set by hand, twice: the second warning is the same event.
    for _ in 0..2 {
        let by_hand = json!({"spec": {"taints": [{"key": "readiness.k8s.io/CNIReady", "effect": "NoSchedule"}]}});
        world.api.act("PATCH", "/api/v1/nodes/n", &by_hand);
        sleep(secs(5)).await;
        world.api.act("PATCH", "/api/v1/nodes/n", &json!({"spec": {"taints": null}}));
        sleep(secs(5)).await;
    }
    if !world.events("n").iter().any(|(reason, count)| reason == "ReadinessGateSetByHand" && *count == 2) {
        return Some("counts");
    }
    // A lost answer: the node has to be read.
    world.gated("m");
    sleep(secs(1)).await;
    a.connection.faults(|faults| faults.seal(keelet_sim_api::Verb::Patch, "nodes m", keelet_sim_api::Fate::Lost, 1));
    world.report("m", "CNIReady", "True");
    sleep(secs(10)).await;
    if !world.taints("m").is_empty() {
        return Some("recovers");
    }
    rules::create(&world, "net", "continuous");
    sleep(secs(30)).await;
    if world.taints("m").is_empty() {
        return Some("rules");
    }
    let rule = rules::get(&world, "net");
    if rule["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
        return Some("finalizer");
    }
    if rule["status"]["observedGeneration"] != 1 {
        return Some("status");
    }
    let b = world.replica("b");
    sleep(secs(5)).await;
    a.terminate();
    sleep(std::time::Duration::from_millis(500)).await;
    if !b.leads() {
        return Some("hands over");
    }
    None
}

/// CTRL-18: the check before the start names exactly what is missing, with the rule that grants it.
#[test]
fn what_is_missing_is_named_before_the_start() {
    simulate(async {
        let world = World { api: SimApi::new(1) };
        let connection = world.api.connect("a", user());
        let api = Api::new(kube::Client::new(connection, "default"));
        let options = options("a");
        world.api.grant(grants_without(&options, "nodes", false, "patch"));
        let missing = api::check(&api, &options.permissions()).await.unwrap();
        assert_eq!(
            Denied(missing).to_string(),
            "not allowed:\n  patch nodes\n    granted by this rule of a ClusterRole: {apiGroups: [\"\"], resources: [nodes], verbs: [patch]}"
        );
        world.api.grant(grants(&options));
        assert_eq!(api::check(&api, &options.permissions()).await.unwrap(), []);
    });
}

/// CTRL-18: a process that is started without any right works as soon as it has them, and asks for little until then.
#[test]
fn a_permission_that_is_granted_later_needs_no_restart() {
    simulate(async {
        let world = World { api: SimApi::new(1) };
        world.api.grant([basic()]);
        world.gated("n");
        world.report("n", "CNIReady", "True");
        let running = world.process("a", options("a"));
        sleep(secs(600)).await;
        assert!(!world.taints("n").is_empty());
        let asked = world.requests("a", "create", "selfsubjectaccessreviews");
        assert!((14..=600 / 5 * 14).contains(&asked), "{asked} questions in 600 s");
        world.api.grant(grants(&options("a")));
        let took = world.until("the gate opens", |world| world.taints("n").is_empty()).await;
        assert!(took < secs(10), "{took:?}");
        running.abort();
    });
}
