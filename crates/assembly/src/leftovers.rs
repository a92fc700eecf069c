//! What runs that were killed have left: pods that go on without an agent, a bridge, a directory.
//!
//! They are found by the shims of their pods, which carry their directory in their arguments, by the directories of runs, and by the
//! bridges of pods, which carry the root directory in their alias: a named directory whose pods have all ended is found
//! by its bridge only. Whatever an agent, a server or a run that is alive has locked is theirs. An agent that was
//! stopped comes back to its pods, so they are not left over either, unless their records are gone: then no agent can
//! ever adopt them.

use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use futures::future::try_join_all;
use keelet_cri::{Runtime, v1};
use keelet_host::{RemoveError, remove_directory};
use keelet_launch::labels::POD_TERMINATION_GRACE;
use keelet_runtime::{Engine, OpenError, OwnedBridge, end_without_records, has_records, pods_in, runs_in};
use keelet_shim::running::{RunningShim, running_shims};

use crate::{
    claim::{self, Claim, ClaimError, Extra, Holder, Record},
    embedded::settings_in,
    paths::Paths,
    run::PREFIX,
};

/// How long a container may take to stop if it has no annotation: the API's default.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// What one run has left.
#[derive(Debug)]
pub struct Leftover {
    state_dir: PathBuf,
    /// What is known of it; none if its records are gone.
    record: Option<Record>,
    shims: Vec<RunningShim>,
}

/// Why something that a run has left stays.
#[derive(Debug, thiserror::Error)]
pub enum LeftoverError {
    /// A pod without records cannot be ended.
    #[error(transparent)]
    WithoutRecords(#[from] io::Error),
    /// Its directories cannot be had.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// Its runtime cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A pod cannot be stopped or removed.
    #[error(transparent)]
    Pod(#[from] keelet_cri::Error),
    /// The directory cannot be removed.
    #[error(transparent)]
    Directory(#[from] RemoveError),
}

/// What runs that were killed have left. The error is that of listing the machine's processes.
pub fn find(bridges: &[OwnedBridge]) -> io::Result<Vec<Leftover>> {
    let mut by_state: BTreeMap<PathBuf, Vec<RunningShim>> = BTreeMap::new();
    for shim in running_shims()? {
        // STATE/runtime/sandboxes/ID
        if let Some(state_dir) = shim.dir.ancestors().nth(3) {
            by_state.entry(state_dir.to_owned()).or_default().push(shim);
        }
    }
    // Those of which nothing runs any more. Without a record one may have just begun.
    for entry in fs::read_dir(env::temp_dir()).into_iter().flatten().flatten() {
        let state_dir = Paths::of_run(&entry.path()).state_dir;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && claim::read(&state_dir).is_some() {
            by_state.entry(state_dir).or_default();
        }
    }
    for record in bridges.iter().filter_map(|bridge| claim::read(&bridge.owner)) {
        by_state.entry(record.state_dir).or_default();
    }
    let leftovers =
        by_state.into_iter().map(|(state_dir, shims)| Leftover { record: claim::read(&state_dir), state_dir, shims });
    Ok(leftovers.filter(Leftover::is_nobodys).collect())
}

// === impl Leftover ===

impl Leftover {
    /// Whether no process has its directory, and no agent or server will come back to it.
    fn is_nobodys(&self) -> bool {
        match &self.record {
            _ if claim::is_held(&self.state_dir) => false,
            Some(record) => record.holder == Holder::Run,
            // Records of pods that an older keelet may have made.
            None => !self.shims.iter().any(|shim| has_records(&shim.dir)),
        }
    }

    /// Whether pods of it run.
    pub fn runs(&self) -> bool {
        runs_in(&claim::sandboxes(&self.state_dir))
    }

    /// The directory by which a person knows it.
    pub fn place(&self) -> &Path {
        self.record.as_ref().map_or(&self.state_dir, |record| &record.root_dir)
    }

    /// The pods of it, by names where they have records.
    pub fn pods(&self) -> Vec<String> {
        let known = pods_in(&claim::sandboxes(&self.state_dir));
        let nameless = self.shims.iter().filter(|shim| !has_records(&shim.dir));
        let nameless = nameless.map(|shim| format!("sandbox {:.12}, whose records are gone", shim.sandbox()));
        known.into_iter().chain(nameless).collect()
    }

    /// Stops its pods, with their grace periods, and removes them; and its directory if it was to go with the run.
    pub async fn remove(&self) -> Result<(), LeftoverError> {
        let bridge = match &self.record {
            Some(record) => record.bridge.clone(),
            None => self.state_dir.parent().and_then(claim::own_bridge),
        };
        let root_dir = self.record.as_ref().map(|record| record.root_dir.clone());
        let nameless: Vec<_> = self.shims.iter().filter(|shim| !has_records(&shim.dir)).cloned().collect();
        if !nameless.is_empty() {
            end_without_records(&nameless, bridge.as_deref()).await?;
        }
        let Some(root_dir) = root_dir else { return Ok(()) };
        let paths = Paths { root_dir: root_dir.clone(), state_dir: self.state_dir.clone() };
        // No run may begin to use it meanwhile.
        let Some(Record { images, temporary, .. }) = self.record.clone() else { return Ok(()) };
        let claim = Claim::take(&paths, Holder::Run, Extra { images: images.clone(), temporary }).await?;
        let mut settings = settings_in(&paths, bridge.as_deref());
        settings.images = images.unwrap_or(settings.images);
        let engine = Engine::open(settings).await?;
        remove_all(&engine.in_process()).await?;
        drop((engine, claim));
        if temporary {
            remove_directory(&root_dir)?;
        }
        Ok(())
    }
}

/// Stops every pod of a runtime as an agent would, and removes it.
async fn remove_all(runtime: &Runtime) -> Result<(), keelet_cri::Error> {
    let containers = runtime.list_containers(None).await?;
    let running = containers.iter().filter(|one| one.state == v1::ContainerState::ContainerRunning as i32);
    let grace =
        |one: &v1::Container| one.annotations.get(POD_TERMINATION_GRACE).and_then(|seconds| seconds.parse().ok());
    let stops =
        running.map(|one| runtime.stop_container(&one.id, grace(one).map_or(DEFAULT_GRACE, Duration::from_secs)));
    try_join_all(stops).await?;
    for sandbox in runtime.list_pod_sandbox(None).await? {
        runtime.stop_pod_sandbox(&sandbox.id).await?;
        runtime.remove_pod_sandbox(&sandbox.id).await?;
    }
    Ok(())
}
