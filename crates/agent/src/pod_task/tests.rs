use std::sync::{Mutex, OnceLock};

use super::*;
use crate::{
    Extent,
    bed::{Bed, FaultyDisk, is_ready, pass, pod, pod_of, wanted},
    board::Board,
};

/// An observation that began before an operation ended says nothing about what that operation did.
#[tokio::test(start_paused = true)]
async fn a_look_that_began_before_an_operation_ended_starts_nothing_twice() {
    for making in ["RunPodSandbox", "CreateContainer"] {
        let (bed, web) = (Bed::new(), pod("web", "a"));
        bed.runtime.hold_back(making);
        let agent = bed.agent().await;
        agent.set_pods(wanted(&[&web]), Extent::Complete);
        bed.runtime.called(making).await;
        // An audit sees nothing of it yet, and is answered after the operation has ended.
        let observations = bed.runtime.calls("ListContainers a").len();
        bed.runtime.hold("ListContainers a");
        bed.runtime.called_often("ListContainers a", observations + 1).await;
        bed.runtime.release(making);
        pass(Duration::from_millis(10)).await;
        bed.runtime.release("ListContainers a");
        pass(Duration::from_secs(60)).await;
        assert_eq!(bed.runtime.calls(making).len(), 1, "a stale observation had it made twice");
        assert!(is_ready(agent.board(), "a"), "{making}: the pod does not run");
        let status = agent.board().statuses()["a"].status.clone();
        assert_eq!(status.container_statuses[0].restart_count, 0, "{making}: it was taken for lost");
        agent.stop().await;
    }
}

/// Evidence before action: the board shows a status after what it rests on is on disk.
#[tokio::test(start_paused = true)]
async fn a_status_is_published_after_its_evidence_is_written() {
    let (bed, web) = (Bed::new(), pod("web", "a"));
    let early = Arc::new(Mutex::new(Vec::new()));
    let board = Arc::new(OnceLock::<Arc<Board>>::new());
    let (shown, found) = (Arc::clone(&board), Arc::clone(&early));
    let disk = FaultyDisk::new(move |path| {
        let statuses = shown.get().map(|board| board.statuses()).unwrap_or_default();
        let version = statuses.get("a").map(|published| published.version);
        let committed = path.ends_with("run/pods/a/evidence.json");
        found.lock().expect("no panic").push((committed, version));
        Ok(())
    });
    let agent = bed.agent_on(disk).await;
    board.set(Arc::clone(agent.board())).expect("one agent");
    agent.set_pods(wanted(&[&web]), Extent::Complete);
    bed.runtime.called("StartContainer").await;
    pass(Duration::from_secs(10)).await;
    let seen = early.lock().expect("no panic").clone();
    let first = seen.iter().find(|(committed, _)| *committed);
    assert_eq!(first, Some(&(true, None)), "the first status was published before its evidence was written");
    assert!(is_ready(agent.board(), "a"), "nothing was ever published");
}

/// A probe that fails causes an observation of the pod, and counts with it: it does not wait for the next audit.
#[tokio::test(start_paused = true)]
async fn a_failed_probe_counts_at_once() {
    let bed = Bed::new();
    let web = pod_of(
        "metadata: {name: web, uid: a}\nspec: {containers: [{name: main, image: app, readinessProbe: {exec: {command: [up]}, \
         periodSeconds: 5, failureThreshold: 1}}]}\n",
    );
    let agent = bed.agent().await;
    agent.set_pods(wanted(&[&web]), Extent::Complete);
    pass(Duration::from_secs(61)).await;
    assert!(is_ready(agent.board(), "a"), "it never became ready");
    bed.runtime.answer_exec(1);
    pass(Duration::from_secs(6)).await;
    assert!(!is_ready(agent.board(), "a"), "the failure is not told");
}
