//! What belongs into a volume that the agent fills. Reads objects; writes nothing.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1;
use keelet_launch::{Data, DownwardError, NodeFacts, ObjectKind, TokenSource, downward_file};
use keelet_pod::Pod;

use super::Content;
use crate::objects::{ObjectError, ObjectStore};

/// The mode of files of which nothing is said.
const MODE: i32 = 0o644;
/// The mode of a token that belongs to a user or a group; the group gets to read it.
const TOKEN_MODE: i32 = 0o600;

/// Where contents come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContentSources<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) node: &'a NodeFacts,
    pub(crate) objects: &'a dyn ObjectStore,
}

/// The files of a volume, by their path in it.
pub(super) type Payload = BTreeMap<PathBuf, File>;

/// One file of a volume. Its `Debug` does not show what is in it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct File {
    pub(super) bytes: Vec<u8>,
    pub(super) mode: u32,
    /// The user that it belongs to, if it is not root.
    pub(super) owner: Option<u32>,
}

/// Part of an object, as files.
struct Part<'a> {
    kind: ObjectKind,
    name: &'a str,
    items: Option<&'a [v1::KeyToPath]>,
    mode: i32,
    optional: bool,
}

/// Why it is unknown what belongs into a volume. In the words of the kubelet, where it has words for it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContentError {
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error("{kind} {name:?} not found")]
    NotFound { kind: &'static str, name: String },
    #[error("configmap references non-existent config key: {0}")]
    NoConfigKey(String),
    #[error("references non-existent secret key: {0}")]
    NoSecretKey(String),
    #[error("projected source serviceAccountToken (path {path:?}): {error}")]
    Token { path: String, error: ObjectError },
    #[error("projected source {0}: it is not supported by this agent yet")]
    UnsupportedSource(ApiSource),
    #[error("file {path:?} {source}")]
    Downward { path: String, source: DownwardError },
    #[error("invalid path {} of a file in the volume", .0.display())]
    BadPath(PathBuf),
    #[error("{} cannot be a file, {} is below it", file.display(), below.display())]
    FileAndDirectory { file: PathBuf, below: PathBuf },
}

/// A source of a projected volume that comes from an API server, and that this agent does not have.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiSource {
    #[error("clusterTrustBundle (path {0:?})")]
    ClusterTrustBundle(String),
    #[error("podCertificate")]
    PodCertificate,
}

/// What belongs into a volume, or why that is unknown.
pub(super) fn payload(content: Content<'_>, sources: &ContentSources<'_>) -> Result<Payload, ContentError> {
    let mut payload = Payload::new();
    match content {
        Content::ConfigMap(source) => {
            let part = Part {
                kind: ObjectKind::ConfigMap,
                name: &source.name,
                items: source.items.as_deref(),
                mode: source.default_mode.unwrap_or(MODE),
                optional: source.optional == Some(true),
            };
            part.add(&mut payload, sources)?;
        }
        Content::Secret(source) => {
            let part = Part {
                kind: ObjectKind::Secret,
                name: source.secret_name.as_deref().unwrap_or_default(),
                items: source.items.as_deref(),
                mode: source.default_mode.unwrap_or(MODE),
                optional: source.optional == Some(true),
            };
            part.add(&mut payload, sources)?;
        }
        Content::Downward(source) => {
            let mode = source.default_mode.unwrap_or(MODE);
            downward(source.items.as_deref(), mode, &mut payload, sources)?;
        }
        Content::Projected(source) => {
            let mode = source.default_mode.unwrap_or(MODE);
            for source in source.sources.iter().flatten() {
                projection(source, mode, &mut payload, sources)?;
            }
        }
    }
    check_paths(&payload)?;
    Ok(payload)
}

fn projection(
    source: &v1::VolumeProjection,
    mode: i32,
    payload: &mut Payload,
    sources: &ContentSources<'_>,
) -> Result<(), ContentError> {
    if let Some(source) = &source.config_map {
        let optional = source.optional == Some(true);
        let items = source.items.as_deref();
        let part = Part { kind: ObjectKind::ConfigMap, name: &source.name, items, mode, optional };
        part.add(payload, sources)?;
    }
    if let Some(source) = &source.secret {
        let optional = source.optional == Some(true);
        let items = source.items.as_deref();
        let part = Part { kind: ObjectKind::Secret, name: &source.name, items, mode, optional };
        part.add(payload, sources)?;
    }
    if let Some(source) = &source.downward_api {
        downward(source.items.as_deref(), mode, payload, sources)?;
    }
    if let Some(source) = &source.service_account_token {
        let token = sources.objects.token(sources.pod, &TokenSource::of(source));
        let token = token.map_err(|error| ContentError::Token { path: source.path.clone(), error })?;
        payload.insert(source.path.clone().into(), token_file(token, mode, sources.pod));
    }
    if let Some(source) = &source.cluster_trust_bundle
        && source.optional != Some(true)
    {
        return Err(ContentError::UnsupportedSource(ApiSource::ClusterTrustBundle(source.path.clone())));
    }
    if source.pod_certificate.is_some() {
        return Err(ContentError::UnsupportedSource(ApiSource::PodCertificate));
    }
    Ok(())
}

/// A token is for the pod's one user, or its group, if it has one; else its mode decides, as for other files.
fn token_file(token: Vec<u8>, mode: i32, pod: &Pod) -> File {
    let group = pod.source.spec.as_ref().and_then(|spec| spec.security_context.as_ref()?.fs_group);
    let owner = one_user(pod);
    let mode = if owner.is_some() || group.is_some() { TOKEN_MODE } else { mode };
    File { owner, ..File::new(token, mode) }
}

/// The user that all containers of a pod run as, if its spec says so.
fn one_user(pod: &Pod) -> Option<u32> {
    let spec = pod.source.spec.as_ref()?;
    let of_pod = spec.security_context.as_ref().and_then(|context| context.run_as_user);
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let mut users = containers
        .map(|container| container.security_context.as_ref().and_then(|context| context.run_as_user).or(of_pod));
    let first = users.next()??;
    users.all(|user| user == Some(first)).then_some(first).and_then(|user| u32::try_from(user).ok())
}

fn downward(
    items: Option<&[v1::DownwardAPIVolumeFile]>,
    mode: i32,
    payload: &mut Payload,
    sources: &ContentSources<'_>,
) -> Result<(), ContentError> {
    for item in items.into_iter().flatten() {
        let text = downward_file(sources.pod, sources.node, item)
            .map_err(|source| ContentError::Downward { path: item.path.clone(), source })?;
        payload.insert(item.path.clone().into(), File::new(text.into_bytes(), item.mode.unwrap_or(mode)));
    }
    Ok(())
}

/// A path cannot be both a file and a directory. Neither may lead out of the volume, whatever validation has seen.
fn check_paths(payload: &Payload) -> Result<(), ContentError> {
    for path in payload.keys() {
        let plain = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if !plain || path.as_os_str().is_empty() || path.to_string_lossy().starts_with("..") {
            return Err(ContentError::BadPath(path.clone()));
        }
        let above = path.ancestors().skip(1).filter(|above| *above != Path::new(""));
        if let Some(file) = above.into_iter().find(|above| payload.contains_key(*above)) {
            return Err(ContentError::FileAndDirectory { file: file.to_owned(), below: path.clone() });
        }
    }
    Ok(())
}

// === impl Part ===

impl Part<'_> {
    fn add(&self, payload: &mut Payload, sources: &ContentSources<'_>) -> Result<(), ContentError> {
        let Some(data) = sources.objects.find(sources.pod, self.kind, self.name)? else {
            let (kind, name) = (self.kind.resource(), self.name.to_owned());
            return if self.optional { Ok(()) } else { Err(ContentError::NotFound { kind, name }) };
        };
        match self.items.filter(|items| !items.is_empty()) {
            None => {
                let files = data.into_iter().map(|(key, bytes)| (PathBuf::from(key), File::new(bytes, self.mode)));
                payload.extend(files);
                Ok(())
            }
            Some(items) => items.iter().try_for_each(|item| self.add_item(item, &data, payload)),
        }
    }

    fn add_item(&self, item: &v1::KeyToPath, data: &Data, payload: &mut Payload) -> Result<(), ContentError> {
        match data.get(&item.key) {
            Some(bytes) => {
                let file = File::new(bytes.clone(), item.mode.unwrap_or(self.mode));
                payload.insert(item.path.clone().into(), file);
                Ok(())
            }
            None if self.optional => Ok(()),
            None => Err(match self.kind {
                ObjectKind::ConfigMap => ContentError::NoConfigKey(item.key.clone()),
                ObjectKind::Secret => ContentError::NoSecretKey(item.key.clone()),
            }),
        }
    }
}

// === impl File ===

impl File {
    fn new(bytes: Vec<u8>, mode: i32) -> Self {
        Self { bytes, mode: mode.cast_unsigned() & 0o777, owner: None }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, mode, owner } = self;
        f.debug_struct("File").field("bytes", &bytes.len()).field("mode", mode).field("owner", owner).finish()
    }
}

#[cfg(test)]
mod tests {
    use keelet_pod::{Features, Origin, Strictness, read_manifest};

    use super::*;

    /// `conf` has a, b; `keys` has token.
    #[derive(Debug)]
    struct Store;

    impl ObjectStore for Store {
        fn find(&self, pod: &Pod, kind: ObjectKind, name: &str) -> Result<Option<Data>, ObjectError> {
            let data = |pairs: &[(&str, &str)]| {
                pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
            };
            Ok(match (kind, pod.namespace.as_str(), name) {
                (ObjectKind::ConfigMap, "shop", "conf") => Some(data(&[("a", "1"), ("b", "2")])),
                (ObjectKind::Secret, "shop", "keys") => Some(data(&[("token", "t")])),
                (_, _, "broken") => return Err(ObjectError::Manifest(vec!["file x: broken".to_owned()])),
                _ => None,
            })
        }
    }

    fn of(volume: &str) -> Result<Vec<String>, ContentError> {
        let manifest = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: shop, uid: u, labels: {{b: z, a: x}}, annotations: {{n: 'q\"'}}}}\nspec:\n  \
             containers: [{{name: main, image: x, resources: {{limits: {{cpu: 2}}}}}}]\n  volumes: [{{name: v, {volume}}}]\n"
        );
        // As an API server would give it, which takes more than a node can make.
        let (origin, features) = (Origin::file("pod.yaml"), Features::default());
        let report = read_manifest(manifest.as_bytes(), &origin, Strictness::ApiServer, &features);
        let pod = report.pods.into_iter().next().expect("a pod");
        let volumes = pod.source.spec.as_ref().unwrap().volumes.clone().unwrap();
        let sources = ContentSources { pod: &pod, node: &NodeFacts::default(), objects: &Store };
        let payload = payload(Content::of(&volumes[0]).unwrap(), &sources)?;
        let show = |(path, file): (&PathBuf, &File)| {
            format!("{} {:o} {}", path.display(), file.mode, String::from_utf8_lossy(&file.bytes))
        };
        Ok(payload.iter().map(show).collect())
    }

    /// CLU-31: a file of a volume may be a secret or a token.
    #[test]
    fn what_is_in_a_file_is_not_printed() {
        let shown = format!("{:?}", File::new(b"hush".to_vec(), 0o600));
        assert_eq!(shown, "File { bytes: 4, mode: 384, owner: None }");
    }

    #[test]
    fn a_volume_holds_what_its_sources_say() {
        let cases: [(&str, &[&str]); 11] = [
            ("configMap: {name: conf}", &["a 644 1", "b 644 2"]),
            ("configMap: {name: conf, defaultMode: 0400}", &["a 400 1", "b 400 2"]),
            ("configMap: {name: conf, items: [{key: b, path: x/y, mode: 0600}]}", &["x/y 600 2"]),
            ("configMap: {name: none, optional: true}", &[]),
            ("configMap: {name: conf, optional: true, items: [{key: z, path: z}, {key: a, path: a}]}", &["a 644 1"]),
            ("secret: {secretName: keys}", &["token 644 t"]),
            ("secret: {secretName: none, optional: true}", &[]),
            (
                "downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}, {path: a, fieldRef: {fieldPath: metadata.annotations}}, \
                 {path: name, mode: 0444, fieldRef: {fieldPath: metadata.name}}, \
                 {path: cpu, resourceFieldRef: {containerName: main, resource: limits.cpu}}]}",
                &["a 644 n=\"q\\\"\"", "cpu 644 2", "l 644 a=\"x\"\nb=\"z\"", "name 444 web"],
            ),
            (
                "projected: {defaultMode: 0440, sources: [{configMap: {name: conf, items: [{key: a, path: c/a}]}}, \
                 {secret: {name: keys}}, {downwardAPI: {items: [{path: ns, fieldRef: {fieldPath: metadata.namespace}}]}}]}",
                &["c/a 440 1", "ns 440 shop", "token 440 t"],
            ),
            (
                "projected: {sources: [{secret: {name: none, optional: true}}, {configMap: {name: conf}}]}",
                &["a 644 1", "b 644 2"],
            ),
            ("projected: {sources: [{clusterTrustBundle: {name: x, path: ca, optional: true}}]}", &[]),
        ];
        for (volume, files) in cases {
            assert_eq!(of(volume).unwrap(), files, "{volume}");
        }
    }

    /// CLU-30: a token is readable for the pod's one user, or its group; without either, as its volume says.
    #[test]
    fn a_token_is_for_the_user_or_the_group_of_its_pod() {
        for (spec, owner, mode) in [
            ("containers: [{name: a, image: x}]", None, 0o644),
            ("securityContext: {fsGroup: 7}, containers: [{name: a, image: x}]", None, 0o600),
            ("securityContext: {runAsUser: 5}, containers: [{name: a, image: x}]", Some(5), 0o600),
            ("containers: [{name: a, image: x, securityContext: {runAsUser: 5}}, {name: b, image: x}]", None, 0o644),
            (
                "securityContext: {runAsUser: 6}, containers: [{name: a, image: x, securityContext: {runAsUser: 5}}, {name: b, image: x}]",
                None,
                0o644,
            ),
            (
                "securityContext: {runAsUser: 6}, initContainers: [{name: i, image: x, securityContext: {runAsUser: 5}}], \
                 containers: [{name: a, image: x, securityContext: {runAsUser: 5}}]",
                Some(5),
                0o600,
            ),
        ] {
            let manifest = format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: shop, uid: u}}\nspec: {{{spec}}}\n"
            );
            let pod = keelet_pod::parse_one(&manifest).unwrap();
            let file = token_file(b"t".to_vec(), 0o644, &pod);
            assert_eq!((file.owner, file.mode), (owner, mode), "{spec}");
        }
    }

    /// In the words of the kubelet, where it has words for it.
    #[test]
    fn what_is_missing_is_named() {
        for (volume, words) in [
            ("configMap: {name: none}", "configmap \"none\" not found"),
            ("secret: {secretName: none}", "secret \"none\" not found"),
            ("configMap: {name: conf, items: [{key: z, path: z}]}", "configmap references non-existent config key: z"),
            ("secret: {secretName: keys, items: [{key: z, path: z}]}", "references non-existent secret key: z"),
            ("configMap: {name: broken, optional: true}", "file x: broken"),
            ("projected: {sources: [{secret: {name: none}}]}", "secret \"none\" not found"),
            (
                "projected: {sources: [{serviceAccountToken: {path: token}}]}",
                "projected source serviceAccountToken (path \"token\"): it needs an API server, and this pod does not come from one",
            ),
            (
                "projected: {sources: [{clusterTrustBundle: {name: x, path: ca}}]}",
                "projected source clusterTrustBundle (path \"ca\"): it is not supported by this agent yet",
            ),
            (
                "configMap: {name: conf, items: [{key: a, path: x}, {key: b, path: x/y}]}",
                "x cannot be a file, x/y is below it",
            ),
            (
                "downwardAPI: {items: [{path: cpu, resourceFieldRef: {containerName: nobody, resource: limits.cpu}}]}",
                "file \"cpu\" refers to container \"nobody\", which the pod does not have",
            ),
        ] {
            assert_eq!(of(volume).unwrap_err().to_string(), words, "{volume}");
        }
    }
}
