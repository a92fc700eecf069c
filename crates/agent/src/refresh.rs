//! Keeps the volumes that the agent fills up to date while their pods run.

use std::{sync::Arc, time::Duration};

use keelet_launch::has_contents;
use keelet_lifecycle::{Event, Severity};

use crate::shared::Shared;

/// How often config maps and secrets are read, as the kubelet does.
const PERIOD: Duration = Duration::from_secs(60);
/// By how much a period may be shorter or longer, so that nodes that started together do not stay together.
const SPREAD_MS: i64 = 6_000;

/// Looks at what pods have in their volumes, for as long as the agent runs: from time to time, when notified,
/// and when the host reports that something has changed.
pub(crate) async fn keep(shared: Arc<Shared>) {
    let mut stopping = shared.stopping.clone();
    loop {
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop) => return,
            () = shared.refresh_objects.notified() => {}
            () = shared.host.contents_changed() => {}
            () = tokio::time::sleep(period(shared.clock.now().boot_ms)) => {}
        }
        refresh(&shared).await;
    }
}

async fn refresh(shared: &Shared) {
    for (pod, slot) in shared.registry.all() {
        if !has_contents(&pod) {
            continue;
        }
        if let Err(error) = shared.host.refresh(&pod).await {
            slot.emit(Event {
                container: None,
                reason: error.reason,
                severity: Severity::Warning,
                message: error.message,
            });
        }
    }
}

/// The next period. Which one it is, is left to when the question comes.
fn period(now_ms: i64) -> Duration {
    let more = u64::try_from(now_ms.rem_euclid(2 * SPREAD_MS + 1)).unwrap_or_default();
    PERIOD - Duration::from_millis(SPREAD_MS.unsigned_abs()) + Duration::from_millis(more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_a_minute_more_or_less() {
        let periods: Vec<_> = (0..20_000).step_by(7).map(period).collect();
        assert_eq!(periods.iter().min(), Some(&Duration::from_secs(54)));
        assert!(periods.iter().max() <= Some(&Duration::from_secs(66)));
        assert!(periods.iter().max() > Some(&Duration::from_millis(65_900)));
    }
}
