//! Compares the project's documents with its tests.
//!
//! `docs/behaviours.md` lists the behaviours that keelet keeps, each with an id. A test names the ids it shows in its
//! doc comment. The input is text (a document, a source file), the output its content:
//! [`ids`] finds ids in prose, [`behaviours`] reads the list, [`rust_tests`] reads test functions out of Rust source,
//! [`documents`] reads links and promises out of Markdown, [`pictures`] reads the crates and flows that a document draws.
//! The comparison itself is the integration test
//! `tests/project.rs`; nothing else uses this crate.

pub mod behaviours;
pub mod documents;
pub mod ids;
pub mod pictures;
pub mod rust_tests;
