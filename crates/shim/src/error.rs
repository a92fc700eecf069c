//! Errors of steps that the kernel or a library refused.

use std::{
    error::Error,
    fmt::{self, Display, Formatter},
    io,
};

/// A step that failed: what was tried, on what, and what the kernel answered.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action}: {source}")]
pub(crate) struct StepError {
    action: String,
    source: io::Error,
}

/// Shows an error with its causes on one line.
pub(crate) struct Chain<'a>(pub(crate) &'a dyn Error);

/// For `map_err`: the step that failed, as an infinitive with its object.
pub(crate) fn step<E: Into<io::Error>>(action: impl Into<String>) -> impl FnOnce(E) -> StepError {
    let action = action.into();
    move |source| StepError { action, source: source.into() }
}

// === impl Chain ===

impl Display for Chain<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        let mut source = self.0.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            // Some errors repeat their cause.
            if !text.contains(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            source = cause.source();
        }
        f.write_str(&text)
    }
}
