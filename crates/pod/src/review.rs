//! The desk at which a pod is looked over: it knows where the pod comes from, how strict to be, and writes everything
//! down.

use crate::{
    Trust,
    path::FieldPath,
    problem::{Complaint, Kind, Origin, Problem, Report, Severity},
    tree::{Node, Position},
};

/// What is done about fields that the API does not have, and about values that it would refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// Manifests that people write: unknown fields and repeated keys are errors.
    #[default]
    Strict,
    /// The same with warnings for unknown fields and repeated keys.
    Lenient,
    /// Pods from an API server, possibly a newer one, that accepted them: whatever has a sensible reading is a
    /// warning.
    ApiServer,
}

/// One pod under review.
#[derive(Debug)]
pub(crate) struct Review<'a> {
    origin: &'a Origin,
    document: Option<usize>,
    /// Where the pod stands within its document, for lists.
    base: FieldPath,
    strictness: Strictness,
    /// The tree of the pod, for lines and columns. Pods of the API server have none.
    pub(crate) tree: Option<&'a Node>,
    /// `namespace/name`, once known.
    pub(crate) pod: Option<String>,
    pub(crate) report: Report,
}

// === impl Review ===

impl<'a> Review<'a> {
    pub(crate) fn new(origin: &'a Origin, document: Option<usize>, base: FieldPath, strictness: Strictness) -> Self {
        Self { origin, document, base, strictness, tree: None, pod: None, report: Report::default() }
    }

    /// Who wrote the pod.
    pub(crate) fn trust(&self) -> Trust {
        self.origin.trust()
    }

    /// A mistake that leaves no sensible reading: the pod is refused, wherever it comes from.
    pub(crate) fn refuse(&mut self, path: &FieldPath, complaint: Complaint) {
        self.file(Severity::Error, path, None, complaint);
    }

    /// The same, where the position is known.
    pub(crate) fn refuse_at(&mut self, path: &FieldPath, at: Position, complaint: Complaint) {
        self.file(Severity::Error, path, Some(at), complaint);
    }

    /// A mistake that a sensible reading is left of: an API server's pod is accepted with it.
    pub(crate) fn object(&mut self, path: &FieldPath, complaint: Complaint) {
        self.file(self.objection(), path, None, complaint);
    }

    /// The same, where the position is known.
    pub(crate) fn object_at(&mut self, path: &FieldPath, at: Position, complaint: Complaint) {
        self.file(self.objection(), path, Some(at), complaint);
    }

    /// A field that the API does not have, or a key that occurs twice.
    pub(crate) fn surplus(&mut self, path: &FieldPath, at: Position, complaint: Complaint) {
        let severity = match self.strictness {
            Strictness::Strict => Severity::Error,
            Strictness::Lenient | Strictness::ApiServer => Severity::Warning,
        };
        self.file(severity, path, Some(at), complaint);
    }

    /// Counts problems that were left out because there were too many already.
    pub(crate) fn leave_out(&mut self, number: usize) {
        self.report.omitted += number;
    }

    /// Legal, but worth a look.
    pub(crate) fn warn(&mut self, path: &FieldPath, complaint: Complaint) {
        self.file(Severity::Warning, path, None, complaint);
    }

    /// How much an objection weighs.
    fn objection(&self) -> Severity {
        match self.strictness {
            Strictness::Strict | Strictness::Lenient => Severity::Error,
            Strictness::ApiServer => Severity::Warning,
        }
    }

    /// Writes a problem down. Past the limit it is not even looked for in the tree: a hostile manifest has hundreds of
    /// thousands.
    fn file(&mut self, severity: Severity, path: &FieldPath, at: Option<Position>, complaint: Complaint) {
        if !self.report.has_room(severity) {
            return self.leave_out(1);
        }
        let at = at.or_else(|| self.tree.map(|tree| tree.position_of(path)));
        let path = path.below(&self.base).to_string();
        if self.report.errors.iter().any(|problem| problem.kind == Kind::InvalidType && covers(&problem.path, &path)) {
            return;
        }
        let Complaint { kind, value, message } = complaint;
        self.report.push(Problem {
            file: self.origin.name().to_owned(),
            document: self.document,
            pod: self.pod.clone(),
            line: at.map(|at| at.line),
            column: at.map(|at| at.column),
            path,
            value,
            kind,
            severity,
            message,
        });
    }
}

/// Whether a path is another one or lies within it. A value of the wrong type was replaced by a neutral one, about
/// which there is nothing to say.
fn covers(outer: &str, path: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}
