//! What is wrong with a CNI configuration, and how a plugin failed.

use std::{io, path::PathBuf, time::Duration};

/// Why a CNI configuration is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CniConfigError {
    /// The file or directory cannot be read.
    #[error("cannot read it: {0}")]
    Read(#[source] io::Error),
    /// Not JSON.
    #[error("invalid JSON: {0}")]
    Json(#[source] serde_json::Error),
    /// A field has an invalid value.
    #[error("{field}: {}must be {expected}", value.as_ref().map(|value| format!("{value}: ")).unwrap_or_default())]
    Field {
        /// Which field, such as `plugins[0].type`.
        field: String,
        /// Its value, where that helps.
        value: Option<String>,
        /// What is allowed.
        expected: String,
    },
    /// Not a JSON object.
    #[error("must be an object")]
    NotAnObject,
}

/// A CNI configuration file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct CniFileError {
    /// The file, or the directory if that cannot be listed.
    pub path: PathBuf,
    /// What is wrong with it.
    pub source: CniConfigError,
}

/// How a CNI plugin failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CniPluginError {
    /// Its program cannot be executed.
    #[error("cannot start {}: {source}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
    /// Its exit status cannot be read.
    #[error("cannot wait for it: {0}")]
    Wait(#[source] io::Error),
    /// It ran for too long and was killed.
    #[error("no answer in {} s, killed", .0.as_secs_f32())]
    Timeout(Duration),
    /// It exited with an error: its own message, code, details and output.
    #[error("{0}")]
    Failed(String),
    /// It succeeded, and its result is missing, not JSON or incomplete.
    #[error("invalid result: {0}")]
    Result(String),
}

// === impl CniConfigError ===

impl CniConfigError {
    pub(super) fn field(field: impl Into<String>, value: Option<String>, expected: impl Into<String>) -> Self {
        Self::Field { field: field.into(), value, expected: expected.into() }
    }

    /// The same error in a part of the configuration.
    pub(super) fn within(self, place: &str) -> Self {
        match self {
            Self::Field { field, value, expected } => {
                Self::Field { field: format!("{place}.{field}"), value, expected }
            }
            Self::NotAnObject => Self::field(place, None, "an object"),
            other => other,
        }
    }
}
