//! The three kinds of patches that the server takes.

mod json_patch;
mod merge;
mod schema;
mod strategic;

use serde_json::Value;

pub(crate) use self::schema::{NAMESPACE, NODE, PLAIN, POD, SERVICE, SERVICE_ACCOUNT, Schema};
use crate::{
    field::FieldError,
    refusal::{Qualified, Refusal},
};

/// A kind of patch, by its media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    Strategic,
}

/// Why a patch cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PatchError {
    /// It is not a patch of its kind.
    Malformed(String),
    /// It does not fit the object.
    Inapplicable,
    /// The real server's code did not foresee it.
    Unforeseen(String),
}

// === impl PatchKind ===

impl PatchKind {
    /// By media type, if the server takes it for this object.
    pub(crate) fn parse(content_type: &str, strategic: bool) -> Result<Self, Refusal> {
        let kind = content_type.split(';').next().unwrap_or("").trim();
        match kind {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if strategic => Ok(Self::Strategic),
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => {
                Err(Refusal::unsupported_media_type("server-side apply is not simulated"))
            }
            // Each kind of objects has a router of its own.
            _ if strategic => Err(Refusal::unknown_media_type()),
            _ => Err(Refusal::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
        }
    }

    /// Reads a patch.
    pub(crate) fn read(patch: &[u8]) -> Result<Value, PatchError> {
        serde_json::from_slice(patch).map_err(|error| PatchError::Malformed(error.to_string()))
    }

    /// Applies a patch to an object as it is printed.
    pub(crate) fn apply(self, object: &Value, patch: Value, schema: Option<&Schema>) -> Result<Value, PatchError> {
        match self {
            Self::Json => json_patch::apply(object.clone(), &patch),
            Self::Merge if patch.is_object() => Ok(merge::apply(object.clone(), &patch)),
            Self::Strategic if patch.is_object() => strategic::apply(object.clone(), patch, schema.unwrap_or(&PLAIN)),
            Self::Merge | Self::Strategic => Err(PatchError::Malformed("Invalid JSON Patch".to_owned())),
        }
    }
}

// === impl PatchError ===

impl From<PatchError> for Refusal {
    fn from(error: PatchError) -> Self {
        match error {
            PatchError::Malformed(why) => Self::bad_request(format!("error decoding patch: {why}")),
            PatchError::Inapplicable => Self::inapplicable_patch(),
            PatchError::Unforeseen(why) => Self::plain(500, &why),
        }
    }
}

/// A patch whose result is not an object of the kind.
pub(crate) fn undecodable(patch: &[u8], why: &str) -> Refusal {
    let error = FieldError::invalid("patch", &String::from_utf8_lossy(patch).into(), why);
    Refusal::invalid(Qualified { group: "", name: "" }, "", &[error])
}
