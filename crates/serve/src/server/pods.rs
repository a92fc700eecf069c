//! Pods, in the shape of the Kubernetes API.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Json,
    extract::{Path, State},
    http::Uri,
    response::{IntoResponse, Response},
};
use keelet_agent::{
    RequestError,
    board::{self, Published},
};
use keelet_launch::qos_class;
use keelet_lifecycle::{Wall, observed::RestartRequest};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    Local, change,
    failure::{Refusal, bad_request},
};
use crate::api::{GonePod, List};

/// What can be asked of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ListQuery {
    pub(super) namespace: Option<String>,
    pub(super) watch: bool,
}

/// Nothing can be asked of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct NoQuery {}

/// Refuses a request that asks for something in its query where nothing can be asked for.
pub(super) fn no_query(uri: &Uri) -> Result<(), Refusal> {
    query::<NoQuery>(uri).map(drop)
}

/// The query of a request, or what is wrong with it.
pub(super) fn query<T: serde::de::DeserializeOwned>(uri: &Uri) -> Result<T, Refusal> {
    let parsed = axum::extract::Query::try_from_uri(uri);
    parsed.map(|axum::extract::Query(query)| query).map_err(|error| {
        let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        bad_request(format!("invalid query {:?}: {why}", uri.query().unwrap_or_default()))
    })
}

pub(super) async fn list(State(local): State<Arc<Local>>, uri: Uri) -> Result<Response, Refusal> {
    let ListQuery { namespace, watch } = query(&uri)?;
    let wanted =
        move |published: &Published| namespace.as_ref().is_none_or(|wanted| *wanted == published.pod.namespace);
    if watch {
        let (board, shown) = (Arc::clone(local.board()), Arc::clone(&local));
        let list = move || board.statuses().into_iter().filter(|(_, published)| wanted(published)).collect();
        return Ok(change::answer(
            local.board().changes(),
            Box::new(list),
            Box::new(move |published| object(published, &shown)),
        ));
    }
    // By name rather than by UID: as people expect a list.
    let mut pods: Vec<_> = local.board().statuses().into_values().filter(|published| wanted(published)).collect();
    pods.sort_by(|a, b| (&a.pod.namespace, &a.pod.name).cmp(&(&b.pod.namespace, &b.pod.name)));
    let items = pods.iter().map(|published| object(published, &local)).collect::<Result<Vec<_>, _>>()?;
    Ok(Json(List { items }).into_response())
}

/// The newest pods that are gone, the newest last.
pub(super) async fn gone(State(local): State<Arc<Local>>, uri: Uri) -> Result<Json<List<GonePod>>, Refusal> {
    no_query(&uri)?;
    let gone = local.board().gone_pods();
    let show = |gone: &Arc<board::GonePod>| -> Result<GonePod, serde_json::Error> {
        Ok(GonePod { gone_at: time(gone.at.wall), pod: object(&gone.published, &local)? })
    };
    Ok(Json(List { items: gone.iter().map(show).collect::<Result<_, _>>()? }))
}

pub(super) async fn one(
    State(local): State<Arc<Local>>,
    Path((namespace, name)): Path<(String, String)>,
    uri: Uri,
) -> Result<Json<Value>, Refusal> {
    no_query(&uri)?;
    let published = local.pod(&namespace, &name)?;
    Ok(Json(object(&published, &local)?))
}

pub(super) async fn delete(
    State(local): State<Arc<Local>>,
    Path((namespace, name)): Path<(String, String)>,
    uri: Uri,
) -> Result<Json<Value>, Refusal> {
    no_query(&uri)?;
    let published = local.pod(&namespace, &name)?;
    local.desired.delete(&published).map_err(|error| Refusal::new(409, "Conflict", error.to_string()))?;
    tracing::info!(pod = %format!("{namespace}/{name}"), "pod deletion requested over the local API");
    Ok(Json(object(&published, &local)?))
}

/// Restarts all containers in place.
pub(super) async fn restart(
    State(local): State<Arc<Local>>,
    Path((namespace, name)): Path<(String, String)>,
    uri: Uri,
) -> Result<Json<Value>, Refusal> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    no_query(&uri)?;
    let published = local.pod(&namespace, &name)?;
    if published.leaving.is_some() {
        return Err(Refusal::new(409, "Conflict", format!("pod {namespace}/{name} is terminating")));
    }
    if published.status.phase.is_terminal() {
        let message = format!(
            "pod {namespace}/{name} has ended ({:?}); a pod that has ended is not restarted",
            published.status.phase
        );
        return Err(Refusal::new(409, "Conflict", message));
    }
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let request = RestartRequest {
        id: format!("local-{}-{number}", local.now().wall.as_millis()),
        by: "the local API".to_owned(),
    };
    local.agent.request_restart(&published.pod.uid, request).map_err(|error| match &error {
        RequestError::UnknownPod(_) => super::not_found(error.to_string()),
        RequestError::Refused(_) => Refusal::new(409, "Conflict", error.to_string()),
    })?;
    Ok(Json(object(&published, &local)?))
}

/// The whole pod, as an API server would show it.
pub(super) fn object(published: &Published, local: &Local) -> Result<Value, serde_json::Error> {
    let mut pod = published.pod.to_json()?;
    let mut status = serde_json::to_value(&published.status)?;
    if let Some(fields) = status.as_object_mut() {
        fields.insert("qosClass".to_owned(), json!(qos_class(&published.pod)));
        if let Some(address) = &local.facts().address {
            fields.insert("hostIP".to_owned(), json!(address));
            fields.insert("hostIPs".to_owned(), json!([{ "ip": address }]));
        }
    }
    if let Some(fields) = pod.as_object_mut() {
        fields.remove(keelet_pod::TRUST);
        fields.insert("status".to_owned(), status);
        if let Some(metadata) = part(fields, "metadata") {
            let start = published.status.start_time;
            if let (None, Some(start)) = (metadata.get("creationTimestamp"), start) {
                metadata.insert("creationTimestamp".to_owned(), json!(start));
            }
            if let Some(leaving) = published.leaving {
                let end = leaving.asked.plus(leaving.grace).wall.whole_seconds();
                metadata.insert("deletionTimestamp".to_owned(), json!(end));
                metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(seconds(leaving.grace)));
            }
        }
        if let Some(spec) = part(fields, "spec") {
            spec.entry("nodeName").or_insert_with(|| json!(local.facts().name));
        }
    }
    Ok(pod)
}

fn part<'a>(fields: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Map<String, Value>> {
    fields.get_mut(name).and_then(Value::as_object_mut)
}

fn seconds(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

/// A moment as the API writes it.
pub(super) fn time(wall: Wall) -> String {
    wall.whole_seconds().to_string()
}
