//! Why a request failed. The text goes to the runtime in [`crate::protocol::Answer::Failed`].

use std::path::PathBuf;

use oci_spec::OciSpecError;

use crate::{
    error::{Chain, StepError},
    report::Failure,
};

#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    #[error("invalid request: {0}")]
    Invalid(#[from] serde_json::Error),
    #[error("a command needs 3 descriptors and the request carries {0}")]
    Descriptors(usize),
    #[error("the pod has its namespaces already")]
    SandboxExists,
    #[error("container {0} was started already")]
    StartedAlready(String),
    #[error("the start of container {0} was requested again on another connection")]
    Superseded(String),
    #[error("container {0} is not running")]
    NotRunning(String),
    #[error("cannot read {}: {}", path.display(), Chain(source))]
    Config { path: PathBuf, source: OciSpecError },
    #[error("the configuration of container {0} has no process")]
    NoProcess(String),
    #[error(transparent)]
    Step(#[from] StepError),
    #[error(transparent)]
    Child(#[from] Failure),
    /// Containers that were adopted incompletely or not at all.
    #[error("{}", .0.join("; "))]
    Adopt(Vec<String>),
}
