//! An agent that is a node of the cluster, on the embedded runtime.

use std::{
    fs,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Node, Pod};
use keelet_harness::eventually;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{Cluster, Identity, Process, audit, until};

/// The image of the pods: a shell of this machine.
pub const IMAGE: &str = "keelet.test/shell:1";

/// A pod for one node, with a readiness probe that passes.
pub fn probed_pod(name: &str, node: &str) -> Pod {
    let value = json!({
        "metadata": { "name": name },
        "spec": {
            "nodeSelector": { "kubernetes.io/hostname": node },
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent",
                "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"],
                "readinessProbe": { "exec": { "command": ["/bin/sh", "-c", "true"] }, "periodSeconds": 1 },
            }],
        },
    });
    serde_json::from_value(value).expect("a pod")
}

/// A node of the cluster: directories of its own, and an agent that may be killed.
#[derive(Debug)]
pub struct Worker {
    /// Its name.
    pub name: String,
    /// Its cluster.
    pub cluster: Cluster,
    identity: Identity,
    directory: tempfile::TempDir,
}

// === impl Worker ===

impl Worker {
    /// A node that is not registered yet.
    pub async fn new(name: &str) -> Self {
        Self::within(name, &std::env::temp_dir()).await
    }

    /// The same, with its directories in there.
    pub async fn within(name: &str, place: &Path) -> Self {
        let cluster = Cluster::here();
        let identity = cluster.node(name).await;
        Self { name: name.to_owned(), cluster, identity, directory: tempfile::tempdir_in(place).expect("a directory") }
    }

    /// A path among the directories of the node.
    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// Starts an agent. It may be the next one in the same directories.
    pub fn start(&self, more: &[&str]) -> Process {
        let kubeconfig = self.identity.kubeconfig.display().to_string();
        let (root, state, logs) = (self.path("root"), self.path("state"), self.path("logs"));
        let own = [
            "agent",
            "--kubeconfig",
            &kubeconfig,
            "--hostname-override",
            &self.name,
            "--root-dir",
            &root,
            "--state-dir",
            &state,
            "--pod-logs-dir",
            &logs,
            "--healthz-port",
            "0",
        ];
        Process::keelet(&self.cluster, &self.name, &[&own, more].concat())
    }

    /// Makes an archive of the image of the pods. The files that it is made of are beside it.
    pub async fn image(&self) -> PathBuf {
        shell_image(self.directory.path()).await
    }

    /// Imports the image of the pods, once the agent answers.
    pub async fn import(&self) {
        let archive = self.image().await;
        let socket = format!("{}/keelet.sock", self.path("state"));
        eventually("an agent that imports an image", async || {
            let mut command = Command::new(std::env::var("KEELET_E2E_AGENT").expect("a keelet"));
            command.args(["image", "import"]).arg(&archive).env("KEELET_SOCKET", &socket);
            let done = command.output().await.map_err(|error| error.to_string())?;
            if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into_owned()) }
        })
        .await;
    }

    /// The writes of this node's agents so far that are about statuses of pods.
    pub fn status_writes(&self, pod: &str) -> usize {
        let user = format!("system:node:{}", self.name);
        let entries = audit::entries(&self.cluster.audit_log(), &user);
        let of_pod = |entry: &&audit::AuditRecord| {
            entry.is_write() && entry.object_ref.resource == "pods" && entry.object_ref.name == pod
        };
        entries.iter().filter(of_pod).count()
    }
}

/// A docker archive with a shell and what it loads.
async fn shell_image(directory: &Path) -> PathBuf {
    let root = directory.join("image/root");
    for (place, file) in keelet_fixtures::files(&["cat", "env", "mkdir", "rm", "sh", "sleep", "tar", "test", "touch"]) {
        let target = root.join(place);
        fs::create_dir_all(target.parent().expect("a parent")).expect("made");
        fs::copy(file, target).expect("copied");
    }
    fs::create_dir_all(root.join("tmp")).expect("made");
    let script = format!(
        r#"set -e; cd "$1"; tar -cf layer.tar -C root .; diff=$(sha256sum layer.tar | cut -d' ' -f1)
        printf '{{"architecture":"amd64","os":"linux","config":{{"Env":["PATH=/bin"]}},"rootfs":{{"type":"layers","diff_ids":["sha256:%s"]}}}}' "$diff" >config.json
        printf '[{{"Config":"config.json","RepoTags":["{IMAGE}"],"Layers":["layer.tar"]}}]' >manifest.json
        tar -cf image.tar manifest.json config.json layer.tar"#
    );
    let made = Command::new("sh").args(["-c", &script, "sh"]).arg(directory.join("image")).status().await;
    assert!(made.expect("a shell").success(), "no image");
    directory.join("image/image.tar")
}

/// The pods of the namespace `default`.
pub fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), "default")
}

/// The status of a condition of an object.
pub fn condition(object: &Value, kind: &str) -> Option<String> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)?["status"].as_str().map(str::to_owned)
}

/// Whether a pod is Ready.
pub fn is_ready(pod: &Pod) -> bool {
    condition(&serde_json::to_value(pod).expect("JSON"), "Ready").as_deref() == Some("True")
}

/// Waits until a node is Ready.
pub async fn ready_node(client: &Client, name: &str) -> Node {
    until(client, None, name, "Ready", |node: &Node| {
        condition(&serde_json::to_value(node).expect("JSON"), "Ready").as_deref() == Some("True")
    })
    .await
}
