//! Runs of several controllers with random nodes, rules and random faults; then the faults stop, and every node must be as its conditions ask.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use jiff::SignedDuration;
use keelet_gates::{
    controller::Options,
    settings::{Enforcement, MaxHeld, Settings},
};
use keelet_sim_api::{Happening, Log, Odds, Partition, Random, Verb, WatchOdds};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    check::{Watched, is_held, watch_over},
    rules::{self, RULES},
    secs, simulate,
    world::{Replica, World, options},
};

/// How many nodes there can be.
const NODES: u64 = 8;

/// Gates that a node can be registered with; the first one always.
const GATES: [&str; 2] = ["CNIReady", "GPU"];

/// The label that says with how many of them.
const COUNT: &str = "sim/gates";

/// Conditions that are reported: those of the gates, and that of rules.
const KINDS: [&str; 3] = ["CNIReady", "GPU", "CNI"];

/// The longest age of a condition, where it matters: longer than the end of a run takes.
const MAX_AGE: SignedDuration = SignedDuration::from_secs(300);

/// Names of rules.
const NAMES: [&str; 2] = ["net", "mesh"];

/// What a random run went through.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed that replays it.
    pub seed: u64,
    /// How many replicas were killed or told to stop.
    pub deaths: usize,
    /// How often each kind of thing happened that chance may bring about.
    pub acts: BTreeMap<&'static str, u32>,
    /// Every request and every stored change.
    pub log: Log,
}

/// A random run that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What it went through until then.
    pub report: Report,
    /// What is wrong.
    pub faults: Vec<String>,
}

/// A cluster, its controllers, and what reporters say.
struct Party {
    world: World,
    settings: Settings,
    replicas: Vec<Replica>,
    /// The revision at the beginning.
    first: u64,
    /// Whether the definition of rules is installed.
    rules: bool,
    /// Nodes that have written a record themselves: they harm nothing but themselves.
    forgers: BTreeSet<String>,
    /// Nodes that exist.
    nodes: BTreeSet<String>,
    watched: Watched,
    deaths: usize,
    acts: BTreeMap<&'static str, u32>,
    random: Random,
}

/// Runs the random cluster of this seed.
pub fn random_run(seed: u64) -> Result<Report, Box<Failure>> {
    simulate(async {
        let mut party = Party::new(seed);
        party.play().await;
        let faults = party.watched.faults();
        let Party { world, deaths, acts, .. } = party;
        let report = Report { seed, deaths, acts, log: world.api.log() };
        if faults.is_empty() { Ok(report) } else { Err(Box::new(Failure { report, faults })) }
    })
}

// === impl Report ===

impl Report {
    /// How many things went wrong that the controllers cannot help, their own deaths aside.
    pub fn faults(&self) -> usize {
        let is_fault = |what: &Happening| match what {
            Happening::Request(request) => !request.fault.is_empty(),
            Happening::WatchEnded { .. } => true,
            Happening::Write(_) | Happening::Note(_) => false,
        };
        self.log.entries().iter().filter(|entry| is_fault(&entry.what)).count()
    }
}

// === impl Failure ===

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.report.log)?;
        self.faults.iter().try_for_each(|fault| writeln!(f, "{fault}"))
    }
}

// === impl Party ===

impl Party {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let enforcement = if random.chance(500) { Enforcement::Bootstrap } else { Enforcement::Continuous };
        let max_held = MaxHeld::Nodes(index(&mut random, 4));
        let condition_max_age = random.chance(200).then_some(MAX_AGE);
        let settings = Settings { enforcement, max_held, condition_max_age, ..Settings::default() };
        let world = World::new(random.draw());
        let watched = watch_over(&world, &settings);
        let rules = random.chance(500);
        if rules {
            rules::install(&world);
        }
        let (replicas, acts) = (Vec::new(), BTreeMap::new());
        let (forgers, nodes) = (BTreeSet::new(), BTreeSet::new());
        let first = world.api.revision();
        Self { world, settings, replicas, first, rules, forgers, nodes, watched, deaths: 0, acts, random }
    }

    /// Plays it, until something is wrong or everything is at rest.
    async fn play(&mut self) {
        for _ in 0..self.random.within(2..6) {
            self.start();
        }
        for _ in 0..self.random.within(30..120) {
            let act = self.act();
            self.world.api.note("world", act);
            *self.acts.entry(act).or_default() += 1;
            let pause = self.random.within(0..4000);
            sleep(Duration::from_millis(if pause < 2000 { pause / 100 } else { pause })).await;
            if !self.watched.faults().is_empty() {
                return;
            }
        }
        self.calm();
        self.settle().await;
    }

    fn start(&mut self) {
        let name = format!("r{}", self.replicas.len() + 1);
        let replica = self.world.start(&name, Options { settings: self.settings.clone(), ..options(&name) });
        let skew = i64::try_from(self.random.within(0..7200)).unwrap_or(0) - 3600;
        // How old a condition is depends on the clock.
        if self.settings.condition_max_age.is_none() {
            replica.connection.set_skew(SignedDuration::from_secs(skew));
        }
        self.replicas.push(replica);
    }

    /// Something happens; in a word, what it was.
    fn act(&mut self) -> &'static str {
        let node = format!("n{}", self.random.within(0..NODES));
        let exists = self.nodes.contains(&node);
        let index = index(&mut self.random, self.replicas.len());
        match self.random.within(0..20) {
            0..=1 if !exists => self.join(node),
            2..=5 if exists => {
                let holds = self.random.chance(700);
                let kind = if self.random.chance(500) { KINDS[0] } else { *self.random.pick(&KINDS) };
                self.world.report(&node, kind, if holds { "True" } else { "False" });
                "a condition is reported"
            }
            6 if exists && self.random.chance(300) => {
                self.world.api.act("DELETE", &format!("/api/v1/nodes/{node}"), &json!({}));
                self.nodes.remove(&node);
                self.forgers.remove(&node);
                "a node is deleted"
            }
            13..=14 if self.rules => self.change_rules(),
            15 if exists => {
                let role = *self.random.pick(&["worker", "worker", "infra"]);
                self.patch(&node, &json!({"metadata": {"labels": {"role": role}}}));
                "a node is relabelled"
            }
            16 if exists && self.random.chance(200) => {
                self.forge(node);
                "a node writes a record"
            }
            16 => {
                let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/keelet-gates";
                self.world.api.act("DELETE", lease, &json!({}));
                "the lease is deleted"
            }
            17 if self.random.chance(50) => {
                self.restore();
                "etcd is restored"
            }
            7..=8 if exists => {
                self.foreign_taint(&node);
                "a foreign taint changes"
            }
            9 => {
                self.replicas[index].process.freeze();
                "a replica is frozen"
            }
            10 => {
                self.replicas[index].process.thaw();
                "a replica is thawed"
            }
            11 => {
                self.deaths += 1;
                let killed = self.random.chance(500);
                if killed {
                    self.replicas[index].process.kill();
                } else {
                    self.replicas[index].terminate();
                }
                self.start();
                if killed { "a replica is killed" } else { "a replica stops" }
            }
            12 => {
                let partitions = [Partition::Open, Partition::Open, Partition::Refused, Partition::Silent];
                let partition = *self.random.pick(&partitions);
                self.replicas[index].connection.faults(|faults| faults.partition = partition);
                "a replica is cut off or connected again"
            }
            _ => {
                self.trouble(index);
                "requests go wrong"
            }
        }
    }

    fn join(&mut self, name: String) -> &'static str {
        let gates = 1 + index(&mut self.random, GATES.len());
        let taints: Vec<Value> = GATES[..gates]
            .iter()
            .map(|gate| json!({"key": format!("readiness.k8s.io/{gate}"), "effect": "NoSchedule"}))
            .collect();
        let labels = json!({"role": "worker", COUNT: gates.to_string()});
        let node = json!({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}});
        let (code, answer) = self.world.api.act("POST", "/api/v1/nodes", &node);
        assert_eq!(code, 201, "{answer}");
        self.nodes.insert(name);
        "a node joins"
    }

    fn patch(&self, node: &str, patch: &Value) {
        let (code, answer) = self.world.api.act("PATCH", &format!("/api/v1/nodes/{node}"), patch);
        assert_eq!(code, 200, "{answer}");
    }

    /// A node claims that its taints were added for a rule.
    fn forge(&mut self, name: String) {
        let existing = self.world.api.stored_of(rules::RESOURCE);
        let rule = existing.first().and_then(|rule| rule["metadata"]["uid"].as_str()).unwrap_or("x").to_owned();
        let uid = self.world.get(&name)["metadata"]["uid"].clone();
        let entries: serde_json::Map<String, Value> =
            GATES.iter().map(|gate| (format!("readiness.k8s.io/{gate}:NoSchedule"), json!({"rule": rule}))).collect();
        let record = json!({"node": uid, "gates": entries}).to_string();
        self.patch(&name, &json!({"metadata": {"annotations": {"keelet.dev/gates": record}}}));
        self.forgers.insert(name);
    }

    /// A rule is created, deleted, or changed.
    fn change_rules(&mut self) -> &'static str {
        let name = *self.random.pick(&NAMES);
        let path = format!("{RULES}/{name}");
        let (code, found) = self.world.api.act("GET", &path, &Value::Null);
        if code == 404 {
            let mode = *self.random.pick(&["continuous", "bootstrap-only"]);
            let role = *self.random.pick(&["worker", "worker", "infra"]);
            self.world.api.act("POST", RULES, &rules::rule(name, mode, role));
            return "a rule is created";
        }
        match self.random.within(0..4) {
            0 => {
                self.world.api.act("PATCH", &path, &json!({"metadata": {"finalizers": null}}));
                self.world.api.act("DELETE", &path, &json!({}));
                "a rule is deleted without its finalizer"
            }
            1 => {
                let tried = found["spec"]["dryRun"] == true;
                self.world.api.act("PATCH", &path, &json!({"spec": {"dryRun": !tried}}));
                "a rule is switched to or from a dry run"
            }
            _ => {
                self.world.api.act("DELETE", &path, &json!({}));
                "a rule is deleted"
            }
        }
    }

    /// Etcd has again what it had some time ago.
    fn restore(&mut self) {
        let back = self.random.within(10..300);
        self.world.api.restore(self.world.api.revision().saturating_sub(back).max(self.first));
        self.watched.restored(&self.world);
        let nodes = self.world.api.stored_of("nodes");
        self.nodes = nodes.iter().filter_map(|node| node["metadata"]["name"].as_str()).map(str::to_owned).collect();
    }

    fn trouble(&mut self, index: usize) {
        let odds = if self.random.chance(300) { 80 } else { 10 };
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
            // How many nodes are held is counted in a list, of which the API promises that it is the newest.
            faults.by_verb.insert(Verb::List, Odds { stale_always: 0, ..faults.requests });
            faults.watches = WatchOdds { ends: 200, breaks: 200, stalls: 50, gone: 50, refused_gone: 50, lag: secs(2) };
        });
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
            replica.process.thaw();
        }
        self.world.api.calm();
        self.start();
        self.world.api.note("world", "faults end");
    }

    /// Every node whose conditions hold is free, soon; every other node that never passed is not.
    async fn settle(&mut self) {
        let nodes: Vec<String> = self.nodes.iter().filter(|node| !self.forgers.contains(*node)).cloned().collect();
        // Whatever was said last is fresh.
        for node in &self.nodes {
            for kind in KINDS {
                if let Some(status) = status(&self.world.get(node), kind) {
                    self.world.report(node, kind, &status);
                }
            }
        }
        if !self.world.comes_to(|world| nodes.iter().all(|node| is_right(world, node))).await {
            let wrong: Vec<_> = nodes.iter().filter(|node| !is_right(&self.world, node)).collect();
            self.watched.accuse(format!("{wrong:?} are not free, and their conditions hold"));
            return;
        }
        sleep(secs(30)).await;
        let allowed = match self.settings.max_held {
            MaxHeld::Nodes(nodes) => nodes,
            MaxHeld::Percent(_) => usize::MAX,
        };
        let (mut held, mut failing, mut closed) = (0, 0, 0);
        for node in nodes {
            let object = self.world.get(&node);
            let (holds, free) = (holds(&object), is_free(&object));
            let record = object["metadata"]["annotations"]["keelet.dev/gates"].as_str().unwrap_or_default();
            held += usize::from(is_held(&object));
            failing += usize::from(!holds);
            closed += usize::from(!holds && !free);
            if !is_right(&self.world, &node) {
                self.watched.accuse(format!("{node} does not stay free"));
            } else if !holds && free && record.is_empty() {
                self.watched.accuse(format!("{node} is free and never passed"));
            }
        }
        if held > allowed {
            self.watched.accuse(format!("{held} of {allowed} nodes are held"));
        }
        // Rules take room too, and so do nodes that say they are held.
        let alone = !self.rules && self.forgers.is_empty();
        if alone && self.settings.enforcement == Enforcement::Continuous && closed < failing.min(allowed) {
            self.watched.accuse(format!("{closed} of {failing} failing nodes are closed, {allowed} may be held"));
        }
        let runs = |replica: &&Replica| replica.process.is_running() && !replica.has_ended();
        let leaders = self.replicas.iter().filter(runs).filter(|replica| replica.leads()).count();
        if leaders != 1 {
            self.watched.accuse(format!("{leaders} replicas lead"));
        }
        let dead = self.replicas.iter().filter(runs).filter(|replica| !replica.vitals.borrow().is_alive()).count();
        if dead > 0 {
            self.watched.accuse(format!("{dead} replicas do nothing"));
        }
    }
}

/// A place in a list of so many.
fn index(random: &mut Random, length: usize) -> usize {
    usize::try_from(random.within(0..length as u64)).unwrap_or(0)
}

/// The gates that a node was registered with.
fn gates(node: &Value) -> &'static [&'static str] {
    let count = node["metadata"]["labels"][COUNT].as_str().and_then(|count| count.parse().ok()).unwrap_or(0);
    &GATES[..count]
}

fn status(node: &Value, kind: &str) -> Option<String> {
    let found = node["status"]["conditions"].as_array()?.iter().find(|found| found["type"] == kind)?;
    found["status"].as_str().map(str::to_owned)
}

fn has(node: &Value, taint: &str) -> bool {
    crate::world::taints(node).iter().any(|found| found == taint)
}

/// Whether the conditions of all its gates are True.
fn holds(node: &Value) -> bool {
    gates(node).iter().all(|gate| status(node, gate).as_deref() == Some("True"))
}

/// Whether it has none of the taints that it was registered with.
fn is_free(node: &Value) -> bool {
    gates(node).iter().all(|gate| !has(node, &format!("readiness.k8s.io/{gate}:NoSchedule")))
}

/// Whether each gate whose condition is True is open, and that of rules, if one of them asks for it.
fn is_right(world: &World, name: &str) -> bool {
    let node = world.get(name);
    let is_true = |kind: &str| status(&node, kind).as_deref() == Some("True");
    let stuck = |gate: &&str| is_true(gate) && has(&node, &format!("readiness.k8s.io/{gate}:NoSchedule"));
    let asked = world.api.stored_of(rules::RESOURCE).iter().any(|rule| rules::asks(rule, &node));
    let held_by_rule = asked && is_true("CNI") && has(&node, rules::TAINT);
    !held_by_rule && !gates(&node).iter().any(stuck)
}
