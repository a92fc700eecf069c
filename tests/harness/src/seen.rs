//! The observed state of a pod: in the ledger, and in the runtime.

use std::collections::BTreeMap;

use keelet_lifecycle::{
    journal::What,
    status::{ConditionType, ContainerState, ContainerStatus, Phase, PodStatus, Terminated, Truth},
};

use crate::{Container, Sandbox};

/// A pod's state in the ledger and in the runtime.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its UID.
    pub uid: String,
    /// Its status.
    pub status: PodStatus,
    /// How many different statuses it has had.
    pub version: u64,
    /// Its journal, the oldest entry first.
    pub journal: Vec<What>,
    /// Its sandboxes.
    pub sandboxes: Vec<Sandbox>,
    /// Its containers, exited ones included.
    pub containers: Vec<Container>,
}

// === impl Seen ===

/// The status.
impl Seen {
    /// Whether the pod is Ready.
    pub fn is_ready(&self) -> bool {
        self.status.is_true(&ConditionType::Ready)
    }

    /// The status of a container.
    #[track_caller]
    pub fn container(&self, name: &str) -> &ContainerStatus {
        self.status.container(name).unwrap_or_else(|| panic!("no container {name}: {:#?}", self.status))
    }

    /// Whether a container has started up and is ready.
    pub fn bits(&self, name: &str) -> (bool, bool) {
        self.status.container(name).map_or((false, false), |found| (found.started == Some(true), found.ready))
    }

    /// Whether a container runs, according to the status.
    pub fn runs(&self, name: &str) -> bool {
        self.running_id(name).is_some()
    }

    /// The ID of the running instance, according to the status.
    pub fn running_id(&self, container: &str) -> Option<&str> {
        let status = self.status.container(container)?;
        let id = bare(status.container_id.as_deref()?);
        matches!(status.state, ContainerState::Running(_)).then_some(id)
    }

    /// The restart count of a container, according to the status.
    pub fn restarts(&self, container: &str) -> Option<u32> {
        self.status.container(container).map(|status| status.restart_count)
    }

    /// The restart counts of several.
    pub fn counts<const N: usize>(&self, names: [&str; N]) -> [u32; N] {
        names.map(|name| self.restarts(name).unwrap_or_default())
    }

    /// How the previous instance of a container ended.
    #[track_caller]
    pub fn last(&self, name: &str) -> &Terminated {
        let last = self.container(name).last_state.terminated.as_ref();
        last.unwrap_or_else(|| panic!("{name} has no history: {:#?}", self.status))
    }

    /// Exit code and reason of the previous instance of a container.
    #[track_caller]
    pub fn history(&self, name: &str) -> (i32, &str) {
        let last = self.last(name);
        (last.exit_code, last.reason.as_str())
    }

    /// How a container ended, if its state is terminated.
    pub fn ended(&self, name: &str) -> Option<&Terminated> {
        match &self.status.container(name)?.state {
            ContainerState::Terminated(ended) => Some(ended),
            _ => None,
        }
    }

    /// The waiting reason of a container, if it is waiting.
    pub fn waits_for(&self, name: &str) -> Option<&str> {
        match &self.status.container(name)?.state {
            ContainerState::Waiting(waiting) => Some(&waiting.reason),
            _ => None,
        }
    }
}

/// The journal.
impl Seen {
    /// Whether the pod has terminated and none of its containers runs.
    pub fn is_over(&self) -> bool {
        self.status.phase.is_terminal() && self.running().is_empty()
    }

    /// The phases so far.
    pub fn phases(&self) -> Vec<Phase> {
        self.noted(|what| match what {
            What::Phase { phase } => Some(*phase),
            _ => None,
        })
    }

    /// Whether the condition held, over time.
    pub fn transitions(&self, of: &ConditionType) -> Vec<bool> {
        self.noted(|what| match what {
            What::Condition { kind, status, .. } if kind == of => Some(*status == Truth::True),
            _ => None,
        })
    }

    /// Whether a container was ready, over time.
    pub fn readiness(&self, name: &str) -> Vec<bool> {
        self.noted(|what| match what {
            What::Ready { container, value } if container == name => Some(*value),
            _ => None,
        })
    }

    /// Whatever is made of the notes, the oldest first.
    pub fn noted<T>(&self, of: impl Fn(&What) -> Option<T>) -> Vec<T> {
        self.journal.iter().filter_map(of).collect()
    }

    /// The first position in the journal that matches.
    #[track_caller]
    pub fn place_of(&self, what: &str, is: impl Fn(&What) -> bool) -> usize {
        self.journal.iter().position(is).unwrap_or_else(|| panic!("{what} is not in {:#?}", self.journal))
    }
}

/// The runtime.
impl Seen {
    /// The one sandbox that is ready.
    #[track_caller]
    pub fn sandbox(&self) -> &Sandbox {
        let ready: Vec<_> = self.sandboxes.iter().filter(|sandbox| sandbox.ready).collect();
        let [sandbox] = ready[..] else { panic!("not one ready sandbox: {:?}", self.sandboxes) };
        sandbox
    }

    /// Containers that run in the runtime: the ID by name.
    pub fn running(&self) -> BTreeMap<&str, &str> {
        let running = self.containers.iter().filter(|found| found.running);
        running.map(|found| (found.name.as_str(), found.id.as_str())).collect()
    }

    /// The PID of a running container.
    #[track_caller]
    pub fn pid(&self, name: &str) -> u32 {
        let pid = self.containers.iter().find_map(|found| found.pid.filter(|_| found.name == name));
        pid.unwrap_or_else(|| panic!("no process of {name}: {:#?}", self.containers))
    }

    /// Whether status and runtime agree: on running containers, their attempts and the address.
    pub fn agrees(&self) -> Result<(), String> {
        let ready: Vec<_> = self.sandboxes.iter().filter(|sandbox| sandbox.ready).collect();
        let [sandbox] = ready[..] else {
            return Err(format!("there is not one ready sandbox: {:?}", self.sandboxes));
        };
        let address = self.status.pod_ip.as_deref().unwrap_or_default();
        if address != sandbox.address {
            return Err(format!("the status has address {address:?}, the runtime {:?}", sandbox.address));
        }
        let reported: BTreeMap<&str, &str> = self
            .status
            .all_containers()
            .filter_map(|status| Some((status.name.as_str(), self.running_id(&status.name)?)))
            .collect();
        let instances = self.containers.iter().filter(|found| found.running).count();
        if reported != self.running() || reported.len() != instances {
            return Err(format!("the status says that {reported:?} run, the runtime has {:#?}", self.containers));
        }
        for found in &self.containers {
            let (name, attempt) = (found.name.as_str(), Some(found.attempt));
            if reported.get(name) == Some(&found.id.as_str()) && attempt != self.restarts(name) {
                return Err(format!("{name} is attempt {attempt:?} in the runtime: {:#?}", self.status));
            }
        }
        Ok(())
    }
}

/// A container ID without the runtime's name before it.
fn bare(id: &str) -> &str {
    id.split_once("://").map_or(id, |(_, bare)| bare)
}
