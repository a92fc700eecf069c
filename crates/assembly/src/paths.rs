//! Where keelet keeps things on this machine.

use std::path::{Path, PathBuf};

use keelet_ledger::Settings;
use keelet_lifecycle::BootId;

/// The two directories that everything is under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// What survives a reboot: pods' volumes and the durable part of the ledger.
    pub root_dir: PathBuf,
    /// What lasts until the next reboot: the volatile part of the ledger; best on tmpfs.
    pub state_dir: PathBuf,
}

// === impl Paths ===

impl Paths {
    /// Where a node's agent keeps what survives a reboot.
    pub const ROOT: &str = "/var/lib/keelet";

    /// Where it keeps what lasts until the next reboot.
    pub const STATE: &str = "/run/keelet";

    /// Where the images of a node are, below its root directory.
    pub const IMAGES: &str = "runtime/images";

    /// Those of a run, which has one directory for everything.
    pub fn of_run(base: &Path) -> Self {
        Self { root_dir: base.to_owned(), state_dir: base.join("run") }
    }

    /// Where the agent's socket is.
    pub fn socket(&self) -> PathBuf {
        self.state_dir.join("keelet.sock")
    }

    /// Where a node of a cluster remembers what its pods refer to, on a tmpfs.
    pub fn cluster_memory(&self) -> PathBuf {
        self.state_dir.join("cluster")
    }

    /// Where the ledger is.
    pub fn ledger_settings(&self, boot_id: BootId) -> Settings {
        Settings::new(self.root_dir.join("ledger"), self.state_dir.join("ledger"), boot_id)
    }
}
