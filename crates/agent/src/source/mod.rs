//! Where pods come from.
//!
//! A [`Source`] says through its [`Feed`] which pods should be there, all of them, each time something changes, and whether
//! that is everything it wants. Each source has a completeness of its own; the manager merges them by UID and full name
//! (`merge`), and nothing is an orphan before every source is complete. The sources so far: a directory of manifests
//! ([`ManifestDir`]), which is how a node without an API server knows what to run, and the requests of `keelet run`.
//!
//! The directory:
//!
//! ```text
//! directory --scan::scan--> files        one scan: every file's bytes, or why there are none
//!           --Manifests---> Listing      what is known of each file, folded into what should run. Pure.
//! ```
//!
//! A scan is the truth, inotify is a hint that it is time to scan. Scans happen a moment after a hint, and every 20 s
//! without one, so a lost hint costs little.
//!
//! A pod goes when the file that asks for it goes. A file that cannot be read or turns invalid is no such request: what ran
//! by its last good version keeps running, and the listing says so. That holds over a restart of the agent too: each pod
//! says which file asked for it ([`keelet_pod::MANIFEST`]), and only that file keeps it. The same holds for a file that asks for
//! something else under the UID of a pod that runs: a pod does not change while it runs.
//!
//! A pod that runs belongs to the file that asked for it. Another file that asks for a pod of that name is left out and
//! named, whatever comes first in the order of names; so a copy changes nothing. When the file is gone, one that asks for
//! exactly this pod is its new file; so a renamed file changes nothing either.

mod changes;
mod manifest_dir;
mod manifests;
pub(crate) mod merge;
mod problem;
mod recovered;
mod scan;

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures::future::BoxFuture;
use keelet_pod::Pod;

use self::merge::SourceId;
use crate::manager::{Extent, Mailbox, WantedPods};

pub use self::{
    manifest_dir::{ManifestDir, ManifestSource},
    manifests::{Content, Manifests},
    problem::{SourceProblem, Trouble},
};

/// Where pods come from.
///
/// The directory of manifests is the only one that the agent drives itself. `keelet run`, the simulation and the
/// connection to an API server have tasks of their own; they open a [`Feed`] with [`crate::Agent::source`] and set it.
pub trait Source: fmt::Debug + Send {
    /// Follows what should run for as long as the agent is there, and says so.
    fn follow(self: Box<Self>, feed: Feed) -> BoxFuture<'static, ()>;
}

/// The way from one source to the manager. It holds the latest value: nothing waits, and nothing piles up.
#[derive(Clone)]
pub struct Feed {
    manager: Arc<Mailbox>,
    source: SourceId,
}

/// What a directory of manifests wants to run, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// The pods that should be there, by UID. One that an earlier listing had and this one has not is not wanted any
    /// more.
    pub pods: BTreeMap<String, Arc<Pod>>,
    /// The file that asks for each of these pods, by UID. A pod that is kept from an earlier run of the agent, because
    /// it is unknown what its file asks for by now, has none.
    pub files: BTreeMap<String, String>,
    /// What stands in the way of knowing better, in the order of file names.
    pub problems: Vec<SourceProblem>,
    /// Whether a pod that no listing ever had is surely not wanted. Until this is true, such a pod, of an earlier run of
    /// the agent, may be one whose directory cannot be read at the moment.
    pub complete: bool,
    /// Whether every file was valid at least once. One that never was may ask for pods that no ledger knows.
    pub readable: bool,
}

// === impl Listing ===

impl Listing {
    /// How much it says about pods that are not in it.
    pub(crate) fn extent(&self) -> Extent {
        match (self.complete, self.readable) {
            (true, true) => Extent::Complete,
            (true, false) => Extent::Unreadable,
            (false, _) => Extent::Partial,
        }
    }
}

// === impl Feed ===

impl Feed {
    pub(crate) fn open(manager: &Arc<Mailbox>) -> Self {
        Self { manager: Arc::clone(manager), source: manager.open_source() }
    }

    /// The pods that the source wants to run. One that it named before and that is not among them is stopped and removed, unless
    /// the source is listing anew.
    pub fn set(&self, wanted: WantedPods, extent: Extent) {
        self.manager.set_wanted(self.source, wanted, extent);
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Feed").field(&self.source).finish()
    }
}

#[cfg(test)]
mod tests;
