//! Requests to the API server: each with a deadline of its own, none repeated behind our back.
//!
//! All of them go through one `kube::Client`, which is a simulated service in tests. Bodies are JSON as they are on the wire; what they
//! mean is up to the callers.

mod access;
mod body;
mod connect;
mod follow;
mod kubeconfig;
mod reload;
mod watch;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::{Client, client::Body};
use serde::Deserialize;
use serde_json::Value;
use tokio::{sync::Notify, time::timeout};

pub use self::{
    access::{Denied, Permission, check},
    body::Lines,
    connect::{ConnectError, Unverified, connect_in_cluster},
    follow::{News, Objects, WatchObserver, escaped, follow, has_group, log_list_failed},
    kubeconfig::{Connected, Kubectl, connect_as_kubectl},
    reload::connect,
    watch::{BadJson, Failure, Page, Version, WatchEvent, read_event, read_page},
};

/// The longest time for a read or write of one object. An API server gives up after 60 s; a lease has to be renewed after 10.
pub const SHORT: Duration = Duration::from_secs(5);

/// The longest time for a page of a list, or for the first answer of a watch.
pub const LONG: Duration = Duration::from_secs(30);

/// The API server.
#[derive(Clone)]
pub struct Api {
    client: Client,
    /// Notified when a request was forbidden.
    forbidden: Arc<Notify>,
}

/// Why a request was not done, or may not have been done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The API server said no.
    #[error("{message} ({code} {reason})")]
    Refused {
        /// The code of the HTTP answer.
        code: u16,
        /// `Conflict`, `NotFound`, `Forbidden`, ...
        reason: String,
        /// A sentence for people.
        message: String,
        /// After how long to come again.
        retry_after: Option<Duration>,
    },
    /// No answer came in time, or none that can be read: whether it was done is not known.
    #[error("{0}")]
    NoAnswer(String),
}

/// A Status of the API, as far as it is used.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    reason: String,
    message: String,
    details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    retry_after_seconds: u64,
}

/// The content type of a JSON merge patch.
const MERGE_PATCH: &str = "application/merge-patch+json";

/// The content type of a strategic merge patch.
const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";

/// The longest text of an error that is kept: a proxy may answer with a page.
const ERROR_TEXT: usize = 400;

/// The longest answer that is a success. A page of 100 nodes or pods has some 3 MiB, and the objects that may have a MiB each are read one by one. An
/// API server that is another one than it should be does not fill the memory of the node.
const LONGEST_ANSWER: usize = 64 << 20;

/// The longest answer that is not a success, and the longest message in it. Those of the API server name the fields of one object.
const LONGEST_REFUSAL: usize = 64 * 1024;
const LONGEST_MESSAGE: usize = 4 * 1024;

// === impl Api ===

impl Api {
    /// Uses this client.
    pub fn new(client: Client) -> Self {
        Self { client, forbidden: Arc::default() }
    }

    /// Reads an object or a list.
    pub async fn get(&self, path: &str, deadline: Duration) -> Result<Bytes, ApiError> {
        self.ask(Method::GET, path, "", Vec::new(), deadline).await
    }

    /// Creates an object.
    pub async fn create(&self, path: &str, object: &Value) -> Result<Bytes, ApiError> {
        self.ask(Method::POST, path, "application/json", object.to_string().into_bytes(), SHORT).await
    }

    /// Sends a JSON merge patch.
    pub async fn patch(&self, path: &str, patch: Vec<u8>, deadline: Duration) -> Result<Bytes, ApiError> {
        self.ask(Method::PATCH, path, MERGE_PATCH, patch, deadline).await
    }

    /// Sends a strategic merge patch.
    pub async fn patch_strategic(&self, path: &str, patch: Vec<u8>, deadline: Duration) -> Result<Bytes, ApiError> {
        self.ask(Method::PATCH, path, STRATEGIC_MERGE_PATCH, patch, deadline).await
    }

    /// Replaces an object.
    pub async fn replace(&self, path: &str, object: &Value, deadline: Duration) -> Result<Bytes, ApiError> {
        self.ask(Method::PUT, path, "application/json", object.to_string().into_bytes(), deadline).await
    }

    /// Deletes an object, with these options.
    pub async fn delete(&self, path: &str, options: &Value, deadline: Duration) -> Result<Bytes, ApiError> {
        self.ask(Method::DELETE, path, "application/json", options.to_string().into_bytes(), deadline).await
    }

    /// Opens a watch: lines of JSON, each an event.
    pub async fn watch(&self, path: &str) -> Result<Lines, ApiError> {
        // A compressed watch would be a compressed stream per event, which decoders stop reading after the first.
        let request = Request::get(path).header(header::ACCEPT_ENCODING, "identity");
        let request = request.body(Body::empty()).map_err(no_answer)?;
        let response = within(LONG, self.client.send(request)).await?.map_err(no_answer)?;
        if response.status().is_success() {
            return Ok(Lines::new(response.into_body()));
        }
        Err(self.noted(within(SHORT, refusal(response)).await?))
    }

    /// Waits until a request is forbidden, or takes note of one that was since the last time.
    pub async fn forbidden(&self) {
        self.forbidden.notified().await;
    }

    fn noted(&self, error: ApiError) -> ApiError {
        if error.is_forbidden() {
            self.forbidden.notify_one();
        }
        error
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
        deadline: Duration,
    ) -> Result<Bytes, ApiError> {
        let mut request = Request::builder().method(method).uri(path).header(header::ACCEPT, "application/json");
        if !content_type.is_empty() {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let request = request.body(Body::from(body)).map_err(no_answer)?;
        let answer = async {
            let response = self.client.send(request).await.map_err(no_answer)?;
            if response.status().is_success() {
                let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await;
                return Ok(body.map_err(|error| too_long(&*error))?.to_bytes());
            }
            Err(self.noted(refusal(response).await))
        };
        within(deadline, answer).await?
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}

async fn within<T>(deadline: Duration, answer: impl Future<Output = T>) -> Result<T, ApiError> {
    timeout(deadline, answer)
        .await
        .map_err(|_| ApiError::NoAnswer(format!("no answer within {} s", deadline.as_secs())))
}

/// What an answer that is not a success says.
async fn refusal(response: Response<Body>) -> ApiError {
    let (parts, body) = response.into_parts();
    let body = match Limited::new(body, LONGEST_REFUSAL).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return ApiError::NoAnswer(format!("answered {}, and not what is wrong: {error}", parts.status)),
    };
    let status: Option<Status> = serde_json::from_slice(&body).ok();
    let text = || String::from_utf8_lossy(&body[..body.len().min(ERROR_TEXT)]).trim().to_owned();
    let reason = status.as_ref().map(|status| status.reason.clone()).filter(|reason| !reason.is_empty());
    let asked = || parts.headers.get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok();
    let seconds = status.as_ref().map(|status| status.details.retry_after_seconds).filter(|seconds| *seconds > 0);
    let known = parts.status.canonical_reason().unwrap_or_default();
    ApiError::Refused {
        code: parts.status.as_u16(),
        reason: reason.unwrap_or_else(|| known.to_owned()),
        message: status.map(|status| cut(status.message)).filter(|message| !message.is_empty()).unwrap_or_else(text),
        retry_after: seconds.or_else(asked).map(Duration::from_secs),
    }
}

fn cut(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
    message
}

fn too_long(error: &(dyn std::error::Error + Send + Sync + 'static)) -> ApiError {
    match error.is::<LengthLimitError>() {
        true => ApiError::NoAnswer(format!("its answer is longer than {LONGEST_ANSWER} bytes")),
        false => no_answer(error),
    }
}

fn no_answer(error: impl std::error::Error) -> ApiError {
    // The outermost error often says no more than "client error": the cause is what a person needs.
    let mut text = error.to_string();
    if let Some(said) = text.strip_prefix("ServiceError: ") {
        text = said.to_owned();
    }
    let mut cause = error.source();
    while let Some(error) = cause {
        let inner = error.to_string();
        if !text.contains(&inner) {
            text = format!("{text}: {inner}");
        }
        cause = error.source();
    }
    ApiError::NoAnswer(text)
}

// === impl ApiError ===

impl ApiError {
    /// Whether the object, or its kind, does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(StatusCode::NOT_FOUND)
    }

    /// Whether another writer was faster, or the object exists already.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(StatusCode::CONFLICT)
    }

    /// Whether it is not allowed.
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(StatusCode::FORBIDDEN)
    }

    /// Whether a version is too old to continue from.
    pub fn is_expired(&self) -> bool {
        self.code() == Some(StatusCode::GONE)
    }

    /// After how long the API server wants to be asked again.
    pub fn retry_after(&self) -> Option<Duration> {
        if let Self::Refused { retry_after, .. } = self { *retry_after } else { None }
    }

    /// The code of the answer.
    pub fn code(&self) -> Option<StatusCode> {
        if let Self::Refused { code, .. } = self { StatusCode::from_u16(*code).ok() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLU-45: what an API server sends is not kept without a bound.
    #[tokio::test]
    async fn an_answer_that_does_not_end_is_cut_off() {
        let asked = async |length: usize| {
            let service = tower::service_fn(move |_: Request<Body>| async move {
                Ok::<_, std::convert::Infallible>(Response::new(Body::from(vec![b' '; length])))
            });
            let api = Api::new(Client::new(service, "default"));
            api.get("/api/v1/nodes", LONG).await.map(|answer| answer.len())
        };
        assert_eq!(asked(LONGEST_ANSWER).await, Ok(LONGEST_ANSWER));
        let error = asked(LONGEST_ANSWER + 1).await.expect_err("it is too long").to_string();
        assert_eq!(error, "its answer is longer than 67108864 bytes");
    }
}
