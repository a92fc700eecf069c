//! The agent is killed, and status stays.

use std::time::Duration;

use keelet_harness::{Actor, Node, Seen, manifest};
use keelet_lifecycle::status::{ConditionType, Phase};
use tokio::time::sleep;

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
        let timing = "periodSeconds: 1, timeoutSeconds: 20, failureThreshold";
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

/// Starts the agent with these pods, and waits until all of them are ready.
async fn ready(node: &mut Node, pods: &[Pod]) -> Vec<Seen> {
    for pod in pods {
        pod.want(node);
    }
    node.start();
    let mut seen = Vec::new();
    for pod in pods {
        seen.push(node.ready(&pod.name).await);
    }
    seen
}

async fn ready_pods_keep_their_status(node: &mut Node, shape: Shape) {
    let pods = [NONE, STARTUP, READINESS, BOTH].map(|probes| Pod::new(shape, probes));
    let before = ready(node, &pods).await;
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
    // All of it was as it should be, so there was no warning. (At its end a pod may be: a command that asks for readiness dies
    // with its container.)
    let log = node.log();
    let worries: Vec<_> = log.lines().filter(|line| line.contains(" WARN ") || line.contains(" ERROR ")).collect();
    assert!(worries.is_empty(), "{worries:#?}");
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
        assert_eq!(after.transitions(&ConditionType::Initialized), [false, true]);
        node.leaves_nothing().await;
    });
}

/// SCN-K20: init containers that completed are not run again by another agent, and one that is at work is left at work.
#[test]
fn init_containers_are_not_run_again() {
    on_a_node(async |node| {
        let (first, second) = (Actor::new("first").does("exit 0"), Actor::new("second").does("await go; exit 0"));
        let main = Actor::new("main");
        node.want("web", &manifest("web", &format!("initContainers:\n{first}\n{second}\ncontainers:\n{main}")));
        node.start();
        let before = node.pod_when("web", "at work", |seen| seen.runs("second")).await;
        node.kill().await;
        node.start();
        let now = node.pod_when("web", "at work", |seen| seen.runs("second")).await;
        assert_eq!((now.pid("second"), &now.status), (before.pid("second"), &before.status));
        // The last one ends while no agent runs.
        node.kill().await;
        node.touch("go");
        node.written("end web.second", 1).await;
        node.start();
        let after = node.ready("web").await;
        node.kill().await;
        node.start();
        assert_eq!(node.starts("web", ["first", "second", "main"]), [1, 1, 1]);
        for name in ["first", "second"] {
            let ended = after.ended(name).expect("an end");
            assert_eq!((ended.exit_code, ended.reason.as_str()), (0, "Completed"), "{name}");
        }
        node.leaves_nothing().await;
        assert_eq!(node.starts("web", ["first", "second", "main"]), [1, 1, 1]);
    });
}

/// SCN-K21: the runtime has forgotten an init container that completed, and the next agent remembers how it ended.
#[test]
fn an_init_container_that_the_runtime_has_forgotten_stays_completed() {
    on_a_node(async |node| {
        let (init, main) = (Actor::new("init").does("exit 0"), Actor::new("main"));
        node.want("web", &manifest("web", &format!("initContainers:\n{init}\ncontainers:\n{main}")));
        node.start();
        let before = node.ready("web").await;
        node.kill().await;
        let instance = before.containers.iter().find(|container| container.name == "init").expect("an instance");
        let sandbox = node.path("state/runtime/sandboxes").join(&before.sandbox().id);
        std::fs::remove_dir_all(sandbox.join("containers").join(&instance.id)).expect("its directory");
        node.start();
        node.exit("web", "main", 1);
        let restarted = |seen: &Seen| seen.is_ready() && seen.counts(["main"]) == [1];
        let after = node.pod_when("web", "restarted", restarted).await;
        assert!(after.containers.iter().all(|container| container.name != "init"), "{:#?}", after.containers);
        assert_eq!(after.container("init"), before.container("init"));
        assert_eq!(after.ended("init").map(|ended| (ended.exit_code, ended.reason.as_str())), Some((0, "Completed")));
        assert_eq!(node.starts("web", ["init", "main"]), [1, 2]);
        node.leaves_nothing().await;
    });
}

/// SCN-K22: pods that have finished are not run again, those that finish while no agent is there neither, and those that
/// always run keep running.
#[test]
fn finished_pods_stay_finished() {
    on_a_node(async |node| {
        for name in ["done", "broken", "late"] {
            node.want(name, &manifest(name, &format!("restartPolicy: Never\ncontainers:\n{}", Actor::new("main"))));
        }
        node.want("web", &manifest("web", &format!("containers:\n{}", Actor::new("main"))));
        node.start();
        for name in ["done", "broken", "late", "web"] {
            node.ready(name).await;
        }
        node.exit("done", "main", 0);
        node.exit("broken", "main", 3);
        let mut before = Vec::new();
        for (name, phase) in [("done", Phase::Succeeded), ("broken", Phase::Failed)] {
            before
                .push((name, node.pod_until(name, "over", |seen| seen.is_over() && seen.status.phase == phase).await));
        }
        before.push(("web", node.ready("web").await));
        node.kill().await;
        node.exit("late", "main", 0);
        node.written("end late.main", 1).await;
        node.start();
        node.pod_until("late", "over", |seen| seen.is_over() && seen.status.phase == Phase::Succeeded).await;
        for (name, before) in before {
            let now = node.see(name).await.expect("the pod");
            assert_eq!((&now.status, now.running()), (&before.status, before.running()), "{name}");
        }
        for name in ["done", "broken", "late", "web"] {
            assert_eq!(node.starts(name, ["main"]), [1], "{name}");
        }
        node.leaves_nothing().await;
    });
}

/// SCN-K25, KEEP-8: the agent is killed in the middle of startup. Started stays false, nothing but the startup probe is
/// asked, and it completes later.
#[test]
fn startup_goes_on_after_an_agent_restart() {
    on_a_node(async |node| {
        let probe = |kind: &str, threshold: u32| {
            let command = format!("echo {kind} >>/ctl/diary; test -e /ctl/{kind}");
            let timing = format!("periodSeconds: 1, timeoutSeconds: 20, failureThreshold: {threshold}");
            format!("{kind}Probe: {{exec: {{command: [sh, -c, {command:?}]}}, {timing}}}")
        };
        let main =
            Actor::new("main").with(&probe("startup", 600)).with(&probe("liveness", 1)).with(&probe("readiness", 1));
        node.want("web", &manifest("web", &format!("containers:\n{main}")));
        node.start();
        node.written("startup", 2).await;
        let before = node.pod_when("web", "starting", |seen| seen.runs("main")).await;
        node.kill().await;
        node.start();
        let asked = node.times("startup");
        node.written("startup", asked + 2).await;
        let now = node.see("web").await.expect("the pod");
        assert_eq!((&now.status, now.bits("main")), (&before.status, (false, false)));
        assert_eq!((node.times("liveness"), node.times("readiness")), (0, 0));
        for file in ["liveness", "readiness", "startup"] {
            node.touch(file);
        }
        let after = node.ready("web").await;
        assert_eq!((after.restarts("main"), after.running()), (Some(0), before.running()));
    });
}

/// SCN-K26, KEEP-13: a container ends while no agent is there: it is restarted once, counted once, and asked anew.
#[test]
fn a_container_that_ends_without_an_agent_is_restarted_by_the_next() {
    on_a_node(async |node| {
        let pod = Pod::new(Shape::Several, BOTH);
        pod.want(node);
        node.start();
        let before = node.ready(&pod.name).await;
        node.kill().await;
        let asked = node.times(&format!("startup {}.main", pod.name));
        node.exit(&pod.name, "main", 3);
        node.written(&format!("end {}.main", pod.name), 1).await;
        node.start();
        let again = |seen: &Seen| seen.is_ready() && seen.restarts("main") == Some(1);
        let after = node.pod_when(&pod.name, "ready again", again).await;
        assert_eq!(after.history("main"), (3, "Error"));
        assert_eq!(after.readiness("main"), [true, false, true]);
        assert_eq!(node.times(&format!("startup {}.main", pod.name)), asked + 1);
        for name in ["more", "most"] {
            assert_eq!((after.running_id(name), after.restarts(name)), (before.running_id(name), Some(0)), "{name}");
        }
        assert_eq!(after.sandbox(), before.sandbox());
    });
}

/// KEEP-15: an agent that was away for longer than the node monitor grace asks before it believes; started is
/// believed all along.
#[test]
fn a_long_absence_makes_readiness_doubtful() {
    on_a_node(async |node| {
        node.configure("--node-monitor-grace-period=2");
        let pods = [NONE, STARTUP, READINESS, BOTH].map(|probes| Pod::new(Shape::One, probes));
        let before = ready(node, &pods).await;
        node.kill().await;
        sleep(Duration::from_secs(4)).await;
        node.start();
        at_work(node, &pods).await;
        for (pod, before) in pods.iter().zip(&before) {
            let after = node.ready(&pod.name).await;
            let expected: &[bool] = if pod.asks_on() { &[true, false, true] } else { &[true] };
            assert_eq!(after.readiness("main"), expected, "{}", pod.name);
            assert_eq!((after.running(), after.bits("main")), (before.running(), (true, true)), "{}", pod.name);
            assert_eq!(node.starts(&pod.name, ["main"]), [1], "{}", pod.name);
        }
    });
}

/// A file that cannot be used keeps the pods that came from it, and no others: what is taken out of the directory while no
/// agent runs goes, whatever else is there.
#[test]
fn what_was_taken_away_without_an_agent_goes_beside_a_file_that_is_no_manifest() {
    on_a_node(async |node| {
        for name in ["goes", "stays"] {
            node.want(name, &manifest(name, &format!("containers:\n{}", Actor::new("main"))));
        }
        node.start();
        node.ready("goes").await;
        let before = node.ready("stays").await;
        node.kill().await;
        node.want_no_more("goes");
        node.put("manifests/README", "What is here runs.\n");
        // A user was interrupted.
        node.put("manifests/stays.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {");
        node.start();
        node.gone("goes").await;
        let after = node.ready("stays").await;
        assert_eq!((after.uid.as_str(), after.running()), (before.uid.as_str(), before.running()));
        let log = node.log();
        let line = log.lines().find(|line| line.contains("(still running by an older version: default/stays)"));
        assert!(line.is_some_and(|line| line.contains("stays.yaml")), "{log}");
        node.leaves_nothing().await;
    });
}
