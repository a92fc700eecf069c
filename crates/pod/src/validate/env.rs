//! `env` and `envFrom`.

use k8s_openapi::api::core::v1;

use crate::{
    names,
    path::FieldPath,
    problem::{forbidden, invalid, quoted, required, unsupported},
    review::Review,
};

use super::{name, present, resources};

/// The pod fields that a variable may refer to, besides `metadata.labels['x']` and the like.
const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Checks the environment of a container.
pub(super) fn check(raw: &v1::Container, path: &FieldPath, review: &mut Review<'_>) {
    for (index, variable) in raw.env.iter().flatten().enumerate() {
        let path = path.field("env").index(index);
        name(review, &path.field("name"), &variable.name, names::env);
        if let Some(source) = &variable.value_from {
            let path = path.field("valueFrom");
            if variable.value.as_deref().is_some_and(|value| !value.is_empty()) {
                review.object(&path, forbidden("may not be specified when value is not empty"));
            }
            check_source(source, &path, review);
        }
    }
    for (index, source) in raw.env_from.iter().flatten().enumerate() {
        let path = path.field("envFrom").index(index);
        if let Some(prefix) = source.prefix.as_deref().filter(|prefix| !prefix.is_empty()) {
            name(review, &path.field("prefix"), prefix, names::env);
        }
        exactly_one(
            &["configMapRef", "secretRef"],
            &[source.config_map_ref.is_some(), source.secret_ref.is_some()],
            &path,
            review,
        );
        if let Some(reference) = &source.config_map_ref {
            present(review, &path.field("configMapRef").field("name"), &reference.name);
        }
        if let Some(reference) = &source.secret_ref {
            present(review, &path.field("secretRef").field("name"), &reference.name);
        }
    }
}

fn check_source(source: &v1::EnvVarSource, path: &FieldPath, review: &mut Review<'_>) {
    let names = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
    let given = [
        source.field_ref.is_some(),
        source.resource_field_ref.is_some(),
        source.config_map_key_ref.is_some(),
        source.secret_key_ref.is_some(),
        source.file_key_ref.is_some(),
    ];
    exactly_one(&names, &given, path, review);
    if let Some(reference) = &source.field_ref {
        check_field(&reference.field_path, &path.field("fieldRef").field("fieldPath"), review);
    }
    if let Some(reference) = &source.resource_field_ref {
        let path = path.field("resourceFieldRef");
        present(review, &path.field("resource"), &reference.resource);
        resources::divisor(reference, &path, review);
    }
    if let Some(reference) = &source.config_map_key_ref {
        let path = path.field("configMapKeyRef");
        present(review, &path.field("name"), &reference.name);
        present(review, &path.field("key"), &reference.key);
    }
    if let Some(reference) = &source.secret_key_ref {
        let path = path.field("secretKeyRef");
        present(review, &path.field("name"), &reference.name);
        present(review, &path.field("key"), &reference.key);
    }
}

fn check_field(field: &str, path: &FieldPath, review: &mut Review<'_>) {
    let subscript = field
        .strip_prefix("metadata.labels['")
        .or_else(|| field.strip_prefix("metadata.annotations['"))
        .and_then(|rest| rest.strip_suffix("']"));
    if field.is_empty() {
        review.object(path, required(""));
    } else if let Some(key) = subscript {
        if let Err(why) = names::qualified(key) {
            review.object(path, invalid(quoted(field), why));
        }
    } else if !FIELDS.contains(&field) {
        let mut detail = unsupported(field, &FIELDS);
        detail.message.push_str(", metadata.labels['<key>'], metadata.annotations['<key>']");
        review.object(path, detail);
    }
}

fn exactly_one(names: &[&str], given: &[bool], path: &FieldPath, review: &mut Review<'_>) {
    match given.iter().filter(|given| **given).count() {
        1 => {}
        0 => review.object(path, required(format!("must specify one of {}", names.join(", ")))),
        _ => review.object(path, forbidden(format!("may not have more than one of {}", names.join(", ")))),
    }
}
