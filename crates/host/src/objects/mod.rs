//! Config maps and secrets: what a pod refers to, and where a node without a control plane has them.
//!
//! ```text
//! <dir>/configmaps/<namespace>/<name>/<key>      a file for each key, or
//! <dir>/configmaps/<namespace>/<name>.yaml       a manifest (.yml and .json too)
//! <dir>/secrets/<namespace>/...                  the same for secrets
//! ```

mod local;

use std::{fmt, io, path::PathBuf};

use keelet_launch::{Data, ObjectKind};

pub use self::local::LocalObjects;

/// Where objects are found. May block on the disk.
pub trait ObjectStore: Send + Sync + fmt::Debug {
    /// An object; `None` if there is none. An error says which file, and why it cannot be used.
    fn find(&self, kind: ObjectKind, namespace: &str, name: &str) -> Result<Option<Data>, ObjectError>;
}

/// A config map or a secret that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// Its name would not be a file name.
    #[error("{object}: {part:?} is no name")]
    Name {
        /// The object.
        object: ObjectName,
        /// The part of its name that is not allowed.
        part: String,
    },
    /// The node has it in several places.
    #[error("{object} is there more than once: {}", paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "))]
    Ambiguous {
        /// The object.
        object: ObjectName,
        /// The places.
        paths: Vec<PathBuf>,
    },
    /// It is larger than the API server allows.
    #[error("{object} has {bytes} bytes; {allowed} are allowed")]
    TooLarge {
        /// The object.
        object: ObjectName,
        /// Its size.
        bytes: u64,
        /// The largest size.
        allowed: u64,
    },
    /// A file or directory cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The name of a file is not a key.
    #[error("{}: {KEYS}", .0.display())]
    FileName(PathBuf),
    /// A manifest has a key that the API does not take.
    #[error("{}: {key:?} {KEYS}", path.display())]
    Key {
        /// The manifest.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// A manifest says another name than its place does.
    #[error("{}: metadata.{field} is {said:?}, the file's place says {place:?}", path.display())]
    Misplaced {
        /// The manifest.
        path: PathBuf,
        /// `name` or `namespace`.
        field: &'static str,
        /// What the manifest says.
        said: String,
        /// What its place says.
        place: String,
    },
    /// A manifest is not valid. Each problem begins with the file and the line.
    #[error("{}", .0.join("; "))]
    Manifest(Vec<String>),
}

/// An object as messages name it: `configmap shop/conf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    /// A config map or a secret.
    pub kind: ObjectKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

const KEYS: &str = "is no key: keys are made of letters, digits, '-', '_' and '.', at most 253 of them, and do not start \
                    with '..'";

// === impl ObjectName ===

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.resource(), self.namespace, self.name)
    }
}

/// A place without objects.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObjects;

// === impl NoObjects ===

impl ObjectStore for NoObjects {
    fn find(&self, _: ObjectKind, _: &str, _: &str) -> Result<Option<Data>, ObjectError> {
        Ok(None)
    }
}
