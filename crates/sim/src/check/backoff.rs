//! A crashing container waits for its backoff, also if the agent crashes meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use keelet_lifecycle::status::{ConditionType, ContainerState, ContainerStatus};

use super::{Check, Finding, View};
use crate::timeline::{ExitCause, Happening, InstanceRef, Occurrence};

/// The reason of a container that waits to be started by RestartAllContainers.
const RESTARTING_ALL: &str = "RestartingAllContainers";

/// A backoff without an advance for this long starts anew.
const RESET_AFTER: Duration = Duration::from_secs(600);

/// Times are reported in milliseconds, and an exit is dated when it is first seen.
const ROUNDING: Duration = Duration::from_millis(20);

/// Between an exit and the next start lies the delay: nothing the first time, then 10, 20, 40 seconds.
#[derive(Default)]
pub(crate) struct Backoff {
    /// By pod and container.
    containers: BTreeMap<(String, String), Memory>,
    /// Pods whose containers are all being restarted.
    restarting: BTreeSet<String>,
    /// When the node last rebooted.
    rebooted: Option<Duration>,
    /// Instances made before a run that may have forgotten something. That run starts them as it finds them, and does not
    /// know which backoff their starts have waited for.
    inherited: BTreeSet<String>,
}

#[derive(Default)]
struct Memory {
    /// The delay before the next start, and when it was last lengthened.
    entry: Option<(Duration, Duration)>,
    /// When the newest instance ended, and the one before.
    ended: Option<Duration>,
    ended_before: Option<Duration>,
    /// The next start does not have to wait: the end is not known, or all containers restart.
    free: bool,
    /// The image that the delay is for.
    image: Option<String>,
    /// The image that the spec has, if it was changed.
    wanted: Option<String>,
    /// An agent was there while the spec had another image than the delay is for.
    seen_another: bool,
}

// === impl Backoff ===

impl Check for Backoff {
    fn name(&self) -> &'static str {
        "backoff"
    }

    fn see(&mut self, entry: &Occurrence, view: View<'_>) -> Result<(), Finding> {
        match &entry.what {
            Happening::Exited { instance, cause, .. } => {
                let memory = self.of(instance);
                memory.ended_before = memory.ended.replace(entry.at);
                // What went down with the node did not crash: its exit status is unknown.
                memory.free = *cause == ExitCause::Reboot;
            }
            Happening::Removed { instance, asked: false } => self.of(instance).free = true,
            Happening::Published { pod, status, .. } | Happening::Undelivered { pod, status } => {
                if status.is_true(&ConditionType::AllContainersRestarting) {
                    self.restarting.insert(pod.clone());
                }
                if self.restarting.contains(pod) {
                    for ((of, _), memory) in &mut self.containers {
                        memory.free |= of == pod;
                    }
                }
                if !status.is_true(&ConditionType::AllContainersRestarting) {
                    self.restarting.remove(pod);
                }
                for container in status.all_containers().filter(|container| waits_for_restart(container)) {
                    self.containers.entry((pod.clone(), container.name.clone())).or_default().free = true;
                }
            }
            Happening::ImageWanted { pod, container, image } => {
                let memory = self.containers.entry((pod.clone(), container.clone())).or_default();
                memory.wanted = Some(image.clone());
                memory.seen_another |= view.context.run.is_some() && memory.wants_another();
            }
            Happening::AgentStarts { .. } => {
                for memory in self.containers.values_mut() {
                    memory.seen_another |= memory.wants_another();
                }
                if view.context.run.is_some_and(|run| run.forgetful) {
                    self.forget(view);
                }
            }
            Happening::Reboot => self.rebooted = Some(entry.at),
            Happening::Started(instance) => return self.started(entry.at, instance, view),
            _ => {}
        }
        Ok(())
    }
}

impl Backoff {
    /// A run begins that may have forgotten something.
    fn forget(&mut self, view: View<'_>) {
        for ((pod, name), memory) in &mut self.containers {
            memory.entry = None;
            // Neither the ledger nor the runtime says that it ever ran.
            let left = |instance: &InstanceRef| instance.pod == *pod && instance.name == *name;
            if !view.node.containers.values().any(|container| left(&container.instance)) {
                (memory.ended, memory.ended_before) = (None, None);
            }
        }
        let made = view.node.containers.values().filter(|container| !container.is_running());
        self.inherited.extend(made.map(|container| container.instance.id.clone()));
    }

    fn of(&mut self, instance: &InstanceRef) -> &mut Memory {
        self.containers.entry((instance.pod.clone(), instance.name.clone())).or_default()
    }

    fn started(&mut self, at: Duration, instance: &InstanceRef, view: View<'_>) -> Result<(), Finding> {
        let limits = view.context.rules.crash_backoff;
        // The spec may have another one by now.
        let image = view.node.containers.get(&instance.id).map(|container| container.image.clone());
        let rebooted = self.rebooted;
        let inherited = self.inherited.remove(&instance.id);
        let memory = self.of(instance);
        // Only the wall clock measures how long ago something was before a reboot, so setting the clock changes that.
        if memory.entry.is_some_and(|(_, advanced)| rebooted.min(view.context.wall_set) >= Some(advanced)) {
            memory.entry = None;
        }
        // Another image owes nothing to the failures of the one before, also if the spec has the first one again (CLU-3).
        if memory.image != image || memory.seen_another {
            memory.image = image;
            memory.entry = None;
        }
        memory.seen_another = memory.wants_another();
        let Some(ended) = memory.ended else { return Ok(()) };
        if std::mem::take(&mut memory.free) || inherited {
            return Ok(());
        }
        let known = memory.entry.filter(|(_, advanced)| {
            let since = memory.ended_before.map_or(*advanced, |before| before.min(*advanced));
            ended.saturating_sub(since) <= RESET_AFTER
        });
        let Some((delay, _)) = known else {
            memory.entry = Some((limits.initial, at));
            return Ok(());
        };
        memory.entry = Some(((delay * 2).min(limits.cap), at));
        // Setting the clock between an exit and its discovery changes when it was.
        let clock_set = view.context.wall_set.is_some_and(|set| set >= ended);
        if at + ROUNDING < ended + delay && !clock_set {
            return Err(Finding(format!(
                "{} is started {:?} after the last exit; its backoff is {delay:?}",
                instance.id,
                at - ended
            )));
        }
        Ok(())
    }
}

// === impl Memory ===

impl Memory {
    fn wants_another(&self) -> bool {
        self.wanted.is_some() && self.image.is_some() && self.wanted != self.image
    }
}

/// Whether a container waits for the start that a restart of all containers owes it.
fn waits_for_restart(container: &ContainerStatus) -> bool {
    matches!(&container.state, ContainerState::Waiting(waiting) if waiting.reason == RESTARTING_ALL)
}
