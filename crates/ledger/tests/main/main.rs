//! The ledger from the outside: what it keeps, what it survives, what it costs.

mod agent;
mod coalesce;
mod crash;
mod damage;
mod disk;
mod faults;
mod fixtures;
mod history;
mod journal;
mod memory;
mod real_disk;
mod sample;
