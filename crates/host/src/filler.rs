//! All volumes of one pod, one after the other.

use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1;
use keelet_launch::NodeFacts;
use keelet_pod::Pod;

use super::{OsHost, contents::ContentSources, volumes::VolumeContext};
use crate::{HostError, objects::ObjectStore};

/// Makes or fills the volumes of one pod, off the threads of the agent's tasks.
pub(super) struct Filler {
    pod: Pod,
    facts: Arc<NodeFacts>,
    objects: Arc<dyn ObjectStore>,
    filling: Arc<Mutex<()>>,
}

// === impl Filler ===

impl Filler {
    pub(super) fn of(host: &OsHost, pod: &Pod) -> Self {
        Self {
            pod: pod.clone(),
            facts: Arc::clone(&host.facts),
            objects: Arc::clone(&host.objects),
            filling: Arc::clone(&host.filling),
        }
    }

    /// Does something with each volume, and stops at the first one that it cannot be done with.
    pub(super) fn each<T, C: FromIterator<T>>(
        &self,
        mut work: impl FnMut(&v1::Volume, &VolumeContext<'_>) -> Result<T, HostError>,
    ) -> Result<C, HostError> {
        let _filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(spec) = &self.pod.source.spec else { return Ok(C::from_iter([])) };
        let group = spec.security_context.as_ref().and_then(|context| context.fs_group);
        let sources = ContentSources { pod: &self.pod, node: &self.facts, objects: self.objects.as_ref() };
        let context = VolumeContext { sources, group: group.and_then(|group| u32::try_from(group).ok()) };
        spec.volumes.iter().flatten().map(|volume| work(volume, &context)).collect()
    }
}
