//! User and group IDs of a container on the node.

use keelet_linux::userns::{IdRange, Users};
use oci_spec::runtime::{Linux, LinuxIdMapping, Spec};

/// How IDs of a container are mapped to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeIds {
    users: Option<Users>,
}

// === impl NodeIds ===

impl NodeIds {
    pub(crate) fn of(spec: &Spec) -> Self {
        let range = |mappings: &Option<Vec<LinuxIdMapping>>| {
            let first = mappings.as_ref()?.first()?;
            Some(IdRange { first: first.host_id(), length: first.size() })
        };
        let of = |linux: &Linux| Some(Users { uids: range(linux.uid_mappings())?, gids: range(linux.gid_mappings())? });
        Self { users: spec.linux().as_ref().and_then(of) }
    }

    /// Whether the container has a user namespace.
    pub(crate) fn are_mapped(self) -> bool {
        self.users.is_some()
    }

    pub(crate) fn uid(self, inside: u32) -> u32 {
        self.users.map_or(inside, |users| users.uids.on_node(inside))
    }

    pub(crate) fn gid(self, inside: u32) -> u32 {
        self.users.map_or(inside, |users| users.gids.on_node(inside))
    }
}
