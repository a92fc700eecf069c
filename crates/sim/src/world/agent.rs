//! Runs of the agent: starting it, stopping it, killing it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use keelet_agent::{Agent, Doors, Extent, Settings, publish::Publisher};
use keelet_lifecycle::BootId;
use tokio::time::Instant;

use super::{Run, World};
use crate::{
    clock::SimClock,
    dial::SimDial,
    disk::SimDisk,
    host::SimHost,
    process::{AgentProcess, Death, InFlight, SimTasks},
    publisher::{SimObserver, SimPublisher},
    runtime::SimRuntime,
    sim::Mode,
    timeline::{Happening, Memory},
};

/// The longest an agent may take to stop: a write and a heartbeat, no more.
const STOP_TAKES: Duration = Duration::from_secs(30);

/// Whether an agent hears at its start what should run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SourceState {
    Complete,
    Silent,
}

// === impl World ===

impl World {
    /// Starts an agent on the ledger as it is. It gets to work as time passes.
    ///
    /// # Panics
    ///
    /// If one is there already.
    pub fn start_agent(&mut self) -> &mut Self {
        self.start(Memory::Kept, SourceState::Complete)
    }

    /// Starts an agent on the ledger as it is, which hears nothing of its source.
    pub fn start_agent_without_source(&mut self) -> &mut Self {
        self.start(Memory::Kept, SourceState::Silent)
    }

    /// Starts an agent without a ledger.
    pub fn start_agent_without_ledger(&mut self) -> &mut Self {
        self.inside(|state| state.medium.wipe());
        self.start(Memory::Wiped, SourceState::Complete)
    }

    fn start(&mut self, memory: Memory, source: SourceState) -> &mut Self {
        assert!(!self.is_alive(), "there is an agent already");
        self.bury();
        self.runs += 1;
        let (death, in_flight) = self.death.take().map_or((None, InFlight::ByChance), |(d, f)| (Some(d), f));
        let process = AgentProcess::new(self.runs, death, in_flight);
        self.first_process.get_or_insert_with(|| Arc::clone(&process));
        let _guard = self.runtime.enter();
        let boot_id = {
            let mut state = self.sim.lock();
            state.note(Happening::AgentStarts { run: self.runs, memory });
            state.boot_id()
        };
        let (doors, settings) = self.doors(&process, boot_id);
        let (sim, tasks) = (Arc::clone(&self.sim), Arc::clone(&doors.tasks));
        let agent = Arc::new(Mutex::new(None));
        let (place, wanted) = (Arc::clone(&agent), Arc::clone(&self.wanted));
        tasks.spawn(Box::pin(async move {
            match Agent::start(doors, settings).await {
                Ok(agent) => {
                    if source == SourceState::Complete {
                        let wanted = wanted.lock().unwrap_or_else(PoisonError::into_inner).clone();
                        agent.set_pods(wanted, Extent::Complete);
                    }
                    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(agent);
                }
                Err(error) => sim.lock().accuse("start", error.to_string()),
            }
        }));
        drop(_guard);
        self.run = Some(Run { process, agent });
        self
    }

    fn doors(&self, process: &Arc<AgentProcess>, boot_id: BootId) -> (Doors<SimDisk>, Settings) {
        let (sim, of) = (|| Arc::clone(&self.sim), || Arc::clone(process));
        let runtime = SimRuntime { sim: sim(), process: of() };
        let is_cluster = self.sim.lock().mode == Mode::Cluster;
        let doors = Doors {
            runtime: keelet_cri::Runtime::in_process(runtime.clone(), runtime),
            clock: Arc::new(SimClock(sim())),
            dial: Arc::new(SimDial { sim: sim(), process: of() }),
            disk: SimDisk { sim: sim(), process: of() },
            host: Arc::new(SimHost { sim: sim(), process: of() }),
            publisher: is_cluster.then(|| Arc::new(SimPublisher { sim: sim(), process: of() }) as Arc<dyn Publisher>),
            observer: Some(Arc::new(SimObserver { sim: sim(), process: of() })),
            tasks: Arc::new(SimTasks { sim: sim(), process: of() }),
        };
        let settings = Settings {
            ledger: keelet_ledger::Settings { boot_id, ..self.settings.ledger.clone() },
            ..self.settings.clone()
        };
        (doors, settings)
    }

    /// A second agent is started beside the one that is there. It has to give up and to change nothing.
    pub fn try_second_agent(&mut self) -> &mut Self {
        let up = self.with_agent(|_| ()).is_some();
        let Some(first) = self.run.as_ref().filter(|_| up).map(|run| Arc::clone(&run.process)) else { return self };
        let second = AgentProcess::new(0, None, InFlight::ByChance);
        let boot_id = self.inside(|state| {
            state.note(Happening::Changed("a second agent starts".to_owned()));
            state.boot_id()
        });
        let started = {
            let _guard = self.runtime.enter();
            let (doors, settings) = self.doors(&second, boot_id);
            self.runtime.block_on(Agent::start(doors, settings))
        };
        // If the first one has died meanwhile, the second one may take its place. Where no directory could be made yet,
        // because the disk is full, there is nothing that the first one could have locked.
        let guarded = self.inside(|state| state.medium.has_ledger());
        if !first.is_over() && guarded {
            let effects = second.effects();
            if started.is_ok() || effects > 0 {
                self.accuse("second agent", format!("it was not refused, or had {effects} effects before it was"));
            }
        }
        second.end();
        second.announce_end();
        self.sim.keep(started);
        self
    }

    /// Whatever agent starts next is set up differently. Its mode stays.
    pub fn reconfigure(&mut self, change: impl FnOnce(&mut Settings)) -> &mut Self {
        change(&mut self.settings);
        let rules = self.settings.rules.clone();
        self.inside(|state| state.checks.expect(rules));
        self
    }

    /// Kills the agent, here and now. Nothing of it is dropped, nothing of it keeps running.
    pub fn kill_agent(&mut self) -> &mut Self {
        if let Some(run) = &self.run {
            run.process.end();
        }
        self.bury();
        self
    }

    /// Kills the agent, lets so much time pass, and starts it again.
    pub fn restart_agent(&mut self, down: Duration) -> &mut Self {
        self.kill_agent();
        self.run(down);
        self.start_agent()
    }

    /// Asks the agent to stop, and waits until it has, or has died over it.
    pub fn stop_agent(&mut self) -> &mut Self {
        let Some(run) = self.run.take_if(|run| !run.process.is_over()) else { return self };
        let agent = run.agent.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut ended = run.process.word_of_end();
        let stopped = self.runtime.block_on(async {
            let Some(agent) = &agent else { return Ok(false) };
            tokio::select! {
                biased;
                _ = ended.wait_for(|over| *over) => Ok(false),
                () = agent.stop() => Ok(true),
                () = tokio::time::sleep(STOP_TAKES) => Err(()),
            }
        });
        match stopped {
            Ok(true) => self.inside(|state| state.note(Happening::AgentStops { run: run.process.number })),
            Ok(false) => {}
            Err(()) => self.accuse("stop", "the agent does not stop".to_owned()),
        }
        run.process.end();
        if stopped == Ok(true) {
            // The timeline has its end already.
            run.process.announce_end();
        } else {
            self.sim.keep(agent);
            let _guard = self.runtime.enter();
            self.sim.announce(&run.process);
        }
        self
    }

    /// Whether an agent is there.
    pub fn is_alive(&self) -> bool {
        self.run.as_ref().is_some_and(|run| !run.process.is_over())
    }

    /// Seals the death of the agent that is there.
    pub fn die_at(&mut self, death: Death, in_flight: InFlight) -> &mut Self {
        if let Some(run) = &self.run {
            run.process.set_death(death, in_flight);
        }
        self
    }

    /// How many effects the present run of the agent has had on the world.
    pub fn effects(&self) -> u64 {
        self.run.as_ref().map_or(0, |run| run.process.effects())
    }

    /// When each effect of the present run took place.
    pub(crate) fn effect_times(&self) -> Vec<Instant> {
        self.run.as_ref().map(|run| run.process.effect_times()).unwrap_or_default()
    }

    /// Whether a call was under way when the first run died.
    pub(crate) fn left_calls(&self) -> bool {
        self.first_process.as_ref().is_some_and(|process| process.left_calls())
    }

    /// Leaves what a dead agent owned to itself.
    pub(super) fn bury(&mut self) {
        let Some(run) = self.run.take_if(|run| run.process.is_over()) else { return };
        let _guard = self.runtime.enter();
        self.sim.announce(&run.process);
        self.sim.keep(run.agent.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    pub(super) fn with_agent<T>(&self, act: impl FnOnce(&Agent) -> T) -> Option<T> {
        let run = self.run.as_ref().filter(|run| !run.process.is_over())?;
        let _guard = self.runtime.enter();
        run.agent.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(act)
    }
}
