//! Whether the ledger explains what was published.

use std::{borrow::Cow, sync::Arc, time::Duration};

use keelet_explain::{Known, spec_in, why::check_chains};
use keelet_ledger::Recovered;
use keelet_pod::Pod;

use super::World;
use crate::{
    sim::State,
    timeline::{Happening, Occurrence},
};

/// By then a write that the disk refused has been tried again.
const TRIED_AGAIN: Duration = Duration::from_secs(3);

/// Whether the agent has written what the disk refused last: it retries while it runs, and an agent that dies before leaves
/// a ledger that is behind until the next one publishes a status.
fn is_written(entries: &[Occurrence], elapsed: Duration) -> bool {
    let Some(refused) = entries.iter().rposition(|entry| matches!(entry.what, Happening::DiskFailed { .. })) else {
        return true;
    };
    let retried = entries[refused].at + TRIED_AGAIN;
    let mut after = entries[refused..].iter();
    let died = |entry: &&Occurrence| matches!(entry.what, Happening::AgentDies { .. } | Happening::AgentStops { .. });
    match after.find(died) {
        Some(death) if death.at <= retried => {
            after.any(|entry| matches!(entry.what, Happening::AgentStarts { .. }))
                && after.any(|entry| matches!(entry.what, Happening::Published { .. }))
        }
        Some(_) | None => elapsed > retried,
    }
}

// === impl World ===

impl World {
    /// Looks into the ledger as `keelet why` does: every part of every status rests on evidence that says the same,
    /// also where the agent is dead or has just died over it.
    ///
    /// Nothing is asked of a ledger that could not be written, and none that has lost what was not on disk before an
    /// agent has observed again.
    pub fn check_explained(&self) {
        let in_question = |entry: &&Occurrence| {
            matches!(entry.what, Happening::Published { .. } | Happening::Reboot | Happening::DiskFailed { .. })
        };
        let elapsed = self.elapsed();
        let settled = self.inside(|state| {
            let last = state.timeline.entries().iter().rev().find(in_question);
            last.is_some_and(|entry| matches!(entry.what, Happening::Published { .. }))
                && is_written(state.timeline.entries(), elapsed)
        });
        // Reading a ledger again that has not been written to shows nothing new.
        let seen = |state: &mut State| state.explained.replace(state.medium.changes) == Some(state.medium.changes);
        if !settled || self.inside(seen) {
            return;
        }
        // What a probe said of an instance that ended is in the journal alone, and a power cut may cost that.
        let is_reboot = |entry: &Occurrence| matches!(entry.what, Happening::Reboot);
        let rebooted = self.inside(|state| state.timeline.entries().iter().any(is_reboot));
        let now = self.now();
        for found in self.ledger() {
            let spec = self.spec_in(&found);
            let known = Known { spec: spec.as_deref().map(Cow::Borrowed), ..Known::without_spec(&found) };
            let faults = check_chains(&known, now);
            for fault in
                faults.into_iter().filter(|fault| !(rebooted && fault.ends_with("probe are no longer recorded")))
            {
                self.accuse("explained", format!("{}: {fault}", found.uid));
            }
        }
    }

    /// The pod behind the copy in the ledger. It is read again only where it has changed.
    fn spec_in(&self, found: &Recovered) -> Option<Arc<Pod>> {
        let copy = found.copy.as_ref()?;
        self.inside(|state| match &state.copy {
            Some((seen, pod)) if seen == copy => Some(Arc::clone(pod)),
            _ => {
                let pod = Arc::new(spec_in(found)?);
                state.copy = Some((copy.clone(), Arc::clone(&pod)));
                Some(pod)
            }
        })
    }

    /// The same for a world at rest, where the ledger also has what readers have.
    pub(super) fn check_written(&self) {
        self.check_explained();
        for found in self.ledger() {
            let published =
                self.inside(|state| state.api_statuses.statuses.get(&found.uid).map(|(_, s)| Arc::clone(s)));
            let written = Known::without_spec(&found).status().cloned();
            if published.as_deref() != written.as_ref() {
                self.accuse("explained", format!("{}: the ledger has another status than its readers", found.uid));
            }
        }
    }
}
