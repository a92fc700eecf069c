//! The result as people want it.

use std::fmt::Write;

use keelet_pod::{Pod, ProbeKind, Role};

use crate::style::Style;

use super::Outcome;

/// Pods, problems, and a line that sums up.
pub(super) fn render(outcomes: &[Outcome], style: Style) -> String {
    let mut text = String::new();
    let (mut pods, mut errors, mut warnings, mut unreadable) = (0, 0, 0, 0);
    for outcome in outcomes {
        let report = match &outcome.result {
            Ok(report) => report,
            Err(message) => {
                unreadable += 1;
                let _ = writeln!(text, "{} {}: {message}", style.red("error:"), outcome.file);
                continue;
            }
        };
        pods += report.pods.len();
        errors += report.errors.len();
        warnings += report.warnings.len();
        for pod in &report.pods {
            let _ = writeln!(text, "{}", line(pod, style));
        }
        for problem in &report.errors {
            let _ = writeln!(text, "{} {problem}", style.red("error:"));
        }
        for problem in &report.warnings {
            let _ = writeln!(text, "{} {problem}", style.yellow("warning:"));
        }
        if report.omitted > 0 {
            let _ = writeln!(text, "{}: {} more problems not shown", outcome.file, report.omitted);
        }
    }
    let mut parts = vec![count(pods, "valid pod"), count(errors, "error"), count(warnings, "warning")];
    if unreadable > 0 {
        parts.push(format!("{} unreadable", count(unreadable, "file")));
    }
    let _ = writeln!(text, "{}: {}", count(outcomes.len(), "file"), parts.join(", "));
    text
}

/// `pod default/web: ok (1 init, 1 sidecar, 2 containers, 4 probes)`
fn line(pod: &Pod, style: Style) -> String {
    let roles = |role| pod.all_containers().filter(|container| container.role == role).count();
    let probes = pod
        .all_containers()
        .map(|container| ProbeKind::ALL.iter().filter(|kind| container.probe(**kind).is_some()).count())
        .sum();
    let (init, sidecars, ephemeral) = (roles(Role::Init), roles(Role::Sidecar), roles(Role::Ephemeral));
    let mut parts = Vec::new();
    if init > 0 {
        parts.push(format!("{init} init"));
    }
    if sidecars > 0 {
        parts.push(count(sidecars, "sidecar"));
    }
    parts.push(count(roles(Role::Regular), "container"));
    if ephemeral > 0 {
        parts.push(format!("{ephemeral} ephemeral"));
    }
    parts.push(count(probes, "probe"));
    format!("pod {}/{}: {} ({})", pod.namespace, pod.name, style.green("ok"), parts.join(", "))
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
