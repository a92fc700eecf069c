//! Feature gates: CON-1, CON-18h.

use std::collections::BTreeMap;

use keelet_pod::{AgentRestart, FeatureGateError, FeatureGateWarning, Features, Switch};

fn resolve(flag: &str) -> (Features, Vec<String>) {
    let resolution = Features::resolve(flag, &BTreeMap::new()).expect("gates");
    (resolution.features, resolution.warnings.iter().map(ToString::to_string).collect())
}

fn errors(flag: &str) -> Vec<String> {
    let errors = Features::resolve(flag, &BTreeMap::new()).expect_err("errors");
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn defaults_are_those_of_the_table() {
    let expected = Features {
        agent_restart: AgentRestart::KeepStatus,
        restart_rules: Switch::On,
        restart_all: Switch::On,
        crash_loop_max: Switch::On,
        reduced_backoff: Switch::Off,
        node_readiness_gates: Switch::Off,
        h2c_probes: Switch::On,
        grpc_tls_probes: Switch::On,
        stop_signals: Switch::Off,
    };
    assert_eq!(Features::default(), expected);
    assert_eq!(resolve(""), (expected.clone(), vec![]));
    assert_eq!(resolve(" , ,"), (expected, vec![]));
    assert!(Switch::On.is_on() && !Switch::Off.is_on());
}

#[test]
fn every_gate_moves_its_own_switch() {
    let flipped = |gate: &str, value: bool| resolve(&format!("{gate}={value}")).0;
    let base = Features::default;
    let cases = [
        ("ContainerRestartRules", false, Features { restart_rules: Switch::Off, restart_all: Switch::Off, ..base() }),
        ("RestartAllContainersOnContainerExits", false, Features { restart_all: Switch::Off, ..base() }),
        ("KubeletCrashLoopBackOffMax", false, Features { crash_loop_max: Switch::Off, ..base() }),
        ("ReduceDefaultCrashLoopBackOffDecay", true, Features { reduced_backoff: Switch::On, ..base() }),
        ("NodeReadinessGates", true, Features { node_readiness_gates: Switch::On, ..base() }),
        ("H2CContainerProbe", false, Features { h2c_probes: Switch::Off, ..base() }),
        ("GRPCContainerProbeTLS", false, Features { grpc_tls_probes: Switch::Off, ..base() }),
        ("ContainerStopSignals", true, Features { stop_signals: Switch::On, ..base() }),
        (
            "ChangeContainerStatusOnKubeletRestart",
            true,
            Features { agent_restart: AgentRestart::ResetStatus, ..base() },
        ),
        ("PodUnreadyOnKubeletRestart", true, Features { agent_restart: AgentRestart::ResetStatus, ..base() }),
    ];
    for (gate, value, expected) in cases {
        assert_eq!(flipped(gate, value), expected, "{gate}");
        assert_eq!(flipped(gate, !value), base(), "{gate}");
    }
}

#[test]
fn the_flag_wins_over_the_config_file() {
    let config = BTreeMap::from([("NodeReadinessGates".to_owned(), true), ("ContainerRestartRules".to_owned(), true)]);
    let features = |flag: &str| Features::resolve(flag, &config).unwrap().features;
    assert_eq!(features("").node_readiness_gates, Switch::On);
    assert_eq!(features("NodeReadinessGates=false").node_readiness_gates, Switch::Off);
    assert_eq!(features("NodeReadinessGates=false,NodeReadinessGates=true").node_readiness_gates, Switch::On);
}

#[test]
fn values_are_spelled_as_the_kubelet_takes_them() {
    for value in ["1", "t", "T", "true", "True", "TRUE"] {
        assert_eq!(resolve(&format!(" NodeReadinessGates = {value} ")).0.node_readiness_gates, Switch::On, "{value}");
    }
    for value in ["0", "f", "F", "false", "False", "FALSE"] {
        assert_eq!(resolve(&format!("KubeletCrashLoopBackOffMax={value}")).0.crash_loop_max, Switch::Off, "{value}");
    }
    for entry in
        ["NodeReadinessGates", "NodeReadinessGates=yes", "=true", "NodeReadinessGates=", "NodeReadinessGates:true"]
    {
        assert_eq!(errors(entry), [format!("feature gate {entry:?}: must be Name=true or Name=false")]);
    }
    assert_eq!(errors("A,B=x,NodeReadinessGates=true").len(), 2);
}

/// CON-1
#[test]
fn the_two_names_of_one_gate_have_to_agree() {
    let both = |canonical: bool, alias: bool| {
        let flag = format!("ChangeContainerStatusOnKubeletRestart={canonical},PodUnreadyOnKubeletRestart={alias}");
        Features::resolve(&flag, &BTreeMap::new()).map(|resolution| resolution.features.agent_restart)
    };
    assert_eq!(both(true, true), Ok(AgentRestart::ResetStatus));
    assert_eq!(both(false, false), Ok(AgentRestart::KeepStatus));
    assert_eq!(both(true, false), Err(vec![FeatureGateError::Contradiction { canonical: true, alias: false }]));
    assert_eq!(both(false, true), Err(vec![FeatureGateError::Contradiction { canonical: false, alias: true }]));
    let config = BTreeMap::from([("PodUnreadyOnKubeletRestart".to_owned(), true)]);
    let error = Features::resolve("ChangeContainerStatusOnKubeletRestart=false", &config).unwrap_err();
    assert_eq!(
        error[0].to_string(),
        "feature gates ChangeContainerStatusOnKubeletRestart=false and PodUnreadyOnKubeletRestart=true: two names of the \
         same gate, set one of them or both to the same value"
    );
    let (_, warnings) = resolve("PodUnreadyOnKubeletRestart=true");
    assert_eq!(
        warnings,
        [
            "feature gate PodUnreadyOnKubeletRestart is another name of ChangeContainerStatusOnKubeletRestart: use that one"
        ]
    );
}

/// CON-18h
#[test]
fn locked_gates_say_so() {
    let locked = [
        "StartupProbeEnabled",
        "ExecProbeTimeout",
        "PLEGOnDemandRelist",
        "NodeDeclaredFeatures",
        "PodReadyToStartContainersCondition",
        "PodObservedGenerationTracking",
    ];
    for gate in locked {
        let words = format!("feature gate {gate}=false: ignored, the feature is always on");
        assert_eq!(resolve(&format!("{gate}=false")), (Features::default(), vec![words]));
        assert_eq!(resolve(&format!("{gate}=true")), (Features::default(), vec![]));
    }
}

#[test]
fn gates_without_a_feature_say_so() {
    for gate in ["SidecarsRestartableDuringPodTermination", "ExtendWebSocketsToKubelet"] {
        let words = format!("feature gate {gate}=true: ignored, keelet does not have this feature");
        assert_eq!(resolve(&format!("{gate}=true")), (Features::default(), vec![words]));
        assert_eq!(resolve(&format!("{gate}=false")), (Features::default(), vec![]));
    }
}

#[test]
fn unknown_gates_are_named() {
    let (features, warnings) = resolve("Whatever=true,ContainerRestartRule=false");
    assert_eq!(features, Features::default());
    assert_eq!(
        warnings,
        [
            "unknown feature gate ContainerRestartRule: ignored; did you mean \"ContainerRestartRules\"?",
            "unknown feature gate Whatever: ignored",
        ]
    );
    let config = BTreeMap::from([("FromConfig".to_owned(), true)]);
    let resolution = Features::resolve("", &config).unwrap();
    let expected = FeatureGateWarning::Unknown { gate: "FromConfig".to_owned(), advice: String::new() };
    assert_eq!(resolution.warnings, [expected]);
}

#[test]
fn restart_all_needs_restart_rules() {
    let flag = "ContainerRestartRules=false,RestartAllContainersOnContainerExits=true";
    let words =
        "feature gate RestartAllContainersOnContainerExits=true needs ContainerRestartRules, which is set to false";
    assert_eq!(errors(flag), [words]);
    let (features, warnings) = resolve("ContainerRestartRules=false");
    assert_eq!(features.restart_all, Switch::Off);
    assert_eq!(warnings, ["feature gate RestartAllContainersOnContainerExits is off because ContainerRestartRules is"]);
    let (_, warnings) = resolve("ContainerRestartRules=false,RestartAllContainersOnContainerExits=false");
    assert!(warnings.is_empty());
    resolve("ContainerRestartRules=true,RestartAllContainersOnContainerExits=true");
}
