//! The pods of `examples/`, as they are: each does what its first lines say.

use keelet_harness::{Node, Seen};
use keelet_lifecycle::journal::What;

use super::on_a_node;

/// FIX-1, FIX-2, FIX-6.
#[test]
fn examples_do_what_they_say() {
    on_a_node(async |node| {
        node.start();
        let node = &*node;
        tokio::join!(a_watcher_restarts_all(node), a_slow_starter_is_not_killed(node));
        node.leaves_nothing().await;
    });
}

/// FIX-1, FIX-6: the volume stays, so the second instance of the watcher knows that there was a first.
async fn a_watcher_restarts_all(node: &Node) {
    const NAMES: [&str; 3] = ["setup", "watcher", "trainer"];
    node.want("restart-all", include_str!("../../../../examples/restart-all.yaml"));
    let before = node.pod_until("restart-all", "Ready", Seen::is_ready).await;
    let restarted = |seen: &Seen| seen.is_ready() && seen.counts(NAMES) == [1; 3];
    let after = node.pod_until("restart-all", "restarted", restarted).await;
    assert_eq!(after.history("watcher").0, 88);
    assert_eq!((&after.uid, after.sandbox()), (&before.uid, before.sandbox()));
    assert!(!after.phases().iter().any(|phase| phase.is_terminal()), "{:?}", after.phases());
    let rounds = format!("root/pods/{}/volumes/kubernetes.io~empty-dir/work/rounds", after.uid);
    let rounds = std::fs::read_to_string(node.path(&rounds)).expect("the volume");
    assert_eq!(rounds.lines().count(), 2, "{rounds}");
}

/// FIX-2: liveness would kill it three times over, and waits.
async fn a_slow_starter_is_not_killed(node: &Node) {
    node.want("slow-starter", include_str!("../../../../examples/slow-starter.yaml"));
    let early = node.pod_until("slow-starter", "running", |seen| seen.runs("server")).await;
    assert_eq!(early.bits("server"), (false, false));
    let late = node.pod_until("slow-starter", "Ready", Seen::is_ready).await;
    assert_eq!(late.bits("server"), (true, true));
    // A container with an unforgiving probe may be too slow later on a busy machine, but that was later.
    let started = late.place_of("startup", |what| matches!(what, What::Started { value: true, .. }));
    let killed = |what: &What| matches!(what, What::Killing { .. } | What::Exited { .. });
    assert!(!late.journal[..started].iter().any(killed), "{:#?}", late.journal);
}
