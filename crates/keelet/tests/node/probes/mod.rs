//! Probes of containers that really listen, answer, hang and die.

mod hostile;
mod liveness;
mod network;
mod readiness;
mod startup;

use keelet_harness::{Actor, Node, Seen, manifest};
use keelet_lifecycle::{journal::What, operation::KillReason};
use keelet_pod::ProbeKind;

/// Where the container that is asked stands in its pod (SCN-P26).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    Regular,
    Sidecar,
}

use Stands::{Regular, Sidecar};

/// The name of a pod for a scenario of a container in that place.
fn named(scenario: &str, stands: Stands) -> String {
    format!("{scenario}-{stands:?}").to_lowercase()
}

/// Wants a pod with this container in that place.
fn want(node: &Node, pod: &str, stands: Stands, main: Actor) {
    want_within(node, pod, stands, 30, main);
}

/// The same, with a grace period of the pod.
fn want_within(node: &Node, pod: &str, stands: Stands, grace: u32, main: Actor) {
    let fields = match stands {
        Regular => format!("containers:\n{main}"),
        Sidecar => {
            let main = main.with("restartPolicy: Always");
            format!("initContainers:\n{main}\ncontainers:\n{}", Actor::new("other"))
        }
    };
    node.want(pod, &manifest(pod, &format!("terminationGracePeriodSeconds: {grace}\n{fields}")));
}

/// A probe of that kind every second: a command that writes `KIND POD` into the diary first.
fn command(kind: &str, pod: &str, command: &str, more: &str) -> String {
    let command = format!("echo {kind} {pod} >>/ctl/diary; {command}");
    format!("{kind}Probe: {{exec: {{command: [sh, -c, {command:?}]}}, periodSeconds: 1{more}}}")
}

/// The fields of a probe that passes on a busy machine too, and whose first failure counts.
const STRICT: &str = ", timeoutSeconds: 20, failureThreshold: 1";

/// A command for probes that gives no answer before `main` has begun: a container that is killed before that writes nothing.
fn once_begun(pod: &str, command: &str) -> String {
    format!("until grep -qx 'start {pod}.main' /ctl/diary; do sleep 0.1; done; {command}")
}

/// Kills of `main` for a probe of that kind.
fn kills(seen: &Seen, kind: ProbeKind) -> usize {
    let of_probe = |what: &What| match what {
        What::Killing { container, reason, .. } if container == "main" => {
            (*reason == KillReason::Probe(kind)).then_some(())
        }
        _ => None,
    };
    seen.noted(of_probe).len()
}

/// Waits until `main` was killed by a probe of that kind and runs again.
async fn restarted(node: &Node, pod: &str, kind: ProbeKind) -> Seen {
    let again = |seen: &Seen| seen.runs("main") && seen.restarts("main").unwrap_or_default() >= 1;
    let seen = node.pod_until(pod, "restarted", again).await;
    assert!(kills(&seen, kind) >= 1, "{pod}: no container was killed for it: {:#?}", seen.journal);
    node.written(&format!("start {pod}.main"), 2).await;
    assert!(!seen.container("main").last_state.is_none(), "{pod}");
    seen
}

/// Waits until the diary has a line so many times, and asserts that `main` has run on since its start.
async fn untouched(node: &Node, pod: &str, line: &str, times: usize) -> Seen {
    node.written(&format!("start {pod}.main"), 1).await;
    node.written(line, times).await;
    let seen = node.see(pod).await.expect("the pod");
    assert_eq!(
        (seen.restarts("main"), node.times(&format!("start {pod}.main"))),
        (Some(0), 1),
        "{pod}: {:#?}",
        seen.journal
    );
    assert!(seen.runs("main"), "{pod}");
    let killed = seen.noted(|what| matches!(what, What::Killing { .. }).then_some(()));
    assert!(killed.is_empty(), "{pod}: {:#?}", seen.journal);
    seen
}

/// Waits until the agent says this about a pod.
async fn says(node: &Node, pod: &str, what: &str) {
    keelet_harness::eventually(&format!("{what:?} about {pod}"), async || {
        let log = node.log();
        let about = |line: &&str| line.contains(&format!("default/{pod}\"")) && line.contains(what);
        log.lines().find(about).map(|_| ()).ok_or("no log line says so")
    })
    .await;
}
