//! A client for a real API server.

use std::{path::Path, time::Duration};

use http::Uri;
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig {path}: {error}")]
    Kubeconfig {
        /// Where it is.
        path: String,
        /// What is wrong with it.
        error: KubeconfigError,
    },
    /// This is not a pod of a cluster.
    #[error("cannot connect from inside of a cluster: {0}; give a --kubeconfig elsewhere")]
    InCluster(#[from] InClusterError),
    /// The configuration cannot be used.
    #[error("cannot make a client for {url}: {error}")]
    Client {
        /// The API server.
        url: Uri,
        /// What is wrong.
        error: Box<kube::Error>,
    },
}

/// A client from a kubeconfig: its current context.
pub async fn connect(path: &Path) -> Result<Client, ConnectError> {
    let wrong = |error| ConnectError::Kubeconfig { path: path.display().to_string(), error };
    let kubeconfig = Kubeconfig::read_from(path).map_err(wrong)?;
    client(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(wrong)?)
}

/// A client from the service account of this pod. The address of the API server is a number there, so that no name has to be resolved.
pub fn connect_in_cluster() -> Result<Client, ConnectError> {
    client(Config::incluster_env()?)
}

fn client(mut config: Config) -> Result<Client, ConnectError> {
    // Retries are ours: counted, and the same in simulation. Every request has a deadline of its own, and watches have none.
    config.default_retry = false;
    config.read_timeout = None;
    config.connect_timeout = Some(Duration::from_secs(5));
    let url = config.cluster_url.clone();
    let wrong = |error| ConnectError::Client { url: url.clone(), error: Box::new(error) };
    Ok(ClientBuilder::try_from(config).map_err(wrong)?.build())
}
