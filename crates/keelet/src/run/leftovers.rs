//! What runs that were killed have left: pods that go on without an agent, a bridge, a directory.
//!
//! They are found by the shims of their pods, which carry their directory in their arguments, by the directories of runs, and by the
//! bridges of pods, which carry the root directory in their alias: a named directory whose pods have all ended is found
//! by its bridge only. Whatever an agent, a server or a run that is alive has locked is theirs. An agent that was
//! stopped comes back to its pods, so they are not left over either, unless their records are gone: then no agent can
//! ever adopt them.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use keelet_cli::{output, paths::Paths};
use keelet_cri::{Runtime, v1};
use keelet_host::remove_directory;
use keelet_runtime::{
    Engine, OwnedBridge, end_without_records, has_records, owned_bridges, pods_in, remove_idle_bridge, runs_in,
};
use keelet_shim::running::{RunningShim, running_shims};

use crate::{
    claim::{self, Claim, Extra, Holder, Record},
    embedded,
};

/// How long a container may take to stop, as its agent wrote it down; and the API's default.
const GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// What one run has left.
#[derive(Debug)]
struct Leftover {
    state_dir: PathBuf,
    /// What is known of it; none if its records are gone.
    record: Option<Record>,
    shims: Vec<RunningShim>,
}

/// How the directories of runs begin that were not named.
pub(super) const PREFIX: &str = "keelet-run-";

/// Names what is left, and removes what has ended; with `all` also what runs. Whether nothing is left.
pub(super) async fn clear(all: bool) -> Result<bool> {
    let bridges = owned_bridges().await.unwrap_or_default();
    let found = match find(&bridges) {
        Ok(found) => found,
        // Without root nothing can be found, and nothing could have been left.
        Err(error) if all => return Err(error),
        Err(_) => return Ok(true),
    };
    let mut left = 0;
    for leftover in found {
        let (place, pods) = (leftover.place().display().to_string(), leftover.pods());
        if !all && runs_in(&claim::sandboxes(&leftover.state_dir)) {
            left += 1;
            output::error(&format!(
                "a run that was killed has left pods in {place}: {}; `keelet run --clean` ends them",
                pods.join(", ")
            ));
            continue;
        }
        let removed = leftover.remove().await;
        match removed {
            Ok(()) if pods.is_empty() => {
                output::error(&format!("removed what a run that was killed has left in {place}"))
            }
            Ok(()) => {
                output::error(&format!("removed what a run that was killed has left in {place}: {}", pods.join(", ")));
            }
            Err(error) => {
                left += 1;
                output::error(&format!("what a run that was killed has left in {place} cannot be removed: {error:#}"));
            }
        }
    }
    for bridge in bridges.iter().filter(|bridge| !bridge.owner.exists()) {
        match remove_idle_bridge(&bridge.name).await {
            // Pods run that are plugged in. Their shims carry their directory, so they were named above.
            Ok(false) => {}
            Ok(true) => {
                let (name, owner) = (&bridge.name, bridge.owner.display());
                output::error(&format!("removed the bridge {name}, whose directory {owner} is gone"));
            }
            Err(error) => {
                left += 1;
                let (name, owner) = (&bridge.name, bridge.owner.display());
                output::error(&format!(
                    "the bridge {name}, whose directory {owner} is gone, cannot be removed: {error}"
                ));
            }
        }
    }
    Ok(left == 0)
}

fn find(bridges: &[OwnedBridge]) -> Result<Vec<Leftover>> {
    let mut by_state: BTreeMap<PathBuf, Vec<RunningShim>> = BTreeMap::new();
    for shim in running_shims().context("the processes of this machine cannot be listed")? {
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

    /// The directory by which a person knows it.
    fn place(&self) -> &Path {
        self.record.as_ref().map_or(&self.state_dir, |record| &record.root_dir)
    }

    fn pods(&self) -> Vec<String> {
        let known = pods_in(&claim::sandboxes(&self.state_dir));
        let nameless = self.shims.iter().filter(|shim| !has_records(&shim.dir));
        let nameless = nameless.map(|shim| format!("sandbox {:.12}, whose records are gone", shim.sandbox()));
        known.into_iter().chain(nameless).collect()
    }

    /// Stops its pods, with their grace periods, and removes them; and its directory if it was to go with the run.
    async fn remove(&self) -> Result<()> {
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
        let mut settings = embedded::in_place(&paths, bridge.as_deref());
        settings.images = images.unwrap_or(settings.images);
        let engine = Engine::open(settings).await?;
        remove_all(&engine.in_process()).await?;
        drop((engine, claim));
        if temporary {
            remove_directory(&root_dir).map_err(anyhow::Error::msg)?;
        }
        Ok(())
    }
}

/// Stops every pod of a runtime as an agent would, and removes it.
async fn remove_all(runtime: &Runtime) -> Result<()> {
    let containers = runtime.list_containers(None).await?;
    let running = containers.iter().filter(|one| one.state == v1::ContainerState::ContainerRunning as i32);
    let grace = |one: &v1::Container| one.annotations.get(GRACE).and_then(|seconds| seconds.parse().ok());
    let stops =
        running.map(|one| runtime.stop_container(&one.id, grace(one).map_or(DEFAULT_GRACE, Duration::from_secs)));
    try_join_all(stops).await?;
    for sandbox in runtime.list_pod_sandbox(None).await? {
        runtime.stop_pod_sandbox(&sandbox.id).await?;
        runtime.remove_pod_sandbox(&sandbox.id).await?;
    }
    Ok(())
}
