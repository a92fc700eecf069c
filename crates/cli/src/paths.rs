//! Where keelet keeps things on this machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use keelet_ledger::Settings;
use keelet_lifecycle::BootId;

/// The two directories that everything is under.
#[derive(Clone, Debug, Args)]
pub struct Paths {
    /// Directory for what survives a reboot: pods' volumes and the durable part of the ledger
    #[arg(long, value_name = "DIR", default_value = Self::ROOT)]
    pub root_dir: PathBuf,
    /// Directory for what lasts until the next reboot: the volatile part of the ledger; best on tmpfs
    #[arg(long, value_name = "DIR", default_value = Self::STATE)]
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

    /// The same whatever the working directory.
    pub fn absolute(&self) -> Result<Self> {
        Ok(Self {
            root_dir: absolute("--root-dir", &self.root_dir)?,
            state_dir: absolute("--state-dir", &self.state_dir)?,
        })
    }

    /// Where the agent's socket is.
    pub fn socket(&self) -> PathBuf {
        self.state_dir.join("keelet.sock")
    }

    /// Where the ledger is.
    pub fn ledger_settings(&self, boot_id: BootId) -> Settings {
        Settings::new(self.root_dir.join("ledger"), self.state_dir.join("ledger"), boot_id)
    }
}

/// A path as everybody sees it, whatever the working directory.
pub fn absolute(option: &str, path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{option}: invalid directory {:?}", path.display().to_string()))
}
