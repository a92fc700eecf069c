//! Config maps and secrets: what a pod refers to, and where a node without a control plane has them.
//!
//! ```text
//! <dir>/configmaps/<namespace>/<name>/<key>      a file for each key, or
//! <dir>/configmaps/<namespace>/<name>.yaml       a manifest (.yml and .json too)
//! <dir>/secrets/<namespace>/...                  the same for secrets
//! ```

mod local;

use std::fmt;

use keelet_launch::{Data, ObjectKind};

pub use self::local::LocalObjects;

/// Where objects are found. May block on the disk.
pub trait ObjectStore: Send + Sync + fmt::Debug {
    /// An object; `None` if there is none. An error says which file, and why it cannot be used.
    fn find(&self, kind: ObjectKind, namespace: &str, name: &str) -> Result<Option<Data>, String>;
}

/// A place without objects.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObjects;

// === impl NoObjects ===

impl ObjectStore for NoObjects {
    fn find(&self, _: ObjectKind, _: &str, _: &str) -> Result<Option<Data>, String> {
        Ok(None)
    }
}
