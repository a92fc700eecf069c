//! Linux primitives that more than one crate needs.
//!
//! - [`beneath`] opens files in directories that pods may be able to write to: no link is followed, and nothing blocks.

pub mod beneath;
