//! Requests to restart all containers.

use super::world::manifest;
use crate::restart::{RestartAllRule, check_request};

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
        // With the gate off the rule is no reason any more.
        assert_eq!(check_request(&pod, RestartAllRule::Ignored).is_err(), refused.is_some() || spec.contains("Never"));
    }
}
