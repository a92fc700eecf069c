//! More of the world: helpers of the tests of probes and of agent restarts.

use std::time::Duration;

use keelet_pod::ProbeKind;

use super::world::World;
use crate::{
    Because, Evidence, Subject, Wall,
    evidence::Volatile,
    observed::{Before, Known},
    operation::{OpResult, Operation, Outcome, ProbeReport},
    status::PodStatus,
};

/// The boot time at which the world begins.
const FIRST_BOOT_MS: i64 = 1_000_000;

impl World {
    /// Lets milliseconds pass.
    pub(crate) fn millis(&mut self, millis: u64) -> &mut Self {
        self.pass(Duration::from_millis(millis))
    }

    /// Advances the time without plans: the agent is down.
    pub(crate) fn away(&mut self, millis: u64) -> &mut Self {
        self.now = self.now.plus(Duration::from_millis(millis));
        self
    }

    /// When a probe was tried by its schedule, in milliseconds since the world began.
    pub(crate) fn probed_at(&self, name: &str, kind: ProbeKind) -> Vec<i64> {
        let is_it = |operation: &Operation| matches!(operation, Operation::Probe { container, probe, eager: false, .. } if container == name && *probe == kind);
        let tries = self.started.iter().filter(|(_, operation)| is_it(operation));
        tries.map(|(at, _)| at.boot_ms - FIRST_BOOT_MS).collect()
    }

    /// `started` and `ready` of a container.
    pub(crate) fn bits(&self, name: &str) -> (bool, bool) {
        let status = self.container(name);
        (status.started == Some(true), status.ready)
    }

    /// `started` and `ready` of a container in every status published since the mark, repeats left out.
    pub(crate) fn bits_since(&self, mark: usize, name: &str) -> Vec<(bool, bool)> {
        let mut all: Vec<(bool, bool)> = self.statuses[mark..]
            .iter()
            .filter_map(|status| status.container(name))
            .map(|status| (status.started == Some(true), status.ready))
            .collect();
        all.dedup();
        all
    }

    /// The evidence that a part of the status rests on.
    pub(crate) fn why(&self, subject: &Subject) -> &Because {
        let why = &self.plan.as_ref().expect("nothing has been planned").why;
        &why.iter().find(|why| why.subject == *subject).unwrap_or_else(|| panic!("no reason for {subject:?}")).because
    }

    /// Why a container is ready or not.
    pub(crate) fn why_ready(&self, name: &str) -> &Because {
        self.why(&Subject::Ready(name.to_owned()))
    }

    /// A probe attempt that is held comes back so.
    pub(crate) fn reply(&mut self, name: &str, kind: ProbeKind, outcome: Outcome) -> &mut Self {
        self.reply_only(name, kind, outcome);
        self.settle()
    }

    /// The same, without a plan afterwards.
    pub(crate) fn reply_only(&mut self, name: &str, kind: ProbeKind, outcome: Outcome) -> &mut Self {
        let held = self.in_flight().into_iter().find(|(_, operation)| {
            matches!(operation, Operation::Probe { container, probe, .. } if container == name && *probe == kind)
        });
        let (id, _) = held.unwrap_or_else(|| panic!("no {kind} probe of {name} is running"));
        let report = ProbeReport { outcome, latency: Duration::from_millis(7), output: format!("{outcome:?}") };
        self.conclude(id, OpResult::Probed(report));
        self
    }

    /// The agent is killed and started again in a cluster; the API server has this copy of the status.
    pub(crate) fn restart_in_cluster(&mut self, copy: Option<PodStatus>) -> &mut Self {
        self.observed.agent.before = Before::Cluster(copy.map_or(Known::NoCopy, |copy| Known::Copy(Box::new(copy))));
        self.restart_agent()
    }

    /// The agent is started again without a control plane; it was away for so long.
    pub(crate) fn restart_alone(&mut self, away: Duration) -> &mut Self {
        self.observed.agent.before = Before::Standalone(Some(away));
        self.restart_agent()
    }

    /// The evidence about running containers is lost, the rest of the ledger is there.
    pub(crate) fn lose_volatile(&mut self) -> &mut Self {
        self.evidence.volatile = Volatile::default();
        self
    }

    /// The ledger is lost.
    pub(crate) fn lose_ledger(&mut self) -> &mut Self {
        self.evidence = Evidence::default();
        self
    }

    /// A user sets the wall clock.
    pub(crate) fn shift_wall_clock(&mut self, millis: i64) -> &mut Self {
        self.now.wall = Wall::from_millis(self.now.wall.as_millis() + millis);
        self
    }
}
