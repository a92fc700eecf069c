//! Container exits as the runtime reports them. Events are hints: they cause an observation, and decide nothing.
//!
//! Asked for in this order: CRI's own events; containerd's event service, for its versions without the former;
//! nothing. What is missed is found by the pods' audits.

use std::{sync::Arc, time::Duration};

use keelet_cri::{ErrorKind, Events, Exits, TaskEvent};

use crate::shared::Shared;

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Follows the runtime's events for as long as the agent runs.
pub(crate) async fn follow(shared: Arc<Shared>) {
    let mut pause = FIRST_PAUSE;
    let mut stopping = shared.stopping.clone();
    loop {
        let followed = tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop) => return,
            followed = follow_once(&shared) => followed,
        };
        match followed {
            Ok(Followed::Stream) => pause = FIRST_PAUSE,
            Ok(Followed::Nothing) => {
                tracing::info!("the container runtime has no events; exits are found by listing containers");
                return;
            }
            Err(error) => tracing::debug!(%error, "container event stream failed; reconnecting"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

enum Followed {
    /// A stream that has ended.
    Stream,
    /// The runtime has no events.
    Nothing,
}

async fn follow_once(shared: &Shared) -> Result<Followed, keelet_cri::Error> {
    if let Some(events) = shared.runtime.container_events().await? {
        match follow_cri(shared, events).await {
            // Some runtimes refuse only when the first event is asked for.
            Err(error) if error.kind == ErrorKind::Unimplemented => {}
            ended => return ended.map(|()| Followed::Stream),
        }
    }
    let Some(events) = shared.runtime.containerd_exits().await? else { return Ok(Followed::Nothing) };
    match follow_containerd(shared, events).await {
        Err(error) if error.kind == ErrorKind::Unimplemented => Ok(Followed::Nothing),
        ended => ended.map(|()| Followed::Stream),
    }
}

async fn follow_cri(shared: &Shared, mut events: Events) -> Result<(), keelet_cri::Error> {
    // Between two streams anything may have happened.
    shared.registry.hint_all();
    while let Some(event) = events.next().await? {
        let metadata = event.pod_sandbox_status.and_then(|status| status.metadata);
        match metadata {
            Some(metadata) if !metadata.uid.is_empty() => shared.registry.hint_by_uid(&metadata.uid),
            _ => shared.registry.hint_by_id(&event.container_id),
        }
    }
    Ok(())
}

async fn follow_containerd(shared: &Shared, mut events: Exits) -> Result<(), keelet_cri::Error> {
    shared.registry.hint_all();
    while let Some(event) = events.next().await? {
        match event {
            // The end of an exec, a probe perhaps, is no news about the container.
            TaskEvent::Exited { container_id, exec_id, .. } if exec_id != container_id => {}
            TaskEvent::Exited { container_id, .. } | TaskEvent::OutOfMemory { container_id } => {
                shared.registry.hint_by_id(&container_id);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Extent,
        bed::{Bed, pass, pod, wanted},
    };

    /// What happened between two streams of events is looked for as soon as the second begins, and a stream that was there
    /// makes the next pause a short one.
    #[tokio::test(start_paused = true)]
    async fn what_happens_between_two_streams_is_seen_when_the_second_begins() {
        let (bed, web) = (Bed::new(), pod("web", "a"));
        let (_, main) = bed.runtime.put(&web);
        bed.remember(&web, keelet_lifecycle::Evidence::default(), Some(&web));
        let agent = bed.agent().await;
        agent.set_pods(wanted(&[&web]), Extent::Complete);
        // Longer than audits are frequent, so that nothing but the stream can tell.
        for cut in 1..=6 {
            pass(Duration::from_secs(3)).await;
            bed.runtime.cut_off();
            pass(FIRST_PAUSE + Duration::from_millis(1)).await;
            let streams = bed.runtime.calls("GetContainerEvents").len();
            assert_eq!(streams, cut + 1, "the pause grows although every stream was there");
        }
        pass(Duration::from_secs(3)).await;
        bed.runtime.cut_off();
        bed.runtime.end(&main, 1);
        pass(FIRST_PAUSE + Duration::from_millis(10)).await;
        assert_eq!(bed.runtime.calls("CreateContainer").len(), 1, "the exit between two streams is not seen");
    }

    /// An event need not name the pod: the ID of a container is enough.
    #[tokio::test(start_paused = true)]
    async fn an_event_has_its_pod_observed() {
        let (bed, web) = (Bed::new(), pod("web", "a"));
        let (_, main) = bed.runtime.put(&web);
        bed.remember(&web, keelet_lifecycle::Evidence::default(), Some(&web));
        let agent = bed.agent().await;
        agent.set_pods(wanted(&[&web]), Extent::Complete);
        pass(Duration::from_secs(3)).await;
        bed.runtime.end(&main, 1);
        bed.runtime.emit(&main).await;
        pass(Duration::from_millis(10)).await;
        assert_eq!(bed.runtime.calls("CreateContainer").len(), 1, "the exit is not seen");
    }
}
