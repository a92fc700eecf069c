//! The process that stays with a pod: makes its containers, writes their logs, records how they end.

pub mod capabilities;
pub mod devices_v2;
pub mod seccomp;
