//! Observing a world. Where a pod is not named, the first one is meant.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
    time::Duration,
};

use keelet_agent::{
    Agent,
    board::OverdueProbe,
    node::{self, DiskPressure},
};
use keelet_lifecycle::{
    Moment,
    status::{Condition, ConditionType, ContainerState, ContainerStatus, PodStatus, Truth},
};
use keelet_pod::{Pod, ProbeKind};

use super::World;
use crate::{
    check::Violation,
    node::ContainerRun,
    timeline::{Attempt, Timeline},
};

// === impl World ===

impl World {
    /// The newest status that others see of the pod.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn status(&self) -> Arc<PodStatus> {
        self.status_of(&self.first())
    }

    /// The newest status that others see of that pod.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn status_of(&self, pod: &str) -> Arc<PodStatus> {
        self.find_status(pod).unwrap_or_else(|| panic!("no status of {pod}\n{}", self.timeline_text()))
    }

    /// The newest status of that pod on the agent's own board.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn board(&self, pod: &str) -> PodStatus {
        let uid = self.uid(pod);
        let shown = self.with_agent(|agent| agent.board().statuses().get(&uid).map(|shown| shown.status.clone()));
        shown.flatten().unwrap_or_else(|| panic!("{pod} is not on the board"))
    }

    /// The newest status that others see of that pod, if any.
    pub fn find_status(&self, pod: &str) -> Option<Arc<PodStatus>> {
        let uid = self.uid(pod);
        self.inside(|state| state.api_statuses.statuses.get(&uid).map(|(_, status)| Arc::clone(status)))
    }

    /// Every status that was published of the pod, oldest first, with the time.
    pub fn statuses(&self) -> Vec<(Duration, Arc<PodStatus>)> {
        let uid = self.uid(&self.first());
        self.inside(|state| state.timeline.statuses(&uid).map(|(at, status)| (at, Arc::clone(status))).collect())
    }

    /// The status of a container: `name`, or `pod/name`.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn container(&self, name: &str) -> ContainerStatus {
        let (pod, container) = self.split(name);
        let status = self.status_of(&pod);
        status.container(&container).unwrap_or_else(|| panic!("no status of container {name}")).clone()
    }

    /// A condition of the pod.
    ///
    /// # Panics
    ///
    /// If there is none of that type.
    pub fn condition(&self, kind: &ConditionType) -> Condition {
        self.status().condition(kind).unwrap_or_else(|| panic!("no condition {kind:?}")).clone()
    }

    /// Whether a condition of the pod is True.
    pub fn holds(&self, kind: ConditionType) -> bool {
        self.find_status(&self.first())
            .is_some_and(|status| status.condition(&kind).is_some_and(|condition| condition.status == Truth::True))
    }

    /// What a container waits for, if it waits.
    pub fn waiting_reason(&self, name: &str) -> Option<String> {
        match self.container(name).state {
            ContainerState::Waiting(waiting) => Some(waiting.reason),
            ContainerState::Running(_) | ContainerState::Terminated(_) => None,
        }
    }

    /// How often a container was started, as the node counts it.
    pub fn starts(&self, name: &str) -> usize {
        self.container_runs(name).len()
    }

    /// The instances of a container, oldest first, as the node counts them.
    pub fn container_runs(&self, name: &str) -> Vec<ContainerRun> {
        let (pod, container) = self.split(name);
        let uid = self.uid(&pod);
        self.inside(|state| state.node.container_runs(&uid, &container).to_vec())
    }

    /// The ID of the running instance of a container, without a scheme.
    pub fn running(&self, name: &str) -> Option<String> {
        let (pod, container) = self.split(name);
        let uid = self.uid(&pod);
        self.inside(|state| state.node.running(&uid, &container).map(|instance| instance.id.clone()))
    }

    /// What is mounted into the running instance of a container: the path on the node, by the path in the container.
    pub fn mounts(&self, name: &str) -> BTreeMap<String, String> {
        let Some(id) = self.running(name) else { return BTreeMap::new() };
        self.inside(|state| state.node.containers.get(&id).map(|found| found.mounts.clone()).unwrap_or_default())
    }

    /// The ID of the pod's ready sandbox.
    pub fn sandbox(&self) -> Option<String> {
        let uid = self.uid(&self.first());
        self.inside(|state| state.node.sandbox(&uid).map(str::to_owned))
    }

    /// Whether anything of that pod is left on the node.
    pub fn has_remains(&self, pod: &str) -> bool {
        let uid = self.uid(pod);
        self.inside(|state| state.node.has_pod(&uid))
    }

    /// Probe attempts of that kind that reached a container since then, with the time.
    pub fn probes(&self, name: &str, kind: ProbeKind, since: Duration) -> Vec<(Duration, Attempt)> {
        let (pod, container) = self.split(name);
        let uid = self.uid(&pod);
        let is_it = |attempt: &Attempt| attempt.pod == uid && attempt.container == container && attempt.may_be(kind);
        self.inside(|state| {
            let found = state.timeline.probes().filter(|(at, attempt)| *at >= since && is_it(attempt));
            found.map(|(at, attempt)| (at, attempt.clone())).collect()
        })
    }

    /// Whether the agent emitted an event of that reason whose message contains the text.
    pub fn saw_event(&self, reason: &str, text: &str) -> bool {
        self.inside(|state| {
            state.timeline.events().any(|(_, record)| record.reason == reason && record.message.contains(text))
        })
    }

    /// The probes that the agent says it has not managed to ask for too long: `pod/container kind`.
    pub fn overdue_probes(&self) -> Vec<String> {
        let agent = self.run.as_ref().map(|run| run.agent.lock().unwrap_or_else(PoisonError::into_inner));
        let agent = agent.as_ref().and_then(|agent| agent.as_ref());
        let overdue = agent.map(|agent| agent.board().overdue_probes());
        let name = |(pod, probe): (Arc<Pod>, OverdueProbe)| format!("{}/{} {}", pod.name, probe.container, probe.kind);
        overdue.unwrap_or_default().into_iter().map(name).collect()
    }

    /// Calls made to the disk so far, by name.
    pub fn disk_calls(&self) -> BTreeMap<&'static str, u64> {
        self.inside(|state| state.medium.calls.clone())
    }

    /// What was done to the directories of pods so far, and how often: `prepare POD`, `clean up POD`.
    pub fn host_calls(&self) -> BTreeMap<String, u32> {
        self.inside(|state| state.directories.clone())
    }

    /// The moment by the agent's clock.
    pub fn now(&self) -> Moment {
        self.inside(|state| state.now())
    }

    /// What happened so far.
    pub fn timeline(&self) -> Timeline {
        self.inside(|state| state.timeline.clone())
    }

    /// What happened so far, one line for each thing.
    pub fn timeline_text(&self) -> String {
        self.inside(|state| state.timeline.to_string())
    }

    /// Promises that were broken so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.inside(|state| state.violations.clone())
    }

    /// That pod's spec.
    ///
    /// # Panics
    ///
    /// If there never was one of that name.
    pub fn spec(&self, pod: &str) -> Arc<Pod> {
        let uid = self.uid(pod);
        self.inside(|state| state.pods.get(&uid).cloned()).unwrap_or_else(|| panic!("no pod {pod}"))
    }

    /// Whether the spec of the first pod has a container of that name.
    pub(crate) fn has_container(&self, name: &str) -> bool {
        self.spec(&self.first()).container(name).is_some()
    }

    /// Whether the agent says that a disk of the node is nearly full, and why.
    pub fn disk_pressure(&self) -> Option<DiskPressure> {
        self.with_agent(Agent::disk_pressure)
    }

    /// A condition of the node, as the agent last saw it.
    pub fn node_condition(&self, kind: &str) -> Option<node::Condition> {
        let conditions = self.with_agent(Agent::node_conditions)?;
        conditions.into_iter().find(|condition| condition.kind == kind)
    }

    /// Runs of the agent so far.
    pub fn runs(&self) -> u32 {
        self.runs
    }

    /// The name of the first pod.
    pub(super) fn first(&self) -> String {
        self.names.first().map(|(name, _)| name.clone()).unwrap_or_default()
    }

    pub(super) fn uid(&self, pod: &str) -> String {
        let known = self.names.iter().rev().find(|(name, _)| name == pod);
        known.map_or_else(|| panic!("there is no pod {pod}"), |(_, uid)| uid.clone())
    }

    pub(super) fn split(&self, name: &str) -> (String, String) {
        match name.split_once('/') {
            Some((pod, container)) => (pod.to_owned(), container.to_owned()),
            None => (self.first(), name.to_owned()),
        }
    }
}
