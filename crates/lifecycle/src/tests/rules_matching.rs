//! Which exits restart which containers (RULE-*, API-20, VEC-1..VEC-15).

use std::sync::Arc;

use keelet_pod::{Features, Pod};

use super::world::{World, manifest};
use crate::{
    restart::{Decision, RestartAllRule, on_exit},
    status::{ContainerState, ContainerStatus, PodStatus, Running, Terminated, Violation, Waiting, check_transition},
};

const ON: RestartAllRule = RestartAllRule::Honoured;
const OFF: RestartAllRule = RestartAllRule::Ignored;
const STAY: Decision = Decision::Stay;
const BY_POLICY: Decision = Decision::Restart { rule: None };

fn parse(spec: &str) -> Pod {
    keelet_pod::parse_one(&manifest(spec)).unwrap_or_else(|report| panic!("bad manifest: {report:#?}"))
}

fn by_rule(rule: usize) -> Decision {
    Decision::Restart { rule: Some(rule) }
}

/// One regular container `a`; empty texts leave the field out.
fn pod_of(container_policy: &str, pod_policy: &str, rules: &str) -> Pod {
    let field = |name: &str, value: &str| if value.is_empty() { String::new() } else { format!(", {name}: {value}") };
    let pod = if pod_policy.is_empty() { String::new() } else { format!("  restartPolicy: {pod_policy}\n") };
    let container = format!("{}{}", field("restartPolicy", container_policy), field("restartPolicyRules", rules));
    parse(&format!("{pod}  containers:\n  - {{name: a, image: app{container}}}\n"))
}

const IN_42: &str = "[{action: Restart, exitCodes: {operator: In, values: [42]}}]";
const NOT_IN_1_2: &str = "[{action: Restart, exitCodes: {operator: NotIn, values: [1, 2]}}]";
const IN_NONE: &str = "[{action: Restart, exitCodes: {operator: In, values: []}}]";
const NOT_IN_NONE: &str = "[{action: Restart, exitCodes: {operator: NotIn, values: []}}]";
const BOTH: &str = "[{action: Restart, exitCodes: {operator: In, values: [42]}}, \
                    {action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]";
const ALL_42: &str = "[{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]";
const IN_9: &str = "[{action: Restart, exitCodes: {operator: In, values: [9]}}]";
const SECOND: &str = "[{action: Restart, exitCodes: {operator: In, values: [7]}}, \
                      {action: RestartAllContainers, exitCodes: {operator: NotIn, values: [0, 7]}}]";

/// VEC-1..VEC-14, SCN-R7, RULE-1, RULE-2, RULE-4, RULE-7: first match decides, then the container's own policy, then
/// the pod's.
#[test]
fn the_first_matching_rule_decides_then_the_containers_policy_then_the_pods() {
    let all = Decision::RestartAll { rule: 0 };
    let rows: &[(&str, &str, &str, &str, RestartAllRule, i32, Decision)] = &[
        ("VEC-1", "", "Always", "", ON, 0, BY_POLICY),
        ("VEC-1", "", "", "", ON, 0, BY_POLICY),
        ("VEC-2", "", "OnFailure", "", ON, 0, STAY),
        ("VEC-2", "", "OnFailure", "", ON, 1, BY_POLICY),
        ("VEC-3", "", "Never", "", ON, 1, STAY),
        ("VEC-4", "Never", "Always", "", ON, 1, STAY),
        ("VEC-5", "Always", "Never", "", ON, 0, BY_POLICY),
        ("VEC-6", "OnFailure", "Never", "", ON, 0, STAY),
        ("VEC-6", "OnFailure", "Never", "", ON, 3, BY_POLICY),
        ("VEC-7", "Never", "Never", IN_42, ON, 42, by_rule(0)),
        ("VEC-7", "Never", "Never", IN_42, ON, 1, STAY),
        ("VEC-7", "Never", "Never", IN_42, ON, 0, STAY),
        ("VEC-8", "Never", "Never", NOT_IN_1_2, ON, 1, STAY),
        ("VEC-8", "Never", "Never", NOT_IN_1_2, ON, 2, STAY),
        ("VEC-8", "Never", "Never", NOT_IN_1_2, ON, 3, by_rule(0)),
        ("VEC-8", "Never", "Never", NOT_IN_1_2, ON, 0, by_rule(0)),
        ("VEC-9", "Never", "Never", IN_NONE, ON, 0, STAY),
        ("VEC-9", "Never", "Never", IN_NONE, ON, 42, STAY),
        ("VEC-10", "Never", "Never", NOT_IN_NONE, ON, 0, by_rule(0)),
        ("VEC-10", "Never", "Never", NOT_IN_NONE, ON, 137, by_rule(0)),
        ("VEC-11", "Never", "Never", BOTH, ON, 42, by_rule(0)),
        ("VEC-12", "Never", "Never", ALL_42, ON, 42, all),
        ("VEC-12", "Never", "Never", ALL_42, OFF, 42, STAY),
        ("VEC-13", "Always", "", ALL_42, OFF, 42, BY_POLICY),
        ("VEC-13", "Always", "", ALL_42, ON, 42, all),
        ("VEC-14", "OnFailure", "", IN_9, ON, 0, STAY),
        ("VEC-14", "OnFailure", "", IN_9, ON, 1, BY_POLICY),
        ("SCN-R7", "Never", "Always", SECOND, ON, 7, by_rule(0)),
        ("SCN-R7", "Never", "Always", SECOND, ON, 1, Decision::RestartAll { rule: 1 }),
        ("SCN-R7", "Never", "Always", SECOND, ON, 0, STAY),
        ("SCN-R7", "Never", "Always", SECOND, OFF, 7, by_rule(0)),
        ("SCN-R7", "Never", "Always", SECOND, OFF, 1, STAY),
    ];
    for (vector, own, of_pod, rules, feature_gate, exit_code, expected) in rows {
        let pod = pod_of(own, of_pod, rules);
        let decision = on_exit(&pod.containers[0], *exit_code, *feature_gate);
        assert_eq!(decision, *expected, "{vector}: {own:?}/{of_pod:?} {rules} exit {exit_code} {feature_gate:?}");
    }
}

/// VEC-15, RULE-1: a pod of an API server whose rules lack a container policy is judged by the pod's policy.
#[test]
fn rules_without_a_policy_of_the_container_count_for_nothing() {
    for (of_pod, exit_code, expected) in [("Never", 42, STAY), ("OnFailure", 42, BY_POLICY), ("Never", 1, STAY)] {
        let mut source = Arc::unwrap_or_clone(pod_of("Never", of_pod, IN_42).source);
        source.spec.as_mut().unwrap().containers[0].restart_policy = None;
        let pod = Pod::from_api(source, &Features::default()).unwrap();
        assert_eq!(on_exit(&pod.containers[0], exit_code, ON), expected, "{of_pod} {exit_code}");
    }
}

const EPHEMERAL: &str = "
  restartPolicy: Always
  containers: [{name: a, image: app}]
  ephemeralContainers: [{name: debug, image: tool}]
";

/// RULE-8, RALL-1: an ephemeral container stays down whatever the pod's policy, and asks for nothing.
#[test]
fn an_ephemeral_container_is_never_restarted() {
    let pod = parse(EPHEMERAL);
    for exit_code in [0, 1, 42] {
        assert_eq!(on_exit(pod.container("debug").unwrap(), exit_code, ON), STAY);
    }
    let mut world = World::with_spec(EPHEMERAL);
    world.settle().exit("debug", 1);
    world.seconds(700);
    assert_eq!(world.launches("debug"), [0]);
    assert_eq!(world.running(), ["a"].into());
    assert_eq!(world.container("debug").restart_count, 0);
}

/// SCN-R7, RULE-6: a sidecar restarts by its policy, and its rule for all containers applies.
#[test]
fn a_sidecar_restarts_always_and_may_restart_everything() {
    let pod = parse(&format!(
        "  restartPolicy: Never\n  initContainers:\n  - {{name: s, image: proxy, restartPolicy: Always, \
         restartPolicyRules: {ALL_42}}}\n  containers: [{{name: a, image: app}}]\n"
    ));
    let sidecar = pod.container("s").unwrap();
    assert_eq!(on_exit(sidecar, 0, ON), BY_POLICY);
    assert_eq!(on_exit(sidecar, 1, ON), BY_POLICY);
    assert_eq!(on_exit(sidecar, 42, ON), Decision::RestartAll { rule: 0 });
    assert_eq!(on_exit(sidecar, 42, OFF), BY_POLICY);
}

// --- API-20 ---

fn status(name: &str, state: ContainerState) -> ContainerStatus {
    ContainerStatus {
        name: name.to_owned(),
        state,
        last_state: None.into(),
        ready: false,
        started: None,
        restart_count: 0,
        image: String::new(),
        image_id: String::new(),
        container_id: None,
    }
}

fn ended(exit_code: i32) -> ContainerState {
    ContainerState::Terminated(Terminated { exit_code, ..Terminated::default() })
}

/// Statuses of containers that are in the list of init, of regular and of ephemeral containers.
fn statuses(pod: &Pod, name: &str, state: ContainerState) -> PodStatus {
    let one = vec![status(name, state)];
    if pod.init_containers.iter().any(|container| container.name == name) {
        PodStatus { init_container_statuses: one, ..PodStatus::default() }
    } else if pod.ephemeral_containers.iter().any(|container| container.name == name) {
        PodStatus { ephemeral_container_statuses: one, ..PodStatus::default() }
    } else {
        PodStatus { container_statuses: one, ..PodStatus::default() }
    }
}

/// `subject` is what the container under test has; `other` is what the other one has.
fn two(list: &str, pod_policy: &str, subject: &str, other: &str) -> Pod {
    let regular = "{name: main, image: app}";
    let (init, containers) = match list {
        "init" => (format!("{{name: own, image: a{subject}}}, {{name: other, image: a{other}}}"), regular.to_owned()),
        _ => (String::new(), format!("{{name: own, image: a{subject}}}, {{name: other, image: a{other}}}")),
    };
    parse(&format!("  restartPolicy: {pod_policy}\n  initContainers: [{init}]\n  containers: [{containers}]\n"))
}

/// SCN-R9, API-20: an ended container comes back only if its exit code says so, or if some container may restart all.
#[test]
fn the_api_servers_check_of_transitions_is_known_here() {
    let rule = |rules: &str| format!(", restartPolicy: Never, restartPolicyRules: {rules}");
    let (plain_42, all_42) = (rule(IN_42), rule(ALL_42));
    let rows: &[(&str, &str, &str, i32, bool)] = &[
        ("Always", "", "", 0, true),
        ("Always", "", "", 1, true),
        ("OnFailure", "", "", 0, false),
        ("OnFailure", "", "", 1, true),
        ("Never", "", "", 0, false),
        ("Never", "", "", 1, false),
        ("Always", ", restartPolicy: Never", "", 1, false),
        ("Always", ", restartPolicy: OnFailure", "", 0, false),
        ("Never", ", restartPolicy: OnFailure", "", 1, true),
        ("Never", &plain_42, "", 42, true),
        ("Never", &plain_42, "", 1, false),
        ("Never", "", &plain_42, 42, false),
        ("Never", &all_42, "", 42, true),
        ("Never", &all_42, "", 1, true),
        ("Never", "", &all_42, 0, true),
        ("Never", "", &all_42, 1, true),
    ];
    let running = || ContainerState::Running(Running { started_at: crate::Wall::default() });
    for list in ["init", "regular"] {
        for (pod_policy, subject, other, exit_code, allowed) in rows {
            let pod = two(list, pod_policy, subject, other);
            let from = statuses(&pod, "own", ended(*exit_code));
            let expected =
                if *allowed { Ok(()) } else { Err(Violation { container: "own".to_owned(), exit_code: *exit_code }) };
            for back in [running(), ContainerState::Waiting(Waiting::default())] {
                let to = statuses(&pod, "own", back);
                let row = format!("{list} {pod_policy} {subject:?} {other:?} {exit_code}");
                assert_eq!(check_transition(&pod, &from, &to, ON), expected, "{row}");
            }
            assert_eq!(check_transition(&pod, &from, &from, ON), Ok(()), "an ended one may stay ended");
            assert_eq!(check_transition(&pod, &from, &PodStatus::default(), ON), Ok(()), "or vanish");
            let alive = statuses(&pod, "own", running());
            assert_eq!(check_transition(&pod, &alive, &from, ON), Ok(()), "or end");
        }
    }
}

/// SCN-R9, API-20: with the feature gate off a rule for all containers is as good as none, for its own container and others.
#[test]
fn with_the_gate_off_the_rule_for_all_allows_no_transition() {
    let rule = format!(", restartPolicy: Never, restartPolicyRules: {ALL_42}");
    for (subject, other) in [(rule.as_str(), ""), ("", rule.as_str())] {
        let pod = two("regular", "Never", subject, other);
        let from = statuses(&pod, "own", ended(42));
        let to = statuses(&pod, "own", ContainerState::Waiting(Waiting::default()));
        let violation = check_transition(&pod, &from, &to, OFF).unwrap_err();
        assert_eq!(violation, Violation { container: "own".to_owned(), exit_code: 42 });
        assert!(violation.to_string().contains("may not be transitioned to non-terminated state"), "{violation}");
        assert_eq!(check_transition(&pod, &from, &to, ON), Ok(()));
    }
}

/// SCN-R9, API-20, DEF-19: an ended ephemeral container never comes back, not even with a rule for all containers.
#[test]
fn an_ended_ephemeral_container_may_never_come_back() {
    let pod = parse(&format!(
        "  containers: [{{name: a, image: app, restartPolicy: Never, restartPolicyRules: {ALL_42}}}]\n  \
         ephemeralContainers: [{{name: debug, image: tool}}]\n"
    ));
    let from = statuses(&pod, "debug", ended(1));
    let to = statuses(&pod, "debug", ContainerState::Waiting(Waiting::default()));
    let violation = Violation { container: "debug".to_owned(), exit_code: 1 };
    assert_eq!(check_transition(&pod, &from, &to, ON), Err(violation));
}
