//! The image store as its users see it: import, hostile archives, removal, roots and pulls.

mod build;
mod collect;
mod hostile;
mod import;
mod memory;
mod pull;
mod registry;
mod roots;
