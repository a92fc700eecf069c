//! What is known of the node: plain values that do not change while the agent runs.

use std::collections::BTreeMap;

use keelet_launch::NodeFacts;

/// Pods that a node of a cluster takes, as the kubelet has it: a scheduler assigns none to a node that does not say how many it takes.
pub const MAX_PODS: u32 = 110;

/// What is known of the node. The default is a node of which nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// What pods may know of the node, and what their launch depends on. The amounts in it are what pods may have together: the
    /// node's allocatable.
    pub for_pods: NodeFacts,
    /// What the machine has.
    pub capacity: Resources,
    /// The machine and its operating system.
    pub system: System,
}

/// Amounts of what pods ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Processors in thousandths.
    pub cpu_millis: i64,
    /// Memory.
    pub memory_bytes: i64,
    /// Room for images, logs and writable layers.
    pub storage_bytes: i64,
    /// Bytes in huge pages, by the size of the page.
    pub huge_pages: BTreeMap<i64, i64>,
    /// Pods; none where their number has no limit.
    pub pods: Option<u32>,
}

/// The machine and its operating system, in the words of the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct System {
    /// `uname -r`.
    pub kernel_version: String,
    /// The name in `/etc/os-release`.
    pub os_image: String,
    /// As Go names it, and so does the field: `amd64`, `arm64`.
    pub architecture: String,
    /// `/etc/machine-id`; may be empty.
    pub machine_id: String,
    /// The firmware's own ID of the machine; may be empty.
    pub system_uuid: String,
}

// === impl Facts ===

impl Facts {
    /// What pods may have together.
    pub fn allocatable(&self) -> Resources {
        Resources {
            cpu_millis: self.for_pods.cpu_millis,
            memory_bytes: self.for_pods.memory_bytes,
            storage_bytes: self.for_pods.storage_bytes,
            ..self.capacity.clone()
        }
    }
}

/// A node whose pods may have all that is in these facts.
impl From<NodeFacts> for Facts {
    fn from(for_pods: NodeFacts) -> Self {
        let capacity = Resources {
            cpu_millis: for_pods.cpu_millis,
            memory_bytes: for_pods.memory_bytes,
            storage_bytes: for_pods.storage_bytes,
            ..Resources::default()
        };
        Self { for_pods, capacity, system: System::default() }
    }
}
