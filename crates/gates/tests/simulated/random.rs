//! Controllers that die at every step, and controllers with chance against them.

use keelet_gates::{
    controller::Options,
    settings::{Enforcement, MaxHeld, Settings},
};
use keelet_sim_api::{Death, InFlight};
use keelet_sim_gates::{random_run, removes_gate, watch_over};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    rules, secs, simulate,
    world::{World, options},
};

/// The test runs the seeds up to this one: always the same, so that a rare fault never blocks an unrelated change.
const SEEDS: u64 = 12;

/// VEC-79, CTRL-14, GN-5: a leader that dies before or after any of its writes leaves nothing that the next one does not finish, once.
#[test]
fn a_leader_may_die_at_every_write() {
    let names = ["n1", "n2", "n3"];
    let play = |death: Option<(Death, InFlight)>| {
        simulate(async {
            let world = World::new(3);
            let faults = watch_over(&world, &Settings::default());
            let a = world.replica("a");
            if let Some((death, in_flight)) = death {
                a.process.die_at(death, in_flight);
            }
            for name in names {
                world.gated(name);
            }
            sleep(secs(4)).await;
            let b = world.replica("b");
            for name in names {
                world.report(name, "CNIReady", "True");
            }
            world.until("all are free", |world| names.iter().all(|name| world.taints(name).is_empty())).await;
            sleep(secs(30)).await;
            for name in names {
                let count: u64 = world.events(name).iter().map(|(_, count)| *count).sum();
                assert!(count <= 1, "{death:?}: {name} has {:?}", world.events(name));
            }
            assert!(a.process.is_dead() || a.leads() || b.leads(), "{death:?}");
            assert_eq!(faults.faults(), Vec::<String>::new(), "{death:?}");
            let removed = world.api.with_log(|log| log.writes().filter(|write| removes_gate(write)).count());
            assert_eq!(removed, 3, "{death:?}: each taint is removed once");
            a.process.writes()
        })
    };
    let writes = play(None);
    assert!(writes > 10, "{writes} writes");
    for number in 1..=writes.min(20) {
        for in_flight in [InFlight::Applied, InFlight::Lost] {
            play(Some((Death::Before(number), in_flight)));
            play(Some((Death::After(number), in_flight)));
        }
    }
}

/// VEC-79, CTRL-14, CTRL-17, PEER-17, GN-5, GN-8: the same where gates close again, where a rule comes and goes, and with three replicas.
#[test]
fn a_leader_that_holds_nodes_may_die_at_every_write() {
    let names = ["n1", "n2", "n3"];
    let play = |with_rule: bool, death: Option<(Death, InFlight)>| {
        simulate(async {
            let world = World::new(3);
            let settings =
                Settings { enforcement: Enforcement::Continuous, max_held: MaxHeld::Nodes(1), ..Settings::default() };
            let faults = watch_over(&world, &settings);
            let start = |name: &str| world.start(name, Options { settings: settings.clone(), ..options(name) });
            rules::install(&world);
            let a = start("a");
            if let Some((death, in_flight)) = death {
                a.process.die_at(death, in_flight);
            }
            let kind = if with_rule { "CNI" } else { "CNIReady" };
            for name in names {
                if with_rule {
                    world.node(name, &[]);
                } else {
                    world.gated(name);
                }
                world.report(name, kind, "True");
            }
            sleep(secs(4)).await;
            let (_b, _c) = (start("b"), start("c"));
            if with_rule {
                rules::create(&world, "net", "continuous");
            }
            let all_free = |world: &World| names.iter().all(|name| world.taints(name).is_empty());
            world.until("all are free", all_free).await;
            sleep(secs(10)).await;
            for name in names {
                world.report(name, kind, "False");
            }
            world.until("some are held", |world| !all_free(world)).await;
            sleep(secs(20)).await;
            if with_rule {
                world.api.act("DELETE", &format!("{}/net", keelet_sim_gates::rules::RULES), &json!({}));
                world.until("the rule is gone", |world| rules::get(world, "net").is_null()).await;
            } else {
                names.iter().for_each(|name| world.report(name, kind, "True"));
            }
            world.until("all are free again", all_free).await;
            assert_eq!(faults.faults(), Vec::<String>::new(), "{death:?}");
            a.process.writes()
        })
    };
    for with_rule in [false, true] {
        let writes = play(with_rule, None);
        assert!(writes > 10, "{writes} writes");
        for number in 1..=writes.min(30) {
            let (before, after) = (Death::Before(number), Death::After(number));
            play(with_rule, Some((before, InFlight::Applied)));
            play(with_rule, Some((after, InFlight::Lost)));
        }
    }
}

/// CTRL-2, CTRL-7, CTRL-14, CTRL-16, GN-1, GN-5, SCN-G18: nothing forbidden ever happens, and when the faults are over every node whose
/// condition holds is free. `make sim` has many more of these runs.
#[test]
fn whatever_happens_nodes_are_free_in_the_end() {
    for seed in 1..=SEEDS {
        if let Err(failure) = random_run(seed) {
            panic!("{failure}seed {seed}: {:?}", failure.faults);
        }
    }
}

/// A seed replays a run byte for byte: every request, every stored change, every fault, at the same time.
#[test]
fn a_seed_replays_a_run() {
    let log = |seed| random_run(seed).map_or_else(|failure| failure.report.log, |report| report.log).to_string();
    assert_eq!(log(7), log(7));
    assert_ne!(log(7), log(8));
}
