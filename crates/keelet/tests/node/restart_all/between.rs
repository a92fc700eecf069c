//! What may come between: the agent dies, the node reboots, the pod is deleted.

use std::time::Duration;

use keelet_harness::{Actor, Node, Seen, manifest};
use keelet_lifecycle::{journal::What, status::ConditionType};
use tokio::time::sleep;

use super::{FOUR, RULE, assert_one_restart, assert_same_pod, four, has_restarted, is_restarting, softly, up};
use crate::on_a_node;

const ELEVEN: [&str; 11] = ["source", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10"];

fn eleven(name: &str) -> String {
    let rest: String = ELEVEN[1..].iter().map(|name| format!("\n{}", Actor::new(name))).collect();
    manifest(name, &format!("restartPolicy: Never\ncontainers:\n{}{rest}", Actor::new("source").with(RULE)))
}

/// SCN-A6, SCN-A8, RALL-37, RALL-38: the agent is killed while eleven containers are being killed and removed, and then
/// again and again. Each is restarted exactly once.
#[test]
fn the_agent_is_killed_while_containers_are_removed() {
    on_a_node(async |node| {
        let pods = ["one", "two"];
        for pod in pods {
            node.want(pod, &eleven(pod));
        }
        node.start();
        let before = [node.ready("one").await, node.ready("two").await];
        node.exit("one", "source", 42);
        node.pod_until("one", "restarting", has_restarted).await;
        node.exit("two", "source", 42);
        for alive in [0, 60, 150, 300] {
            sleep(Duration::from_millis(alive)).await;
            node.kill().await;
            node.start();
        }
        for (pod, before) in pods.iter().zip(before) {
            let after = up(node, pod, ELEVEN, [1; 11]).await;
            assert_same_pod(&before, &after);
            assert_eq!(node.starts(pod, ELEVEN), [2; 11], "{pod}");
            assert_eq!(after.history("source"), (42, "Error"));
            assert_one_restart(&after);
        }
        node.leaves_nothing().await;
    });
}

/// SCN-A6: the same while the victims take their time, so that the agent dies in the middle for sure.
#[test]
fn the_agent_is_killed_while_victims_take_their_time() {
    on_a_node(async |node| {
        let (source, deaf) = (Actor::new("source").with(RULE), Actor::new("deaf").on_term(":"));
        let pod = manifest("slow", &format!("restartPolicy: Never\ncontainers:\n{source}\n{deaf}"));
        // Long enough for a busy machine to start and kill two agents meanwhile.
        node.want("slow", &softly(&pod, 20));
        node.start();
        let before = node.ready("slow").await;
        node.exit("slow", "source", 42);
        node.written("term slow.deaf", 1).await;
        for _ in 0..2 {
            node.kill().await;
            let seen = node.see("slow").await.expect("the pod");
            assert!(is_restarting(&seen) && seen.running().contains_key("deaf"), "{seen:#?}");
            node.start();
            sleep(Duration::from_millis(500)).await;
        }
        let after = up(node, "slow", ["source", "deaf"], [1, 1]).await;
        assert_same_pod(&before, &after);
        assert_eq!((after.history("source"), after.history("deaf")), ((42, "Error"), (137, "RestartingAllContainers")));
        assert_eq!(node.starts("slow", ["source", "deaf"]), [2, 2]);
        assert_one_restart(&after);
    });
}

/// SCN-A7, SCN-A8, RALL-35, RALL-38: the agent is killed while the init container runs again. It keeps running, also if it ends
/// while no agent is there, and nothing is counted twice.
#[test]
fn the_agent_is_killed_while_init_runs_again() {
    on_a_node(async |node| {
        for ends_meanwhile in [false, true] {
            let pod = if ends_meanwhile { "meanwhile" } else { "onwards" };
            node.want(pod, &four(pod, &format!("[ $run = 1 ] || await {pod}.go")));
        }
        node.start();
        let mut before = Vec::new();
        for pod in ["onwards", "meanwhile"] {
            before.push(node.ready(pod).await);
            node.exit(pod, "source", 42);
        }
        let again = |seen: &Seen| seen.runs("setup") && seen.restarts("setup") == Some(1);
        let onwards = node.pod_when("onwards", "initializing again", again).await;
        node.pod_when("meanwhile", "initializing again", again).await;
        node.kill().await;
        node.touch("meanwhile.go");
        node.written("end meanwhile.setup", 2).await;
        node.start();
        let after = up(node, "meanwhile", FOUR, [1; 4]).await;
        assert_same_pod(&before[1], &after);
        assert_eq!(node.see("onwards").await.expect("the pod").running(), onwards.running());
        node.touch("onwards.go");
        let after = up(node, "onwards", FOUR, [1; 4]).await;
        assert_same_pod(&before[0], &after);
        assert_one_restart(&after);
        for pod in ["onwards", "meanwhile"] {
            assert_eq!(node.starts(pod, FOUR), [2; 4], "{pod}");
        }
    });
}

/// SCN-A8, RALL-30, RALL-32, RALL-37: without an API server the ledger alone tells what has to happen, also where the
/// trigger exits while no agent is there.
#[test]
fn a_trigger_that_exits_without_an_agent_is_noticed() {
    on_a_node(async |node| {
        node.want("four", &four("four", ""));
        node.start();
        let before = node.ready("four").await;
        node.kill().await;
        node.exit("four", "source", 42);
        node.written("end four.source", 1).await;
        node.start();
        let after = up(node, "four", FOUR, [1; 4]).await;
        assert_same_pod(&before, &after);
        assert_eq!(after.history("source"), (42, "Error"));
        assert_one_restart(&after);
    });
}

/// SCN-A25, RALL-28: a pod is deleted while its containers are being killed. Nothing is started any more, and nothing is
/// left.
#[test]
fn a_pod_is_deleted_while_its_containers_are_killed() {
    on_a_node(async |node| {
        let (source, deaf) = (Actor::new("source").with(RULE), Actor::new("deaf").on_term(":"));
        let pod = format!("restartPolicy: Never\nterminationGracePeriodSeconds: 600\ncontainers:\n{source}\n{deaf}");
        node.want("slow", &softly(&manifest("slow", &pod), 600));
        node.start();
        node.ready("slow").await;
        node.exit("slow", "source", 42);
        node.written("term slow.deaf", 1).await;
        assert!(is_restarting(&node.see("slow").await.expect("the pod")));
        node.want_no_more("slow");
        let is_ending =
            |seen: &Seen| seen.journal.iter().any(|what| matches!(what, What::Ending { deleted: true, .. }));
        let seen = node.pod_until("slow", "ending", is_ending).await;
        // Only now does the last one go.
        node.kill_container(&seen, "deaf");
        node.leaves_nothing().await;
        assert_eq!(node.starts("slow", ["source", "deaf"]), [1, 1]);
    });
}

/// SCN-A26, RALL-33..RALL-36, RALL-39, RULE-11: the node reboots in the middle of a restart: while victims are being
/// stopped, and while init runs again. A normal start follows in a new sandbox, though the pods never restart by
/// themselves. A pod that was not being restarted ends.
#[test]
fn the_node_reboots_in_the_middle() {
    on_a_node(async |node| {
        // It is being stopped for as long as it takes until the reboot.
        let (source, deaf) = (Actor::new("source").with(RULE), Actor::new("deaf").on_term("[ $run = 1 ] || exit 0"));
        let killing =
            format!("restartPolicy: Never\nterminationGracePeriodSeconds: 600\ncontainers:\n{source}\n{deaf}");
        node.want("killing", &softly(&manifest("killing", &killing), 600));
        node.want("starting", &four("starting", "[ $run = 2 ] && await never"));
        let plain = manifest("plain", &format!("restartPolicy: Never\ncontainers:\n{}", Actor::new("main")));
        node.want("plain", &plain);
        node.start();
        let mut before = Vec::new();
        for pod in ["killing", "starting", "plain"] {
            before.push(node.ready(pod).await);
        }
        node.exit("killing", "source", 42);
        node.exit("starting", "source", 42);
        node.written("term killing.deaf", 1).await;
        let again = |seen: &Seen| seen.runs("setup") && seen.restarts("setup") == Some(1);
        node.pod_when("starting", "initializing again", again).await;
        node.reboot().await;
        node.start();
        let is_up = |seen: &Seen| seen.is_ready();
        for (pod, before) in ["killing", "starting"].iter().zip(&before) {
            let after = node.pod_when(pod, "up after the reboot", is_up).await;
            assert_ne!(after.sandbox().id, before.sandbox().id, "{pod}");
            assert_eq!(after.uid, before.uid);
            assert!(!after.phases().iter().any(|phase| phase.is_terminal()), "{pod}: {:?}", after.phases());
            assert!(!after.status.is_true(&ConditionType::AllContainersRestarting), "{pod}");
        }
        assert_eq!(node.starts("killing", ["source", "deaf"]), [2, 2]);
        assert_eq!(node.starts("starting", FOUR), [3, 2, 2, 2]);
        let over = node.pod_until("plain", "over", |seen| seen.status.phase.is_terminal()).await;
        assert_eq!((node.starts("plain", ["main"]), over.running().len()), ([1], 0));
        node.leaves_nothing().await;
    });
}

/// SCN-A21, RALL-24, DEF-5: a trigger in each instance. The first restart is immediate, the next ones are late, and the
/// trigger says that it waits.
#[test]
#[ignore = "takes minutes; make soak"]
fn a_loop_is_slowed_down() {
    on_a_node(async |node: &mut Node| {
        let (source, other) = (Actor::new("source").with(RULE).does("nap 1; exit 42"), Actor::new("other"));
        node.want("loop", &manifest("loop", &format!("restartPolicy: Never\ncontainers:\n{source}\n{other}")));
        node.start();
        for round in 1..=3_usize {
            node.written("end loop.source", round).await;
            if round > 1 {
                let waits = |seen: &Seen| {
                    seen.waits_for("source").is_some()
                        && seen.restarts("source") == Some(u32::try_from(round).unwrap_or(0))
                };
                let waiting = node.pod_until("loop", "waiting", waits).await;
                assert_eq!(node.times("start loop.source"), round, "{:#?}", waiting.status);
                assert_eq!(waiting.running().len(), 0, "all containers stop at once and wait before their start");
            }
            node.written("start loop.source", round + 1).await;
        }
        let seen = node.see("loop").await.expect("the pod");
        assert!(!seen.phases().iter().any(|phase| phase.is_terminal()), "{:?}", seen.phases());
    });
}
