//! The phase as a function of container statuses (STAT-16..19).

use keelet_pod::Pod;

use super::world::manifest;
use crate::{
    restart::RestartAllRule,
    status::{ContainerState, ContainerStatus, Context, LastState, Phase, Running, Terminated, Waiting, phase},
};

const LIVE: Context = Context { initialized: true, last_word: false, restart_all: RestartAllRule::Honoured };
const STARTING: Context = Context { initialized: false, ..LIVE };
const FINAL: Context = Context { last_word: true, ..LIVE };

fn pod(policy: &str, init: &str, regular: &str) -> Pod {
    let init = if init.is_empty() { String::new() } else { format!("  initContainers: [{init}]\n") };
    let spec = format!("  restartPolicy: {policy}\n{init}  containers: [{regular}]\n");
    keelet_pod::parse_one(&manifest(&spec)).unwrap_or_else(|report| panic!("bad manifest: {report:#?}"))
}

const AB: &str = "{name: a, image: x}, {name: b, image: x}";
const INIT: &str = "{name: i, image: x}";
const SIDECAR: &str = "{name: s, image: x, restartPolicy: Always}";

fn status(name: &str, state: ContainerState) -> ContainerStatus {
    ContainerStatus {
        name: name.to_owned(),
        state,
        last_state: LastState::default(),
        ready: false,
        started: Some(false),
        restart_count: 0,
        image: String::new(),
        image_id: String::new(),
        container_id: None,
    }
}

fn runs(name: &str) -> ContainerStatus {
    ContainerStatus { started: Some(true), ..starts(name) }
}

fn starts(name: &str) -> ContainerStatus {
    status(name, ContainerState::Running(Running { started_at: crate::Wall::default() }))
}

fn ended(name: &str, exit_code: i32) -> ContainerStatus {
    status(name, ContainerState::Terminated(Terminated { exit_code, ..Terminated::default() }))
}

fn waits(name: &str) -> ContainerStatus {
    status(name, ContainerState::Waiting(Waiting::default()))
}

fn waits_after(name: &str, exit_code: i32) -> ContainerStatus {
    let terminated = Terminated { exit_code, ..Terminated::default() };
    ContainerStatus { last_state: Some(terminated).into(), ..waits(name) }
}

type Row<'a> = (&'a str, Pod, Vec<ContainerStatus>, Context, Phase);

fn check(rows: Vec<Row<'_>>) {
    for (name, pod, statuses, context, expected) in rows {
        assert_eq!(phase(&pod, &statuses, context), expected, "{name}: {context:?} {statuses:#?}");
    }
}

/// VEC-35, VEC-36, VEC-37, VEC-38, SCN-C1, STAT-16: whatever the policy, a pod is Pending while a container has never
/// run or is unknown, and Running once all do.
#[test]
fn a_pod_is_pending_until_every_container_has_been_started() {
    for policy in ["Always", "OnFailure", "Never"] {
        let ab = || pod(policy, "", AB);
        let mut empty = ab();
        empty.containers.clear();
        check(vec![("no regular container at all", empty, vec![], LIVE, Phase::Pending)]);
        check(vec![
            ("VEC-35", ab(), vec![], LIVE, Phase::Pending),
            ("VEC-35 last word", ab(), vec![], FINAL, Phase::Pending),
            ("VEC-36", ab(), vec![runs("a")], LIVE, Phase::Pending),
            ("VEC-36 other way round", ab(), vec![runs("b")], LIVE, Phase::Pending),
            ("VEC-36 ended and unknown", ab(), vec![ended("a", 0)], LIVE, Phase::Pending),
            ("VEC-36 failed and unknown", ab(), vec![ended("a", 1)], FINAL, Phase::Pending),
            ("VEC-37", ab(), vec![runs("a"), waits("b")], LIVE, Phase::Pending),
            ("VEC-37 both wait", ab(), vec![waits("a"), waits("b")], LIVE, Phase::Pending),
            ("VEC-37 ended and waiting", ab(), vec![ended("a", 0), waits("b")], LIVE, Phase::Pending),
            ("VEC-38", ab(), vec![runs("a"), runs("b")], LIVE, Phase::Running),
            ("VEC-38 not started up", ab(), vec![starts("a"), starts("b")], LIVE, Phase::Running),
        ]);
    }
}

/// VEC-39, VEC-40, VEC-43, SCN-C1: under Always a pod is Running as long as it is not taken down; in the last word its
/// exits count.
#[test]
fn under_always_only_the_last_word_is_terminal() {
    let ab = || pod("Always", "", AB);
    check(vec![
        ("VEC-39 0,0", ab(), vec![ended("a", 0), ended("b", 0)], LIVE, Phase::Running),
        ("VEC-39 0,1", ab(), vec![ended("a", 0), ended("b", 1)], LIVE, Phase::Running),
        ("VEC-40 0,0", ab(), vec![ended("a", 0), ended("b", 0)], FINAL, Phase::Succeeded),
        ("VEC-40 0,1", ab(), vec![ended("a", 0), ended("b", 1)], FINAL, Phase::Failed),
        ("VEC-40 1,0", ab(), vec![ended("a", 1), ended("b", 0)], FINAL, Phase::Failed),
        ("last word, still running", ab(), vec![ended("a", 0), runs("b")], FINAL, Phase::Running),
        ("last word, after a success", ab(), vec![ended("a", 0), waits_after("b", 0)], FINAL, Phase::Failed),
        ("VEC-43", ab(), vec![waits_after("a", 1), runs("b")], LIVE, Phase::Running),
        ("VEC-43 both", ab(), vec![waits_after("a", 1), waits_after("b", 0)], LIVE, Phase::Running),
        ("mixed", ab(), vec![ended("a", 0), runs("b")], LIVE, Phase::Running),
    ]);
}

/// VEC-41, SCN-C1: under OnFailure a failure is still to be repeated, a success is not.
#[test]
fn under_on_failure_a_failure_is_not_the_end() {
    let ab = || pod("OnFailure", "", AB);
    check(vec![
        ("VEC-41 0,0", ab(), vec![ended("a", 0), ended("b", 0)], LIVE, Phase::Succeeded),
        ("VEC-41 1,1", ab(), vec![ended("a", 1), ended("b", 1)], LIVE, Phase::Running),
        ("0,1", ab(), vec![ended("a", 0), ended("b", 1)], LIVE, Phase::Running),
        ("0,1 last word", ab(), vec![ended("a", 0), ended("b", 1)], FINAL, Phase::Failed),
        ("0,0 last word", ab(), vec![ended("a", 0), ended("b", 0)], FINAL, Phase::Succeeded),
        ("0 and backoff", ab(), vec![ended("a", 0), waits_after("b", 1)], LIVE, Phase::Running),
        ("0 and running", ab(), vec![ended("a", 0), runs("b")], LIVE, Phase::Running),
    ]);
}

/// VEC-42, STAT-19, SCN-C1: under Never every exit counts, but not before all have ended.
#[test]
fn under_never_the_pod_is_judged_when_all_have_stopped() {
    let ab = || pod("Never", "", AB);
    check(vec![
        ("VEC-42 0,0", ab(), vec![ended("a", 0), ended("b", 0)], LIVE, Phase::Succeeded),
        ("VEC-42 1,0", ab(), vec![ended("a", 1), ended("b", 0)], LIVE, Phase::Failed),
        ("VEC-42 running,1", ab(), vec![runs("a"), ended("b", 1)], LIVE, Phase::Running),
        ("1,1", ab(), vec![ended("a", 1), ended("b", 1)], LIVE, Phase::Failed),
        ("0,0 last word", ab(), vec![ended("a", 0), ended("b", 0)], FINAL, Phase::Succeeded),
        ("0,1 last word", ab(), vec![ended("a", 0), ended("b", 1)], FINAL, Phase::Failed),
        ("waiting after an end", ab(), vec![ended("a", 0), waits_after("b", 0)], LIVE, Phase::Failed),
    ]);
}

/// VEC-44, VEC-45, VEC-52, STAT-16: a failed init container fails the pod only where nothing may repeat it.
#[test]
fn an_init_container_fails_the_pod_only_if_it_may_not_be_repeated() {
    let with = |policy: &str, init: &str| pod(policy, init, AB);
    let own_policy = "{name: i, image: x, restartPolicy: OnFailure}";
    let never = "{name: i, image: x, restartPolicy: Never}";
    let rows = |pod: fn(&str) -> Pod, policy: &'static str, first: ContainerStatus| {
        (pod(policy), vec![first, waits("a"), waits("b")])
    };
    let usual: fn(&str) -> Pod = |policy| pod(policy, INIT, AB);
    let mut table = Vec::new();
    for (name, policy, first, expected) in [
        ("VEC-44 running", "Never", runs("i"), Phase::Pending),
        ("VEC-44 exit 1", "Never", ended("i", 1), Phase::Failed),
        ("VEC-44 waiting after exit 1", "Never", waits_after("i", 1), Phase::Failed),
        ("VEC-44 waiting after exit 0", "Never", waits_after("i", 0), Phase::Pending),
        ("never run", "Never", waits("i"), Phase::Pending),
        ("done", "Never", ended("i", 0), Phase::Pending),
        ("VEC-45", "Always", ended("i", 1), Phase::Pending),
        ("VEC-45 backoff", "Always", waits_after("i", 1), Phase::Pending),
        ("OnFailure", "OnFailure", ended("i", 1), Phase::Pending),
    ] {
        let (pod, statuses) = rows(usual, policy, first);
        table.push((name, pod, statuses, STARTING, expected));
    }
    check(table);
    let later = |first| vec![first, runs("a"), runs("b")];
    let second = || with("Never", "{name: i, image: x}, {name: j, image: x}");
    check(vec![
        ("VEC-52", with("Never", own_policy), later(ended("i", 1)), STARTING, Phase::Pending),
        ("own Never under Always", with("Always", never), later(ended("i", 1)), STARTING, Phase::Failed),
        ("no status", with("Always", INIT), vec![runs("a"), runs("b")], LIVE, Phase::Pending),
        ("done, all run", with("Always", INIT), later(ended("i", 0)), LIVE, Phase::Running),
        ("runs again, all run", with("Always", INIT), later(runs("i")), LIVE, Phase::Pending),
        ("second failed", second(), vec![ended("i", 0), ended("j", 2)], STARTING, Phase::Failed),
        ("second runs", second(), vec![ended("i", 0), runs("j")], STARTING, Phase::Pending),
    ]);
}

/// VEC-46, VEC-47, VEC-48, VEC-49, VEC-50, STAT-17, STAT-18, SCN-S20: a sidecar holds a pod back only before it is
/// initialized, keeps it Running while it runs itself, and its exit code never counts.
#[test]
fn a_sidecar_counts_while_it_runs_and_never_by_its_exit() {
    let with = |policy: &str| pod(policy, SIDECAR, AB);
    let all = |s, a, b| vec![s, a, b];
    check(vec![
        ("VEC-46", with("Always"), vec![starts("s")], STARTING, Phase::Pending),
        ("VEC-46 regular wait", with("Never"), all(starts("s"), waits("a"), waits("b")), STARTING, Phase::Pending),
        ("VEC-46 never run", with("Always"), all(waits("s"), waits("a"), waits("b")), STARTING, Phase::Pending),
        ("never run, initialized", with("Always"), all(waits("s"), runs("a"), runs("b")), LIVE, Phase::Pending),
        ("no status", with("Always"), vec![runs("a"), runs("b")], LIVE, Phase::Pending),
        ("started, regular wait", with("Always"), all(runs("s"), waits("a"), waits("b")), STARTING, Phase::Pending),
        ("VEC-47 exited", with("Always"), all(ended("s", 1), runs("a"), runs("b")), LIVE, Phase::Running),
        ("VEC-47 backoff", with("Always"), all(waits_after("s", 1), runs("a"), runs("b")), LIVE, Phase::Running),
        ("VEC-47 not initialized", with("Always"), all(ended("s", 1), runs("a"), runs("b")), STARTING, Phase::Running),
        ("starts again", with("Always"), all(starts("s"), runs("a"), runs("b")), LIVE, Phase::Running),
        ("VEC-48 runs", with("Never"), all(runs("s"), ended("a", 0), ended("b", 0)), LIVE, Phase::Running),
        ("VEC-48 starts", with("Never"), all(starts("s"), ended("a", 0), ended("b", 0)), LIVE, Phase::Running),
        ("VEC-48 stopped", with("Never"), all(ended("s", 143), ended("a", 0), ended("b", 0)), LIVE, Phase::Succeeded),
        ("VEC-49", with("Never"), all(ended("s", 1), ended("a", 0), ended("b", 0)), LIVE, Phase::Succeeded),
        (
            "VEC-49 over grace",
            with("Never"),
            all(ended("s", 137), ended("a", 0), ended("b", 0)),
            FINAL,
            Phase::Succeeded,
        ),
        ("regular over grace", with("Never"), all(ended("s", 0), ended("a", 137), ended("b", 0)), FINAL, Phase::Failed),
        (
            "sidecar ok, all failed",
            with("Never"),
            all(ended("s", 0), ended("a", 1), ended("b", 1)),
            LIVE,
            Phase::Failed,
        ),
        (
            "OnFailure, sidecar failed",
            with("OnFailure"),
            all(ended("s", 1), ended("a", 0), ended("b", 0)),
            LIVE,
            Phase::Succeeded,
        ),
        ("VEC-50", with("Always"), all(starts("s"), runs("a"), runs("b")), STARTING, Phase::Pending),
        ("VEC-50 started", with("Always"), all(runs("s"), runs("a"), runs("b")), STARTING, Phase::Running),
    ]);
}

/// VEC-51, STAT-19, SCN-R10: policies of single containers decide which of them can still change the outcome.
#[test]
fn one_container_that_may_come_back_keeps_the_pod_running() {
    let with = |policy: &str, a: &str, b: &str| {
        pod(
            policy,
            "",
            &format!("{{name: a, image: x, restartPolicy: {a}}}, {{name: b, image: x, restartPolicy: {b}}}"),
        )
    };
    let both = |a, b| vec![ended("a", a), ended("b", b)];
    check(vec![
        ("VEC-51", with("Always", "Never", "Always"), both(1, 1), LIVE, Phase::Running),
        ("VEC-51 under Never", with("Never", "Never", "Always"), both(1, 1), LIVE, Phase::Running),
        ("both Never under Always", with("Always", "Never", "Never"), both(1, 0), LIVE, Phase::Failed),
        ("both Never, both well", with("Always", "Never", "Never"), both(0, 0), LIVE, Phase::Succeeded),
        ("OnFailure and Never, 1,1", with("Never", "OnFailure", "Never"), both(1, 1), LIVE, Phase::Running),
        ("OnFailure and Never, 0,1", with("Never", "OnFailure", "Never"), both(0, 1), LIVE, Phase::Failed),
        (
            "Never failed, other runs",
            with("Always", "Never", "Always"),
            vec![ended("a", 1), runs("b")],
            LIVE,
            Phase::Running,
        ),
    ]);
}

/// RALL-19, STAT-16: a victim of a restart of all containers is restarted whatever its policy, after a plain
/// 137 it is not; the action counts only while its feature gate is on.
#[test]
fn a_victim_of_a_restart_of_all_containers_is_not_a_failure() {
    let victim = |name: &str, state: fn(&str, i32) -> ContainerStatus| {
        let mut status = state(name, 137);
        for terminated in [&mut status.last_state.terminated].into_iter().flatten() {
            terminated.reason = "RestartingAllContainers".to_owned();
        }
        if let ContainerState::Terminated(terminated) = &mut status.state {
            terminated.reason = "RestartingAllContainers".to_owned();
        }
        status
    };
    let trigger = "{name: a, image: x, restartPolicy: Never, restartPolicyRules: \
                   [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]}, {name: b, image: x}";
    let never = || pod("Never", "", trigger);
    let ignored = Context { restart_all: RestartAllRule::Ignored, ..LIVE };
    check(vec![
        ("victims", never(), vec![victim("a", ended), victim("b", ended)], LIVE, Phase::Running),
        ("victims wait", never(), vec![victim("a", waits_after), victim("b", waits_after)], LIVE, Phase::Running),
        ("plain", never(), vec![ended("a", 137), ended("b", 137)], LIVE, Phase::Failed),
        ("trigger", never(), vec![ended("a", 42), ended("b", 0)], LIVE, Phase::Running),
        ("trigger ignored", never(), vec![ended("a", 42), ended("b", 0)], ignored, Phase::Failed),
    ]);
}
