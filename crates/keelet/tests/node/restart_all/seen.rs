//! What is seen of a restart of all containers.

use keelet_harness::{Actor, manifest};
use keelet_lifecycle::{
    journal::What,
    status::{ConditionType, Phase},
};

use super::{FOUR, RULE, assert_one_restart, assert_same_pod, is_restarting, up};
use crate::on_a_node;

/// SCN-A1, SCN-A8, SCN-A10, SCN-A22, SCN-A24, SCN-A28, RALL-13, RALL-14, RALL-20, CON-11, CON-12, CON-14: a regular
/// container triggers. All four kinds are restarted once, each has its history, UID, sandbox, address and volumes stay,
/// files of containers do not; the condition is True and then False, the phase Pending throughout, and no hook is run.
#[test]
fn a_regular_container_restarts_all() {
    on_a_node(async |node| {
        let setup = Actor::new("setup").does("echo round >>/kept/rounds; [ $run = 1 ] || await go; exit 0");
        let side = Actor::new("side").with("restartPolicy: Always");
        let source = Actor::new("source").with(RULE);
        let hook = "lifecycle: {preStop: {exec: {command: [sh, -c, echo hook >>/ctl/diary]}}}";
        let other = Actor::new("other").does("echo mine >>/tmp/mine; say made").with(hook);
        let pod = format!("restartPolicy: Never\ninitContainers:\n{setup}\n{side}\ncontainers:\n{source}\n{other}");
        node.want("four", &manifest("four", &pod));
        node.start();
        let before = node.ready("four").await;
        assert_eq!(node.starts("four", FOUR), [1; 4]);
        node.written("made four.other", 1).await;
        assert_eq!(node.run_in(&before, "other", "cat /kept/rounds /tmp/mine").await, "round\nmine");
        node.exit("four", "source", 42);

        // In the middle of it: all are gone, and the first one runs again.
        let during = |seen: &keelet_harness::Seen| seen.runs("setup") && seen.restarts("setup") == Some(1);
        let during = node.pod_when("four", "initializing again", during).await;
        assert!(!is_restarting(&during) && !during.is_ready());
        assert_eq!(during.status.phase, Phase::Pending);
        for kind in [ConditionType::Initialized, ConditionType::PodReadyToStartContainers, ConditionType::PodScheduled]
        {
            assert!(during.status.is_true(&kind), "{kind:?}: {:#?}", during.status.conditions);
        }
        for name in &FOUR[1..] {
            assert_eq!(during.waits_for(name), Some("RestartingAllContainers"), "{name}: {:#?}", during.status);
        }
        let condition = during.status.condition(&ConditionType::AllContainersRestarting).expect("a condition");
        assert_eq!(condition.reason.as_deref(), Some("ContainersRemoved"));
        let message = condition.message.as_deref().unwrap_or_default();
        assert!(message.contains("source") && message.contains("42"), "{message}");

        node.touch("go");
        let after = up(node, "four", FOUR, [1; 4]).await;
        assert_same_pod(&before, &after);
        assert_eq!(node.starts("four", FOUR), [2; 4]);
        assert_eq!(after.history("source"), (42, "Error"));
        assert_eq!(after.history("setup"), (0, "RestartingAllContainers"));
        assert_eq!(after.history("side"), (137, "RestartingAllContainers"));
        assert_eq!(after.history("other"), (137, "RestartingAllContainers"));
        for name in FOUR {
            let id = before.container(name).container_id.as_ref();
            assert_eq!(after.last(name).container_id.as_ref(), id, "{name}");
            assert!(after.last(name).started_at.is_some() && after.last(name).finished_at.is_some(), "{name}");
        }
        assert_one_restart(&after);
        assert_eq!(after.phases(), [Phase::Pending, Phase::Running, Phase::Pending, Phase::Running]);
        assert_eq!(after.transitions(&ConditionType::Initialized).last(), Some(&true));
        // It was True before anything was killed.
        let begun = after.place_of("the condition", |what| {
            matches!(what, What::Condition { kind: ConditionType::AllContainersRestarting, .. })
        });
        let killed = after.place_of("a kill", |what| matches!(what, What::Killing { .. }));
        assert!(begun < killed, "{:#?}", after.journal);

        node.written("made four.other", 2).await;
        assert_eq!(node.run_in(&after, "other", "cat /kept/rounds /tmp/mine").await, "round\nround\nmine");
        assert_eq!((node.times("hook"), node.times("term four.other"), node.times("end four.other")), (0, 0, 0));
        // The hook is one that would have been run.
        node.leaves_nothing().await;
        assert_eq!((node.times("hook"), node.times("term four.other")), (1, 1));
    });
}

/// SCN-A27, SCN-A24, CON-16, RALL-25: ten victims that do not care for SIGTERM are restarted at once: they are not even
/// asked.
#[test]
fn ten_stubborn_victims_are_not_asked() {
    on_a_node(async |node| {
        let names = ["v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "source"];
        let victims: String = names[..10].iter().map(|name| format!("\n{}", Actor::new(name).on_term(":"))).collect();
        let source = Actor::new("source").with(RULE);
        let pod = manifest(
            "many",
            &format!("restartPolicy: Never\nterminationGracePeriodSeconds: 1\ncontainers:\n{source}{victims}"),
        );
        node.want("many", &pod);
        node.start();
        let before = node.ready("many").await;
        node.exit("many", "source", 42);
        let after = up(node, "many", names, [1; 11]).await;
        assert_same_pod(&before, &after);
        assert_eq!(node.starts("many", names), [2; 11]);
        for name in &names[..10] {
            assert_eq!(after.history(name), (137, "RestartingAllContainers"), "{name}");
            assert_eq!(node.times(&format!("term many.{name}")), 0, "{name}");
        }
        node.leaves_nothing().await;
    });
}

/// CON-15, SCN-A24: a pod may ask for a soft stop: SIGTERM first, and then SIGKILL; one that exits by itself keeps its own exit
/// code, and still no hook is run.
#[test]
fn a_soft_stop_asks_first() {
    on_a_node(async |node| {
        let hook = "lifecycle: {preStop: {exec: {command: [sh, -c, echo hook >>/ctl/diary]}}}";
        let (source, polite) = (Actor::new("source").with(RULE), Actor::new("polite").on_term("exit 7").with(hook));
        let deaf = Actor::new("deaf").on_term(":").with(hook);
        let pod = manifest("soft", &format!("restartPolicy: Never\ncontainers:\n{source}\n{polite}\n{deaf}"));
        // Long enough for a busy machine to let both say that they were asked.
        node.want("soft", &super::softly(&pod, 10));
        node.start();
        let before = node.ready("soft").await;
        node.exit("soft", "source", 42);
        let after = up(node, "soft", ["source", "polite", "deaf"], [1; 3]).await;
        assert_same_pod(&before, &after);
        assert_eq!(after.history("polite"), (7, "RestartingAllContainers"));
        assert_eq!(after.history("deaf"), (137, "RestartingAllContainers"));
        let told = ["term soft.polite", "end soft.polite", "term soft.deaf", "end soft.deaf", "hook"];
        assert_eq!(told.map(|line| node.times(line)), [1, 1, 1, 0, 0]);
    });
}

/// SCN-A23, RALL-13: an ephemeral container is none of those restarted: it runs on as it was.
#[test]
fn an_ephemeral_container_runs_on() {
    on_a_node(async |node| {
        let (source, other, debug) = (Actor::new("source").with(RULE), Actor::new("other"), Actor::new("debug"));
        let pod = format!("restartPolicy: Never\ncontainers:\n{source}\n{other}\nephemeralContainers:\n{debug}");
        node.want("debugged", &manifest("debugged", &pod));
        node.start();
        let before =
            node.pod_when("debugged", "ready with its guest", |seen| seen.is_ready() && seen.runs("debug")).await;
        node.exit("debugged", "source", 42);
        let after = up(node, "debugged", ["source", "other"], [1; 2]).await;
        assert_eq!(after.container("debug"), before.container("debug"));
        assert_eq!(after.pid("debug"), before.pid("debug"));
        assert_eq!(node.times("start debugged.debug"), 1);
        assert_eq!(after.sandbox(), before.sandbox());
        node.leaves_nothing().await;
    });
}
