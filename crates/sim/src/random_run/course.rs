//! What happens in a random life.

use std::time::Duration;

use keelet_pod::ProbeKind;

use crate::{
    faults::{Acknowledging, CallKind, CallOdds, DiskMood, EventOdds, Fate},
    life::{Death, InFlight},
    node::Remains,
    random::Random,
    script::{Answer, Reply},
    world::{World, millis, secs},
};

const CONTAINERS: [&str; 6] = ["setup", "watcher", "late", "main", "helper", "extra"];
const HOUR_MS: i64 = 3_600_000;

/// A course of events, and which kinds of trouble it has: a run with everything at once shows less than many runs
/// with a few things each.
pub(super) struct Course {
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
    readers: bool,
}

// === impl Course ===

impl Course {
    pub(super) fn draw(mut random: Random) -> Self {
        Self {
            cluster: random.chance(300),
            events: random.chance(850),
            deaths: random.chance(800),
            calls: random.chance(400),
            lost_events: random.chance(300),
            runtime: random.chance(250),
            reboots: random.chance(150),
            clock: random.chance(200),
            disk: random.chance(150),
            losses: random.chance(150),
            exits: random.chance(700),
            answers: random.chance(600),
            requests: random.chance(150),
            readers: random.chance(150),
            random,
        }
    }

    /// Plays it, and takes back everything that would keep the pod from coming to rest.
    pub(super) fn play(&mut self, world: &mut World) {
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
        match self.random.within(0..20) {
            0..=3 if self.deaths => self.kill(world),
            4 if self.deaths => {
                world.stop_agent();
            }
            5 | 6 if self.calls => self.trouble(world),
            7 if self.lost_events => {
                let odds = EventOdds {
                    lost: u32::try_from(self.random.within(0..700)).unwrap_or(0),
                    doubled: 200,
                    late: self.span(secs(4)),
                };
                world.faults(|faults| faults.events = odds);
            }
            8 if self.runtime => {
                let down = self.span(secs(20));
                world.restart_runtime(down);
            }
            9 if self.reboots => {
                let remains = *self.random.pick(&[Remains::Dead, Remains::Nothing]);
                world.reboot(remains);
            }
            10 if self.clock => {
                let by = *self.random.pick(&[-HOUR_MS, HOUR_MS, -1500, 700]);
                world.set_wall(by);
            }
            11 if self.disk => {
                let moods = [DiskMood::Well, DiskMood::Full, DiskMood::DurableFull, DiskMood::ReadOnly];
                let mood = *self.random.pick(&moods);
                world.disk(mood);
            }
            12 if self.losses => {
                let name = *self.random.pick(&CONTAINERS);
                if world.has_container(name) {
                    world.lose(name);
                }
            }
            13 | 14 if self.exits => {
                let name = *self.random.pick(&CONTAINERS);
                let code = *self.random.pick(&[0, 1, 42, 88]);
                if world.has_container(name) {
                    world.exit(name, code);
                }
            }
            15 | 16 if self.answers => {
                let name = *self.random.pick(&CONTAINERS);
                let kind = *self.random.pick(&ProbeKind::ALL);
                let answer = if self.random.chance(400) { Answer::default() } else { self.bad_answer() };
                world.answer(name, kind, answer);
            }
            17 if self.requests && world.is_alive() => {
                let id = format!("r{}", self.random.within(0..1000));
                // A refusal is an answer, too.
                let _ = world.request_restart("web", &id);
            }
            18 if self.readers => {
                let ways = [Acknowledging::Never, Acknowledging::After(millis(700)), Acknowledging::AtOnce];
                let way = *self.random.pick(&ways);
                world.faults(|faults| faults.readers = way);
            }
            19 if self.cluster && !world.is_alive() && world.find_status("web").is_some() => {
                world.overwrite_ready("web", false);
            }
            _ => {}
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
            let wiped = self.losses && self.random.chance(100);
            // On a node of its own nobody else remembers anything, so nothing can be asked of the next agent.
            if wiped && self.cluster {
                world.start_agent_without_ledger();
            } else {
                world.start_agent();
            }
        }
    }

    /// Here and now, or soon and in the middle of something.
    fn kill(&mut self, world: &mut World) {
        if self.random.chance(400) {
            world.kill_agent();
            return;
        }
        let number = world.effects() + self.random.within(1..40);
        let death = if self.random.chance(500) { Death::Before(number) } else { Death::After(number) };
        world.die_at(death, InFlight::ByChance);
    }

    fn trouble(&mut self, world: &mut World) {
        if self.random.chance(400) {
            let kind = *self.random.pick(&CallKind::ALL);
            let fates = [Fate::AnswerLost, Fate::Lost, Fate::Failed, Fate::Hangs, Fate::HangsApplied];
            let fate = *self.random.pick(&fates);
            let times = u32::try_from(self.random.within(1..3)).unwrap_or(1);
            world.faults(|faults| faults.seal(kind, "", fate, times));
            return;
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
