//! RestartAllContainers: what triggers it, what is seen of them, and what may come in between.

mod between;
mod gate;
mod seen;
mod triggers;

use keelet_harness::{Actor, Node, Seen, manifest};
use keelet_lifecycle::status::{ConditionType, Phase};

/// A rule that restarts all containers on exit code 42, as fields of a container.
const RULE: &str = "restartPolicy: Never, restartPolicyRules: \
                    [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]";

/// The same on a sidecar.
const SIDECAR_RULE: &str = "restartPolicy: Always, restartPolicyRules: \
                            [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]";

/// The containers of [`four`].
const FOUR: [&str; 4] = ["setup", "side", "source", "other"];

/// A pod with one of each kind that never restarts by itself; `source` triggers. `setup` does this first.
fn four(name: &str, setup: &str) -> String {
    let setup = Actor::new("setup").does(setup).does("exit 0");
    let side = Actor::new("side").with("restartPolicy: Always");
    let source = Actor::new("source").with(RULE);
    let other = Actor::new("other");
    let fields = format!("restartPolicy: Never\ninitContainers:\n{setup}\n{side}\ncontainers:\n{source}\n{other}");
    manifest(name, &fields)
}

/// The same manifest, with an annotation: a soft stop of so many seconds.
fn softly(manifest: &str, seconds: u32) -> String {
    let annotations = format!("  annotations: {{keelet.dev/restart-all-grace-period-seconds: '{seconds}'}}\nspec:\n");
    manifest.replacen("spec:\n", &annotations, 1)
}

/// Whether the condition is True.
fn is_restarting(seen: &Seen) -> bool {
    seen.status.is_true(&ConditionType::AllContainersRestarting)
}

/// Whether all its containers are or were being restarted: that may be over before the test observes it.
fn has_restarted(seen: &Seen) -> bool {
    seen.transitions(&ConditionType::AllContainersRestarting).contains(&true)
}

/// Waits until a pod is up and its containers have been restarted so often.
async fn up<const N: usize>(node: &Node, pod: &str, names: [&str; N], counts: [u32; N]) -> Seen {
    let what = format!("up with restarts {counts:?} of {names:?}");
    let is_up = |seen: &Seen| {
        let running = seen.status.phase == Phase::Running;
        running && seen.is_ready() && !is_restarting(seen) && seen.counts(names) == counts
    };
    let seen = node.pod_when(pod, &what, is_up).await;
    assert_eq!(node.stray_cgroups(&seen), [""; 0], "{:#?}", seen.containers);
    seen
}

/// Asserts that the pod is the one it was: same UID, sandbox and address, no final phase, all containers new.
#[track_caller]
fn assert_same_pod(before: &Seen, after: &Seen) {
    assert_eq!((&after.uid, after.sandbox()), (&before.uid, before.sandbox()));
    assert_eq!(after.status.pod_ip, before.status.pod_ip);
    assert_eq!(after.status.start_time, before.status.start_time);
    assert!(!after.phases().iter().any(|phase| phase.is_terminal()), "{:?}", after.phases());
    for container in after.status.all_containers() {
        let was = before.status.container(&container.name).and_then(|was| was.container_id.as_ref());
        assert_ne!(container.container_id.as_ref(), was, "{}", container.name);
    }
    // The runtime has forgotten the old ones.
    let old = before.containers.iter().map(|container| &container.id);
    let left: Vec<_> = old.filter(|id| after.containers.iter().any(|container| container.id == **id)).collect();
    assert!(left.is_empty(), "{left:?} are left: {:#?}", after.containers);
}

/// Asserts that the condition was True once, and then False.
#[track_caller]
fn assert_one_restart(seen: &Seen) {
    let transitions = seen.transitions(&ConditionType::AllContainersRestarting);
    assert!(matches!(transitions[..], [true, false] | [false, true, false]), "{transitions:?} {:#?}", seen.journal);
}
