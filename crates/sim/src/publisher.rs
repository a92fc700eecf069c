//! What others see of the agent's pods: on a node of its own what is on the board, in a cluster what the publisher delivers,
//! as late as the faults say.

use std::{collections::BTreeMap, sync::Arc};

use keelet_agent::{
    board::{Observer, PodEvent, Published},
    events::EventRecord,
    publish::{Answers, Publisher},
};
use keelet_lifecycle::{Moment, observed::Known, status::PodStatus};
use keelet_pod::Pod;

use crate::{
    faults::Acknowledging,
    process::{AgentProcess, Permit},
    sim::{Mode, Sim, State},
    timeline::Happening,
};

/// What others see of each pod.
#[derive(Debug, Default)]
pub(crate) struct ApiStatuses {
    /// By UID: the version, and the status as others see it.
    pub(crate) statuses: BTreeMap<String, (u64, Arc<PodStatus>)>,
    /// Pods whose copy was asked for while the API server could not be reached.
    asked: Vec<Asked>,
    /// The newest statuses that could not be delivered, by UID.
    undelivered: BTreeMap<String, Undelivered>,
}

#[derive(Debug)]
struct Asked {
    uid: String,
    process: Arc<AgentProcess>,
    answers: Answers,
}

#[derive(Debug)]
struct Undelivered {
    process: Arc<AgentProcess>,
    version: u64,
    status: Arc<PodStatus>,
    answers: Answers,
}

/// The publisher as one run of the agent sees it.
#[derive(Clone, Debug)]
pub(crate) struct SimPublisher {
    pub(crate) sim: Arc<Sim>,
    pub(crate) process: Arc<AgentProcess>,
}

/// Sees the board of one run of the agent.
#[derive(Clone, Debug)]
pub(crate) struct SimObserver {
    pub(crate) sim: Arc<Sim>,
    pub(crate) process: Arc<AgentProcess>,
}

/// Shows a status to others, unless the agent died before. Whether it did.
fn show(sim: &Sim, process: &AgentProcess, uid: &str, version: u64, status: &PodStatus) -> bool {
    if process.effect() == Permit::Dead {
        sim.announce(process);
        return false;
    }
    let status = Arc::new(status.clone());
    {
        let mut state = sim.lock();
        state.api_statuses.statuses.insert(uid.to_owned(), (version, Arc::clone(&status)));
        state.note(Happening::Published { pod: uid.to_owned(), run: process.number, version, status });
    }
    sim.announce(process);
    true
}

/// Takes a pod away that is gone.
fn take_away(sim: &Sim, process: &AgentProcess, uid: &str) {
    if !process.is_over() {
        let mut state = sim.lock();
        state.api_statuses.statuses.remove(uid);
        state.note(Happening::PodGone { pod: uid.to_owned() });
    }
}

// === impl SimPublisher ===

impl Publisher for SimPublisher {
    fn known(&self, pod: &Arc<Pod>, answers: Answers) -> Known {
        let mut state = self.sim.lock();
        if state.faults.api_server_away {
            state.api_statuses.asked.push(Asked { uid: pod.uid.clone(), process: Arc::clone(&self.process), answers });
            return Known::NotAskedYet;
        }
        state.api_statuses.known(&pod.uid)
    }

    fn publish(&self, pod: &Arc<Pod>, version: u64, status: &PodStatus, answers: Answers) {
        let mut state = self.sim.lock();
        if state.faults.api_server_away {
            let (process, status) = (Arc::clone(&self.process), Arc::new(status.clone()));
            state.note(Happening::Undelivered { pod: pod.uid.clone(), status: Arc::clone(&status) });
            let undelivered = Undelivered { process, version, status, answers };
            state.api_statuses.undelivered.insert(pod.uid.clone(), undelivered);
            return;
        }
        drop(state);
        if !show(&self.sim, &self.process, &pod.uid, version, status) {
            return;
        }
        let how = self.sim.lock().faults.publisher;
        match how {
            Acknowledging::AtOnce if !self.process.is_over() => answers.acknowledge(version),
            Acknowledging::After(span) => {
                let process = Arc::clone(&self.process);
                self.sim.lock().later(span, move |_| {
                    if !process.is_over() {
                        answers.acknowledge(version);
                    }
                });
            }
            Acknowledging::AtOnce | Acknowledging::Never => {}
        }
    }

    fn event(&self, _: &Arc<Pod>, _: &EventRecord) {}

    fn node_event(&self, _: &str, _: &EventRecord) {}

    fn gone(&self, pod: &Arc<Pod>, _at: Moment) {
        take_away(&self.sim, &self.process, &pod.uid);
    }
}

// === impl SimObserver ===

impl SimObserver {
    fn is_alone(&self) -> bool {
        self.sim.lock().mode == Mode::Standalone
    }
}

impl Observer for SimObserver {
    fn published(&self, published: &Published) {
        if self.is_alone() {
            show(&self.sim, &self.process, &published.pod.uid, published.version, &published.status);
        }
    }

    fn event(&self, event: &PodEvent) {
        if !self.process.is_over() {
            self.sim.lock().note(Happening::Event { pod: event.pod.uid.clone(), record: event.event.clone() });
        }
    }

    fn gone(&self, uid: &str) {
        if self.is_alone() {
            take_away(&self.sim, &self.process, uid);
        }
    }
}

// === impl ApiStatuses ===

impl ApiStatuses {
    fn known(&self, uid: &str) -> Known {
        let copy = self.statuses.get(uid).map(|(_, status)| Box::new(PodStatus::clone(status)));
        copy.map_or(Known::NoCopy, Known::Copy)
    }
}

// === impl State ===

impl State {
    /// Does what was to be done while the API server was away, if it can be reached now. A pod that hears of its copy only now
    /// publishes again.
    pub(crate) fn catch_up(&mut self) {
        if self.faults.api_server_away {
            return;
        }
        let mut undelivered = std::mem::take(&mut self.api_statuses.undelivered);
        for Asked { uid, process, answers } in std::mem::take(&mut self.api_statuses.asked) {
            if !process.is_over() {
                undelivered.remove(&uid);
                answers.known(self.api_statuses.known(&uid));
            }
        }
        for (uid, Undelivered { process, version, status, answers }) in undelivered {
            if !process.is_over() {
                self.api_statuses.statuses.insert(uid.clone(), (version, Arc::clone(&status)));
                self.note(Happening::Published { pod: uid, run: process.number, version, status });
                answers.acknowledge(version);
            }
        }
    }
}
