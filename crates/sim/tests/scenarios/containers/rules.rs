//! Restart policies of pods and containers, and restart rules.

use keelet_lifecycle::status::Phase;
use keelet_sim::{World, secs};

use super::{phases, terminated, world};

/// A pod with this policy and a container with these fields that ends with this exit code after five seconds.
fn ends(pod_policy: &str, fields: &str, exit_code: i32) -> World {
    let mut world =
        world(&format!("  restartPolicy: {pod_policy}\n  containers:\n  - name: main\n    image: app\n{fields}"));
    world.script("main").exits(exit_code).after(secs(5));
    world.run(secs(40));
    world
}

#[track_caller]
fn assert_restarted(world: &World, exit_code: i32) {
    assert!(world.container("main").restart_count >= 2, "{}", world.timeline_text());
    assert_eq!(phases(world), [Phase::Pending, Phase::Running], "{}", world.timeline_text());
    let last = world.container("main").last_state.terminated.expect("a former instance");
    assert_eq!(last.exit_code, exit_code);
}

#[track_caller]
fn assert_over(world: &World, exit_code: i32) {
    assert_eq!(phases(world), [Phase::Pending, Phase::Running, Phase::Failed], "{}", world.timeline_text());
    assert_eq!((world.starts("main"), world.container("main").restart_count), (1, 0));
    assert_eq!(terminated(world, "main").exit_code, exit_code);
}

const ON_42: &str = "    restartPolicy: Never
    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]
";

/// SCN-R1.
#[test]
fn a_rule_restarts_a_container_that_is_never_restarted_otherwise() {
    assert_restarted(&ends("Never", ON_42, 42), 42);
}

/// SCN-R2.
#[test]
fn an_exit_code_that_no_rule_names_fails_the_pod() {
    assert_over(&ends("Never", ON_42, 1), 1);
}

/// SCN-R3.
#[test]
fn a_container_that_is_never_restarted_stays_ended_in_a_pod_that_always_restarts() {
    assert_over(&ends("Always", "    restartPolicy: Never\n", 1), 1);
}

/// SCN-R4.
#[test]
fn a_container_that_is_always_restarted_is_so_in_a_pod_that_never_restarts() {
    for exit_code in [0, 1] {
        assert_restarted(&ends("Never", "    restartPolicy: Always\n", exit_code), exit_code);
    }
}

/// SCN-R5.
#[test]
fn a_container_without_a_policy_has_its_pods() {
    for exit_code in [0, 1] {
        assert_restarted(&ends("Always", "", exit_code), exit_code);
    }
    assert_over(&ends("Never", "", 1), 1);
}
