//! The directories of a run.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use keelet_agent::{
    clock::{ClockError, OsClock},
    doors::Clock,
};
use keelet_host::remove_directory;
use keelet_ledger::{Settings, Snapshot};

use crate::paths::Paths;

/// The directories of one run.
#[derive(Debug)]
pub struct Place {
    /// Where everything is.
    pub paths: Paths,
    pub(super) directory: Option<OwnDirectory>,
}

/// A directory that goes with the run. Pods that could not be waited for may have mounts in it, of directories of the node
/// among others, so what is mounted is unmounted and never emptied.
#[derive(Debug)]
pub(super) struct OwnDirectory(PathBuf);

/// Why a run cannot have its directories.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// It is the directory of the node's agent.
    #[error("--root-dir: {} is the directory of the node's agent; use another one", .0.display())]
    OfTheNode(PathBuf),
    /// An agent has pods in it.
    #[error("--root-dir: {} has pods of an agent; use another one", .0.display())]
    HasPods(PathBuf),
    /// It cannot be made.
    #[error("--root-dir: cannot create {}", .path.display())]
    NotMade {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no room for a temporary one.
    #[error("cannot create a temporary directory for the pods")]
    NoTemporary(#[source] io::Error),
    /// It is not known which boot this is.
    #[error("cannot read the clock of this machine")]
    Clock(#[from] ClockError),
}

/// How the directories of runs begin that were not named.
pub(crate) const PREFIX: &str = "keelet-run-";

// === impl Place ===

impl Place {
    /// A directory that was named, or one that goes with the run.
    pub fn of(root: Option<PathBuf>) -> Result<Self, PlaceError> {
        let (base, directory) = match root {
            Some(path) => {
                not_of_an_agent(&path)?;
                match fs::create_dir_all(&path) {
                    Ok(()) => (path, None),
                    Err(source) => return Err(PlaceError::NotMade { path, source }),
                }
            }
            None => {
                let made = tempfile::Builder::new().prefix(PREFIX).tempdir();
                let own = OwnDirectory(made.map_err(PlaceError::NoTemporary)?.keep());
                (own.0.clone(), Some(own))
            }
        };
        Ok(Self { paths: Paths::of_run(&base), directory })
    }
}

// === impl OwnDirectory ===

impl OwnDirectory {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        if let Err(error) = remove_directory(&self.0) {
            tracing::warn!(%error, "cannot remove the directory of this run; remove it by hand");
        }
    }
}

/// Whether no agent has the directory. A run does not know what is in an agent's runtime, which has its state elsewhere: it
/// would take the agent's pods for gone, and remove their volumes while their containers keep running.
fn not_of_an_agent(root: &Path) -> Result<(), PlaceError> {
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if real(root) == real(Path::new(Paths::ROOT)) {
        return Err(PlaceError::OfTheNode(root.to_owned()));
    }
    let paths = Paths::of_run(root);
    // An earlier run has left its state there, an agent has not.
    if paths.state_dir.is_dir() {
        return Ok(());
    }
    let boot_id = OsClock::new()?.now().boot_id;
    let Settings { durable_root, volatile_root, .. } = paths.ledger_settings(boot_id);
    match Snapshot::take(&durable_root, &volatile_root, boot_id).pods.is_empty() {
        true => Ok(()),
        false => Err(PlaceError::HasPods(root.to_owned())),
    }
}
