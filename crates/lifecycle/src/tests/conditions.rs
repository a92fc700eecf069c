//! Conditions: what they say of given statuses, and when they change (STAT-24..31).

use std::collections::BTreeMap;

use keelet_pod::{Pod, ProbeKind};

use super::{
    restart_all::{FOUR, Halt, bring_up, up},
    world::{BEGINNING, World, manifest},
};
use crate::{
    Stage, Wall,
    operation::{Operation, Outcome},
    status::{
        ConditionType, ContainerState, ContainerStatus, Finding, LastState, Phase, PodStatus, Running, Terminated,
        Truth, Waiting, containers_ready, initialized, ready,
    },
};

const PLAIN: &str = "  containers: [{name: c1, image: x}, {name: c2, image: x}]\n";
const GATED: &str = "  readinessGates: [{conditionType: example.com/g}]\n  containers: [{name: c1, image: x}]\n";
const WITH_INIT: &str = "
  initContainers: [{name: i, image: x}, {name: s, image: x, restartPolicy: Always}]
  containers: [{name: c1, image: x}]
";

fn pod(spec: &str) -> Pod {
    keelet_pod::parse_one(&manifest(spec)).unwrap_or_else(|report| panic!("bad manifest: {report:#?}"))
}

fn status(name: &str, ready: bool) -> ContainerStatus {
    ContainerStatus {
        name: name.to_owned(),
        state: ContainerState::Waiting(Waiting::default()),
        last_state: LastState::default(),
        ready,
        started: Some(ready),
        restart_count: 0,
        image: String::new(),
        image_id: String::new(),
        container_id: None,
    }
}

fn runs(name: &str) -> ContainerStatus {
    ContainerStatus { state: ContainerState::Running(Running { started_at: Wall::default() }), ..status(name, true) }
}

fn ended(name: &str) -> ContainerStatus {
    ContainerStatus { state: ContainerState::Terminated(Terminated::default()), ..status(name, false) }
}

/// Whether it holds, its reason, its message.
type Said<'a> = (bool, Option<&'a str>, Option<&'a str>);

/// A name, the pod, the statuses, the phase, whether it was True before, what is said.
type InitRow<'a> = (&'a str, &'a Pod, Vec<ContainerStatus>, Phase, bool, Said<'a>);

fn said(finding: &Finding) -> Said<'_> {
    (finding.holds, finding.reason, finding.message.as_deref())
}

/// VEC-53, VEC-54, VEC-55, VEC-58, VEC-59, VEC-60, STAT-22, STAT-27, STAT-28, SCN-C4: ContainersReady names what is
/// missing, and Ready says the same as long as it is False.
#[test]
fn containers_ready_names_what_is_missing() {
    const NOT_READY: Option<&str> = Some("ContainersNotReady");
    let (two, sidecar) = (pod(PLAIN), pod(WITH_INIT));
    let rows: Vec<(&str, &Pod, Vec<ContainerStatus>, Phase, Said<'_>)> = vec![
        ("VEC-53", &two, vec![], Phase::Pending, (false, Some("UnknownContainerStatuses"), None)),
        (
            "VEC-54",
            &two,
            vec![runs("c2")],
            Phase::Running,
            (false, NOT_READY, Some("containers with unknown status: [c1]")),
        ),
        (
            "VEC-55",
            &two,
            vec![runs("c1"), status("c2", false)],
            Phase::Running,
            (false, NOT_READY, Some("containers with unready status: [c2]")),
        ),
        (
            "both unready",
            &two,
            vec![status("c1", false), status("c2", false)],
            Phase::Pending,
            (false, NOT_READY, Some("containers with unready status: [c1 c2]")),
        ),
        (
            "unknown comes first",
            &two,
            vec![status("c2", false)],
            Phase::Running,
            (false, NOT_READY, Some("containers with unknown status: [c1], containers with unready status: [c2]")),
        ),
        ("all ready", &two, vec![runs("c1"), runs("c2")], Phase::Running, (true, None, None)),
        ("VEC-58", &two, vec![ended("c1"), ended("c2")], Phase::Succeeded, (false, Some("PodCompleted"), None)),
        (
            "VEC-58 with an unknown one",
            &two,
            vec![ended("c1")],
            Phase::Succeeded,
            (false, NOT_READY, Some("containers with unknown status: [c2], containers with unready status: [c1]")),
        ),
        ("VEC-59", &two, vec![runs("c1"), ended("c2")], Phase::Failed, (false, Some("PodFailed"), None)),
        ("VEC-59 all ready", &two, vec![runs("c1"), runs("c2")], Phase::Failed, (false, Some("PodFailed"), None)),
        (
            "VEC-60",
            &sidecar,
            vec![ended("i"), status("s", false), runs("c1")],
            Phase::Running,
            (false, NOT_READY, Some("containers with unready status: [s]")),
        ),
        (
            "ordinary init does not count",
            &sidecar,
            vec![status("i", false), runs("s"), runs("c1")],
            Phase::Running,
            (true, None, None),
        ),
        ("nor does its absence", &sidecar, vec![runs("s"), runs("c1")], Phase::Running, (true, None, None)),
    ];
    for (name, pod, statuses, phase, expected) in rows {
        let containers = containers_ready(pod, &statuses, phase);
        assert_eq!(said(&containers), expected, "{name}");
        assert_eq!(said(&ready(pod, &containers, &BTreeMap::new())), expected, "{name}: Ready copies it");
    }
}

/// VEC-56, VEC-57, STAT-28, SCN-C4: containers that are ready do not make the pod ready before every gate agrees.
#[test]
fn ready_waits_for_every_readiness_gate() {
    let missing = "corresponding condition of pod readiness gate \"example.com/g\" does not exist";
    let not_true = "the status of pod readiness gate \"example.com/g\" is not \"True\"";
    let gated = pod(GATED);
    let containers = containers_ready(&gated, &[runs("c1")], Phase::Running);
    assert_eq!(said(&containers), (true, None, None));
    let gate = |value: bool| BTreeMap::from([("example.com/g".to_owned(), value)]);
    const REASON: Option<&str> = Some("ReadinessGatesNotReady");
    assert_eq!(said(&ready(&gated, &containers, &BTreeMap::new())), (false, REASON, Some(missing)), "VEC-56");
    assert_eq!(said(&ready(&gated, &containers, &gate(false))), (false, REASON, Some(not_true)), "VEC-57");
    assert_eq!(said(&ready(&gated, &containers, &gate(true))), (true, None, None));
    let two = pod(
        "  readinessGates: [{conditionType: a/h}, {conditionType: example.com/g}]\n  containers: [{name: c1, image: x}]\n",
    );
    let foreign = BTreeMap::from([("a/h".to_owned(), true), ("other".to_owned(), false)]);
    assert_eq!(said(&ready(&two, &containers, &foreign)), (false, REASON, Some(missing)));
    let both = format!("corresponding condition of pod readiness gate \"a/h\" does not exist, {not_true}");
    assert_eq!(said(&ready(&two, &containers, &gate(false))), (false, REASON, Some(both.as_str())));
}

/// STAT-26, SCN-C4, SCN-S20: Initialized asks ordinary init containers for success and sidecars for their start, until
/// a regular container has run.
#[test]
fn initialized_is_about_init_containers_until_a_regular_one_has_run() {
    let (with, without) = (pod(WITH_INIT), pod(PLAIN));
    const NOT_YET: Option<&str> = Some("ContainersNotInitialized");
    let fresh = |i: bool, s: bool| vec![status("i", i), status("s", s), status("c1", false)];
    let rows: Vec<InitRow<'_>> = vec![
        ("no statuses", &with, vec![], Phase::Pending, false, (false, Some("UnknownContainerStatuses"), None)),
        ("no statuses, no init", &without, vec![], Phase::Pending, false, (true, None, None)),
        (
            "nothing done",
            &with,
            fresh(false, false),
            Phase::Pending,
            false,
            (false, NOT_YET, Some("containers with incomplete status: [i s]")),
        ),
        (
            "sidecar not started",
            &with,
            fresh(true, false),
            Phase::Pending,
            false,
            (false, NOT_YET, Some("containers with incomplete status: [s]")),
        ),
        (
            "init unknown",
            &with,
            vec![status("s", false), status("c1", false)],
            Phase::Pending,
            false,
            (false, NOT_YET, Some("containers with unknown status: [i], containers with incomplete status: [s]")),
        ),
        (
            "sidecar unknown",
            &with,
            vec![status("i", true), status("c1", false)],
            Phase::Pending,
            false,
            (false, NOT_YET, Some("containers with unknown status: [s]")),
        ),
        ("all done", &with, fresh(true, true), Phase::Pending, false, (true, None, None)),
        ("it was True", &with, fresh(false, false), Phase::Pending, true, (true, None, None)),
        (
            "regular runs",
            &with,
            vec![status("i", false), status("s", false), runs("c1")],
            Phase::Running,
            false,
            (true, None, None),
        ),
        (
            "regular ended",
            &with,
            vec![status("i", false), status("s", false), ended("c1")],
            Phase::Running,
            false,
            (true, None, None),
        ),
        (
            "completed",
            &with,
            vec![ended("i"), ended("s"), ended("c1")],
            Phase::Succeeded,
            false,
            (true, Some("PodCompleted"), None),
        ),
        (
            "completed, one unknown",
            &with,
            vec![ended("s"), status("c1", false)],
            Phase::Succeeded,
            false,
            (false, NOT_YET, Some("containers with unknown status: [i], containers with incomplete status: [s]")),
        ),
        (
            "failed init",
            &with,
            vec![ended("i"), status("s", false), status("c1", false)],
            Phase::Failed,
            false,
            (false, NOT_YET, Some("containers with incomplete status: [i s]")),
        ),
    ];
    for (name, pod, statuses, phase, was_true, expected) in rows {
        assert_eq!(said(&initialized(pod, &statuses, phase, was_true)), expected, "{name}");
    }
    // A sidecar counts by its start, not by its readiness.
    let unready = ContainerStatus { ready: false, ..runs("s") };
    let statuses = [status("i", true), unready, status("c1", false)];
    assert_eq!(said(&initialized(&with, &statuses, Phase::Pending, false)), (true, None, None));
}

fn order(world: &World) -> Vec<(ConditionType, Truth)> {
    world.status().conditions.iter().map(|condition| (condition.kind.clone(), condition.status)).collect()
}

/// STAT-24, STAT-25, STAT-33, SCN-C3: the conditions of a fresh pod become True one after the other, and
/// PodReadyToStartContainers is said as soon as there is a sandbox, before any image is pulled.
#[test]
fn a_fresh_pod_becomes_ready_condition_by_condition() {
    use ConditionType::{ContainersReady, Initialized, PodReadyToStartContainers, PodScheduled, Ready};
    let mut world = World::with_spec(
        "\n  initContainers: [{name: i, image: x}]\n  containers: [{name: c, image: x, readinessProbe: {tcpSocket: {port: 1}}}]\n",
    );
    world.pod.generation = Some(7);
    world.answer("c", ProbeKind::Readiness, Outcome::Failure);
    world.hold(|operation| matches!(operation, Operation::CreateSandbox { .. } | Operation::EnsureImage { .. }));
    world.settle();
    let first = world.status().conditions.clone();
    let (no, yes) = (Truth::False, Truth::True);
    let expected = |truths: [Truth; 5]| -> Vec<_> {
        [PodReadyToStartContainers, Initialized, Ready, ContainersReady, PodScheduled].into_iter().zip(truths).collect()
    };
    assert_eq!(order(&world), expected([no, no, no, no, yes]));
    let sandbox = world.condition(PodReadyToStartContainers);
    assert_eq!(sandbox.reason.as_deref(), Some("PodSandboxNotReady"));
    assert_eq!(sandbox.message.as_deref(), Some("no sandbox has been created"));
    assert!(first.iter().all(|condition| condition.observed_generation == Some(7)));
    world.seconds(2);
    let (id, _) = world.in_flight().remove(0);
    world.finish(id);
    world.settle();
    assert!(matches!(world.in_flight().as_slice(), [(_, Operation::EnsureImage { .. })]));
    assert_eq!(order(&world), expected([yes, no, no, no, yes]));
    let sandbox = world.condition(PodReadyToStartContainers);
    assert_eq!((&sandbox.reason, &sandbox.message), (&None, &None));
    world.seconds(1).release();
    assert_eq!(order(&world), expected([yes, no, no, no, yes]));
    world.seconds(1).exit("i", 0);
    assert_eq!(order(&world), expected([yes, yes, no, no, yes]));
    world.seconds(1).answer("c", ProbeKind::Readiness, Outcome::Success).seconds(10);
    assert_eq!(order(&world), expected([yes, yes, yes, yes, yes]));
    let since = |kind| world.condition(kind).last_transition_time.unwrap().as_millis() - BEGINNING;
    assert_eq!(since(PodScheduled), 0);
    assert_eq!(since(PodReadyToStartContainers), 2000);
    assert_eq!(since(Initialized), 4000);
    assert_eq!(since(ContainersReady), since(Ready));
    assert_eq!(since(Ready), 5_000, "an eager readiness probe, a second after the first at 4 s");
}

/// STAT-33, SCN-C3: without init containers a pod is initialized before it has a sandbox.
#[test]
fn a_pod_without_init_containers_is_initialized_at_once() {
    let mut world = World::with_spec("  containers: [{name: c, image: x}]\n");
    world.hold(|operation| matches!(operation, Operation::PrepareVolumes));
    world.settle();
    assert!(world.holds(ConditionType::Initialized));
    assert!(!world.holds(ConditionType::PodReadyToStartContainers));
    assert_eq!(world.waiting_reason("c"), Some("ContainerCreating"));
}

/// SCN-C5, STAT-24, STAT-11: a transition time changes with the status of its condition only, in whole seconds, and
/// the start time never.
#[test]
fn transition_times_move_with_the_status_only() {
    let mut world = World::with_spec(
        "  containers: [{name: c, image: x, readinessProbe: {tcpSocket: {port: 1}, periodSeconds: 1, failureThreshold: 1}}]\n",
    );
    world.pass(std::time::Duration::from_millis(1700));
    assert!(world.holds(ConditionType::Ready));
    let since = |world: &World, kind| world.condition(kind).last_transition_time.unwrap().as_millis() - BEGINNING;
    assert_eq!(since(&world, ConditionType::Ready), 0);
    assert_eq!(world.status().start_time, Some(Wall::from_millis(BEGINNING)));
    world.answer("c", ProbeKind::Readiness, Outcome::Failure).pass(std::time::Duration::from_millis(2500));
    assert!(!world.holds(ConditionType::Ready));
    assert_eq!(since(&world, ConditionType::Ready), 2000);
    assert_eq!(since(&world, ConditionType::ContainersReady), 2000);
    assert_eq!(since(&world, ConditionType::Initialized), 0);
    world.seconds(30);
    assert_eq!(since(&world, ConditionType::Ready), 2000);
    world.restart_agent().seconds(5);
    assert_eq!(since(&world, ConditionType::Ready), 2000);
    assert_eq!(world.status().start_time, Some(Wall::from_millis(BEGINNING)));
    world.answer("c", ProbeKind::Readiness, Outcome::Success).seconds(1);
    assert!(since(&world, ConditionType::Ready) > 30_000);
    for condition in &world.status().conditions {
        assert_eq!(condition.last_transition_time.unwrap().as_millis() % 1000, 0);
    }
}

/// SCN-C5: a status that has not changed keeps its version, whatever else was planned; a changed one gets the next.
#[test]
fn an_unchanged_status_keeps_its_version() {
    let mut world = World::with_spec(
        "  containers: [{name: c, image: x, readinessProbe: {tcpSocket: {port: 1}, periodSeconds: 1}}]\n",
    );
    world.seconds(3);
    let plan = world.plan.clone().unwrap();
    let probes = world.mark();
    world.seconds(20).restart_agent().seconds(5);
    assert!(world.probes_since(probes, "c", ProbeKind::Readiness) >= 20);
    assert_eq!(world.plan.as_ref().unwrap().version, plan.version);
    assert_eq!(world.status(), &plan.status);
    world.exit_only("c", 1).plan_once();
    assert_eq!(world.plan.as_ref().unwrap().version, plan.version + 1);
    assert_eq!(world.statuses.len() as u64, plan.version + 1, "every status raised it by one");
}

/// STAT-29, STAT-28, SCN-C2: a condition of another component makes the pod ready, and unready again, without a probe.
#[test]
fn a_readiness_gate_of_others_decides_ready() {
    let mut world = World::with_spec(GATED);
    world.settle();
    assert!(world.holds(ConditionType::ContainersReady));
    assert_eq!(world.condition(ConditionType::Ready).reason.as_deref(), Some("ReadinessGatesNotReady"));
    world.observed.foreign_conditions.insert("example.com/g".to_owned(), true);
    world.settle();
    assert!(world.holds(ConditionType::Ready));
    world.observed.foreign_conditions.insert("example.com/g".to_owned(), false);
    world.settle();
    assert!(!world.holds(ConditionType::Ready));
    let message = world.condition(ConditionType::Ready).message.clone().unwrap();
    world.observed.foreign_conditions.clear();
    world.settle();
    assert_ne!(world.condition(ConditionType::Ready).message.as_ref(), Some(&message), "the message is reconciled too");
}

/// STAT-22, STAT-27, STAT-28: with the terminal phase Ready and ContainersReady turn False for good, with its reason.
#[test]
fn a_terminal_phase_takes_readiness_with_it() {
    for (exit_code, phase, reason) in [(0, Phase::Succeeded, "PodCompleted"), (3, Phase::Failed, "PodFailed")] {
        let mut world = World::with_spec("\n  restartPolicy: Never\n  containers: [{name: c, image: x}]\n");
        world.settle();
        assert!(world.holds(ConditionType::Ready));
        world.seconds(5).exit("c", exit_code);
        assert_eq!((world.status().phase, world.stage()), (phase, Stage::Ended));
        for kind in [ConditionType::Ready, ConditionType::ContainersReady] {
            let condition = world.condition(kind);
            assert_eq!((condition.status, condition.reason.as_deref()), (Truth::False, Some(reason)));
            assert_eq!(condition.last_transition_time, Some(Wall::from_millis(BEGINNING + 5000)));
        }
        assert!(world.holds(ConditionType::Initialized));
        assert!(!world.holds(ConditionType::PodReadyToStartContainers), "its sandbox is stopped");
    }
}

/// STAT-30, STAT-31: AllContainersRestarting is there for pods with such a rule only, and nothing else is said of
/// conditions that others own.
#[test]
fn a_pod_shows_only_conditions_that_concern_it() {
    let mut world = World::with_spec(GATED);
    world.observed.foreign_conditions.insert("example.com/g".to_owned(), true);
    world.observed.foreign_conditions.insert("DisruptionTarget".to_owned(), true);
    world.settle();
    let kinds: Vec<_> = order(&world).into_iter().map(|(kind, _)| kind).collect();
    use ConditionType::{
        AllContainersRestarting, ContainersReady, Initialized, PodReadyToStartContainers, PodScheduled, Ready,
    };
    let usual = vec![PodReadyToStartContainers, Initialized, Ready, ContainersReady, PodScheduled];
    assert_eq!(kinds, usual);
    let mut with_rule = World::with_spec(
        "\n  containers: [{name: c, image: x, restartPolicy: Never, restartPolicyRules: \
         [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]}]\n",
    );
    with_rule.settle();
    assert_eq!(with_rule.condition(AllContainersRestarting).status, Truth::False);
    assert_eq!(with_rule.condition(AllContainersRestarting).reason, None);
}

/// STAT-26, RALL-21: once True, Initialized stays so while the pod object exists, also while no container shows that it
/// was, and over a lost sandbox.
#[test]
fn initialized_stays_true() {
    for (deleted, sandbox_ready) in [(false, true), (true, true), (true, false), (false, false)] {
        let mut world = World::with_spec(
            "
  initContainers: [{name: s1, image: x, restartPolicy: Always}, {name: s2, image: x, restartPolicy: Always}]
  containers: [{name: c, image: x}]
",
        );
        world.settle();
        assert!(world.holds(ConditionType::Initialized));
        world.hold(|_| true).lose("c").exit_only("s1", 1);
        world.observed.sandboxes[0].ready = sandbox_ready;
        if deleted {
            world.observed.deletion = Some(crate::observed::Deletion { grace: std::time::Duration::from_secs(30) });
        }
        world.settle();
        assert_eq!(world.waiting_reason("c"), Some("PodInitializing"));
        assert_eq!(world.container("s1").started, Some(false));
        assert!(world.holds(ConditionType::Initialized), "deleted: {deleted}, sandbox ready: {sandbox_ready}");
    }
}

/// STAT-26, RALL-39: Initialized stays True over a sandbox that is lost at any step of a restart of all containers, over
/// the agent restart and the reboot that may come with it; so says every status.
#[test]
fn initialized_stays_true_over_a_sandbox_lost_in_a_restart_of_all() {
    for halt in Halt::ALL {
        for (reboot, agent_restarts) in [(false, false), (false, true), (true, true)] {
            let label = format!("{halt:?}, reboot: {reboot}, agent restarts: {agent_restarts}");
            let mut world = up(FOUR);
            assert!(world.holds(ConditionType::Initialized), "{label}");
            let first = world.statuses.len();
            halt.reach(&mut world);
            if reboot {
                world.reboot();
            } else {
                world.observed.sandboxes[0].ready = false;
            }
            if agent_restarts {
                world.restart_agent_only();
            }
            halt.go_on(&mut world);
            bring_up(&mut world);
            world.seconds(30);
            bring_up(&mut world);
            assert_eq!(world.observed.sandboxes[0].attempt, 1, "{label}: it has a new sandbox");
            let is_true = |status: &PodStatus| status.is_true(&ConditionType::Initialized);
            let fell = world.statuses[first..].iter().find(|status| !is_true(status));
            assert!(fell.is_none(), "{label}: Initialized fell back: {:#?}", fell.map(|status| &status.conditions));
        }
    }
}
