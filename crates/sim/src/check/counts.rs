//! `restartCount` is exact.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc, time::Duration};

use keelet_lifecycle::status::ContainerState;

use super::{Check, Finding, View, bare};
use crate::{
    node::ContainerRun,
    timeline::{Happening, InstanceRef, Occurrence},
};

/// A container that runs was restarted once for each instance it had before; the count never falls, and never counts
/// instances that were not.
#[derive(Default)]
pub(crate) struct Counts {
    /// The count last published and the run that did so, by pod and container.
    published: BTreeMap<(String, String), (u32, u32)>,
    /// When instances were created, by ID: the launch was recorded just before, or the ledger refused it.
    created: BTreeMap<String, Duration>,
    /// Starts that were given up with their agent.
    given_up: Vec<GivenUp>,
    /// A ledger that could not be written was left behind: a run may begin with a lower count than the one before. It counts all but
    /// the instances that neither ledger nor runtime had, none that was not, and no count falls within a run.
    excused: bool,
}

/// A start that was given up with its agent.
struct GivenUp {
    instance: Arc<InstanceRef>,
    created: Duration,
    /// The agent forgot in a reboot or with the ledger whose start it was, so that it looks like any failed start, and counts.
    forgotten: bool,
}

// === impl Counts ===

impl Check for Counts {
    fn name(&self) -> &'static str {
        "counts"
    }

    fn see(&mut self, entry: &Occurrence, view: View<'_>) -> Result<(), Finding> {
        self.excused |= view.context.run.is_some_and(|run| run.behind);
        match &entry.what {
            Happening::Created(instance) => {
                self.created.insert(instance.id.clone(), entry.at);
            }
            Happening::GivenUp(instance) => {
                let created = self.created.get(&instance.id).copied().unwrap_or_default();
                // A run whose ledger lacks the launch does not know that the start was that of another agent.
                let forgotten = view.context.run.is_some_and(|run| run.may_lack(created));
                self.given_up.push(GivenUp { instance: Arc::clone(instance), created, forgotten });
            }
            Happening::Reboot => self.given_up.iter_mut().for_each(|start| start.forgotten = true),
            Happening::AgentStarts { .. } => {
                for start in &mut self.given_up {
                    start.forgotten |= view.context.run.is_some_and(|run| run.may_lack(start.created));
                }
            }
            Happening::PodGone { pod } => self.published.retain(|(of, _), _| of != pod),
            Happening::Published { pod, run, status, .. } => {
                for container in status.all_containers() {
                    let (name, count) = (&container.name, container.restart_count);
                    let runs = view.node.container_runs(pod, name);
                    let began = u32::try_from(runs.len()).unwrap_or(u32::MAX);
                    let forgotten = self.forgotten(pod, name);
                    if count > began + forgotten {
                        return Err(Finding(format!("{name} has a restart count of {count} after {began} starts")));
                    }
                    let before = self.published.insert((pod.clone(), name.clone()), (*run, count));
                    let (last_run, before) = before.unwrap_or((*run, 0));
                    if count < before && !(self.excused && last_run != *run) {
                        return Err(Finding(format!("the restart count of {name} falls from {before} to {count}")));
                    }
                    let id = container.container_id.as_deref().map(bare);
                    let number = runs.iter().position(|run| Some(run.instance.id.as_str()) == id);
                    if let (ContainerState::Running(_), Some(number)) = (&container.state, number)
                        && !possible(&runs[..number], forgotten, view).contains(&count)
                    {
                        return Err(Finding(format!(
                            "{} is the start number {} of {name}, and its restart count is {count}",
                            runs[number].instance.id,
                            number + 1
                        )));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Counts {
    /// How many starts of a container were given up, and count.
    fn forgotten(&self, pod: &str, name: &str) -> u32 {
        let of_it = |start: &&GivenUp| start.forgotten && start.instance.pod == pod && start.instance.name == name;
        u32::try_from(self.given_up.iter().filter(of_it).count()).unwrap_or(u32::MAX)
    }
}

/// How many of these instances may be counted.
fn possible(runs: &[ContainerRun], forgotten: u32, view: View<'_>) -> RangeInclusive<u32> {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let is_unknown = |id: &str| view.context.may_be_unknown(id) || view.context.was_forgotten(id);
    let unknown = runs.iter().filter(|run| is_unknown(&run.instance.id)).count();
    count(runs.len() - unknown)..=count(runs.len()) + forgotten
}
