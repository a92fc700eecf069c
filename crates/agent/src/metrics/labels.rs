//! The labels of each metric.

use prometheus_client::encoding::EncodeLabelSet;

pub(super) const CONTAINER: &str = "container";
pub(super) const INIT: &str = "init_container";
pub(super) const EPHEMERAL: &str = "ephemeral_container";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OfType {
    pub(super) container_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StartFailed {
    pub(super) container_type: &'static str,
    pub(super) code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Terminated {
    pub(super) container_type: &'static str,
    pub(super) exit_code: i32,
    pub(super) reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RestartedPod {
    /// `true`, or empty.
    pub(super) r#static: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ContainerState {
    pub(super) container_state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Triggered {
    pub(super) trigger: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct AtStart {
    pub(super) outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ProbeType {
    pub(super) probe_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ProbeResult {
    pub(super) probe_type: &'static str,
    pub(super) result: &'static str,
    pub(super) container: String,
    pub(super) pod: String,
    pub(super) namespace: String,
    pub(super) pod_uid: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ProbeOf {
    pub(super) probe_type: &'static str,
    pub(super) container: String,
    pub(super) pod: String,
    pub(super) namespace: String,
}
