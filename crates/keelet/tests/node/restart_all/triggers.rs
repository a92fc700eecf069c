//! What may trigger RestartAllContainers, and that each trigger restarts each container once.

use keelet_harness::{Actor, Node, Seen, manifest};
use keelet_lifecycle::status::{ConditionType, Phase};

use super::{FOUR, RULE, SIDECAR_RULE, assert_one_restart, assert_same_pod, up};
use crate::on_a_node;

/// SCN-A2, SCN-A3, SCN-A4, SCN-A5, SCN-A11, DEF-16, RALL-26, RALL-27: whichever container triggers.
#[test]
fn each_container_is_restarted_once_whichever_triggers() {
    on_a_node(async |node| {
        node.start();
        let node = &*node;
        tokio::join!(
            a_sidecar_triggers(node),
            a_sidecar_triggers_and_main_ends_too(node),
            the_third_init_container_triggers(node),
            two_triggers_are_one_restart(node),
            a_kill_that_matches_a_rule_is_no_trigger(node),
            a_container_that_was_restarted_by_itself_triggers(node),
        );
        // Once more, now that time has passed: nothing was restarted again.
        assert_eq!(node.starts("two", ["one", "two"]), [2, 2]);
        assert_eq!(node.starts("any", ["one", "two"]), [2, 2]);
        node.leaves_nothing().await;
    });
}

/// SCN-A2.
async fn a_sidecar_triggers(node: &Node) {
    let (side, main) = (Actor::new("side").with(SIDECAR_RULE), Actor::new("main"));
    node.want("a2", &manifest("a2", &format!("restartPolicy: Never\ninitContainers:\n{side}\ncontainers:\n{main}")));
    let before = node.ready("a2").await;
    node.exit("a2", "side", 42);
    let after = up(node, "a2", ["side", "main"], [1, 1]).await;
    assert_same_pod(&before, &after);
    assert_eq!((after.history("side"), after.history("main")), ((42, "Error"), (137, "RestartingAllContainers")));
    assert_one_restart(&after);
}

/// SCN-A2, DEF-16: the main container may not restart, and ends right after the sidecar.
async fn a_sidecar_triggers_and_main_ends_too(node: &Node) {
    let side = Actor::new("side").with(SIDECAR_RULE).does("echo $BASHPID >d16.new; mv d16.new d16.pid");
    // Gone from the table of processes: the sidecar's end is known to its parent, whichever process that is.
    let gone = "await d16.pid; read -r pid <d16.pid; while [ -e /proc/$pid ]; do nap 0.01; done";
    let main = Actor::new("main").does(&format!("[ $run != 1 ] || {{ {gone}; exit 1; }}"));
    let pod =
        format!("restartPolicy: Never\nshareProcessNamespace: true\ninitContainers:\n{side}\ncontainers:\n{main}");
    node.want("d16", &manifest("d16", &pod));
    let before = node.ready("d16").await;
    node.exit("d16", "side", 42);
    let after = up(node, "d16", ["side", "main"], [1, 1]).await;
    assert_same_pod(&before, &after);
    assert_eq!(after.history("side"), (42, "Error"));
    let (code, reason) = after.history("main");
    assert!(
        matches!(code, 1 | 137) && reason == "RestartingAllContainers",
        "the victim's last exit: code {code}, reason {reason}"
    );
}

/// SCN-A3: what ran before is restarted, and the regular container starts for the first time.
async fn the_third_init_container_triggers(node: &Node) {
    let side = Actor::new("side").with("restartPolicy: Always");
    let setup = Actor::new("setup").does("exit 0");
    // The sidecar has begun its first instance by then.
    let source = Actor::new("source").does("hear \"start $HOSTNAME.side\"; [ $run = 1 ] && exit 42; exit 0").with(RULE);
    let main = Actor::new("main");
    let pod = format!("restartPolicy: Never\ninitContainers:\n{side}\n{setup}\n{source}\ncontainers:\n{main}");
    node.want("a3", &manifest("a3", &pod));
    let names = ["side", "setup", "source", "main"];
    let after = up(node, "a3", names, [1, 1, 1, 0]).await;
    assert_eq!(node.starts("a3", names), [2, 2, 2, 1]);
    assert_eq!(after.history("source"), (42, "Error"));
    assert_eq!(after.history("setup"), (0, "RestartingAllContainers"));
    assert_eq!(after.history("side"), (137, "RestartingAllContainers"));
    assert!(after.container("main").last_state.is_none());
    assert_one_restart(&after);
}

/// SCN-A4, RALL-26: two containers end with the code at the same time.
async fn two_triggers_are_one_restart(node: &Node) {
    let trigger = |name: &str| Actor::new(name).does("[ $run = 1 ] && await two.go && exit 42").with(RULE);
    let (one, two) = (trigger("one"), trigger("two"));
    node.want("two", &manifest("two", &format!("restartPolicy: Never\ncontainers:\n{one}\n{two}")));
    let before = node.ready("two").await;
    node.touch("two.go");
    let after = up(node, "two", ["one", "two"], [1, 1]).await;
    assert_same_pod(&before, &after);
    assert_one_restart(&after);
}

/// SCN-A4, RALL-26: the kill of the other matches its own rule.
async fn a_kill_that_matches_a_rule_is_no_trigger(node: &Node) {
    let rule = "restartPolicy: Never, restartPolicyRules: \
                [{action: RestartAllContainers, exitCodes: {operator: NotIn, values: [0]}}]";
    let (one, two) = (Actor::new("one").with(rule), Actor::new("two").with(rule));
    node.want("any", &manifest("any", &format!("restartPolicy: Never\ncontainers:\n{one}\n{two}")));
    let before = node.ready("any").await;
    node.exit("any", "one", 3);
    let after = up(node, "any", ["one", "two"], [1, 1]).await;
    assert_same_pod(&before, &after);
    assert_eq!((after.history("one"), after.history("two")), ((3, "Error"), (137, "RestartingAllContainers")));
    assert_one_restart(&after);
}

/// SCN-A5, RALL-27: nothing of its first instance is left in the runtime either.
async fn a_container_that_was_restarted_by_itself_triggers(node: &Node) {
    let (setup, side) = (Actor::new("setup").does("exit 0"), Actor::new("side").with("restartPolicy: Always"));
    let (source, other) = (Actor::new("source").with(SIDECAR_RULE), Actor::new("other"));
    let pod = format!("initContainers:\n{setup}\n{side}\ncontainers:\n{source}\n{other}");
    node.want("a5", &manifest("a5", &pod));
    node.ready("a5").await;
    node.exit("a5", "source", 1);
    let before = up(node, "a5", FOUR, [0, 0, 1, 0]).await;
    assert_eq!(before.history("source"), (1, "Error"));
    node.exit("a5", "source", 42);
    let after = up(node, "a5", FOUR, [1, 1, 2, 1]).await;
    assert_same_pod(&before, &after);
    assert_eq!(after.history("source"), (42, "Error"));
    assert_eq!(after.containers.len(), 4, "{:#?}", after.containers);
}

/// SCN-A11, RALL-23: init containers that trigger, and those that fail afterwards.
#[test]
fn init_containers_around_a_restart() {
    on_a_node(async |node| {
        node.start();
        let node = &*node;
        tokio::join!(
            an_init_container_triggers(node, "first", [1, 0, 0]),
            an_init_container_triggers(node, "second", [1, 1, 0]),
            an_init_container_fails_afterwards(node, "Never"),
            an_init_container_fails_afterwards(node, "Always"),
            a_sidecar_fails_before_the_regular_container_has_started(node, 1),
            a_sidecar_fails_before_the_regular_container_has_started(node, 42),
        );
        node.leaves_nothing().await;
    });
}

/// SCN-A11: the first or the second init container triggers, in its first instance.
async fn an_init_container_triggers(node: &Node, trigger: &str, counts: [u32; 3]) {
    let once = |name: &str| {
        let script = if name == trigger { "[ $run = 1 ] && exit 42; exit 0" } else { "exit 0" };
        Actor::new(name).does(script).with(RULE)
    };
    let (first, second, main) = (once("first"), once("second"), Actor::new("main"));
    let pod = format!("restartPolicy: Never\ninitContainers:\n{first}\n{second}\ncontainers:\n{main}");
    node.want(trigger, &manifest(trigger, &pod));
    let after = up(node, trigger, ["first", "second", "main"], counts).await;
    assert_eq!(after.history(trigger), (42, "Error"));
    assert_eq!(node.starts(trigger, ["main"]), [1]);
    assert!(!after.phases().iter().any(|phase| phase.is_terminal()), "{:?}", after.phases());
    assert_one_restart(&after);
}

/// SCN-A11, RALL-23: it ends a pod that never restarts, and is tried again in one that always does.
async fn an_init_container_fails_afterwards(node: &Node, policy: &str) {
    let name = policy.to_lowercase();
    let setup = Actor::new("setup").does("[ $run = 2 ] && exit 1; exit 0");
    let source = Actor::new("source").with(RULE);
    let pod = format!("restartPolicy: {policy}\ninitContainers:\n{setup}\ncontainers:\n{source}");
    node.want(&name, &manifest(&name, &pod));
    node.ready(&name).await;
    node.exit(&name, "source", 42);
    if policy == "Never" {
        let over = node.pod_until(&name, "Failed", |seen| seen.status.phase == Phase::Failed).await;
        assert_eq!(node.starts(&name, ["setup", "source"]), [2, 1]);
        let condition = over.status.condition(&ConditionType::AllContainersRestarting).expect("a condition");
        assert_eq!(condition.reason.as_deref(), Some("PodFailed"));
    } else {
        let after = up(node, &name, ["setup", "source"], [2, 1]).await;
        assert_eq!((after.history("setup"), after.history("source")), ((1, "Error"), (42, "Error")));
        assert!(!after.phases().iter().any(|phase| phase.is_terminal()), "{:?}", after.phases());
    }
}

/// SCN-A11: with the code of the rule all are restarted, otherwise it alone.
async fn a_sidecar_fails_before_the_regular_container_has_started(node: &Node, code: i32) {
    let name = format!("early-{code}");
    let side = Actor::new("side").with(SIDECAR_RULE);
    let setup = Actor::new("setup").does(&format!("await {name}.go; exit 0"));
    let main = Actor::new("main").with(RULE);
    let pod = format!("restartPolicy: Never\ninitContainers:\n{side}\n{setup}\ncontainers:\n{main}");
    node.want(&name, &manifest(&name, &pod));
    node.pod_when(&name, "initializing", |seen| seen.runs("side") && seen.runs("setup")).await;
    node.exit(&name, "side", code);
    let counts = if code == 42 { [1, 1, 0] } else { [1, 0, 0] };
    let names = ["side", "setup", "main"];
    let again = |seen: &Seen| seen.runs("side") && seen.runs("setup") && seen.counts(names) == counts;
    let again = node.pod_when(&name, "initializing again", again).await;
    assert_eq!(again.last("side").exit_code, code);
    assert_eq!(node.starts(&name, ["main"]), [0]);
    node.touch(&format!("{name}.go"));
    up(node, &name, names, counts).await;
}
