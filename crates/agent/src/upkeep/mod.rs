//! What keeps a node from filling up: logs are rotated, logs of instances long past are dropped, unused images are
//! removed when room gets short.
//!
//! | what | when | where the decision is |
//! | --- | --- | --- |
//! | a log grows too large | every `containerLogMonitorInterval` | [`logs`] |
//! | logs of instances before the last but one | every minute | [`logs`] |
//! | unused images | every five minutes, and at once when a disk is nearly full | [`images`] |
//!
//! Dead containers are no business of this module: a pod's own rules keep the newest one of each container. The
//! [`crate::manager`] finds what is left of pods that the agent does not know.

mod images;
mod logs;

use std::{sync::Arc, time::Duration};

use crate::shared::Shared;

/// What the node's upkeep goes by. It may change while the agent runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// Logs of containers.
    pub logs: LogRules,
    /// Unused images.
    pub images: ImageRules,
}

/// When logs are rotated, and how many stay. The defaults are the kubelet's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRules {
    /// The size at which a log is rotated; none for never.
    pub max_bytes: Option<u64>,
    /// Files that a container may have at once, the one in use included: at least 2.
    pub max_files: u32,
    /// How often sizes are read.
    pub interval: Duration,
}

/// When images are removed. The defaults are the kubelet's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRules {
    /// How full the disk has to be.
    pub high_percent: u8,
    /// How full it may be afterwards.
    pub low_percent: u8,
    /// How long an image has to be on the node at least.
    pub minimum_age: Duration,
    /// How long an image may be unused, however much room there is; none for as long as it likes.
    pub maximum_age: Option<Duration>,
}

// === impl LogRules ===

impl Default for LogRules {
    fn default() -> Self {
        Self { max_bytes: Some(10 << 20), max_files: 5, interval: Duration::from_secs(10) }
    }
}

// === impl ImageRules ===

impl Default for ImageRules {
    fn default() -> Self {
        Self { high_percent: 85, low_percent: 80, minimum_age: Duration::from_secs(120), maximum_age: None }
    }
}

/// Starts the node's upkeep. It ends with the agent.
pub(crate) fn start(shared: &Arc<Shared>) {
    shared.tasks.spawn(Box::pin(logs::keep(Arc::clone(shared))));
    shared.tasks.spawn(Box::pin(logs::drop_old(Arc::clone(shared))));
    shared.tasks.spawn(Box::pin(images::keep(Arc::clone(shared))));
}
