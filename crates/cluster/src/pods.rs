//! The pods of this node as the API server has them. Pure.
//!
//! A list and a watch bring objects; the agent is told which pods it should run. What changes with every status of ours (the
//! status itself, the version, the managers of fields) is not part of the pod that the agent gets, so that our own writes wake no
//! pod. The API server's copy of the status is kept beside it: nothing is written that it has already.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1;
use keelet_agent::{Extent, Wanted, WantedPods};
use keelet_api::Version;
use keelet_lifecycle::{
    observed::{Deletion, Known},
    status::PodStatus,
};
use keelet_pod::{Features, Pod, Problem};
use serde_json::Value;

use crate::patch;

/// The pods of this node.
#[derive(Debug)]
pub struct Pods {
    features: Features,
    by_uid: BTreeMap<String, ApiPod>,
    listing: Listing,
}

/// A pod as the API server has it.
#[derive(Clone, Debug)]
pub struct ApiPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The version of the object.
    pub version: Version,
    /// The status as the API server has it.
    pub status: Value,
    /// Set once its deletion was requested.
    pub deletion: Option<Deletion>,
    /// The pod, or why the agent cannot run it.
    pub pod: Result<Arc<Pod>, NotAPod>,
    /// Whether nothing of the pod is left on this node: it waits for its object to go.
    pub finished: bool,
}

/// Why the agent cannot run the pod of an object. The status of the pod gets the text.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NotAPod {
    /// It has not the shape of a pod.
    #[error("the object is not a pod: {0}")]
    Object(Arc<serde_json::Error>),
    /// It is a pod that is not valid, or that this agent does not support.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<Problem>),
}

/// How far the first list, or a later one, is.
#[derive(Debug)]
enum Listing {
    /// The API server has not been reached.
    NotYet,
    /// The first list is under way.
    First,
    /// Everything is known.
    Complete,
    /// Everything is listed again; these UIDs have come so far.
    Again(BTreeSet<String>),
}

/// An object that is not a pod of this node.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOurs {
    /// It has no UID, name or namespace.
    #[error("the API server sent a pod without {0}")]
    Nameless(&'static str),
    /// It is bound to another node.
    #[error("the API server sent pod {0}, which is bound to node {1:?}")]
    OtherNode(String, String),
}

// === impl Pods ===

impl Pods {
    /// Nothing is known yet.
    pub fn new(features: Features) -> Self {
        Self { features, by_uid: BTreeMap::new(), listing: Listing::NotYet }
    }

    /// Whether the API server has answered with everything at least once.
    pub fn are_known(&self) -> bool {
        matches!(self.listing, Listing::Complete | Listing::Again(_))
    }

    /// The pod with this UID.
    pub fn get(&self, uid: &str) -> Option<&ApiPod> {
        self.by_uid.get(uid)
    }

    /// A list begins.
    pub fn list_begins(&mut self) {
        self.listing = if self.are_known() { Listing::Again(BTreeSet::new()) } else { Listing::First };
    }

    /// The list is complete: what it did not have is gone.
    pub fn list_ends(&mut self) {
        if let Listing::Again(seen) = &self.listing {
            self.by_uid.retain(|uid, _| seen.contains(uid));
        }
        self.listing = Listing::Complete;
    }

    /// A pod of the list, or one that was created or changed. One that is older than what is known is left out: a watch that
    /// begins again may repeat what an answer to a request has told already.
    pub fn changed(&mut self, object: Value, node: &str) -> Result<(), NotOurs> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let (uid, bound) = (text("/metadata/uid"), text("/spec/nodeName"));
        for (what, text) in [("a namespace", &namespace), ("a name", &name), ("a UID", &uid)] {
            if text.is_empty() {
                return Err(NotOurs::Nameless(what));
            }
        }
        if bound != node {
            return Err(NotOurs::OtherNode(format!("{namespace}/{name}"), bound));
        }
        if let Listing::Again(seen) = &mut self.listing {
            seen.insert(uid.clone());
        }
        let version = Version::of(&object);
        let known = self.by_uid.get(&uid);
        if known.is_some_and(|known| version.is_older_than(&known.version)) {
            return Ok(());
        }
        let before = known.and_then(|known| known.pod.as_ref().ok());
        // What runs is not taken back by a change that cannot be understood.
        let pod = self.read(&object, before).or_else(|why| {
            let kept = before.map(Arc::clone).ok_or_else(|| why.clone());
            tracing::error!(
                pod = format!("{namespace}/{name}"),
                error = %why,
                kept = kept.is_ok(),
                "cannot parse pod of the API server"
            );
            kept
        });
        let deletion = deletion(&object, pod.as_ref().ok());
        let finished = known.is_some_and(|known| known.finished);
        let status = object.get("status").cloned().unwrap_or_default();
        self.by_uid.insert(uid, ApiPod { namespace, name, version, status, deletion, pod, finished });
        Ok(())
    }

    /// A pod was deleted.
    pub fn deleted(&mut self, uid: &str) {
        self.by_uid.remove(uid);
    }

    /// Nothing of the pod is left on this node. Whether its object has to be deleted now.
    pub fn finish(&mut self, uid: &str) -> bool {
        let Some(pod) = self.by_uid.get_mut(uid) else { return false };
        pod.finished = true;
        pod.deletion.is_some()
    }

    /// What the agent should run, and whether that is everything.
    pub fn wanted(&self) -> (WantedPods, Extent) {
        // A pod that an agent has accepted may run here: nothing is called orphaned while it cannot be understood.
        let unclear = self.by_uid.values().any(|pod| pod.pod.is_err() && pod.was_accepted() && !pod.is_terminal());
        let extent = match self.listing {
            Listing::NotYet | Listing::First => Extent::Partial,
            Listing::Complete if unclear => Extent::Partial,
            Listing::Complete => Extent::Complete,
            Listing::Again(_) => Extent::Relisting,
        };
        let named = self.by_uid.iter().filter(|(_, pod)| !pod.finished);
        let wanted = named.filter_map(|(uid, pod)| Some((uid.clone(), pod.wanted()?)));
        (wanted.collect(), extent)
    }

    /// The pods that may have containers here, and need what they refer to.
    pub fn running(&self) -> impl Iterator<Item = &Arc<Pod>> {
        let unfinished = self.by_uid.values().filter(|pod| !pod.finished && !pod.is_terminal());
        unfinished.filter_map(|pod| pod.pod.as_ref().ok())
    }

    /// New pods that the agent cannot run, by UID. One that an agent has accepted before is not among them: it may run.
    pub fn refused(&self) -> impl Iterator<Item = (&String, &ApiPod)> {
        self.by_uid.iter().filter(|(_, pod)| pod.pod.is_err() && !pod.was_accepted() && !pod.is_terminal())
    }

    /// Pods that the agent cannot run, that run nowhere else, and whose deletion was requested: their objects wait for this node. An object without a
    /// grace period was deleted by the node already, and waits for its finalizers.
    pub fn refused_and_deleted(&self) -> impl Iterator<Item = &String> {
        let waits = |pod: &ApiPod| pod.deletion.as_ref().is_some_and(|deletion| !deletion.grace.is_zero());
        let idle = |pod: &ApiPod| pod.pod.is_err() && (pod.is_terminal() || !pod.was_accepted());
        self.by_uid.iter().filter(move |(_, pod)| waits(pod) && idle(pod)).map(|(uid, _)| uid)
    }

    /// What the API server knew of a pod's status.
    pub fn known(&self, uid: &str) -> Known {
        if !self.are_known() {
            return Known::NotAskedYet;
        }
        let status = self.by_uid.get(uid).map(|pod| &pod.status);
        let Some(status) = status.filter(|status| has_start_time(status)) else { return Known::NoCopy };
        match serde_json::from_value::<PodStatus>(status.clone()) {
            Ok(status) => Known::Copy(Box::new(status)),
            Err(error) => {
                tracing::warn!(uid, %error, "cannot read the API server's copy of a pod's status; continuing without it");
                Known::NoCopy
            }
        }
    }

    /// The pod of an object, without what changes with its status. The one that is known if it says the same.
    fn read(&self, object: &Value, known: Option<&Arc<Pod>>) -> Result<Arc<Pod>, NotAPod> {
        let mut source: v1::Pod =
            serde_json::from_value(object.clone()).map_err(|error| NotAPod::Object(Arc::new(error)))?;
        source.status = None;
        let meta = &mut source.metadata;
        meta.resource_version = None;
        meta.managed_fields = None;
        meta.deletion_timestamp = None;
        meta.deletion_grace_period_seconds = None;
        let pod = Pod::from_api(source, &self.features).map_err(NotAPod::Invalid)?;
        Ok(match known {
            Some(known) if **known == pod => Arc::clone(known),
            _ => Arc::new(pod),
        })
    }
}

/// Whether an agent has written the status. The API server itself writes a phase and the scheduler a condition; a start time is an agent's.
fn has_start_time(status: &Value) -> bool {
    !status["startTime"].is_null()
}

/// Set once the deletion of an object was requested: with the grace period as it is now.
fn deletion(object: &Value, pod: Option<&Arc<Pod>>) -> Option<Deletion> {
    let meta = &object["metadata"];
    if meta["deletionTimestamp"].is_null() {
        return None;
    }
    let seconds = meta["deletionGracePeriodSeconds"].as_u64().map(Duration::from_secs);
    Some(Deletion { grace: seconds.or_else(|| pod.map(|pod| pod.termination_grace)).unwrap_or_default() })
}

// === impl ApiPod ===

impl ApiPod {
    /// What the agent should run; none of a pod that it cannot run.
    fn wanted(&self) -> Option<Wanted> {
        let pod = Arc::clone(self.pod.as_ref().ok()?);
        Some(Wanted {
            pod,
            deletion: self.deletion.clone(),
            foreign_conditions: patch::foreign_conditions(&self.status),
        })
    }

    /// Whether an agent has begun to run it.
    fn was_accepted(&self) -> bool {
        has_start_time(&self.status)
    }

    fn is_terminal(&self) -> bool {
        matches!(self.status["phase"].as_str(), Some("Succeeded" | "Failed"))
    }
}

#[cfg(test)]
mod tests;
