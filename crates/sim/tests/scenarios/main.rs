//! The named scenarios: the real agent in a simulated world, one file per family.

mod agent_restart;
mod containers;
mod found;
mod manifests;
mod node;
mod probes;
mod restart_all;
mod sources;
mod upkeep;
