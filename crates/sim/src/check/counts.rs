//! `restartCount` is exact.

use std::{collections::BTreeMap, ops::RangeInclusive};

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
    /// Starts that were given up with their agent, by pod and container; and those of them that the agent forgot in a
    /// reboot or with the ledger, so that they look like any failed start.
    given_up: BTreeMap<(String, String), u32>,
    forgotten: BTreeMap<(String, String), u32>,
    /// A ledger that could not be written was left behind: a run may begin with a lower count than the one before. It counts all but
    /// the instances that neither ledger nor runtime had, none that was not, and no count falls within a run.
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
                    let number = runs.iter().position(|run| Some(run.instance.id.as_str()) == id);
                    if let (ContainerState::Running(_), Some(number)) = (&container.state, number)
                        && !possible(&runs[..number], forgotten, view).contains(&count)
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

/// How many of these instances may be counted.
fn possible(runs: &[ContainerRun], forgotten: u32, view: View<'_>) -> RangeInclusive<u32> {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let is_unknown = |id: &str| view.context.may_be_unknown(id) || view.context.was_forgotten(id);
    let unknown = runs.iter().filter(|run| is_unknown(&run.instance.id)).count();
    count(runs.len() - unknown)..=count(runs.len()) + forgotten
}
