//! A restart of all containers restarts all of them, in place, and nothing looks final meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use keelet_lifecycle::{
    restart::{Decision, RestartAllRule, on_exit},
    status::{ConditionType, ContainerState, Phase, PodStatus},
};
use keelet_pod::{Action, Container, Pod, RestartPolicy, Role};

use super::{Check, Finding, View};
use crate::{
    faults::CallKind,
    node::ContainerRun,
    sim::Mode,
    timeline::{ExitCause, Happening, InstanceRef, Occurrence},
};

/// A launch that could not be called back when the restart began.
const UNDER_WAY: Duration = Duration::from_millis(50);

/// What the message of the condition says of a request.
const REQUESTED: &str = "restart requested by";

/// From the trigger to the first running status after it.
#[derive(Default)]
pub(crate) struct RestartAll {
    pods: BTreeMap<String, PodState>,
    created: BTreeMap<String, Duration>,
}

#[derive(Default)]
struct PodState {
    /// Exits that ask for it and that no status has shown yet, with the time.
    triggers: Vec<(InstanceRef, Duration)>,
    /// Exits that would ask for it if the feature were on, of instances that are still the newest.
    ignored: Vec<(InstanceRef, Duration)>,
    stage: Stage,
    deleted: bool,
}

#[derive(Default)]
enum Stage {
    #[default]
    None,
    /// The condition is True.
    Terminating { since: Duration, before: Before, requested: bool },
    /// It is False again, and not every regular container has been started.
    Starting {
        before: Before,
        /// Something ended by itself meanwhile, and perhaps for good.
        disturbed: bool,
    },
}

/// What there was when it began.
#[derive(Default)]
struct Before {
    /// Instances of each container.
    runs: BTreeMap<String, usize>,
    /// Containers that ran, by an instance that the agent can know of.
    ran: BTreeSet<String>,
}

// === impl RestartAll ===

impl Check for RestartAll {
    fn name(&self) -> &'static str {
        "restart all"
    }

    fn see(&mut self, entry: &Occurrence, view: View<'_>) -> Result<(), Finding> {
        match &entry.what {
            Happening::Exited { instance, exit_code, cause: ExitCause::Own } => {
                self.exited(entry.at, instance, *exit_code, view);
                Ok(())
            }
            Happening::Removed { instance, asked: false } => {
                let state = self.pods.entry(instance.pod.clone()).or_default();
                state.triggers.retain(|(trigger, _)| trigger.id != instance.id);
                state.ignored.retain(|(trigger, _)| trigger.id != instance.id);
                if let Stage::Starting { disturbed, .. } = &mut state.stage {
                    *disturbed |= view.pods.get(&instance.pod).is_none_or(|pod| is_lost_for_good(pod, &instance.name));
                }
                Ok(())
            }
            Happening::PodDeleted { pod } => {
                let state = self.pods.entry(pod.clone()).or_default();
                *state = PodState { deleted: true, ..PodState::default() };
                Ok(())
            }
            Happening::Reboot => {
                self.pods
                    .values_mut()
                    .for_each(|state| *state = PodState { deleted: state.deleted, ..PodState::default() });
                Ok(())
            }
            // The ledger is lost, and with it what was under way.
            Happening::AgentStarts { .. } if view.context.run.is_some_and(|run| run.forgetful) => {
                self.pods
                    .values_mut()
                    .for_each(|state| *state = PodState { deleted: state.deleted, ..PodState::default() });
                Ok(())
            }
            Happening::AgentStarts { .. } => {
                for (uid, state) in &mut self.pods {
                    state.switch(view.context.rules.restart_all);
                    state.end_if_finished(uid, view);
                }
                Ok(())
            }
            Happening::Created(instance) => {
                self.created.insert(instance.id.clone(), entry.at);
                Ok(())
            }
            Happening::Started(instance) => self.started(instance, view),
            Happening::Call { kind: CallKind::StopPodSandbox | CallKind::RemovePodSandbox, subject, .. } => {
                self.sandbox_touched(subject, view)
            }
            // What the publisher cannot deliver is what the agent goes by all the same.
            Happening::Published { pod, status, .. } | Happening::Undelivered { pod, status } => {
                let Some(spec) = view.pods.get(pod) else { return Ok(()) };
                self.published(entry.at, spec, status, view)
            }
            _ => Ok(()),
        }
    }

    fn at_rest(&mut self, _: View<'_>) -> Result<(), Finding> {
        for state in self.pods.values() {
            if let Some((trigger, at)) = state.triggers.first() {
                return Err(Finding(format!(
                    "{} triggered RestartAllContainers at {at:?}, and no restart came",
                    trigger.id
                )));
            }
            if !matches!(state.stage, Stage::None) {
                return Err(Finding("RestartAllContainers has not come to its end".to_owned()));
            }
        }
        Ok(())
    }
}

impl RestartAll {
    fn exited(&mut self, at: Duration, instance: &InstanceRef, exit_code: i32, view: View<'_>) {
        let state = self.pods.entry(instance.pod.clone()).or_default();
        let Some(pod) = view.pods.get(&instance.pod) else { return };
        let Some(container) = pod.container(&instance.name) else { return };
        let decision = on_exit(container, exit_code, view.context.rules.restart_all);
        let asks = matches!(decision, Decision::RestartAll { .. });
        let would_ask = matches!(on_exit(container, exit_code, RestartAllRule::Honoured), Decision::RestartAll { .. });
        if container.role == Role::Init && exit_code != 0 && decision == Decision::Stay {
            // A start that fails for good is judged as ever.
            if matches!(state.stage, Stage::Starting { .. }) {
                state.stage = Stage::None;
            }
        }
        // A pod whose work is done is on its way out, and what its sidecars do then is their own affair.
        let alive = container.role == Role::Regular
            || pod.containers.iter().any(|regular| view.node.running(&pod.uid, &regular.name).is_some());
        let under_way = matches!(state.stage, Stage::Terminating { .. });
        if let Stage::Starting { disturbed, .. } = &mut state.stage {
            *disturbed |= exit_code != 0 || container.role == Role::Regular;
        }
        if asks && alive && !state.deleted && !under_way {
            state.triggers.push((instance.clone(), at));
        } else if would_ask && !asks && alive && !state.deleted {
            state.ignored.push((instance.clone(), at));
        }
        if view.context.run.is_some() {
            state.end_if_finished(&instance.pod, view);
        }
    }

    fn started(&mut self, instance: &InstanceRef, view: View<'_>) -> Result<(), Finding> {
        // An ephemeral container stays (RALL-13), so its launch is not called back; a slow runtime carries it out later.
        let container = view.pods.get(&instance.pod).and_then(|pod| pod.container(&instance.name));
        if container.is_some_and(|container| container.role == Role::Ephemeral) && !view.context.is_calm() {
            return Ok(());
        }
        let made = self.created.get(&instance.id).copied().unwrap_or_default();
        let state = self.pods.entry(instance.pod.clone()).or_default();
        // A trigger is spent once its container is started again, whatever the reason.
        state.triggers.retain(|(trigger, _)| trigger.name != instance.name || trigger.id == instance.id);
        state.ignored.retain(|(trigger, _)| trigger.name != instance.name || trigger.id == instance.id);
        match state.stage {
            Stage::Terminating { since, .. } if made > since + UNDER_WAY => {
                Err(Finding(format!("{} is started while all containers are being removed", instance.id)))
            }
            _ => Ok(()),
        }
    }

    fn sandbox_touched(&self, sandbox: &str, view: View<'_>) -> Result<(), Finding> {
        let Some(found) = view.node.sandboxes.get(sandbox) else { return Ok(()) };
        let state = self.pods.get(&found.pod);
        let under_way = state.is_some_and(|state| {
            !state.deleted
                && matches!(state.stage, Stage::Terminating { .. } | Stage::Starting { disturbed: false, .. })
        });
        if under_way && found.ready && view.context.is_calm() {
            return Err(Finding(format!("{sandbox} is stopped while its containers restart in place")));
        }
        Ok(())
    }

    fn published(&mut self, at: Duration, pod: &Pod, status: &PodStatus, view: View<'_>) -> Result<(), Finding> {
        let state = self.pods.entry(pod.uid.clone()).or_default();
        if state.deleted {
            return Ok(());
        }
        let condition = status.is_true(&ConditionType::AllContainersRestarting);
        if status.phase.is_terminal() && (condition || !state.triggers.is_empty()) {
            return Err(Finding(format!("{:?} is published although all containers are to restart", status.phase)));
        }
        if condition && status.phase != Phase::Pending {
            return Err(Finding(format!("{:?} is published while all containers are being removed", status.phase)));
        }
        if status.phase.is_terminal() {
            state.ignored.clear();
        }
        let mut found = Ok(());
        state.stage = match (std::mem::take(&mut state.stage), condition) {
            (Stage::None | Stage::Starting { .. }, true) => {
                state.triggers.clear();
                Stage::Terminating { since: at, before: Before::of(pod, view), requested: is_requested(status) }
            }
            (Stage::Terminating { since, before, .. }, true) => {
                state.triggers.clear();
                Stage::Terminating { since, before, requested: is_requested(status) }
            }
            (stage @ (Stage::Terminating { .. } | Stage::Starting { .. }), false) => {
                let (before, disturbed) = match stage {
                    Stage::Starting { before, disturbed } => (before, disturbed),
                    Stage::Terminating { before, .. } => (before, false),
                    Stage::None => (Before::default(), false),
                };
                if status.phase == Phase::Running {
                    found = before.compare(pod, status, view);
                    Stage::None
                } else if status.phase.is_terminal() {
                    Stage::None
                } else {
                    Stage::Starting { before, disturbed }
                }
            }
            (Stage::None, false) => Stage::None,
        };
        found
    }
}

// === impl PodState ===

impl PodState {
    /// An agent starts with the feature on or off. Off: no restart that rules alone began goes on before all containers are removed,
    /// and no exit asks for one. On: exits that were ignored until now count, as long as their container has not begun again (RALL-29).
    fn switch(&mut self, rule: RestartAllRule) {
        match rule {
            RestartAllRule::Honoured => self.triggers.append(&mut self.ignored),
            RestartAllRule::Ignored => {
                self.ignored.append(&mut self.triggers);
                if let Stage::Terminating { requested: false, .. } = self.stage {
                    self.stage = Stage::None;
                }
            }
        }
    }

    /// With the feature off, a pod whose regular containers have all ended for good is over for an agent that sees it, and
    /// stays so: exits that were ignored until then do not count any more.
    fn end_if_finished(&mut self, uid: &str, view: View<'_>) {
        let Some(pod) = view.pods.get(uid).filter(|_| view.context.rules.restart_all == RestartAllRule::Ignored) else {
            return;
        };
        let is_done = |container: &Container| {
            let newest = view.node.container_runs(uid, &container.name).last().and_then(|run| run.ended);
            newest.is_some_and(|(_, code, _)| on_exit(container, code, RestartAllRule::Ignored) == Decision::Stay)
        };
        if pod.containers.iter().all(is_done) {
            self.ignored.clear();
        }
    }
}

/// Whether a person asked for the restart of all containers that a status shows, alone or beside rules.
pub(super) fn is_requested(status: &PodStatus) -> bool {
    let condition = status.condition(&ConditionType::AllContainersRestarting);
    condition.and_then(|condition| condition.message.as_ref()).is_some_and(|message| message.contains(REQUESTED))
}

/// Whether a container that the runtime lost may not be started again: nothing tells its exit code, so no rule can match.
fn is_lost_for_good(pod: &Pod, name: &str) -> bool {
    pod.container(name).is_none_or(|container| {
        let by_rule = container.role != Role::Init && container.rules.iter().any(|rule| rule.action == Action::Restart);
        container.restart_policy == RestartPolicy::Never && !by_rule
    })
}

// === impl Before ===

impl Before {
    fn of(pod: &Pod, view: View<'_>) -> Self {
        let runs = |name: &str| view.node.container_runs(&pod.uid, name);
        let known = |run: &ContainerRun| {
            let forgotten = view.context.mode == Mode::Standalone && view.context.was_forgotten(&run.instance.id);
            !forgotten && !view.context.may_be_unknown(&run.instance.id)
        };
        Self {
            runs: pod.lasting_containers().map(|c| (c.name.clone(), runs(&c.name).len())).collect(),
            ran: pod.lasting_containers().filter(|c| runs(&c.name).iter().any(known)).map(|c| c.name.clone()).collect(),
        }
    }

    /// Every regular container has been started again, and its history was kept.
    fn compare(&self, pod: &Pod, status: &PodStatus, view: View<'_>) -> Result<(), Finding> {
        for container in &pod.containers {
            let name = &container.name;
            let before = self.runs.get(name).copied().unwrap_or(0);
            if view.node.container_runs(&pod.uid, name).len() <= before {
                return Err(Finding(format!("{name} was not started again with all others")));
            }
        }
        for shown in status.all_containers().filter(|shown| self.ran.contains(&shown.name)) {
            let kept = !shown.last_state.is_none() || !matches!(shown.state, ContainerState::Running(_));
            if !kept {
                return Err(Finding(format!(
                    "{} ran before all containers were restarted, and its last state is gone",
                    shown.name
                )));
            }
        }
        Ok(())
    }
}
