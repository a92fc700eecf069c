//! The kubelet's API: what `kubectl logs`, `exec`, `attach`, `cp`, `port-forward` and `top` reach through an API server.
//!
//! | file | what |
//! | --- | --- |
//! | `action` | from a path to what it asks for. Pure |
//! | `log` | logs of containers |
//! | `shared` | answers that requests share |
//! | `stream` | commands, attaching and ports: the client's bytes are carried to the runtime's server and back |
//! | `usage` | what node, pods and containers use, as JSON and as metrics |
//!
//! Which client asks, and whether it may, is decided before (`keelet-https`). Errors are plain text, as the kubelet's are: an API server
//! shows the text to the user.

mod action;
mod log;
mod shared;
mod stream;
mod usage;

use std::{any::Any, sync::Arc};

use axum::{
    Json,
    body::Body,
    http::{Method, Request, Response, StatusCode, Uri, header::CONTENT_TYPE},
    response::IntoResponse,
};
use bytes::Bytes;
use hyper::body::Incoming;
use keelet_agent::{board::Published, metrics};
use serde_json::{Value, json};

pub use self::action::{Action, Area, BadPath, ContainerRef, Numbers, PodRef};
use self::{shared::Shared, usage::Usage};
use super::{LOOK_AGAIN, Local, TAKING_UP, failure::Refusal, health_of, not_found, pods, runtime::identity};

/// The kubelet's API over an agent.
#[derive(Debug)]
pub struct KubeletApi {
    local: Arc<Local>,
    settings: KubeletSettings,
    usage: Usage,
    pods: Shared<Result<Bytes, Refusal>>,
    running_pods: Shared<Result<Bytes, Refusal>>,
}

/// What the API is told about the node's configuration.
#[derive(Clone, Debug)]
pub struct KubeletSettings {
    /// Whether logs, commands, ports and the pods of the runtime are served: `enableDebuggingHandlers`.
    pub debugging: Debugging,
    /// The configuration in effect, as `/configz` shows it.
    pub configuration: Value,
}

/// Whether what gives access to containers is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Debugging {
    /// It is.
    #[default]
    Served,
    /// It is refused to every client.
    Refused,
}

/// What a session keeps until it ends, as an extension of its request: what its client is counted by.
#[derive(Clone, Debug)]
pub struct SessionHold(pub Arc<dyn Any + Send + Sync>);

// === impl KubeletApi ===

impl KubeletApi {
    /// The API of this agent.
    pub fn new(local: Arc<Local>, settings: KubeletSettings) -> Self {
        let (pods, running_pods) = (Shared::default(), Shared::default());
        Self { local, settings, usage: Usage::default(), pods, running_pods }
    }

    /// Answers a request of a client that may make it.
    pub async fn answer(&self, action: Action, request: Request<Incoming>) -> Response<Body> {
        self.serve(action, request).await.unwrap_or_else(plain)
    }

    async fn serve(&self, action: Action, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let local = &self.local;
        if self.settings.debugging == Debugging::Refused && gives_access(&action) {
            let message = "logs, exec, attach and port-forward are disabled by enableDebuggingHandlers";
            return Err(Refusal::new(405, "MethodNotAllowed", message.to_owned()));
        }
        let streams = matches!(action, Action::Exec(_) | Action::Attach(_) | Action::PortForward(_));
        if !streams && !matches!(*request.method(), Method::GET | Method::HEAD) {
            let message = format!("method {} not allowed on {}", request.method(), request.uri().path());
            return Err(Refusal::new(405, "MethodNotAllowed", message));
        }
        Ok(match action {
            Action::ContainerLogs(of) => log::log(local, &of, &request).await?,
            Action::Exec(of) => stream::exec(local, &of, request).await?,
            Action::Attach(of) => stream::attach(local, &of, request).await?,
            Action::PortForward(of) => stream::port_forward(local, &of, request).await?,
            Action::Pods => json_text(self.pods.get(async { pod_list(self.pods()?) }).await?),
            Action::RunningPods => {
                json_text(self.running_pods.get(async { pod_list(self.running_pods().await?) }).await?)
            }
            Action::Healthz => health_of(local).await.into_response(),
            Action::Configz => Json(json!({ "kubeletconfig": self.settings.configuration })).into_response(),
            Action::Metrics(Numbers::Agent) => numbers(local.agent.metrics(), metrics::CONTENT_TYPE),
            Action::Metrics(Numbers::Probes) => numbers(only_probes(&local.agent.metrics()), metrics::CONTENT_TYPE),
            Action::Metrics(Numbers::Resource) => numbers(self.usage.resource(local).await, usage::CONTENT_TYPE),
            Action::Metrics(Numbers::Cadvisor) => numbers(self.usage.cadvisor(local).await, usage::CONTENT_TYPE),
            Action::Summary => json_text(self.usage.summary(local).await?),
            Action::Run | Action::NodeLogs | Action::Unknown(_) => return Err(nowhere(request.uri())),
        })
    }

    /// The pods of this node, as an API server would show them.
    fn pods(&self) -> Result<Vec<Value>, Refusal> {
        let pods = self.local.pods();
        Ok(pods.values().map(|published| pods::object(published, &self.local)).collect::<Result<_, _>>()?)
    }

    /// The pods that have a running container, whatever the agent wants.
    async fn running_pods(&self) -> Result<Vec<Value>, Refusal> {
        let mut pods: Vec<((String, String, String), Vec<Value>)> = Vec::new();
        for container in self.local.runtime().list_containers(None).await? {
            if container.state() != keelet_cri::v1::ContainerState::ContainerRunning {
                continue;
            }
            let pod = identity(&container.labels);
            let image = container.image.unwrap_or_default().image;
            let shown = json!({ "name": container.metadata.unwrap_or_default().name, "image": image, "resources": {} });
            match pods.iter_mut().find(|(known, _)| *known == pod) {
                Some((_, containers)) => containers.push(shown),
                None => pods.push((pod, vec![shown])),
            }
        }
        pods.sort_by(|(one, _), (other, _)| one.cmp(other));
        let object = |((namespace, name, uid), containers)| {
            json!({
                "metadata": { "name": name, "namespace": namespace, "uid": uid },
                "spec": { "containers": containers },
                "status": {},
            })
        };
        Ok(pods.into_iter().map(object).collect())
    }
}

/// Whether it shows or reaches what is inside of containers.
fn gives_access(action: &Action) -> bool {
    action.session_of().is_some() || matches!(action, Action::Run | Action::RunningPods | Action::NodeLogs)
}

fn pod_list(items: Vec<Value>) -> Result<Bytes, Refusal> {
    let list = json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items });
    Ok(serde_json::to_vec(&list)?.into())
}

fn numbers(text: impl Into<Bytes>, content_type: &'static str) -> Response<Body> {
    ([(CONTENT_TYPE, content_type)], text.into()).into_response()
}

fn json_text(text: Bytes) -> Response<Body> {
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

/// The lines about probes, with the end that the format asks for.
fn only_probes(metrics: &str) -> String {
    let about = |line: &&str| {
        let name = line.strip_prefix("# ").and_then(|line| line.split(' ').nth(1)).unwrap_or(line);
        name.starts_with("prober_") || *line == "# EOF"
    };
    metrics.lines().filter(about).flat_map(|line| [line, "\n"]).collect()
}

fn nowhere(uri: &Uri) -> Refusal {
    not_found(format!("path {} not found", uri.path()))
}

/// A refusal as text.
pub(super) fn plain(refusal: Refusal) -> Response<Body> {
    let failure = crate::api::Failure::from(refusal);
    let status = StatusCode::from_u16(failure.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, failure.message).into_response()
}

/// The pod that a path names. A new agent has no status of its pods for a moment, and is waited for: a pod does not vanish because an agent
/// was restarted.
async fn pod(local: &Local, of: &PodRef) -> Result<Arc<Published>, Refusal> {
    let named = |published: &Arc<Published>| of.uid.as_ref().is_none_or(|uid| *uid == published.pod.uid);
    loop {
        if let Some(published) = local.pod(&of.namespace, &of.name).ok().filter(named) {
            return Ok(published);
        }
        if local.now().since(&local.agent.started()) >= TAKING_UP {
            return Err(not_found(format!("pod {:?} does not exist", of.name)));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// The pod of a container that a path names. It is an error if the pod has no such container.
async fn pod_with(local: &Local, of: &ContainerRef) -> Result<Arc<Published>, Refusal> {
    let published = pod(local, &of.pod).await?;
    if published.pod.all_containers().any(|container| container.name == of.container) {
        return Ok(published);
    }
    Err(not_found(format!("container {:?} not found in pod {:?}", of.container, of.pod.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLU-40
    #[test]
    fn metrics_of_probes_are_a_part_of_all_metrics() {
        let all = "# HELP prober_probe Results.\n# TYPE prober_probe counter\nprober_probe_total{probe_type=\"Liveness\"} 3\n\
                   # HELP kubelet_running_pods Pods.\n# TYPE kubelet_running_pods gauge\nkubelet_running_pods 1\n# EOF\n";
        assert_eq!(
            only_probes(all),
            "# HELP prober_probe Results.\n# TYPE prober_probe counter\nprober_probe_total{probe_type=\"Liveness\"} 3\n# EOF\n"
        );
    }
}
