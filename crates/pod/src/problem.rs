//! What is wrong with a manifest: where, what, and what is allowed instead.

use std::{collections::BTreeSet, fmt};

use serde::Serialize;

use crate::{Pod, Trust};

/// Problems kept per pod and severity; the rest is only counted. A hostile document has an error on every byte, and a
/// hundred are more than a person reads.
pub(crate) const MAX_PROBLEMS: usize = 100;

/// Problems kept per manifest and severity.
const MAX_PROBLEMS_OF_ALL: usize = 1000;

/// Where a manifest comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    name: String,
    trust: Trust,
}

/// What is wrong with one value, without its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where the manifest comes from, usually a file name.
    pub file: String,
    /// The document within the file, counted from 1.
    pub document: Option<usize>,
    /// `namespace/name` of the pod, as far as known.
    pub pod: Option<String>,
    /// Line of the value, counted from 1.
    pub line: Option<u32>,
    /// Column of the value, counted from 1.
    pub column: Option<u32>,
    /// The field, `spec.containers[1].livenessProbe.httpGet.port`; empty for the document as a whole.
    pub path: String,
    /// The offending value as a reader would write it, shortened.
    pub value: Option<String>,
    /// What kind of mistake it is.
    pub kind: Kind,
    /// Whether the pod is refused because of it.
    pub severity: Severity,
    /// What is wrong and what is allowed.
    pub message: String,
}

/// The kinds of mistakes, named as the API server names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Kind {
    /// The document cannot be read at all, or exceeds a limit.
    Syntax,
    /// A value of the wrong type.
    InvalidType,
    /// A field that the API does not have.
    UnknownField,
    /// A key or a name that occurs twice.
    Duplicate,
    /// A missing value.
    Required,
    /// A value out of range or of the wrong form.
    Invalid,
    /// A value that is none of the allowed ones.
    Unsupported,
    /// A field that may not be set here.
    Forbidden,
    /// A list or map with too many entries.
    TooMany,
    /// A reference to something that does not exist.
    NotFound,
    /// Legal, but most likely a mistake.
    Suspicious,
    /// Legal, but without effect on this node.
    Ignored,
}

/// Whether a problem refuses the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The pod is refused.
    Error,
    /// The pod is accepted.
    Warning,
}

/// The outcome of reading a manifest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The pods that are valid, in order.
    pub pods: Vec<Pod>,
    /// The UIDs that follow from the content, because the manifest gives none.
    pub derived_uids: BTreeSet<String>,
    /// Why the other pods are invalid.
    pub errors: Vec<Problem>,
    /// What is accepted but may be a mistake.
    pub warnings: Vec<Problem>,
    /// Problems beyond the first hundred of a pod or the first thousand of a manifest, counted but not kept.
    pub omitted: usize,
}

/// A problem before it knows where it is.
#[derive(Clone, Debug)]
pub(crate) struct Detail {
    pub(crate) kind: Kind,
    pub(crate) value: Option<String>,
    pub(crate) message: String,
}

// === impl Origin ===

impl Origin {
    /// A file of this node, or another local input with that name.
    pub fn file(name: impl Into<String>) -> Self {
        Self { name: name.into(), trust: Trust::Node }
    }

    /// Standard input.
    pub fn stdin() -> Self {
        Self::file("<stdin>")
    }

    /// The API server.
    pub fn api_server() -> Self {
        Self { name: "api".to_owned(), trust: Trust::Cluster }
    }

    /// A copy that was kept of a pod.
    pub(crate) fn copy(trust: Trust) -> Self {
        Self { name: "api".to_owned(), trust }
    }

    /// How far pods from this origin are trusted.
    pub fn trust(&self) -> Trust {
        self.trust
    }

    /// The name problems are reported under.
    pub fn name(&self) -> &str {
        &self.name
    }
}

// === impl Problem ===

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        match (self.line, self.column) {
            (Some(line), Some(column)) => write!(f, ":{line}:{column}")?,
            (Some(line), None) => write!(f, ":{line}")?,
            (None, _) => {
                if let Some(pod) = &self.pod {
                    write!(f, ": pod {pod}")?;
                }
            }
        }
        f.write_str(": ")?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(self.kind.label())?;
        if let Some(value) = &self.value {
            write!(f, ": {value}")?;
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        Ok(())
    }
}

// === impl Kind ===

impl Kind {
    /// The first words of the message.
    pub fn label(self) -> &'static str {
        match self {
            Self::Syntax => "Unreadable",
            Self::InvalidType => "Invalid type",
            Self::UnknownField => "Unknown field",
            Self::Duplicate => "Duplicate value",
            Self::Required => "Required value",
            Self::Invalid => "Invalid value",
            Self::Unsupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
            Self::Suspicious => "Suspicious",
            Self::Ignored => "Ignored",
        }
    }
}

// === impl Report ===

impl Report {
    /// Whether every pod of the manifest is valid.
    pub fn is_ok(&self) -> bool {
        self.errors.is_empty()
    }

    /// Adds the problems of another part of the same manifest.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.pods.extend(other.pods);
        self.derived_uids.extend(other.derived_uids);
        self.errors.extend(other.errors);
        self.warnings.extend(other.warnings);
        self.omitted += other.omitted;
        for list in [&mut self.errors, &mut self.warnings] {
            self.omitted += list.len().saturating_sub(MAX_PROBLEMS_OF_ALL);
            list.truncate(MAX_PROBLEMS_OF_ALL);
        }
    }

    /// Whether another problem of one pod is kept or only counted.
    pub(crate) fn has_room(&self, severity: Severity) -> bool {
        let kept = match severity {
            Severity::Error => self.errors.len(),
            Severity::Warning => self.warnings.len(),
        };
        kept < MAX_PROBLEMS
    }

    /// Files a problem under its severity.
    pub(crate) fn push(&mut self, problem: Problem) {
        match problem.severity {
            Severity::Error => self.errors.push(problem),
            Severity::Warning => self.warnings.push(problem),
        }
    }

    /// Puts problems into the order of the lines they are about.
    pub(crate) fn sort(&mut self) {
        self.errors.sort_by_key(|problem| (problem.line, problem.column));
        self.warnings.sort_by_key(|problem| (problem.line, problem.column));
    }
}

/// Errors, then warnings, one per line.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.errors {
            writeln!(f, "{problem}")?;
        }
        for problem in &self.warnings {
            writeln!(f, "{problem} (warning)")?;
        }
        if self.omitted > 0 {
            writeln!(f, "and {} more", self.omitted)?;
        }
        Ok(())
    }
}

// === impl Detail ===

impl Detail {
    fn new(kind: Kind, value: Option<String>, message: impl Into<String>) -> Self {
        Self { kind, value, message: message.into() }
    }
}

/// `Invalid value: "x": must be ...`
pub(crate) fn invalid(value: impl fmt::Display, message: impl Into<String>) -> Detail {
    Detail::new(Kind::Invalid, Some(shortened(&value.to_string())), message)
}

/// `Invalid type: yes: must be ...`
pub(crate) fn invalid_type(value: impl fmt::Display, message: impl Into<String>) -> Detail {
    Detail::new(Kind::InvalidType, Some(shortened(&value.to_string())), message)
}

/// `Required value: ...`
pub(crate) fn required(message: impl Into<String>) -> Detail {
    Detail::new(Kind::Required, None, message)
}

/// `Forbidden: ...`
pub(crate) fn forbidden(message: impl Into<String>) -> Detail {
    Detail::new(Kind::Forbidden, None, message)
}

/// `Unsupported value: "x": supported values: "A", "B"`
pub(crate) fn unsupported(value: &str, allowed: &[&str]) -> Detail {
    let allowed: Vec<_> = allowed.iter().map(|value| format!("{value:?}")).collect();
    Detail::new(Kind::Unsupported, Some(quoted(value)), format!("supported values: {}", allowed.join(", ")))
}

/// `Too many: 21: must have at most 20 items`
pub(crate) fn too_many(actual: usize, most: usize) -> Detail {
    Detail::new(Kind::TooMany, Some(actual.to_string()), format!("must have at most {most} items"))
}

/// `Duplicate value: "x"`
pub(crate) fn duplicate(value: impl fmt::Display) -> Detail {
    Detail::new(Kind::Duplicate, Some(shortened(&value.to_string())), "")
}

/// `Not found: "x": ...`
pub(crate) fn not_found(value: &str, message: impl Into<String>) -> Detail {
    Detail::new(Kind::NotFound, Some(quoted(value)), message)
}

/// `Unknown field: did you mean ...`
pub(crate) fn unknown_field(message: impl Into<String>) -> Detail {
    Detail::new(Kind::UnknownField, None, message)
}

/// `Unreadable: ...`
pub(crate) fn syntax(message: impl Into<String>) -> Detail {
    Detail::new(Kind::Syntax, None, message)
}

/// `Suspicious: ...`
pub(crate) fn suspicious(message: impl Into<String>) -> Detail {
    Detail::new(Kind::Suspicious, None, message)
}

/// `Ignored: ...`
pub(crate) fn ignored(message: impl Into<String>) -> Detail {
    Detail::new(Kind::Ignored, None, message)
}

/// A string as a reader would write it: in quotes, escaped, shortened.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", shortened(text))
}

/// At most 64 characters, the last three dots if there were more.
pub(crate) fn shortened(text: &str) -> String {
    const LONGEST: usize = 64;
    if text.chars().nth(LONGEST).is_none() {
        return text.to_owned();
    }
    text.chars().take(LONGEST - 3).chain("...".chars()).collect()
}
