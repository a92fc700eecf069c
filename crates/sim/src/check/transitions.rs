//! No status follows another that the API server would reject after it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use keelet_lifecycle::{
    restart::RestartAllRule,
    status::{PodStatus, check_transition},
};
use keelet_pod::Role;

use super::{Check, Finding, View};
use crate::timeline::{Happening, Occurrence, SandboxChange};

/// An ended container comes back only if the spec says so; a final phase is final; versions rise within a run.
#[derive(Default)]
pub(crate) struct Transitions {
    published: BTreeMap<String, Published>,
    /// Sandboxes made, by pod.
    sandboxes: BTreeMap<String, u32>,
    /// Pods that a client asked the agent to restart.
    asked: BTreeSet<String>,
}

struct Published {
    run: u32,
    version: u64,
    status: Arc<PodStatus>,
}

// === impl Transitions ===

impl Check for Transitions {
    fn name(&self) -> &'static str {
        "transitions"
    }

    fn see(&mut self, entry: &Occurrence, view: View<'_>) -> Result<(), Finding> {
        match &entry.what {
            Happening::Sandbox { pod, change: SandboxChange::Ready, .. } => {
                *self.sandboxes.entry(pod.clone()).or_default() += 1;
                Ok(())
            }
            Happening::RestartAsked { pod } => {
                self.asked.insert(pod.clone());
                Ok(())
            }
            Happening::PodGone { pod } => {
                self.published.remove(pod);
                Ok(())
            }
            Happening::Published { pod, run, version, status } => {
                let now = Published { run: *run, version: *version, status: Arc::clone(status) };
                let before = self.published.insert(pod.clone(), now);
                before.map_or(Ok(()), |before| self.compare(pod, &before, *run, *version, status, view))
            }
            _ => Ok(()),
        }
    }
}

impl Transitions {
    fn compare(
        &self,
        pod: &str,
        before: &Published,
        run: u32,
        version: u64,
        status: &PodStatus,
        view: View<'_>,
    ) -> Result<(), Finding> {
        if run == before.run && version <= before.version {
            return Err(Finding(format!("version {version} follows {}", before.version)));
        }
        if run != before.run && view.context.run.is_some_and(|run| run.forgetful) {
            return Ok(());
        }
        if before.status.phase.is_terminal() && status.phase != before.status.phase {
            return Err(Finding(format!("{:?} is final, and {:?} follows", before.status.phase, status.phase)));
        }
        let Some(spec) = view.pods.get(pod) else { return Ok(()) };
        // The API server goes by the rule in the spec, whatever the feature gate is on the node.
        let checked = check_transition(spec, &before.status, status, RestartAllRule::Honoured);
        let Err(violation) = checked else { return Ok(()) };
        // On its own a node may show more: a restart that a person asked for, init containers that run again.
        let runs_again = self.sandboxes.get(pod).is_some_and(|made| *made > 1)
            && spec.container(&violation.container).is_some_and(|container| container.role == Role::Init);
        if runs_again || self.asked.contains(pod) { Ok(()) } else { Err(Finding(violation.to_string())) }
    }
}
