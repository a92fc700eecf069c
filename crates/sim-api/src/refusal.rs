//! Why the server refuses a request: the `Status` object that a client gets instead of an answer.
//!
//! Codes, reasons and the wording of the short messages are those of the real server, because clients decide by them and
//! people search for them.

use serde_json::{Value, json};

use crate::field::{FieldError, aggregate};

/// A group and the name of a resource or kind in it, as messages print them: `nodes`, `leases.coordination.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Qualified<'a> {
    pub(crate) group: &'a str,
    pub(crate) name: &'a str,
}

/// A `Status` of failure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    details: Option<Value>,
    /// For lists whose continue token has expired: a token to go on with all the same.
    next: Option<String>,
}

/// What the real server says of an update whose resourceVersion is not the stored one.
pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

// === impl Qualified ===

impl std::fmt::Display for Qualified<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.group.is_empty() { f.write_str(self.name) } else { write!(f, "{}.{}", self.name, self.group) }
    }
}

// === impl Refusal ===

impl Refusal {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, next: None }
    }

    fn about(mut self, what: Qualified<'_>, name: &str) -> Self {
        let mut details = serde_json::Map::new();
        if !name.is_empty() {
            details.insert("name".to_owned(), name.into());
        }
        if !what.group.is_empty() {
            details.insert("group".to_owned(), what.group.into());
        }
        if !what.name.is_empty() {
            details.insert("kind".to_owned(), what.name.into());
        }
        self.details = Some(Value::Object(details));
        self
    }

    fn retry_after(mut self, seconds: u32) -> Self {
        let details = self.details.get_or_insert_with(|| json!({}));
        details["retryAfterSeconds"] = seconds.into();
        self
    }

    pub(crate) fn not_found(what: Qualified<'_>, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{what} {name:?} not found")).about(what, name)
    }

    /// A name that is taken: maybe one that was generated, maybe by an object that is about to go.
    pub(crate) fn already_exists(what: Qualified<'_>, name: &str, generated: bool, deleting: bool) -> Self {
        let mut message = format!("{what} {name:?} already exists");
        if generated {
            message.push_str(", the server was not able to generate a unique name for the object");
        }
        if deleting {
            message = format!("object is being deleted: {message}");
        }
        let refusal = Self::new(409, "AlreadyExists", message).about(what, name);
        if generated { refusal.retry_after(1) } else { refusal }
    }

    /// A path of a group that the server has, but not such a resource.
    pub(crate) fn unknown_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self { details: Some(json!({})), ..Self::new(404, "NotFound", message) }
    }

    pub(crate) fn conflict(what: Qualified<'_>, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {what} {name:?}: {why}");
        Self::new(409, "Conflict", message).about(what, name)
    }

    pub(crate) fn forbidden(what: Qualified<'_>, name: &str, why: &str) -> Self {
        let message = match (what.name.is_empty() && what.group.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (false, true) => format!("{what} is forbidden: {why}"),
            (false, false) => format!("{what} {name:?} is forbidden: {why}"),
        };
        Self::new(403, "Forbidden", message).about(what, name)
    }

    pub(crate) fn invalid(kind: Qualified<'_>, name: &str, errors: &[FieldError]) -> Self {
        let message = format!("{kind} {name:?} is invalid: {}", aggregate(errors));
        let mut refusal = Self::new(422, "Invalid", message).about(kind, name);
        if let Some(details) = &mut refusal.details {
            details["causes"] = errors.iter().map(FieldError::cause).collect();
        }
        refusal
    }

    /// A patch that cannot be applied to the object.
    pub(crate) fn inapplicable_patch() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self { details: Some(json!({})), ..Self::new(422, "Invalid", message) }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// A method that no handler is installed for.
    pub(crate) fn no_such_method() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self { details: Some(json!({})), ..Self::new(405, "MethodNotAllowed", message) }
    }

    pub(crate) fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn unknown_media_type() -> Self {
        Self { details: Some(json!({})), ..Self::unsupported_media_type("415: Unsupported Media Type") }
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// A list whose continue token has expired, with a token for the rest as it is now.
    pub(crate) fn expired_continue(next: String) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result.";
        Self { next: Some(next), ..Self::expired(message) }
    }

    /// A resourceVersion that the server has not reached yet.
    pub(crate) fn too_large_version(wanted: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        let mut refusal = Self::new(504, "Timeout", message).retry_after(1);
        if let Some(details) = &mut refusal.details {
            details["causes"] =
                json!([{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }]);
        }
        refusal
    }

    pub(crate) fn too_many_requests(seconds: u32) -> Self {
        Self::new(429, "TooManyRequests", "Too many requests, please try again later.").retry_after(seconds)
    }

    pub(crate) fn internal(why: &str) -> Self {
        let details = json!({ "causes": [{ "message": why }] });
        Self { details: Some(details), ..Self::new(500, "InternalError", format!("Internal error occurred: {why}")) }
    }

    pub(crate) fn unavailable() -> Self {
        Self::new(503, "ServiceUnavailable", "the server is currently unable to handle the request")
    }

    /// The server gave up waiting, and does not say whether the request was carried out.
    pub(crate) fn timeout() -> Self {
        Self::new(504, "Timeout", "Timeout: request did not complete within the allotted timeout").retry_after(0)
    }

    /// An error that has no reason: the server's own code did not foresee it.
    pub(crate) fn plain(code: u16, message: &str) -> Self {
        Self::new(code, "", message)
    }

    /// The seconds of the `Retry-After` header.
    pub(crate) fn retry_seconds(&self) -> Option<u64> {
        self.details.as_ref()?.get("retryAfterSeconds")?.as_u64().filter(|seconds| *seconds > 0)
    }

    /// The object that is sent.
    pub(crate) fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        if let Some(next) = &self.next {
            status["metadata"]["continue"] = next.as_str().into();
        }
        status
    }
}
