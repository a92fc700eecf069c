//! The agent is killed, and status stays.

use keelet_harness::{Actor, Node, Seen, manifest};
use keelet_lifecycle::status::ConditionType;

use super::on_a_node;

/// Kinds of probes that a container may have, with a file that each looks for.
const NONE: &[&str] = &[];
const STARTUP: &[&str] = &["startup"];
const READINESS: &[&str] = &["readiness"];
const BOTH: &[&str] = &["startup", "readiness"];

/// How often the agent is killed in each test.
const DEATHS: usize = 3;

/// An actor with these probes. Each attempt is in the diary; each passes while its file is there.
fn probed(pod: &str, name: &str, probes: &[&str]) -> Actor {
    probes.iter().fold(Actor::new(name), |actor, kind| {
        let command = format!("echo {kind} {pod}.{name} >>/ctl/diary; test -e /ctl/{pod}.{name}.{kind}");
        let timing = "periodSeconds: 1, timeoutSeconds: 10, failureThreshold";
        let threshold = if *kind == "startup" { 600 } else { 1 };
        actor.with(&format!("{kind}Probe: {{exec: {{command: [sh, -c, {command:?}]}}, {timing}: {threshold}}}"))
    })
}

/// The pods of a shape, one for each choice of probes: its name, its manifest, and its containers.
struct Pod {
    name: String,
    manifest: String,
    containers: Vec<&'static str>,
    probes: &'static [&'static str],
}

/// One container, several, or a sidecar beside another.
#[derive(Clone, Copy, Debug)]
enum Shape {
    One,
    Several,
    Sidecar,
}

// === impl Pod ===

impl Pod {
    fn new(shape: Shape, probes: &'static [&'static str]) -> Self {
        let name = format!("{shape:?}-{}", if probes.is_empty() { "none".to_owned() } else { probes.join("-") })
            .to_lowercase();
        let main = probed(&name, "main", probes);
        let (fields, containers) = match shape {
            Shape::One => (format!("containers:\n{main}"), vec!["main"]),
            Shape::Several => {
                let (more, most) = (probed(&name, "more", probes), probed(&name, "most", probes));
                (format!("containers:\n{main}\n{more}\n{most}"), vec!["main", "more", "most"])
            }
            Shape::Sidecar => {
                let (main, more) = (main.with("restartPolicy: Always"), Actor::new("more"));
                (format!("initContainers:\n{main}\ncontainers:\n{more}"), vec!["main", "more"])
            }
        };
        Self { manifest: manifest(&name, &fields), name, containers, probes }
    }

    /// Wants it, with all that its probes look for.
    fn want(&self, node: &Node) {
        for (container, kind) in self.containers.iter().flat_map(|one| self.probes.iter().map(move |kind| (one, kind)))
        {
            node.touch(&format!("{}.{container}.{kind}", self.name));
        }
        node.want(&self.name, &self.manifest);
    }

    /// Kinds that are asked as long as the container runs.
    fn asks_on(&self) -> bool {
        self.probes.contains(&"readiness")
    }
}

/// Waits until the agents have shown by probes that they are at work.
async fn at_work(node: &Node, pods: &[Pod]) {
    for pod in pods.iter().filter(|pod| pod.asks_on()) {
        let line = format!("readiness {}.main", pod.name);
        let times = node.times(&line);
        node.written(&line, times + 2).await;
    }
}

/// Asserts that nothing about a pod is different.
#[track_caller]
fn assert_same(before: &Seen, now: &Seen) {
    assert_eq!(before.status, now.status);
    assert_eq!((before.version, before.running()), (now.version, now.running()));
    assert_eq!(before.sandboxes, now.sandboxes);
}

async fn ready_pods_keep_their_status(node: &mut Node, shape: Shape) {
    let pods = [NONE, STARTUP, READINESS, BOTH].map(|probes| Pod::new(shape, probes));
    for pod in &pods {
        pod.want(node);
    }
    node.start();
    let mut before = Vec::new();
    for pod in &pods {
        before.push(node.ready(&pod.name).await);
    }
    for _ in 0..DEATHS {
        node.kill().await;
        node.start();
        at_work(node, &pods).await;
        for (pod, before) in pods.iter().zip(&before) {
            assert_same(before, &node.see(&pod.name).await.expect("the pod"));
        }
    }
    for pod in &pods {
        for container in &pod.containers {
            assert_eq!(node.times(&format!("start {}.{container}", pod.name)), 1, "{}", pod.name);
        }
        // What has started up is not asked again.
        let asked = node.times(&format!("startup {}.main", pod.name));
        assert_eq!(asked, usize::from(pod.probes.contains(&"startup")), "{}", pod.name);
    }
    node.leaves_nothing().await;
}

/// SCN-K1 (no probe), SCN-K2 (startup probe), SCN-K3 (readiness probe), SCN-K4 (both), KEEP-1, KEEP-20.
#[test]
fn a_pod_of_one_container_stays_as_it_is() {
    on_a_node(async |node| ready_pods_keep_their_status(node, Shape::One).await);
}

/// SCN-K5 (no probe), SCN-K6 (startup probe), SCN-K7 (readiness probe), SCN-K8 (both): the same with several containers.
#[test]
fn a_pod_of_several_containers_stays_as_it_is() {
    on_a_node(async |node| ready_pods_keep_their_status(node, Shape::Several).await);
}

/// SCN-K9 (no probe), SCN-K10 (startup probe), SCN-K11 (readiness probe), SCN-K12 (both): the same on a sidecar.
#[test]
fn a_pod_with_a_sidecar_stays_as_it_is() {
    on_a_node(async |node| ready_pods_keep_their_status(node, Shape::Sidecar).await);
}

/// SCN-K13..SCN-K18, KEEP-16: pods that were ready and are not any more: with a readiness probe and with both, of one
/// container, of several, and with a sidecar. They stay unready and started, the others in them stay ready, and one
/// success is enough.
#[test]
fn unready_pods_stay_as_they_are() {
    on_a_node(async |node| {
        let shapes = [Shape::One, Shape::Several, Shape::Sidecar];
        let pods: Vec<_> =
            shapes.iter().flat_map(|shape| [READINESS, BOTH].map(|probes| Pod::new(*shape, probes))).collect();
        for pod in &pods {
            pod.want(node);
        }
        node.start();
        for pod in &pods {
            node.ready(&pod.name).await;
            node.remove(&format!("{}.main.readiness", pod.name));
        }
        let mut before = Vec::new();
        for pod in &pods {
            before.push(node.pod_when(&pod.name, "unready", |seen| !seen.is_ready()).await);
        }
        for _ in 0..DEATHS {
            node.kill().await;
            node.start();
            at_work(node, &pods).await;
            for (pod, before) in pods.iter().zip(&before) {
                let now = node.see(&pod.name).await.expect("the pod");
                assert_same(before, &now);
                assert_eq!(now.bits("main"), (true, false), "{}", pod.name);
                for other in &pod.containers[1..] {
                    assert_eq!(now.bits(other), (true, true), "{}", pod.name);
                }
            }
        }
        for pod in &pods {
            node.touch(&format!("{}.main.readiness", pod.name));
        }
        for (pod, before) in pods.iter().zip(&before) {
            let now = node.ready(&pod.name).await;
            assert_eq!(now.running(), before.running());
            assert_eq!(now.readiness("main"), [true, false, true], "{}", pod.name);
            assert!(now.status.all_containers().all(|container| container.restart_count == 0), "{}", pod.name);
        }
    });
}

/// SCN-K19, KEEP-5: the agent is killed, and then the main container behind a sidecar with a startup probe. It is
/// restarted, the sidecar is not.
#[test]
fn a_main_container_behind_a_sidecar_is_restarted_after_an_agent_restart() {
    on_a_node(async |node| {
        let pod = Pod::new(Shape::Sidecar, STARTUP);
        pod.want(node);
        node.start();
        let before = node.ready(&pod.name).await;
        node.kill().await;
        node.start();
        node.kill_container(&before, "more");
        let again = |seen: &Seen| seen.is_ready() && seen.restarts("more") == Some(1);
        let after = node.pod_when(&pod.name, "ready with a new container", again).await;
        assert_eq!(after.history("more"), (137, "Error"));
        assert_eq!((after.running_id("main"), after.restarts("main")), (before.running_id("main"), Some(0)));
        assert_eq!(after.readiness("main"), [true], "the sidecar was ready all along");
        assert_eq!(after.sandbox(), before.sandbox());
        assert_eq!(node.times(&format!("startup {}.main", pod.name)), 1);
        assert_eq!(after.course(&ConditionType::Initialized), [false, true]);
        node.leaves_nothing().await;
    });
}
