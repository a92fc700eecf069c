//! Playing a scenario: the real agent in a simulated world, and a `Scribe` that copies its ledger as time goes by.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use keelet_explain::simulation::{Absence, Cause, Record};
use keelet_lifecycle::{Evidence, Moment, Rules, Wall};
use keelet_pod::{Container, Features, Handler, Pod, ProbeKind, Role};
use keelet_sim::{Happening, Remains, Reply, Violation, World};

use super::{
    options::Instances,
    scenario::{INIT_TAKES, Scenario, Trouble, Wrong},
};

/// A simulation that came to its end.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) record: Record,
    /// Broken promises. There are none.
    pub(crate) violations: Vec<Violation>,
}

/// Something that happens at a time.
enum Event<'s> {
    Begins(&'s Trouble),
    Ends(&'s Trouble),
    Leaves(&'s Absence),
    Returns,
}

/// 2000-01-01 00:00:00 UTC, so that the time of day is the time since the beginning.
const MIDNIGHT_MS: i64 = 946_684_800_000;

/// The ledger is copied at least this often. It has the newest changes only, and these are enough to miss none.
const LONGEST_STEP: Duration = Duration::from_secs(10);

/// And so often that no more attempts of a probe lie within a step. The ledger has twice as many.
const ATTEMPTS_PER_STEP: u32 = 8;

/// Plays a scenario to its end.
pub(crate) fn play(pod: &Pod, scenario: &Scenario, features: &Features, rules: Rules, seed: u64) -> Played {
    let mut world = World::new(seed)
        .with(pod.clone())
        .settings(|settings| {
            settings.rules = rules;
            settings.features = features.clone();
            // Every attempt is in the ledger at once, so that none is missing when the agent is killed.
            settings.ledger.quiet_interval = Duration::ZERO;
        })
        .quietly()
        .without_agent()
        .build();
    let by_ms = MIDNIGHT_MS - world.now().wall.as_millis();
    world.set_wall(by_ms);
    write_scripts(&world, pod, scenario);
    world.start_agent();
    let mut scribe = Scribe::new(pod, world.now());
    let step = step(pod);
    for (at, event) in events(scenario) {
        pass(&mut world, &mut scribe, at, step);
        match event {
            Event::Begins(trouble) => trouble_begins(&world, trouble),
            Event::Ends(trouble) => {
                trouble_ends(&world, pod, scenario, trouble);
                // Others may go on.
                let goes_on = |other: &&Trouble| other.from <= at && other.to.is_none_or(|to| to > at);
                scenario.troubles.iter().filter(goes_on).for_each(|other| trouble_begins(&world, other));
            }
            Event::Leaves(Absence { cause: Cause::Killed, .. }) => drop(world.kill_agent()),
            Event::Leaves(Absence { cause: Cause::Reboot, .. }) => drop(world.reboot(Remains::Dead)),
            Event::Returns => drop(world.start_agent()),
        }
    }
    pass(&mut world, &mut scribe, scenario.span, step);
    scribe.finish(&world)
}

/// Lets time pass until then, and reads the ledger after each step.
fn pass(world: &mut World, scribe: &mut Scribe, until: Duration, step: Duration) {
    loop {
        let left = until.saturating_sub(world.elapsed());
        world.run(left.min(step));
        scribe.read(world);
        if left <= step {
            return;
        }
    }
}

fn step(pod: &Pod) -> Duration {
    let probes =
        pod.all_containers().flat_map(|container| ProbeKind::ALL.iter().filter_map(|kind| container.probe(*kind)));
    let shortest = probes.map(|probe| probe.period).min().unwrap_or(LONGEST_STEP);
    (shortest * ATTEMPTS_PER_STEP).min(LONGEST_STEP)
}

/// Everything that happens before the end, in order.
fn events(scenario: &Scenario) -> Vec<(Duration, Event<'_>)> {
    let mut events = Vec::new();
    for trouble in &scenario.troubles {
        events.push((trouble.from, Event::Begins(trouble)));
        events.extend(trouble.to.map(|to| (to, Event::Ends(trouble))));
    }
    for absence in &scenario.absences {
        events.push((absence.from, Event::Leaves(absence)));
        events.push((absence.from + absence.lasts, Event::Returns));
    }
    events.retain(|(at, _)| *at < scenario.span);
    events.sort_by_key(|(at, _)| *at);
    events
}

fn write_scripts(world: &World, pod: &Pod, scenario: &Scenario) {
    for container in pod.all_containers() {
        let name = container.name.as_str();
        for exit in scenario.exits.get(name).into_iter().flatten() {
            let script = world.script(name).exits(exit.code.into()).after(exit.after);
            drop(match exit.instances {
                Instances::Next(times) => script.times(times),
                Instances::Every => script,
            });
        }
        if container.role == Role::Init {
            drop(world.script(name).exits(0).after(INIT_TAKES));
        }
        for kind in ProbeKind::ALL {
            write_answers(world, container, kind, scenario);
        }
        let image = world.image(&container.image);
        drop(match scenario.pull {
            Some(takes) => image.takes(takes),
            None => image.takes(Duration::ZERO).is_present(),
        });
    }
}

/// What a probe answers while nothing is wrong: nothing good before the start is over, then all is well.
fn write_answers(world: &World, container: &Container, kind: ProbeKind, scenario: &Scenario) {
    let Some(probe) = container.probe(kind) else { return };
    let name = container.name.as_str();
    let script = world.script(name).answers(kind, Reply::Pass);
    if let Some(takes) = scenario.slow.get(name).filter(|takes| !takes.is_zero()) {
        // A server that is not up yet does not listen; a command can always be run.
        let not_yet = match probe.handler {
            Handler::Exec { .. } => Reply::Fail,
            Handler::HttpGet(_) | Handler::TcpSocket(_) | Handler::Grpc(_) => Reply::Refuse,
        };
        drop(script.answers(kind, not_yet).answers_from(*takes, kind, Reply::Pass));
    }
}

fn trouble_begins(world: &World, trouble: &Trouble) {
    let reply = match trouble.how {
        Wrong::Fails => Reply::Fail,
        Wrong::Hangs => Reply::Hang,
    };
    for kind in &trouble.probes {
        drop(world.script(&trouble.container).answers(*kind, reply));
    }
}

fn trouble_ends(world: &World, pod: &Pod, scenario: &Scenario, trouble: &Trouble) {
    let Some(container) = pod.container(&trouble.container) else { return };
    for kind in &trouble.probes {
        write_answers(world, container, *kind, scenario);
    }
}

/// Copies the ledger of a pod.
struct Scribe {
    record: Record,
    /// The newest attempt of each probe of each container.
    newest: BTreeMap<(String, ProbeKind), Wall>,
}

// === impl Scribe ===

impl Scribe {
    fn new(pod: &Pod, began: Moment) -> Self {
        let record = Record {
            pod: Arc::new(pod.clone()),
            began,
            ended: began,
            journal: Vec::new(),
            history: Vec::new(),
            evidence: Evidence::default(),
            why: Vec::new(),
            statuses: Vec::new(),
        };
        Self { record, newest: BTreeMap::new() }
    }

    /// Adds what is new.
    fn read(&mut self, world: &World) {
        let Some(found) = world.ledger().into_iter().find(|found| found.uid == self.record.pod.uid) else { return };
        let journal = &mut self.record.journal;
        // A reboot may take the journal with it; then all of it is new.
        let known = journal.last().and_then(|last| found.journal.iter().rposition(|note| note == last));
        journal.extend(found.journal.into_iter().skip(known.map_or(0, |last| last + 1)));
        for record in found.history {
            let newest = self.newest.entry((record.container.clone(), record.probe)).or_insert(Wall::from_millis(0));
            if record.at.wall > *newest {
                *newest = record.at.wall;
                self.record.history.push(record);
            }
        }
        self.record.evidence = found.evidence;
        if let Some(explanation) = found.explanation {
            self.record.why = explanation.why;
        }
    }

    fn finish(mut self, world: &World) -> Played {
        self.record.ended = world.now();
        for entry in world.timeline().entries() {
            if let Happening::Published { run, status, .. } = &entry.what {
                self.record.statuses.push((entry.at, *run, Arc::clone(status)));
            }
        }
        Played { record: self.record, violations: world.violations() }
    }
}
