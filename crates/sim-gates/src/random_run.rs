//! Runs of several controllers with random nodes and random faults; then the faults stop, and every node must be as its condition asks.

use std::{
    collections::BTreeMap,
    fmt, mem,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::SignedDuration;
use keelet_gates::{
    controller::Options,
    settings::{Enforcement, MaxHeld, Settings},
};
use keelet_sim_api::{Happening, Log, Odds, Partition, Random, WatchOdds};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    check::watch_over,
    secs, simulate,
    world::{GATE, Replica, World, options},
};

/// How many nodes there can be.
const NODES: u64 = 8;

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
    /// What was last reported of each node.
    conditions: BTreeMap<String, bool>,
    /// What is wrong so far.
    faults: Arc<Mutex<Vec<String>>>,
    deaths: usize,
    acts: BTreeMap<&'static str, u32>,
    random: Random,
}

/// Runs the random cluster of this seed.
pub fn random_run(seed: u64) -> Result<Report, Box<Failure>> {
    simulate(async {
        let mut party = Party::new(seed);
        party.play().await;
        let faults = party.found();
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
        let settings = Settings { enforcement, max_held, ..Settings::default() };
        let world = World::new(random.draw());
        let faults = watch_over(&world, enforcement);
        let (replicas, conditions, acts) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        Self { world, settings, replicas, conditions, faults, deaths: 0, acts, random }
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
            if !self.found().is_empty() {
                return;
            }
        }
        self.calm();
        self.settle().await;
    }

    /// What is wrong so far.
    fn found(&self) -> Vec<String> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn accuse(&self, fault: String) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }

    fn start(&mut self) {
        let name = format!("r{}", self.replicas.len() + 1);
        let replica = self.world.start(&name, Options { settings: self.settings.clone(), ..options(&name) });
        let skew = i64::try_from(self.random.within(0..7200)).unwrap_or(0) - 3600;
        replica.connection.set_skew(SignedDuration::from_secs(skew));
        self.replicas.push(replica);
    }

    /// Something happens; in a word, what it was.
    fn act(&mut self) -> &'static str {
        let node = format!("n{}", self.random.within(0..NODES));
        let exists = self.conditions.contains_key(&node);
        let index = index(&mut self.random, self.replicas.len());
        match self.random.within(0..14) {
            0..=1 if !exists => {
                self.world.gated(&node);
                self.conditions.insert(node, false);
                "a node joins"
            }
            2..=5 if exists => {
                let holds = self.random.chance(700);
                self.world.report(&node, "CNIReady", if holds { "True" } else { "False" });
                self.conditions.insert(node, holds);
                "a condition is reported"
            }
            6 if exists && self.random.chance(300) => {
                self.world.api.act("DELETE", &format!("/api/v1/nodes/{node}"), &json!({}));
                self.conditions.remove(&node);
                "a node is deleted"
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

    /// Every node whose condition holds is free, soon; every other node that never passed is not.
    async fn settle(&mut self) {
        let holding = self.conditions.iter().filter(|(_, holds)| **holds).map(|(node, _)| node);
        let holding: Vec<String> = holding.cloned().collect();
        if !self.world.comes_to(|world| holding.iter().all(|node| is_free(world, node))).await {
            self.accuse(format!("{holding:?} are not free, and their conditions hold"));
            return;
        }
        sleep(secs(30)).await;
        let allowed = match self.settings.max_held {
            MaxHeld::Nodes(nodes) => nodes,
            MaxHeld::Percent(_) => usize::MAX,
        };
        let (mut held, mut failing, mut closed) = (0, 0, 0);
        for (node, holds) in mem::take(&mut self.conditions) {
            let free = is_free(&self.world, &node);
            let object = self.world.get(&node);
            let record = object["metadata"]["annotations"]["keelet.dev/gates"].as_str().unwrap_or_default();
            held += usize::from(record.contains("\"held\"") && !free);
            failing += usize::from(!holds);
            closed += usize::from(!holds && !free);
            if holds && !free {
                self.accuse(format!("{node} does not stay free"));
            } else if !holds && free && record.is_empty() {
                self.accuse(format!("{node} is free and never passed"));
            }
        }
        if held > allowed {
            self.accuse(format!("{held} of {allowed} nodes are held"));
        }
        if self.settings.enforcement == Enforcement::Continuous && closed < failing.min(allowed) {
            self.accuse(format!("{closed} of {failing} failing nodes are closed, {allowed} may be held"));
        }
        let runs = |replica: &&Replica| replica.process.is_running() && !replica.has_ended();
        let leaders = self.replicas.iter().filter(runs).filter(|replica| replica.leads()).count();
        if leaders != 1 {
            self.accuse(format!("{leaders} replicas lead"));
        }
    }
}

/// A place in a list of so many.
fn index(random: &mut Random, length: usize) -> usize {
    usize::try_from(random.within(0..length as u64)).unwrap_or(0)
}

fn is_free(world: &World, node: &str) -> bool {
    world.taints(node).iter().all(|taint| !taint.starts_with(GATE))
}
