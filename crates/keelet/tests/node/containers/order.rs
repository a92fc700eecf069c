//! What comes before what when a pod starts: conditions, hooks, and all of it once more after a reboot.

use keelet_harness::{Actor, Node, Seen};
use keelet_lifecycle::{
    journal::What,
    status::{ConditionType, Phase, Truth},
};

use super::{pod, sidecar};
use crate::on_a_node;

/// SCN-C3, SCN-S17, STAT-11.
#[test]
fn a_fresh_pod_takes_one_step_after_the_other() {
    on_a_node(async |node| {
        node.start();
        let node = &*node;
        tokio::join!(
            conditions_become_true_in_order(node, true),
            conditions_become_true_in_order(node, false),
            a_volume_that_is_not_there_holds_up_the_pod(node, true),
            a_volume_that_is_not_there_holds_up_the_pod(node, false),
            a_hook_holds_up_the_next_container(node),
            termination_messages_are_cut(node),
        );
        node.leaves_nothing().await;
    });
}

/// Where in the journal a condition turns True first.
fn turns_true(seen: &Seen, of: &ConditionType) -> usize {
    let is = |what: &What| matches!(what, What::Condition { kind, status: Truth::True, .. } if kind == of);
    seen.place_of(&format!("{of:?} is True"), is)
}

/// SCN-C3.
async fn conditions_become_true_in_order(node: &Node, with_init: bool) {
    use ConditionType::{ContainersReady, Initialized, PodReadyToStartContainers, PodScheduled, Ready};
    let name = if with_init { "c3-init" } else { "c3" };
    let init: Vec<_> = with_init.then(|| Actor::new("init").does("nap 1.2; exit 0")).into_iter().collect();
    let probe = "readinessProbe: {exec: {command: ['true']}, initialDelaySeconds: 2, timeoutSeconds: 20}";
    let main = Actor::new("main").with(probe);
    node.want(name, &pod(name, "", &init, &[main]));
    let seen = node.ready(name).await;
    let all = [PodScheduled, PodReadyToStartContainers, Initialized, ContainersReady, Ready];
    let [scheduled, to_start, initialized, containers, ready] = all.each_ref().map(|kind| turns_true(&seen, kind));
    assert!(scheduled <= to_start && to_start < containers.min(ready), "{name}: {:#?}", seen.journal);
    assert!(initialized < containers.min(ready), "{name}: {:#?}", seen.journal);
    if with_init {
        assert!(to_start < initialized, "{name}: {:#?}", seen.journal);
        node.in_order(&["end c3-init.init", "start c3-init.main"]);
        let times: Vec<_> = all.iter().filter_map(|kind| seen.status.condition(kind)?.last_transition_time).collect();
        assert!(times.len() == all.len() && times.is_sorted(), "{times:?}");
    } else {
        // There is nothing to wait for.
        assert!(initialized <= to_start, "{name}: {:#?}", seen.journal);
    }
}

/// SCN-C3.
async fn a_volume_that_is_not_there_holds_up_the_pod(node: &Node, with_init: bool) {
    use ConditionType::{ContainersReady, Initialized, PodReadyToStartContainers, PodScheduled, Ready};
    let name = if with_init { "unmounted-init" } else { "unmounted" };
    let init: Vec<_> = with_init.then(|| Actor::new("init").does("exit 0")).into_iter().collect();
    let missing = node.path(&format!("missing-{name}"));
    let volume = format!("{{name: kept, hostPath: {{path: {}, type: Directory}}}}", missing.display());
    let manifest = pod(name, "", &init, &[Actor::new("main")]).replace("{name: kept, emptyDir: {}}", &volume);
    node.want(name, &manifest);
    let is_told = |seen: &Seen| seen.status.is_true(&PodScheduled);
    let seen = node.pod_until(name, "told of", is_told).await;
    assert_eq!(seen.status.is_true(&Initialized), !with_init, "{name}");
    for kind in [PodReadyToStartContainers, ContainersReady, Ready] {
        assert!(!seen.status.is_true(&kind), "{name}: {kind:?}");
    }
    keelet_harness::eventually("the reason to be told", async || {
        let told = |line: &str| line.contains("FailedMount") && line.contains(&format!("pod=\"default/{name}\""));
        if node.log().lines().any(told) { Ok(()) } else { Err("no log line says why") }
    })
    .await;
    assert_eq!((seen.sandboxes.len(), node.starts(name, ["init", "main"])), (0, [0, 0]), "{name}");
    // It goes on once the directory is there.
    std::fs::create_dir(&missing).expect("a directory");
    node.ready(name).await;
}

/// SCN-S17.
async fn a_hook_holds_up_the_next_container(node: &Node) {
    let hook = "until [ -e /ctl/s17.hook ]; do sleep 0.1; done; echo hook >>/ctl/diary";
    let main = Actor::new("main").with(&format!("lifecycle: {{postStart: {{exec: {{command: [sh, -c, {hook:?}]}}}}}}"));
    node.want("s17", &pod("s17", "", &[Actor::new("init").does("exit 0")], &[main, Actor::new("other")]));
    node.written("start s17.main", 1).await;
    // The agent has the time: a pod that is wanted only now comes to run meanwhile.
    node.want("s17-later", &pod("s17-later", "", &[Actor::new("init").does("exit 0")], &[Actor::new("main")]));
    node.ready("s17-later").await;
    assert_eq!(node.starts("s17", ["other"]), [0]);
    node.touch("s17.hook");
    node.ready("s17").await;
    node.in_order(&["end s17.init", "start s17.main", "hook", "start s17.other"]);
}

/// STAT-11.
async fn termination_messages_are_cut(node: &Node) {
    let words = "printf 'x%.0s' $(seq 5000) >/dev/termination-log; exit 3";
    let lines = "seq 200; exit 4";
    let fallback = "terminationMessagePolicy: FallbackToLogsOnError";
    let actors = [Actor::new("words").does(words), Actor::new("lines").does(lines).with(fallback)];
    node.want("words", &pod("words", "restartPolicy: Never", &[], &actors));
    let seen = node.pod_until("words", "over", Seen::is_over).await;
    let message = |name: &str| seen.ended(name).map(|ended| ended.message.clone()).unwrap_or_default();
    assert_eq!(message("words"), "x".repeat(4096));
    let tail: Vec<_> = (121..=200).map(|number| number.to_string()).collect();
    assert_eq!(message("lines").trim_end().lines().collect::<Vec<_>>(), tail);
}

/// SCN-S15.
#[test]
fn a_reboot_starts_all_containers_again_in_the_right_order() {
    on_a_node(async |node| {
        let init = |name: &str| Actor::new(name).does("exit 0");
        node.want("plain", &pod("plain", "", &[init("one"), init("two")], &[Actor::new("main")]));
        // The one after the sidecar ends once the sidecar of the same boot is at work.
        let two = Actor::new("two").does("hear \"start $HOSTNAME.side\" $run; exit 0");
        let all = [init("one"), sidecar("side"), two];
        node.want("sides", &pod("sides", "", &all, &[Actor::new("main")]));
        node.start();
        let before = [node.ready("plain").await, node.ready("sides").await];
        node.reboot().await;
        let first_instances = node.diary().len();
        node.start();
        for (name, before) in ["plain", "sides"].into_iter().zip(before) {
            let back = |seen: &Seen| seen.is_ready() && seen.counts(["main"]) == [1];
            let after = node.pod_when(name, "back", back).await;
            assert_ne!(after.sandbox().id, before.sandbox().id, "{name}");
            assert_eq!((&after.uid, after.status.phase), (&before.uid, Phase::Running), "{name}");
        }
        let diary = node.diary();
        let second_instances: Vec<_> = diary[first_instances..].iter().map(String::as_str).collect();
        let at = |line: &str| {
            let found = second_instances.iter().position(|found| *found == line);
            found.unwrap_or_else(|| panic!("no {line:?} in {second_instances:#?}"))
        };
        for order in [
            &["end plain.one", "start plain.two", "end plain.two", "start plain.main"][..],
            &["end sides.one", "start sides.two", "end sides.two", "start sides.main"][..],
            &["end sides.one", "start sides.side", "end sides.two"][..],
        ] {
            let places: Vec<_> = order.iter().map(|line| at(line)).collect();
            assert!(places.is_sorted(), "{order:?} are at {places:?} of {second_instances:#?}");
        }
        node.leaves_nothing().await;
    });
}
