//! The names of labels and annotations on sandboxes and containers. They are the kubelet's, so that its tools can read them.

/// A label: the name of the pod.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// A label: the namespace of the pod.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// A label: the UID of the pod.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// A label: the name of the container.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// An annotation: a hash of the container's spec, in hexadecimal digits.
pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
/// An annotation: the restart count of the instance.
pub const CONTAINER_RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// An annotation: the grace period of the pod, in seconds.
pub const POD_TERMINATION_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
/// An annotation: the grace period of the pod's deletion, in seconds.
pub(crate) const POD_DELETION_GRACE: &str = "io.kubernetes.pod.deletionGracePeriod";
pub(crate) const CONTAINER_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
pub(crate) const CONTAINER_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
pub(crate) const CONTAINER_PRE_STOP: &str = "io.kubernetes.container.preStopHandler";
pub(crate) const CONTAINER_PORTS: &str = "io.kubernetes.container.ports";
