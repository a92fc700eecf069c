//! No probe outlives its container, and none runs before its time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use keelet_lifecycle::status::{ContainerState, ContainerStatus};
use keelet_pod::ProbeKind;

use super::{Check, Finding, View, bare};
use crate::{
    sim::Mode,
    timeline::{Attempt, Happening, Occurrence},
};

/// An attempt that was on its way to the runtime when its container's end was published.
const UNDER_WAY: Duration = Duration::from_millis(100);

/// A container that the agent itself calls not running is not asked anything, and one with a startup probe is asked
/// about nothing else before that has passed.
#[derive(Default)]
pub(crate) struct Probing {
    /// Since when a container is published as not running, by pod and container.
    down: BTreeMap<(String, String), Duration>,
    /// Instances whose startup probe has passed.
    started: BTreeSet<String>,
}

/// Whether a newer instance runs than the one that a status shows as ended: the API server rejects that some containers run
/// again (API-20).
fn is_hidden(pod: &str, shown: &ContainerStatus, view: View<'_>) -> bool {
    let newer = |id: &str| shown.container_id.as_deref().map(bare) != Some(id);
    let running = view.node.running(pod, &shown.name);
    view.context.mode == Mode::Cluster && running.is_some_and(|running| newer(&running.id))
}

// === impl Probing ===

impl Check for Probing {
    fn name(&self) -> &'static str {
        "probing"
    }

    fn see(&mut self, entry: &Occurrence, view: View<'_>) -> Result<(), Finding> {
        match &entry.what {
            Happening::Published { pod, status, .. } | Happening::Undelivered { pod, status } => {
                for container in status.all_containers() {
                    let key = (pod.clone(), container.name.clone());
                    if matches!(container.state, ContainerState::Running(_)) {
                        self.down.remove(&key);
                        // Taken over from an agent that knew more, or from another one.
                        if let Some(id) = container.container_id.as_deref().filter(|_| container.started == Some(true))
                        {
                            self.started.insert(bare(id).to_owned());
                        }
                    } else if !is_hidden(pod, container, view) {
                        self.down.entry(key).or_insert(entry.at);
                    }
                }
                Ok(())
            }
            Happening::Started(instance) if view.context.mode == Mode::Cluster => {
                self.down.remove(&(instance.pod.clone(), instance.name.clone()));
                Ok(())
            }
            Happening::Probed(attempt) => self.asked(attempt, view),
            _ => Ok(()),
        }
    }
}

impl Probing {
    fn asked(&mut self, attempt: &Attempt, view: View<'_>) -> Result<(), Finding> {
        let spec = view.pods.get(&attempt.pod).and_then(|pod| pod.container(&attempt.container));
        let key = (attempt.pod.clone(), attempt.container.clone());
        if let Some(since) = self.down.get(&key).filter(|since| attempt.sent > **since + UNDER_WAY) {
            return Err(Finding(format!(
                "{} is asked {} although it was published as not running at {since:?}",
                attempt.container, attempt.question
            )));
        }
        let (Some(spec), Some(instance)) = (spec, &attempt.instance) else { return Ok(()) };
        let may_be_startup = attempt.may_be(ProbeKind::Startup);
        if spec.startup.is_some() && !may_be_startup && !self.started.contains(&instance.id) {
            return Err(Finding(format!("{} is asked {} before it has started", instance.id, attempt.question)));
        }
        if may_be_startup && attempt.reply.passes() {
            self.started.insert(instance.id.clone());
        }
        Ok(())
    }
}
