//! Reading a ledger beside a running agent, or after it. Nothing is moved, removed or locked.

use std::path::Path;

use keelet_lifecycle::BootId;

use crate::{
    disk::{Disk, OsDisk},
    history::Bounds,
    load::{Loader, Loss, Mode, Recovered},
};

/// What is on disk, for `keelet why` and for people.
///
/// Files are replaced in one step, so each is whole; two of one pod may be from two commits if an agent writes
/// meanwhile.
#[derive(Debug)]
pub struct Snapshot {
    /// The pods, by UID.
    pub pods: Vec<Recovered>,
    /// What cannot be used. It is left where it is.
    pub losses: Vec<Loss>,
}

// === impl Snapshot ===

impl Snapshot {
    /// Looks at all pods.
    pub fn take(durable_root: &Path, volatile_root: &Path, boot_id: BootId) -> Self {
        Self::take_on(&OsDisk, durable_root, volatile_root, boot_id)
    }

    /// Looks at one pod.
    pub fn of_pod(durable_root: &Path, volatile_root: &Path, boot_id: BootId, uid: &str) -> Self {
        let mut loader = looking(&OsDisk, durable_root, volatile_root, boot_id);
        let pods = loader.pod(uid).into_iter().map(|(_, recovered)| recovered).collect();
        Self { pods, losses: loader.losses }
    }

    /// Looks at all pods on another kind of disk.
    pub fn take_on(disk: &impl Disk, durable_root: &Path, volatile_root: &Path, boot_id: BootId) -> Self {
        let mut loader = looking(disk, durable_root, volatile_root, boot_id);
        let pods = loader.pods().into_values().map(|(_, recovered)| recovered).collect();
        Self { pods, losses: loader.losses }
    }
}

fn looking<'a, D: Disk>(
    disk: &'a D,
    durable_root: &'a Path,
    volatile_root: &'a Path,
    boot_id: BootId,
) -> Loader<'a, D> {
    Loader {
        disk,
        durable_root,
        volatile_root,
        boot_id,
        bounds: Bounds::default(),
        mode: Mode::Look,
        losses: Vec::new(),
    }
}
