use std::{fs, path::Path, sync::Arc, time::Duration};

use keelet_lifecycle::{BootId, Event, Moment, Severity, Wall, status::PodStatus};
use keelet_pod::{Pod, ProbeKind, parse_one};

use super::{Board, Departure, EVENTS, GONE, GonePod, OverdueProbe, PodEvent, Recall, Running};
use crate::{
    Extent, HEARTBEAT, WantedPods,
    bed::{self, Bed},
    events::{EventRecord, Recorder},
    metrics::ContainerCounts,
};

fn board() -> Board {
    Board::new(Recall::AllRuns, None)
}

fn pod() -> Arc<Pod> {
    let manifest =
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web, uid: u1}\nspec: {containers: [{name: a, image: b}]}";
    Arc::new(parse_one(manifest).expect("valid"))
}

#[test]
fn the_newest_status_is_kept_until_the_pod_is_gone() {
    let (board, pod) = (board(), pod());
    let mut changes = board.changes();
    for version in 1..=2 {
        board.publish(&pod, version, &PodStatus::default());
    }
    assert_eq!(board.statuses()["u1"].version, 2);
    assert_eq!(board.statuses()["u1"].leaving, None);
    let asked = Moment { boot_ms: 0, wall: Wall::default(), boot_id: BootId::default() };
    let departure = Departure { asked, grace: Duration::from_secs(30) };
    board.leaving(&pod, departure);
    assert_eq!(board.statuses()["u1"].leaving, Some(departure));
    board.publish(&pod, 2, &PodStatus::default());
    assert_eq!(board.statuses()["u1"].leaving, Some(departure), "a newer status takes nothing back");
    assert!(changes.has_changed().expect("open"));
    changes.mark_unchanged();
    board.gone(&pod, asked);
    assert!(board.statuses().is_empty());
    assert_eq!(
        board.gone_pods().iter().map(|gone| (gone.at, gone.published.version)).collect::<Vec<_>>(),
        [(asked, 2)]
    );
    assert!(changes.has_changed().expect("open"));
}

/// METR-3, METR-10: what runs and which probes are late is on the board for as long as the pod is there.
#[test]
fn what_runs_and_what_is_late_goes_with_the_pod() {
    let (board, one, other) = (board(), bed::pod("web", "u1"), bed::pod("db", "u2"));
    let now = Moment { boot_ms: 0, wall: Wall::default(), boot_id: BootId::default() };
    let containers = ContainerCounts { created: 1, running: 2, exited: 3, unknown: 4 };
    board.note_running("u1", Running { sandbox: true, containers });
    board.note_running("u2", Running { sandbox: false, containers });
    let twice = ContainerCounts { created: 2, running: 4, exited: 6, unknown: 8 };
    assert_eq!(board.running(), (1, twice), "one pod has a sandbox in use");
    let late = OverdueProbe { container: "main".to_owned(), kind: ProbeKind::Liveness, since: now };
    board.note_overdue(&one, vec![late.clone(); 2]);
    board.note_overdue(&other, vec![late.clone()]);
    let names = || board.overdue_probes().iter().map(|(pod, _)| pod.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(), ["web", "web", "db"]);
    board.note_overdue(&other, Vec::new());
    assert_eq!(names(), ["web", "web"], "the node has kept up since");
    board.gone(&one, now);
    assert_eq!((board.running(), names().len()), ((0, containers), 0));
}

#[test]
fn events_are_bounded_and_the_oldest_go_first() {
    let (board, pod) = (board(), pod());
    let at = Moment { boot_ms: 0, wall: Wall::default(), boot_id: BootId::default() };
    for number in 0..=EVENTS {
        board.event(
            &pod,
            &EventRecord {
                at,
                container: None,
                reason: "Killing".to_owned(),
                severity: Severity::Normal,
                message: number.to_string(),
                count: 1,
            },
        );
    }
    let events = board.events();
    assert_eq!(events.len(), EVENTS);
    assert_eq!(events[0].event.message, "1");
}

/// EVT-12: the next agent knows the events that an earlier agent emitted, and continues their counts.
#[test]
fn what_an_earlier_agent_published_is_recalled() {
    let at = Moment { boot_ms: 0, wall: Wall::default(), boot_id: BootId::default() };
    let record = |message: &str, count| EventRecord {
        at,
        container: Some("a".to_owned()),
        reason: "BackOff".to_owned(),
        severity: Severity::Warning,
        message: message.to_owned(),
        count,
    };
    let (first, pod) = (board(), pod());
    assert!(first.unsaved().is_none(), "nothing happened");
    for count in 1..=3 {
        first.event(&pod, &record("again", count));
    }
    let kept = first.unsaved().expect("something happened");
    assert!(first.unsaved().is_none(), "nothing happened since");
    // As it goes through the ledger.
    let json: Vec<_> = kept.iter().map(|told| serde_json::to_value(&**told).expect("JSON")).collect();
    let kept: Vec<PodEvent> = json.into_iter().map(|told| serde_json::from_value(told).expect("the same")).collect();
    assert_eq!(kept[0].field_path.as_deref(), Some("spec.containers{a}"));
    let second = board();
    second.recall(kept.clone(), Vec::new());
    assert_eq!(second.events().iter().map(|told| (**told).clone()).collect::<Vec<_>>(), kept);
    assert!(second.unsaved().is_none(), "it is kept already");
    assert_eq!(second.events_of("u1").len(), 3);
    let mut recorder = Recorder::recalling(second.events_of("u1"));
    let event = Event {
        container: Some("a".to_owned()),
        reason: "BackOff",
        severity: Severity::Warning,
        message: "again".to_owned(),
    };
    assert_eq!(recorder.record(&event, at).map(|record| record.count), Some(4));
    let alone = Board::new(Recall::ThisRun, None);
    alone.recall(kept, Vec::new());
    alone.event(&pod, &record("again", 1));
    assert!(alone.unsaved().is_none() && alone.events().len() == 1, "a run on its own");
}

/// EVT-12: the next agent knows the newest pods that were gone when the earlier agent ended, as many as the ledger keeps.
#[test]
fn pods_that_were_gone_before_are_recalled() {
    let (first, pod) = (board(), pod());
    let at = |boot_ms| Moment { boot_ms, wall: Wall::default(), boot_id: BootId::default() };
    let most = i64::try_from(GONE).expect("a small number");
    let gone = |version: i64| {
        first.publish(&pod, u64::try_from(version).expect("not negative"), &PodStatus::default());
        first.gone(&pod, at(version));
    };
    (0..=most).for_each(gone);
    let kept: Vec<GonePod> = first.gone_pods().iter().map(|gone| (**gone).clone()).collect();
    assert_eq!((kept.len(), kept[0].at), (GONE, at(1)), "the oldest is forgotten");
    let second = board();
    second.recall(Vec::new(), kept);
    assert_eq!(
        second.gone_pods().iter().map(|gone| gone.at).collect::<Vec<_>>(),
        (1..=most).map(at).collect::<Vec<_>>()
    );
}

/// PROBE-50: what the board knows of late probes is a gauge and a condition of the node.
#[tokio::test(start_paused = true)]
async fn late_probes_are_counted_and_a_condition_of_the_node() {
    let (bed, web) = (Bed::new(), bed::pod("web", "a"));
    let agent = bed.agent().await;
    let late = OverdueProbe { container: "main".to_owned(), kind: ProbeKind::Liveness, since: bed.now() };
    for (late, gauge, status) in [
        (vec![late.clone(), late], "keelet_overdue_probes 2", "True"),
        (Vec::new(), "keelet_overdue_probes 0", "False"),
    ] {
        agent.board().note_overdue(&web, late);
        let metrics = agent.metrics();
        assert!(metrics.lines().any(|line| line == gauge), "{gauge} not in {metrics}");
        let node = agent.observe_node().await;
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let found =
            conditions.iter().find(|condition| condition.type_ == "ProbePressure").map(|found| found.status.as_str());
        assert_eq!(found, Some(status), "{conditions:?}");
    }
}

/// EVT-12: what an agent put on its board is on the board of the next one, also of one that was killed a heartbeat later.
#[tokio::test(start_paused = true)]
async fn events_and_gone_pods_reach_the_board_of_the_next_agent() {
    let (bed, web) = (Bed::new(), bed::pod("web", "a"));
    let agent = bed.agent().await;
    agent.set_pods(bed::wanted(&[&web]), Extent::Complete);
    bed.runtime.called("StartContainer").await;
    agent.set_pods(WantedPods::new(), Extent::Complete);
    bed.runtime.called("RemovePodSandbox").await;
    bed::pass(2 * HEARTBEAT).await;
    let shown = |board: &Board| {
        let events: Vec<PodEvent> = board.events().iter().map(|event| (**event).clone()).collect();
        let gone: Vec<String> = board.gone_pods().iter().map(|gone| gone.published.pod.uid.clone()).collect();
        (events, gone)
    };
    let (events, gone) = shown(agent.board());
    assert!(events.iter().any(|event| event.event.reason == "Started"), "{events:?}");
    assert_eq!(gone, ["a"]);
    // Without a farewell: on a copy of its directories, as they are now.
    let killed = Bed::new();
    for name in ["ledger", "run"] {
        copy_files(&bed.root().join(name), &killed.root().join(name));
    }
    assert_eq!(shown(killed.agent().await.board()), (events.clone(), gone.clone()), "after a kill");
    // With one: what came after the last heartbeat is kept too.
    let last = EventRecord { reason: "Last".to_owned(), ..events[0].event.clone() };
    agent.board().event(&web, &last);
    agent.stop().await;
    drop(agent);
    bed::pass(HEARTBEAT).await;
    let (after, gone) = shown(bed.agent().await.board());
    assert_eq!(after.last().map(|event| event.event.reason.as_str()), Some("Last"), "after a stop");
    assert_eq!((&after[..events.len()], gone), (&events[..], vec!["a".to_owned()]), "after a stop");
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory").map(|entry| entry.expect("an entry")) {
        let to = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy_files(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).expect("copied")),
        }
    }
}
