//! Noticing sandboxes that other programs have damaged: their network or their files are gone.
//!
//! No event reports it to the runtime, so the runtime checks, as rarely as an agent observes a pod at rest. A sandbox
//! that has lost something is not ready any more, and says what is missing; the agent that runs pods replaces it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::Duration,
};

use keelet_shim::protocol::SOCKET;

use crate::{
    engine::{Engine, Parts},
    records::RECORD,
    sandbox::Sandbox,
    spec::{HOSTNAME, HOSTS, RESOLV_CONF},
};

/// Between two checks: as long as an agent leaves a pod at rest.
const PERIOD: Duration = Duration::from_secs(30);

/// What is missing is checked once more after this: a socket, for one, is missing for a moment when a shim is replaced.
const AGAIN: Duration = Duration::from_secs(1);

/// Checks at once, and from then on for as long as the engine is there.
pub(crate) async fn start(engine: &Engine) {
    check(engine).await;
    tokio::spawn(go_on(Arc::downgrade(&engine.parts)));
}

async fn go_on(parts: Weak<Parts>) {
    loop {
        tokio::time::sleep(PERIOD).await;
        let Some(parts) = parts.upgrade() else { return };
        check(&Engine { parts }).await;
    }
}

async fn check(engine: &Engine) {
    let suspects = missing(engine).await;
    if suspects.is_empty() {
        return;
    }
    tokio::time::sleep(AGAIN).await;
    let found = missing(engine).await;
    if let Err(error) = engine.make_places() {
        tracing::warn!(%error, "cannot recreate deleted runtime directory");
    }
    for (id, missing) in found.into_iter().filter(|(id, _)| suspects.contains_key(id)) {
        // It may have been stopped while it was read.
        let Ok(sandbox) = engine.sandbox(&id) else { continue };
        if sandbox.is_ready() && sandbox.lose(missing.clone()) {
            tracing::error!(sandbox = id, missing, "sandbox lost: another program removed a part of it");
            engine.tell_sandbox_stopped(&sandbox);
        }
    }
}

/// What is missing of sandboxes that should be whole, by their IDs. What cannot be asked is not missing.
async fn missing(engine: &Engine) -> BTreeMap<String, String> {
    let ready: Vec<_> = engine.sandboxes().into_iter().filter(|sandbox| sandbox.is_ready()).collect();
    let networks: BTreeMap<_, _> =
        ready.iter().filter_map(|sandbox| Some((sandbox.id.clone(), sandbox.own_network()?))).collect();
    let mut found = match engine.parts.network.missing(networks).await {
        Ok(found) => found,
        Err(error) => {
            tracing::debug!(%error, "cannot check the networks of pods; retrying");
            BTreeMap::new()
        }
    };
    let files = engine.blocking(move |parts| {
        let place = parts.settings.pod_files();
        let gone = |sandbox: &Arc<Sandbox>| Some((sandbox.id.clone(), missing_file(sandbox, &place)?));
        ready.iter().filter_map(gone).collect::<BTreeMap<_, _>>()
    });
    // Files come first: a program that removes those of a sandbox has often removed its network on the way.
    found.extend(files.await);
    found
}

fn missing_file(sandbox: &Sandbox, pod_files: &Path) -> Option<String> {
    let of_server = [RECORD, SOCKET].map(|name| sandbox.dir.join(name));
    let of_pod = [HOSTNAME, HOSTS, RESOLV_CONF].map(|name| pod_files.join(&sandbox.id).join(name));
    let is_gone = |path: &&PathBuf| matches!(path.try_exists(), Ok(false));
    let first = of_server.iter().chain(&of_pod).find(is_gone)?;
    Some(format!("its file {} is gone", first.display()))
}
