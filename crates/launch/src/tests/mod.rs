//! Pods in a few lines, and what a runtime would be asked for.

mod container;
mod environment;
mod mounts;
mod resources;
mod sandbox;
mod security;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use keelet_cri::v1;
use keelet_pod::{Features, Origin, Pod, Strictness, Switch, read_manifest};

use super::{
    ConfigError, IdRange, Image, NodeFacts, Objects, Placement, SubPath, container_config, sandbox_config, sub_paths,
    wants_recursive_read_only,
};

/// A pod on a node.
struct Place {
    pod: Pod,
    volumes: BTreeMap<String, PathBuf>,
    parts: BTreeMap<PathBuf, PathBuf>,
    objects: Objects,
    pod_ips: Vec<String>,
    target: Option<String>,
    users: Option<IdRange>,
    recursive_read_only: bool,
    node: NodeFacts,
    image: Image,
}

// === impl Place ===

impl Place {
    /// A pod `web` in `shop` of one container `main`, with lines added to metadata, spec and container.
    #[track_caller]
    fn with(metadata: &str, spec: &str, container: &str) -> Self {
        let manifest = format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  namespace: shop\n  uid: u-1\n{}spec:\n{}  \
             containers:\n  - name: main\n    image: app:1\n{}",
            indented(metadata, 2),
            indented(spec, 2),
            indented(container, 4)
        );
        Self::of(&manifest)
    }

    /// The same with lines added to the container only.
    #[track_caller]
    fn container(container: &str) -> Self {
        Self::with("", "", container)
    }

    /// The same with lines added to the spec only.
    #[track_caller]
    fn spec(spec: &str) -> Self {
        Self::with("", spec, "")
    }

    #[track_caller]
    fn of(manifest: &str) -> Self {
        let features = Features { stop_signals: Switch::On, ..Features::default() };
        let mut report =
            read_manifest(manifest.as_bytes(), &Origin::file("pod.yaml"), Strictness::ApiServer, &features);
        assert_eq!(report.pods.len(), 1, "{report}\n{manifest}");
        Self {
            pod: report.pods.remove(0),
            volumes: BTreeMap::new(),
            parts: BTreeMap::new(),
            objects: Objects::default(),
            pod_ips: vec!["10.0.0.7".to_owned(), "fd00::7".to_owned()],
            target: None,
            users: None,
            recursive_read_only: true,
            node: NodeFacts {
                name: "node-1".to_owned(),
                address: Some("192.0.2.1".to_owned()),
                resolv_conf: Some("nameserver 192.0.2.53\n".to_owned()),
                cpu_millis: 4000,
                memory_bytes: 8_000_000_000,
                storage_bytes: 100_000_000_000,
                seccomp_root: "/var/lib/keelet/seccomp".into(),
                ..NodeFacts::default()
            },
            image: Image {
                id: "sha256:feed".to_owned(),
                name: "app:1".to_owned(),
                uid: Some(1000),
                user: String::new(),
            },
        }
    }

    fn placement(&self) -> Placement<'_> {
        Placement {
            pod: &self.pod,
            volumes: &self.volumes,
            parts: &self.parts,
            objects: &self.objects,
            logs: Path::new("/var/log/pods/shop_web_u-1"),
            etc_hosts: Some(Path::new("/run/pods/u-1/etc-hosts")),
            termination_file: Some(Path::new("/run/pods/u-1/main/3")),
            target: self.target.as_deref(),
            pod_ips: &self.pod_ips,
            users: self.users,
            recursive_read_only: self.recursive_read_only,
            node: &self.node,
        }
    }

    #[track_caller]
    fn sandbox(&self) -> v1::PodSandboxConfig {
        sandbox_config(&self.placement(), 2).expect("a sandbox")
    }

    fn try_launch(&self, name: &str) -> Result<v1::ContainerConfig, ConfigError> {
        let container = self.pod.container(name).expect("a container of the pod");
        container_config(&self.placement(), container, 3, &self.image)
    }

    fn sub_paths(&self) -> Result<Vec<SubPath>, ConfigError> {
        sub_paths(&self.placement(), self.pod.container("main").expect("main"))
    }

    #[track_caller]
    fn launch(&self) -> v1::ContainerConfig {
        self.try_launch("main").expect("a container")
    }

    /// The refusal to launch `main`, which has to be the container's own fault.
    #[track_caller]
    fn refusal(&self) -> String {
        let error = self.try_launch("main").expect_err("refused");
        assert_eq!(error.reason, "CreateContainerConfigError");
        error.message
    }

    fn security(&self) -> v1::LinuxContainerSecurityContext {
        self.launch().linux.and_then(|linux| linux.security_context).expect("a security context")
    }

    fn resources(&self, name: &str) -> v1::LinuxContainerResources {
        let config = self.try_launch(name).expect("a container");
        config.linux.and_then(|linux| linux.resources).expect("resources")
    }

    /// Variables as `NAME=value`.
    fn variables(&self) -> Vec<String> {
        let envs = self.launch().envs.into_iter();
        envs.map(|env| format!("{}={}", env.key, String::from_utf8_lossy(&env.value))).collect()
    }
}

fn indented(text: &str, by: usize) -> String {
    text.lines().map(|line| format!("{:by$}{line}\n", "")).collect()
}

fn map<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}
