//! What is wrong with a source.

use std::fmt;

use keelet_pod::{Problem, Severity};

/// Something about a source that a person should fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceProblem {
    /// The file, or the directory itself.
    pub file: String,
    /// What it is.
    pub trouble: Trouble,
    /// Pods (`namespace/name`) that run by an older version of the file meanwhile.
    pub kept: Vec<String>,
}

/// What can be wrong with a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The directory cannot be listed. Everything stays as it is until it can be.
    NoDirectory(String),
    /// A file cannot be read.
    Unreadable(String),
    /// It is not a file.
    NotAFile(&'static str),
    /// A problem of the manifest: line, field, value, and what is allowed. Some are only warnings.
    Manifest(Box<Problem>),
    /// More problems of the manifest than are kept.
    Omitted(usize),
    /// Another file has a pod of that namespace and name: the one that runs it already, else the first in the order of names.
    SameName {
        /// `namespace/name`.
        pod: String,
        /// The other file.
        first: String,
    },
    /// Another file, which comes first in the order of names, has a pod with that UID.
    SameUid {
        /// `namespace/name` of the pod that is left out.
        pod: String,
        /// The UID.
        uid: String,
        /// The other file.
        first: String,
    },
    /// It asks for a pod with the UID of one that runs, and for another one than that.
    Changed {
        /// `namespace/name` of the pod that it asks for.
        pod: String,
        /// The UID.
        uid: String,
    },
}

// === impl SourceProblem ===

impl SourceProblem {
    /// Whether something does not run, or not as its file says now.
    pub fn severity(&self) -> Severity {
        match &self.trouble {
            Trouble::Manifest(problem) => problem.severity,
            Trouble::NotAFile(_) => Severity::Warning,
            _ => Severity::Error,
        }
    }

    /// The message of its log line: one text for each kind, so that a search finds all lines of a kind.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.trouble {
            Trouble::NoDirectory(_) => "cannot list the manifest directory; its pods stay as they are",
            Trouble::Unreadable(_) => "cannot read manifest",
            Trouble::NotAFile(_) => "manifest ignored: not a regular file",
            Trouble::Manifest(problem) if problem.severity == Severity::Warning => "manifest accepted with a warning",
            Trouble::Manifest(_) | Trouble::Omitted(_) => "manifest rejected: invalid",
            Trouble::SameName { .. } => "manifest rejected: duplicate pod name",
            Trouble::SameUid { .. } => "manifest rejected: duplicate pod UID",
            Trouble::Changed { .. } => "manifest rejected: the UID belongs to a running pod with another spec",
        }
    }
}

impl fmt::Display for SourceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = &self.file;
        match &self.trouble {
            Trouble::NoDirectory(why) => write!(f, "{file}: cannot list: {why}")?,
            Trouble::Unreadable(why) => write!(f, "{file}: cannot read: {why}")?,
            Trouble::NotAFile(what) => write!(f, "{file}: ignored: {what}, not a regular file")?,
            // Names the file itself.
            Trouble::Manifest(problem) => write!(f, "{problem}")?,
            Trouble::Omitted(count) => write!(f, "{file}: and {count} more problems")?,
            Trouble::SameName { pod, first } => {
                write!(f, "{file}: pod {pod} ignored: {first} already has a pod of that name")?;
            }
            Trouble::SameUid { pod, uid, first } => {
                write!(f, "{file}: pod {pod} ignored: {first} already has a pod with the UID {uid}")?;
            }
            Trouble::Changed { pod, uid } => write!(
                f,
                "{file}: pod {pod} rejected: its metadata.uid {uid:?} is that of a running pod with another spec, and the \
                 spec of a pod cannot change. Set another metadata.uid, or none, and keelet makes one from the content; or \
                 remove the file until the running pod is deleted"
            )?,
        }
        match self.kept.as_slice() {
            [] => Ok(()),
            kept => write!(f, " (still running by an older version: {})", kept.join(", ")),
        }
    }
}
