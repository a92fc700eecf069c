//! Restarting all containers in place (RALL-*): a machine of two phases.
//!
//! *Terminating*: a container or a person triggered it. The condition is published, then every container is killed and
//! removed, the trigger last; nothing else happens to the pod meanwhile. *Starting*: nothing is left in the runtime but
//! the sandbox, and the pod starts as it did the first time. Every step reads the present state and does what is
//! missing, so the machine continues after a crash at any point.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use keelet_pod::Role;
use serde::{Deserialize, Serialize};

use super::{Backoff, BackoffState, Decision, RestartAllRule, backoff_state, on_exit};
use crate::{
    draft::Draft,
    evidence::Exit,
    observed::{Instance, InstanceState},
    operation::{KillReason, OpKey, Operation},
    order,
    plan::Severity,
    status::ContainerState,
    time::Moment,
};

/// The progress of a restart of all containers, and the backoff of the triggers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestartAll {
    /// Its progress.
    pub stage: RestartAllStage,
    /// The backoff of each container that triggered one.
    pub backoff: BTreeMap<String, Backoff>,
}

/// The progress of a restart of all containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RestartAllStage {
    /// None is in progress.
    Idle {
        /// The last one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last: Option<Summary>,
    },
    /// Containers are being killed and removed.
    Terminating(Cleanup),
    /// All are removed; the pod starts again.
    Starting(Startup),
}

/// The first phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cleanup {
    /// Since when.
    pub since: Moment,
    /// Its triggers, in the order in which they were noticed.
    pub triggers: Vec<Trigger>,
    /// The status version with the condition; no kill is sent before it is published, or half a second has passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announced: Option<u64>,
    /// The containers whose restart count rises when the second phase begins: those that had an instance, are not counted ahead, and do not wait
    /// for a start anyway.
    pub restarted: BTreeSet<String>,
}

/// The second phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Startup {
    /// Since when.
    pub since: Moment,
    /// Its trigger.
    pub triggers: Vec<Trigger>,
    /// Whether the backoff is over.
    pub released: bool,
    /// The containers that have not been started again.
    pub outstanding: BTreeSet<String>,
}

/// A trigger of a restart of all containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Trigger {
    /// A container exited and its first matching rule has the action `RestartAllContainers`.
    Exit {
        /// The container.
        container: String,
        /// Its ID.
        id: String,
        /// Its exit code.
        exit_code: i32,
        /// The index of the rule.
        rule: usize,
        /// When.
        at: Moment,
    },
    /// A person, or a program on their behalf.
    Request {
        /// The request.
        id: String,
        /// The requester.
        by: String,
        /// When.
        at: Moment,
    },
    /// The API server's copy of the status says that one is in progress, and its trigger is unknown.
    Inherited {
        /// Its message.
        message: String,
        /// When the agent read it.
        at: Moment,
    },
}

/// A completed restart of all containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Its trigger.
    pub triggers: Vec<Trigger>,
    /// When the last container was removed.
    pub removed: Moment,
}

/// How long a kill waits for the condition to be published.
const ANNOUNCEMENT: Duration = Duration::from_millis(500);

/// The reason of a victim's termination.
pub(crate) const RESTARTING_ALL: &str = "RestartingAllContainers";

/// The text in a waiting message that distinguishes this backoff from that of one container.
pub(crate) const BACKOFF_OF_ALL: &str = "restarting all containers";

/// Begins a restart of all containers if an exit or a request triggers one, and abandons one that must not continue.
pub(crate) fn notice(draft: &mut Draft<'_>) {
    if draft.evidence.durable.ending.is_some() || !may_go_on(draft) {
        abandon(draft);
        return;
    }
    let mut triggers = exits_that_trigger(draft);
    triggers.extend(take_request(draft));
    if triggers.is_empty() {
        return;
    }
    for trigger in &triggers {
        draft.event(
            trigger.container(),
            "RestartAllContainers",
            Severity::Normal,
            format!("{trigger}; restarting all containers"),
        );
    }
    if let RestartAllStage::Terminating(cleanup) = &mut draft.evidence.durable.restart_all.stage {
        cleanup.triggers.extend(triggers);
        return;
    }
    let restarted = draft
        .pod
        .lasting_containers()
        .filter(|container| counts_as_restart(draft, &container.name))
        .map(|container| container.name.clone())
        .collect();
    let unfinished = unfinished_triggers(draft);
    if triggers.iter().any(|trigger| matches!(trigger, Trigger::Request { .. })) {
        unfinished.iter().for_each(|trigger| cut_backoff_short(draft, trigger));
    }
    let triggers = unfinished.into_iter().chain(triggers).collect();
    let cleanup = Cleanup { since: draft.now, triggers, announced: None, restarted };
    draft.evidence.durable.restart_all.stage = RestartAllStage::Terminating(cleanup);
}

/// Does what is missing in the first phase. `true` while nothing else may happen to the pod.
pub(crate) fn clean_up(draft: &mut Draft<'_>) -> bool {
    let RestartAllStage::Terminating(cleanup) = &draft.evidence.durable.restart_all.stage else { return false };
    let cleanup = cleanup.clone();
    let pod = draft.pod;
    let is_lasting =
        |name: Option<&str>| name.is_some_and(|name| pod.container(name).is_some_and(|c| c.role != Role::Ephemeral));
    draft.cancel(|operation| match operation {
        Operation::Stop { .. } | Operation::Remove { .. } => false,
        other => is_lasting(other.container()),
    });
    let announced = draft.observed.acknowledged.covers(cleanup.announced);
    if !announced && draft.now.since(&cleanup.since) < ANNOUNCEMENT {
        draft.wake(cleanup.since.plus(ANNOUNCEMENT));
        return true;
    }
    let instances: Vec<&Instance> =
        draft.observed.containers.iter().filter(|instance| is_lasting(Some(&instance.name))).collect();
    if instances.is_empty() && !draft.launches_in_flight() {
        begin_startup(draft, cleanup);
        return false;
    }
    let is_trigger =
        |instance: &Instance| cleanup.triggers.iter().any(|trigger| trigger.instance() == Some(&instance.id));
    let victims_left = instances.iter().any(|instance| !is_trigger(instance));
    for instance in instances {
        let (container, id) = (instance.name.clone(), instance.id.clone());
        if instance.may_run() {
            let timeout = draft.pod.restart_all_grace;
            let reason = KillReason::RestartAll;
            let known = draft.kill_reason(&container, &id) == Some(reason);
            draft.mark_killed(&container, &id, reason, timeout);
            let message = format!("Stopping container {container}: {}", describe(&cleanup.triggers));
            // A running stop is shortened to the grace period of this restart.
            order::shorten(draft, &id, timeout);
            if draft.start(Operation::Stop { container: container.clone(), id, timeout, reason }) && !known {
                draft.event(Some(&container), "Killing", Severity::Normal, message);
            }
        } else if instance.state == InstanceState::Created && draft.in_flight(&OpKey::Launch(container.clone())) {
            // It may be running by the time a removal arrives. Once the start has ended, the next observation decides.
        } else if !(is_trigger(instance) && victims_left) {
            // The trigger's exited container is removed last: while it exists, it is evidence of the restart.
            draft.start(Operation::Remove { container, id });
        }
    }
    true
}

/// Whether the second phase may start containers. `false` while its backoff runs.
pub(crate) fn release(draft: &mut Draft<'_>) -> bool {
    let RestartAllStage::Starting(startup) = &draft.evidence.durable.restart_all.stage else { return true };
    if startup.released {
        return true;
    }
    let mut opened = Vec::new();
    let mut closed = false;
    for trigger in startup.triggers.clone() {
        let Trigger::Exit { container, id, at, .. } = &trigger else { continue };
        match backoff_of(draft, container, id, *at) {
            BackoffState::Elapsed(backoff) => opened.push((container.clone(), backoff)),
            BackoffState::Waiting { until, .. } => {
                draft.wake(until);
                closed = true;
            }
        }
    }
    if closed {
        return false;
    }
    let restart_all = &mut draft.evidence.durable.restart_all;
    restart_all.backoff.extend(opened);
    if let RestartAllStage::Starting(startup) = &mut restart_all.stage {
        startup.released = true;
    }
    true
}

/// How long the second phase still has to wait for this trigger.
pub(crate) fn backoff_of(draft: &Draft<'_>, container: &str, id: &str, at: Moment) -> BackoffState {
    let image = draft.pod.container(container).map_or("", |c| c.image.as_str());
    let entry = draft.evidence.durable.restart_all.backoff.get(container);
    backoff_state(entry, draft.rules.crash_backoff, image, id, at, draft.now)
}

/// An instance of a container has started.
pub(crate) fn instance_began(stage: &mut RestartAllStage, container: &str) {
    match stage {
        RestartAllStage::Idle { .. } => {}
        // Its launch could not be cancelled; it is killed with the others and counts as one of them.
        RestartAllStage::Terminating(cleanup) => {
            cleanup.restarted.insert(container.to_owned());
        }
        RestartAllStage::Starting(startup) => {
            startup.outstanding.remove(container);
        }
    }
}

/// The sandbox was lost before the second phase was over: every container has to be started again (RALL-39).
pub(crate) fn start_over(draft: &mut Draft<'_>) {
    let pod = draft.pod;
    if let RestartAllStage::Starting(startup) = &mut draft.evidence.durable.restart_all.stage {
        startup.outstanding = pod.lasting_containers().map(|container| container.name.clone()).collect();
    }
}

/// Ends the second phase once every regular container has been started again, or the pod is ending.
pub(crate) fn finish(draft: &mut Draft<'_>) {
    if draft.evidence.durable.ending.is_some() {
        abandon(draft);
    }
    let pod = draft.pod;
    if let RestartAllStage::Starting(startup) = &mut draft.evidence.durable.restart_all.stage
        && !pod.containers.iter().any(|container| startup.outstanding.contains(&container.name))
    {
        let last = Summary { triggers: std::mem::take(&mut startup.triggers), removed: startup.since };
        draft.evidence.durable.restart_all.stage = RestartAllStage::Idle { last: Some(last) };
    }
}

fn abandon(draft: &mut Draft<'_>) {
    let stage = &mut draft.evidence.durable.restart_all.stage;
    if stage.is_under_way() {
        *stage = RestartAllStage::Idle { last: None };
    }
}

/// With the feature gate off, a restart that a rule began is abandoned; one that a person requested continues.
fn may_go_on(draft: &Draft<'_>) -> bool {
    let by_rule = |triggers: &[Trigger]| !triggers.iter().any(|trigger| matches!(trigger, Trigger::Request { .. }));
    draft.rules.restart_all == RestartAllRule::Honoured
        || match &draft.evidence.durable.restart_all.stage {
            RestartAllStage::Idle { .. } => true,
            RestartAllStage::Terminating(cleanup) => !by_rule(&cleanup.triggers),
            RestartAllStage::Starting(_) => true,
        }
}

/// Exits that trigger a restart and that no restart has answered. An exit that matched while the feature gate was off counts as
/// long as its instance is the newest of its container (RALL-29).
fn exits_that_trigger(draft: &Draft<'_>) -> Vec<Trigger> {
    let stage = &draft.evidence.durable.restart_all.stage;
    let answered =
        |exit: &Exit| exit.answered || stage.triggers().iter().any(|trigger| trigger.instance() == Some(&exit.id));
    draft
        .pod
        .lasting_containers()
        .filter_map(|container| {
            let name = &container.name;
            let record = draft.evidence.durable.container(name)?;
            let exit = record.last_exit.as_ref().filter(|exit| exit.is_judged_by_rules() && !answered(exit))?;
            if record.running.is_some() || record.newest.as_ref() != Some(&exit.id) {
                return None;
            }
            match on_exit(container, exit.exit_code, draft.rules.restart_all) {
                Decision::RestartAll { rule } => Some(Trigger::Exit {
                    container: name.clone(),
                    id: exit.id.clone(),
                    exit_code: exit.exit_code,
                    rule,
                    at: exit.finished,
                }),
                Decision::Stay | Decision::Restart { .. } => None,
            }
        })
        .collect()
}

fn take_request(draft: &mut Draft<'_>) -> Option<Trigger> {
    let request = draft.observed.restart_request.as_ref()?;
    if draft.evidence.volatile.restart_request.as_ref() == Some(&request.id) {
        return None;
    }
    draft.evidence.volatile.restart_request = Some(request.id.clone());
    Some(Trigger::Request { id: request.id.clone(), by: request.by.clone(), at: draft.now })
}

/// Whether this restart raises the count of a container now. Not if the count has risen already (`counted_ahead`), and not if the container waits
/// for its next start: that start raises it.
fn counts_as_restart(draft: &Draft<'_>, name: &str) -> bool {
    let record = draft.evidence.durable.container(name);
    let waits = draft
        .evidence
        .durable
        .published
        .as_ref()
        .and_then(|status| status.container(name))
        .is_some_and(|status| matches!(status.state, ContainerState::Waiting(_)));
    let runs_now = record.is_some_and(|record| record.running.is_some());
    let fresh = draft.fresh_exits.iter().any(|fresh| fresh == name);
    record.is_some_and(|record| record.has_lived() && !record.counted_ahead) && (runs_now || fresh || !waits)
}

/// The triggers of a restart that has yet to start them again, which another restart interrupts. They are counted already, and an agent
/// that has lost its ledger knows that by their names in the message of the condition alone (RALL-16).
fn unfinished_triggers(draft: &Draft<'_>) -> Vec<Trigger> {
    let RestartAllStage::Starting(startup) = &draft.evidence.durable.restart_all.stage else { return Vec::new() };
    let outstanding = |trigger: &&Trigger| {
        let text = trigger.to_string();
        startup.outstanding.iter().any(|container| names_trigger(&text, container))
    };
    startup.triggers.iter().filter(outstanding).cloned().collect()
}

/// No backoff for people: the one of the restart that their request interrupts is over, and counts.
fn cut_backoff_short(draft: &mut Draft<'_>, trigger: &Trigger) {
    let Trigger::Exit { container, id, at, .. } = trigger else { return };
    if let BackoffState::Waiting { delay, .. } = backoff_of(draft, container, id, *at) {
        let (advanced, cap) = (draft.now, draft.rules.crash_backoff.cap);
        if let Some(backoff) = draft.evidence.durable.restart_all.backoff.get_mut(container) {
            (backoff.delay, backoff.advanced, backoff.served) = ((delay * 2).min(cap), advanced, id.clone());
        }
    }
}

fn begin_startup(draft: &mut Draft<'_>, cleanup: Cleanup) {
    let why = describe(&cleanup.triggers);
    for container in draft.pod.lasting_containers() {
        let launch = draft.evidence.volatile.launches.entry(container.name.clone()).or_default();
        // The backoff of a pull continues, and is the reason that the container waits.
        if launch.failure.as_ref().is_some_and(|failed| !failed.failure.is_of_pull()) {
            launch.failure = None;
        }
        let Some(record) = draft.evidence.durable.containers.get_mut(&container.name) else { continue };
        record.completed_in = None;
        if let Some(exit) = &mut record.last_exit {
            exit.answered = true;
        }
        if !cleanup.restarted.contains(&container.name) {
            continue;
        }
        record.restart_count = record.restart_count.saturating_add(1);
        record.counted_ahead = true;
        let is_trigger = cleanup.triggers.iter().any(|trigger| trigger.container() == Some(&container.name));
        if let Some(exit) = record.last_exit.as_mut().filter(|_| !is_trigger) {
            exit.reason = RESTARTING_ALL.to_owned();
            exit.message = why.clone();
        }
    }
    draft.evidence.durable.initialized_in = None;
    let outstanding = draft.pod.lasting_containers().map(|container| container.name.clone()).collect();
    draft.evidence.durable.restart_all.stage = RestartAllStage::Starting(Startup {
        since: draft.now,
        triggers: cleanup.triggers,
        released: false,
        outstanding,
    });
}

/// The triggers, in one sentence.
pub(crate) fn describe(triggers: &[Trigger]) -> String {
    triggers.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Whether a text of [`describe`] names this exit as a trigger.
pub(crate) fn names_exit(description: &str, container: &str, exit_code: i32) -> bool {
    description.contains(&format!("container {container} exited with code {exit_code} "))
}

/// Whether a text of [`describe`] names this container as a trigger.
pub(crate) fn names_trigger(description: &str, container: &str) -> bool {
    description.contains(&format!("container {container} exited with code "))
}

// === impl RestartAllStage ===

impl Default for RestartAllStage {
    fn default() -> Self {
        Self::Idle { last: None }
    }
}

impl RestartAllStage {
    /// The triggers of the present or last one.
    pub fn triggers(&self) -> &[Trigger] {
        match self {
            Self::Idle { last } => last.as_ref().map_or(&[], |last| &last.triggers),
            Self::Terminating(cleanup) => &cleanup.triggers,
            Self::Starting(startup) => &startup.triggers,
        }
    }

    /// Visits the times from which waits are counted.
    pub(crate) fn each_moment(&mut self, visit: &mut impl FnMut(&mut Moment)) {
        let triggers = match self {
            Self::Idle { .. } => return,
            Self::Terminating(cleanup) => {
                visit(&mut cleanup.since);
                &mut cleanup.triggers
            }
            Self::Starting(startup) => {
                visit(&mut startup.since);
                &mut startup.triggers
            }
        };
        for trigger in triggers {
            match trigger {
                Trigger::Exit { at, .. } | Trigger::Request { at, .. } | Trigger::Inherited { at, .. } => visit(at),
            }
        }
    }

    /// Whether one is in progress.
    pub fn is_under_way(&self) -> bool {
        !matches!(self, Self::Idle { .. })
    }

    /// Whether this container has to be started, whatever its policy and backoff.
    pub fn owes_start(&self, container: &str) -> bool {
        matches!(self, Self::Starting(startup) if startup.outstanding.contains(container))
    }
}

// === impl Trigger ===

impl Trigger {
    /// The container that triggered it.
    pub fn container(&self) -> Option<&str> {
        match self {
            Self::Exit { container, .. } => Some(container),
            Self::Request { .. } | Self::Inherited { .. } => None,
        }
    }

    /// The instance that triggered it.
    pub fn instance(&self) -> Option<&str> {
        match self {
            Self::Exit { id, .. } => Some(id),
            Self::Request { .. } | Self::Inherited { .. } => None,
        }
    }

    /// When.
    pub fn at(&self) -> Moment {
        match self {
            Self::Exit { at, .. } | Self::Request { at, .. } | Self::Inherited { at, .. } => *at,
        }
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit { container, exit_code, rule, .. } => {
                write!(f, "container {container} exited with code {exit_code} (restart rule {rule})")
            }
            Self::Request { by, .. } => write!(f, "restart requested by {by}"),
            Self::Inherited { message, .. } => f.write_str(message),
        }
    }
}
