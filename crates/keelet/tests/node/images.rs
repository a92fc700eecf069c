//! Images from a registry on loopback, and containers that share them.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use keelet_harness::{Node, eventually};
use keelet_serve::{
    Client,
    api::{Pull, PullLine},
};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::watch,
};

use super::on_a_node;

/// Where the image comes from, if one believes its name. No registry is there.
const IMAGE: &str = "registry.invalid/app:1";

/// A registry with one image, whose layer comes in two halves.
#[derive(Clone)]
struct Registry {
    address: SocketAddr,
    /// Whether the second half may come.
    all: Arc<watch::Sender<bool>>,
    layers_asked: Arc<Mutex<usize>>,
}

/// What it has, by path.
struct Content {
    manifest: Vec<u8>,
    config: (String, Vec<u8>),
    layer: (String, Vec<u8>),
}

async fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().await.expect(program);
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

async fn digest(path: &Path) -> String {
    let sum = said("sha256sum", &[&path.display().to_string()]).await;
    format!("sha256:{}", sum.split(' ').next().unwrap_or_default())
}

impl Content {
    /// An image whose programs come from the node: it has links to where a volume will be, and some weight.
    async fn make(directory: &Path) -> Self {
        let tree = directory.join("tree");
        fs::create_dir_all(tree.join("usr")).expect("a directory");
        for (link, target) in [("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64"), ("sbin", "usr/sbin")] {
            std::os::unix::fs::symlink(target, tree.join(link)).expect("a link");
        }
        fs::write(tree.join("weight"), vec![7; 6 << 20]).expect("a file");
        let archive = directory.join("layer.tar");
        let (place, root) = (archive.display().to_string(), tree.display().to_string());
        said("tar", &["-cf", &place, "-C", &root, "."]).await;
        let layer = (digest(&archive).await, fs::read(&archive).expect("a layer"));
        let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let config = json!({
            "architecture": machine, "os": "linux", "config": {},
            "rootfs": { "type": "layers", "diff_ids": [layer.0] },
        });
        let config = config.to_string().into_bytes();
        fs::write(directory.join("config.json"), &config).expect("a file");
        let config = (digest(&directory.join("config.json")).await, config);
        let manifest = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": config.0, "size": config.1.len() },
            "layers": [{ "mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": layer.0, "size": layer.1.len() }],
        });
        Self { manifest: manifest.to_string().into_bytes(), config, layer }
    }
}

impl Registry {
    async fn start(directory: &Path) -> Self {
        let content = Arc::new(Content::make(directory).await);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let registry = Self {
            address: listener.local_addr().expect("an address"),
            all: Arc::new(watch::Sender::new(false)),
            layers_asked: Arc::default(),
        };
        let serving = registry.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (registry, content) = (serving.clone(), Arc::clone(&content));
                tokio::spawn(async move { registry.answer(connection, &content).await });
            }
        });
        registry
    }

    fn mirror(&self) -> String {
        format!("*=http://{}", self.address)
    }

    async fn answer(&self, connection: TcpStream, content: &Content) -> std::io::Result<()> {
        let mut connection = BufReader::new(connection);
        let mut request = String::new();
        connection.read_line(&mut request).await?;
        let mut line = String::from("?");
        while !line.trim().is_empty() {
            line.clear();
            connection.read_line(&mut line).await?;
        }
        let path = request.split([' ', '?']).nth(1).unwrap_or_default();
        let is_layer = path.ends_with(&content.layer.0);
        let (kind, body) = match path {
            "/v2/" => ("application/json", &b"{}"[..]),
            "/v2/app/manifests/1" => ("application/vnd.oci.image.manifest.v1+json", &content.manifest[..]),
            path if path.ends_with(&content.config.0) => ("application/octet-stream", &content.config.1[..]),
            _ if is_layer => ("application/octet-stream", &content.layer.1[..]),
            _ => {
                return connection
                    .write_all(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    .await;
            }
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        connection.write_all(head.as_bytes()).await?;
        if !is_layer {
            return connection.write_all(body).await;
        }
        *self.layers_asked.lock().expect("not poisoned") += 1;
        let (first, second) = body.split_at(body.len() / 2);
        connection.write_all(first).await?;
        connection.flush().await?;
        let _ = self.all.subscribe().wait_for(|all| *all).await;
        connection.write_all(second).await
    }

    fn layers_asked(&self) -> usize {
        *self.layers_asked.lock().expect("not poisoned")
    }
}

/// A pod of that image, which must be here already if it is to be.
fn pod(name: &str, policy: &str, script: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  volumes: [{{name: usr, hostPath: {{path: /usr}}}}]
  containers:
  - name: main
    image: '{IMAGE}'
    imagePullPolicy: {policy}
    command: [sh, -c, {script:?}]
    volumeMounts: [{{name: usr, mountPath: /usr, readOnly: true}}]
"
    )
}

/// Pulls over the API; how far it had come when half of it was there.
async fn pull(node: &Node, registry: &Registry) -> (u64, u64) {
    let client = Client::new(node.path("state/keelet.sock"));
    let asked = Pull { image: IMAGE.to_owned() };
    let mut lines =
        eventually("an agent", async || client.post_stream("/v1/images/pull?progress=true", &asked).await).await;
    let mut half = (0, 0);
    while let Some(line) = lines.next().await {
        match serde_json::from_slice(&line.expect("readable")).expect("a line") {
            PullLine::Pulling(pulling) => {
                assert_eq!((pulling.image.as_str(), pulling.unpacked_layers.min(1)), (IMAGE, pulling.unpacked_layers));
                // The first half may come in several steps.
                if pulling.fetched_bytes * 3 > pulling.bytes && pulling.fetched_bytes < pulling.bytes {
                    half = (pulling.fetched_bytes, pulling.bytes);
                    registry.all.send_replace(true);
                }
            }
            PullLine::Pulled(pulled) => {
                assert!(pulled.image_ref.starts_with("sha256:"), "{pulled:?}");
                return half;
            }
            PullLine::Failed(failure) => panic!("{failure:?}"),
        }
    }
    panic!("the last line says how it ended");
}

/// An agent pulls from a mirror and tells how far it has come; a run finds the image in the same store, and neither takes
/// anything away from the other.
#[test]
fn an_agent_and_runs_share_one_store() {
    on_a_node(async |node| {
        let registry = Registry::start(&node.path("ctl")).await;
        node.configure("--registry-mirror");
        node.configure(&registry.mirror());
        node.start();
        let (fetched, bytes) = pull(node, &registry).await;
        assert!(fetched * 3 > bytes && bytes > 6 << 20, "{fetched} of {bytes} at half");
        node.want("web", &pod("web", "Never", "until [ -e /end ]; do sleep 0.1; done"));
        let web = node.pod_until("web", "running", |seen| !seen.running().is_empty()).await;
        let store = node.path("root/runtime/images");
        node.put("job.yaml", &pod("job", "Never", "test -e /weight && echo it is here"));
        let (job, images) = (node.path("job.yaml").display().to_string(), store.display().to_string());
        for _ in 0..2 {
            let mut run = node.command(&["run", "--plain", "--logs", "--image-store", &images, &job]);
            let output = run.stdout(Stdio::piped()).stderr(Stdio::piped()).output().await.expect("keelet run");
            let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success() && out.contains("| it is here"), "{out}\n{err}");
        }
        assert_eq!(registry.layers_asked(), 1, "fetched once, by the agent");
        let roots = fs::read_dir(store.join("roots")).expect("a directory").count();
        assert_eq!(roots, 1, "the pod of the agent still has its files, and the runs left none");
        assert_eq!(node.run_in(&web, "main", "ls /weight").await, "/weight");
        // The agent recovers its own, and a run that is under way keeps what it has.
        node.put("long.yaml", &pod("long", "Never", "until [ -e /end ]; do sleep 0.1; done; exit 0"));
        let long = node.path("long.yaml").display().to_string();
        let mut run = node.command(&["run", "--plain", "--image-store", &images, &long]);
        let mut run = run.stdout(Stdio::piped()).spawn().expect("keelet run");
        let mut lines = BufReader::new(run.stdout.take().expect("a pipe")).lines();
        while !lines.next_line().await.expect("readable").expect("more").contains("long main: running") {}
        node.kill().await;
        node.start();
        let listed = eventually("an agent", async || {
            let listed = node.command(&["image", "ls", "-o", "json"]).output().await.expect("keelet image");
            if listed.status.success() { Ok(listed) } else { Err(String::from_utf8_lossy(&listed.stderr).into_owned()) }
        })
        .await;
        let now = node.pod_until("web", "running on", |seen| !seen.running().is_empty()).await;
        assert_eq!(now.running(), web.running());
        assert_eq!(fs::read_dir(store.join("roots")).expect("a directory").count(), 2);
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
        assert_eq!(listed["items"][0]["pinned"], true, "the agent knows that another process uses it: {listed}");
        let told = Command::new("kill").args(["-TERM", &run.id().expect("it runs").to_string()]).status().await;
        assert!(told.expect("kill").success() && run.wait().await.expect("it ends").code() == Some(143));
        node.leaves_nothing().await;
    });
}

/// What runs have fetched can be looked at and removed without an agent: the store is opened itself, and it is said so.
#[test]
fn images_are_managed_without_an_agent() {
    on_a_node(async |node| {
        let registry = Registry::start(&node.path("ctl")).await;
        registry.all.send_replace(true);
        let keelet = node.command(&[]).as_std().get_program().display().to_string();
        // The usual places, with nothing in them.
        let script = format!(
            "set -e; umask 022; mount -t tmpfs none /run; mount -t tmpfs none /var/lib; unset KEELET_SOCKET
            {keelet} image pull --registry-mirror '{}' {IMAGE}; {keelet} image ls -o name
            {keelet} image rm other:1 || echo $?; {keelet} image rm {IMAGE}; {keelet} image ls
            {keelet} image ls --image-store /var/lib/none || echo $?
            stat -c %a /var/lib/keelet /var/lib/keelet/runtime/images
            KEELET_SOCKET=/run/none {keelet} image ls || echo $?
            unshare --user {keelet} image ls || echo $?",
            registry.mirror()
        );
        let output = Command::new("unshare").args(["--mount", "bash", "-c", &script]).output().await.expect("unshare");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let id = out.split_whitespace().nth(2).unwrap_or_default();
        let expected = format!("{IMAGE} is {id}\nimage/{IMAGE}\n1\n{IMAGE} removed\n1\n755\n700\n1\n1\n");
        assert!(out == expected && id.starts_with("sha256:"), "{out}\n{err}");
        let note =
            "no agent answers on /run/keelet/keelet.sock; using the image store /var/lib/keelet/runtime/images itself";
        assert_eq!(err.lines().filter(|line| *line == note).count(), 5, "{err}");
        for part in [
            "error: image \"other:1\" not found on this node\n",
            "No resources found\nerror: --image-store: /var/lib/none is not a directory\nerror: no agent answers on /run/none: ",
            "error: no agent answers on /run/keelet/keelet.sock: the image store /var/lib/keelet/runtime/images is for root: ",
        ] {
            assert!(err.contains(part), "{part:?} is missing:\n{err}");
        }
    });
}

/// An image that a container stands on stays, for every owner of the container and every caller.
#[test]
fn an_image_in_use_is_not_removed_behind_its_container() {
    on_a_node(async |node| {
        let registry = Registry::start(&node.path("ctl")).await;
        registry.all.send_replace(true);
        let (job, images) = (node.path("job.yaml").display().to_string(), node.path("store").display().to_string());
        fs::create_dir(node.path("store")).expect("a directory");
        let image = async |arguments: &[&str]| {
            let output = node.command(&[&["image"], arguments, &["--image-store", &images]].concat()).output();
            let output = output.await.expect("keelet image");
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (output.status.code(), text(&output.stdout), text(&output.stderr))
        };
        let (code, _, err) = image(&["pull", "--registry-mirror", &registry.mirror(), IMAGE]).await;
        assert_eq!(code, Some(0), "{err}");
        node.put("job.yaml", &pod("job", "Never", "until [ -e /end ]; do sleep 0.1; done"));
        let mut run = node.command(&["run", "--plain", "--image-store", &images, &job]);
        let mut run = run.stdout(Stdio::piped()).spawn().expect("keelet run");
        let mut lines = BufReader::new(run.stdout.take().expect("a pipe")).lines();
        while !lines.next_line().await.expect("readable").expect("more").contains("job main: running") {}
        let (code, out, err) = image(&["rm", IMAGE]).await;
        assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
        assert_eq!(err, format!("error: image {IMAGE:?} is used by a container; use --force to remove it anyway\n"));
        let (code, out, _) = image(&["rm", "--force", IMAGE]).await;
        assert_eq!((code, out), (Some(0), format!("{IMAGE} removed\n")));
        let told = Command::new("kill").args(["-INT", &run.id().expect("it runs").to_string()]).status().await;
        assert!(told.expect("kill").success() && run.wait().await.expect("it ends").code() == Some(130));
        node.leaves_nothing().await;
    });
}

/// A run has mirrors too, and what it fetches stays in its store for the next one.
#[test]
fn what_a_run_fetches_is_there_for_the_next() {
    on_a_node(async |node| {
        let registry = Registry::start(&node.path("ctl")).await;
        node.put("job.yaml", &pod("job", "IfNotPresent", "test -e /weight"));
        let (job, images) = (node.path("job.yaml").display().to_string(), node.path("store").display().to_string());
        let mirror = registry.mirror();
        let arguments = ["run", "--plain", "--registry-mirror", &mirror, "--image-store", &images, &job];
        let mut first = node.command(&arguments);
        let mut first = first.stdout(Stdio::piped()).spawn().expect("keelet run");
        let mut lines = BufReader::new(first.stdout.take().expect("a pipe")).lines();
        // It tells how far it has come while nothing else happens.
        let told = async {
            loop {
                let line = lines.next_line().await.expect("readable").expect("more");
                if line.contains(&format!("keelet fetching {IMAGE}: ")) {
                    return line;
                }
            }
        };
        let line = tokio::time::timeout(Duration::from_secs(60), told).await.expect("progress");
        // The first half may come in several steps, of which the first is small.
        assert!(line.contains("B of 6.3"), "{line}");
        registry.all.send_replace(true);
        while lines.next_line().await.expect("readable").is_some() {}
        assert!(first.wait().await.expect("it ends").success());
        let second = node.command(&arguments).output().await.expect("keelet run");
        assert!(second.status.success(), "{}", String::from_utf8_lossy(&second.stdout));
        assert_eq!(registry.layers_asked(), 1);
        assert_eq!(fs::read_dir(node.path("store/roots")).expect("a directory").count(), 0);
    });
}
