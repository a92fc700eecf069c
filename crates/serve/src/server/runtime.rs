//! What the runtime has: containers and images.

use std::{collections::BTreeMap, io, sync::Arc};

use axum::{
    Json,
    body::Body,
    extract::{Path, State},
    http::{StatusCode, Uri},
};
use futures::TryStreamExt;
use jiff::Timestamp;
use keelet_cri::v1::{self, ContainerState};
use keelet_launch::labels;
use serde::Deserialize;
use tokio_util::io::StreamReader;

use super::{
    Local,
    failure::{Refusal, not_found},
    pods::{no_query, query},
};
use crate::api::{Container, Image, Imported, List};

/// Namespace, name and UID of the pod that something was made for.
pub(super) fn identity(given: &BTreeMap<String, String>) -> (String, String, String) {
    let label = |name: &str| given.get(name).cloned().unwrap_or_default();
    (label(labels::POD_NAMESPACE), label(labels::POD_NAME), label(labels::POD_UID))
}

pub(super) async fn containers(State(local): State<Arc<Local>>, uri: Uri) -> Result<Json<List<Container>>, Refusal> {
    no_query(&uri)?;
    let (containers, images) = tokio::join!(local.runtime().list_containers(None), local.runtime().list_images());
    let mut items: Vec<Container> = containers?.into_iter().map(container).collect();
    // A runtime may know a container's image by its ID alone.
    let images = images.unwrap_or_default();
    for item in &mut items {
        let known = images.iter().find(|image| image.id == item.image).and_then(|image| image.repo_tags.first());
        if let Some(tag) = known {
            item.image.clone_from(tag);
        }
    }
    items.sort_by(|a, b| {
        let key = |c: &Container| (c.namespace.clone(), c.pod.clone(), c.name.clone(), c.attempt);
        key(a).cmp(&key(b))
    });
    Ok(Json(List { items }))
}

fn container(found: v1::Container) -> Container {
    let (namespace, pod, pod_uid) = identity(&found.labels);
    let metadata = found.metadata.unwrap_or_default();
    let spec = found.image.unwrap_or_default();
    let state = match ContainerState::try_from(found.state) {
        Ok(ContainerState::ContainerCreated) => "Created",
        Ok(ContainerState::ContainerRunning) => "Running",
        Ok(ContainerState::ContainerExited) => "Exited",
        Ok(ContainerState::ContainerUnknown) | Err(_) => "Unknown",
    };
    Container {
        id: found.id,
        name: metadata.name,
        namespace,
        pod,
        pod_uid,
        sandbox_id: found.pod_sandbox_id,
        image: if spec.user_specified_image.is_empty() { spec.image } else { spec.user_specified_image },
        image_ref: found.image_ref,
        state: state.to_owned(),
        attempt: metadata.attempt,
        created_at: Timestamp::from_nanosecond(found.created_at.into()).ok().map(|time| time.to_string()),
    }
}

pub(super) async fn images(State(local): State<Arc<Local>>, uri: Uri) -> Result<Json<List<Image>>, Refusal> {
    no_query(&uri)?;
    let mut items: Vec<Image> = local.runtime().list_images().await?.into_iter().map(image).collect();
    items.sort_by(|a, b| (&a.tags, &a.digests, &a.id).cmp(&(&b.tags, &b.digests, &b.id)));
    Ok(Json(List { items }))
}

fn image(found: v1::Image) -> Image {
    Image { id: found.id, tags: found.repo_tags, digests: found.repo_digests, size: found.size, pinned: found.pinned }
}

/// How an image is removed.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RemoveQuery {
    force: bool,
}

pub(super) async fn remove_image(
    State(local): State<Arc<Local>>,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<StatusCode, Refusal> {
    let RemoveQuery { force } = query(&uri)?;
    let found = local.runtime().image_status(&name).await?;
    let found = found.ok_or_else(|| not_found(format!("image {name:?} not found on this node")))?;
    if !force {
        let users = local.runtime().list_containers(None).await?;
        let uses = |container: &v1::Container| {
            let named = container.image.as_ref().map(|image| image.image.as_str());
            let refs = [Some(container.image_ref.as_str()), Some(container.image_id.as_str()), named];
            let is_it =
                |name: &str| name == found.id || found.repo_tags.iter().chain(&found.repo_digests).any(|n| n == name);
            refs.into_iter().flatten().any(|name| !name.is_empty() && is_it(name))
        };
        if let Some(user) = users.into_iter().find(uses).map(container) {
            let Container { namespace, pod, name: container, .. } = user;
            let message = format!(
                "image {name:?} is used by container {container:?} of pod {namespace}/{pod}; --force removes it all the same"
            );
            return Err(Refusal::new(409, "Conflict", message));
        }
    }
    local.runtime().remove_image(&found.id).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn import(State(local): State<Arc<Local>>, uri: Uri, body: Body) -> Result<Json<Imported>, Refusal> {
    no_query(&uri)?;
    let Some(store) = &local.images else {
        let version = local.runtime().version().await;
        let name = version.map_or_else(|_| local.runtime().endpoint().to_owned(), |version| version.runtime_name);
        let hint = match name.as_str() {
            "containerd" => "; use its own tool: ctr --namespace k8s.io images import FILE",
            "cri-o" => "; use its own tools, such as: skopeo copy docker-archive:FILE containers-storage:NAME",
            _ => "",
        };
        let message = format!("the runtime {name} takes no archives: CRI has no call for it{hint}");
        return Err(Refusal::new(501, "NotImplemented", message));
    };
    let archive = StreamReader::new(body.into_data_stream().map_err(io::Error::other));
    let images =
        store.import(Box::pin(archive)).await.map_err(|error| Refusal::new(422, "Invalid", error.to_string()))?;
    Ok(Json(Imported { images }))
}
