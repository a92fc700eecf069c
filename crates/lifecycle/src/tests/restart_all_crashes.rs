//! The agent dies after every single step of a restart of all containers (RALL-32..39, SCN-A6..A8, SCN-A26).

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use super::{
    restart_all::{ALL_FOUR, FOUR, counts, last, up},
    world::World,
};
use crate::{
    Evidence,
    observed::{Before, Known},
    operation::Operation,
    status::{ConditionType, Phase},
};

/// What happens to operations that are running when the agent dies. Their results are lost in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The first one has taken effect.
    First,
    /// All of them have.
    All,
    /// None of them has.
    None,
}

const FATES: [Fate; 3] = [Fate::First, Fate::All, Fate::None];

/// How an agent dies, and what the next one finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    /// The ledger is there, no API server is.
    Standalone,
    /// The ledger is there, and so is the API server's copy of the newest status.
    Cluster,
    /// The ledger is there, and the API server's copy is one status behind.
    OldCopy,
    /// The ledger is lost, and the API server's copy is all there is.
    LedgerLost,
    /// The node boots anew.
    Reboot,
}

/// A pod that restarts all its containers, one operation at a time.
struct Play {
    world: World,
    steps: usize,
    ids: BTreeMap<String, String>,
    /// Every instance ever seen, by container.
    instances: Rc<RefCell<BTreeMap<String, BTreeSet<String>>>>,
}

impl Play {
    fn begin() -> Self {
        let mut world = up(FOUR);
        world.seconds(10);
        let ids = ALL_FOUR.map(|name| (name.to_owned(), world.id(name))).into();
        let instances: Rc<RefCell<BTreeMap<String, BTreeSet<String>>>> = Rc::default();
        let seen = Rc::clone(&instances);
        world.inspector = Some(Box::new(move |world, plan| {
            for instance in &world.observed.containers {
                seen.borrow_mut().entry(instance.name.clone()).or_default().insert(instance.id.clone());
            }
            assert!(!plan.status.phase.is_terminal(), "a final phase: {:#?}", plan.status);
        }));
        world.hold(|_| true);
        world.exit_only("source", 42);
        Self { world, steps: 0, ids, instances }
    }

    /// Goes on until the pod is up again, dying at each of the steps named.
    fn run(&mut self, deaths: &[(usize, Fate, Death)]) {
        for _ in 0..300 {
            let plan = self.world.plan_once();
            let flying = self.world.in_flight();
            if let Some((first, _)) = flying.first() {
                self.steps += 1;
                match deaths.iter().find(|(step, ..)| *step == self.steps) {
                    Some((_, fate, death)) => self.die(*fate, *death),
                    None => self.world.finish(*first),
                }
            } else if let Some(at) = plan.wake_at.filter(|at| !self.world.now.has_reached(at)) {
                self.world.now = at;
            } else if self.world.running() == ["setup"].into() {
                self.world.exit_only("setup", 0);
            } else if self.is_up() {
                return;
            }
        }
        panic!("the pod does not come up again: {:#?}", self.world.plan);
    }

    fn is_up(&self) -> bool {
        let idle = !self.world.evidence.durable.restart_all.stage.is_under_way();
        idle && self.world.running() == ["other", "side", "source"].into()
            && self.world.status().phase == Phase::Running
    }

    fn die(&mut self, fate: Fate, death: Death) {
        let world = &mut self.world;
        let flying: Vec<_> = world.in_flight().into_iter().map(|(id, _)| id).collect();
        let effective = match fate {
            Fate::First => 1,
            Fate::All => flying.len(),
            Fate::None => 0,
        };
        for id in flying.into_iter().take(effective) {
            world.finish(id);
        }
        // What an inspector would see only after the next plan.
        for instance in &world.observed.containers {
            self.instances.borrow_mut().entry(instance.name.clone()).or_default().insert(instance.id.clone());
        }
        let copy = |back: usize| Known::Copy(Box::new(world.statuses[world.statuses.len() - 1 - back].clone()));
        match death {
            Death::Standalone | Death::Reboot => {}
            Death::Cluster => world.observed.agent.before = Before::Cluster(copy(0)),
            Death::OldCopy => world.observed.agent.before = Before::Cluster(copy(1)),
            Death::LedgerLost => {
                world.observed.agent.before = Before::Cluster(copy(0));
                world.evidence = Evidence::default();
            }
        }
        if death == Death::Reboot {
            world.reboot();
        } else {
            world.restart_agent_only();
        }
    }

    /// What has to be true of every restart that was interrupted.
    fn check(&self, label: &str) {
        let world = &self.world;
        assert!(!world.holds(ConditionType::AllContainersRestarting), "{label}");
        assert!(world.holds(ConditionType::Ready), "{label}");
        for name in ALL_FOUR {
            let instances = u32::try_from(self.instances.borrow()[name].len()).unwrap();
            assert_eq!(
                world.container(name).restart_count,
                instances - 1,
                "{label}: {name} is counted once for each instance"
            );
        }
    }

    fn check_exactly_once(&self, label: &str) {
        self.check(label);
        let exit = last(&self.world, "source");
        assert_eq!((exit.exit_code, exit.container_id.as_ref()), (42, self.ids.get("source")), "{label}");
        assert_eq!(counts(&self.world, ALL_FOUR), [1; 4], "{label}");
        assert_eq!(self.world.observed.sandboxes.len(), 1, "{label}");
        assert_eq!(self.world.observed.sandboxes[0].attempt, 0, "{label}: the same sandbox");
    }

    fn check_history(&self, label: &str) {
        for (name, code) in [("setup", 0), ("side", 137), ("other", 137)] {
            let exit = last(&self.world, name);
            let found = (exit.exit_code, exit.reason.as_str(), exit.container_id.as_ref());
            assert_eq!(found, (code, "RestartingAllContainers", self.ids.get(name)), "{label}: {name}");
            assert!(exit.started_at.is_some() && exit.finished_at.is_some(), "{label}: {name}");
        }
    }
}

/// The number of steps of a restart that nothing interrupts: two kills, four removals, four launches.
const STEPS: usize = 10;

/// RALL-32..RALL-36, SCN-A6, SCN-A7, SCN-A8, RALL-30, RALL-37, RALL-38, BACK-5: whatever the agent was doing when it died, and
/// whatever became of it, every container is restarted exactly once, in the same sandbox, with its history.
#[test]
fn an_agent_that_dies_at_any_step_goes_on() {
    let mut play = Play::begin();
    play.run(&[]);
    assert_eq!(play.steps, STEPS);
    play.check_exactly_once("undisturbed");
    play.check_history("undisturbed");
    for death in [Death::Standalone, Death::Cluster, Death::OldCopy] {
        for fate in FATES {
            for step in 1..=STEPS {
                let label = format!("{death:?} {fate:?} {step}");
                let mut play = Play::begin();
                play.run(&[(step, fate, death)]);
                play.check_exactly_once(&label);
                play.check_history(&label);
            }
        }
    }
}

/// RALL-35, RALL-16: an operation that took effect is not repeated, though its report was lost.
#[test]
fn what_took_effect_is_not_done_again() {
    for step in 1..=STEPS {
        let mut play = Play::begin();
        let mark = play.world.mark();
        play.run(&[(step, Fate::All, Death::Standalone)]);
        assert_eq!(play.world.since(mark).len(), STEPS, "step {step}");
    }
    for step in 1..=STEPS {
        let mut play = Play::begin();
        play.run(&[(step, Fate::None, Death::Standalone)]);
        for name in ALL_FOUR {
            assert!((2..=3).contains(&play.world.launches(name).len()), "step {step}: {name}");
        }
    }
}

/// RALL-38, SCN-A6: an agent that dies again and again gets there all the same.
#[test]
fn two_deaths_are_no_worse_than_one() {
    for first in 1..=STEPS {
        for second in first + 1..=STEPS + 2 {
            for fate in FATES {
                let label = format!("{first} {second} {fate:?}");
                let mut play = Play::begin();
                play.run(&[(first, fate, Death::Standalone), (second, Fate::First, Death::Cluster)]);
                play.check_exactly_once(&label);
                play.check_history(&label);
            }
        }
    }
    let mut play = Play::begin();
    let every: Vec<_> = (1..=60).map(|step| (step, Fate::First, Death::Standalone)).collect();
    play.run(&every);
    play.check_exactly_once("at every step");
}

/// RALL-33, RALL-34, RALL-35, RALL-37, DEF-13: with the ledger lost, the API server's copy alone brings the restart to its
/// end, and nothing is counted twice.
#[test]
fn a_lost_ledger_is_made_good_by_the_api_servers_copy() {
    for fate in FATES {
        for step in 1..=STEPS {
            let label = format!("{fate:?} {step}");
            let mut play = Play::begin();
            play.run(&[(step, fate, Death::LedgerLost)]);
            play.check_exactly_once(&label);
        }
    }
}

/// RALL-32..RALL-36, RALL-39, RULE-11, SCN-A26: a reboot at any step, under policy Never: the pod gets a new sandbox and
/// comes up in full.
#[test]
fn a_reboot_at_any_step_rebuilds_the_pod() {
    for fate in FATES {
        for step in 1..=STEPS {
            let label = format!("{fate:?} {step}");
            let mut play = Play::begin();
            play.run(&[(step, fate, Death::Reboot)]);
            play.check(&label);
            let attempts: Vec<u32> = play.world.observed.sandboxes.iter().map(|sandbox| sandbox.attempt).collect();
            assert_eq!(attempts, [1], "{label}");
        }
    }
}

/// RALL-35: an init container that runs again keeps running over an agent restart.
#[test]
fn a_running_init_container_is_left_alone() {
    let mut world = up(FOUR);
    world.exit("source", 42);
    let (id, mark) = (world.id("setup"), world.mark());
    world.seconds(20).restart_agent();
    assert_eq!((world.id("setup"), world.mark(), counts(&world, ALL_FOUR)), (id, mark, [1; 4]));
    assert_eq!(world.status().phase, Phase::Pending);
    world.exit("setup", 0);
    assert_eq!(world.running(), ["other", "side", "source"].into());
}

/// RALL-9, CON-12: an agent that dies before the condition was seen announces it again before it kills.
#[test]
fn the_announcement_survives_the_agent() {
    let mut world = up(FOUR);
    world.acknowledges = false;
    world.exit("source", 42);
    world.pass(std::time::Duration::from_millis(200));
    let mark = world.mark();
    world.restart_agent();
    assert_eq!(world.mark(), mark, "200 ms are not over half a second");
    assert!(world.holds(ConditionType::AllContainersRestarting));
    world.pass(std::time::Duration::from_millis(300));
    assert!(matches!(world.since(mark)[1], Operation::Stop { .. }));
}
