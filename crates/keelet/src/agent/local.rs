//! The local API of this agent: its socket, and a port of loopback for health and metrics.

use std::{net::SocketAddr, path::Path, sync::Arc};

use anyhow::Result;
use keelet_serve::{BindError, Listener, Local, serve_loopback};
use tokio::task::JoinSet;

/// The agent's socket. That another agent has it is an error; that it cannot be made is none: the pods come first.
pub(crate) async fn socket(path: &Path) -> Result<Option<Listener>> {
    match Listener::bind(path).await {
        Ok(listener) => Ok(Some(listener)),
        Err(error @ BindError::Taken { .. }) => Err(error.into()),
        Err(error) => {
            tracing::warn!(%error, "no local API: get, describe, logs and the like will not find this agent");
            Ok(None)
        }
    }
}

/// Serves for as long as the answer is kept.
pub(crate) fn serve(socket: Option<Listener>, healthz: Option<SocketAddr>, local: Arc<Local>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    if let Some(socket) = socket {
        let local = Arc::clone(&local);
        tasks.spawn(async move { socket.serve(local).await });
    }
    if let Some(address) = healthz {
        tasks.spawn(serve_loopback(address, local));
    }
    tasks
}

/// Serves on a new socket: the directory of the one before was deleted.
pub(crate) async fn serve_again(tasks: &mut JoinSet<()>, path: &Path, local: &Arc<Local>) {
    if let Ok(Some(socket)) = socket(path).await {
        let local = Arc::clone(local);
        tasks.spawn(async move { socket.serve(local).await });
    }
}
