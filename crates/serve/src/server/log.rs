//! The logs of containers over the API: parameters and words as the Kubernetes API has them.

use std::{io, sync::Arc};

use axum::{
    Json,
    body::Body,
    extract::{Path, State},
    http::{Uri, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use jiff::{SignedDuration, Timestamp};
use keelet_agent::board::{Board, Published};
use keelet_lifecycle::{
    restart::{Decision, RestartAllRule, on_exit},
    status::ContainerState,
};
use serde::Deserialize;

use super::{
    Local,
    failure::{Refusal, bad_request},
    pods::query,
};
use crate::{
    api::{Anchor, LogFiles},
    logs::{self, LogRequest, LogState, Which},
};

/// What can be asked of a log.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct LogQuery {
    container: Option<String>,
    follow: bool,
    previous: bool,
    since_seconds: Option<i64>,
    since_time: Option<Timestamp>,
    tail_lines: Option<u64>,
    timestamps: bool,
}

/// What can be asked of where a log is.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FilesQuery {
    container: Option<String>,
}

pub(super) async fn log(
    State(local): State<Arc<Local>>,
    Path((namespace, name)): Path<(String, String)>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let asked: LogQuery = query(&uri)?;
    let published = local.pod(&namespace, &name)?;
    let container = container(&published, asked.container.as_deref())?;
    let request = request(&local, &published, &container, &asked)?;
    if !asked.follow || asked.previous {
        must_exist(&request, &published, &container, asked.previous).await?;
    }
    let (board, uid) = (Arc::clone(local.board()), published.pod.uid.clone());
    let log = logs::read(request, move || log_state(&board, &uid, &container));
    Ok(([(CONTENT_TYPE, "text/plain; charset=utf-8")], Body::from_stream(log)).into_response())
}

/// Where the files are: a client that reads them there goes on reading when the agent does not answer.
pub(super) async fn files(
    State(local): State<Arc<Local>>,
    Path((namespace, name)): Path<(String, String)>,
    uri: Uri,
) -> Result<Json<LogFiles>, Refusal> {
    let FilesQuery { container: asked } = query(&uri)?;
    let published = local.pod(&namespace, &name)?;
    let container = container(&published, asked.as_deref())?;
    let directory = local.layout.pod(&published.pod).map_err(|error| bad_request(error.to_string()))?;
    let directory = directory.container_log_dir(&container);
    let anchor = Anchor::above(&directory)
        .map_err(|error| Refusal::new(500, "InternalError", format!("{}: {error}", directory.display())))?;
    let open = log_state(local.board(), &published.pod.uid, &container) == LogState::Open;
    Ok(Json(LogFiles { container, pod_uid: published.pod.uid.clone(), directory, anchor, open }))
}

/// The container that is meant.
fn container(published: &Published, asked: Option<&str>) -> Result<String, Refusal> {
    let pod = &published.pod;
    let names = || pod.all_containers().map(|container| container.name.as_str()).collect::<Vec<_>>().join(" ");
    match asked {
        Some(name) if pod.container(name).is_some() => Ok(name.to_owned()),
        Some(name) => Err(bad_request(format!("pod {:?} has no container {name:?}; it has: {}", pod.name, names()))),
        None => match pod.containers.as_slice() {
            [only] => Ok(only.name.clone()),
            _ => Err(bad_request(format!(
                "a container name must be specified for pod {:?}, choose one of: {}",
                pod.name,
                names()
            ))),
        },
    }
}

fn request(local: &Local, published: &Published, container: &str, asked: &LogQuery) -> Result<LogRequest, Refusal> {
    let seconds = asked.since_seconds.map(|seconds| ago(local, seconds));
    Ok(LogRequest {
        follow: asked.follow && !asked.previous,
        tail: asked.tail_lines,
        since: asked.since_time.or(seconds),
        timestamps: asked.timestamps,
        ..request_of(local, published, container, asked.previous)?
    })
}

/// A request for the log of a container's newest instance, or of the one before it.
pub(super) fn request_of(
    local: &Local,
    published: &Published,
    container: &str,
    previous: bool,
) -> Result<LogRequest, Refusal> {
    let paths = local.layout.pod(&published.pod).map_err(|error| bad_request(error.to_string()))?;
    // A container that waits to be started again has had no newer instance than its last one.
    let status = published.status.container(container);
    let waits = status.is_some_and(|status| matches!(status.state, ContainerState::Waiting(_)));
    Ok(LogRequest {
        directory: paths.container_log_dir(container),
        which: if previous && !waits { Which::BeforeNewest } else { Which::Newest },
        ..LogRequest::default()
    })
}

/// The time that was so many seconds ago.
pub(super) fn ago(local: &Local, seconds: i64) -> Timestamp {
    let now = Timestamp::from_millisecond(local.now().wall.as_millis()).unwrap_or(Timestamp::MAX);
    now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN)
}

/// Refuses a request for a log that does not exist, with the reason.
pub(super) async fn must_exist(
    request: &LogRequest,
    published: &Published,
    container: &str,
    previous: bool,
) -> Result<(), Refusal> {
    let looked = request.clone();
    let exists = tokio::task::spawn_blocking(move || logs::exists(&looked)).await;
    match exists.map_err(io::Error::other).and_then(|exists| exists) {
        Ok(true) => Ok(()),
        Ok(false) => Err(nothing(published, container, previous)),
        Err(error) => Err(Refusal::new(500, "InternalError", format!("cannot read the log: {error}"))),
    }
}

/// Why there is no log.
fn nothing(published: &Published, container: &str, previous: bool) -> Refusal {
    let pod = &published.pod.name;
    if previous {
        return bad_request(format!("previous terminated container {container:?} in pod {pod:?} not found"));
    }
    let state = published.status.container(container).map(|status| &status.state);
    bad_request(match state {
        Some(ContainerState::Waiting(waiting)) if !waiting.reason.is_empty() => {
            format!("container {container:?} in pod {pod:?} is waiting to start: {}", waiting.reason)
        }
        Some(ContainerState::Waiting(_)) | None => {
            format!("container {container:?} in pod {pod:?} is waiting to start")
        }
        Some(_) => format!("container {container:?} in pod {pod:?} has left no log"),
    })
}

/// Whether a container of a pod may write more.
pub fn log_state(board: &Board, uid: &str, name: &str) -> LogState {
    match board.statuses().get(uid) {
        Some(published) if may_write(published, name) => LogState::Open,
        _ => LogState::Closed,
    }
}

fn may_write(published: &Published, name: &str) -> bool {
    let over = published.status.phase.is_terminal() || published.leaving.is_some();
    match published.status.container(name).map(|status| &status.state) {
        Some(ContainerState::Running(_)) => true,
        None | Some(ContainerState::Waiting(_)) => !over,
        Some(ContainerState::Terminated(ended)) => {
            let comes_back =
                |container| on_exit(container, ended.exit_code, RestartAllRule::Honoured) != Decision::Stay;
            !over && (published.pod.has_restart_all_rule() || published.pod.container(name).is_some_and(comes_back))
        }
    }
}

#[cfg(test)]
mod tests {
    use keelet_lifecycle::status::PodStatus;
    use keelet_pod::parse_one;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_log_goes_on_for_as_long_as_its_container_may_run_again() {
        let may = |policy: &str, phase: &str, state: serde_json::Value| {
            let manifest = format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\n\
                 spec: {{restartPolicy: {policy}, containers: [{{name: main, image: a}}]}}"
            );
            let status: PodStatus = serde_json::from_value(
                json!({ "phase": phase, "conditions": [], "containerStatuses": [{ "name": "main", "state": state }] }),
            )
            .unwrap();
            let pod = Arc::new(parse_one(&manifest).unwrap());
            may_write(&Published { pod, version: 1, status, leaving: None }, "main")
        };
        let ended = |code: i32| json!({ "terminated": { "exitCode": code } });
        let (running, waiting) = (json!({ "running": {} }), json!({ "waiting": { "reason": "CrashLoopBackOff" } }));
        assert!(may("Always", "Running", running.clone()) && may("Never", "Failed", running));
        assert!(may("OnFailure", "Running", waiting.clone()) && !may("OnFailure", "Failed", waiting));
        assert!(may("Always", "Running", ended(0)) && may("OnFailure", "Running", ended(1)));
        assert!(!may("OnFailure", "Running", ended(0)) && !may("Never", "Running", ended(1)));
    }
}
