//! Status: computed from the evidence, with reasons.

mod conclude;
mod conditions;
mod model;
mod phase;
mod states;
mod transition;

pub(crate) use self::conclude::conclude;
#[cfg(test)]
pub(crate) use self::{
    conditions::{Finding, containers_ready, initialized, ready},
    phase::{Context, phase},
};
pub use self::{
    model::{
        Condition, ConditionType, ContainerState, ContainerStatus, LastState, Phase, PodIp, PodStatus, Running,
        Terminated, Truth, Waiting,
    },
    transition::{Violation, check_transition},
};
