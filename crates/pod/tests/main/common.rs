//! Manifests in one line, and verdicts on them.

use keelet_pod::{Container, Features, Origin, Pod, Problem, Report, Strictness, read_manifest};

/// A pod `web` of one container `main`, with lines added to the spec and to the container.
pub(crate) fn pod(spec: &str, container: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec:\n{}  containers:\n  - name: main\n    image: app:1\n{}",
        indented(spec, 2),
        indented(container, 4)
    )
}

/// The same with an init container `setup` in front.
pub(crate) fn with_init(init: &str) -> String {
    pod(&format!("initContainers:\n- name: setup\n  image: app:1\n{}", indented(init, 2)), "")
}

/// The same with an ephemeral container `debug` behind.
pub(crate) fn with_ephemeral(ephemeral: &str) -> String {
    pod(&format!("ephemeralContainers:\n- name: debug\n  image: app:1\n{}", indented(ephemeral, 2)), "")
}

fn indented(text: &str, by: usize) -> String {
    text.lines().map(|line| format!("{:by$}{line}\n", "")).collect()
}

pub(crate) fn read(manifest: &str, strictness: Strictness, features: &Features) -> Report {
    read_manifest(manifest.as_bytes(), &Origin::file("pod.yaml"), strictness, features)
}

pub(crate) fn strict(manifest: &str) -> Report {
    read(manifest, Strictness::Strict, &Features::default())
}

/// The pod, which has to be valid, without its warnings.
#[track_caller]
pub(crate) fn accepted(manifest: &str) -> Pod {
    let mut report = strict(manifest);
    assert!(report.is_ok(), "refused:\n{report}\n{manifest}");
    assert_eq!(report.pods.len(), 1, "{manifest}");
    report.pods.remove(0)
}

/// The pod, which has to be valid and beyond suspicion.
#[track_caller]
pub(crate) fn clean(manifest: &str) -> Pod {
    let report = strict(manifest);
    assert!(report.warnings.is_empty(), "warned of:\n{report}\n{manifest}");
    accepted(manifest)
}

/// The container `main` of a pod that has to be valid.
#[track_caller]
pub(crate) fn main_of(manifest: &str) -> Container {
    accepted(manifest).container("main").expect("main").clone()
}

/// The one error that a manifest has to have, at that path and with those words.
#[track_caller]
pub(crate) fn refused(manifest: &str, path: &str, words: &str) -> Problem {
    let report = strict(manifest);
    assert!(report.pods.is_empty(), "accepted: {manifest}");
    assert_eq!(report.errors.len(), 1, "one error expected at {path}:\n{report}\n{manifest}");
    let problem = report.errors[0].clone();
    let line = problem.to_string();
    assert_eq!(problem.path, path, "{line}\n{manifest}");
    assert!(line.contains(words), "{words:?} expected in {line:?}\n{manifest}");
    problem
}

/// The one warning that a valid manifest has to have.
#[track_caller]
pub(crate) fn warned(manifest: &str, path: &str, words: &str) -> Problem {
    accepted(manifest);
    let report = strict(manifest);
    assert_eq!(report.warnings.len(), 1, "one warning expected at {path}:\n{report}\n{manifest}");
    let problem = report.warnings[0].clone();
    let line = problem.to_string();
    assert_eq!(problem.path, path, "{line}\n{manifest}");
    assert!(line.contains(words), "{words:?} expected in {line:?}\n{manifest}");
    problem
}

/// Every error as `path: words`, in order.
pub(crate) fn paths(report: &Report) -> Vec<&str> {
    report.errors.iter().map(|problem| problem.path.as_str()).collect()
}
