//! `--feature-gates`, for every command that takes it.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use clap::Args;
use keelet_pod::{Features, Resolution};

/// What a person says about feature gates.
#[derive(Clone, Debug, Args)]
pub struct FeatureGateArgs {
    /// Feature gates, as Name=true,Other=false
    #[arg(long, default_value = "", hide_default_value = true, value_name = "GATES")]
    feature_gates: String,
}

// === impl FeatureGateArgs ===

impl FeatureGateArgs {
    /// What they mean, or everything that is wrong with them.
    pub fn resolve(&self) -> Result<Resolution> {
        self.resolve_over(&BTreeMap::new())
    }

    /// The same over what a configuration file says, which they win over.
    pub fn resolve_over(&self, config: &BTreeMap<String, bool>) -> Result<Resolution> {
        Features::resolve(&self.feature_gates, config).map_err(|errors| {
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            let place = if config.is_empty() { "--feature-gates" } else { "--feature-gates or featureGates" };
            anyhow!("{place}: {}", errors.join("; "))
        })
    }
}
