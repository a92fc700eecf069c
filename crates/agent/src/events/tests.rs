use keelet_lifecycle::{BootId, Wall};

use super::*;

fn at(seconds: i64) -> Moment {
    Moment { boot_ms: seconds * 1000, wall: Wall::from_millis(seconds * 1000), boot_id: BootId::from_u128(1) }
}

fn unhealthy(container: &str, message: &str) -> Event {
    event(Some(container), "Unhealthy", Severity::Warning, message)
}

fn event(container: Option<&str>, reason: &'static str, severity: Severity, message: &str) -> Event {
    Event { container: container.map(str::to_owned), reason, severity, message: message.to_owned() }
}

fn newest(recorder: &Recorder) -> Vec<(&str, u32)> {
    recorder.newest().map(|record| (record.message.as_str(), record.count)).collect()
}

/// EVT-1: every failing attempt emits one, and the recorder makes it bearable.
#[test]
fn the_same_event_again_raises_the_count_and_the_time() {
    let mut recorder = Recorder::default();
    let first = recorder.record(&unhealthy("web", "Liveness probe failed: 500"), at(10)).unwrap();
    assert_eq!((first.count, first.at, first.container.as_deref()), (1, at(10), Some("web")));
    let second = recorder.record(&unhealthy("web", "Liveness probe failed: 500"), at(20)).unwrap();
    assert_eq!((second.count, second.at), (2, at(20)));
    assert_eq!(newest(&recorder), [("Liveness probe failed: 500", 2)]);
}

/// EVT-1, EVT-3, EVT-4.
#[test]
fn events_that_differ_in_anything_are_counted_apart() {
    let mut recorder = Recorder::default();
    let all = [
        event(None, "BackOff", Severity::Normal, "m"),
        event(Some("a"), "BackOff", Severity::Normal, "m"),
        event(Some("b"), "BackOff", Severity::Normal, "m"),
        event(Some("a"), "BackOff", Severity::Warning, "m"),
        event(Some("a"), "Killing", Severity::Normal, "m"),
        event(Some("a"), "BackOff", Severity::Normal, "n"),
    ];
    for event in &all {
        let record = recorder.record(event, at(0)).unwrap();
        assert_eq!((record.count, record.reason.as_str(), record.severity), (1, event.reason, event.severity));
        assert_eq!((record.container, record.message), (event.container.clone(), event.message.clone()));
    }
    assert_eq!(recorder.newest().len(), all.len());
}

#[test]
fn a_repeat_is_the_newest() {
    let mut recorder = Recorder::default();
    for (time, message) in ["a", "b", "a"].into_iter().enumerate() {
        recorder.record(&unhealthy("web", message), at(time as i64));
    }
    assert_eq!(newest(&recorder), [("b", 1), ("a", 2)]);
}

#[test]
fn the_tenth_message_of_a_reason_is_combined_with_those_that_follow() {
    let mut recorder = Recorder::default();
    for n in 1..=9 {
        let record = recorder.record(&unhealthy("web", &format!("timeout {n}")), at(n)).unwrap();
        assert_eq!((record.message, record.count), (format!("timeout {n}"), 1));
    }
    for n in 10..=12 {
        let record = recorder.record(&unhealthy("web", &format!("timeout {n}")), at(n)).unwrap();
        assert_eq!(record.message, format!("(combined from similar events): timeout {n}"));
        assert_eq!(record.count, u32::try_from(n).unwrap() - 9);
    }
    // A message known from before keeps its own count.
    let record = recorder.record(&unhealthy("web", "timeout 3"), at(20)).unwrap();
    assert_eq!((record.message.as_str(), record.count), ("timeout 3", 2));
    // And another reason is none of their business.
    let record = recorder.record(&event(Some("web"), "Killing", Severity::Normal, "x"), at(20)).unwrap();
    assert_eq!(record.message, "x");
}

#[test]
fn after_ten_quiet_minutes_messages_are_emitted_one_by_one_again() {
    let mut recorder = Recorder::default();
    for n in 0..12 {
        recorder.record(&unhealthy("web", &format!("timeout {n}")), at(0));
    }
    assert!(recorder.record(&unhealthy("web", "a"), at(600)).unwrap().message.starts_with("(combined"));
    assert_eq!(recorder.record(&unhealthy("web", "b"), at(1201)).unwrap().message, "b");
}

#[test]
fn a_flood_is_held_back_and_counted_all_the_same() {
    let mut recorder = Recorder::default();
    let failed = unhealthy("web", "Readiness probe failed");
    let passed_on = (0..100).filter(|_| recorder.record(&failed, at(0)).is_some()).count();
    assert_eq!(passed_on, 25);
    assert_eq!(newest(&recorder), [("Readiness probe failed", 100)]);
    assert_eq!(recorder.record(&failed, at(299)), None);
    assert_eq!(recorder.record(&failed, at(300)).unwrap().count, 102);
    assert_eq!(recorder.record(&failed, at(301)), None);
    // After a long time there is a burst again, and no more than that.
    let passed_on = (0..100).filter(|_| recorder.record(&failed, at(1_000_000)).is_some()).count();
    assert_eq!(passed_on, 25);
}

/// EVT-3.
#[test]
fn a_flood_of_failed_probes_does_not_hide_the_kill() {
    let mut recorder = Recorder::default();
    for _ in 0..100 {
        recorder.record(&unhealthy("web", "Liveness probe failed"), at(0));
    }
    let killing = event(Some("web"), "Killing", Severity::Normal, "failed liveness probe, will be restarted");
    assert!(recorder.record(&killing, at(0)).is_some());
}

#[test]
fn memory_is_bounded() {
    let mut recorder = Recorder::default();
    let reasons = ["Pulling", "Pulled", "Created", "Started", "Killing", "BackOff", "Unhealthy", "Failed"];
    for n in 0..10_000_i64 {
        let reason = reasons[usize::try_from(n).unwrap() % reasons.len()];
        recorder.record(&event(None, reason, Severity::Normal, &format!("{n} {}", "é".repeat(5_000))), at(n * 700));
    }
    assert_eq!(recorder.newest().len(), KEPT);
    assert!(recorder.newest().all(|record| record.message.len() <= LONGEST_MESSAGE && record.message.ends_with("...")));
    assert!(recorder.newest().next_back().unwrap().message.starts_with("9999 "), "the newest is last");
    assert_eq!(recorder.reasons.len(), reasons.len());
    assert!(recorder.reasons.iter().all(|reason| reason.messages.len() < SIMILAR));
}

#[test]
fn an_agent_that_outlived_a_clock_step_goes_on() {
    let mut recorder = Recorder::default();
    recorder.record(&unhealthy("web", "a"), at(1000));
    assert_eq!(recorder.record(&unhealthy("web", "a"), at(10)).unwrap().count, 2);
}
