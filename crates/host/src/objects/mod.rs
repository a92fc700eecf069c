//! Config maps, secrets and tokens: what a pod refers to, and where it is found.
//!
//! A pod that comes from an API server finds it there: a crate above this one stands behind [`ObjectStore`]. A pod of a manifest finds
//! it in files of the node ([`LocalObjects`]), whether the node is one of a cluster or not:
//!
//! ```text
//! <dir>/configmaps/<namespace>/<name>/<key>      a file for each key, or
//! <dir>/configmaps/<namespace>/<name>.yaml       a manifest (.yml and .json too)
//! <dir>/secrets/<namespace>/...                  the same for secrets
//! ```

mod by_origin;
mod local;

use std::{
    fmt,
    future::{pending, ready},
    io,
    path::PathBuf,
};

use futures::future::BoxFuture;
use keelet_launch::{Data, ObjectKind, TokenSource};
use keelet_pod::Pod;

pub use self::{by_origin::ByOrigin, local::LocalObjects};

/// Where pods find what they refer to. May block on the disk, and never waits for a network.
pub trait ObjectStore: Send + Sync + fmt::Debug {
    /// An object of the pod's namespace; `None` if there is none. An error says which one, and why it cannot be used.
    fn find(&self, pod: &Pod, kind: ObjectKind, name: &str) -> Result<Option<Data>, ObjectError>;

    /// A token of the pod's service account.
    fn token(&self, pod: &Pod, wanted: &TokenSource) -> Result<Vec<u8>, ObjectError> {
        let _ = (pod, wanted);
        Err(ObjectError::NeedsApiServer)
    }

    /// Whether pods like this one have variables of services.
    fn has_services(&self, pod: &Pod) -> bool {
        let _ = pod;
        false
    }

    /// The variables of services that a pod has.
    fn services(&self, pod: &Pod) -> Result<Vec<(String, String)>, ObjectError> {
        let _ = pod;
        Ok(Vec::new())
    }

    /// Resolves when it is known what the pod refers to, or after a few seconds.
    fn settled<'a>(&'a self, pod: &'a Pod) -> BoxFuture<'a, ()> {
        let _ = pod;
        Box::pin(ready(()))
    }

    /// Resolves when something that a pod may have in a volume has changed since the last time.
    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(pending())
    }
}

/// A config map or a secret that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// Its name would not be a file name.
    #[error("{object}: invalid name {part:?}")]
    Name {
        /// The object.
        object: ObjectName,
        /// The part of its name that is not allowed.
        part: String,
    },
    /// It has to come from an API server, and has not.
    #[error("cannot read {object} from the API server: {why}")]
    Unavailable {
        /// The object.
        object: ObjectName,
        /// What the API server said, or why it has not been asked.
        why: String,
    },
    /// The services of the cluster are not known.
    #[error("services have not been read from the API server yet: {0}")]
    Services(String),
    /// There is no token for a pod.
    #[error("no token of service account {account}: {why}")]
    Token {
        /// The namespace and name of the service account.
        account: String,
        /// What the API server said, or why it has not been asked.
        why: String,
    },
    /// The pod comes from the node itself.
    #[error("it needs an API server, and this pod does not come from one")]
    NeedsApiServer,
    /// The node has it in several places.
    #[error("{object} exists more than once: {}", paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "))]
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
    #[error("{}: metadata.{field} is {said:?}, but by its path the file belongs to {place:?}", path.display())]
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
    fn find(&self, _: &Pod, _: ObjectKind, _: &str) -> Result<Option<Data>, ObjectError> {
        Ok(None)
    }
}
