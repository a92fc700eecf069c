//! Ready and started change only with evidence.

use std::{collections::BTreeMap, time::Duration};

use keelet_lifecycle::status::{ContainerState, ContainerStatus, PodStatus};
use keelet_pod::{AgentRestart, Container, Handler, ProbeKind};

use super::{Check, Finding, View, bare};
use crate::{
    sim::Mode,
    timeline::{Attempt, Happening, Occurrence},
};

/// From an answer to the status that rests on it: an observation of the runtime, a write, a publication.
const CALM_LAG: Duration = Duration::from_millis(500);
/// The same while observations hang and writes fail.
const TROUBLED_LAG: Duration = Duration::from_secs(25);

/// Between two runs of the agent and two statuses, a container that keeps running keeps its ready and started, unless a probe
/// said otherwise, the agent was away for too long, or another writer wrote the status.
#[derive(Default)]
pub(crate) struct Evidence {
    /// What was last published, by pod.
    published: BTreeMap<String, Published>,
    /// What probes said, by instance and kind.
    answers: BTreeMap<(String, ProbeKind), Vec<Said>>,
    /// Pods whose status another writer wrote since the agent last started.
    overwritten: Vec<String>,
}

struct Published {
    run: u32,
    containers: BTreeMap<String, Shown>,
}

#[derive(Clone)]
struct Shown {
    id: String,
    ready: bool,
    started: bool,
    /// When ready or started last changed, or this instance was first shown.
    since: Duration,
}

/// What a probe attempt said, and when.
#[derive(Clone, Copy)]
struct Said {
    at: Duration,
    passed: bool,
}

// === impl Evidence ===

impl Check for Evidence {
    fn name(&self) -> &'static str {
        "evidence"
    }

    fn see(&mut self, entry: &Occurrence, view: View<'_>) -> Result<(), Finding> {
        match &entry.what {
            Happening::Probed(attempt) => {
                self.note_attempt(entry.at, attempt, view);
                Ok(())
            }
            Happening::Exited { instance, .. } => {
                self.cut_off(entry.at, &instance.id);
                Ok(())
            }
            Happening::Overwritten { pod, .. } => {
                self.overwritten.push(pod.clone());
                Ok(())
            }
            Happening::PodGone { pod } => {
                self.published.remove(pod);
                Ok(())
            }
            Happening::Published { pod, run, status, .. } => self.compare(entry.at, pod, *run, status, view),
            _ => Ok(()),
        }
    }
}

impl Evidence {
    fn note_attempt(&mut self, at: Duration, attempt: &Attempt, view: View<'_>) {
        // No instance answers for a container that has ended, and the agent need not know yet that it has.
        let shown =
            || self.published.get(&attempt.pod).and_then(|published| published.containers.get(&attempt.container));
        let id = attempt.instance.as_ref().map(|instance| instance.id.clone());
        let Some(id) = id.or_else(|| shown().map(|shown| shown.id.clone())) else { return };
        let spec = view.pods.get(&attempt.pod).and_then(|pod| pod.container(&attempt.container));
        for kind in &attempt.kinds {
            let timeout = spec.and_then(|spec| spec.probe(*kind)).map_or(Duration::MAX, |probe| probe.timeout);
            let in_time = attempt.latency < timeout;
            let answered = if attempt.reply.passes() || in_time { attempt.latency.min(timeout) } else { timeout };
            let said = self.answers.entry((id.clone(), *kind)).or_default();
            said.push(Said { at: at.saturating_add(answered), passed: attempt.reply.passes() && in_time });
            // A call that the faults delay, or an executor that holds it up, turns a pass into a failure.
            if attempt.reply.passes() && !view.context.is_calm() {
                said.push(Said { at, passed: false });
            }
        }
    }

    /// An answer that is on its way when the container exits does not arrive: the connection is closed, which is a failure.
    fn cut_off(&mut self, at: Duration, id: &str) {
        let answers = self.answers.iter_mut().filter(|((of, _), _)| of == id).flat_map(|(_, said)| said);
        for said in answers.filter(|said| said.at > at) {
            *said = Said { at, passed: false };
        }
    }

    fn compare(
        &mut self,
        at: Duration,
        pod: &str,
        run: u32,
        status: &PodStatus,
        view: View<'_>,
    ) -> Result<(), Finding> {
        let first_of_run = self.published.get(pod).is_none_or(|before| before.run != run);
        let mut found = Ok(());
        let mut containers = BTreeMap::new();
        for now in status.all_containers() {
            let Some(id) = running(now) else { continue };
            let (ready, started) = (now.ready, now.started == Some(true));
            let mut shown = Shown { id: id.to_owned(), ready, started, since: at };
            let before = self.published.get(pod).and_then(|before| before.containers.get(&now.name));
            if let Some(before) = before.filter(|before| before.id == id) {
                if (before.ready, before.started) == (ready, started) {
                    shown.since = before.since;
                } else if let Some(spec) = view.pods.get(pod).and_then(|pod| pod.container(&now.name)) {
                    let excused = first_of_run && self.excused(pod, before, &shown, view) || is_reset(at, view);
                    if !excused && found.is_ok() {
                        found = self.explain(at, spec, before, &shown, view);
                    }
                }
            }
            containers.insert(now.name.clone(), shown);
        }
        if first_of_run {
            self.overwritten.retain(|overwritten| overwritten != pod);
        }
        self.published.insert(pod.to_owned(), Published { run, containers });
        found
    }

    /// What a new run of the agent may change without a probe.
    fn excused(&self, pod: &str, before: &Shown, now: &Shown, view: View<'_>) -> bool {
        let Some(run) = view.context.run else { return true };
        // On a node of its own the ledger has what was published before it refused the first write. Where there is an API server,
        // its copy may be newer than the ledger, and counts as a whole.
        let forgot = run.forgetful && (view.context.mode == Mode::Cluster || run.may_lack(before.since));
        if forgot || view.context.rules.agent_restart == AgentRestart::ResetStatus {
            return true;
        }
        let doubted = run.away > view.context.rules.node_monitor_grace || self.overwritten.iter().any(|p| p == pod);
        doubted && before.started == now.started && !now.ready
    }

    /// Finds the probe result behind a change.
    fn explain(
        &self,
        at: Duration,
        spec: &Container,
        before: &Shown,
        now: &Shown,
        view: View<'_>,
    ) -> Result<(), Finding> {
        let lag = if view.context.was_calm_since(before.since) { CALM_LAG } else { TROUBLED_LAG };
        let since = before.since.saturating_sub(lag);
        let said = |kind: ProbeKind, passed: bool| {
            let answers = self.answers.get(&(now.id.clone(), kind)).map_or(&[] as &[Said], Vec::as_slice);
            answers.iter().any(|said| said.passed == passed && said.at >= since && said.at <= at)
        };
        if before.started != now.started && !said(ProbeKind::Startup, now.started) {
            return Err(Finding(format!("started of {} turned {} and no startup probe said so", now.id, now.started)));
        }
        let by_startup = spec.readiness.is_none() && said(ProbeKind::Startup, now.ready);
        let unheard = !now.ready && (may_fail_unheard(spec, view) || has_lost_its_sandbox(&now.id, view));
        if before.ready != now.ready && !said(ProbeKind::Readiness, now.ready) && !by_startup && !unheard {
            return Err(Finding(format!("ready of {} turned {} and no readiness probe said so", now.id, now.ready)));
        }
        Ok(())
    }
}

/// Whether a readiness probe may have failed although the node saw no attempt: a command that the faults hold up on its
/// way to the runtime runs out of time before it gets there.
fn may_fail_unheard(spec: &Container, view: View<'_>) -> bool {
    let is_command = spec.readiness.as_ref().is_some_and(|probe| matches!(probe.handler, Handler::Exec { .. }));
    is_command && !view.context.is_calm()
}

/// Whether the sandbox of an instance is not ready any more: then it has no address, and attempts that cannot be made count as failures
/// of readiness (PROBE-19).
fn has_lost_its_sandbox(id: &str, view: View<'_>) -> bool {
    let sandbox = view.node.containers.get(id).map(|container| &container.instance.sandbox);
    sandbox.and_then(|sandbox| view.node.sandboxes.get(sandbox)).is_some_and(|sandbox| !sandbox.ready)
}

/// Whether the old reset, where it is asked for, may be under way: one status calls all well, the next takes it back.
fn is_reset(at: Duration, view: View<'_>) -> bool {
    let reset = view.context.rules.agent_restart == AgentRestart::ResetStatus;
    reset && view.context.run.is_some_and(|run| at <= run.started + CALM_LAG)
}

/// The ID of the instance that a status shows running.
fn running(status: &ContainerStatus) -> Option<&str> {
    match &status.state {
        ContainerState::Running(_) => status.container_id.as_deref().map(bare),
        ContainerState::Waiting(_) | ContainerState::Terminated(_) => None,
    }
}
