//! From observation to evidence: everything an observation shows is recorded before any decision.
//!
//! [`agent_start`] decides which evidence a new run of the agent may trust, [`results`] folds in finished operations,
//! [`instances`] records instances that started and exited.

mod agent_start;
mod instances;
mod results;

pub(crate) use self::{
    agent_start::{Inherits, agent_start},
    instances::{STATUS_UNKNOWN, instances, is_stillborn},
    results::results,
};
