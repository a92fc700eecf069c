//! Changes of a pod as lines. Pure.

use keelet_agent::events::EventRecord;
use keelet_lifecycle::{
    Severity, Wall,
    status::{ConditionType, ContainerState, ContainerStatus, Phase, PodStatus, Truth},
};

use keelet_pod::{Pod, ProbeKind};

use crate::{
    style::Style,
    view::{pod::condition_name, table::Tint},
};

/// One change, and how good it is.
pub(super) type Line = (Tint, String);

/// What is different from what was known before.
pub(super) fn changes(pod: &Pod, old: Option<&PodStatus>, new: &PodStatus) -> Vec<Line> {
    let mut lines = Vec::new();
    for container in new.all_containers() {
        let before = old.and_then(|old| old.container(&container.name));
        let has_startup = pod.container(&container.name).is_some_and(|spec| spec.probe(ProbeKind::Startup).is_some());
        container_changes(before, container, has_startup, &mut lines);
    }
    for condition in &new.conditions {
        let before = old.and_then(|old| old.condition(&condition.kind)).map(|before| before.status);
        let told = matches!(
            condition.kind,
            ConditionType::Initialized
                | ConditionType::Ready
                | ConditionType::AllContainersRestarting
                | ConditionType::Foreign(_)
        );
        // That something does not hold yet is no news.
        let news = before != Some(condition.status) && (before.is_some() || condition.status == Truth::True);
        if told && news {
            let why = condition.message.as_deref().or(condition.reason.as_deref()).filter(|why| !why.is_empty());
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            let tint = match (&condition.kind, condition.status) {
                (ConditionType::AllContainersRestarting, _) => Tint::Unsure,
                (_, Truth::True) => Tint::Good,
                _ => Tint::Unsure,
            };
            lines.push((tint, format!("{} is {:?}{why}", condition_name(&condition.kind), condition.status)));
        }
    }
    if old.map(|old| old.phase) != Some(new.phase) {
        let why = new.message.as_deref().or(new.reason.as_deref()).map(|why| format!(": {why}")).unwrap_or_default();
        let tint = match new.phase {
            Phase::Failed => Tint::Bad,
            Phase::Pending => Tint::Neutral,
            _ => Tint::Good,
        };
        lines.push((tint, format!("phase is {:?}{why}", new.phase)));
    }
    lines
}

fn container_changes(
    before: Option<&ContainerStatus>,
    now: &ContainerStatus,
    has_startup: bool,
    lines: &mut Vec<Line>,
) {
    let name = &now.name;
    if before.is_none_or(|before| differs(&before.state, &now.state)) {
        let again = before.is_some_and(|before| before.restart_count < now.restart_count);
        let again = if again { format!(" (restart {})", now.restart_count) } else { String::new() };
        let (tint, state) = state(&now.state);
        lines.push((tint, format!("{name}: {state}{again}")));
    }
    let before_started = before.and_then(|before| before.started).unwrap_or(false);
    let runs = matches!(now.state, ContainerState::Running(_));
    // Without a startup probe it says no more than that it runs.
    if has_startup && runs && now.started == Some(true) && !before_started {
        lines.push((Tint::Good, format!("{name}: has started up")));
    }
    let was_ready = before.is_some_and(|before| before.ready);
    if runs && now.ready != was_ready {
        let (tint, word) = if now.ready { (Tint::Good, "is ready") } else { (Tint::Unsure, "is not ready") };
        lines.push((tint, format!("{name}: {word}")));
    }
}

fn differs(before: &ContainerState, now: &ContainerState) -> bool {
    match (before, now) {
        // A countdown in its message is no news.
        (ContainerState::Waiting(before), ContainerState::Waiting(now)) => before.reason != now.reason,
        (before, now) => before != now,
    }
}

/// What a container does, in words.
pub(super) fn state(state: &ContainerState) -> (Tint, String) {
    match state {
        ContainerState::Running(_) => (Tint::Good, "running".to_owned()),
        ContainerState::Waiting(waiting) => {
            let usual = matches!(waiting.reason.as_str(), "" | "ContainerCreating" | "PodInitializing");
            let why = Some(waiting.message.as_str()).filter(|message| !message.is_empty());
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            let reason = if waiting.reason.is_empty() { String::new() } else { format!(" ({})", waiting.reason) };
            (if usual { Tint::Neutral } else { Tint::Bad }, format!("waiting{reason}{why}"))
        }
        ContainerState::Terminated(ended) => {
            let reason = match ended.reason.as_str() {
                "" | "Completed" => String::new(),
                reason => format!(" ({reason})"),
            };
            let said = ended.message.lines().next().filter(|line| !line.is_empty());
            let said = said.map(|line| format!(": {line}")).unwrap_or_default();
            let tint = if ended.exit_code == 0 { Tint::Good } else { Tint::Bad };
            (tint, format!("ended with code {}{reason}{said}", ended.exit_code))
        }
    }
}

/// Events that say more than the status does. One that repeats is printed ever more rarely.
pub(super) fn event(event: &EventRecord) -> Option<Line> {
    if !event.count.is_power_of_two() {
        return None;
    }
    let container = event.container.as_ref().map(|name| format!("{name}: ")).unwrap_or_default();
    let again = if event.count > 1 { format!(" (x{})", event.count) } else { String::new() };
    let line = format!("{container}{}: {}{again}", event.reason, event.message);
    match event.severity {
        Severity::Warning => Some((Tint::Unsure, line)),
        Severity::Normal => match event.reason.as_str() {
            "Pulled" if event.message.contains("already present") => None,
            "Pulling" | "Pulled" | "Killing" => Some((Tint::Neutral, line)),
            _ => None,
        },
    }
}

/// A line as it is written.
pub(super) fn line(at: Wall, pod: &str, (tint, text): &Line, style: Style) -> String {
    let text = text.replace(|c: char| c.is_control(), " ");
    format!("{} {} {}\n", style.dim(&clock(at)), style.bold(pod), tint.paint(style, &text))
}

/// `2026-01-02T03:04:05.678Z`, always as long.
pub(super) fn clock(at: Wall) -> String {
    let whole = at.whole_seconds().to_string();
    format!("{}.{:03}Z", whole.trim_end_matches('Z'), at.as_millis().rem_euclid(1000))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(value: Value) -> PodStatus {
        serde_json::from_value(value).unwrap()
    }

    fn with(phase: &str, state: Value, ready: bool, restarts: u32) -> PodStatus {
        let condition = json!({ "type": "Ready", "status": if ready { "True" } else { "False" }, "message": "why" });
        status(json!({
            "phase": phase, "conditions": [condition],
            "containerStatuses": [{ "name": "main", "state": state, "ready": ready, "started": ready, "restartCount": restarts }],
        }))
    }

    fn pod(startup: &str) -> Pod {
        let manifest = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec: {{containers: [{{name: main, image: b{startup}}}]}}"
        );
        keelet_pod::parse_one(&manifest).unwrap()
    }

    fn texts(old: Option<&PodStatus>, new: &PodStatus) -> Vec<String> {
        changes(&pod(""), old, new).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn each_change_is_one_line_and_nothing_else_is() {
        let waiting = with("Pending", json!({ "waiting": { "reason": "ContainerCreating" } }), false, 0);
        let running = with("Running", json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } }), true, 0);
        let crashed = with(
            "Running",
            json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 10 s" } }),
            false,
            0,
        );
        let later = with(
            "Running",
            json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 9 s" } }),
            false,
            0,
        );
        let again = with("Running", json!({ "running": { "startedAt": "2026-01-01T00:01:00Z" } }), false, 1);
        let failed = with(
            "Failed",
            json!({ "terminated": { "exitCode": 3, "reason": "Error", "message": "oh\nno" } }),
            false,
            1,
        );
        assert_eq!(texts(None, &waiting), ["main: waiting (ContainerCreating)", "phase is Pending"]);
        assert_eq!(
            texts(Some(&waiting), &running),
            ["main: running", "main: is ready", "Ready is True: why", "phase is Running"]
        );
        let probed = pod(", startupProbe: {tcpSocket: {port: 1}}");
        assert_eq!(changes(&probed, Some(&waiting), &running)[1].1, "main: has started up");
        assert_eq!(texts(Some(&running), &running), Vec::<String>::new());
        assert_eq!(
            texts(Some(&running), &crashed),
            ["main: waiting (CrashLoopBackOff): back-off 10 s", "Ready is False: why"]
        );
        assert_eq!(texts(Some(&crashed), &later), Vec::<String>::new());
        assert_eq!(texts(Some(&later), &again), ["main: running (restart 1)"]);
        assert_eq!(texts(Some(&again), &failed), ["main: ended with code 3 (Error): oh", "phase is Failed"]);
    }

    #[test]
    fn times_are_all_of_one_length() {
        assert_eq!(clock(Wall::from_millis(1_767_225_600_007)), "2026-01-01T00:00:00.007Z");
        assert_eq!(clock(Wall::from_millis(1_767_225_600_000)), "2026-01-01T00:00:00.000Z");
    }
}
