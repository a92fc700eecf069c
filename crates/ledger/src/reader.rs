//! Reading a ledger beside a running agent, or after it. Nothing is moved, removed or locked.

use std::path::Path;

use keelet_lifecycle::{BootId, node::NodeEvidence};

use crate::{
    disk::{Disk, OsDisk},
    gone::{self, Gone},
    history::Bounds,
    load::{Loader, Loss, Mode, Recovered},
    node,
};

/// The content of a ledger on disk, for `keelet why` and for people.
///
/// Files are replaced atomically, so each is whole. The files of one pod are read until their bytes are the same before
/// and after, so they are consistent with each other, unless an agent keeps writing meanwhile.
#[derive(Debug)]
pub struct Snapshot {
    /// The pods, by UID.
    pub pods: Vec<Recovered>,
    /// Files that cannot be used. They are not moved.
    pub losses: Vec<Loss>,
}

/// Readings of a pod, at most.
const READINGS: usize = 8;

// === impl Snapshot ===

impl Snapshot {
    /// Reads all pods.
    pub fn take(durable_root: &Path, volatile_root: &Path, boot_id: BootId) -> Self {
        Self::take_on(&OsDisk, durable_root, volatile_root, boot_id)
    }

    /// Reads one pod.
    pub fn of_pod(durable_root: &Path, volatile_root: &Path, boot_id: BootId, uid: &str) -> Self {
        let mut loader = read_only(&OsDisk, durable_root, volatile_root, boot_id);
        let pods = at_rest(&mut loader, uid).into_iter().collect();
        Self { pods, losses: loader.losses }
    }

    /// Reads what is remembered of the node itself.
    pub fn of_node(durable_root: &Path, volatile_root: &Path) -> (Option<NodeEvidence>, Vec<Loss>) {
        let mut loader = read_only(&OsDisk, durable_root, volatile_root, BootId::default());
        let (_, node) = node::load(&mut loader);
        (node, loader.losses)
    }

    /// Reads the newest removed pods, the newest last.
    pub fn of_gone(durable_root: &Path, volatile_root: &Path) -> (Vec<Gone>, Vec<Loss>) {
        Self::of_gone_on(&OsDisk, durable_root, volatile_root)
    }

    /// The same on another kind of disk.
    pub fn of_gone_on(disk: &impl Disk, durable_root: &Path, volatile_root: &Path) -> (Vec<Gone>, Vec<Loss>) {
        let mut loader = read_only(disk, durable_root, volatile_root, BootId::default());
        let (_, gone) = gone::load(&mut loader);
        (gone, loader.losses)
    }

    /// Reads all pods on another kind of disk.
    pub fn take_on(disk: &impl Disk, durable_root: &Path, volatile_root: &Path, boot_id: BootId) -> Self {
        let mut loader = read_only(disk, durable_root, volatile_root, boot_id);
        let pods = loader.uids().iter().filter_map(|uid| at_rest(&mut loader, uid)).collect();
        Self { pods, losses: loader.losses }
    }
}

/// A pod whose files did not change while they were read: a commit replaces one file after the other.
fn at_rest(loader: &mut Loader<'_, impl Disk>, uid: &str) -> Option<Recovered> {
    let losses = loader.losses.len();
    let mut before = loader.bytes(uid);
    let mut found = None;
    for _ in 0..READINGS {
        loader.losses.truncate(losses);
        found = loader.pod(uid).map(|(_, recovered)| recovered);
        let after = loader.bytes(uid);
        if after == before {
            break;
        }
        before = after;
    }
    found
}

fn read_only<'a, D: Disk>(
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
        mode: Mode::Read,
        losses: Vec::new(),
    }
}
