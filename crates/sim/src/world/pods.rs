//! Pods, and what people want of them.

use std::{sync::Arc, time::Duration};

use keelet_agent::{Agent, Extent, Feed, RequestError, Wanted, WantedPods, source::Listing};
use keelet_lifecycle::{
    observed::{Deletion, RestartRequest},
    status::{ConditionType, PodStatus, Truth},
};
use keelet_pod::Pod;

use super::World;
use crate::timeline::Happening;

/// A source that says what the test wants it to say, however little sense it makes.
#[derive(Clone, Debug)]
pub struct SimSource(Feed);

// === impl World ===

impl World {
    /// Wants one more pod.
    pub fn add_pod(&mut self, pod: Pod) -> &mut Self {
        let pod = Arc::new(pod);
        self.names.push((pod.name.clone(), pod.uid.clone()));
        self.inside(|state| {
            state.note(Happening::PodWanted { pod: pod.uid.clone() });
            state.pods.insert(pod.uid.clone(), Arc::clone(&pod));
        });
        self.want(|wanted| {
            wanted.insert(pod.uid.clone(), Wanted::new(Arc::clone(&pod)));
        })
    }

    /// Wants another image for a container of a pod that is there.
    ///
    /// # Panics
    ///
    /// If there is no such container.
    pub fn set_image(&mut self, container: &str, image: &str) -> &mut Self {
        let (pod, container) = self.split(container);
        let before = self.spec(&pod);
        let wanted =
            Happening::ImageWanted { pod: before.uid.clone(), container: container.clone(), image: image.to_owned() };
        self.inside(|state| state.note(wanted));
        let mut source = (*before.source).clone();
        let spec = source.spec.as_mut().expect("a pod with a spec");
        let of_pod = spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten());
        let changed = of_pod.into_iter().find(|found| found.name == container);
        changed.unwrap_or_else(|| panic!("no container {container}")).image = Some(image.to_owned());
        let pod = before.changed(source, &self.settings.features);
        self.replace(pod.unwrap_or_else(|problems| panic!("{problems:?}")))
    }

    /// Adds an ephemeral container to the first pod.
    pub fn add_ephemeral(&mut self, name: &str) -> &mut Self {
        self.note(format!("the ephemeral container {name} is added"));
        let before = self.spec(&self.first());
        let mut source = (*before.source).clone();
        let spec = source.spec.as_mut().expect("a pod with a spec");
        let containers = spec.ephemeral_containers.get_or_insert_default();
        containers.push(Default::default());
        if let Some(added) = containers.last_mut() {
            added.name = name.to_owned();
            added.image = Some("debug".to_owned());
        }
        let pod = before.changed(source, &self.settings.features);
        self.replace(pod.unwrap_or_else(|problems| panic!("{problems:?}")))
    }

    fn note(&self, what: String) {
        self.inside(|state| state.note(Happening::Changed(what)));
    }

    /// Wants another spec for a pod that is there.
    fn replace(&mut self, pod: Pod) -> &mut Self {
        let pod = Arc::new(pod);
        self.inside(|state| state.pods.insert(pod.uid.clone(), Arc::clone(&pod)));
        self.want(|wanted| {
            if let Some(wanted) = wanted.get_mut(&pod.uid) {
                wanted.pod = Arc::clone(&pod);
            }
        })
    }

    /// Wants exactly what a source lists.
    pub fn set_listing(&mut self, listing: &Listing) -> &mut Self {
        for (uid, pod) in &listing.pods {
            if !self.names.iter().any(|(_, known)| known == uid) {
                self.names.push((pod.name.clone(), uid.clone()));
            }
            self.inside(|state| state.pods.insert(uid.clone(), Arc::clone(pod)));
        }
        let pods = listing.pods.iter().map(|(uid, pod)| (uid.clone(), Wanted::new(Arc::clone(pod)))).collect();
        self.want(|wanted| *wanted = pods)
    }

    /// Opens a source of its own at the agent that is there. What it says is not remembered for the next agent.
    ///
    /// # Panics
    ///
    /// If no agent is there.
    pub fn open_source(&self) -> SimSource {
        SimSource(self.with_agent(Agent::source).expect("an agent"))
    }

    /// A source says what it wants.
    pub fn say(&mut self, source: &SimSource, pods: &[&Arc<Pod>], extent: Extent) -> &mut Self {
        for pod in pods {
            if !self.names.iter().any(|(_, known)| *known == pod.uid) {
                self.names.push((pod.name.clone(), pod.uid.clone()));
            }
            self.inside(|state| state.pods.insert(pod.uid.clone(), Arc::clone(pod)));
        }
        self.note(format!("a source is {extent:?} with {} pods", pods.len()));
        let wanted = pods.iter().map(|pod| (pod.uid.clone(), Wanted::new(Arc::clone(pod)))).collect();
        let _guard = self.runtime.enter();
        source.0.set(wanted, extent);
        self
    }

    /// Does not want a pod any more.
    pub fn delete(&mut self, pod: &str) -> &mut Self {
        let uid = self.uid(pod);
        self.inside(|state| state.note(Happening::PodDeleted { pod: uid.clone() }));
        self.want(|wanted| {
            wanted.remove(&uid);
        })
    }

    /// Asks for a pod to go away within this grace period.
    pub fn delete_within(&mut self, pod: &str, grace: Duration) -> &mut Self {
        let uid = self.uid(pod);
        self.inside(|state| state.note(Happening::PodDeleted { pod: uid.clone() }));
        self.want(|wanted| {
            if let Some(wanted) = wanted.get_mut(&uid) {
                wanted.deletion = Some(Deletion { grace });
            }
        })
    }

    /// Sets a condition that others own, such as a readiness gate.
    pub fn set_condition(&mut self, pod: &str, kind: &str, holds: bool) -> &mut Self {
        let uid = self.uid(pod);
        self.want(|wanted| {
            if let Some(wanted) = wanted.get_mut(&uid) {
                wanted.foreign_conditions.insert(kind.to_owned(), holds);
            }
        })
    }

    /// Asks for all containers of a pod to be restarted; what the agent says if it refuses.
    pub fn request_restart(&mut self, pod: &str, id: &str) -> Result<(), RequestError> {
        let uid = self.uid(pod);
        self.inside(|state| state.note(Happening::RestartAsked { pod: uid.clone() }));
        let request = RestartRequest { id: id.to_owned(), by: "tester".to_owned() };
        self.with_agent(|agent| agent.request_restart(&uid, request)).unwrap_or(Ok(()))
    }

    /// Another writer writes a pod's status where the agent published it.
    pub fn overwrite(&mut self, pod: &str, write: impl FnOnce(&mut PodStatus)) -> &mut Self {
        let uid = self.uid(pod);
        self.inside(|state| {
            let Some((_, status)) = state.api_statuses.statuses.get_mut(&uid) else { return };
            write(Arc::make_mut(status));
            let status = Arc::clone(status);
            state.note(Happening::Overwritten { pod: uid, status });
        });
        self
    }

    /// Another writer, such as a node controller, writes the Ready condition.
    pub fn overwrite_ready(&mut self, pod: &str, ready: bool) -> &mut Self {
        let wall = self.inside(|state| state.now().wall.whole_seconds());
        self.overwrite(pod, |status| {
            for condition in status.conditions.iter_mut().filter(|condition| condition.kind == ConditionType::Ready) {
                condition.status = Truth::from(ready);
                condition.last_transition_time = Some(wall);
            }
        })
    }

    /// The UIDs of the pods that are wanted.
    pub(crate) fn wanted_uids(&self) -> Vec<String> {
        self.wanted().keys().cloned().collect()
    }

    fn want(&mut self, change: impl FnOnce(&mut WantedPods)) -> &mut Self {
        change(&mut self.wanted());
        let wanted = self.wanted().clone();
        self.with_agent(|agent| agent.set_pods(wanted, Extent::Complete));
        self
    }
}
