//! The review of one pod: it knows the pod's origin and the strictness, and collects every problem.

use crate::{
    Trust,
    path::FieldPath,
    problem::{Detail, Kind, Origin, Problem, Report, Severity},
    tree::{Position, TreeNode},
};

/// How keelet treats fields that the API does not have and values that the API refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// Manifests that people write: unknown fields and repeated keys are errors.
    #[default]
    Strict,
    /// The same with warnings for unknown fields and repeated keys.
    Lenient,
    /// Pods from an API server, possibly a newer one, that accepted them: whatever has a sensible reading is a warning.
    ApiServer,
}

/// One pod under review.
#[derive(Debug)]
pub(crate) struct Review<'a> {
    origin: &'a Origin,
    document: Option<usize>,
    /// The position of the pod within its document, for lists.
    base: FieldPath,
    strictness: Strictness,
    /// The tree of the pod, for lines and columns. Pods of the API server have none.
    pub(crate) tree: Option<&'a TreeNode>,
    /// `namespace/name`, once known.
    pub(crate) pod: Option<String>,
    pub(crate) report: Report,
}

// === impl Review ===

impl<'a> Review<'a> {
    pub(crate) fn new(origin: &'a Origin, document: Option<usize>, base: FieldPath, strictness: Strictness) -> Self {
        Self { origin, document, base, strictness, tree: None, pod: None, report: Report::default() }
    }

    /// The author of the pod, by its origin.
    pub(crate) fn trust(&self) -> Trust {
        self.origin.trust()
    }

    /// Adds an error that refuses the pod whatever its origin, because no sensible reading is left.
    pub(crate) fn refuse(&mut self, path: &FieldPath, detail: Detail) {
        self.file(Severity::Error, path, None, detail);
    }

    /// [`Review::refuse`], with a known position.
    pub(crate) fn refuse_at(&mut self, path: &FieldPath, at: Position, detail: Detail) {
        self.file(Severity::Error, path, Some(at), detail);
    }

    /// Adds an error that refuses a manifest; a pod of an API server is accepted with a warning, because a sensible
    /// reading is left.
    pub(crate) fn object(&mut self, path: &FieldPath, detail: Detail) {
        self.file(self.objection(), path, None, detail);
    }

    /// [`Review::object`], with a known position.
    pub(crate) fn object_at(&mut self, path: &FieldPath, at: Position, detail: Detail) {
        self.file(self.objection(), path, Some(at), detail);
    }

    /// Adds a problem about a field that the API does not have, or about a repeated key.
    pub(crate) fn surplus(&mut self, path: &FieldPath, at: Position, detail: Detail) {
        let severity = match self.strictness {
            Strictness::Strict => Severity::Error,
            Strictness::Lenient | Strictness::ApiServer => Severity::Warning,
        };
        self.file(severity, path, Some(at), detail);
    }

    /// Counts problems that were left out because of the limit.
    pub(crate) fn leave_out(&mut self, number: usize) {
        self.report.omitted += number;
    }

    /// Adds a warning about a legal value.
    pub(crate) fn warn(&mut self, path: &FieldPath, detail: Detail) {
        self.file(Severity::Warning, path, None, detail);
    }

    /// The severity of an objection.
    fn objection(&self) -> Severity {
        match self.strictness {
            Strictness::Strict | Strictness::Lenient => Severity::Error,
            Strictness::ApiServer => Severity::Warning,
        }
    }

    /// Adds a problem. Past the limit its position is not looked up in the tree, because a hostile manifest has
    /// hundreds of thousands of problems.
    fn file(&mut self, severity: Severity, path: &FieldPath, at: Option<Position>, detail: Detail) {
        if !self.report.has_room(severity) {
            return self.leave_out(1);
        }
        let at = at.or_else(|| self.tree.map(|tree| tree.position_of(path)));
        let path = path.below(&self.base).to_string();
        if self.report.errors.iter().any(|problem| problem.kind == Kind::InvalidType && covers(&problem.path, &path)) {
            return;
        }
        let Detail { kind, value, message } = detail;
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

/// Whether a path equals another one or lies within it. A neutral value replaced the value of the wrong type, so
/// problems with it are not the author's.
fn covers(outer: &str, path: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}
