//! The exits to which rules apply: those of the program and those that a probe's kill caused, and no others (RULE-3,
//! PROBE-28, RALL-1).

use keelet_pod::ProbeKind;

use super::{restart_all::counts, world::World};
use crate::{
    Evidence, Stage, Wall,
    evidence::ExitCause,
    observed::{Before, InstanceState, Known},
    operation::{KillReason, Operation, Outcome},
    plan::{Because, Subject},
    status::{ContainerState, Phase},
};

const POLICIES: [&str; 3] = ["Never", "OnFailure", "Always"];

/// Two containers. `main` has this policy, a rule for every code but 0, and these fields.
fn pod(policy: &str, action: &str, fields: &str) -> World {
    let rule = format!("restartPolicyRules: [{{action: {action}, exitCodes: {{operator: NotIn, values: [0]}}}}]");
    let mut world = World::with_spec(&format!(
        "
  restartPolicy: {policy}
  containers:
  - {{name: main, image: 'app:1', restartPolicy: {policy}, {rule}{fields}}}
  - {{name: other, image: 'app:1', restartPolicy: Always}}
"
    ));
    world.settle().seconds(30);
    world
}

fn triggered(world: &World) -> bool {
    !world.evidence.durable.restart_all.stage.triggers().is_empty() || world.saw_event("RestartAllContainers", "")
}

fn cause(world: &World) -> ExitCause {
    let record = world.evidence.durable.container("main").expect("main has a record");
    record.last_exit.as_ref().expect("main has ended").cause
}

/// The index of the rule that the chain behind the restart count names.
fn rule_of_restart(world: &World) -> Option<usize> {
    let why = &world.plan.as_ref().expect("a plan").why;
    why.iter().find_map(|why| match (&why.subject, &why.because) {
        (Subject::RestartCount(name), Because::Exited { rule, .. }) if name == "main" => *rule,
        _ => None,
    })
}

fn end_as(world: &mut World, code: i32, reason: &str) {
    let now = world.now.wall;
    let instance = world.running_instance("main");
    let InstanceState::Running { started_at } = instance.state else { panic!("main does not run") };
    instance.state = InstanceState::Exited {
        started_at,
        finished_at: now,
        exit_code: code,
        reason: reason.to_owned(),
        message: String::new(),
    };
}

/// RULE-3, RALL-1: a container that the agent stops because its sandbox was lost, its definition changed, its post-start
/// hook failed or the runtime lost track of it has not exited by itself: no rule restarts all containers for it, and
/// `why` names no rule.
#[test]
fn no_rule_looks_at_the_agents_own_kills() {
    type Step = fn(&mut World);
    let rows: [(&str, &str, Step, KillReason); 4] = [
        ("the sandbox is lost", "", |world| world.observed.sandboxes[0].ready = false, KillReason::SandboxGone),
        (
            "the definition changed",
            "",
            |world| {
                let changed = world.pod.containers[0].hash ^ 1;
                world.pod.containers[0].hash = changed;
            },
            KillReason::DefinitionChanged,
        ),
        (
            "the post-start hook failed",
            ", lifecycle: {postStart: {exec: {command: [fails]}}}",
            |world| {
                world.fail("PostStart {", "exit status 3");
                world.exit("main", 0);
            },
            KillReason::PostStartFailed,
        ),
        (
            "the runtime lost track of it",
            "",
            |world| {
                world.running_instance("main").state = InstanceState::Unknown;
            },
            KillReason::StateUnknown,
        ),
    ];
    for policy in POLICIES {
        for (what, fields, happens, reason) in rows {
            if what.contains("post-start") && policy != "Always" {
                // The exit before it, which starts the container again, is the policy's.
                continue;
            }
            let label = format!("{policy}: {what}");
            let mut world = pod(policy, "RestartAllContainers", fields);
            let killed = std::rc::Rc::new(std::cell::Cell::new(None));
            let seen = std::rc::Rc::clone(&killed);
            world.inspector = Some(Box::new(move |world, _| {
                let record = world.evidence.durable.container("main");
                if let Some(ExitCause::Killed(reason)) =
                    record.and_then(|record| record.last_exit.as_ref()).map(|exit| exit.cause)
                {
                    seen.set(Some(reason));
                }
            }));
            happens(&mut world);
            world.settle().seconds(2);
            if reason != KillReason::StateUnknown {
                assert_eq!(killed.get(), Some(reason), "{label}");
            }
            assert!(!triggered(&world), "{label}: the agent's own kill restarts all containers: {:?}", world.events);
            assert_eq!(rule_of_restart(&world), None, "{label}: a rule is named that did not decide");
            world.restart_agent().seconds(2);
            assert!(!triggered(&world), "{label}: after an agent restart");
        }
    }
}

/// RULE-3, RALL-28: a pod that ends stops its containers, and no exit of these asks for anything.
#[test]
fn no_rule_looks_at_the_kills_of_a_pod_that_ends() {
    for policy in POLICIES {
        let mut world = pod(policy, "RestartAllContainers", "");
        world.delete(30).seconds(60);
        assert!(!triggered(&world), "{policy}");
        assert_eq!(world.stage(), Stage::Gone, "{policy}");
    }
}

/// RULE-3, PROBE-28, RALL-1: rules see the exit code of a probe's kill, under every policy.
#[test]
fn rules_look_at_the_kill_of_a_probe_under_every_policy() {
    let probe = ", livenessProbe: {exec: {command: [up]}, periodSeconds: 1, failureThreshold: 1}";
    for policy in POLICIES {
        let mut world = pod(policy, "RestartAllContainers", probe);
        let other = world.id("other");
        world.answer("main", ProbeKind::Liveness, Outcome::Failure).seconds(1);
        world.answer("main", ProbeKind::Liveness, Outcome::Success).seconds(2);
        assert_eq!(counts(&world, ["main", "other"]), [1, 1], "{policy}: 143 matches the rule for all");
        assert_ne!(world.id("other"), other, "{policy}");
        assert!(triggered(&world), "{policy}");
        // A rule of the other action names itself as the reason, and restarts under Never too.
        let mut world = pod(policy, "Restart", probe);
        let other = world.id("other");
        world.answer("main", ProbeKind::Liveness, Outcome::Failure).seconds(1);
        world.answer("main", ProbeKind::Liveness, Outcome::Success).seconds(2);
        assert_eq!((counts(&world, ["main", "other"]), world.id("other")), ([1, 0], other), "{policy}");
        assert_eq!(rule_of_restart(&world), Some(0), "{policy}");
    }
}

/// RULE-3, RULE-11: exits with unknown status, by the reasons of the runtimes, are losses: no rule applies to the
/// placeholder exit code, also over an agent restart and from the API server's copy.
#[test]
fn an_end_that_the_runtime_does_not_know_is_a_loss() {
    let rows = [
        ("containerd, task lost", 255, "Unknown"),
        ("containerd, start failed", 128, "StartError"),
        ("dockerd, start failed", 127, "ContainerCannotRun"),
        ("CRI-O, no exit code", -1, "Error"),
        ("keelet, exit status unknown", 137, "ContainerStatusUnknown"),
    ];
    for (what, code, reason) in rows {
        for policy in POLICIES {
            let label = format!("{what}, {policy}");
            let mut world = pod(policy, "RestartAllContainers", "");
            end_as(&mut world, code, reason);
            world.plan_once();
            assert_eq!(cause(&world), ExitCause::Lost, "{label}");
            world.settle();
            world.restart_agent().seconds(2);
            assert_eq!(cause(&world), ExitCause::Lost, "{label}: it stays one");
            assert!(!triggered(&world), "{label}: {:?}", world.events);
            assert_eq!(world.running().contains("main"), policy != "Never", "{label}: the policy decides");
            assert_eq!(rule_of_restart(&world), None, "{label}");
            // From the API server's copy.
            let mut world = pod(policy, "RestartAllContainers", "");
            end_as(&mut world, code, reason);
            world.hold(|operation| matches!(operation, Operation::Launch { .. })).plan_once();
            let mut copy = world.status().clone();
            let ended = world.evidence.durable.container("main").and_then(|record| record.last_exit.clone());
            let shown = copy.container_statuses.iter_mut().find(|status| status.name == "main").expect("a status");
            shown.state = ContainerState::Terminated(ended.expect("main has ended").to_status());
            world.observed.agent.before = Before::Cluster(Known::Copy(Box::new(copy)));
            world.evidence = Evidence::default();
            world.lose("main").restart_agent();
            assert!(!triggered(&world), "{label}: inherited");
        }
    }
    for (code, reason) in [(255, "Error"), (128, "Error"), (137, "OOMKilled"), (42, "Error")] {
        let mut world = pod("Never", "RestartAllContainers", "");
        end_as(&mut world, code, reason);
        world.settle();
        assert!(triggered(&world), "{code} {reason} is an exit of the program");
    }
}

/// RULE-3: a container that never ran has not exited, whatever its code says.
#[test]
fn a_container_that_never_ran_has_not_exited() {
    let mut world = pod("Never", "RestartAllContainers", "");
    end_as(&mut world, 1, "Error");
    let dead = world.observed.containers.iter_mut().find(|instance| instance.name == "main").expect("an instance");
    if let InstanceState::Exited { started_at, .. } = &mut dead.state {
        *started_at = Wall::from_millis(0);
    }
    world.settle();
    assert_eq!((cause(&world), triggered(&world)), (ExitCause::Lost, false));
}

/// RULE-11, RULE-3, KEEP-13: after a reboot runtimes say 255 of what went down with the node, containerd with the reason
/// `Unknown`, CRI-O with `Error` and an end in the new boot. A pod with a `Restart` rule is rebuilt, and the rule for all
/// does not fire.
#[test]
fn what_went_down_with_the_node_is_lost() {
    for (runtime, reason) in [("containerd", "Unknown"), ("CRI-O", "Error")] {
        for (action, policy, comes_back) in [
            ("Restart", "Never", true),
            ("RestartAllContainers", "Never", false),
            ("RestartAllContainers", "OnFailure", true),
            ("RestartAllContainers", "Always", true),
        ] {
            let label = format!("{runtime}, {action}, {policy}");
            let rule =
                format!("restartPolicyRules: [{{action: {action}, exitCodes: {{operator: NotIn, values: [0, 1]}}}}]");
            let mut world = World::with_spec(&format!(
                "  restartPolicy: Never\n  containers:\n  - {{name: main, image: 'app:1', restartPolicy: {policy}, {rule}}}\n"
            ));
            world.settle().seconds(30).reboot();
            let boot = world.now;
            let dead = world.observed.containers.iter_mut().find(|c| c.name == "main").expect("an instance");
            if let InstanceState::Exited { reason: said, finished_at, .. } = &mut dead.state {
                *said = reason.to_owned();
                *finished_at = boot.wall;
            }
            world.settle();
            assert_eq!(cause(&world), ExitCause::Lost, "{label}");
            assert!(!triggered(&world), "{label}");
            assert_eq!(world.running().contains("main"), comes_back, "{label}");
            assert_eq!(world.status().phase, if comes_back { Phase::Running } else { Phase::Failed }, "{label}");
        }
    }
}
