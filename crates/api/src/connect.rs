//! A client for a real API server.

use std::{net::IpAddr, time::Duration};

use http::Uri;
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{InClusterError, KubeconfigError},
};
use tracing::{info, warn};

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
    /// No file was found.
    #[error("no kubeconfig found at {looked}: give --kubeconfig FILE, set KUBECONFIG, or create ~/.kube/config")]
    NoKubeconfig {
        /// Where it was looked for.
        looked: String,
    },
    /// The kubeconfig has no such context.
    #[error("context {context:?} not found in the kubeconfig {path}; contexts: {known}")]
    NoContext {
        /// Where it is.
        path: String,
        /// The context that was asked for.
        context: String,
        /// Those that it has.
        known: String,
    },
    /// This is not a pod of a cluster.
    #[error("cannot use the service account of this pod: {error}; outside of a cluster, name a --kubeconfig")]
    InCluster {
        /// What is missing.
        error: InClusterError,
    },
    /// The address of the API server cannot be used.
    #[error("cannot make a client for {url}: expected https:// or http://")]
    Scheme {
        /// The address.
        url: Uri,
    },
    /// Another server could pose as the API server.
    #[error("cannot use the kubeconfig {path} for {url}: {why}")]
    Unverified {
        /// Where it is.
        path: String,
        /// The address of the API server.
        url: Uri,
        /// What is wrong.
        why: Unverified,
    },
    /// There is nothing to recognise the API server by.
    #[error("cannot make a client for {url}: the certificate authority has no certificate")]
    NoAuthority {
        /// The API server.
        url: Uri,
    },
    /// The configuration cannot be used.
    #[error("cannot make a client for {url}: {error}")]
    Client {
        /// The API server.
        url: Uri,
        /// What is wrong.
        error: Box<kube::Error>,
    },
}

/// Why a process that runs what an API server says does not believe one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    /// Its certificate is not verified.
    #[error(
        "its cluster has insecure-skip-tls-verify: true, so that any server could pose as the API server; remove that field, and give the authority \
         of the API server in certificate-authority-data (base64) or certificate-authority (a file)"
    )]
    Skipped,
    /// There is no authority to verify it by.
    #[error(
        "its cluster has neither certificate-authority-data nor certificate-authority; give the authority of the API server in one of them, or, if a \
         public one has signed its certificate, the bundle of this machine: certificate-authority: /etc/ssl/certs/ca-certificates.crt"
    )]
    NoAuthority,
    /// It has no certificate.
    #[error("http:// is neither encrypted nor verified; use https://, or a proxy on this machine at 127.0.0.1")]
    Plain,
}

/// A client from the service account of this pod. The address of the API server is a number there, so that no name has to be resolved.
pub fn connect_in_cluster() -> Result<Client, ConnectError> {
    client(Config::incluster_env().map_err(|error| ConnectError::InCluster { error })?)
}

/// Whether no other server can pose as the API server of a kubeconfig: what an API server says is run on this machine, or changes all nodes of a
/// cluster. On loopback there are proxies of this machine.
pub(super) fn verified(config: &Config) -> Result<(), Unverified> {
    let url = &config.cluster_url;
    match url.scheme_str() {
        Some("https") if config.accept_invalid_certs => Err(Unverified::Skipped),
        Some("https") if config.root_cert.is_none() => Err(Unverified::NoAuthority),
        Some("http") if !url.host().is_some_and(is_loopback) => Err(Unverified::Plain),
        _ => Ok(()),
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

pub(super) fn client(mut config: Config) -> Result<Client, ConnectError> {
    // Retries are ours: counted, and the same in simulation. Every request has a deadline of its own, and watches have none.
    config.default_retry = false;
    config.read_timeout = None;
    config.connect_timeout = Some(Duration::from_secs(5));
    let url = config.cluster_url.clone();
    match (url.scheme_str(), &config.root_cert) {
        (Some("https"), Some(certificates)) if certificates.is_empty() => {
            return Err(ConnectError::NoAuthority { url });
        }
        (Some("https"), None) if !config.accept_invalid_certs => {
            info!(server = %url, "no certificate authority is configured: those of this machine are trusted");
        }
        (Some("https"), _) => info!(server = %url, "using API server"),
        (Some("http"), _) => warn!(server = %url, "using API server without encryption"),
        _ => return Err(ConnectError::Scheme { url }),
    }
    let wrong = |error| ConnectError::Client { url: url.clone(), error: Box::new(error) };
    Ok(ClientBuilder::try_from(config).map_err(wrong)?.build())
}
