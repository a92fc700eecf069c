//! Pods of an API server find their objects there; pods of manifests find theirs in files of the node.

use std::sync::Arc;

use futures::future::BoxFuture;
use keelet_launch::{Data, ObjectKind, TokenSource};
use keelet_pod::{Pod, Trust};

use super::{ObjectError, ObjectStore};

/// Two stores: which one is asked depends on where the pod comes from. A manifest on the node names no object of the cluster, and a pod
/// of the cluster names no file of the node.
#[derive(Debug)]
pub struct ByOrigin {
    /// For pods of manifests.
    pub local: Arc<dyn ObjectStore>,
    /// For pods of the API server.
    pub cluster: Arc<dyn ObjectStore>,
}

// === impl ByOrigin ===

impl ByOrigin {
    fn of(&self, pod: &Pod) -> &dyn ObjectStore {
        match pod.trust {
            Trust::Node => self.local.as_ref(),
            Trust::Cluster => self.cluster.as_ref(),
        }
    }
}

impl ObjectStore for ByOrigin {
    fn find(&self, pod: &Pod, kind: ObjectKind, name: &str) -> Result<Option<Data>, ObjectError> {
        self.of(pod).find(pod, kind, name)
    }

    fn token(&self, pod: &Pod, wanted: &TokenSource) -> Result<Vec<u8>, ObjectError> {
        self.of(pod).token(pod, wanted)
    }

    fn has_services(&self, pod: &Pod) -> bool {
        self.of(pod).has_services(pod)
    }

    fn services(&self, pod: &Pod) -> Result<Vec<(String, String)>, ObjectError> {
        self.of(pod).services(pod)
    }

    fn settled<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, ()> {
        self.of(pod).settled(pod)
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        // Files are read from time to time.
        self.cluster.changed()
    }
}
