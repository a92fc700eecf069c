//! Backoff: exact times, resets, the node's limits (BACK-*, VEC-61..VEC-65, SCN-B*).

use std::time::Duration;

use keelet_pod::{Features, ProbeKind, Switch};

use super::world::{BEGINNING, World};
use crate::{
    Because, Moment, Severity, Subject, Wall,
    operation::{Operation, Outcome},
    restart::{Backoff, BackoffConfigError, BackoffLimits, BackoffState, backoff_state},
    status::{ContainerState, Phase},
};

const ONE: &str = "  containers: [{name: a, image: app}]\n";

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn crashing(limits: BackoffLimits) -> World {
    let mut world = World::with_spec(ONE);
    world.rules.crash_backoff = limits;
    world.exits_at_once.insert("a".to_owned(), 1);
    world
}

fn features(max: Switch, reduced: Switch) -> Features {
    Features { crash_loop_max: max, reduced_backoff: reduced, ..Features::default() }
}

/// VEC-61, VEC-62, VEC-63, BACK-1, BACK-8, SCN-B1, SCN-B3: start times of a container that fails at once.
#[test]
fn start_times_of_a_container_that_fails_at_once() {
    let cap_1 = BackoffLimits::DEFAULT.with_cap(secs(1));
    let cap_30 = BackoffLimits::DEFAULT.with_cap(secs(30));
    let reduced = BackoffLimits::for_node(None, &features(Switch::On, Switch::On)).unwrap();
    let rows: [(&str, BackoffLimits, &[u64]); 4] = [
        ("VEC-61", BackoffLimits::DEFAULT, &[0, 0, 10, 30, 70, 150, 310, 610, 910, 1210]),
        ("VEC-62", cap_30, &[0, 0, 10, 30, 60, 90, 120]),
        ("VEC-63", reduced, &[0, 0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811, 1111]),
        ("BACK-8", cap_1, &[0, 0, 1, 2, 3, 4]),
    ];
    for (vector, limits, expected) in rows {
        let mut world = crashing(limits);
        world.seconds(*expected.last().unwrap());
        assert_eq!(world.launches("a"), expected, "{vector}");
        let count = u32::try_from(expected.len() - 1).unwrap();
        assert_eq!(world.container("a").restart_count, count, "{vector}: RULE-10, every restart is counted");
    }
    for (limits, restarts) in [(BackoffLimits::DEFAULT, 5), (cap_30, 12)] {
        let mut world = crashing(limits);
        world.seconds(300);
        let launches = world.launches("a").len() - 1;
        assert_eq!(launches, restarts, "SCN-B1: restarts in five minutes");
    }
}

/// BACK-1, BACK-2, BACK-6, SCN-B4: a start waits for the rest of the delay since the exit, to the millisecond.
#[test]
fn a_start_waits_until_the_delay_since_the_exit_is_over() {
    let at =
        |ms: i64| Moment { boot_ms: ms, wall: Wall::from_millis(BEGINNING + ms), boot_id: crate::BootId::from_u128(1) };
    let entry = |delay: u64, advanced: i64| Backoff {
        delay: secs(delay),
        advanced: at(advanced),
        key: "image".to_owned(),
        served: "first".to_owned(),
    };
    let ask = |entry: Option<&Backoff>, event: &str, finished: i64, now: i64| {
        backoff_state(entry, BackoffLimits::DEFAULT, "image", event, at(finished), at(now))
    };
    let opened = |delay: u64, now: i64, served: &str| {
        BackoffState::Elapsed(Backoff {
            delay: secs(delay),
            advanced: at(now),
            key: "image".to_owned(),
            served: served.to_owned(),
        })
    };
    assert_eq!(ask(None, "first", 5_000, 5_000), opened(10, 5_000, "first"), "the first restart is immediate");
    let ten = entry(10, 5_000);
    let closed = |until: i64, delay: u64| BackoffState::Waiting { until: at(until), delay: secs(delay) };
    assert_eq!(ask(Some(&ten), "second", 6_000, 6_000), closed(16_000, 10));
    assert_eq!(ask(Some(&ten), "second", 6_000, 15_999), closed(16_000, 10));
    assert_eq!(ask(Some(&ten), "second", 6_000, 16_000), opened(20, 16_000, "second"));
    assert_eq!(
        ask(Some(&ten), "first", 5_000, 6_000),
        BackoffState::Elapsed(ten.clone()),
        "it has waited its turn already"
    );
    assert_eq!(ask(Some(&entry(160, 5_000)), "second", 6_000, 166_000), opened(300, 166_000, "second"));
    assert_eq!(ask(Some(&entry(300, 5_000)), "second", 6_000, 306_000), opened(300, 306_000, "second"));
    // BACK-3: quiet for 600 s it goes on, for longer it starts anew; the exit counts, not the present.
    assert_eq!(ask(Some(&ten), "second", 605_000, 605_000), closed(615_000, 10));
    assert_eq!(ask(Some(&ten), "second", 605_001, 605_001), opened(10, 605_001, "second"));
    assert_eq!(ask(Some(&entry(300, 5_000)), "second", 600_000, 899_999), closed(900_000, 300));
    // BACK-4: another image or other resources start anew.
    let other = backoff_state(Some(&ten), BackoffLimits::DEFAULT, "other", "second", at(6_000), at(6_000));
    assert!(matches!(other, BackoffState::Elapsed(backoff) if backoff.delay == secs(10) && backoff.key == "other"));
    // A delay that was remembered under a longer cap is served once, then the new cap holds.
    let short = BackoffLimits::DEFAULT.with_cap(secs(30));
    let after = backoff_state(Some(&entry(160, 5_000)), short, "image", "second", at(6_000), at(166_000));
    assert_eq!(after, opened(30, 166_000, "second"));
}

/// BACK-3, VEC-64: a container that ran for more than 600 s after its restart starts from 0 and 10 s again.
#[test]
fn ten_quiet_minutes_reset_the_backoff() {
    let mut world = World::with_spec(ONE);
    world.settle().exit("a", 1);
    world.exit("a", 1).seconds(10);
    assert_eq!(world.launches("a"), [0, 0, 10]);
    world.seconds(601).exit("a", 1);
    assert_eq!(world.launches("a"), [0, 0, 10, 611], "VEC-64: at once");
    world.exit("a", 1).seconds(9);
    assert_eq!(world.launches("a").len(), 4);
    world.seconds(1);
    assert_eq!(world.launches("a"), [0, 0, 10, 611, 621], "VEC-64: then 10 s");
    world.seconds(600).exit("a", 1);
    assert_eq!(world.launches("a").len(), 5, "600 s are not more than 600 s");
    world.seconds(20);
    assert_eq!(world.launches("a"), [0, 0, 10, 611, 621, 1241]);
}

/// BACK-2: a successful exit under Always is delayed as a failure is.
#[test]
fn a_successful_exit_is_delayed_too() {
    let mut world = World::with_spec(ONE);
    world.exits_at_once.insert("a".to_owned(), 0);
    world.seconds(30);
    assert_eq!(world.launches("a"), [0, 0, 10, 30]);
}

/// BACK-4, VEC-65, SCN-B2: another image, or other resources, start at once and from the first delay.
#[test]
fn a_changed_image_or_changed_resources_start_at_once() {
    let digests: [fn(&mut World); 2] = [
        |world| {
            world.pod.containers[0].image = "better".to_owned();
            world.pod.containers[0].hash += 1;
        },
        |world| world.pod.containers[0].resources_digest += 1,
    ];
    for change in digests {
        let mut world = crashing(BackoffLimits::DEFAULT);
        world.seconds(31);
        assert_eq!(world.launches("a"), [0, 0, 10, 30]);
        change(&mut world);
        world.settle();
        assert_eq!(world.launches("a"), [0, 0, 10, 30, 31]);
        world.seconds(10);
        assert_eq!(world.launches("a"), [0, 0, 10, 30, 31, 41], "from the first delay");
    }
}

/// BACK-2, BACK-6: the status says what is waited for and until when, and the plan wakes exactly then.
#[test]
fn a_waiting_container_names_its_next_attempt() {
    let mut world = crashing(BackoffLimits::DEFAULT);
    world.seconds(12);
    let ContainerState::Waiting(waiting) = &world.container("a").state else { panic!("{:?}", world.container("a")) };
    assert_eq!(waiting.reason, "CrashLoopBackOff");
    let until = Moment { wall: Wall::from_millis(BEGINNING + 30_000), ..world.now };
    assert_eq!(waiting.message, format!("back-off 20 s restarting failed container a, next attempt at {}", until.wall));
    let plan = world.plan.clone().unwrap();
    assert_eq!(plan.wake_at.map(|at| at.wall), Some(until.wall));
    let because = plan.why.into_iter().find(|why| why.subject == Subject::State("a".to_owned())).unwrap().because;
    assert!(matches!(because, Because::Backoff { until: at, delay } if at.wall == until.wall && delay == secs(20)));
    assert_eq!(world.container("a").last_state.terminated.as_ref().unwrap().exit_code, 1);
    assert_eq!(world.status().phase, Phase::Running);
    let backoffs = world.events.iter().filter(|(reason, _)| reason == "BackOff").count();
    assert_eq!(backoffs, 2, "one event for each exit that has to wait: {:?}", world.events);
    assert!(world.saw_event("BackOff", "20 s restarting failed container a"));
}

/// BACK-2: the event of a wait is a warning.
#[test]
fn a_wait_is_announced_with_a_warning() {
    let mut world = World::with_spec(ONE);
    world.settle().exit("a", 1);
    world.exit_only("a", 1);
    let plan = world.plan_once();
    let event = plan.events.iter().find(|event| event.reason == "BackOff").unwrap();
    assert_eq!((event.severity, event.container.as_deref()), (Severity::Warning, Some("a")));
    assert!(event.message.contains("10 s"), "{}", event.message);
}

/// BACK-5, DEF-12: an agent restart shortens no backoff, and the delay goes on growing after it.
#[test]
fn the_backoff_survives_agent_restarts() {
    let mut world = crashing(BackoffLimits::DEFAULT);
    for _ in 0..40 {
        world.seconds(8).restart_agent();
        assert!(world.waiting_reason("a") == Some("CrashLoopBackOff"), "DEF-21: the reason is kept too");
    }
    assert_eq!(world.launches("a"), [0, 0, 10, 30, 70, 150, 310]);
}

/// BACK-5, DEF-12: a reboot counts as time passed, nothing more.
#[test]
fn the_backoff_survives_a_reboot() {
    let mut world = crashing(BackoffLimits::DEFAULT);
    world.seconds(80);
    assert_eq!(world.launches("a"), [0, 0, 10, 30, 70]);
    // Booting takes 20 s of the 80 s that are to be waited from second 70 on.
    world.reboot().settle();
    assert_eq!(world.launches("a").len(), 5);
    assert_eq!(world.waiting_reason("a"), Some("CrashLoopBackOff"));
    world.seconds(49);
    assert_eq!(world.launches("a").len(), 5);
    world.seconds(1);
    assert_eq!(world.launches("a"), [0, 0, 10, 30, 70, 150]);
    world.seconds(159);
    assert_eq!(world.launches("a").len(), 6);
    world.seconds(1);
    assert_eq!(world.launches("a"), [0, 0, 10, 30, 70, 150, 310]);
}

/// BACK-5: an agent that dies after it decided to start does not wait a second time, nor skip a delay.
#[test]
fn a_decided_start_is_not_delayed_again() {
    let mut world = World::with_spec(ONE);
    world.settle().exit("a", 1);
    world.exit("a", 1);
    world.hold(|operation| matches!(operation, Operation::Launch { .. }));
    world.seconds(10);
    assert_eq!(world.launches("a"), [0, 0, 10]);
    world.restart_agent_only().hold(|_| false).settle();
    assert_eq!(world.launches("a"), [0, 0, 10, 10], "the lost start is made good at once");
    assert_eq!(world.container("a").restart_count, 2);
    world.exit("a", 1).seconds(19);
    assert_eq!(world.launches("a").len(), 4);
    world.seconds(1);
    assert_eq!(world.launches("a").last(), Some(&30), "the delay was doubled once");
}

/// DEF-20, BACK-2: after a kill by a probe the delay counts from this exit, not from that of a former instance.
#[test]
fn the_delay_after_a_probe_kill_counts_from_that_exit() {
    let mut world = World::with_spec(
        "  containers:\n  - name: a\n    image: app\n    livenessProbe: {tcpSocket: {port: 80}, periodSeconds: 5, \
         failureThreshold: 3}\n",
    );
    world.settle().answer("a", ProbeKind::Liveness, Outcome::Failure);
    // Each instance is killed 15 s after its start; the delays are 0, 10, 20, 40.
    world.seconds(200);
    assert_eq!(world.launches("a"), [0, 15, 40, 75, 130]);
}

/// SCN-B5, BACK-7: what a node may configure.
#[test]
fn the_nodes_cap_is_bounded() {
    use Switch::{Off, On};
    let ms = Duration::from_millis;
    let fine = |initial: Duration, cap: Duration| Ok(BackoffLimits { initial, cap });
    let out_of_range = |period: Duration| Err(BackoffConfigError::OutOfRange { period });
    let rows = [
        (None, On, Off, fine(secs(10), secs(300))),
        (None, Off, Off, fine(secs(10), secs(300))),
        (None, On, On, fine(secs(1), secs(300))),
        (None, Off, On, fine(secs(1), secs(60))),
        (Some(ms(1_000)), On, Off, fine(secs(1), secs(1))),
        (Some(ms(999)), On, Off, out_of_range(ms(999))),
        (Some(Duration::from_micros(999_999)), On, Off, out_of_range(Duration::from_micros(999_999))),
        (Some(ms(0)), On, Off, out_of_range(ms(0))),
        (Some(ms(300_000)), On, Off, fine(secs(10), secs(300))),
        (Some(ms(300_001)), On, Off, out_of_range(ms(300_001))),
        (Some(ms(300_900)), On, Off, out_of_range(ms(300_900))),
        (Some(ms(9_999)), On, Off, fine(ms(9_999), ms(9_999))),
        (Some(secs(10)), On, Off, fine(secs(10), secs(10))),
        (Some(secs(60)), On, Off, fine(secs(10), secs(60))),
        (Some(ms(1_500)), On, On, fine(secs(1), ms(1_500))),
        (Some(secs(60)), Off, Off, Err(BackoffConfigError::GateOff)),
        (Some(secs(60)), Off, On, Err(BackoffConfigError::GateOff)),
        (Some(ms(999)), Off, Off, Err(BackoffConfigError::GateOff)),
    ];
    for (period, max, reduced, expected) in rows {
        let limits = BackoffLimits::for_node(period, &features(max, reduced));
        assert_eq!(limits, expected, "{period:?} {max:?} {reduced:?}");
    }
    assert_eq!(BackoffLimits::default(), BackoffLimits { initial: secs(10), cap: secs(300) });
    let (wrong, off) = (BackoffConfigError::OutOfRange { period: ms(999) }, BackoffConfigError::GateOff);
    assert!(wrong.to_string().contains("999ms"), "{wrong}");
    assert!(off.to_string().contains("KubeletCrashLoopBackOffMax"), "{off}");
}

fn pulls(world: &World) -> Vec<u64> {
    let beginning = Wall::from_millis(BEGINNING);
    let is_pull = |operation: &Operation| matches!(operation, Operation::EnsureImage { .. });
    let pulls = world.started.iter().filter(|(_, operation)| is_pull(operation));
    pulls.map(|(at, _)| at.wall.since(beginning).as_secs()).collect()
}

/// BACK-9, BACK-12: failing pulls back off from the failure; the first pull waits for nothing.
#[test]
fn failing_pulls_back_off() {
    let mut world = World::with_spec(ONE);
    world.fail("EnsureImage", "ErrImagePull");
    world.settle();
    assert_eq!(world.waiting_reason("a"), Some("ErrImagePull"));
    world.pass(Duration::from_millis(999));
    assert_eq!(world.waiting_reason("a"), Some("ErrImagePull"));
    world.pass(Duration::from_millis(1));
    assert_eq!(world.waiting_reason("a"), Some("ImagePullBackOff"));
    let ContainerState::Waiting(waiting) = world.container("a").state.clone() else { panic!("it waits") };
    assert!(waiting.message.contains("EnsureImage does not work"), "with the error: {}", waiting.message);
    world.seconds(909);
    assert_eq!(pulls(&world), [0, 10, 30, 70, 150, 310, 610, 910]);
    assert_eq!(world.events.iter().filter(|(reason, _)| reason == "Failed").count(), 8);
    let backoffs = world.events.iter().filter(|(reason, _)| reason == "BackOff").count();
    assert_eq!(backoffs, 7, "the failure at second 910 is not yet called a backoff");
    world.failing.clear();
    world.seconds(300);
    assert_eq!(world.running(), ["a"].into());
    assert_eq!(pulls(&world).last(), Some(&1210));
    assert_eq!(world.container("a").restart_count, 0);
}

/// BACK-9: a pull backoff belongs to an image, and ten quiet minutes forget it.
#[test]
fn a_pull_backoff_belongs_to_an_image_and_is_forgotten() {
    let mut world = World::with_spec(ONE);
    world.fail("EnsureImage", "ErrImagePull");
    world.seconds(31);
    assert_eq!(pulls(&world), [0, 10, 30]);
    world.pod.containers[0].image = "better".to_owned();
    world.settle();
    assert_eq!(pulls(&world), [0, 10, 30, 31], "another image is tried at once");
    world.seconds(10);
    assert_eq!(pulls(&world), [0, 10, 30, 31, 41], "from the first delay");
    // No attempt for more than ten minutes: the next failure starts from the first delay.
    world.hold(|operation| matches!(operation, Operation::EnsureImage { .. }));
    world.seconds(700).release();
    let begun = pulls(&world).len();
    world.seconds(9);
    assert_eq!(pulls(&world).len(), begun);
    world.seconds(1);
    assert_eq!(pulls(&world).len(), begun + 1);
}

/// BACK-9: 600 s between two failures are not yet ten quiet minutes.
#[test]
fn a_pull_backoff_is_forgotten_after_more_than_600_seconds() {
    for (quiet_ms, delay) in [(600_000, 20), (600_001, 10)] {
        let mut world = World::with_spec(ONE);
        world.fail("EnsureImage", "ErrImagePull");
        world.settle().hold(|operation| matches!(operation, Operation::EnsureImage { .. }));
        world.pass(Duration::from_millis(quiet_ms)).release();
        let entry = world.evidence.volatile.launches["a"].pull_backoff.clone().unwrap();
        assert_eq!((entry.delay, entry.advanced), (secs(delay), world.now), "{quiet_ms} ms after the first failure");
    }
}

/// BACK-10, BACK-12: an image that is here is not asked for again, unless the policy says so; pull and crash backoff
/// know nothing of each other.
#[test]
fn the_pull_policy_decides_whether_a_restart_asks_for_the_image() {
    for (policy, expected) in [("IfNotPresent", vec![0]), ("Always", vec![0, 0, 10, 30])] {
        let mut world =
            World::with_spec(&format!("  containers: [{{name: a, image: app, imagePullPolicy: {policy}}}]\n"));
        world.exits_at_once.insert("a".to_owned(), 1);
        world.seconds(30);
        assert_eq!(world.launches("a"), [0, 0, 10, 30], "{policy}");
        assert_eq!(pulls(&world), expected, "{policy}");
    }
    let mut world = World::with_spec("  containers: [{name: a, image: app, imagePullPolicy: Never}]\n");
    world.fail("EnsureImage", "ErrImageNeverPull");
    world.seconds(5);
    assert_eq!(world.waiting_reason("a"), Some("ErrImageNeverPull"), "it is not a backoff of a pull");
    world.failing.clear();
    world.seconds(1);
    assert_eq!(world.launches("a"), [6]);
}

/// BACK-11: an operation that fails is tried again after 1, 2, 4, 8, then every 10 s.
#[test]
fn a_failing_operation_is_tried_again_soon() {
    let mut world = World::with_spec(ONE);
    world.fail("CreateSandbox", "RunPodSandboxError");
    world.seconds(45);
    let beginning = Wall::from_millis(BEGINNING);
    let tries: Vec<u64> = world
        .started
        .iter()
        .filter(|(_, operation)| matches!(operation, Operation::CreateSandbox { .. }))
        .map(|(at, _)| at.wall.since(beginning).as_secs())
        .collect();
    assert_eq!(tries, [0, 1, 3, 7, 15, 25, 35, 45]);
    assert!(world.saw_event("FailedCreatePodSandBox", "CreateSandbox does not work"));
    world.failing.clear();
    world.seconds(10);
    assert_eq!(world.running(), ["a"].into());
}
