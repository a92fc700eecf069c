//! The agent restarts: an agent restart is not evidence, so no status changes because of it.
//!
//! Every published version is compared, not only the last one: a status that dips for a moment takes a pod out of
//! service.

mod doubt;
mod ended;
mod evidence;
mod first_results;
mod kept;
mod many;
mod order;

use std::{sync::Arc, time::Duration};

use keelet_lifecycle::status::PodStatus;
use keelet_sim::{World, millis};

const NONE: &str = "";
const STARTUP: &str = "startupProbe: {exec: {command: [up]}, periodSeconds: 2, failureThreshold: 30}";
const READINESS: &str = "readinessProbe: {exec: {command: [serving]}, periodSeconds: 3}";
const BOTH: &str = "startupProbe: {exec: {command: [up]}, periodSeconds: 2, failureThreshold: 30}, \
                    readinessProbe: {exec: {command: [serving]}, periodSeconds: 3}";

/// A pod of one container with these probes.
fn one(probes: &str) -> String {
    format!("  containers:\n  - {{name: main, image: app, {probes}}}\n")
}

/// A pod of several containers with these probes each.
fn several(probes: &str) -> String {
    format!(
        "  containers:
  - {{name: main, image: app, {probes}}}
  - {{name: more, image: app, {probes}}}
  - {{name: most, image: app, {probes}}}
"
    )
}

/// A pod whose sidecar has these probes.
fn sidecar(probes: &str) -> String {
    format!(
        "  initContainers:
  - {{name: main, image: proxy, restartPolicy: Always, {probes}}}
  containers:
  - {{name: more, image: app}}
"
    )
}

/// How an agent ends, and what the next one remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Killed, on a node of its own.
    Killed,
    /// Asked to stop, on a node of its own.
    Stopped,
    /// Killed, on a node of a cluster.
    KilledInCluster,
    /// Killed, and its ledger with it: the API server's copy of the status is the only memory.
    LedgerLost,
}

// === impl Way ===

impl Way {
    const ALL: [Self; 4] = [Self::Killed, Self::Stopped, Self::KilledInCluster, Self::LedgerLost];

    /// A world with a pod called `web`.
    fn world(self, spec: &str) -> World {
        let world = World::new(1).pod(spec);
        match self {
            Self::Killed | Self::Stopped => world.build(),
            Self::KilledInCluster | Self::LedgerLost => world.cluster().build(),
        }
    }

    fn end(self, world: &mut World) {
        match self {
            Self::Stopped => world.stop_agent(),
            Self::Killed | Self::KilledInCluster | Self::LedgerLost => world.kill_agent(),
        };
    }

    fn begin(self, world: &mut World) {
        match self {
            Self::LedgerLost => world.start_agent_without_ledger(),
            Self::Killed | Self::Stopped | Self::KilledInCluster => world.start_agent(),
        };
    }

    /// Ends the agent, and begins another after so long.
    fn restart(self, world: &mut World, down: Duration) {
        self.end(world);
        world.run(down);
        self.begin(world);
    }
}

/// Every status of the pod that was published since then.
fn since(world: &World, at: Duration) -> Vec<Arc<PodStatus>> {
    let published = world.statuses();
    published.into_iter().filter(|(when, _)| *when >= at).map(|(_, status)| status).collect()
}

/// Lets time pass until something holds, in steps of a tenth of a second; `false` if it does not within the limit.
fn wait(world: &mut World, limit: Duration, holds: impl Fn(&World) -> bool) -> bool {
    let end = world.elapsed() + limit;
    while !holds(world) && world.elapsed() < end {
        world.run(millis(100));
    }
    holds(world)
}

/// `started` and `ready` of a container.
fn bits(status: &PodStatus, container: &str) -> (bool, bool) {
    let status = status.container(container).unwrap_or_else(|| panic!("no status of {container}"));
    (status.started == Some(true), status.ready)
}

/// What `started` and `ready` of a container were in all statuses since then, without repetitions.
fn history(world: &World, at: Duration, container: &str) -> Vec<(bool, bool)> {
    let mut history: Vec<(bool, bool)> = since(world, at).iter().map(|status| bits(status, container)).collect();
    history.dedup();
    history
}
