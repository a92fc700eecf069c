//! A plan in progress: the inputs, and the decisions so far.

use std::time::Duration;

use keelet_pod::Pod;

use crate::{
    absorb::Inherits,
    evidence::{Evidence, HookProgress, Kill, Retry},
    observed::{Instance, Observed},
    operation::{KillReason, OpFailure, OpId, OpKey, Operation, Pending, Step},
    plan::{Event, ProbeRecord, Severity},
    probe::Basis,
    rules::Rules,
    time::{Moment, Now},
};

/// A plan in progress.
pub(crate) struct Draft<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) pod: &'a Pod,
    pub(crate) observed: &'a Observed,
    pub(crate) now: Now,
    pub(crate) evidence: Evidence,
    pub(crate) steps: Vec<Step>,
    pub(crate) results: Vec<ProbeRecord>,
    pub(crate) events: Vec<Event>,
    pub(crate) wake_at: Option<Moment>,
    /// Containers whose newest instance is first seen exited in this observation.
    pub(crate) fresh_exits: Vec<String>,
    /// Whether this is the first plan of this agent run.
    pub(crate) resuming: bool,
    /// Containers that the previous agent was launching when it died.
    pub(crate) interrupted: Vec<String>,
    /// The source that this run of the agent may trust for containers that its ledger does not know.
    pub(crate) inherits: Inherits,
    /// Why readiness has to be probed again.
    pub(crate) doubt: Option<Basis>,
}

/// Delays between retries of a failed operation: short at first, because most failures pass, and never long, because a
/// pod that is being restarted or deleted waits for it.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

// === impl Draft ===

impl<'a> Draft<'a> {
    pub(crate) fn new(rules: &'a Rules, pod: &'a Pod, observed: &'a Observed, evidence: &Evidence, now: Now) -> Self {
        Self {
            rules,
            pod,
            observed,
            now,
            evidence: evidence.clone(),
            steps: Vec::new(),
            results: Vec::new(),
            events: Vec::new(),
            wake_at: None,
            fresh_exits: Vec::new(),
            resuming: false,
            interrupted: Vec::new(),
            inherits: Inherits::Nothing,
            doubt: None,
        }
    }

    /// The newest instance of a container, unless it is a leftover of an earlier one.
    pub(crate) fn newest(&self, name: &str) -> Option<&'a Instance> {
        let record = self.evidence.durable.container(name);
        let newest = self.observed.newest(name)?;
        record.is_none_or(|record| !record.has_outlived(newest)).then_some(newest)
    }

    /// Asks for a plan at that time, if nothing is observed before.
    pub(crate) fn wake(&mut self, at: Moment) {
        self.wake_at = Some(self.wake_at.map_or(at, |planned| planned.earlier(at)));
    }

    /// Starts an operation, unless one with the same key is running or failed too recently.
    pub(crate) fn start(&mut self, operation: Operation) -> bool {
        let key = operation.key();
        if self.in_flight(&key) {
            return false;
        }
        if let Some(retry) = self.evidence.volatile.retries.iter().find(|retry| retry.key == key)
            && !self.now.has_reached(&retry.not_before)
        {
            let not_before = retry.not_before;
            self.wake(not_before);
            return false;
        }
        let id = OpId(self.evidence.volatile.next_operation);
        self.evidence.volatile.next_operation += 1;
        self.evidence.volatile.pending.push(Pending {
            id,
            operation: operation.clone(),
            since: self.now,
            cancelled: false,
        });
        self.steps.push(Step::Start { id, operation });
        true
    }

    /// Cancels the operations that match and are not being cancelled already.
    pub(crate) fn cancel(&mut self, matches: impl Fn(&Operation) -> bool) {
        for pending in &mut self.evidence.volatile.pending {
            if !pending.cancelled && matches(&pending.operation) {
                pending.cancelled = true;
                self.steps.push(Step::Cancel { id: pending.id });
            }
        }
    }

    pub(crate) fn pending(&self, key: &OpKey) -> Option<&Pending> {
        self.evidence.volatile.pending.iter().find(|pending| pending.operation.key() == *key)
    }

    pub(crate) fn in_flight(&self, key: &OpKey) -> bool {
        self.pending(key).is_some()
    }

    /// Whether a container may be starting without having been observed yet.
    pub(crate) fn launches_in_flight(&self) -> bool {
        self.evidence.volatile.pending.iter().any(|pending| pending.operation.starts_container())
    }

    /// Records that an operation failed, and when it may be retried.
    pub(crate) fn failed(&mut self, key: OpKey, failure: OpFailure) {
        let retries = &mut self.evidence.volatile.retries;
        let failures = match retries.iter().position(|retry| retry.key == key) {
            Some(index) => retries.swap_remove(index).failures.saturating_add(1),
            None => 1,
        };
        let delay = FIRST_RETRY.saturating_mul(1 << (failures - 1).min(16)).min(LONGEST_RETRY);
        retries.push(Retry { key, failures, not_before: self.now.plus(delay), failure });
    }

    pub(crate) fn succeeded(&mut self, key: &OpKey) {
        self.evidence.volatile.retries.retain(|retry| retry.key != *key);
    }

    /// Records why a running container has to stop. The first reason stays, unless all containers are restarting; the
    /// grace period may only shrink.
    pub(crate) fn mark_killed(&mut self, container: &str, id: &str, reason: KillReason, grace: Duration) {
        let now = self.now;
        if let Some(instance) = self.evidence.volatile.instances.get_mut(container).filter(|instance| instance.id == id)
        {
            match &mut instance.kill {
                // A restart of all containers overrides any other kill.
                Some(kill) if kill.reason == reason || !matches!(reason, KillReason::RestartAll) => {
                    let shrunk = now.since(&kill.since) + grace;
                    kill.grace = kill.grace.min(shrunk);
                }
                slot => *slot = Some(Kill { reason, since: now, grace, pre_stop: HookProgress::Due }),
            }
        }
    }

    /// Why this instance has to stop, if it has to.
    pub(crate) fn kill_reason(&self, container: &str, id: &str) -> Option<KillReason> {
        let instance = self.evidence.volatile.instances.get(container).filter(|instance| instance.id == id)?;
        instance.kill.as_ref().map(|kill| kill.reason)
    }

    pub(crate) fn event(&mut self, container: Option<&str>, reason: &'static str, severity: Severity, message: String) {
        self.events.push(Event { container: container.map(str::to_owned), reason, severity, message });
    }
}
