//! The result as machines want it. The shape is stable: fields may be added, none is renamed or dropped while `format`
//! stays the same.
//!
//! ```json
//! {
//!   "format": "keelet.dev/validate/v1",
//!   "valid": false,
//!   "files": [{
//!     "file": "pod.yaml",
//!     "unreadable": null,
//!     "pods": [{"namespace": "default", "name": "web", "uid": "...", "initContainers": 1, "sidecars": 1,
//!               "containers": 2, "ephemeralContainers": 0, "probes": 4}],
//!     "errors": [{"file": "pod.yaml", "document": 1, "pod": "default/web", "line": 12, "column": 9,
//!                 "path": "spec.containers[0].image", "value": null, "kind": "Required", "severity": "error",
//!                 "message": "..."}],
//!     "warnings": [],
//!     "omitted": 0
//!   }],
//!   "summary": {"files": 1, "unreadable": 0, "pods": 1, "errors": 1, "warnings": 0}
//! }
//! ```

use keelet_pod::{Pod, ProbeKind, Problem, Role};
use serde::Serialize;

use super::Outcome;
use crate::exit::ExitStatus;

#[derive(Serialize)]
struct Document<'a> {
    format: &'static str,
    valid: bool,
    files: Vec<FileResult<'a>>,
    summary: Summary,
}

#[derive(Serialize)]
struct FileResult<'a> {
    file: &'a str,
    unreadable: Option<String>,
    pods: Vec<PodSummary<'a>>,
    errors: &'a [Problem],
    warnings: &'a [Problem],
    omitted: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PodSummary<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    init_containers: usize,
    sidecars: usize,
    containers: usize,
    ephemeral_containers: usize,
    probes: usize,
}

#[derive(Default, Serialize)]
struct Summary {
    files: usize,
    unreadable: usize,
    pods: usize,
    errors: usize,
    warnings: usize,
}

/// One JSON document, with a line break at its end.
pub(super) fn render(outcomes: &[Outcome]) -> String {
    let files: Vec<_> = outcomes.iter().map(FileResult::from).collect();
    let summary = Summary {
        files: files.len(),
        unreadable: files.iter().filter(|file| file.unreadable.is_some()).count(),
        pods: files.iter().map(|file| file.pods.len()).sum(),
        errors: files.iter().map(|file| file.errors.len()).sum(),
        warnings: files.iter().map(|file| file.warnings.len()).sum(),
    };
    let valid = outcomes.iter().all(|outcome| outcome.status() == ExitStatus::Success);
    let document = Document { format: "keelet.dev/validate/v1", valid, files, summary };
    // Strings and numbers only: there is nothing in it that could fail.
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

impl<'a> From<&'a Outcome> for FileResult<'a> {
    fn from(outcome: &'a Outcome) -> Self {
        match &outcome.result {
            Ok(report) => Self {
                file: &outcome.file,
                unreadable: None,
                pods: report.pods.iter().map(PodSummary::from).collect(),
                errors: &report.errors,
                warnings: &report.warnings,
                omitted: report.omitted,
            },
            Err(error) => Self {
                file: &outcome.file,
                unreadable: Some(error.to_string()),
                pods: Vec::new(),
                errors: &[],
                warnings: &[],
                omitted: 0,
            },
        }
    }
}

impl<'a> From<&'a Pod> for PodSummary<'a> {
    fn from(pod: &'a Pod) -> Self {
        let roles = |role| pod.all_containers().filter(|container| container.role == role).count();
        let probes = |kind| pod.all_containers().filter(|container| container.probe(kind).is_some()).count();
        Self {
            namespace: &pod.namespace,
            name: &pod.name,
            uid: &pod.uid,
            init_containers: roles(Role::Init),
            sidecars: roles(Role::Sidecar),
            containers: roles(Role::Regular),
            ephemeral_containers: roles(Role::Ephemeral),
            probes: ProbeKind::ALL.into_iter().map(probes).sum(),
        }
    }
}
