//! One run of the agent as a process, and its end.
//!
//! An agent that is killed runs no destructors and finishes nothing. So the simulation never drops what a dead agent
//! owned while anything is simulated: its tasks are kept and not polled again, its calls never return, its writes do not
//! happen. All that is decided here, at the doors: every effect of the agent on the world is counted, and any of them can
//! be its last.

use std::{
    any::Any,
    future::Future,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use keelet_agent::doors::Tasks;
use tokio::{sync::watch, time::Instant};

use crate::sim::Sim;

/// When a run of the agent dies by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// Just before its effect of that number, counted from one.
    Before(u64),
    /// Just after it.
    After(u64),
}

/// What becomes of the calls that a dying agent had under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InFlight {
    /// Chance decides for each of them.
    #[default]
    ByChance,
    /// The runtime carries them out.
    Applied,
    /// The runtime never gets them.
    Lost,
    /// The runtime carries them out, but gives up a start whose client is gone, as containerd does: the container has
    /// ended without ever having run.
    GivenUp,
}

/// One run of the agent.
#[derive(Debug)]
pub(crate) struct AgentProcess {
    /// Counted from one.
    pub(crate) number: u32,
    over: watch::Sender<bool>,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// When each effect took place.
    effects: Vec<Instant>,
    /// Whether a call was under way when it died.
    left_calls: bool,
    death: Option<Death>,
    in_flight: InFlight,
    announced: bool,
}

/// Whether an effect takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    /// It does.
    Go,
    /// It does, and the agent is dead now.
    Last,
    /// It does not: the agent is dead.
    Dead,
}

/// Runs the tasks of one run of the agent.
#[derive(Clone, Debug)]
pub(crate) struct SimTasks {
    pub(crate) sim: Arc<Sim>,
    pub(crate) process: Arc<AgentProcess>,
}

/// A task that is never polled again, and never dropped, once the agent is dead.
struct Mortal {
    sim: Arc<Sim>,
    process: Arc<AgentProcess>,
    task: Option<BoxFuture<'static, ()>>,
}

// === impl AgentProcess ===

impl AgentProcess {
    pub(crate) fn new(number: u32, death: Option<Death>, in_flight: InFlight) -> Arc<Self> {
        let counts = Counts { death, in_flight, ..Counts::default() };
        Arc::new(Self { number, over: watch::Sender::new(false), counts: Mutex::new(counts) })
    }

    pub(crate) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// The agent dies here and now.
    pub(crate) fn end(&self) {
        self.over.send_replace(true);
    }

    /// Word of its end.
    pub(crate) fn word_of_end(&self) -> watch::Receiver<bool> {
        self.over.subscribe()
    }

    /// Counts an effect and says whether it takes place.
    pub(crate) fn effect(&self) -> Permit {
        if self.is_over() {
            return Permit::Dead;
        }
        let mut counts = self.counts();
        counts.effects.push(Instant::now());
        let count = counts.effects.len() as u64;
        match counts.death {
            Some(Death::Before(number)) if number == count => {
                self.end();
                Permit::Dead
            }
            Some(Death::After(number)) if number == count => {
                self.end();
                Permit::Last
            }
            _ => Permit::Go,
        }
    }

    /// How many effects there were.
    pub(crate) fn effects(&self) -> u64 {
        self.counts().effects.len() as u64
    }

    /// When each effect took place.
    pub(crate) fn effect_times(&self) -> Vec<Instant> {
        self.counts().effects.clone()
    }

    /// What becomes of a call that was under way when it died.
    pub(crate) fn in_flight(&self) -> InFlight {
        let mut counts = self.counts();
        counts.left_calls = true;
        counts.in_flight
    }

    /// Whether a call was under way when it died.
    pub(crate) fn left_calls(&self) -> bool {
        self.counts().left_calls
    }

    pub(crate) fn set_death(&self, death: Death, in_flight: InFlight) {
        let mut counts = self.counts();
        counts.death = Some(death);
        counts.in_flight = in_flight;
    }

    /// Takes back the death that was set.
    pub(crate) fn spare(&self) {
        self.counts().death = None;
    }

    /// Whether the end has come and is not in the timeline yet.
    pub(crate) fn announce_end(&self) -> bool {
        self.is_over() && !mem::replace(&mut self.counts().announced, true)
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl SimTasks ===

impl Tasks for SimTasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let (sim, process) = (Arc::clone(&self.sim), Arc::clone(&self.process));
        drop(tokio::spawn(Mortal { sim, process, task: Some(task) }));
    }

    fn block(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        Box::pin(async move { work() })
    }
}

// === impl Mortal ===

impl Future for Mortal {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.process.is_over() {
            return Poll::Pending;
        }
        self.sim.count_step();
        let Some(task) = self.task.as_mut() else { return Poll::Ready(()) };
        let polled = match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context))) {
            Ok(polled) => polled,
            Err(panic) => {
                self.keep_task();
                self.sim.lock().accuse("panic", said(&*panic));
                Poll::Ready(())
            }
        };
        // It may have died while it was polled; then nothing of it is dropped.
        if polled.is_ready() && !self.process.is_over() {
            self.task = None;
        }
        polled
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        if self.process.is_over() {
            self.keep_task();
        }
    }
}

impl Mortal {
    fn keep_task(&mut self) {
        if let Some(task) = self.task.take() {
            self.sim.keep(task);
        }
    }
}

/// What a panic said.
pub(crate) fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".to_owned())
}
