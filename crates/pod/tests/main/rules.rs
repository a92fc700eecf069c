//! Container restart policy and exit-code rules: API-12 to API-19, SCN-R8.

use keelet_pod::{Action, ExitCodes, Features, Operator, RestartPolicy, Role, Rule, Strictness};

use crate::common::{accepted, clean, main_of, pod, read, refused, warned, with_init};

const RULES: &str = "spec.containers[0].restartPolicyRules";

fn rules(rules: &str) -> String {
    pod("", &format!("restartPolicy: Never\nrestartPolicyRules: {rules}"))
}

fn features(gates: &str) -> Features {
    Features::resolve(gates, &Default::default()).expect("gates").features
}

/// API-12
#[test]
fn container_policy_overrides_the_pods() {
    for (word, policy) in
        [("Always", RestartPolicy::Always), ("OnFailure", RestartPolicy::OnFailure), ("Never", RestartPolicy::Never)]
    {
        let pod = clean(&pod("restartPolicy: OnFailure", &format!("restartPolicy: {word}")));
        assert_eq!(pod.containers[0].restart_policy, policy);
        assert_eq!(pod.restart_policy, RestartPolicy::OnFailure);
    }
    assert_eq!(main_of(&pod("restartPolicy: Never", "")).restart_policy, RestartPolicy::Never);
    assert_eq!(main_of(&pod("", "")).restart_policy, RestartPolicy::Always);
}

/// API-12, SCN-R8
#[test]
fn unknown_and_empty_policies_are_not_supported() {
    let allowed = "supported values: \"Always\", \"OnFailure\", \"Never\"";
    for word in ["always", "Sometimes", "\"\""] {
        let path = "spec.containers[0].restartPolicy";
        refused(&pod("", &format!("restartPolicy: {word}")), path, allowed);
        refused(&with_init(&format!("restartPolicy: {word}")), "spec.initContainers[0].restartPolicy", allowed);
    }
    refused(&pod("restartPolicy: Sometimes", ""), "spec.restartPolicy", allowed);
}

/// API-12
#[test]
fn init_container_with_always_is_a_sidecar() {
    for (policy, role) in [("Always", Role::Sidecar), ("OnFailure", Role::Init), ("Never", Role::Init)] {
        assert_eq!(clean(&with_init(&format!("restartPolicy: {policy}"))).init_containers[0].role, role);
    }
    assert_eq!(clean(&with_init("")).init_containers[0].role, Role::Init);
}

/// API-13, SCN-R8
#[test]
fn twenty_rules_are_allowed_and_twenty_one_are_too_many() {
    let list = |number: usize| {
        let rule = "{action: Restart, exitCodes: {operator: In, values: [1]}}";
        rules(&format!("[{}]", vec![rule; number].join(", ")))
    };
    assert_eq!(clean(&list(20)).containers[0].rules.len(), 20);
    refused(&list(21), RULES, "Too many: 21: must have at most 20 items");
}

/// API-13, SCN-R8
#[test]
fn rules_need_a_policy_of_the_container() {
    let manifest = pod("", "restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]");
    let words = "Required value: must specify restartPolicy when restart rules are used";
    refused(&manifest, "spec.containers[0].restartPolicy", words);
    assert_eq!(clean(&pod("", "restartPolicyRules: []")).containers[0].rules, []);
}

/// API-13: duplicate and overlapping rules are legal.
#[test]
fn rules_keep_their_order_and_may_overlap() {
    let list = "[{action: Restart, exitCodes: {operator: In, values: [1, 2]}}, \
                 {action: RestartAllContainers, exitCodes: {operator: NotIn, values: [2]}}, \
                 {action: Restart, exitCodes: {operator: In, values: [1, 2]}}]";
    let restart =
        Rule { action: Action::Restart, exit_codes: ExitCodes { operator: Operator::In, values: vec![1, 2] } };
    let all = Rule {
        action: Action::RestartAllContainers,
        exit_codes: ExitCodes { operator: Operator::NotIn, values: vec![2] },
    };
    assert_eq!(clean(&rules(list)).containers[0].rules, [restart.clone(), all, restart]);
}

/// API-14, SCN-R8
#[test]
fn action_is_one_of_two() {
    for action in ["\"\"", "restart", "Terminate"] {
        refused(
            &rules(&format!("[{{action: {action}, exitCodes: {{operator: In, values: [1]}}}}]")),
            "spec.containers[0].restartPolicyRules[0].action",
            "supported values: \"Restart\", \"RestartAllContainers\"",
        );
    }
    refused(
        &rules("[{exitCodes: {operator: In, values: [1]}}]"),
        "spec.containers[0].restartPolicyRules[0].action",
        "Unsupported value: \"\"",
    );
}

/// API-14, SCN-R8
#[test]
fn exit_codes_are_required() {
    let path = "spec.containers[0].restartPolicyRules[0].exitCodes";
    refused(&rules("[{action: Restart}]"), path, "Required value: must be specified");
    refused(&rules("[{action: Restart, exitCodes: null}]"), path, "Required value: must be specified");
}

/// API-15, SCN-R8
#[test]
fn operator_is_one_of_two() {
    let path = "spec.containers[0].restartPolicyRules[0].exitCodes.operator";
    for codes in ["{operator: in, values: [1]}", "{values: [1]}", "{}", "{operator: \"\", values: [1]}"] {
        let manifest = rules(&format!("[{{action: Restart, exitCodes: {codes}}}]"));
        refused(&manifest, path, "supported values: \"In\", \"NotIn\"");
    }
}

/// API-15, SCN-R8
#[test]
fn two_hundred_fifty_five_values_are_allowed_and_one_more_is_too_many() {
    let values = |number: usize| {
        let values: Vec<_> = (0..number).map(|value| value.to_string()).collect();
        rules(&format!("[{{action: Restart, exitCodes: {{operator: In, values: [{}]}}}}]", values.join(", ")))
    };
    assert_eq!(clean(&values(255)).containers[0].rules[0].exit_codes.values.len(), 255);
    let path = "spec.containers[0].restartPolicyRules[0].exitCodes.values";
    refused(&values(256), path, "Too many: 256: must have at most 255 items");
}

/// API-15: no range check.
#[test]
fn values_may_be_any_number_of_32_bits() {
    let manifest = rules("[{action: Restart, exitCodes: {operator: In, values: [-1, 256, 2147483647, -2147483648]}}]");
    assert_eq!(clean(&manifest).containers[0].rules[0].exit_codes.values, [-1, 256, i32::MAX, i32::MIN]);
    let path = "spec.containers[0].restartPolicyRules[0].exitCodes.values[0]";
    let manifest = rules("[{action: Restart, exitCodes: {operator: In, values: [2147483648]}}]");
    refused(&manifest, path, "must be an integer from -2147483648 to 2147483647");
}

/// API-15: `In` without values never matches, `NotIn` without values always.
#[test]
fn empty_values_are_legal_and_in_without_values_is_warned_about() {
    let path = "spec.containers[0].restartPolicyRules[0].exitCodes.values";
    for codes in ["{operator: In, values: []}", "{operator: In}"] {
        let manifest = rules(&format!("[{{action: Restart, exitCodes: {codes}}}]"));
        warned(&manifest, path, "In without values matches no exit code");
        let codes = &accepted(&manifest).containers[0].rules[0].exit_codes;
        assert!(![0, 1, 137].iter().any(|code| codes.matches(*code)));
    }
    let codes = &clean(&rules("[{action: Restart, exitCodes: {operator: NotIn}}]")).containers[0].rules[0].exit_codes;
    assert!([0, 1, 137].iter().all(|code| codes.matches(*code)));
}

/// API-15
#[test]
fn exit_codes_match_as_the_operator_says() {
    let (listed, operators) = (vec![3, 42], [(Operator::In, true), (Operator::NotIn, false)]);
    for (operator, hit) in operators {
        let codes = ExitCodes { operator, values: listed.clone() };
        assert_eq!([0, 3, 42, 43].map(|code| codes.matches(code)), [!hit, hit, hit, !hit]);
    }
}

/// API-16, CON-13
#[test]
fn the_nested_spelling_is_accepted_and_flattened() {
    let flat = clean(&rules("[{action: Restart, exitCodes: {operator: In, values: [42]}}]"));
    let nested = clean(&rules("[{action: Restart, onExit: {exitCodes: {operator: In, values: [42]}}}]"));
    assert_eq!(nested.containers[0].rules, flat.containers[0].rules);
    assert_eq!(nested.source.spec, flat.source.spec, "output is always flat");
    assert_eq!(nested.uid, flat.uid);
}

/// API-16, CON-13
#[test]
fn both_spellings_at_once_are_an_error() {
    let manifest = rules(
        "[{action: Restart, exitCodes: {operator: In, values: [1]}, onExit: {exitCodes: {operator: In, values: [1]}}}]",
    );
    let path = "spec.containers[0].restartPolicyRules[0].onExit";
    refused(&manifest, path, "Forbidden: onExit.exitCodes is another spelling of exitCodes; give one of them");
}

/// API-16
#[test]
fn the_nested_spelling_takes_exit_codes_only() {
    let rule = "spec.containers[0].restartPolicyRules[0]";
    let manifest = rules("[{action: Restart, onExit: {exitCodes: {operator: In, values: [1]}, signals: [9]}}]");
    refused(&manifest, &format!("{rule}.onExit.signals"), "Unknown field: onExit takes exitCodes and nothing else");
    let report = crate::common::strict(&rules("[{action: Restart, onExit: [1]}]"));
    assert_eq!(crate::common::paths(&report), [format!("{rule}.exitCodes"), format!("{rule}.onExit")]);
    refused(&rules("[{action: Restart, onExit: ~}]"), &format!("{rule}.exitCodes"), "must be specified");
    // Also in the other lists of containers.
    let init = "restartPolicy: Never\nrestartPolicyRules: [{action: Restart, onExit: {exitCodes: {operator: In, values: [7]}}}]";
    assert_eq!(clean(&with_init(init)).init_containers[0].rules[0].exit_codes.values, [7]);
}

const SIDECAR_RULE: &str = "restartPolicy: Always\nrestartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]";

/// API-17, SCN-R8
#[test]
fn sidecars_carry_rules_while_restart_all_is_allowed() {
    assert_eq!(clean(&with_init(SIDECAR_RULE)).init_containers[0].rules.len(), 1);
    let off = features("RestartAllContainersOnContainerExits=false");
    let report = read(&with_init(SIDECAR_RULE), Strictness::Strict, &off);
    assert_eq!(crate::common::paths(&report), ["spec.initContainers[0].restartPolicyRules"]);
    let words = "rules are not allowed for init containers with restartPolicy=Always";
    assert!(report.errors[0].to_string().contains(words), "{report}");
    // Even if there is nothing else wrong with them.
    let restart =
        "restartPolicy: Always\nrestartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]";
    assert_eq!(read(&with_init(restart), Strictness::Strict, &off).errors.len(), 1);
}

/// API-17: with the action allowed, sidecar rules get the normal validation.
#[test]
fn sidecar_rules_are_validated_as_all_others() {
    let rule =
        "restartPolicy: Always\nrestartPolicyRules: [{action: Explode, exitCodes: {operator: In, values: [88]}}]";
    refused(&with_init(rule), "spec.initContainers[0].restartPolicyRules[0].action", "Unsupported value: \"Explode\"");
}

/// RALL-29: whether the rule counts is the lifecycle's business.
#[test]
fn restart_all_rules_stay_in_the_pod_when_the_gate_is_off() {
    let manifest = rules("[{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]");
    let off = features("RestartAllContainersOnContainerExits=false");
    let report = read(&manifest, Strictness::Strict, &off);
    assert!(report.is_ok(), "{report}");
    assert!(report.pods[0].has_restart_all_rule());
}

/// API-18, SCN-R8
#[test]
fn rules_and_policies_are_dropped_when_their_gate_is_off() {
    let off = features("ContainerRestartRules=false");
    let rule = "restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]";
    let report =
        read(&pod("restartPolicy: OnFailure", &format!("restartPolicy: Never\n{rule}")), Strictness::Strict, &off);
    assert!(report.is_ok(), "{report}");
    let warned: Vec<_> = report.warnings.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(warned, ["spec.containers[0].restartPolicy", "spec.containers[0].restartPolicyRules"]);
    for problem in &report.warnings {
        assert!(problem.to_string().contains("Ignored: the feature gate ContainerRestartRules is off"), "{problem}");
    }
    let container = &report.pods[0].containers[0];
    assert_eq!((container.restart_policy, container.rules.len()), (RestartPolicy::OnFailure, 0));
    let source = &report.pods[0].source.spec.as_ref().unwrap().containers[0];
    assert_eq!((&source.restart_policy, &source.restart_policy_rules), (&None, &None));

    // A sidecar stays one, without its rules; other init containers lose their policy.
    let report = read(&with_init(SIDECAR_RULE), Strictness::Strict, &off);
    assert_eq!(
        (report.pods[0].init_containers[0].role, report.pods[0].init_containers[0].rules.len()),
        (Role::Sidecar, 0)
    );
    assert_eq!(report.warnings.len(), 1, "{report}");
    let report = read(&with_init("restartPolicy: Never"), Strictness::Strict, &off);
    assert_eq!(report.pods[0].init_containers[0].restart_policy, RestartPolicy::Always);
    assert_eq!(report.warnings[0].path, "spec.initContainers[0].restartPolicy");
    // A regular container with Always loses it as well.
    let report = read(&pod("restartPolicy: Never", "restartPolicy: Always"), Strictness::Strict, &off);
    assert_eq!(report.pods[0].containers[0].restart_policy, RestartPolicy::Never);
    // Without any of it there is nothing to say.
    assert!(read(&pod("", ""), Strictness::Strict, &off).warnings.is_empty());
}

/// CON-18d
#[test]
fn init_container_that_restarts_all_on_success_is_warned_about() {
    let init = |list: &str| with_init(&format!("restartPolicy: Never\nrestartPolicyRules: [{list}]"));
    let path = "spec.initContainers[0].restartPolicyRules";
    let all = |operator: &str, value: i32| {
        format!("{{action: RestartAllContainers, exitCodes: {{operator: {operator}, values: [{value}]}}}}")
    };
    warned(&init(&all("In", 0)), path, "Suspicious: restarts all containers whenever this init container succeeds");
    warned(&init(&all("NotIn", 1)), path, "exit code 0");
    clean(&init(&all("In", 1)));
    clean(&init(&all("NotIn", 0)));
    // The first match decides.
    clean(&init(&format!("{{action: Restart, exitCodes: {{operator: In, values: [0]}}}}, {}", all("In", 0))));
    // Elsewhere it may be meant.
    clean(&rules(&format!("[{}]", all("In", 0))));
    clean(&with_init(&format!("restartPolicy: Always\nrestartPolicyRules: [{}]", all("In", 0))));
}
