//! Building a world.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use keelet_agent::Settings;
use keelet_lifecycle::Rules;
use keelet_pod::Pod;

use super::{World, settings};
use crate::{
    process::{Death, InFlight},
    sim::{Mode, Sim},
};

/// A world to be.
#[derive(Debug)]
pub struct WorldBuilder {
    seed: u64,
    pods: Vec<Pod>,
    settings: Settings,
    mode: Mode,
    tells_events: bool,
    watches_processes: bool,
    starts_agent: bool,
    quietly: bool,
    revive: Option<Duration>,
    death: Option<(Death, InFlight)>,
}

// === impl WorldBuilder ===

impl WorldBuilder {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            pods: Vec::new(),
            mode: Mode::Standalone,
            settings: settings(),
            tells_events: true,
            watches_processes: false,
            starts_agent: true,
            quietly: false,
            revive: None,
            death: None,
        }
    }

    /// A pod called `web` of which only the spec part is given, indented by two spaces.
    ///
    /// # Panics
    ///
    /// If it is not valid.
    pub fn pod(self, spec: &str) -> Self {
        self.named("web", spec)
    }

    /// A pod of which only name and spec part are given.
    ///
    /// # Panics
    ///
    /// If it is not valid.
    pub fn named(self, name: &str, spec: &str) -> Self {
        self.manifest(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, uid: {name}}}\nspec:\n{spec}"
        ))
    }

    /// A pod by its manifest.
    ///
    /// # Panics
    ///
    /// If it is not valid.
    pub fn manifest(self, manifest: &str) -> Self {
        self.with(keelet_pod::parse_one(manifest).unwrap_or_else(|report| panic!("{manifest}\n{report:#?}")))
    }

    /// A pod.
    pub fn with(mut self, pod: Pod) -> Self {
        self.pods.push(pod);
        self
    }

    /// The node belongs to a cluster: others keep copies of statuses, and may write them.
    pub fn cluster(mut self) -> Self {
        self.mode = Mode::Cluster;
        self
    }

    /// Other rules than the default ones.
    pub fn rules(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(&mut self.settings.rules);
        self
    }

    /// Other settings of the agent than the default ones. Mode and rules count from here on.
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// The runtime emits no events.
    pub fn without_events(mut self) -> Self {
        self.tells_events = false;
        self
    }

    /// The ends of processes can be watched.
    pub fn watching_processes(mut self) -> Self {
        self.watches_processes = true;
        self
    }

    /// No agent is started yet.
    pub fn without_agent(mut self) -> Self {
        self.starts_agent = false;
        self
    }

    /// A dead agent is started again after this long, as a service manager would.
    pub fn reviving(mut self, after: Duration) -> Self {
        self.revive = Some(after);
        self
    }

    /// The first run of the agent dies there.
    pub fn dying(mut self, death: Death, in_flight: InFlight) -> Self {
        self.death = Some((death, in_flight));
        self
    }

    /// Broken promises are collected in [`World::violations`] and cause no panic.
    pub fn quietly(mut self) -> Self {
        self.quietly = true;
        self
    }

    /// The world, with its agent started unless the builder says otherwise. Nothing has happened yet.
    ///
    /// # Panics
    ///
    /// If tokio cannot make a runtime.
    pub fn build(self) -> World {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().expect("a runtime without threads");
        let sim = {
            let _guard = runtime.enter();
            Sim::new(self.seed, self.mode, self.settings.rules.clone())
        };
        let mut world = World {
            sim,
            settings: self.settings,
            wanted: Arc::new(Mutex::new(BTreeMap::new())),
            run: None,
            runs: 0,
            names: Vec::new(),
            revive: self.revive,
            death: self.death,
            first_process: None,
            quietly: self.quietly,
            seed: self.seed,
            runtime,
        };
        world.inside(|state| {
            state.tells_events = self.tells_events;
            state.watches_processes = self.watches_processes;
        });
        for pod in self.pods {
            world.add_pod(pod);
        }
        if self.starts_agent {
            world.start_agent();
        }
        world
    }
}
