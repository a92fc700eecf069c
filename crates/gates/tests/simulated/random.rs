//! Controllers that die at every step, and controllers with chance against them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::SignedDuration;
use keelet_gates::{
    controller::Options,
    settings::{Enforcement, MaxHeld, Settings},
};
use keelet_sim_api::{Death, Identity, InFlight, Odds, Partition, Random, WatchOdds, Write};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    secs, simulate,
    world::{GATE, Replica, World, options, tail, taints, user},
};

/// VEC-79, CTRL-14, GN-5: a leader that dies before or after any of its writes leaves nothing that the next one does not finish, once.
#[test]
fn a_leader_may_die_at_every_write() {
    let names = ["n1", "n2", "n3"];
    let play = |death: Option<(Death, InFlight)>| {
        simulate(async {
            let world = World::new(3);
            let faults = watch_over(&world, Enforcement::Bootstrap);
            let a = world.replica("a");
            if let Some((death, in_flight)) = death {
                a.life.die_at(death, in_flight);
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
            assert!(a.life.is_dead() || a.leads() || b.leads(), "{death:?}");
            assert_eq!(*faults.lock().unwrap(), Vec::<String>::new(), "{death:?}");
            let removed = world.api.with_log(|log| log.writes().filter(|write| removes_gate(write)).count());
            assert_eq!(removed, 3, "{death:?}: each taint is removed once");
            a.life.writes()
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

/// CTRL-2, CTRL-7, CTRL-14, CTRL-16, GN-1, GN-5, SCN-G18: nothing forbidden ever happens, and when the faults are over every node whose
/// condition holds is free.
#[test]
fn whatever_happens_nodes_are_free_in_the_end() {
    let seeds = std::env::var("KEELET_GATES_SEEDS").ok().and_then(|seeds| {
        let (first, count) = seeds.split_once('+')?;
        Some((first.parse().ok()?, count.parse().ok()?))
    });
    let (first, count): (u64, u64) = seeds.unwrap_or((0, 12));
    for seed in first..first + count {
        live(seed);
    }
}

/// A random run.
fn live(seed: u64) {
    simulate(async {
        let mut random = Random::new(seed);
        let enforcement = if random.chance(500) { Enforcement::Bootstrap } else { Enforcement::Continuous };
        let max_held = MaxHeld::Nodes(usize::try_from(random.within(0..4)).unwrap());
        let settings = Settings { enforcement, max_held, ..Settings::default() };
        let world = World::new(random.draw());
        let faults = watch_over(&world, enforcement);
        let replicas = random.within(2..6);
        let mut party =
            Party { world, settings, replicas: Vec::new(), started: 0, conditions: BTreeMap::new(), random };
        for _ in 0..replicas {
            party.start();
        }
        for _ in 0..party.random.within(30..120) {
            party.act();
            let pause = party.random.within(0..4000);
            sleep(Duration::from_millis(if pause < 2000 { pause / 100 } else { pause })).await;
            let found = faults.lock().unwrap().clone();
            assert!(found.is_empty(), "seed {seed}: {found:?}\n{}", tail(&party.world.api));
        }
        party.calm();
        party.settle(seed).await;
        let found = faults.lock().unwrap().clone();
        assert!(found.is_empty(), "seed {seed}: {found:?}\n{}", tail(&party.world.api));
    });
}

/// A cluster, its controllers, and what reporters say.
struct Party {
    world: World,
    settings: Settings,
    replicas: Vec<Replica>,
    started: u64,
    /// What was last reported of each node.
    conditions: BTreeMap<String, bool>,
    random: Random,
}

impl Party {
    fn start(&mut self) {
        self.started += 1;
        let name = format!("r{}", self.started);
        let replica = self.world.start(&name, Options { settings: self.settings.clone(), ..options(&name) });
        let skew = i64::try_from(self.random.within(0..7200)).unwrap() - 3600;
        replica.connection.set_skew(SignedDuration::from_secs(skew));
        self.replicas.push(replica);
    }

    /// Something happens.
    fn act(&mut self) {
        let node = format!("n{}", self.random.within(0..8));
        let exists = self.conditions.contains_key(&node);
        let index = usize::try_from(self.random.within(0..self.replicas.len() as u64)).unwrap();
        match self.random.within(0..14) {
            0..=1 if !exists => {
                self.world.gated(&node);
                self.conditions.insert(node, false);
            }
            2..=5 if exists => {
                let status = self.random.chance(700);
                self.world.report(&node, "CNIReady", if status { "True" } else { "False" });
                self.conditions.insert(node, status);
            }
            6 if exists && self.random.chance(300) => {
                self.world.api.act("DELETE", &format!("/api/v1/nodes/{node}"), &json!({}));
                self.conditions.remove(&node);
            }
            7..=8 if exists => self.foreign_taint(&node),
            9 => self.replicas[index].life.freeze(),
            10 => self.replicas[index].life.thaw(),
            11 => {
                if self.random.chance(500) {
                    self.replicas[index].life.kill();
                } else {
                    self.replicas[index].terminate();
                }
                self.start();
            }
            12 => {
                let partition =
                    *self.random.pick(&[Partition::Open, Partition::Open, Partition::Refused, Partition::Silent]);
                self.replicas[index].connection.faults(|faults| faults.partition = partition);
            }
            _ => {
                let heavy = self.random.chance(300);
                let odds = if heavy { 80 } else { 10 };
                self.replicas[index].connection.faults(|faults| {
                    faults.requests = Odds {
                        answer_lost: odds,
                        lost: odds,
                        refused: odds,
                        hangs: odds / 2,
                        too_many: odds,
                        errors: odds,
                        pages: odds / 2,
                        stale: odds,
                        stale_always: odds / 2,
                        staleness: secs(20),
                        slow: Duration::from_millis(300),
                    };
                    faults.watches =
                        WatchOdds { ends: 200, breaks: 200, stalls: 50, gone: 50, refused_gone: 50, lag: secs(2) };
                });
            }
        }
    }

    /// Another writer adds a taint, or takes its own away.
    fn foreign_taint(&mut self, node: &str) {
        let writer = self.random.within(0..3);
        let mut object = self.world.get(node);
        let key = format!("w{writer}.io/T");
        let mut list = object["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let before = list.len();
        list.retain(|taint| taint["key"] != key);
        if list.len() == before {
            list.push(json!({"key": key, "effect": "NoSchedule", "value": self.random.within(0..9).to_string()}));
        }
        object["spec"]["taints"] = json!(list);
        let (code, answer) = self.world.api.act("PUT", &format!("/api/v1/nodes/{node}"), &object);
        assert_eq!(code, 200, "{answer}");
    }

    /// All faults end, and everything that stands still goes on.
    fn calm(&mut self) {
        for replica in &self.replicas {
            replica.life.thaw();
        }
        self.world.api.calm();
        self.start();
    }

    /// Every node whose condition holds is free, soon; every other node that never passed is not.
    async fn settle(&mut self, seed: u64) {
        let free = |world: &World, node: &str| world.taints(node).iter().all(|taint| !taint.starts_with(GATE));
        let holding: Vec<_> =
            self.conditions.iter().filter(|(_, holds)| **holds).map(|(node, _)| node.clone()).collect();
        self.world
            .until(&format!("seed {seed}: {holding:?} are free"), |world| holding.iter().all(|node| free(world, node)))
            .await;
        sleep(secs(30)).await;
        let MaxHeld::Nodes(allowed) = self.settings.max_held else { panic!("a number") };
        let mut held = 0;
        for (node, holds) in &self.conditions {
            let object = self.world.get(node);
            let record = object["metadata"]["annotations"]["keelet.dev/gates"].as_str().unwrap_or_default().to_owned();
            held += usize::from(record.contains("\"held\"") && !free(&self.world, node));
            if *holds {
                assert!(free(&self.world, node), "seed {seed}: {node} stays free");
            } else if record.is_empty() {
                assert!(!free(&self.world, node), "seed {seed}: {node} never passed");
            }
        }
        assert!(held <= allowed, "seed {seed}: {held} of {allowed} nodes are held");
        let runs = |replica: &&Replica| replica.life.is_running() && !replica.has_ended();
        let leaders = self.replicas.iter().filter(runs).filter(|replica| replica.leads()).count();
        assert_eq!(leaders, 1, "seed {seed}");
        let failing = self.conditions.iter().filter(|(_, holds)| !**holds).count();
        if self.settings.enforcement == Enforcement::Continuous && failing > 0 {
            let closed = self.conditions.iter().filter(|(node, holds)| !**holds && !free(&self.world, node)).count();
            assert!(
                closed >= failing.min(allowed),
                "seed {seed}: {closed} of {failing} failing nodes are closed, {allowed} may be held"
            );
        }
    }
}

fn removes_gate(write: &Write) -> bool {
    let (Some(before), Some(after)) = (&write.before, &write.after) else { return false };
    let has = |node: &Value| taints(node).iter().any(|taint| taint.starts_with(GATE));
    &*write.key.resource == "nodes" && has(before) && !has(after)
}

/// Looks at every write of a controller to a node.
fn watch_over(world: &World, enforcement: Enforcement) -> Arc<Mutex<Vec<String>>> {
    let faults = Arc::new(Mutex::new(Vec::new()));
    let found = Arc::clone(&faults);
    let controllers = user().user;
    assert_ne!(controllers, Identity::admin().user);
    world.api.observe(move |entry, write| {
        if *write.user != *controllers || &*write.key.resource != "nodes" {
            return;
        }
        for fault in judge(write, enforcement) {
            found.lock().unwrap().push(format!("{} {}: {fault}", entry.client, write.key.name));
        }
    });
    faults
}

/// What is wrong with a write of a controller.
fn judge(write: &Write, enforcement: Enforcement) -> Vec<String> {
    let (Some(before), Some(after)) = (&write.before, &write.after) else {
        return vec!["a controller neither creates nor deletes nodes".to_owned()];
    };
    let mut faults = Vec::new();
    let foreign = |node: &Value| -> Vec<Value> {
        let list = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        list.into_iter().filter(|taint| !taint["key"].as_str().unwrap().starts_with("readiness.k8s.io/")).collect()
    };
    if foreign(before) != foreign(after) {
        faults.push(format!("foreign taints changed: {:?} -> {:?}", foreign(before), foreign(after)));
    }
    for part in ["/status", "/spec/unschedulable", "/spec/providerID", "/spec/podCIDR"] {
        if before.pointer(part) != after.pointer(part) {
            faults.push(format!("{part} changed"));
        }
    }
    let has = |node: &Value| taints(node).iter().any(|taint| taint.starts_with(GATE));
    let condition = before["status"]["conditions"]
        .as_array()
        .and_then(|list| list.iter().find(|found| found["type"] == "CNIReady"));
    let status = condition.and_then(|condition| condition["status"].as_str()).unwrap_or_default().to_owned();
    match (has(before), has(after)) {
        (true, false) => {
            if status != "True" {
                faults.push(format!("opened while the condition is {status:?}"));
            }
            if after["metadata"]["annotations"][GATE] != "passed" {
                faults.push("opened without the annotation".to_owned());
            }
        }
        (false, true) if enforcement == Enforcement::Bootstrap => faults.push("the taint came back".to_owned()),
        (false, true) if status == "True" => faults.push("closed while the condition is True".to_owned()),
        _ => {}
    }
    faults
}
