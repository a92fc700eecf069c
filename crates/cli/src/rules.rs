//! The rules of a node, for the agent and for its simulation alike.

use anyhow::Result;
use keelet_lifecycle::{
    Rules,
    restart::{BackoffLimits, RestartAllRule},
};
use keelet_pod::{Features, Switch};

/// The rules of a node with these gates.
pub fn of_node(features: &Features) -> Result<Rules> {
    Ok(Rules {
        agent_restart: features.agent_restart,
        restart_all: match features.restart_all {
            Switch::On => RestartAllRule::Honoured,
            Switch::Off => RestartAllRule::Ignored,
        },
        crash_backoff: BackoffLimits::for_node(None, features)?,
        ..Rules::default()
    })
}
