//! The agent's clock: simulated time, a wall clock that can be set, and a boot ID.

use std::sync::Arc;

use keelet_agent::doors::Clock;
use keelet_lifecycle::Moment;

use crate::sim::Sim;

/// The world's clock.
#[derive(Clone, Debug)]
pub(crate) struct SimClock(pub(crate) Arc<Sim>);

// === impl SimClock ===

impl Clock for SimClock {
    fn now(&self) -> Moment {
        self.0.lock().now()
    }
}
