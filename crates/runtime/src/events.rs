//! What happens to containers, for subscribers.

use keelet_cri::v1;
use tokio::sync::broadcast;

/// Events that may wait for one subscriber: more than a full node's restart has. A slower one gets an error and lists.
const WAITING: usize = 4096;

/// Emits what happens.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    sender: broadcast::Sender<v1::ContainerEventResponse>,
}

// === impl Events ===

impl Events {
    pub(crate) fn new() -> Self {
        Self { sender: broadcast::Sender::new(WAITING) }
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<v1::ContainerEventResponse> {
        self.sender.subscribe()
    }

    pub(crate) fn emit(&self, event: v1::ContainerEventResponse) {
        // There may be no subscriber.
        let _ = self.sender.send(event);
    }
}
