//! Keeping a shim for every sandbox, and hearing from it.

use std::{
    io,
    os::fd::AsFd,
    sync::{Arc, Weak},
    time::Duration,
};

use keelet_linux::{is_resource_shortage, pidfd};
use keelet_shim::{
    protocol::{Answer, Request},
    wire::MOST_FDS,
};

use crate::{
    container::Container,
    engine::{Engine, Parts},
    records,
    sandbox::Sandbox,
    shim::{Connection, Ended, Shim, ShimError},
};

/// Between two attempts to replace a shim that is gone.
const AGAIN: Duration = Duration::from_secs(1);

/// Listens to the sandbox's shim from now on. When this returns, what the shim knew is known, unless it does not answer: then
/// it is listened to as soon as it does.
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
                    Ok(Answer::Started { id }) => {
                        if let Ok(container) = engine.container(&id) {
                            engine.refresh(&container);
                        }
                    }
                    Ok(Answer::Ended { id, exit }) if !id.is_empty() => {
                        if let Ok(container) = engine.container(&id) {
                            engine.ended(&container, exit);
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
    match watched(engine, sandbox).await {
        Ok(connection) => connection,
        // It may well be there.
        Err(ShimError::Gone(error)) if is_resource_shortage(&error) => {
            tracing::warn!(sandbox = sandbox.id, %error, "cannot connect to shim: out of resources; retrying");
            None
        }
        Err(error @ (ShimError::Late | ShimError::Exhausted)) => {
            tracing::warn!(sandbox = sandbox.id, %error, "shim does not answer; retrying");
            None
        }
        Err(error) => {
            tracing::warn!(sandbox = sandbox.id, %error, "cannot replace exited shim; retrying");
            None
        }
    }
}

async fn watched(engine: &Engine, sandbox: &Arc<Sandbox>) -> Result<Option<Connection>, ShimError> {
    let shim = sandbox.shim();
    // Asked for before the shim is: what was gone by then the shim knows, or its exit status is unknown.
    let gone: Vec<_> = engine.containers_of(&sandbox.id).into_iter().filter(|container| container.is_gone()).collect();
    let (connection, ended) = match shim.watch().await {
        Err(ShimError::Gone(error)) if is_resource_shortage(&error) => return Err(error.into()),
        // It runs. A second shim of the pod would be one too many.
        Err(error @ (ShimError::Late | ShimError::Exhausted)) => return Err(error),
        Err(_) => match replace(engine, sandbox).await? {
            Some(watched) => watched,
            None => return Ok(None),
        },
        Ok(watched) => watched,
    };
    agree(engine, sandbox, &shim, ended).await?;
    for container in gone.iter().filter(|container| container.is_running()) {
        give_up(engine, container).await?;
    }
    Ok(Some(connection))
}

/// A new shim. What was about to start when the old one went is ended: no shim would ever know of it.
async fn replace(engine: &Engine, sandbox: &Arc<Sandbox>) -> Result<Option<(Connection, Vec<Ended>)>, ShimError> {
    let mut running = 0;
    // No shim can work on a directory that is gone. What runs goes on until it is stopped; then this is how its end is known.
    if !records::is_sandbox(&sandbox.dir) {
        for container in engine.containers_of(&sandbox.id) {
            let handle = container.handle_without_shim()?;
            if handle.is_none_or(pidfd::has_exited) {
                give_up(engine, &container).await?;
            }
        }
        return Ok(None);
    }
    for container in engine.containers_of(&sandbox.id) {
        match container.handle_without_shim()? {
            Some(_) => running += 1,
            None => give_up(engine, &container).await?,
        }
    }
    if sandbox.is_stopped() && running == 0 {
        return Ok(None);
    }
    tracing::warn!(
        sandbox = sandbox.id,
        containers = running,
        "shim exited: starting another, which adopts the containers"
    );
    engine.parts.launcher.launch(&sandbox.dir)?.watch().await.map(Some)
}

/// The runtime learns what the shim knows, and the shim adopts all that runs: it may be a new one, or one whose server
/// was killed before it could say anything.
async fn agree(engine: &Engine, sandbox: &Sandbox, shim: &Shim, ended: Vec<Ended>) -> Result<(), ShimError> {
    for Ended { id, exit } in ended {
        if let Ok(container) = engine.container(&id) {
            engine.ended(&container, exit);
        }
    }
    let mut running = Vec::new();
    for container in engine.containers_of(&sandbox.id) {
        engine.refresh(&container);
        if let Some(handle) = container.handle_without_shim()? {
            running.push((container.id.clone(), handle));
        }
    }
    for some in running.chunks(MOST_FDS) {
        let ids = some.iter().map(|(id, _)| id.clone()).collect();
        let handles: Vec<_> = some.iter().map(|(_, handle)| handle.as_fd()).collect();
        match shim.done(&Request::Adopt { ids }, &handles).await {
            Err(ShimError::Refused(error)) => {
                tracing::warn!(
                    sandbox = sandbox.id,
                    error,
                    "the new shim cannot adopt all containers: output or exit statuses may be lost"
                );
            }
            other => other?,
        }
    }
    Ok(())
}

/// Ends what may be left of a container whose exit status is unknown. An error if its fate cannot be said yet.
async fn give_up(engine: &Engine, container: &Arc<Container>) -> io::Result<()> {
    let cgroup = container.cgroup();
    engine.blocking(move |parts| parts.cgroups.kill(&cgroup)).await;
    engine.lost(container)
}
