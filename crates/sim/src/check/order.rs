//! Nothing is started out of order, and nothing twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use keelet_lifecycle::{restart::RestartAllRule, status::ConditionType};
use keelet_pod::{Pod, ProbeKind, Role};

use super::{Check, Finding, View, restart_all::is_requested};
use crate::{
    faults::CallKind,
    node::Sandbox,
    sim::Mode,
    timeline::{Happening, InstanceRef, Occurrence},
};

/// From a removal to the record of it: an observation of the runtime, which may hang, and a write.
const AFTER_REMOVAL: Duration = Duration::from_secs(25);

/// What runs for longer than this before an agent without evidence starts has started.
const LONG: Duration = Duration::from_secs(10);

/// At most one instance of a name runs; an ordinary init container has succeeded, and a sidecar has started, before
/// whatever comes after it; nothing is started in a pod that has ended.
#[derive(Default)]
pub(crate) struct Order {
    /// Init containers that are over, by sandbox.
    over: BTreeMap<String, BTreeSet<String>>,
    /// Those that were over at any time, also if all containers have been restarted since.
    ever_over: BTreeMap<String, BTreeSet<String>>,
    /// When those that are not over any more were removed to be restarted, by sandbox and name.
    removed: BTreeMap<(String, String), Duration>,
    /// Pods whose containers are being removed to be restarted, by rules alone.
    restarting: BTreeSet<String>,
    /// Pods that have a published status.
    published: BTreeSet<String>,
    /// Pods whose published phase is final, since when.
    ended: BTreeMap<String, Duration>,
    /// Instances created before their pod ended.
    created: BTreeSet<String>,
    /// Instances whose start was asked for in their turn. A restart of all containers may begin before a slow runtime has
    /// started them; it kills them then.
    asked: BTreeSet<String>,
}

// === impl Order ===

impl Check for Order {
    fn name(&self) -> &'static str {
        "order"
    }

    fn see(&mut self, entry: &Occurrence, view: View<'_>) -> Result<(), Finding> {
        match &entry.what {
            Happening::Created(instance) => {
                if !self.ended.contains_key(&instance.pod) {
                    self.created.insert(instance.id.clone());
                }
                Ok(())
            }
            Happening::Call { kind: CallKind::StartContainer, subject, .. } => {
                let in_order = view.node.containers.get(subject).is_some_and(|container| {
                    let instance = &container.instance;
                    view.pods.get(&instance.pod).is_some_and(|pod| self.in_order(pod, instance).is_ok())
                });
                if in_order {
                    self.asked.insert(subject.clone());
                }
                Ok(())
            }
            Happening::Started(instance) => self.started(instance, view),
            // A ledger that could not be written does not record that all containers were removed, so init counts as done.
            Happening::AgentStarts { .. } if view.context.run.is_some_and(|run| run.behind) => {
                self.restore_over(view);
                self.take_for_started(entry.at, view);
                // Without an API server, and with no container left, nothing says that the pod has ended since.
                if view.context.mode == Mode::Standalone {
                    let is_left = |pod: &String| view.node.containers.values().any(|left| left.instance.pod == *pod);
                    let lacks = |at: Duration| view.context.run.is_some_and(|run| run.may_lack(at));
                    self.ended.retain(|pod, at| is_left(pod) || !lacks(*at));
                }
                Ok(())
            }
            // With the feature gate off a restart that a rule began is given up, and the pod goes on as initialized as it was.
            Happening::AgentStarts { .. } if view.context.rules.restart_all == RestartAllRule::Ignored => {
                let given_up = |sandbox: &Sandbox| self.restarting.contains(&sandbox.pod);
                for sandbox in view.node.sandboxes.values().filter(|sandbox| given_up(sandbox)) {
                    let over = self.ever_over.get(&sandbox.id).cloned().unwrap_or_default();
                    self.over.insert(sandbox.id.clone(), over);
                }
                Ok(())
            }
            Happening::Exited { instance, exit_code: 0, .. } => {
                if role(view, instance) == Some(Role::Init) {
                    self.is_over(instance);
                }
                Ok(())
            }
            Happening::Removed { instance, asked: true } => {
                // Only a restart of all containers removes the newest instance.
                let runs = view.node.container_runs(&instance.pod, &instance.name);
                if runs.last().is_some_and(|run| run.instance.id == instance.id) {
                    self.forget(entry.at, instance);
                }
                Ok(())
            }
            Happening::Probed(attempt) if attempt.may_be(ProbeKind::Startup) && attempt.reply.passes() => {
                if let Some(instance) = &attempt.instance
                    && role(view, instance) == Some(Role::Sidecar)
                {
                    self.is_over(instance);
                }
                Ok(())
            }
            Happening::Published { pod, status, .. } => {
                self.published.insert(pod.clone());
                if status.phase.is_terminal() {
                    self.ended.entry(pod.clone()).or_insert(entry.at);
                }
                if status.is_true(&ConditionType::AllContainersRestarting) && !is_requested(status) {
                    self.restarting.insert(pod.clone());
                } else {
                    self.restarting.remove(pod);
                }
                Ok(())
            }
            Happening::PodGone { pod } => {
                self.published.remove(pod);
                self.ended.remove(pod);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Order {
    fn started(&mut self, instance: &InstanceRef, view: View<'_>) -> Result<(), Finding> {
        let InstanceRef { pod, name, id, .. } = instance;
        let twin = view.node.containers.values().find(|other| {
            other.instance.pod == *pod && other.instance.name == *name && other.instance.id != *id && other.is_running()
        });
        if let Some(twin) = twin {
            return Err(Finding(format!("{id} is started while {} runs", twin.instance.id)));
        }
        if self.ended.contains_key(pod) && !self.created.contains(id) {
            return Err(Finding(format!("{id} is started in a pod that has ended")));
        }
        let Some(spec) = view.pods.get(pod) else { return Ok(()) };
        // Ephemeral containers have no place in the order: one may be there to see why init does not end.
        if role(view, instance) == Some(Role::Ephemeral) {
            return Ok(());
        }
        if !self.asked.contains(id) {
            self.in_order(spec, instance)?;
        }
        if spec.container(name).is_some_and(|container| container.role == Role::Sidecar && container.startup.is_none())
        {
            self.is_over(instance);
        }
        Ok(())
    }

    /// A sidecar that neither a ledger nor an API server knows has started if it runs for long (CON-3): its startup probe is not run
    /// again.
    fn take_for_started(&mut self, now: Duration, view: View<'_>) {
        let is_known = |pod: &String| view.context.mode == Mode::Cluster && self.published.contains(pod);
        let runs = view.node.all_runs().filter(|run| run.ended.is_none() && run.began + LONG < now);
        let unknown = runs.filter(|run| view.context.may_lack(&run.instance.id) && !is_known(&run.instance.pod));
        let sidecars = unknown.filter(|run| role(view, &run.instance) == Some(Role::Sidecar));
        let instances: Vec<_> = sidecars.map(|run| Arc::clone(&run.instance)).collect();
        instances.iter().for_each(|instance| self.is_over(instance));
    }

    fn in_order(&self, pod: &Pod, instance: &InstanceRef) -> Result<(), Finding> {
        let over = self.over.get(&instance.sandbox);
        let is_over = |name: &String| over.is_some_and(|over| over.contains(name));
        for earlier in pod.init_containers.iter().take_while(|container| container.name != instance.name) {
            if !is_over(&earlier.name) {
                let what = if earlier.role == Role::Sidecar { "has started" } else { "has succeeded" };
                return Err(Finding(format!("{} is started before {} {what}", instance.id, earlier.name)));
            }
        }
        Ok(())
    }

    fn is_over(&mut self, instance: &InstanceRef) {
        for over in [&mut self.over, &mut self.ever_over] {
            over.entry(instance.sandbox.clone()).or_default().insert(instance.name.clone());
        }
    }

    /// What was removed for a restart that the ledger knows nothing of is over for the agent.
    fn restore_over(&mut self, view: View<'_>) {
        for (sandbox, ever) in &self.ever_over {
            let lacks = |name: &&String| {
                let removed = self.removed.get(&(sandbox.clone(), (*name).clone()));
                removed.is_some_and(|at| view.context.run.is_some_and(|run| run.may_lack(*at + AFTER_REMOVAL)))
            };
            self.over.entry(sandbox.clone()).or_default().extend(ever.iter().filter(lacks).cloned());
        }
    }

    fn forget(&mut self, at: Duration, instance: &InstanceRef) {
        self.removed.insert((instance.sandbox.clone(), instance.name.clone()), at);
        if let Some(over) = self.over.get_mut(&instance.sandbox) {
            over.remove(&instance.name);
        }
    }
}

fn role(view: View<'_>, instance: &InstanceRef) -> Option<Role> {
    view.pods.get(&instance.pod)?.container(&instance.name).map(|container| container.role)
}
