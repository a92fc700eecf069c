//! Where keelet keeps things on this machine, as the command line says it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use keelet_assembly::Paths;

/// The two directories that everything is under.
#[derive(Clone, Debug, Args)]
pub struct Directories {
    /// Directory for state that survives a reboot: volumes, images, and the durable part of the ledger
    #[arg(long, value_name = "DIR", default_value = Paths::ROOT)]
    pub root_dir: PathBuf,
    /// Directory for state of one boot: sockets and the volatile part of the ledger; best on tmpfs
    #[arg(long, value_name = "DIR", default_value = Paths::STATE)]
    pub state_dir: PathBuf,
}

// === impl Directories ===

impl Directories {
    /// The same whatever the working directory.
    pub fn absolute(&self) -> Result<Paths> {
        Ok(Paths {
            root_dir: absolute("--root-dir", &self.root_dir)?,
            state_dir: absolute("--state-dir", &self.state_dir)?,
        })
    }
}

/// An absolute path, the same for every process, whatever its working directory.
pub fn absolute(option: &str, path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{option}: invalid directory {:?}", path.display().to_string()))
}
