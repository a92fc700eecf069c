//! What `keelet controller` is started with, where that is not the default. The commands take the same flags, because they decide as
//! it does.

use std::{fmt, str::FromStr};

use anyhow::{Context, Result};
use clap::ValueEnum;
use jiff::SignedDuration;
use keelet_gates::{
    gate::{BadPrefix, Prefixes},
    settings::{Enforcement, MaxHeld, Settings},
};
use keelet_pod::duration::{self, InvalidDuration};

/// What is done about gates. The heading of its help is that of the place where it is flattened.
#[derive(Clone, Debug, clap::Args)]
pub struct GateFlags {
    /// Whether a gate that has passed can close again
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = When::Bootstrap)]
    enforcement: When,
    /// Nodes in use that the controller may hold at once by taints that it added: a number, or a percentage of all
    /// nodes, then at least 1. At the limit it adds no more, and says so
    #[arg(long, value_name = "N|N%", default_value = "10%", allow_hyphen_values = true, value_parser = MaxHeld::from_str)]
    max_held: MaxHeld,
    /// Treat a condition whose heartbeat is older as Unknown; its reporter has to refresh it more often than that
    /// [default: conditions do not age]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = max_age)]
    condition_max_age: Option<SignedDuration>,
    /// Taints with this prefix are gates too, beside readiness.k8s.io/; repeat it for more. Autoscalers ignore only
    /// prefixes that they know, such as startup-taint.cluster-autoscaler.kubernetes.io/
    #[arg(long = "taint-prefix", value_name = "DOMAIN/", value_parser = prefix)]
    taint_prefixes: Vec<String>,
}

/// Whether a gate that has passed can close again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    /// A gate that has passed never closes again
    Bootstrap,
    /// A gate closes again when its condition leaves True, within --max-held
    Continuous,
}

fn prefix(text: &str) -> Result<String, BadPrefix> {
    Prefixes::new([text]).map(|_| text.to_owned())
}

/// Longer ones than can be compared with a time are refused as too long before.
fn max_age(text: &str) -> Result<SignedDuration, InvalidDuration> {
    Ok(SignedDuration::try_from(duration::parse_some(text)?).unwrap_or(SignedDuration::MAX))
}

// === impl GateFlags ===

impl GateFlags {
    /// What the controller and the commands decide by.
    pub fn settings(&self) -> Result<Settings> {
        let prefixes = self.taint_prefixes.iter().map(|prefix| &**prefix);
        Ok(Settings {
            enforcement: match self.enforcement {
                When::Bootstrap => Enforcement::Bootstrap,
                When::Continuous => Enforcement::Continuous,
            },
            prefixes: Prefixes::new(prefixes).context("--taint-prefix")?,
            condition_max_age: self.condition_max_age,
            max_held: self.max_held,
        })
    }
}

// === impl When ===

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bootstrap => "bootstrap",
            Self::Continuous => "continuous",
        })
    }
}
