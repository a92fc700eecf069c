//! `restartCount` is exact.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use keelet_lifecycle::status::ContainerState;

use super::{Check, View, bare};
use crate::{
    node::ContainerRun,
    timeline::{Entry, Happening, Memory},
};

/// A container that runs was restarted once for each instance it had before; the count never falls, and never counts
/// instances that were not.
#[derive(Default)]
pub(crate) struct Counts {
    /// The count last published and the run that did so, by pod and container.
    published: BTreeMap<(String, String), (u32, u32)>,
    /// Instances that some status showed.
    shown: BTreeSet<String>,
    /// Instances that vanished without a request to remove them.
    vanished: BTreeSet<String>,
    /// Starts that were given up with their agent, by pod and container; and those of them that the agent forgot in a
    /// reboot or with the ledger, so that they look like any failed start.
    given_up: BTreeMap<(String, String), u32>,
    forgotten: BTreeMap<(String, String), u32>,
    /// A ledger that could not be written was left behind: instances that it does not know are not counted, so a run
    /// may begin with a lower count than the one before. It never counts what was not, and no count falls within a run.
    excused: bool,
}

// === impl Counts ===

impl Check for Counts {
    fn name(&self) -> &'static str {
        "counts"
    }

    fn see(&mut self, entry: &Entry, view: View<'_>) -> Result<(), String> {
        self.excused |= view.context.run.is_some_and(|run| run.behind);
        match &entry.what {
            Happening::GivenUp(instance) => {
                let key = (instance.pod.clone(), instance.name.clone());
                // A run without a ledger does not know that the start was that of another agent.
                if view.context.run.is_some_and(|run| run.forgetful) {
                    *self.forgotten.entry(key.clone()).or_default() += 1;
                }
                *self.given_up.entry(key).or_default() += 1;
            }
            Happening::Reboot | Happening::AgentStarts { memory: Memory::Wiped, .. } => {
                self.forgotten = self.given_up.clone();
            }
            Happening::Removed { instance, asked: false } => {
                self.vanished.insert(instance.id.clone());
            }
            Happening::PodGone { pod } => self.published.retain(|(of, _), _| of != pod),
            Happening::Published { pod, run, status, .. } => {
                for container in status.all_containers() {
                    let (name, count) = (&container.name, container.restart_count);
                    let runs = view.node.container_runs(pod, name);
                    let began = u32::try_from(runs.len()).unwrap_or(u32::MAX);
                    let forgotten = self.forgotten.get(&(pod.clone(), name.clone())).copied().unwrap_or(0);
                    if count > began + forgotten {
                        return Err(format!("{name} has a restart count of {count} after {began} starts"));
                    }
                    let before = self.published.insert((pod.clone(), name.clone()), (*run, count));
                    let (last_run, before) = before.unwrap_or((*run, 0));
                    if count < before && !(self.excused && last_run != *run) {
                        return Err(format!("the restart count of {name} falls from {before} to {count}"));
                    }
                    let id = container.container_id.as_deref().map(bare);
                    self.shown.extend(id.map(str::to_owned));
                    let number = runs.iter().position(|run| Some(run.instance.id.as_str()) == id);
                    if let (ContainerState::Running(_), Some(number), false) = (&container.state, number, self.excused)
                        && !self.possible(&runs[..number], forgotten).contains(&count)
                    {
                        return Err(format!(
                            "{} is the start number {} of {name}, and its restart count is {count}",
                            runs[number].instance.id,
                            number + 1
                        ));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Counts {
    /// How many of these instances may be counted. The agent may not know one that vanished before any status showed
    /// it.
    fn possible(&self, runs: &[ContainerRun], forgotten: u32) -> RangeInclusive<u32> {
        let nobody_knows = |id: &String| self.vanished.contains(id) && !self.shown.contains(id);
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let unknown = runs.iter().filter(|run| nobody_knows(&run.instance.id)).count();
        count(runs.len() - unknown)..=count(runs.len()) + forgotten
    }
}
