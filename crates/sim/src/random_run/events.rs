//! What happens in a random run.

use std::{collections::BTreeMap, time::Duration};

use keelet_lifecycle::{
    restart::RestartAllRule,
    status::{ConditionType, Phase},
};
use keelet_pod::ProbeKind;
use keelet_sim_api::Random;

use super::files::Files;
use crate::{
    faults::{Acknowledging, CallKind, CallOdds, DiskMood, EventOdds, Fate},
    node::{Loss, Remains},
    process::{Death, InFlight},
    script::{Answer, Reply},
    world::{World, millis, secs},
};

const CONTAINERS: [&str; 6] = ["setup", "watcher", "late", "main", "helper", "extra"];
/// Those that are replaced when their image changes.
const REPLACED: [&str; 4] = ["watcher", "main", "helper", "extra"];
const HOUR_MS: i64 = 3_600_000;
/// A runtime notices the loss of a part of a sandbox within this time.
const AUDIT: Duration = Duration::from_secs(31);

/// A course of events, and which kinds of trouble it has: a run with everything at once shows less than many runs
/// with a few things each.
pub(super) struct Events {
    random: Random,
    pub(super) cluster: bool,
    pub(super) events: bool,
    deaths: bool,
    calls: bool,
    lost_events: bool,
    runtime: bool,
    reboots: bool,
    clock: bool,
    disk: bool,
    losses: bool,
    exits: bool,
    answers: bool,
    requests: bool,
    publisher: bool,
    images: bool,
    ephemeral: bool,
    gates: bool,
    second: bool,
    sandboxes: bool,
    /// Whether probes are also attempted between their scheduled attempts.
    pub(super) eager: bool,
    /// The manifest is in a file that may get another name.
    files: Option<Files>,
    /// How often each kind of thing happened.
    pub(super) acts: BTreeMap<&'static str, u32>,
}

// === impl Events ===

impl Events {
    pub(super) fn draw(mut random: Random, manifest: &str) -> Self {
        let from_files = random.chance(150);
        Self {
            cluster: random.chance(300),
            events: random.chance(850),
            deaths: random.chance(800),
            calls: random.chance(400),
            lost_events: random.chance(300),
            runtime: random.chance(250),
            reboots: random.chance(150),
            clock: random.chance(200),
            disk: random.chance(200),
            losses: random.chance(150),
            exits: random.chance(700),
            answers: random.chance(600),
            requests: random.chance(250),
            publisher: random.chance(150),
            images: !from_files && random.chance(150),
            ephemeral: !from_files && random.chance(150),
            gates: random.chance(200),
            second: random.chance(100),
            sandboxes: random.chance(200),
            eager: !random.chance(150),
            files: from_files.then(|| Files::new(manifest)),
            acts: BTreeMap::new(),
            random,
        }
    }

    /// Whether the pod comes from manifest files.
    pub(super) fn has_files(&self) -> bool {
        self.files.is_some()
    }

    /// Plays it, and takes back everything that would keep the pod from coming to rest.
    pub(super) fn play(&mut self, world: &mut World) {
        if let Some(files) = &self.files {
            files.tell(world);
        }
        if !self.eager {
            *self.acts.entry("probes are not eager").or_default() += 1;
        }
        self.write_scripts(world);
        for _ in 0..self.random.within(8..30) {
            self.step(world);
            if !world.violations().is_empty() {
                return;
            }
        }
        for name in CONTAINERS {
            world.script(name).stays();
            for kind in ProbeKind::ALL {
                world.answer(name, kind, Reply::Pass);
            }
        }
        if self.random.chance(100) {
            world.delete("web");
        }
    }

    fn write_scripts(&mut self, world: &World) {
        for name in CONTAINERS {
            let is_init = name == "setup" || name == "late";
            if self.exits && self.random.chance(500) {
                let code = *self.random.pick(&[0, 1, 1, 42, 88, 88]);
                let times = u32::try_from(self.random.within(1..4)).unwrap_or(1);
                world.script(name).exits(code).after(self.span(secs(40))).times(times);
            }
            if is_init {
                world.script(name).exits(0).after(self.span(secs(5)));
            }
            if self.random.chance(200) {
                world.script(name).ignores_term();
            }
            if self.random.chance(200) {
                world.script(name).starts_slowly(self.span(secs(3)));
            }
            if self.answers && self.random.chance(300) {
                let kind = *self.random.pick(&ProbeKind::ALL);
                let bad = self.bad_answer();
                let good_from = self.span(secs(12));
                world.script(name).answers(kind, bad).answers_from(good_from, kind, Reply::Pass);
            }
            if self.random.chance(150) {
                world.image(name).takes(self.span(secs(20)));
            }
            if self.random.chance(100) {
                world.image(name).fails(u32::try_from(self.random.within(1..3)).unwrap_or(1));
            }
        }
    }

    fn step(&mut self, world: &mut World) {
        if let Some(act) = self.act(world) {
            *self.acts.entry(act).or_default() += 1;
        }
        if self.random.chance(200) {
            world.calm();
        }
        let span = match self.random.within(0..4) {
            0 => millis(50),
            1 => secs(2),
            2 => secs(15),
            _ => secs(70),
        };
        let span = self.span(span);
        world.run(span);
        world.check_explained();
        if !world.is_alive() && self.random.chance(700) {
            if self.disk && self.random.chance(150) {
                world.disk(*self.random.pick(&[DiskMood::Full, DiskMood::DurableFull]));
                *self.acts.entry("the disk is full when an agent starts").or_default() += 1;
            }
            let wiped = self.losses && self.random.chance(100);
            // On a node of its own no API server remembers anything, so nothing can be asked of the next agent.
            if wiped && self.cluster {
                world.start_agent_without_ledger();
                *self.acts.entry("the ledger is lost").or_default() += 1;
            } else {
                world.start_agent();
            }
        }
    }

    /// Lets something happen, or nothing; in a word, what it was.
    fn act(&mut self, world: &mut World) -> Option<&'static str> {
        let act = match self.random.within(0..31) {
            0..=3 if self.deaths => self.kill(world),
            4 if self.deaths => {
                world.stop_agent();
                "the agent stops"
            }
            5 | 6 if self.calls => self.trouble(world),
            7 if self.lost_events => {
                let odds = EventOdds {
                    lost: u32::try_from(self.random.within(0..700)).unwrap_or(0),
                    doubled: 200,
                    late: self.span(secs(4)),
                };
                world.faults(|faults| faults.events = odds);
                "events are lost"
            }
            8 if self.runtime => {
                let down = self.span(secs(20));
                world.restart_runtime(down);
                "the runtime restarts"
            }
            9 if self.reboots => {
                let remains = *self.random.pick(&[Remains::Dead, Remains::Nothing]);
                world.reboot(remains);
                "the node reboots"
            }
            10 if self.clock => {
                let by = *self.random.pick(&[-HOUR_MS, HOUR_MS, -1500, 700]);
                world.set_wall(by);
                "the clock is set"
            }
            11 if self.disk => {
                let moods = [DiskMood::Well, DiskMood::Full, DiskMood::DurableFull, DiskMood::ReadOnly];
                let mood = *self.random.pick(&moods);
                world.disk(mood);
                match (mood, world.is_alive()) {
                    (DiskMood::Well, _) => "the disk is well",
                    (DiskMood::ReadOnly, _) => "the disk is read-only",
                    (DiskMood::Full | DiskMood::DurableFull, true) => "the disk is full",
                    (DiskMood::Full | DiskMood::DurableFull, false) => "the disk is full when an agent starts",
                }
            }
            12 if self.losses => {
                let name = self.container(world)?;
                world.lose(name);
                "a container is lost"
            }
            13 | 14 if self.exits => {
                let name = self.container(world)?;
                let code = *self.random.pick(&[0, 1, 42, 88]);
                world.exit(name, code);
                "a container exits"
            }
            15 | 16 if self.answers => {
                let name = *self.random.pick(&CONTAINERS);
                let kind = *self.random.pick(&ProbeKind::ALL);
                let answer = if self.random.chance(400) { Answer::default() } else { self.bad_answer() };
                world.answer(name, kind, answer);
                "answers change"
            }
            17 | 20 if self.requests && world.is_alive() => self.request(world),
            18 if self.publisher => {
                let ways = [Acknowledging::Never, Acknowledging::After(millis(700)), Acknowledging::AtOnce];
                let way = *self.random.pick(&ways);
                let away = self.cluster && self.random.chance(300);
                world.faults(|faults| (faults.publisher, faults.api_server_away) = (way, away));
                "the publisher is slow or away"
            }
            19 if self.cluster && !world.is_alive() && world.find_status("web").is_some() => {
                world.overwrite_ready("web", false);
                "Ready is overwritten"
            }
            21 | 22 if self.images => {
                let name = *self.random.pick(&REPLACED);
                let image = format!("{name}:{}", self.random.within(1..4));
                world.has_container(name).then(|| world.set_image(name, &image))?;
                "an image changes"
            }
            23 if self.ephemeral => {
                let name = format!("debug-{}", self.random.within(1..4));
                (!world.has_container(&name)).then(|| world.add_ephemeral(&name))?;
                if self.random.chance(500) {
                    let code = *self.random.pick(&[0, 1, 88]);
                    world.script(&name).exits(code).after(self.span(secs(30)));
                }
                "an ephemeral container is added"
            }
            // An agent reads its gates when it starts.
            24 | 27 if self.gates => {
                world.kill_agent();
                let rule = *self.random.pick(&[RestartAllRule::Honoured, RestartAllRule::Ignored]);
                world.reconfigure(|settings| settings.rules.restart_all = rule);
                if rule == RestartAllRule::Honoured { "the gate is on" } else { "the gate is off" }
            }
            25 if self.second && world.is_alive() => {
                world.try_second_agent();
                "a second agent starts"
            }
            26 | 28 => self.files.as_mut()?.change(&mut self.random, world),
            29 | 30 if self.sandboxes && world.sandbox().is_some() => self.sandbox(world),
            _ => return None,
        };
        Some(act)
    }

    /// One of the pod's containers, if chance finds one that it has.
    fn container(&mut self, world: &World) -> Option<&'static str> {
        let name = *self.random.pick(&CONTAINERS);
        world.has_container(name).then_some(name)
    }

    /// Asks for a restart of all containers, whatever is going on; in a word, what was.
    fn request(&mut self, world: &mut World) -> &'static str {
        let id = format!("r{}", self.random.within(0..1000));
        let status = world.find_status("web");
        // A refusal is an answer, too.
        if world.request_restart("web", &id).is_err() {
            return "a restart is refused";
        }
        match status {
            Some(status) if status.is_true(&ConditionType::AllContainersRestarting) => {
                "a restart is asked for in another"
            }
            Some(status) if status.phase == Phase::Pending => "a restart is asked for in a start",
            Some(status) if status.phase.is_terminal() => "a restart is asked for at the end",
            Some(status) if status.is_true(&ConditionType::Ready) => "a restart is asked for of a ready pod",
            Some(_) => "a restart is asked for of an unready pod",
            None => "a restart is asked for before there is a status",
        }
    }

    /// Something happens to the sandbox: at once, or the runtime notices it at its next audit.
    fn sandbox(&mut self, world: &mut World) -> &'static str {
        let noticed_after = self.span(AUDIT);
        match self.random.within(0..3) {
            0 => {
                world.break_sandbox("web");
                "the sandbox breaks down"
            }
            1 => {
                world.damage_sandbox("web", Loss::Network, noticed_after);
                "the sandbox loses its network"
            }
            _ => {
                world.damage_sandbox("web", Loss::Files, noticed_after);
                "the sandbox loses its files"
            }
        }
    }

    /// Here and now, or soon and in the middle of something.
    fn kill(&mut self, world: &mut World) -> &'static str {
        if self.random.chance(400) {
            world.kill_agent();
            return "the agent dies";
        }
        let number = world.effects() + self.random.within(1..40);
        let death = if self.random.chance(500) { Death::Before(number) } else { Death::After(number) };
        world.die_at(death, InFlight::ByChance);
        "the agent dies in the middle of something"
    }

    fn trouble(&mut self, world: &mut World) -> &'static str {
        if self.random.chance(400) {
            let kind = *self.random.pick(&CallKind::ALL);
            let fates = [Fate::AnswerLost, Fate::Lost, Fate::Failed, Fate::Hangs, Fate::HangsApplied];
            let fate = *self.random.pick(&fates);
            let times = u32::try_from(self.random.within(1..3)).unwrap_or(1);
            world.faults(|faults| faults.seal(kind, "", fate, times));
            return "a call goes wrong";
        }
        let mut odds = |most: u64| u32::try_from(self.random.within(0..most)).unwrap_or(0);
        let odds = CallOdds {
            answer_lost: odds(150),
            lost: odds(150),
            failed: odds(100),
            hangs: odds(40),
            stale: odds(200),
            slow: Duration::ZERO,
        };
        let slow = if self.random.chance(500) { self.span(secs(3)) } else { Duration::ZERO };
        world.faults(|faults| faults.everywhere(CallOdds { slow, ..odds }));
        "calls go wrong"
    }

    fn bad_answer(&mut self) -> Answer {
        let reply = *self.random.pick(&[Reply::Fail, Reply::Status(503), Reply::Refuse, Reply::Hang, Reply::Pass]);
        // A pass that takes its time is a failure where the timeout is short.
        if reply == Reply::Pass { Answer::new(reply).after(self.span(secs(5))) } else { Answer::new(reply) }
    }

    fn span(&mut self, most: Duration) -> Duration {
        self.random.millis(most)
    }
}
