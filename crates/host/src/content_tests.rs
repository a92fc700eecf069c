//! Volumes that the agent fills, on a real file system.

use std::os::unix::fs::MetadataExt;

use k8s_openapi::api::core::v1;
use keelet_pod::parse_one;

use super::*;
use crate::objects::LocalObjects;

/// A node with objects.
struct Node {
    directory: tempfile::TempDir,
    host: OsHost,
}

// === impl Node ===

impl Node {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path().join("lib"), directory.path().join("log"));
        let objects = Arc::new(LocalObjects::new(directory.path().join("etc")));
        let host = OsHost::new(layout).with_objects(objects);
        Self { directory, host }
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.directory.path().join("etc").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn remove(&self, path: &str) {
        fs::remove_file(self.directory.path().join("etc").join(path)).unwrap();
    }

    /// The files of the volume `v`, or nothing where this test may not mount.
    async fn prepare(&self, pod: &Pod) -> Option<PathBuf> {
        match self.host.prepare(pod).await {
            Ok(volumes) => Some(volumes["v"].clone()),
            Err(error) if error.message.contains("cannot mount a tmpfs") => {
                skipped();
                None
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn skipped() {
    keelet_report::skipped("mounting needs root");
}

fn pod(volume: &str, spec: &str) -> Pod {
    let manifest = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: shop, uid: u1}}\nspec:\n  \
         containers: [{{name: main, image: x}}]\n  volumes: [{{name: v, {volume}}}]\n{spec}"
    );
    parse_one(&manifest).unwrap()
}

fn read(volume: &Path, file: &str) -> String {
    fs::read_to_string(volume.join(file)).unwrap()
}

#[tokio::test]
async fn a_pod_waits_for_its_config_map_and_gets_it() {
    let node = Node::new();
    let pod = pod("configMap: {name: conf}", "");
    let error = node.host.prepare(&pod).await.unwrap_err();
    assert_eq!(error.reason, "FailedMount");
    assert_eq!(error.message, "MountVolume.SetUp failed for volume \"v\" : configmap \"conf\" not found");
    node.write("configmaps/shop/conf/a", "1");
    let volume = node.prepare(&pod).await.unwrap();
    assert!(volume.ends_with("pods/u1/volumes/kubernetes.io~configmap/v"), "{}", volume.display());
    assert_eq!(read(&volume, "a"), "1");
}

/// Containers of the pod have the directory mounted, so it stays the same one.
#[tokio::test]
async fn a_change_reaches_the_volume_and_a_loss_does_not() {
    let node = Node::new();
    let pod = pod("configMap: {name: conf}", "");
    node.host.refresh(&pod).await.expect("nothing is made before it is prepared");
    node.write("configmaps/shop/conf/a", "1");
    let volume = node.prepare(&pod).await.unwrap();
    let identity = |path: &Path| fs::metadata(path).unwrap().ino();
    let before = identity(&volume);
    node.write("configmaps/shop/conf/a", "2");
    node.write("configmaps/shop/conf/b", "new");
    node.host.refresh(&pod).await.unwrap();
    assert_eq!((read(&volume, "a"), read(&volume, "b")), ("2".to_owned(), "new".to_owned()));
    assert_eq!(identity(&volume), before);
    // It goes away: the host reports that to the pod, which keeps what it has, also under a new agent.
    node.remove("configmaps/shop/conf/a");
    node.remove("configmaps/shop/conf/b");
    fs::remove_dir(node.directory.path().join("etc/configmaps/shop/conf")).unwrap();
    let error = node.host.refresh(&pod).await.unwrap_err();
    assert!(error.message.ends_with("configmap \"conf\" not found"), "{error}");
    assert_eq!(node.prepare(&pod).await.unwrap(), volume);
    assert_eq!(read(&volume, "a"), "2");
}

#[tokio::test]
async fn one_volume_that_cannot_be_filled_keeps_no_other_from_it() {
    let node = Node::new();
    node.write("configmaps/shop/one/k", "1");
    node.write("configmaps/shop/two/k", "1");
    let mut pod = pod("configMap: {name: one}", "");
    let more = v1::Volume {
        name: "w".to_owned(),
        config_map: Some(v1::ConfigMapVolumeSource { name: "two".to_owned(), ..v1::ConfigMapVolumeSource::default() }),
        ..v1::Volume::default()
    };
    let mut source = (*pod.source).clone();
    source.spec.as_mut().unwrap().volumes.as_mut().unwrap().push(more);
    pod.source = Arc::new(source);
    let volumes = node.host.prepare(&pod).await.unwrap();
    node.remove("configmaps/shop/one/k");
    fs::remove_dir(node.directory.path().join("etc/configmaps/shop/one")).unwrap();
    node.write("configmaps/shop/two/k", "2");
    node.host.refresh(&pod).await.unwrap_err();
    assert_eq!((read(&volumes["v"], "k"), read(&volumes["w"], "k")), ("1".to_owned(), "2".to_owned()));
}

#[tokio::test]
async fn secrets_are_in_memory_only() {
    let node = Node::new();
    node.write("secrets/shop/keys.yaml", "apiVersion: v1\nkind: Secret\nstringData: {token: t}\n");
    for volume in ["secret: {secretName: keys}", "projected: {sources: [{secret: {name: keys}}]}"] {
        let pod = pod(volume, "");
        let Some(path) = node.prepare(&pod).await else { return };
        assert_eq!(read(&path, "token"), "t");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount = mounts.lines().find(|line| line.contains(path.to_str().unwrap())).expect("a mount of its own");
        assert!(mount.contains(" - tmpfs "), "{mount}");
        // Once, however often it is asked for.
        node.prepare(&pod).await.unwrap();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert_eq!(mounts.matches(path.to_str().unwrap()).count(), 1);
        node.host.clean_up("u1").await.unwrap();
        assert!(!path.exists());
    }
}

/// As the kubelet does it: the group owns the volume and reads what the agent wrote; directories pass the group on.
#[tokio::test]
async fn the_group_of_the_pod_owns_its_volumes() {
    if rustix::process::geteuid().as_raw() != 0 {
        return skipped();
    }
    let node = Node::new();
    node.write("configmaps/shop/conf/a", "1");
    let of = |path: &Path| {
        let metadata = fs::metadata(path).unwrap();
        (metadata.gid(), metadata.permissions().mode() & 0o7777)
    };
    let group = "  securityContext: {fsGroup: 4321}\n";
    for (volume, file) in [
        ("configMap: {name: conf, defaultMode: 0400}", Some(0o440)),
        ("projected: {sources: [{configMap: {name: conf}}]}", Some(0o644)),
        ("emptyDir: {}", None),
        ("emptyDir: {medium: Memory}", None),
    ] {
        let Some(path) = node.prepare(&pod(volume, group)).await else { return };
        assert_eq!(of(&path), (4321, 0o2777), "{volume}");
        if let Some(mode) = file {
            assert_eq!(of(&path.join("a")), (4321, mode), "{volume}");
        }
        node.host.clean_up("u1").await.unwrap();
    }
}

/// What is mounted with a sub-path stays as it was when the container was made.
#[tokio::test]
async fn a_part_of_a_filled_volume_is_where_its_file_is_now() {
    let node = Node::new();
    node.write("configmaps/shop/conf/a", "1");
    let pod = pod("configMap: {name: conf}", "");
    let volume = node.prepare(&pod).await.unwrap();
    let part =
        |path: &str| SubPath { name: "v".into(), volume: volume.clone(), path: path.into(), writer: Writer::Agent };
    let instance = async |part: SubPath| {
        let sub_paths = [part];
        let instance = InstanceOf { pod: &pod, container: "main", attempt: 0, addresses: &[], sub_paths: &sub_paths };
        node.host.prepare_instance(instance).await
    };
    let found = instance(part("a")).await.unwrap().parts.remove(&volume.join("a")).unwrap();
    assert!(!fs::symlink_metadata(&found).unwrap().is_symlink() && found.starts_with(&volume), "{}", found.display());
    // As a container has it mounted.
    let mounted = fs::File::open(&found).unwrap();
    node.write("configmaps/shop/conf/a", "2");
    node.host.refresh(&pod).await.unwrap();
    assert_eq!(io::read_to_string(mounted).unwrap(), "1");
    let now = instance(part("a")).await.unwrap().parts.remove(&volume.join("a")).unwrap();
    assert_eq!(fs::read_to_string(now).unwrap(), "2");
    let error = instance(part("none")).await.unwrap_err();
    assert!(error.message.contains("cannot use none in"), "{error}");
}

#[tokio::test]
async fn objects_are_found_for_variables() {
    let node = Node::new();
    node.write("configmaps/shop/conf/a", "1");
    node.write("configmaps/shop/broken.yaml", "kind: x\n");
    let pod = pod("emptyDir: {}", "");
    let reference =
        |name: &str| Reference { kind: keelet_launch::ObjectKind::ConfigMap, name: name.to_owned(), key: None };
    let objects = node.host.objects(&pod, &[reference("conf"), reference("none")]).await.unwrap();
    assert_eq!(objects.get(keelet_launch::ObjectKind::ConfigMap, "conf").unwrap()["a"], b"1");
    assert!(objects.get(keelet_launch::ObjectKind::ConfigMap, "none").is_none());
    let error = node.host.objects(&pod, &[reference("broken")]).await.unwrap_err();
    assert_eq!(error.reason, "CreateContainerConfigError");
    assert!(error.message.contains("broken.yaml:1:1: apiVersion: Required value"), "{error}");
}

/// A cluster with a token, which changes, and one service.
#[derive(Debug, Default)]
struct OneToken(Mutex<String>);

impl ObjectStore for OneToken {
    fn find(&self, _: &Pod, _: keelet_launch::ObjectKind, _: &str) -> Result<Option<keelet_launch::Data>, ObjectError> {
        Ok(None)
    }

    fn token(&self, _: &Pod, wanted: &keelet_launch::TokenSource) -> Result<Vec<u8>, ObjectError> {
        Ok(format!("{} for {}", self.0.lock().unwrap(), wanted.audience).into_bytes())
    }

    fn has_services(&self, _: &Pod) -> bool {
        true
    }

    fn services(&self, _: &Pod) -> Result<Vec<(String, String)>, ObjectError> {
        match self.0.lock().unwrap().as_str() {
            "" => Err(ObjectError::Services("it has not answered yet".to_owned())),
            _ => Ok(vec![("DB_SERVICE_HOST".to_owned(), "10.0.0.9".to_owned())]),
        }
    }
}

/// CLU-30: the token belongs to the user that the pod runs as, or to its group, and is replaced in place. Pods of manifests get none.
#[tokio::test]
async fn a_token_in_a_volume_belongs_to_its_pod() {
    let node = Node::new();
    let cluster = Arc::new(OneToken::default());
    let local: Arc<dyn ObjectStore> = Arc::new(NoObjects);
    let objects = ByOrigin { local, cluster: Arc::clone(&cluster) as Arc<dyn ObjectStore> };
    let node = Node { host: node.host.clone().with_objects(Arc::new(objects)), ..node };
    let pod = |context: serde_json::Value, uid: &str| {
        let source = serde_json::json!({"serviceAccountToken": {"path": "token", "audience": "vault"}});
        let source: v1::Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": uid},
            "spec": {
                "securityContext": context, "containers": [{"name": "main", "image": "x"}],
                "volumes": [{"name": "v", "projected": {"sources": [source]}}],
            },
        }))
        .unwrap();
        Pod::from_api(source, &keelet_pod::Features::default()).unwrap()
    };
    cluster.0.lock().unwrap().push_str("first");
    for (context, uid, owner, mode) in [
        (serde_json::json!({"runAsUser": 5}), "u1", (5, 0), 0o600),
        (serde_json::json!({"fsGroup": 7}), "u2", (0, 7), 0o640),
        (serde_json::json!({}), "u3", (0, 0), 0o644),
    ] {
        let pod = pod(context.clone(), uid);
        let Some(volume) = node.prepare(&pod).await else { return };
        let metadata = fs::metadata(volume.join("token")).unwrap();
        let found = ((metadata.uid(), metadata.gid()), format!("{:o}", metadata.mode() & 0o7777));
        assert_eq!(found, (owner, format!("{mode:o}")), "{context}");
        assert_eq!(read(&volume, "token"), "first for vault");
        *cluster.0.lock().unwrap() = "second".to_owned();
        node.host.refresh(&pod).await.unwrap();
        assert_eq!(read(&volume, "token"), "second for vault");
        *cluster.0.lock().unwrap() = "first".to_owned();
        node.host.clean_up(uid).await.unwrap();
    }
    let static_pod = Pod { trust: keelet_pod::Trust::Node, ..pod(serde_json::json!({}), "u4") };
    let error = node.host.prepare(&static_pod).await.unwrap_err();
    assert!(error.message.ends_with("it needs an API server, and this pod does not come from one"), "{error}");
}

/// CLU-29: a container waits for the list of services, also one that refers to no object.
#[tokio::test]
async fn services_are_waited_for_although_no_object_is_asked_for() {
    let node = Node::new();
    let cluster = Arc::new(OneToken::default());
    let host = node.host.clone().with_objects(Arc::clone(&cluster) as Arc<dyn ObjectStore>);
    let pod = pod("emptyDir: {}", "");
    let error = host.objects(&pod, &[]).await.unwrap_err();
    assert_eq!(error.reason, "CreateContainerConfigError");
    assert_eq!(error.message, "services have not been read from the API server yet: it has not answered yet");
    cluster.0.lock().unwrap().push('x');
    assert_ne!(host.objects(&pod, &[]).await.unwrap(), Objects::default());
}
