//! `restartCount` is exact.

use std::collections::BTreeMap;

use keelet_lifecycle::status::ContainerState;

use super::{Check, View, bare};
use crate::timeline::{Entry, Happening};

/// A container that runs was restarted once for each life it had before; the count never falls, and never counts lives
/// that were not.
#[derive(Default)]
pub(crate) struct Counts {
    /// The count last published, by pod and container.
    published: BTreeMap<(String, String), u32>,
    /// A ledger that could not be written was left behind: lives that nobody remembers are not counted.
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
            Happening::PodGone { pod } => self.published.retain(|(of, _), _| of != pod),
            Happening::Published { pod, status, .. } => {
                for container in status.all_containers() {
                    let (name, count) = (&container.name, container.restart_count);
                    let lives = view.node.lives(pod, name);
                    let began = u32::try_from(lives.len()).unwrap_or(u32::MAX);
                    if count > began {
                        return Err(format!("{name} has a restart count of {count} after {began} starts"));
                    }
                    let before = self.published.insert((pod.clone(), name.clone()), count).unwrap_or(0);
                    if count < before {
                        return Err(format!("the restart count of {name} falls from {before} to {count}"));
                    }
                    let id = container.container_id.as_deref().map(bare);
                    let number = lives.iter().position(|life| Some(life.instance.id.as_str()) == id);
                    if let (ContainerState::Running(_), Some(number)) = (&container.state, number)
                        && u32::try_from(number) != Ok(count)
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
