//! What happens to containers, for whoever listens.

use keelet_cri::v1;
use tokio::sync::broadcast;

/// Events that may wait for one listener: more than a full node's restart has. Who falls further behind is told to look.
const WAITING: usize = 4096;

/// Tells what happens.
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

    pub(crate) fn tell(&self, event: v1::ContainerEventResponse) {
        // Nobody need listen.
        let _ = self.sender.send(event);
    }
}
