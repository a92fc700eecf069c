//! Whether the ledger explains what was published.

use std::{sync::Arc, time::Duration};

use keelet_explain::{Known, why::check_chains};

use super::World;
use crate::timeline::{Entry, Happening};

/// Whatever may wait has been written by then.
const WRITTEN: Duration = Duration::from_secs(3);

// === impl World ===

impl World {
    /// Looks into the ledger as `keelet why` does: every part of every status rests on evidence that says the same.
    ///
    /// Evidence and reasons are files of their own, and only one of them is written before an agent acts. So this asks
    /// nothing of a ledger that is being written, or whose agent died over it.
    pub(crate) fn check_explained(&self) {
        let changed = |entry: &&Entry| {
            matches!(
                entry.what,
                Happening::Published { .. } | Happening::AgentStarts { .. } | Happening::DiskFailed { .. }
            )
        };
        let elapsed = self.elapsed();
        let settled = self.inside(|state| {
            let last = state.timeline.entries().iter().rev().find(changed).map_or(elapsed, |entry| entry.at);
            state.faults.is_quiet() && elapsed >= last + WRITTEN
        });
        if !settled || !self.is_alive() {
            return;
        }
        let now = self.now();
        for found in self.ledger() {
            for fault in check_chains(&Known::from_ledger(&found), now) {
                self.accuse("explained", format!("{}: {fault}", found.uid));
            }
        }
    }

    /// The same for a world at rest, where the ledger also has what readers have.
    pub(super) fn check_written(&self) {
        self.check_explained();
        for found in self.ledger() {
            let published = self.inside(|state| state.bulletin.statuses.get(&found.uid).map(|(_, s)| Arc::clone(s)));
            let written = Known::from_ledger(&found).status().cloned();
            if published.as_deref() != written.as_ref() {
                self.accuse("explained", format!("{}: the ledger has another status than its readers", found.uid));
            }
        }
    }
}
