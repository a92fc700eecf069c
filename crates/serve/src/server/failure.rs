//! Requests that are not served.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};

use crate::api::Failure;

/// An answer that says why there is no better one.
#[derive(Clone, Debug)]
pub(crate) struct Refusal(Box<Failure>);

pub(crate) fn not_found(message: String) -> Refusal {
    Refusal::new(404, "NotFound", message)
}

pub(crate) fn bad_request(message: String) -> Refusal {
    Refusal::new(400, "BadRequest", message)
}

// === impl Refusal ===

impl Refusal {
    pub(crate) fn new(code: u16, reason: &str, message: String) -> Self {
        Self(Box::new(Failure::new(code, reason, message)))
    }

    /// For people.
    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(&*self.0)).into_response()
    }
}

impl From<Refusal> for Failure {
    fn from(Refusal(failure): Refusal) -> Self {
        *failure
    }
}

/// The runtime did not do what it was asked for.
impl From<keelet_cri::Error> for Refusal {
    fn from(error: keelet_cri::Error) -> Self {
        use keelet_cri::ErrorKind;
        let (code, reason) = match error.kind {
            ErrorKind::NotFound => (404, "NotFound"),
            ErrorKind::Unimplemented => (501, "NotImplemented"),
            ErrorKind::Deadline | ErrorKind::NoAnswer => (504, "Timeout"),
            ErrorKind::Unavailable | ErrorKind::Exhausted => (503, "ServiceUnavailable"),
            _ => (502, "RuntimeError"),
        };
        Self::new(code, reason, error.to_string())
    }
}

impl From<serde_json::Error> for Refusal {
    fn from(error: serde_json::Error) -> Self {
        Self::new(500, "InternalError", format!("cannot encode the answer: {error}"))
    }
}
