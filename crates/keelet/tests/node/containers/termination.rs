//! Grace periods, hooks and signals.

use keelet_harness::{Actor, Node, Seen};
use keelet_lifecycle::{journal::What, operation::KillReason, status::Phase};
use keelet_pod::ProbeKind;

use super::{pod, sidecar};
use crate::on_a_node;

/// A hook.
fn hook(kind: &str) -> String {
    format!("lifecycle: {{preStop: {kind}}}")
}

/// A hook that is a script.
fn script(text: &str) -> String {
    hook(&format!("{{exec: {{command: [sh, -c, {text:?}]}}}}"))
}

/// SCN-T1, SCN-T4, SCN-T5, SCN-T6, SCN-S14: pods that are deleted.
#[test]
fn pods_end_with_their_hooks_and_their_grace() {
    on_a_node(async |node| {
        node.start();
        let node = &*node;
        tokio::join!(
            a_deaf_container_is_killed_at_the_end_of_its_grace(node),
            a_hook_that_takes_too_long_is_not_waited_for(node),
            a_hook_comes_before_the_signal(
                node,
                "exec",
                "{exec: {command: [sh, -c, echo asked /goodbye exec.main >>/ctl/diary]}}"
            ),
            a_hook_comes_before_the_signal(node, "http", "{httpGet: {path: /goodbye, port: 8080}}"),
            a_hook_comes_before_the_signal(node, "https", "{httpGet: {path: /goodbye, port: 8080, scheme: HTTPS}}"),
            a_sleep_of_no_time_is_a_hook(node),
            a_hook_of_what_has_ended_is_not_run(node),
            sidecars_stop_in_reverse_order(node),
            a_killed_container_shows_137_and_error(node),
        );
        node.leaves_nothing().await;
    });
}

/// SCN-T1, SCN-T6: it is asked once, and killed; the grace period is the pod's.
async fn a_deaf_container_is_killed_at_the_end_of_its_grace(node: &Node) {
    let deaf = Actor::new("main").on_term(":").does("(while :; do say beat; sleep 0.5; done) &");
    // Long enough for it to go on, however busy the machine is.
    node.want("t1", &pod("t1", "terminationGracePeriodSeconds: 12", &[], &[deaf]));
    node.ready("t1").await;
    node.want_no_more("t1");
    node.gone("t1").await;
    assert_eq!((node.times("term t1.main"), node.times("end t1.main")), (1, 0));
    // It went on with what it did after it was asked.
    let diary = node.diary();
    let beats = diary[node.first("term t1.main")..].iter().filter(|line| *line == "beat t1.main").count();
    assert!(beats >= 2, "{beats} beats after the signal");
}

/// SCN-T1: at the end of the grace period the signal comes although the hook has not ended, and the kill after it.
async fn a_hook_that_takes_too_long_is_not_waited_for(node: &Node) {
    let main = Actor::new("main")
        .on_term(":")
        .with(&script("echo hook t1h >>/ctl/diary; sleep 601; echo hooked t1h >>/ctl/diary"));
    // Long enough for the hook to begin, however busy the machine is.
    node.want("t1h", &pod("t1h", "terminationGracePeriodSeconds: 12", &[], &[main]));
    node.ready("t1h").await;
    node.want_no_more("t1h");
    node.gone("t1h").await;
    node.in_order(&["start t1h.main", "hook t1h"]);
    // Two seconds lie between signal and kill, in which a busy machine may not let it say that it was told.
    match node.times("term t1h.main") {
        0 => {}
        told => {
            assert_eq!(told, 1);
            node.in_order(&["hook t1h", "term t1h.main"]);
        }
    }
    assert_eq!((node.times("hooked t1h"), node.times("hook t1h"), node.processes("sleep 601")), (0, 1, 0));
}

/// SCN-T4.
async fn a_hook_comes_before_the_signal(node: &Node, kind: &str, handler: &str) {
    let listens = "startupProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 60}";
    let main = Actor::new("main").serves_pages().with(listens).with(&hook(handler));
    node.want(kind, &pod(kind, "", &[], &[main]));
    node.ready(kind).await;
    node.want_no_more(kind);
    node.gone(kind).await;
    node.in_order(&[&format!("asked /goodbye {kind}.main"), &format!("term {kind}.main"), &format!("end {kind}.main")]);
    assert_eq!(node.times(&format!("asked /goodbye {kind}.main")), 1, "{kind}");
}

/// SCN-T4.
async fn a_sleep_of_no_time_is_a_hook(node: &Node) {
    let actors = [
        Actor::new("none").with(&hook("{sleep: {seconds: 0}}")),
        Actor::new("some").with(&hook("{sleep: {seconds: 1}}")),
        Actor::new("much").with(&hook("{sleep: {seconds: 600}}")),
    ];
    node.want("t4s", &pod("t4s", "terminationGracePeriodSeconds: 600", &[], &actors));
    node.ready("t4s").await;
    node.want_no_more("t4s");
    // The signal of one waits for its own sleep only.
    node.written("end t4s.none", 1).await;
    node.written("end t4s.some", 1).await;
    assert_eq!(node.times("term t4s.much"), 0);
    node.kill_container(&node.see("t4s").await.expect("the pod"), "much");
    node.gone("t4s").await;
    assert_eq!((node.times("term t4s.none"), node.times("term t4s.some")), (1, 1));
}

/// SCN-T4.
async fn a_hook_of_what_has_ended_is_not_run(node: &Node) {
    let say = |name: &str| script(&format!("echo hook t4e.{name} >>/ctl/diary"));
    let actors = [Actor::new("main").with(&say("main")), Actor::new("done").with(&say("done"))];
    node.want("t4e", &pod("t4e", "restartPolicy: Never", &[], &actors));
    node.ready("t4e").await;
    node.exit("t4e", "done", 0);
    node.pod_until("t4e", "half done", |seen| seen.ended("done").is_some()).await;
    node.want_no_more("t4e");
    node.gone("t4e").await;
    assert_eq!((node.times("hook t4e.main"), node.times("hook t4e.done"), node.times("term t4e.done")), (1, 0, 0));
}

/// SCN-S14: regular containers first, then sidecars, the last one first; hooks all at once.
async fn sidecars_stop_in_reverse_order(node: &Node) {
    let hooked = |actor: Actor, name: &str| {
        actor
            .on_term("for one in first second main; do until grep -qx hook.s14.$one diary; do nap; done; done; exit 0")
            .with(&script(&format!("echo hook s14 >>/ctl/diary; echo hook s14.{name} >>/ctl/diary")))
    };
    let init = [hooked(sidecar("first"), "first"), hooked(sidecar("second"), "second")];
    node.want("s14", &pod("s14", "", &init, &[hooked(Actor::new("main"), "main")]));
    node.ready("s14").await;
    node.want_no_more("s14");
    node.gone("s14").await;
    node.in_order(&["end s14.main", "term s14.second", "end s14.second", "term s14.first", "end s14.first"]);
    for name in ["first", "second", "main"] {
        node.in_order(&[&format!("hook s14.{name}"), "end s14.main"]);
    }
    assert_eq!(node.times("hook s14"), 3);
}

/// SCN-T5: killed by another process, in a pod that never restarts.
async fn a_killed_container_shows_137_and_error(node: &Node) {
    node.want("t5", &pod("t5", "restartPolicy: Never", &[], &[Actor::new("main")]));
    let seen = node.ready("t5").await;
    node.kill_container(&seen, "main");
    let seen = node.pod_until("t5", "over", |seen| seen.status.phase.is_terminal()).await;
    let ended = seen.ended("main").expect("an end");
    assert_eq!((seen.status.phase, ended.exit_code, ended.reason.as_str()), (Phase::Failed, 137, "Error"));
}

/// SCN-T2, SCN-T3: a probe kills, and the hook is run first. During it readiness is asked and liveness is not; the same
/// when the pod is deleted.
#[test]
fn readiness_is_asked_during_a_hook_and_liveness_is_not() {
    on_a_node(async |node| {
        node.start();
        let node = &*node;
        tokio::join!(during_a_hook(node, "killed"), during_a_hook(node, "deleted"));
        node.leaves_nothing().await;
    });
}

async fn during_a_hook(node: &Node, name: &str) {
    let probe = |kind: &str| {
        let looks = format!("echo {kind} {name} >>/ctl/diary; test ! -e /ctl/{name}.{kind}.ill");
        format!(
            "{kind}Probe: {{exec: {{command: [sh, -c, {looks:?}]}}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 1}}"
        )
    };
    let goodbye = format!("echo hook {name} >>/ctl/diary; until [ -e /ctl/{name}.bye ]; do sleep 0.2; done");
    let main = Actor::new("main").with(&probe("readiness")).with(&probe("liveness")).with(&script(&goodbye));
    node.want(name, &pod(name, "terminationGracePeriodSeconds: 600", &[], &[main]));
    node.ready(name).await;
    node.written(&format!("liveness {name}"), 1).await;
    match name {
        "deleted" => node.want_no_more(name),
        _ => node.touch(&format!("{name}.liveness.ill")),
    }
    node.written(&format!("hook {name}"), 1).await;
    let readiness = format!("readiness {name}");
    let asked = node.times(&readiness);
    node.written(&readiness, asked + 2).await;
    let liveness = node.times(&format!("liveness {name}"));
    assert!(node.see(name).await.expect("the pod").container("main").ready, "{name}: it says that it is");
    node.touch(&format!("{name}.readiness.ill"));
    node.pod_until(name, "unready", |seen: &Seen| !seen.container("main").ready && seen.runs("main")).await;
    let asked = node.times(&readiness);
    node.written(&readiness, asked + 4).await;
    // One that had begun before may write late.
    assert!(node.times(&format!("liveness {name}")) <= liveness + 1, "{name}: {:#?}", node.diary());
    assert_eq!(node.times(&format!("hook {name}")), 1, "{name}");
    assert_eq!(node.times(&format!("term {name}.main")), 0, "{name}");
    node.remove(&format!("{name}.readiness.ill"));
    if name == "killed" {
        // No probe runs now, and the next instance is well from its beginning.
        node.remove(&format!("{name}.liveness.ill"));
    }
    node.touch(&format!("{name}.bye"));
    node.written(&format!("term {name}.main"), 1).await;
    if name == "killed" {
        let again = |seen: &Seen| seen.is_ready() && seen.restarts("main") == Some(1);
        let seen = node.pod_when(name, "restarted", again).await;
        let killed = |what: &What| matches!(what, What::Killing { reason: KillReason::Probe(ProbeKind::Liveness), .. });
        seen.place_of("a kill for liveness", killed);
    } else {
        node.gone(name).await;
    }
}
