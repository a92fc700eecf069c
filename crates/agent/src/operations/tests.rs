use std::time::Duration;

use keelet_lifecycle::operation::{OpId, OpResult, Operation};
use tokio::sync::oneshot;

use super::{Bench, run};
use crate::{
    bed::{Bed, pod},
    slot::{Slot, Wanted},
};

/// An operation of a pod that can be cancelled, and what became of it.
struct Started {
    cancel: Option<oneshot::Sender<()>>,
    slot: std::sync::Arc<Slot>,
}

impl Started {
    async fn new(bed: &Bed, operation: Operation) -> Self {
        let agent = bed.agent().await;
        let slot = std::sync::Arc::new(Slot::default());
        let work = Bench::new(std::sync::Arc::clone(&agent.node), std::sync::Arc::clone(&slot))
            .for_operation(&Wanted::new(pod("web", "a")), None);
        let (cancel, cancelled) = oneshot::channel();
        // The agent lives as long as its operation.
        tokio::spawn(async move {
            run(work, OpId(1), operation, cancelled).await;
            drop(agent);
        });
        Self { cancel: Some(cancel), slot }
    }

    fn cancel(&mut self) {
        self.cancel = None;
    }

    async fn result(&self) -> OpResult {
        loop {
            if let Some(finished) = self.slot.take().finished.pop() {
                return finished.result;
            }
            self.slot.rung().await;
        }
    }
}

/// A pod that goes away while its container is created must not have it run: what is created is not started.
#[tokio::test(start_paused = true)]
async fn a_launch_that_is_cancelled_after_create_does_not_start() {
    let bed = Bed::new();
    bed.runtime.hold("CreateContainer");
    let launch = Operation::Launch { container: "main".to_owned(), attempt: 0, sandbox: "sandbox-1".to_owned() };
    let mut started = Started::new(&bed, launch).await;
    bed.runtime.called("CreateContainer").await;
    started.cancel();
    tokio::time::sleep(Duration::from_millis(1)).await;
    bed.runtime.release("CreateContainer");
    let result = started.result().await;
    assert_eq!(bed.runtime.calls("StartContainer"), Vec::<String>::new(), "it was started although it was cancelled");
    assert_eq!(result, OpResult::Cancelled);
}
