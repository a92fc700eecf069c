//! From observation to evidence: what a look at the pod teaches, remembered before anything is decided.
//!
//! [`agent_start`] settles what a new run of the agent may believe of what it finds, [`results`] folds in operations
//! that have finished, [`instances`] notices lives that began and ended.

mod agent_start;
mod instances;
mod results;

pub(crate) use self::{
    agent_start::{Inherits, agent_start},
    instances::{STATUS_UNKNOWN, instances, is_stillborn},
    results::results,
};
