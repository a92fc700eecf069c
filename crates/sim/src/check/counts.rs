//! `restartCount` is exact.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use keelet_lifecycle::status::ContainerState;

use super::{Check, View, bare};
use crate::{
    node::Life,
    timeline::{Entry, Happening, Memory},
};

/// A container that runs was restarted once for each life it had before; the count never falls, and never counts lives
/// that were not.
#[derive(Default)]
pub(crate) struct Counts {
    /// The count last published, by pod and container.
    published: BTreeMap<(String, String), u32>,
    /// Lives that some status showed.
    shown: BTreeSet<String>,
    /// Lives that vanished without a request to remove them.
    vanished: BTreeSet<String>,
    /// Starts that were given up with their agent, by pod and container; and those of them that the agent forgot in a
    /// reboot or with the ledger, so that they look like any failed start.
    given_up: BTreeMap<(String, String), u32>,
    forgotten: BTreeMap<(String, String), u32>,
    /// A ledger that could not be written was left behind: lives that the agent does not remember are not counted.
    excused: bool,
}

// === impl Counts ===

impl Check for Counts {
    fn name(&self) -> &'static str {
        "counts"
    }

    fn see(&mut self, entry: &Entry, view: View<'_>) -> Result<(), String> {
        self.excused |= view.context.run.is_some_and(|run| run.behind);
        if self.excused {
            return Ok(());
        }
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
            Happening::Published { pod, status, .. } => {
                for container in status.all_containers() {
                    let (name, count) = (&container.name, container.restart_count);
                    let lives = view.node.lives(pod, name);
                    let began = u32::try_from(lives.len()).unwrap_or(u32::MAX);
                    let forgotten = self.forgotten.get(&(pod.clone(), name.clone())).copied().unwrap_or(0);
                    if count > began + forgotten {
                        return Err(format!("{name} has a restart count of {count} after {began} starts"));
                    }
                    let before = self.published.insert((pod.clone(), name.clone()), count).unwrap_or(0);
                    if count < before {
                        return Err(format!("the restart count of {name} falls from {before} to {count}"));
                    }
                    let id = container.container_id.as_deref().map(bare);
                    self.shown.extend(id.map(str::to_owned));
                    let number = lives.iter().position(|life| Some(life.instance.id.as_str()) == id);
                    if let (ContainerState::Running(_), Some(number)) = (&container.state, number)
                        && !self.possible(&lives[..number], forgotten).contains(&count)
                    {
                        return Err(format!(
                            "{} is the start number {} of {name}, and its restart count is {count}",
                            lives[number].instance.id,
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
    /// How many of these lives may be counted. The agent may not know one that vanished before any status showed it.
    fn possible(&self, lives: &[Life], forgotten: u32) -> RangeInclusive<u32> {
        let nobody_knows = |id: &String| self.vanished.contains(id) && !self.shown.contains(id);
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let unknown = lives.iter().filter(|life| nobody_knows(&life.instance.id)).count();
        count(lives.len() - unknown)..=count(lives.len()) + forgotten
    }
}
