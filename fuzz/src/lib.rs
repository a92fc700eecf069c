//! What the fuzz targets share: inputs with several parts, a disk in memory, a file system of one's own, archives whose
//! checksums are right.
//!
//! A target is one file in `fuzz_targets/`. It takes bytes, hands them to the code that reads such bytes on a node, and
//! says what must be true whatever they are. `CONTRIBUTING.md` tells how to run them.

pub mod archive;
pub mod ground;
pub mod memory_disk;
pub mod parts;
pub mod store;
