//! `keelet controller` on a real API server, scheduler and controller manager.
//!
//! The controllers have the rights that they ask for and no others, as a service account. Every test has a lease and nodes of its own;
//! a controller acts on all nodes of the cluster, so no controller outlives its test.

mod access;
mod bed;
mod hostile;
mod leaders;
mod nodes;
mod outage;
mod rules;
mod scheduling;
mod writers;
