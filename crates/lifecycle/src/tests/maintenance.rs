//! Keeping containers as the spec wants them, and what may be said of them (PROC-3, SIDE-6, API-20, STAT-15, STAT-20).

use std::time::Duration;

use super::world::{World, manifest};
use crate::{
    Stage,
    observed::{Before, Instance, InstanceState, Known},
    operation::{KillReason, OpState, Operation},
    restart::RestartAllRule,
    status::{ContainerState, Phase, PodStatus, Violation, check_transition},
};

const ONE: &str = "  containers: [{name: c, image: \"x:1\"}]\n";

fn stops(world: &World, mark: usize) -> Vec<(&str, KillReason)> {
    let as_stop = |operation| match operation {
        &Operation::Stop { ref container, reason, .. } => Some((container.as_str(), reason)),
        _ => None,
    };
    world.since(mark).into_iter().filter_map(as_stop).collect()
}

/// PROC-3, SIDE-6, SIDE-15, SCN-S13, EVT-3: a container whose image changed is stopped within the pod's grace period
/// and started again at once, whatever its policy; an ordinary init container that is done is not.
#[test]
fn a_changed_definition_replaces_the_container() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut world = World::with_spec(&format!(
            "  restartPolicy: {policy}\n  initContainers: [{{name: i, image: x}}, {{name: s, image: x, restartPolicy: Always}}]\n{ONE}"
        ));
        world.settle().exit("i", 0).seconds(5);
        let mark = world.mark();
        for container in world.pod.init_containers.iter_mut().chain(&mut world.pod.containers) {
            container.hash += 1;
            container.image = format!("y-{}:1", container.name);
        }
        world.settle();
        let changed = KillReason::DefinitionChanged;
        assert_eq!(stops(&world, mark), [("s", changed), ("c", changed)]);
        assert!(world.saw_event("Killing", "Container c definition changed, will be restarted"));
        assert!(world.saw_event("Killing", "Init container s definition changed, will be restarted"));
        assert_eq!((world.running(), world.stage()), (["c", "s"].into(), Stage::Live));
        assert_eq!((world.launches("i").len(), world.launches("s"), world.launches("c")), (1, vec![0, 5], vec![0, 5]));
        assert_eq!((world.container("c").restart_count, world.container("s").restart_count), (1, 1));
        assert_eq!(world.container("c").image, "y-c:1");
        assert_eq!(world.status().phase, Phase::Running);
        let mark = world.mark();
        world.seconds(60);
        assert!(world.since(mark).is_empty(), "once");
        for instance in &mut world.observed.containers {
            instance.hash = None;
        }
        world.settle();
        assert!(world.since(mark).is_empty(), "a container without a label is not touched");
    }
}

/// PROC-3: of two running instances of one name the older one is stopped, and the newer one is not touched.
#[test]
fn a_superseded_instance_is_stopped() {
    let mut world = World::with_spec(ONE);
    world.settle();
    let old = world.observed.containers[0].clone();
    let new = Instance { id: "test://new".to_owned(), attempt: 1, ..old.clone() };
    world.observed.containers.insert(0, new);
    let mark = world.mark();
    world.settle();
    assert!(
        matches!(world.since(mark).as_slice(), [Operation::Stop { id, timeout, reason: KillReason::Superseded, .. }]
            if *id == old.id && *timeout == Duration::from_secs(30))
    );
    assert_eq!(world.container("c").container_id.as_deref(), Some("test://new"));
    assert_eq!(world.container("c").restart_count, 1);
    world.seconds(60);
    assert_eq!(world.since(mark).len(), 1);
}

/// PROC-3, SIDE-7: a container that an interrupted launch left behind is started, not made again; while another one's
/// post-start hook runs, it waits.
#[test]
fn a_created_container_is_started() {
    let mut world = World::with_spec(
        "  containers: [{name: a, image: x, lifecycle: {postStart: {exec: {command: [hi]}}}}, {name: b, image: x}]\n",
    );
    world.hold(|operation| matches!(operation, Operation::PostStart { .. })).settle();
    let left_behind = Instance {
        id: "test://left".to_owned(),
        name: "b".to_owned(),
        hash: None,
        state: InstanceState::Created,
        ..world.observed.containers[0].clone()
    };
    world.observed.containers.push(left_behind);
    let mark = world.mark();
    world.settle();
    assert!(world.since(mark).is_empty());
    assert_eq!(world.waiting_reason("b"), Some(""));
    world.release();
    let (container, id) = ("b".to_owned(), "test://left".to_owned());
    assert_eq!(world.since(mark), [&Operation::StartCreated { container, id }]);
    assert_eq!((world.id("b").as_str(), world.container("b").restart_count), ("test://left", 0));
    assert!(world.saw_event("Started", "Started container b"));
}

/// STAT-15, RULE-8, PROC-3: an ephemeral container is started once, beside whatever else goes on, and never again; it
/// counts for nothing.
#[test]
fn an_ephemeral_container_is_started_once() {
    let mut world = World::with_spec(&format!(
        "  initContainers: [{{name: i, image: x}}]\n{ONE}  ephemeralContainers: [{{name: dbg, image: x}}]\n"
    ));
    world.settle();
    assert_eq!(world.running(), ["dbg", "i"].into(), "it does not wait for init containers");
    let status = world.container("dbg");
    assert_eq!((status.started, status.ready), (None, false));
    world.exit("i", 0);
    assert!(world.holds(crate::status::ConditionType::Ready));
    world.exit("dbg", 1).seconds(700);
    assert_eq!(world.launches("dbg"), [0]);
    assert!(matches!(&world.container("dbg").state, ContainerState::Terminated(ended) if ended.exit_code == 1));
    assert_eq!((world.status().phase, world.container("dbg").restart_count), (Phase::Running, 0));
    world.reboot().settle();
    world.exit("i", 0);
    assert_eq!(world.running(), ["c"].into());
    assert_eq!(world.launches("dbg"), [0], "not in a new sandbox either");
}

/// STAT-15, SIDE-9: an ephemeral container does not keep a pod alive that has nothing else to do; one that could not be
/// started is tried again; one that is lost is not.
#[test]
fn an_ephemeral_container_does_not_keep_the_pod_alive() {
    let spec = &format!("  restartPolicy: Never\n{ONE}  ephemeralContainers: [{{name: dbg, image: \"x:1\"}}]\n");
    let mut world = World::with_spec(spec);
    world.fail("Launch { container: \"dbg\"", "RunContainerError").seconds(4);
    assert_eq!(world.launches("dbg"), [0, 1, 3]);
    world.failing.clear();
    world.seconds(3);
    assert_eq!(world.running(), ["c", "dbg"].into());
    world.exit("c", 0);
    assert_eq!((world.stage(), world.status().phase), (Stage::Ended, Phase::Succeeded));
    let mut world = World::with_spec(spec);
    world.settle().lose("dbg").seconds(30);
    assert_eq!(world.launches("dbg"), [0]);
    assert_eq!(world.container("dbg").restart_count, 0);
}

fn ended(name: &str, exit_code: i32) -> PodStatus {
    let text = format!(
        r#"{{"containerStatuses": [{{"name": "{name}", "state": {{"terminated": {{"exitCode": {exit_code}}}}}}}]}}"#
    );
    serde_json::from_str(&text).unwrap()
}

fn waits(name: &str) -> PodStatus {
    serde_json::from_str(&format!(r#"{{"containerStatuses": [{{"name": "{name}", "state": {{"waiting": {{}}}}}}]}}"#))
        .unwrap()
}

/// API-20, STAT-12, SCN-R9, CON-18e: an ended container may come back if its exit code says so, or if any container of
/// the pod has an honoured rule to restart all; an ephemeral one never.
#[test]
fn the_api_server_lets_an_ended_container_back_only_for_a_reason() {
    use RestartAllRule::{Honoured, Ignored};
    let pod = |policy: &str, containers: &str, more: &str| {
        let spec = format!("\n  restartPolicy: {policy}\n{more}  containers: [{containers}]\n");
        keelet_pod::parse_one(&manifest(&spec)).unwrap_or_else(|report| panic!("bad manifest: {report:#?}"))
    };
    let c = "{name: c, image: x}";
    let own = |policy: &str| format!("{{name: c, image: x, restartPolicy: {policy}}}");
    let rule = |name: &str, action: &str| {
        format!(
            "{{name: {name}, image: x, restartPolicy: Never, restartPolicyRules: [{{action: {action}, exitCodes: {{operator: In, values: [42]}}}}]}}"
        )
    };
    let elsewhere = format!("{c}, {}", rule("d", "RestartAllContainers"));
    let init = "  initContainers: [{name: i, image: x}]\n";
    let sidecar = "  initContainers: [{name: i, image: x, restartPolicy: Always}]\n";
    let debugger = "  ephemeralContainers: [{name: e, image: x}]\n";
    for (name, pod, container, code, feature_gate, allowed) in [
        ("Always 0", pod("Always", c, ""), "c", 0, Honoured, true),
        ("OnFailure 0", pod("OnFailure", c, ""), "c", 0, Honoured, false),
        ("OnFailure 1", pod("OnFailure", c, ""), "c", 1, Honoured, true),
        ("Never 1", pod("Never", c, ""), "c", 1, Honoured, false),
        ("own Never under Always", pod("Always", &own("Never"), ""), "c", 1, Honoured, false),
        ("own Always under Never", pod("Never", &own("Always"), ""), "c", 0, Honoured, true),
        ("rule matches", pod("Never", &rule("c", "Restart"), ""), "c", 42, Honoured, true),
        ("rule does not match", pod("Never", &rule("c", "Restart"), ""), "c", 1, Honoured, false),
        ("restart-all rule, other code", pod("Never", &rule("c", "RestartAllContainers"), ""), "c", 1, Honoured, true),
        ("restart-all rule elsewhere", pod("Never", &elsewhere, ""), "c", 0, Honoured, true),
        ("restart-all rule ignored", pod("Never", &elsewhere, ""), "c", 0, Ignored, false),
        ("init", pod("Never", c, init), "i", 0, Honoured, false),
        ("init under Always", pod("Always", c, init), "i", 0, Honoured, true),
        ("sidecar under Never", pod("Never", c, sidecar), "i", 0, Honoured, true),
        ("ephemeral", pod("Always", c, debugger), "e", 1, Honoured, false),
        ("ephemeral, restart-all rule", pod("Always", &elsewhere, debugger), "e", 1, Honoured, false),
        ("not in the spec", pod("Never", c, ""), "other", 1, Honoured, true),
    ] {
        let violation = Violation { container: container.to_owned(), exit_code: code };
        let expected = if allowed { Ok(()) } else { Err(violation) };
        assert_eq!(
            check_transition(&pod, &ended(container, code), &waits(container), feature_gate),
            expected,
            "{name}"
        );
        assert_eq!(
            check_transition(&pod, &ended(container, code), &ended(container, 9), feature_gate),
            Ok(()),
            "{name}: ended again"
        );
        assert_eq!(
            check_transition(&pod, &waits(container), &ended(container, code), feature_gate),
            Ok(()),
            "{name}: ends"
        );
        assert_eq!(
            check_transition(&pod, &ended(container, code), &PodStatus::default(), feature_gate),
            Ok(()),
            "{name}: gone"
        );
    }
    let violation = Violation { container: "c".to_owned(), exit_code: 1 };
    assert!(violation.to_string().contains("may not be transitioned to non-terminated state"));
}

/// API-20, STAT-12: in a cluster an init container that runs again after a reboot is shown ended until it has ended
/// again, because the API server would reject anything else; the phase is right meanwhile. On its own a node
/// shows it as it is.
#[test]
fn an_init_container_that_runs_again_stays_ended_for_the_api_server() {
    for (policy, in_cluster) in [("Never", true), ("OnFailure", true), ("OnFailure", false), ("Always", true)] {
        let mut world = World::with_spec(&format!(
            "  restartPolicy: {policy}\n  initContainers: [{{name: i, image: x}}]\n  containers: [{{name: c, image: x, restartPolicy: Always}}]\n"
        ));
        if in_cluster {
            world.observed.agent.before = Before::Cluster(Known::NoCopy);
        }
        world.settle().exit("i", 0).seconds(5).reboot().settle();
        assert_eq!(world.running(), ["i"].into());
        let hidden = in_cluster && policy != "Always";
        let status = world.container("i").clone();
        assert_eq!(matches!(status.state, ContainerState::Terminated(_)), hidden, "{policy}");
        assert_eq!(status.restart_count, u32::from(!hidden));
        assert_eq!(world.status().phase, Phase::Pending);
        world.exit("i", 0);
        assert!(matches!(world.container("i").state, ContainerState::Terminated(_)));
        assert_eq!(world.container("i").restart_count, 1);
        assert_eq!((world.status().phase, world.running()), (Phase::Running, ["c"].into()));
    }
}

/// STAT-20, SCN-C5: a terminal phase that the API server shows at an agent start is final, with its reason, and what
/// still runs is stopped.
#[test]
fn a_terminal_phase_written_by_others_is_final() {
    let mut world = World::with_spec(ONE);
    world.observed.agent.before = Before::Cluster(Known::NoCopy);
    world.settle();
    let mut stored = world.status().clone();
    stored.phase = Phase::Failed;
    stored.reason = Some("Evicted".to_owned());
    stored.message = Some("the node was low on memory".to_owned());
    world.observed.agent.before = Before::Cluster(Known::Copy(Box::new(stored.clone())));
    let mark = world.mark();
    world.hold(|operation| matches!(operation, Operation::Stop { .. })).seconds(1).restart_agent();
    assert_eq!((world.status().phase, world.stage()), (Phase::Failed, Stage::Ending));
    world.release();
    assert_eq!((world.status().phase, world.stage()), (Phase::Failed, Stage::Ended));
    assert_eq!(world.status().reason.as_deref(), Some("Evicted"));
    assert_eq!(world.status().message, stored.message);
    assert_eq!(stops(&world, mark), [("c", KillReason::PodEnding)]);
    let mut world = World::with_spec(ONE);
    stored.container_statuses.clear();
    world.observed.agent.before = Before::Cluster(Known::Copy(Box::new(stored)));
    world.seconds(5);
    assert!(world.started.is_empty(), "a pod that failed before we came is not started");
    assert_eq!((world.status().phase, world.status().reason.as_deref()), (Phase::Failed, Some("Evicted")));
}

/// STAT-20, STAT-21: a terminal phase is not said before nothing runs any more, and never taken back.
#[test]
fn a_terminal_phase_is_said_late_and_once() {
    let mut world = World::with_spec(&format!(
        "  restartPolicy: Never\n  initContainers: [{{name: s, image: x, restartPolicy: Always}}]\n{ONE}"
    ));
    world.hold(|operation| matches!(operation, Operation::Stop { .. } | Operation::StopSandbox { .. })).settle();
    world.exit("c", 0);
    assert_eq!((world.status().phase, world.stage()), (Phase::Running, Stage::Ending));
    world.exit("s", 1);
    assert_eq!((world.status().phase, world.stage()), (Phase::Running, Stage::Ending), "the sandbox is up");
    world.release();
    assert_eq!((world.status().phase, world.stage()), (Phase::Succeeded, Stage::Ended));
    for instance in &mut world.observed.containers {
        if let InstanceState::Exited { exit_code, .. } = &mut instance.state {
            *exit_code = 1;
        }
    }
    world.restart_agent().seconds(60);
    assert_eq!((world.status().phase, world.stage()), (Phase::Succeeded, Stage::Ended));
    let phases: Vec<Phase> = world.statuses.iter().map(|status| status.phase).collect();
    assert_eq!(phases.iter().filter(|phase| phase.is_terminal()).count(), 1, "{phases:?}");
    assert!(world.observed.operations.iter().all(|report| report.state != OpState::InFlight));
}
