//! Readers of statuses and events: everything is kept, and acknowledged as the faults say.

use std::{collections::BTreeMap, sync::Arc};

use keelet_agent::{
    Acknowledge, Mode,
    doors::{EventRecord, Readers},
};
use keelet_lifecycle::{Moment, status::PodStatus};
use keelet_pod::Pod;

use crate::{
    faults::Acknowledging,
    life::{Life, Permit},
    sim::Sim,
    timeline::Happening,
};

/// What readers have of each pod.
#[derive(Debug, Default)]
pub(crate) struct Bulletin {
    /// By UID: the version, and the status as readers see it.
    pub(crate) statuses: BTreeMap<String, (u64, Arc<PodStatus>)>,
}

/// The readers as one run of the agent sees them.
#[derive(Clone, Debug)]
pub(crate) struct SimReaders {
    pub(crate) sim: Arc<Sim>,
    pub(crate) life: Arc<Life>,
}

// === impl SimReaders ===

impl Readers for SimReaders {
    fn known(&self, pod: &Pod) -> Option<PodStatus> {
        let state = self.sim.lock();
        if state.mode == Mode::Standalone {
            return None;
        }
        state.bulletin.statuses.get(&pod.uid).map(|(_, status)| PodStatus::clone(status))
    }

    fn publish(&self, pod: &Arc<Pod>, version: u64, status: &PodStatus, acknowledge: Acknowledge) {
        if self.life.effect() == Permit::Dead {
            self.sim.announce(&self.life);
            return;
        }
        let status = Arc::new(status.clone());
        let how = {
            let mut state = self.sim.lock();
            state.bulletin.statuses.insert(pod.uid.clone(), (version, Arc::clone(&status)));
            let (pod, run) = (pod.uid.clone(), self.life.number);
            state.note(Happening::Published { pod, run, version, status });
            state.faults.readers
        };
        self.sim.announce(&self.life);
        match how {
            Acknowledging::AtOnce if !self.life.is_over() => acknowledge.seen(version),
            Acknowledging::After(span) => {
                let life = Arc::clone(&self.life);
                self.sim.lock().later(span, move |_| {
                    if !life.is_over() {
                        acknowledge.seen(version);
                    }
                });
            }
            Acknowledging::AtOnce | Acknowledging::Never => {}
        }
    }

    fn event(&self, pod: &Arc<Pod>, event: &EventRecord) {
        if !self.life.is_over() {
            self.sim.lock().note(Happening::Event { pod: pod.uid.clone(), record: event.clone() });
        }
    }

    fn gone(&self, pod: &Arc<Pod>, _at: Moment) {
        if !self.life.is_over() {
            let mut state = self.sim.lock();
            state.bulletin.statuses.remove(&pod.uid);
            state.note(Happening::PodGone { pod: pod.uid.clone() });
        }
    }
}
