//! The cluster that is asked, and what to say when it does not answer as it should.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, anyhow};
use bytes::Bytes;
use keelet_gates::api::{Api, ApiError, Connected, Denied, Kubectl, Permission, connect_as_kubectl};

/// Which API server is asked, and as whom.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Access {
    /// Kubeconfig [default: the files of $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// A cluster.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    pub(super) api: Api,
    /// The address of its API server.
    pub(super) url: String,
}

/// The longest time for an answer. An API server under load takes seconds for a page of 500 nodes, and gives up itself after 60 s.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The longest part of an answer that an error repeats.
const QUOTED: usize = 400;

// === impl Cluster ===

impl Cluster {
    pub(super) async fn connect(access: &Access) -> Result<Self> {
        let kubectl = Kubectl { file: access.kubeconfig.clone(), context: access.context.clone() };
        let Connected { client, url } = connect_as_kubectl(&kubectl).await?;
        Ok(Self { api: Api::new(client), url: url.to_string().trim_end_matches('/').to_owned() })
    }

    /// Reads an object or a list.
    pub(super) async fn get(&self, path: &str) -> Result<Bytes, ApiError> {
        let bytes = self.api.get(path, PATIENCE).await?;
        match is_page(&bytes) {
            true => Err(ApiError::NoAnswer(String::from_utf8_lossy(&bytes[..bytes.len().min(QUOTED)]).into_owned())),
            false => Ok(bytes),
        }
    }

    /// Reads something that has to be there.
    pub(super) async fn must_get(&self, may: Permission, path: &str) -> Result<Bytes> {
        self.get(path).await.map_err(|error| self.explained(may, &error))
    }

    /// An error, with what a person can do about it. `may` is what was tried.
    pub(super) fn explained(&self, may: Permission, error: &ApiError) -> anyhow::Error {
        let url = &self.url;
        match error {
            ApiError::Refused { code: 401, message, .. } => {
                anyhow!("{url} does not accept the credentials of the kubeconfig: {message} (401)")
            }
            ApiError::Refused { code: 403, message, .. } if !is_page(message.as_bytes()) => {
                anyhow!("{}\nThe API server {url} says: {message}", Denied(vec![may]))
            }
            ApiError::Refused { message: text, .. } | ApiError::NoAnswer(text) if is_page(text.as_bytes()) => anyhow!(
                "{url} answered with a web page (HTML), so it is not a Kubernetes API server, or a proxy or login page is \
                 before it; check the server in the kubeconfig"
            ),
            ApiError::Refused { code, reason, message, .. } => {
                anyhow!("cannot {may}: {url} answered {code} {reason}: {message}")
            }
            ApiError::NoAnswer(why) => anyhow!(
                "cannot reach the API server {url}: {why}\nIs it the right --context, and does kubectl reach it?"
            ),
        }
    }
}

/// Whether an answer is a web page.
fn is_page(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().starts_with(b"<")
}

/// What reading one node, or all of them, needs.
pub(super) fn may(verb: &'static str, resource: &'static str) -> Permission {
    Permission::of_cluster(&[verb], "", resource)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gates::testing::{World, simulate};

    fn said(error: &ApiError) -> String {
        simulate(async { World::new().cluster().explained(may("list", "nodes"), error).to_string() })
    }

    fn refused(code: u16, message: &str) -> ApiError {
        let reason = if code == 403 { "Forbidden" } else { "Internal Server Error" };
        ApiError::Refused { code, reason: reason.to_owned(), message: message.to_owned(), retry_after: None }
    }

    #[test]
    fn errors_say_what_was_tried_where_and_what_to_do() {
        for (error, expected) in [
            (
                refused(403, "nodes is forbidden: User \"eve\" cannot list resource \"nodes\""),
                "not allowed:\n  list nodes\n    granted by this rule of a ClusterRole: {apiGroups: [\"\"], resources: [nodes], verbs: [list]}\n\
                 The API server https://cluster.example says: nodes is forbidden: User \"eve\" cannot list resource \"nodes\"",
            ),
            (
                refused(401, "Unauthorized"),
                "https://cluster.example does not accept the credentials of the kubeconfig: Unauthorized (401)",
            ),
            (
                refused(500, "etcd is away"),
                "cannot list nodes: https://cluster.example answered 500 Internal Server Error: etcd is away",
            ),
            (
                refused(403, "\n<!DOCTYPE html><title>Login</title>"),
                "https://cluster.example answered with a web page (HTML), so it is not a Kubernetes API server, or a \
                 proxy or login page is before it; check the server in the kubeconfig",
            ),
            (
                ApiError::NoAnswer("connection refused".to_owned()),
                "cannot reach the API server https://cluster.example: connection refused\n\
                 Is it the right --context, and does kubectl reach it?",
            ),
        ] {
            assert_eq!(said(&error), expected);
        }
        let page = ApiError::NoAnswer("<html>200".to_owned());
        assert!(said(&page).contains("answered with a web page"), "a page that came as a success");
    }
}
