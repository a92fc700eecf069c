//! After an agent start every kept probe is asked soon.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use keelet_lifecycle::status::{ContainerState, PodStatus};
use keelet_pod::{Probe, ProbeKind};

use super::{Check, Finding, View, bare};
use crate::{
    faults::CallKind,
    timeline::{Happening, Occurrence},
};

/// Kept probes are spread over at most this long.
const LONGEST_SPREAD: Duration = Duration::from_secs(1);

/// The first observation of the runtime comes before the first plan.
const FIRST_LOOK: Duration = Duration::from_millis(200);

/// The first result of a kept probe comes within its period, one second at most, and its timeout.
#[derive(Default)]
pub(crate) struct FirstResults {
    /// The newest status of each pod.
    published: BTreeMap<String, std::sync::Arc<PodStatus>>,
    /// Pods that their source does not want any more.
    deleted: BTreeSet<String>,
    /// Probes that have been asked, by instance and kind.
    asked: BTreeMap<(String, ProbeKind), Duration>,
    /// Probes that have yet to be asked in this run, with the deadline.
    awaited: BTreeMap<(String, ProbeKind), Duration>,
}

// === impl FirstResults ===

impl Check for FirstResults {
    fn name(&self) -> &'static str {
        "first results"
    }

    fn see(&mut self, entry: &Occurrence, view: View<'_>) -> Result<(), Finding> {
        if !view.context.is_calm() {
            self.awaited.clear();
        }
        let late = self.awaited.extract_if(.., |_, deadline| *deadline < entry.at).last();
        match &entry.what {
            Happening::AgentStarts { .. } => self.await_all(view),
            Happening::AgentDies { .. } | Happening::AgentStops { .. } => self.awaited.clear(),
            Happening::Published { pod, status, .. } => {
                if status.phase.is_terminal() {
                    self.awaited.clear();
                }
                // What the agent knew and had not yet published.
                let started = |id: &str| {
                    let mut shown = status.all_containers();
                    shown.any(|s| s.started == Some(true) && s.container_id.as_deref().map(bare) == Some(id))
                };
                self.awaited.retain(|(id, kind), _| *kind != ProbeKind::Startup || !started(id));
                self.published.insert(pod.clone(), std::sync::Arc::clone(status));
            }
            Happening::PodDeleted { pod } => {
                self.awaited.clear();
                self.deleted.insert(pod.clone());
            }
            Happening::Exited { instance, .. } | Happening::Removed { instance, .. } => {
                self.awaited.retain(|(id, _), _| *id != instance.id);
            }
            // One that is being stopped is asked about readiness only, and not for long.
            Happening::Call { kind: CallKind::StopContainer, subject, .. } => {
                self.awaited.retain(|(id, _), _| subject.split(' ').next() != Some(id));
            }
            Happening::Probed(attempt) => {
                for kind in &attempt.kinds {
                    if let Some(instance) = &attempt.instance {
                        let key = (instance.id.clone(), *kind);
                        self.awaited.remove(&key);
                        self.asked.insert(key, entry.at);
                    }
                }
            }
            _ => {}
        }
        late.map_or(Ok(()), |((id, kind), deadline)| {
            Err(Finding(format!("the {kind} probe of {id} was not asked by {deadline:?}")))
        })
    }
}

impl FirstResults {
    fn await_all(&mut self, view: View<'_>) {
        self.awaited.clear();
        let Some(run) = view.context.run.filter(|run| !run.forgetful && view.context.is_calm()) else { return };
        let stays = |pod: &str, status: &PodStatus| !status.phase.is_terminal() && !self.deleted.contains(pod);
        for (pod, status) in self.published.iter().filter(|(pod, status)| stays(pod, status)) {
            let Some(spec) = view.pods.get(pod) else { continue };
            for shown in status.all_containers() {
                let (Some(spec), Some(id)) = (spec.container(&shown.name), shown.container_id.as_deref().map(bare))
                else {
                    continue;
                };
                let runs = view.node.running(pod, &shown.name).is_some_and(|running| running.id == id);
                if !runs || !matches!(shown.state, ContainerState::Running(_)) {
                    continue;
                }
                for kind in ProbeKind::ALL {
                    let key = (id.to_owned(), kind);
                    let due = (kind == ProbeKind::Startup) == (shown.started != Some(true));
                    if let Some(probe) = spec.probe(kind).filter(|_| due && self.asked.contains_key(&key)) {
                        self.awaited.insert(key, run.started + patience(probe));
                    }
                }
            }
        }
    }
}

fn patience(probe: &Probe) -> Duration {
    probe.period.min(LONGEST_SPREAD) + FIRST_LOOK
}
