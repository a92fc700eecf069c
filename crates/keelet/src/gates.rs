//! `--feature-gates`, for every command that takes it.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use keelet_pod::{Features, Resolution};

/// What the flag means, or everything that is wrong with it.
pub(crate) fn resolve(flag: &str) -> Result<Resolution> {
    Features::resolve(flag, &BTreeMap::new()).map_err(|errors| {
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        anyhow!("--feature-gates: {}", errors.join("; "))
    })
}
