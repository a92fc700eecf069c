//! The newest events of the node, so that `keelet events` shows those of earlier agents too.
//!
//! The agent defines what an event looks like; here they are one piece of JSON. It is written when there is a new
//! event, which costs a copy of some hundred kilobytes at most. A probe that passes emits no event, so nothing is written while all is
//! well.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{disk::Disk, envelope::Kind, load::Loader, names, two_tiers::TwoTiers};

/// The content of the file.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Body<E> {
    pub(crate) events: E,
}

/// The file of the events, and the newest ones found in it.
pub(crate) fn load<D: Disk>(loader: &mut Loader<'_, D>) -> (TwoTiers, Vec<Value>) {
    let (file, newest) = TwoTiers::load::<_, Body<Vec<Value>>>(loader, Kind::Events, names::EVENTS);
    (file, newest.unwrap_or_default().events)
}
