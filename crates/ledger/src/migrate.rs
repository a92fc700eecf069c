//! Migrations from old format versions to the present one.
//!
//! Every released version has a frozen file under `fixtures/` that a test loads for ever. A new version comes with one
//! [`Migration`] from the version before it; older ones take several steps.

use serde_json::Value;

use crate::envelope::{Damage, Kind};

/// One step from a version to the next.
pub(crate) struct Migration {
    /// Which file it is for.
    pub(crate) kind: Kind,
    /// The version it starts from.
    pub(crate) from: u64,
    /// Converts the old body into the new one.
    pub(crate) apply: fn(Value) -> Result<Value, MissingField>,
}

/// A field that a migration needs and an old body does not have.
#[derive(Debug, thiserror::Error)]
#[error("field {0:?} is missing")]
pub(crate) struct MissingField(pub(crate) &'static str);

/// All steps there are. Version 1 is the first of every format, so there is none yet.
pub(crate) const KNOWN: &[Migration] = &[];

/// The body as the present version would have written it.
pub(crate) fn bring_up_to_date(steps: &[Migration], kind: Kind, found: u64, mut body: Value) -> Result<Value, Damage> {
    for version in found..kind.version() {
        let Some(step) = steps.iter().find(|step| step.kind == kind && step.from == version) else {
            return Err(Damage::TooOld { found });
        };
        body = (step.apply)(body).map_err(|error| Damage::Migration { found, message: error.to_string() })?;
    }
    Ok(body)
}
