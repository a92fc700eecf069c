//! What a pod needs besides its images and its own files: config maps, secrets, tokens of its service account.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1;
use keelet_pod::Pod;

use super::{env, objects::ObjectKind};

/// A token of the pod's service account, as a projected volume asks for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenSource {
    /// The audience that accepts it; empty for the API server itself.
    pub audience: String,
    /// How long it is to last, in seconds.
    pub seconds: i64,
}

/// How long a token lasts if the pod says nothing: the default of the API.
const TOKEN_SECONDS: i64 = 3600;

/// The config maps and secrets that a pod refers to: in volumes, in variables of its containers, and for pulls. They are in the pod's
/// namespace.
pub fn pod_objects(pod: &Pod) -> BTreeSet<(ObjectKind, String)> {
    use ObjectKind::{ConfigMap, Secret};
    let mut found = BTreeSet::new();
    let Some(spec) = &pod.source.spec else { return found };
    for volume in spec.volumes.iter().flatten() {
        found.extend(volume.config_map.iter().map(|source| (ConfigMap, source.name.clone())));
        found.extend(volume.secret.iter().filter_map(|source| Some((Secret, source.secret_name.clone()?))));
    }
    for source in projected(spec) {
        found.extend(source.config_map.iter().map(|source| (ConfigMap, source.name.clone())));
        found.extend(source.secret.iter().map(|source| (Secret, source.name.clone())));
    }
    let lasting = spec.init_containers.iter().flatten().chain(&spec.containers);
    let names = lasting.map(|container| &container.name);
    let names = names.chain(spec.ephemeral_containers.iter().flatten().map(|container| &container.name));
    for name in names {
        found.extend(env::references(pod, name).into_iter().map(|reference| (reference.kind, reference.name)));
    }
    found.extend(spec.image_pull_secrets.iter().flatten().map(|reference| (Secret, reference.name.clone())));
    found.retain(|(_, name)| !name.is_empty());
    found
}

/// The tokens that a pod has in its volumes.
pub fn pod_tokens(pod: &Pod) -> BTreeSet<TokenSource> {
    let sources = pod.source.spec.iter().flat_map(projected);
    sources.filter_map(|source| source.service_account_token.as_ref()).map(TokenSource::of).collect()
}

fn projected(spec: &v1::PodSpec) -> impl Iterator<Item = &v1::VolumeProjection> {
    let volumes = spec.volumes.iter().flatten().filter_map(|volume| volume.projected.as_ref());
    volumes.flat_map(|source| source.sources.iter().flatten())
}

// === impl TokenSource ===

impl TokenSource {
    /// What a source of a projected volume asks for.
    pub fn of(source: &v1::ServiceAccountTokenProjection) -> Self {
        Self {
            audience: source.audience.clone().unwrap_or_default(),
            seconds: source.expiration_seconds.unwrap_or(TOKEN_SECONDS),
        }
    }
}

#[cfg(test)]
mod tests {
    use keelet_pod::{Features, Origin, Strictness, read_manifest};

    use super::*;

    fn pod(spec: &str) -> Pod {
        let manifest =
            format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: shop, uid: u}}\nspec: {spec}\n");
        let (origin, features) = (Origin::file("pod.yaml"), Features::default());
        let report = read_manifest(manifest.as_bytes(), &origin, Strictness::ApiServer, &features);
        report.pods.into_iter().next().expect("a pod")
    }

    /// CLU-31
    #[test]
    fn objects_of_a_pod_are_those_of_volumes_variables_and_pulls() {
        let main = |more: &str| format!("{{containers: [{{name: main, image: x{more}}}]}}");
        for (spec, expected) in [
            (main(""), vec![]),
            (main(", env: [{name: A, valueFrom: {configMapKeyRef: {name: c, key: k}}}]"), vec!["configmap c"]),
            (main(", env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k, optional: true}}}]"), vec!["secret s"]),
            (
                main(", envFrom: [{configMapRef: {name: c}}, {secretRef: {name: s}}, {configMapRef: {name: c}}]"),
                vec!["configmap c", "secret s"],
            ),
            (
                "{containers: [{name: main, image: x}], initContainers: [{name: first, image: x, envFrom: [{secretRef: {name: s}}]}]}"
                    .to_owned(),
                vec!["secret s"],
            ),
            (
                "{containers: [{name: main, image: x}], imagePullSecrets: [{name: pull}], volumes: [{name: a, configMap: {name: c}}, \
                 {name: b, secret: {secretName: s}}, {name: d, emptyDir: {}}, {name: e, projected: {sources: [{configMap: {name: d}}, \
                 {secret: {name: t}}, {downwardAPI: {items: [{path: n, fieldRef: {fieldPath: metadata.name}}]}}]}}]}"
                    .to_owned(),
                vec!["configmap c", "configmap d", "secret pull", "secret s", "secret t"],
            ),
        ] {
            let found: Vec<_> =
                pod_objects(&pod(&spec)).iter().map(|(kind, name)| format!("{} {name}", kind.resource())).collect();
            assert_eq!(found, expected, "{spec}");
        }
    }

    /// CLU-30
    #[test]
    fn tokens_of_a_pod_are_those_of_projected_volumes() {
        let spec = "{containers: [{name: main, image: x}], volumes: [{name: a, projected: {sources: [{serviceAccountToken: {path: t, \
                    expirationSeconds: 3607}}, {serviceAccountToken: {path: u, audience: vault}}]}}, {name: b, projected: {sources: \
                    [{serviceAccountToken: {path: v, expirationSeconds: 3607}}]}}]}";
        let token = |audience: &str, seconds| TokenSource { audience: audience.to_owned(), seconds };
        assert_eq!(pod_tokens(&pod(spec)), BTreeSet::from([token("", 3607), token("vault", 3600)]));
    }
}
