//! Sandboxes and containers that belong to no pod of this node: stopped as their pod would have been, and removed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use keelet_cri::v1;
use keelet_launch::labels::{POD_NAME, POD_TERMINATION_GRACE, POD_UID};

use crate::{manager::Mailbox, shared::Shared};

/// The API's default, for containers that do not say.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// What the runtime has of one pod that the agent does not know.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    sandboxes: Vec<String>,
    containers: Vec<v1::Container>,
}

// === impl Remains ===

impl Remains {
    /// Reports that this stays, and why.
    pub(crate) fn report_set_aside(&self, uid: &str) {
        let pod = self.containers.iter().find_map(|container| container.labels.get(POD_NAME));
        let (containers, sandboxes) = (self.containers.len(), self.sandboxes.len());
        tracing::error!(
            %uid, pod, containers, sandboxes,
            "pod is not in the ledger and may be of a manifest that cannot be read: keeping it as it is; fix or remove that manifest"
        );
    }
}

/// Searches the runtime once and reports to the mailbox what belongs to none of the known pods. Pods that are left in
/// the ledger are among them, also if the runtime has nothing of them.
pub(crate) async fn search(
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    known: BTreeSet<String>,
    left: BTreeSet<String>,
) {
    match find(&shared, &known, left).await {
        Ok(remains) if remains.is_empty() => {}
        Ok(remains) => mailbox.found(remains),
        Err(error) => tracing::debug!(%error, "cannot list orphaned containers; retrying"),
    }
}

async fn find(
    shared: &Shared,
    known: &BTreeSet<String>,
    left: BTreeSet<String>,
) -> Result<BTreeMap<String, Remains>, keelet_cri::Error> {
    let mut remains: BTreeMap<String, Remains> = left.into_iter().map(|uid| (uid, Remains::default())).collect();
    // Only what some agent made for a pod is ours to judge.
    let foreign = |labels: &BTreeMap<String, String>| labels.get(POD_UID).filter(|uid| !known.contains(*uid)).cloned();
    for sandbox in shared.runtime.list_pod_sandbox(None).await? {
        if let Some(uid) = foreign(&sandbox.labels) {
            remains.entry(uid).or_default().sandboxes.push(sandbox.id);
        }
    }
    for container in shared.runtime.list_containers(None).await? {
        if let Some(uid) = foreign(&container.labels) {
            remains.entry(uid).or_default().containers.push(container);
        }
    }
    // A pod of which nothing is left but files: the ledger and the runtime have both forgotten it.
    for uid in shared.host.pods_with_directories().await {
        if !known.contains(&uid) {
            remains.entry(uid).or_default();
        }
    }
    Ok(remains)
}

/// Stops and removes what is left of a pod.
pub(crate) async fn clear(shared: &Shared, uid: &str, remains: &Remains) {
    let (containers, sandboxes) = (remains.containers.len(), remains.sandboxes.len());
    tracing::info!(%uid, containers, sandboxes, "removing orphaned pod");
    let runtime = &shared.runtime;
    let stop = remains.containers.iter().map(|container| async move {
        if container.state == v1::ContainerState::ContainerRunning as i32
            && let Err(error) = runtime.stop_container(&container.id, grace(container)).await
        {
            tracing::warn!(container = %container.id, %error, "cannot stop orphaned container");
        }
    });
    join_all(stop).await;
    for sandbox in &remains.sandboxes {
        if let Err(error) = runtime.stop_pod_sandbox(sandbox).await {
            tracing::warn!(%sandbox, %error, "cannot stop orphaned sandbox");
            continue;
        }
        if let Err(error) = runtime.remove_pod_sandbox(sandbox).await {
            tracing::warn!(%sandbox, %error, "cannot remove orphaned sandbox");
        }
    }
    // Containers go with their sandbox; one without a sandbox goes by itself.
    for container in remains.containers.iter().filter(|c| !remains.sandboxes.contains(&c.pod_sandbox_id)) {
        if let Err(error) = runtime.remove_container(&container.id).await {
            tracing::debug!(container = %container.id, %error, "cannot remove orphaned container");
        }
    }
}

fn grace(container: &v1::Container) -> Duration {
    let seconds = container.annotations.get(POD_TERMINATION_GRACE).and_then(|seconds| seconds.parse().ok());
    seconds.map_or(DEFAULT_GRACE, Duration::from_secs)
}
