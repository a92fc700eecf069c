//! What is remembered of the node itself: its conditions, the probes of its components, its gates.
//!
//! An agent of the same boot finds it on tmpfs. The copy on the durable disk is for the transition times of conditions after a reboot: it
//! follows if something has changed that they depend on. A probe that passes again changes nothing of that.

use keelet_lifecycle::node::NodeEvidence;

use crate::{disk::Disk, envelope::Kind, load::Loader, names, two_tiers::TwoTiers};

/// The file of the node, and the newest evidence found in it.
pub(crate) fn load<D: Disk>(loader: &mut Loader<'_, D>) -> (TwoTiers, Option<NodeEvidence>) {
    TwoTiers::load(loader, Kind::Node, names::NODE)
}
