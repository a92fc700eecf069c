//! The ledger of a world, read as `keelet why` reads one: beside the agent, or after it.

use std::{path::Path, sync::Arc};

use keelet_ledger::{Recovered, Snapshot};

use super::World;
use crate::{
    disk::{DURABLE, SimDisk, VOLATILE},
    process::{AgentProcess, InFlight},
};

// === impl World ===

impl World {
    /// What is on the simulated disk of every pod, by UID. Nothing is moved, and no agent notices.
    pub fn ledger(&self) -> Vec<Recovered> {
        let boot_id = self.inside(|state| state.boot_id());
        // A reader is a process of its own, so that the agent's death does not silence it.
        let disk = SimDisk { sim: Arc::clone(&self.sim), process: AgentProcess::new(0, None, InFlight::ByChance) };
        Snapshot::take_on(&disk, Path::new(DURABLE), Path::new(VOLATILE), boot_id).pods
    }
}
