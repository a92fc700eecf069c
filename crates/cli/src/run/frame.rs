//! What the live view shows. Pure: a model in, lines out.

use std::{collections::BTreeMap, sync::Arc};

use keelet_agent::board::{PodEvent, Published};
use keelet_lifecycle::{
    Severity, Wall,
    evidence::RunningInstance,
    status::{ConditionType, ContainerState, Truth},
};
use keelet_pod::{Pod, Role};
use keelet_serve::api::Pulling;

use super::{plain, probes};
use crate::{
    progress::of_pull,
    style::Style,
    view::{
        age,
        pod::{condition_name, conditions, summary_of},
        table::{Cell, Table, Tint},
    },
};

/// All that is shown.
#[derive(Debug)]
pub(super) struct Model<'a> {
    pub(super) now: Wall,
    /// Each pod, and its newest status.
    pub(super) pods: Vec<(&'a Pod, Option<Arc<Published>>)>,
    /// Containers that run, by name, of each pod by UID: what their probes have shown.
    pub(super) instances: &'a BTreeMap<String, Instances>,
    /// The oldest first.
    pub(super) events: Vec<Arc<PodEvent>>,
    /// Images that are being pulled.
    pub(super) pulls: Vec<Pulling>,
    /// What shows the same elsewhere.
    pub(super) command: Option<String>,
    /// What happens next, and what Ctrl-C does.
    pub(super) footer: String,
}

/// Containers that run, by name.
pub(super) type Instances = BTreeMap<String, Box<RunningInstance>>;

/// Events that are shown if there is room.
const EVENTS: usize = 6;

/// The lines of a frame, none wider than the screen, no more than fit on it. If not all do, events go first, then the
/// last pods.
pub(super) fn lines(model: &Model<'_>, width: usize, height: usize, style: Style) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (pod, published) in &model.pods {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        pod_lines(pod, published.as_deref(), model.instances.get(&pod.uid), model.now, style, &mut lines);
    }
    if !model.pulls.is_empty() {
        lines.push(String::new());
        lines.push(style.bold("Images on their way"));
        lines.extend(pull_lines(&model.pulls, style));
    }
    // Two for the footer and the line above it.
    let mut room = height.saturating_sub(2);
    // Half a command cannot be copied and run.
    let command = model.command.as_ref().filter(|command| lines.len() < room && command.chars().count() <= width);
    room -= usize::from(command.is_some());
    if lines.len() > room {
        let hidden = lines.len() - room.saturating_sub(1);
        lines.truncate(room.saturating_sub(1));
        lines.push(style.dim(&format!("... {hidden} more lines; a larger terminal shows them")));
    }
    let free = room.saturating_sub(lines.len() + 2).min(EVENTS);
    let newest = &model.events[model.events.len().saturating_sub(free)..];
    if free > 0 && !newest.is_empty() {
        lines.push(String::new());
        lines.push(style.bold("Events"));
        lines.extend(event_lines(newest, model.now, style));
    }
    lines.push(String::new());
    lines.extend(command.map(|command| style.dim(command)));
    lines.push(style.dim(&model.footer));
    lines.iter().map(|line| clip(line, width)).collect()
}

fn pod_lines(
    pod: &Pod,
    published: Option<&Published>,
    instances: Option<&Instances>,
    now: Wall,
    style: Style,
    lines: &mut Vec<String>,
) {
    let name = style.bold(&format!("{}/{}", pod.namespace, pod.name));
    let Some(Published { status, leaving, .. }) = published else {
        lines.push(format!("{name}   {}", style.dim("not there")));
        return;
    };
    let summary = summary_of(pod, status, leaving.is_some());
    let mut head = vec![
        name,
        summary.tint().paint(style, &summary.status),
        format!("{}/{} ready", summary.ready, summary.total),
        format!("age {}", age::since(status.start_time, now)),
    ];
    head.extend(status.pod_ip.clone());
    lines.push(head.join("   "));
    let probed = pod.all_containers().any(probes::are_there);
    let columns = ["CONTAINER", "STATE", "STARTED", "READY", "RESTARTS"];
    let mut table = Table::new(columns.into_iter().chain(probed.then_some("PROBES")).chain([""]));
    for container in status.all_containers() {
        let spec = pod.container(&container.name);
        let truth =
            |holds: bool| if holds { Cell::tinted("yes", Tint::Good) } else { Cell::tinted("no", Tint::Unsure) };
        let is_init = spec.is_some_and(|spec| spec.role == Role::Init);
        let restarts = match container.last_state.terminated.as_ref().and_then(|ended| ended.finished_at) {
            Some(last) if container.restart_count > 0 => {
                format!("{} ({} ago)", container.restart_count, age::short(now.since(last)))
            }
            _ => container.restart_count.to_string(),
        };
        let (tint, word, rest) = short_state(&container.state, now);
        let mut cells = vec![
            container.name.clone().into(),
            Cell::tinted(word, tint),
            if is_init { "-".into() } else { truth(container.started == Some(true)) },
            if is_init { "-".into() } else { truth(container.ready) },
            restarts.into(),
        ];
        if probed {
            let instance = instances.and_then(|instances| instances.get(&container.name)).map(Box::as_ref);
            cells.push(probes::cell(spec, instance));
        }
        cells.push(rest.into());
        table.row(cells);
    }
    lines.extend(table.text(true, style).lines().enumerate().map(|(index, line)| match index {
        0 => format!("  {}", style.dim(line)),
        _ => format!("  {line}"),
    }));
    let shown = conditions(status).into_iter().filter(|condition| condition.kind != ConditionType::PodScheduled);
    let mut words = Vec::new();
    for condition in shown {
        let tint = match (&condition.kind, condition.status) {
            (ConditionType::AllContainersRestarting, Truth::True) => Tint::Unsure,
            (ConditionType::AllContainersRestarting, _) => Tint::Neutral,
            (_, Truth::True) => Tint::Good,
            _ => Tint::Unsure,
        };
        words.push(tint.paint(style, &format!("{}={:?}", condition_name(&condition.kind), condition.status)));
    }
    lines.push(format!("  {}", words.join("  ")));
}

/// What a container does: a word, since when or with which code, and what else there is to say.
fn short_state(state: &ContainerState, now: Wall) -> (Tint, String, String) {
    let (tint, _) = plain::state(state);
    match state {
        ContainerState::Running(running) => {
            (tint, format!("Running {}", age::short(now.since(running.started_at))), String::new())
        }
        ContainerState::Waiting(waiting) => {
            let reason = if waiting.reason.is_empty() { "Waiting" } else { &waiting.reason };
            (if tint == Tint::Neutral { Tint::Unsure } else { tint }, reason.to_owned(), waiting.message.clone())
        }
        ContainerState::Terminated(ended) => {
            let reason = if ended.reason.is_empty() { "Ended" } else { &ended.reason };
            (
                tint,
                format!("{reason} ({})", ended.exit_code),
                ended.message.lines().next().unwrap_or_default().to_owned(),
            )
        }
    }
}

fn pull_lines(pulls: &[Pulling], style: Style) -> Vec<String> {
    let mut table = Table::new(["", ""]);
    for pulling in pulls {
        table.row(vec![pulling.image.clone().into(), of_pull(pulling).0.into()]);
    }
    table.text(false, style).lines().map(|line| format!("  {line}")).collect()
}

fn event_lines(events: &[Arc<PodEvent>], now: Wall, style: Style) -> Vec<String> {
    let mut table = Table::new(["", "", "", ""]);
    for told in events {
        let event = &told.event;
        let object = match &event.container {
            Some(container) => format!("{}/{container}", told.pod.name),
            None => told.pod.name.clone(),
        };
        let tint = if event.severity == Severity::Warning { Tint::Unsure } else { Tint::Neutral };
        table.row(vec![
            age::short(now.since(event.at.wall)).into(),
            object.into(),
            Cell::tinted(event.reason.clone(), tint),
            match event.count {
                0 | 1 => event.message.clone(),
                count => format!("(x{count}) {}", event.message),
            }
            .into(),
        ]);
    }
    table.text(false, style).lines().map(|line| format!("  {line}")).collect()
}

/// The line up to that many columns. Escape sequences take none; what they switched on is switched off at the end.
pub(super) fn clip(line: &str, width: usize) -> String {
    let mut text = String::new();
    let (mut columns, mut escaped, mut coloured) = (0, false, false);
    for c in line.chars() {
        if escaped {
            escaped = !c.is_ascii_alphabetic();
        } else if c == '\u{1b}' {
            escaped = true;
            coloured = true;
        } else {
            if columns == width {
                break;
            }
            columns += 1;
        }
        text.push(c);
    }
    if coloured {
        text.push_str("\u{1b}[0m");
    }
    text
}

#[cfg(test)]
mod tests {
    use keelet_agent::events::EventRecord;
    use keelet_lifecycle::{BootId, Moment, status::PodStatus};
    use serde_json::json;

    use super::*;

    fn pod() -> Arc<Pod> {
        let manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {initContainers: [{name: init, image: a}], containers: [{name: main, image: b}]}";
        Arc::new(keelet_pod::parse_one(manifest).unwrap())
    }

    fn published(pod: &Arc<Pod>) -> Arc<Published> {
        let status: PodStatus = serde_json::from_value(json!({
            "phase": "Running", "podIP": "10.0.0.7", "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{ "type": "Ready", "status": "False" }, { "type": "Initialized", "status": "True" }],
            "initContainerStatuses": [{ "name": "init", "state": { "terminated": { "exitCode": 0, "reason": "Completed" } }, "ready": true }],
            "containerStatuses": [{
                "name": "main", "ready": false, "started": true, "restartCount": 2,
                "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 20 s" } },
                "lastState": { "terminated": { "exitCode": 1, "finishedAt": "2026-01-01T00:01:00Z" } },
            }],
        }))
        .unwrap();
        Arc::new(Published { pod: Arc::clone(pod), version: 1, status, leaving: None })
    }

    fn event(pod: &Arc<Pod>, number: usize) -> Arc<PodEvent> {
        let wall = serde_json::from_value(json!("2026-01-01T00:01:00Z")).unwrap();
        let event = EventRecord {
            at: Moment { boot_ms: 0, wall, boot_id: BootId::default() },
            container: Some("main".to_owned()),
            reason: "BackOff".to_owned(),
            severity: Severity::Warning,
            message: format!("number {number}"),
            count: 1,
        };
        Arc::new(PodEvent::new(pod, event))
    }

    fn frame(width: usize, height: usize) -> Vec<String> {
        frame_with(width, height, Vec::new())
    }

    fn frame_with(width: usize, height: usize, pulls: Vec<Pulling>) -> Vec<String> {
        let pod = pod();
        let model = Model {
            now: serde_json::from_value(json!("2026-01-01T00:01:20Z")).unwrap(),
            pods: vec![(&pod, Some(published(&pod)))],
            instances: &BTreeMap::new(),
            events: (0..20).map(|number| event(&pod, number)).collect(),
            pulls,
            command: Some("keelet get pods --socket /run/a.sock".to_owned()),
            footer: "Ctrl-C stops the pods.".to_owned(),
        };
        lines(&model, width, height, Style::Plain)
    }

    #[test]
    fn a_frame_shows_pods_containers_conditions_and_the_newest_events() {
        let expected = "\
default/web   CrashLoopBackOff   0/1 ready   age 80s   10.0.0.7
  CONTAINER   STATE              STARTED   READY   RESTARTS
  init        Completed (0)      -         -       0
  main        CrashLoopBackOff   yes       no      2 (20s ago)   back-off 20 s
  Initialized=True  Ready=False

Events
  20s   web/main   BackOff   number 18
  20s   web/main   BackOff   number 19

keelet get pods --socket /run/a.sock
Ctrl-C stops the pods.";
        assert_eq!(frame(100, 12).join("\n"), expected);
        let narrow = frame(30, 12);
        assert!(!narrow.iter().any(|line| line.starts_with("keelet get")), "not the half of it: {narrow:?}");
    }

    #[test]
    fn probes_have_a_column_where_there_are_any() {
        let manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {initContainers: [{name: init, image: a}], containers: [{name: main, image: b, livenessProbe: {tcpSocket: {port: 1}}}]}";
        let pod = Arc::new(keelet_pod::parse_one(manifest).unwrap());
        let at = json!({ "boot_ms": 1, "wall": "2026-01-01T00:00:00Z", "boot_id": BootId::default() });
        let instance = json!({
            "id": "c1", "started": at, "postStart": "done",
            "liveness": { "run": { "passed": false, "length": 2, "last": at } },
        });
        let instances = BTreeMap::from([("main".to_owned(), Box::new(serde_json::from_value(instance).unwrap()))]);
        let model = Model {
            now: serde_json::from_value(json!("2026-01-01T00:01:20Z")).unwrap(),
            pods: vec![(&pod, Some(published(&pod)))],
            instances: &BTreeMap::from([(pod.uid.clone(), instances)]),
            events: Vec::new(),
            pulls: Vec::new(),
            command: None,
            footer: String::new(),
        };
        let expected = "  CONTAINER   STATE              STARTED   READY   RESTARTS      PROBES
  init        Completed (0)      -         -       0             -
  main        CrashLoopBackOff   yes       no      2 (20s ago)   live 2/3 failed   back-off 20 s";
        assert_eq!(lines(&model, 100, 20, Style::Plain)[1..4].join("\n"), expected);
    }

    #[test]
    fn images_on_their_way_are_shown_with_how_far_they_have_come() {
        let pulling = |image: &str, bytes| Pulling {
            image: image.to_owned(),
            layers: 1,
            bytes,
            fetched_bytes: bytes / 4,
            ..Pulling::default()
        };
        let lines = frame_with(100, 30, vec![pulling("app:1", 40_000_000), pulling("registry/other:2", 0)]);
        let at = lines.iter().position(|line| line == "Images on their way").expect("a heading");
        assert_eq!(lines[at + 1], "  app:1              10.0MB of 40.0MB (25%)");
        assert_eq!(lines[at + 2], "  registry/other:2   asking the registry");
    }

    #[test]
    fn a_frame_fits_on_any_screen() {
        for height in 1..40 {
            for width in [1, 20, 79] {
                let lines = frame(width, height);
                assert!(lines.len() <= height.max(3), "{} lines on {height}", lines.len());
                assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:?}");
                assert_eq!(lines.last().unwrap(), &clip("Ctrl-C stops the pods.", width));
            }
        }
    }

    #[test]
    fn colours_are_not_cut_through() {
        assert_eq!(clip("\u{1b}[31;1mabc\u{1b}[0m", 2), "\u{1b}[31;1mab\u{1b}[0m");
        assert_eq!(clip("abc", 5), "abc");
    }
}
