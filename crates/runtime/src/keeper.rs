//! Keeping a shim for every sandbox, and hearing from it.

use std::{
    os::fd::AsFd,
    sync::{Arc, Weak},
    time::Duration,
};

use keelet_shim::protocol::{Answer, Request, is_shortage};

use crate::{
    engine::{Engine, Parts},
    sandbox::Sandbox,
    shim::{Connection, Shim, ShimError},
};

/// Between two attempts to replace a shim that is gone.
const AGAIN: Duration = Duration::from_secs(1);

/// Listens to the sandbox's shim from now on. When this returns, what the shim knew is known.
pub(crate) async fn keep(engine: &Engine, sandbox: Arc<Sandbox>) {
    let listening = listen(engine, &sandbox).await;
    let (parts, sandbox) = (Arc::downgrade(&engine.parts), Arc::downgrade(&sandbox));
    tokio::spawn(follow(parts, sandbox, listening));
}

/// The task of one sandbox. It ends with the sandbox or with the engine.
async fn follow(parts: Weak<Parts>, sandbox: Weak<Sandbox>, mut listening: Option<Connection>) {
    loop {
        match &mut listening {
            Some(connection) => {
                let answer = connection.answer().await;
                let Some((engine, sandbox)) = upgrade(&parts, &sandbox) else { return };
                match answer {
                    Ok(Answer::Started { id } | Answer::Ended { id, .. }) if !id.is_empty() => {
                        if let Ok(container) = engine.container(&id) {
                            engine.refresh(&container);
                        }
                    }
                    // The process that held the pod together.
                    Ok(Answer::Ended { .. }) => engine.tell_sandbox_stopped(&sandbox),
                    Ok(_) => {}
                    Err(_) => listening = None,
                }
            }
            None => {
                let Some((engine, sandbox)) = upgrade(&parts, &sandbox) else { return };
                if sandbox.is_leaving() {
                    return;
                }
                listening = listen(&engine, &sandbox).await;
                drop((engine, sandbox));
                if listening.is_none() {
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }
}

fn upgrade(parts: &Weak<Parts>, sandbox: &Weak<Sandbox>) -> Option<(Engine, Arc<Sandbox>)> {
    Some((Engine { parts: parts.upgrade()? }, sandbox.upgrade()?))
}

/// Connects to the shim, or starts another in its place.
async fn listen(engine: &Engine, sandbox: &Arc<Sandbox>) -> Option<Connection> {
    let shim = Shim::of(&sandbox.dir);
    match watch(&shim).await {
        Ok(connection) => {
            for container in engine.containers_of(&sandbox.id) {
                engine.refresh(&container);
            }
            return Some(connection);
        }
        // It may well be there.
        Err(ShimError::Gone(error)) if is_shortage(&error) => {
            tracing::warn!(sandbox = sandbox.id, %error, "the shim of a pod cannot be asked; it is tried again");
            return None;
        }
        Err(_) => {}
    }
    match replace(engine, sandbox).await {
        Ok(connection) => connection,
        Err(error) => {
            tracing::warn!(sandbox = sandbox.id, %error, "the shim of a pod is gone and cannot be replaced; it is tried again");
            None
        }
    }
}

async fn watch(shim: &Shim) -> Result<Connection, ShimError> {
    let mut connection = shim.ask(&Request::Watch, &[]).await?;
    connection.done().await?;
    Ok(connection)
}

/// A new shim, which adopts what still runs. What was about to start when the old one went is ended: nobody would ever know of it.
async fn replace(engine: &Engine, sandbox: &Arc<Sandbox>) -> Result<Option<Connection>, ShimError> {
    let containers = engine.containers_of(&sandbox.id);
    let mut running = Vec::new();
    for container in &containers {
        match container.handle_without_shim()? {
            Some(handle) => running.push((container.id.clone(), handle)),
            None => {
                let cgroup = container.cgroup();
                engine.blocking(move |parts| parts.cgroups.kill(&cgroup)).await;
                engine.lost(container);
            }
        }
    }
    if sandbox.is_stopped() && running.is_empty() {
        return Ok(None);
    }
    tracing::warn!(
        sandbox = sandbox.id,
        containers = running.len(),
        "the shim of a pod is gone; another takes its place"
    );
    let shim = engine.parts.launcher.launch(&sandbox.dir)?;
    let connection = watch(&shim).await?;
    let ids = running.iter().map(|(id, _)| id.clone()).collect();
    let handles: Vec<_> = running.iter().map(|(_, handle)| handle.as_fd()).collect();
    shim.done(&Request::Adopt { ids }, &handles).await?;
    Ok(Some(connection))
}
