//! Probes of a container in a few words: how each stands, and how far the next verdict is. Pure.

use keelet_lifecycle::{evidence::RunningInstance, probe::ProbeMemory};
use keelet_pod::{Container, Probe, ProbeKind};

use crate::view::table::{Cell, Tint};

const KINDS: [(ProbeKind, &str); 3] =
    [(ProbeKind::Startup, "startup"), (ProbeKind::Readiness, "ready"), (ProbeKind::Liveness, "live")];

/// Whether a container has any.
pub(super) fn are_there(container: &Container) -> bool {
    KINDS.iter().any(|(kind, _)| container.probe(*kind).is_some())
}

/// All probes of a container, in the order in which they come to bear. One that does not run has no results: those of a
/// former instance say nothing.
pub(super) fn cell(container: Option<&Container>, instance: Option<&RunningInstance>) -> Cell {
    let (Some(container), Some(instance)) = (container, instance) else { return "-".into() };
    let probes = KINDS.iter().filter_map(|(kind, name)| Some((name, container.probe(*kind)?, instance.probe(*kind))));
    let told: Vec<(Tint, String)> = probes
        .map(|(name, probe, memory)| {
            let (tint, word) = stand(probe, memory);
            (tint, format!("{name} {word}"))
        })
        .collect();
    if told.is_empty() {
        return "-".into();
    }
    // A cell has one colour, and the worst of them is news.
    let worst = [Tint::Bad, Tint::Unsure, Tint::Good].into_iter().find(|tint| told.iter().any(|(t, _)| t == tint));
    let words: Vec<String> = told.into_iter().map(|(_, word)| word).collect();
    Cell::tinted(words.join(", "), worst.unwrap_or_default())
}

/// How one probe stands: `ok`, `failed x4`, or what points the other way but decides nothing yet, `ok 1/3 failed`.
fn stand(probe: &Probe, memory: &ProbeMemory) -> (Tint, String) {
    let verdict = memory.verdict.passed();
    let (tint, word) = match verdict {
        None => (Tint::Unsure, ""),
        Some(true) => (Tint::Good, "ok"),
        Some(false) => (Tint::Bad, "failed"),
    };
    let more = match memory.streak {
        _ if memory.errors > 0 => "no result".to_owned(),
        Some(streak) if verdict == Some(streak.passed) && streak.passed => String::new(),
        Some(streak) if verdict == Some(streak.passed) => format!("x{}", streak.length),
        Some(streak) if streak.passed => format!("{}/{} ok", streak.length, probe.success_threshold),
        Some(streak) => format!("{}/{} failed", streak.length, probe.failure_threshold),
        None if verdict.is_none() => "-".to_owned(),
        None => String::new(),
    };
    let tint = if tint == Tint::Good && !more.is_empty() { Tint::Unsure } else { tint };
    (tint, [word, &more].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use keelet_pod::Pod;
    use serde_json::{Value, json};

    use super::*;

    fn pod() -> Pod {
        let probe = "{exec: {command: [a]}, successThreshold: 1, failureThreshold: 3}";
        let ready = probe.replace("Threshold: 1", "Threshold: 2");
        keelet_pod::parse_one(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec: {{containers: [{{name: all, image: b, \
             startupProbe: {probe}, readinessProbe: {ready}, livenessProbe: {probe}}}, {{name: none, image: b}}]}}"
        ))
        .unwrap()
    }

    fn at() -> Value {
        json!({ "boot_ms": 1, "wall": "2026-01-01T00:00:00Z", "boot_id": "11111111-1111-1111-1111-111111111111" })
    }

    fn instance(startup: &Value, readiness: &Value, liveness: &Value) -> RunningInstance {
        let instance = json!({
            "id": "c1", "started": at(), "postStart": "done",
            "startup": startup, "readiness": readiness, "liveness": liveness,
        });
        serde_json::from_value(instance).unwrap()
    }

    fn memory(verdict: Option<bool>, run: Option<(bool, u32)>) -> Value {
        let mut memory = json!({});
        if let Some(passed) = verdict {
            memory["verdict"] = json!({ "probed": { "passed": passed, "at": at(), "run": 1, "output": "" } });
        }
        if let Some((passed, length)) = run {
            memory["run"] = json!({ "passed": passed, "length": length, "last": at() });
        }
        memory
    }

    #[test]
    fn each_probe_says_how_it_stands_and_what_points_the_other_way() {
        let pod = pod();
        let (all, none) = (pod.container("all"), pod.container("none"));
        let good = memory(Some(true), Some((true, 4)));
        let (fresh, nearly) = (memory(None, None), memory(None, Some((true, 1))));
        let mut unasked = memory(Some(true), Some((true, 2)));
        unasked["errors"] = json!(1);
        let cases = [
            (instance(&fresh, &fresh, &fresh), Tint::Unsure, "startup -, ready -, live -"),
            (
                instance(&memory(None, Some((false, 2))), &fresh, &fresh),
                Tint::Unsure,
                "startup 2/3 failed, ready -, live -",
            ),
            (instance(&good, &nearly, &good), Tint::Unsure, "startup ok, ready 1/2 ok, live ok"),
            (instance(&good, &good, &good), Tint::Good, "startup ok, ready ok, live ok"),
            (
                instance(&good, &memory(Some(false), Some((false, 7))), &memory(Some(true), Some((false, 1)))),
                Tint::Bad,
                "startup ok, ready failed x7, live ok 1/3 failed",
            ),
            (instance(&good, &good, &unasked), Tint::Unsure, "startup ok, ready ok, live ok no result"),
        ];
        for (instance, tint, words) in cases {
            assert_eq!(cell(all, Some(&instance)), Cell::tinted(words, tint));
            assert_eq!(cell(none, Some(&instance)), Cell::from("-"));
        }
        assert_eq!(cell(all, None), Cell::from("-"), "it does not run");
        assert!(all.is_some_and(are_there) && !none.is_some_and(are_there));
    }
}
