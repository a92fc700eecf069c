//! Why a request to a registry failed: what was asked, and what the registry answered.

use std::time::Duration;

use serde::Deserialize;

/// A request to a registry, or to the server that gives tokens for it, that failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    /// The registry wants other credentials, or any.
    #[error("GET {url}: 401 Unauthorized")]
    Unauthorised { url: String },
    /// No token could be had.
    #[error("authentication failed: {0}")]
    Authentication(String),
    /// The answer of the server that gives tokens cannot be parsed.
    #[error("cannot parse the token: {0}")]
    Token(String),
    /// The registry says what is wrong.
    #[error("GET {url}: {envelope}")]
    Refused { envelope: Envelope, url: String },
    /// A status code without such a message.
    #[error("GET {url}: status {code}: {message}")]
    Status { code: u16, url: String, message: String },
    /// More than was announced or is allowed.
    #[error("GET {url}: larger than {most} bytes")]
    TooLarge { url: String, most: u64 },
    /// The registry takes too long.
    #[error("no complete response within {} seconds", .0.as_secs())]
    Timeout(Duration),
    /// No answer arrived, or not all of it.
    #[error(transparent)]
    Transport(#[from] reqwest::Error),
}

/// The error response of the distribution specification.
#[derive(Debug, Deserialize)]
pub(super) struct Envelope {
    pub(super) errors: Vec<RegistryMessage>,
}

/// One error of a registry.
#[derive(Debug, Deserialize)]
pub(super) struct RegistryMessage {
    pub(super) code: ErrorCode,
    #[serde(default)]
    message: String,
}

/// The codes that decide something here.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum ErrorCode {
    Unauthorized,
    Denied,
    #[serde(rename = "TOOMANYREQUESTS")]
    TooManyRequests,
    ManifestUnknown,
    NameUnknown,
    NotFound,
    BlobUnknown,
    ManifestBlobUnknown,
    /// All others, also those that registries make up.
    #[serde(other)]
    Other,
}

// === impl Envelope ===

impl std::fmt::Display for Envelope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let messages: Vec<&str> = self.errors.iter().map(|error| error.message.as_str()).collect();
        f.write_str(&messages.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_may_make_up_codes_and_leave_out_the_message() {
        let body = r#"{"errors": [{"code": "TOOMANYREQUESTS", "message": "slow down", "detail": {"a": 1}},
                       {"code": "ARTIFACT_LOCKED"}, {"code": "MANIFEST_BLOB_UNKNOWN", "message": "gone"}]}"#;
        let envelope: Envelope = serde_json::from_str(body).expect("an envelope");
        let codes: Vec<_> = envelope.errors.iter().map(|error| &error.code).collect();
        assert_eq!(codes, [&ErrorCode::TooManyRequests, &ErrorCode::Other, &ErrorCode::ManifestBlobUnknown]);
        let error = RequestError::Refused { envelope, url: "https://r/v2/".to_owned() };
        assert_eq!(error.to_string(), "GET https://r/v2/: slow down; ; gone");
        serde_json::from_str::<Envelope>(r#"{"errors": [{"message": "no code"}]}"#).expect_err("no code");
    }
}
