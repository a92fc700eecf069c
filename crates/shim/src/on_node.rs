//! Users of a container on the node.

use keelet_linux::userns::{IdRange, Users};
use oci_spec::runtime::{LinuxIdMapping, Spec};

/// Who users of a container are on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnNode {
    users: Option<Users>,
}

// === impl OnNode ===

impl OnNode {
    pub(crate) fn of(spec: &Spec) -> Self {
        let range = |mappings: &Option<Vec<LinuxIdMapping>>| {
            let first = mappings.as_ref()?.first()?;
            Some(IdRange { first: first.host_id(), length: first.size() })
        };
        let of = |linux: &oci_spec::runtime::Linux| {
            Some(Users { uids: range(linux.uid_mappings())?, gids: range(linux.gid_mappings())? })
        };
        Self { users: spec.linux().as_ref().and_then(of) }
    }

    /// Whether they are others than in the container.
    pub(crate) fn differ(self) -> bool {
        self.users.is_some()
    }

    pub(crate) fn uid(self, inside: u32) -> u32 {
        self.users.map_or(inside, |users| users.uids.on_node(inside))
    }

    pub(crate) fn gid(self, inside: u32) -> u32 {
        self.users.map_or(inside, |users| users.gids.on_node(inside))
    }
}
