//! The result of the work, as it is written on the error stream: JSON since version 4, plain text before.

use serde::{Deserialize, Serialize};

use crate::StreamError;
use crate::negotiate::Version;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitStatus(pub u8);

/// How a session ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The command ran, or attaching ended.
    Exited(ExitStatus),
    /// The work could not be done.
    Failed(String),
}

const SUCCESS: &str = "Success";
const FAILURE: &str = "Failure";
const NON_ZERO: &str = "NonZeroExitCode";
const EXIT_CODE: &str = "ExitCode";

/// The parts of a `metav1.Status` that matter here.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Status {
    metadata: Metadata,
    status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
}

#[derive(Default, Serialize, Deserialize)]
struct Metadata {}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Cause {
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    message: String,
}

/// The text for the error stream. Nothing, if an old client would take it for an error.
pub(crate) fn encode(outcome: &Outcome, version: Version) -> Vec<u8> {
    match (outcome, version) {
        (outcome, Version::V4 | Version::V5) => serde_json::to_vec(&status(outcome)).unwrap_or_default(),
        (Outcome::Exited(ExitStatus(0)), _) => Vec::new(),
        (outcome, _) => status(outcome).message.into_bytes(),
    }
}

fn status(outcome: &Outcome) -> Status {
    match outcome {
        Outcome::Exited(ExitStatus(0)) => Status { status: SUCCESS.to_owned(), ..Status::default() },
        Outcome::Exited(ExitStatus(code)) => Status {
            status: FAILURE.to_owned(),
            message: format!("command terminated with non-zero exit code: {code}"),
            reason: NON_ZERO.to_owned(),
            details: Some(Details { causes: vec![Cause { reason: EXIT_CODE.to_owned(), message: code.to_string() }] }),
            ..Status::default()
        },
        Outcome::Failed(message) => Status {
            status: FAILURE.to_owned(),
            message: message.clone(),
            reason: "InternalError".to_owned(),
            details: Some(Details { causes: vec![Cause { reason: String::new(), message: message.clone() }] }),
            code: Some(500),
            ..Status::default()
        },
    }
}

/// What a client reads from the error stream of version 4 and later.
pub(crate) fn decode(text: &[u8]) -> Result<ExitStatus, StreamError> {
    let unreadable = || StreamError::NoStatus(String::from_utf8_lossy(text).into_owned());
    let status: Status = serde_json::from_slice(text).map_err(|_| unreadable())?;
    match (status.status.as_str(), status.reason.as_str()) {
        (SUCCESS, _) => Ok(ExitStatus(0)),
        (FAILURE, NON_ZERO) => {
            let causes = status.details.unwrap_or_default().causes;
            let code =
                causes.iter().find(|cause| cause.reason == EXIT_CODE).and_then(|cause| cause.message.parse().ok());
            code.map(ExitStatus).ok_or_else(unreadable)
        }
        (FAILURE, _) => Err(StreamError::Remote(status.message)),
        _ => Err(unreadable()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_what_kubectl_reads() {
        let text = |outcome: &Outcome| String::from_utf8(encode(outcome, Version::V4)).unwrap();
        assert_eq!(text(&Outcome::Exited(ExitStatus(0))), r#"{"metadata":{},"status":"Success"}"#);
        assert_eq!(
            text(&Outcome::Exited(ExitStatus(7))),
            r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: 7","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#
        );
    }

    #[test]
    fn old_clients_get_text_and_only_if_something_went_wrong() {
        for version in [Version::V1, Version::V2, Version::V3] {
            assert_eq!(encode(&Outcome::Exited(ExitStatus(0)), version), b"");
            assert_eq!(encode(&Outcome::Failed("no such file".into()), version), b"no such file");
            assert!(encode(&Outcome::Exited(ExitStatus(7)), version).ends_with(b"exit code: 7"));
        }
    }

    #[test]
    fn a_status_comes_back_as_it_was_sent() {
        for code in [0, 1, 7, 255] {
            let sent = encode(&Outcome::Exited(ExitStatus(code)), Version::V5);
            assert_eq!(decode(&sent).unwrap(), ExitStatus(code));
        }
        let failed = decode(&encode(&Outcome::Failed("no such file".into()), Version::V5));
        assert!(matches!(&failed, Err(StreamError::Remote(message)) if message == "no such file"), "{failed:?}");
    }

    #[test]
    fn an_invalid_status_is_an_error() {
        for text in [
            "",
            "{}",
            "killed",
            r#"{"status":"Failure","reason":"NonZeroExitCode"}"#,
            r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"256"}]}}"#,
        ] {
            assert!(matches!(decode(text.as_bytes()), Err(StreamError::NoStatus(_))), "{text:?}");
        }
    }
}
