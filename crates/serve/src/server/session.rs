//! Sessions in containers: the runtime prepares them, and the client connects to the address it gave.

use std::sync::Arc;

use axum::{
    Json,
    body::Bytes,
    extract::{Path, State},
    http::Uri,
};
use keelet_agent::board::Published;
use keelet_cri::v1;
use keelet_launch::labels::{CONTAINER_NAME, POD_UID};
use keelet_lifecycle::status::ContainerState;

use super::{
    Local,
    failure::{Refusal, bad_request},
    pods::no_query,
};
use crate::api::{ExecSession, Session};

/// The annotation that names the container meant by a request that names none, as kubectl has it.
const USUAL_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

pub(super) async fn exec(
    State(local): State<Arc<Local>>,
    Path((namespace, name)): Path<(String, String)>,
    uri: Uri,
    body: Bytes,
) -> Result<Json<Session>, Refusal> {
    no_query(&uri)?;
    let asked: ExecSession =
        serde_json::from_slice(&body).map_err(|error| bad_request(format!("not a command: {error}")))?;
    let published = local.pod(&namespace, &name)?;
    let container = match asked.container {
        Some(container) if published.pod.all_containers().any(|known| known.name == container) => container,
        Some(container) => {
            let known: Vec<_> = published.pod.all_containers().map(|known| known.name.as_str()).collect();
            let known = known.join(", ");
            return Err(bad_request(format!("pod {name} has no container {container:?}; it has {known}")));
        }
        None => usual_container(&published),
    };
    let container_id = running(&local, &published, &container).await?;
    let url = local.runtime().exec(v1::ExecRequest {
        container_id,
        cmd: asked.command,
        tty: asked.tty,
        stdin: asked.stdin,
        stdout: true,
        stderr: !asked.tty,
    });
    Ok(Json(Session { url: url.await?, container }))
}

pub(super) async fn port_forward(
    State(local): State<Arc<Local>>,
    Path((namespace, name)): Path<(String, String)>,
    uri: Uri,
) -> Result<Json<Session>, Refusal> {
    no_query(&uri)?;
    let published = local.pod(&namespace, &name)?;
    let sandbox = sandbox(&local, &published).await?;
    let url = local.runtime().port_forward(&sandbox, &[]).await?;
    Ok(Json(Session { url, container: String::new() }))
}

/// The ID of the sandbox that a pod runs in.
pub(super) async fn sandbox(local: &Local, published: &Published) -> Result<String, Refusal> {
    let labels = [(POD_UID.to_owned(), published.pod.uid.clone())];
    let state = v1::PodSandboxStateValue { state: v1::PodSandboxState::SandboxReady.into() };
    let filter =
        v1::PodSandboxFilter { label_selector: labels.into(), state: Some(state), ..v1::PodSandboxFilter::default() };
    let sandboxes = local.runtime().list_pod_sandbox(Some(filter)).await?;
    let newest = sandboxes.into_iter().max_by_key(|sandbox| sandbox.created_at);
    let missing = || not_running(format!("pod {:?} has no running sandbox", published.pod.name));
    newest.map(|sandbox| sandbox.id).ok_or_else(missing)
}

/// The one its annotation names, or the first that is no init container.
fn usual_container(published: &Published) -> String {
    let annotations = published.pod.source.metadata.annotations.as_ref();
    let named = annotations.and_then(|annotations| annotations.get(USUAL_CONTAINER)).cloned();
    let known = |name: &String| published.pod.all_containers().any(|container| container.name == *name);
    let spec = published.pod.source.spec.as_ref();
    let first = || spec.and_then(|spec| spec.containers.first()).map(|container| container.name.clone());
    named.filter(known).or_else(first).unwrap_or_default()
}

/// The ID of the container's present instance.
pub(super) async fn running(local: &Local, published: &Published, container: &str) -> Result<String, Refusal> {
    let labels = [(POD_UID.to_owned(), published.pod.uid.clone()), (CONTAINER_NAME.to_owned(), container.to_owned())];
    let state = v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() };
    let filter =
        v1::ContainerFilter { label_selector: labels.into(), state: Some(state), ..v1::ContainerFilter::default() };
    let found = local.runtime().list_containers(Some(filter)).await?;
    let newest = found.into_iter().max_by_key(|container| container.created_at);
    let missing = || {
        let status = published.status.container(container);
        let reason = status.and_then(|status| match &status.state {
            ContainerState::Waiting(waiting) => Some(&waiting.reason),
            ContainerState::Terminated(ended) => Some(&ended.reason),
            ContainerState::Running(_) => None,
        });
        let reason = reason.filter(|reason| !reason.is_empty()).map(|reason| format!(" ({reason})"));
        let (pod, reason) = (&published.pod.name, reason.unwrap_or_default());
        not_running(format!("container {container:?} in pod {pod:?} is not running{reason}"))
    };
    newest.map(|container| container.id).ok_or_else(missing)
}

fn not_running(message: String) -> Refusal {
    Refusal::new(409, "Conflict", message)
}
