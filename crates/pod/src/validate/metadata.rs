//! `metadata`: names, labels, annotation keys.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{
    names,
    path::FieldPath,
    problem::{invalid, quoted, required},
    review::Review,
};

use super::name;

/// All annotations of an object together, keys and values.
const MAX_ANNOTATIONS: usize = 256 << 10;

/// A UID has 36 characters. The limit leaves room for a prefix and a suffix in a file name.
const LONGEST_UID: usize = 128;

/// Checks what the API server checks of a pod's metadata.
pub(super) fn check(metadata: &ObjectMeta, review: &mut Review<'_>) {
    let path = FieldPath::root().field("metadata");
    let named = path.field("name");
    match metadata.name.as_deref().unwrap_or_default() {
        "" if metadata.generate_name.is_some() => {
            review.refuse(&named, required("generateName is for API servers; a pod in a manifest needs a name"));
        }
        "" => review.refuse(&named, required("")),
        given => name(review, &named, given, names::dns_subdomain),
    }
    if let Some(namespace) = &metadata.namespace {
        name(review, &path.field("namespace"), namespace, names::dns_label);
    }
    if let Some(uid) = metadata.uid.as_deref().filter(|uid| !uid.is_empty())
        && !(uid.len() <= LONGEST_UID && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'))
    {
        // The UID becomes the name of directories and cgroups, whatever the origin of the pod.
        let message = format!("must consist of letters, digits and '-', at most {LONGEST_UID} of them");
        review.refuse(&path.field("uid"), invalid(quoted(uid), message));
    }
    for (key, value) in metadata.labels.iter().flatten() {
        let path = path.field("labels").key(key);
        if let Err(why) = names::qualified(key) {
            review.object(&path, invalid(quoted(key), why));
        }
        if let Err(why) = names::label_value(value) {
            review.object(&path, invalid(quoted(value), why));
        }
    }
    let mut size = 0;
    for (key, value) in metadata.annotations.iter().flatten() {
        // The API server accepts an upper-case prefix here, for compatibility.
        if let Err(why) = names::qualified(&key.to_lowercase()) {
            review.object(&path.field("annotations").key(key), invalid(quoted(key), why));
        }
        size += key.len() + value.len();
    }
    if size > MAX_ANNOTATIONS {
        let message = format!("all annotations together must have at most {MAX_ANNOTATIONS} bytes");
        review.object(&path.field("annotations"), invalid(size, message));
    }
}
