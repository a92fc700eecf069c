//! Requests to restart all containers.

use super::world::{World, manifest};
use crate::{
    operation::Operation,
    restart::{RestartAllRule, check_request},
    status::{ConditionType, Phase},
};

/// RALL-31: where an API server would reject the new state, the request is refused and the container named.
#[test]
fn a_request_is_refused_where_the_api_server_would_reject_its_outcome() {
    let rule = "restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]";
    let table = [
        ("  containers: [{name: a, image: x}, {name: b, image: x}]\n".to_owned(), None),
        ("  restartPolicy: Never\n  containers: [{name: a, image: x}]\n".to_owned(), Some("a")),
        ("  restartPolicy: OnFailure\n  containers: [{name: a, image: x}]\n".to_owned(), Some("a")),
        ("  containers: [{name: a, image: x}, {name: b, image: x, restartPolicy: Never}]\n".to_owned(), Some("b")),
        (
            format!("  restartPolicy: Never\n  containers: [{{name: a, image: x, restartPolicy: Never, {rule}}}]\n"),
            None,
        ),
    ];
    for (spec, refused) in table {
        let pod = keelet_pod::parse_one(&manifest(&spec)).unwrap();
        let answer = check_request(&pod, RestartAllRule::Honoured);
        assert_eq!(answer.as_ref().err().map(|error| error.container.as_str()), refused, "{spec}");
        if let Err(error) = answer {
            assert!(error.to_string().contains(&format!("policy is {}", error.policy)), "{error}");
        }
        // With the feature gate off the rule does not count.
        assert_eq!(check_request(&pod, RestartAllRule::Ignored).is_err(), refused.is_some() || spec.contains("Never"));
    }
}

/// RALL-28, RALL-31: a requested restart that a deletion cuts short is taken back in the condition, also for a pod
/// that has no rule and would otherwise have no such condition.
#[test]
fn a_condition_said_of_a_request_is_taken_back() {
    let mut world = World::with_spec("  containers: [{name: a, image: x}]\n");
    world.settle();
    assert!(world.status().condition(&ConditionType::AllContainersRestarting).is_none());
    world.hold(|operation| matches!(operation, Operation::Stop { .. })).request_restart("r1");
    assert!(world.holds(ConditionType::AllContainersRestarting));
    world.delete(30);
    assert!(!world.status().phase.is_terminal());
    assert!(!world.holds(ConditionType::AllContainersRestarting));
    world.release();
    assert_eq!(world.status().phase, Phase::Failed);
    assert_eq!(world.condition(ConditionType::AllContainersRestarting).reason.as_deref(), Some("PodFailed"));
}
