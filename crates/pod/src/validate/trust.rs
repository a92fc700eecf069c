//! What only pods written by root of the node may ask for.

use k8s_openapi::api::core::v1;

use crate::{
    Trust,
    path::FieldPath,
    problem::{invalid, quoted},
    review::Review,
};

/// The prefix of an image that is a directory of the node.
pub const DIRECTORY_IMAGE: &str = "rootfs:/";

/// Refuses images that are directories of the node in pods from an API server. No sensible reading is left, so the pod
/// is refused although an API server accepted it.
pub(super) fn check(spec: &v1::PodSpec, path: &FieldPath, review: &mut Review<'_>) {
    match review.trust() {
        Trust::Node => return,
        Trust::Cluster => {}
    }
    let mut image = |path: FieldPath, image: Option<&String>| {
        if let Some(image) = image.filter(|image| image.trim_start().starts_with(DIRECTORY_IMAGE)) {
            let message = "a directory of the node can be an image only for a manifest on the node, not for a pod from an API server";
            review.refuse(&path, invalid(quoted(image), message));
        }
    };
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        image(path.field("initContainers").index(index).field("image"), container.image.as_ref());
    }
    for (index, container) in spec.containers.iter().enumerate() {
        image(path.field("containers").index(index).field("image"), container.image.as_ref());
    }
    for (index, container) in spec.ephemeral_containers.iter().flatten().enumerate() {
        image(path.field("ephemeralContainers").index(index).field("image"), container.image.as_ref());
    }
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let reference = volume.image.as_ref().and_then(|source| source.reference.as_ref());
        image(path.field("volumes").index(index).field("image").field("reference"), reference);
    }
}
