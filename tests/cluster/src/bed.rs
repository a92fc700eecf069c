//! The control plane of a test.

use std::{
    env,
    path::{Path, PathBuf},
};

use keelet_harness::eventually;
use kube::{
    Client, Config,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use tokio::process::Command;

/// An etcd, kube-apiserver, kube-controller-manager and kube-scheduler.
#[derive(Clone, Debug)]
pub struct Cluster {
    directory: PathBuf,
    script: PathBuf,
}

/// A user of the API.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The name.
    pub user: String,
    /// A kubeconfig with a certificate.
    pub kubeconfig: PathBuf,
}

// === impl Cluster ===

impl Cluster {
    /// The one that `make e2e` or `tests/bed run` started.
    pub fn here() -> Self {
        Self { directory: setting("KEELET_BED").into(), script: setting("KEELET_BED_SCRIPT").into() }
    }

    /// A directory that goes with the control plane.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// An administrator.
    pub fn admin(&self) -> Identity {
        Identity { user: "admin".to_owned(), kubeconfig: self.directory.join("kubeconfig/admin") }
    }

    /// A client that has nothing but a token.
    pub async fn with_token(&self, token: &str) -> Client {
        let file = Kubeconfig::read_from(self.admin().kubeconfig).expect("a kubeconfig");
        let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.expect("a config");
        config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
        config.default_retry = false;
        Client::try_from(config).expect("a client")
    }

    /// A node agent: what the node authorizer and NodeRestriction allow.
    pub async fn node(&self, name: &str) -> Identity {
        self.identity(&format!("system:node:{name}"), &["system:nodes"]).await
    }

    /// A service account, as its pods are seen by the API server. Its requests are in the audit log.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Identity {
        let groups = ["keelet:audited", "system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")];
        self.identity(&format!("system:serviceaccount:{namespace}:{name}"), &groups).await
    }

    /// A user, in these groups.
    pub async fn identity(&self, user: &str, groups: &[&str]) -> Identity {
        let path = self.bed(&[&["identity", user], groups].concat()).await;
        Identity { user: user.to_owned(), kubeconfig: path.into() }
    }

    /// A certificate for a server, of the authority that the API server trusts nodes by: the paths of it and of its key. The names are as
    /// OpenSSL writes them, `IP:10.0.0.1,DNS:node`.
    pub async fn certificate(&self, name: &str, names: &str) -> (PathBuf, PathBuf) {
        let path = self.bed(&["certificate", name, names]).await;
        (format!("{path}.crt").into(), format!("{path}.key").into())
    }

    /// The certificate authority of the whole cluster.
    pub fn authority(&self) -> PathBuf {
        self.directory.join("pki/ca.crt")
    }

    /// Applies manifests from a file.
    pub async fn apply(&self, manifests: &Path) {
        self.bed(&["kubectl", "apply", "--filename", &manifests.to_string_lossy()]).await;
    }

    /// Kills a component; its clients see broken connections.
    pub async fn kill(&self, component: &str) {
        self.bed(&["kill", component]).await;
    }

    /// Starts a component that was killed. It is not [ready](Self::ready) yet when this returns.
    pub async fn start(&self, component: &str) {
        self.bed(&["start", component]).await;
    }

    /// Waits until the API server says that it is ready.
    pub async fn ready(&self) {
        let client = self.admin().client().await;
        let ask = || http::Request::get("/readyz").body(Vec::new()).expect("a request");
        eventually("the API server", async || client.request_text(ask()).await).await;
    }

    /// The audit log so far.
    pub fn audit_log(&self) -> PathBuf {
        self.directory.join("audit.log")
    }

    /// Calls a verb of `tests/bed`, and returns what it prints.
    async fn bed(&self, arguments: &[&str]) -> String {
        let output = Command::new(&self.script).args(arguments).output().await;
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", self.script.display()));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tests/bed {}: {}", arguments.join(" "), said.trim());
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

// === impl Identity ===

impl Identity {
    /// A client for this user.
    pub async fn client(&self) -> Client {
        let file = Kubeconfig::read_from(&self.kubeconfig).expect("a kubeconfig");
        let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.expect("a config");
        // A test that expects a refusal sees the first answer.
        config.default_retry = false;
        Client::try_from(config).expect("a client")
    }
}

/// A setting that `tests/bed` passes in the environment.
pub(crate) fn setting(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: these tests are run by `make e2e`"))
}
