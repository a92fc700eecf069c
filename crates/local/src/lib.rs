//! The local API.
pub mod logs;
