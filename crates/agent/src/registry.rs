//! Which pod is responsible for which container: how an event of the runtime finds its pod.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use keelet_lifecycle::observed::InstanceState;
use keelet_pod::Pod;

use crate::{pod_task::Observation, shared::bare, slot::Slot};

/// The pods of the node, by UID.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pods: Mutex<BTreeMap<String, Registered>>,
}

#[derive(Debug)]
struct Registered {
    pod: Arc<Pod>,
    slot: Arc<Slot>,
    /// Containers and sandboxes, as last seen, without scheme.
    ids: Vec<String>,
    /// Its containers, when last seen.
    seen: Vec<Seen>,
}

/// A container as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Without scheme.
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) doing: Doing,
}

/// What a container did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Runs,
    Other,
}

// === impl Registry ===

impl Registry {
    fn pods(&self) -> MutexGuard<'_, BTreeMap<String, Registered>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, pod: &Arc<Pod>, slot: &Arc<Slot>) {
        let entry = Registered { pod: Arc::clone(pod), slot: Arc::clone(slot), ids: Vec::new(), seen: Vec::new() };
        self.pods().insert(pod.uid.clone(), entry);
    }

    /// A pod has changed: from now on this is what it is.
    pub(crate) fn update(&self, pod: &Arc<Pod>) {
        if let Some(entry) = self.pods().get_mut(&pod.uid) {
            entry.pod = Arc::clone(pod);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pods().is_empty()
    }

    pub(crate) fn leave(&self, uid: &str) {
        self.pods().remove(uid);
    }

    /// What the newest observation at a pod showed.
    pub(crate) fn note(&self, uid: &str, observation: &Observation) {
        let containers = observation.containers.iter().map(|instance| bare(&instance.id).to_owned());
        let sandboxes = observation.sandboxes.iter().map(|sandbox| sandbox.id.clone());
        let seen = observation.containers.iter().map(|instance| Seen {
            id: bare(&instance.id).to_owned(),
            name: instance.name.clone(),
            attempt: instance.attempt,
            doing: match instance.state {
                InstanceState::Running { .. } => Doing::Runs,
                _ => Doing::Other,
            },
        });
        if let Some(entry) = self.pods().get_mut(uid) {
            entry.seen = seen.collect();
            entry.ids = containers.chain(sandboxes).collect();
        }
    }

    pub(crate) fn find(&self, uid: &str) -> Option<(Arc<Pod>, Arc<Slot>)> {
        self.pods().get(uid).map(|entry| (Arc::clone(&entry.pod), Arc::clone(&entry.slot)))
    }

    /// All pods of the node, with their containers as last seen.
    pub(crate) fn seen(&self) -> Vec<(Arc<Pod>, Vec<Seen>)> {
        self.pods().values().map(|entry| (Arc::clone(&entry.pod), entry.seen.clone())).collect()
    }

    /// The images that pods of the node name.
    pub(crate) fn images(&self) -> BTreeSet<String> {
        let pods = self.pods();
        let containers = pods.values().flat_map(|entry| entry.pod.all_containers());
        containers.map(|container| container.image.clone()).collect()
    }

    /// All pods of the node.
    pub(crate) fn all(&self) -> Vec<(Arc<Pod>, Arc<Slot>)> {
        self.pods().values().map(|entry| (Arc::clone(&entry.pod), Arc::clone(&entry.slot))).collect()
    }

    /// Something happened to a container or sandbox that the runtime knows by this ID.
    pub(crate) fn hint_by_id(&self, id: &str) {
        if let Some(entry) = self.pods().values().find(|entry| entry.ids.iter().any(|known| known == id)) {
            entry.slot.hint();
        }
    }

    /// Something happened to a pod.
    pub(crate) fn hint_by_uid(&self, uid: &str) {
        if let Some(entry) = self.pods().get(uid) {
            entry.slot.hint();
        }
    }

    /// Events may have been missed.
    pub(crate) fn hint_all(&self) {
        self.pods().values().for_each(|entry| entry.slot.hint());
    }
}

#[cfg(test)]
mod tests {
    use keelet_lifecycle::{
        Wall,
        observed::{Instance, Sandbox},
    };

    use super::*;
    use crate::bed::pod;

    /// An event that names no pod finds it by the ID of a container or of a sandbox, and wakes no other.
    #[test]
    fn an_event_finds_its_pod_by_the_id_of_a_container_or_sandbox() {
        let registry = Registry::default();
        let (slot, other) = (Arc::new(Slot::default()), Arc::new(Slot::default()));
        registry.enter(&pod("web", "a"), &slot);
        registry.enter(&pod("db", "b"), &other);
        let sandbox = Sandbox {
            id: "s1".to_owned(),
            ready: true,
            attempt: 0,
            created_at: Wall::default(),
            ips: Vec::new(),
            host_network: false,
            lost: None,
        };
        let instance = Instance {
            id: "fake://c1".to_owned(),
            name: "main".to_owned(),
            sandbox: "s1".to_owned(),
            attempt: 0,
            hash: None,
            image: String::new(),
            image_id: String::new(),
            created_at: Wall::default(),
            state: InstanceState::Created,
        };
        registry
            .note("a", &Observation { sandboxes: vec![sandbox], containers: vec![instance], ..Observation::default() });
        for (id, finds) in [("c1", true), ("s1", true), ("c2", false), ("", false)] {
            registry.hint_by_id(id);
            assert_eq!((slot.take().hinted, other.take().hinted), (finds, false), "{id:?}");
        }
    }
}
