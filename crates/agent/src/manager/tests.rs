use tonic::Code;

use super::*;
use crate::bed::{Bed, pass, pod, wanted};

/// A manager that hangs, or has ended, shows no sign of life.
#[tokio::test]
async fn without_a_turn_there_is_no_pulse() {
    let desk = Desk::default();
    let mut pulse = std::pin::pin!(desk.pulse());
    assert!(futures::poll!(&mut pulse).is_pending());
    // As a manager does that takes its notes and dies over them.
    drop(std::mem::take(&mut *desk.notes()));
    assert!(futures::poll!(&mut pulse).is_pending());
    let mut pulse = std::pin::pin!(desk.pulse());
    assert!(futures::poll!(&mut pulse).is_pending());
    for pulse in std::mem::take(&mut *desk.notes()).pulses {
        let _ = pulse.send(());
    }
    assert!(futures::poll!(&mut pulse).is_ready());
}

/// A node on which the pod `a` cannot end, so that another pod of its name has to wait.
fn stuck() -> Bed {
    let bed = Bed::new();
    bed.runtime.fail("StopPodSandbox", Some(Code::Unavailable));
    bed
}

/// What runs of a pod that waits for its name is its own, not an orphan.
#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_for_its_name_is_no_orphan() {
    let (bed, a, b) = (stuck(), pod("web", "a"), pod("web", "b"));
    let (_, runs) = bed.runtime.put(&b);
    let agent = bed.agent().await;
    agent.set_pods(wanted(&[&a]), Extent::Partial);
    bed.runtime.called("StartContainer").await;
    agent.set_pods(wanted(&[&b]), Extent::Complete);
    bed.runtime.called_often("ListContainers all", 2).await;
    pass(Duration::from_secs(1)).await;
    let stopped = bed.runtime.calls(&format!("StopContainer {runs}"));
    assert_eq!(stopped, Vec::<String>::new(), "the container of the pod that waits was stopped as an orphan");
}

/// The same for a pod that became wanted while the runtime was searched.
#[tokio::test(start_paused = true)]
async fn remains_of_a_pod_that_is_wanted_by_now_are_not_cleared_away() {
    let (bed, a, b) = (stuck(), pod("web", "a"), pod("web", "b"));
    let (_, runs) = bed.runtime.put(&b);
    bed.runtime.hold("ListPodSandbox all");
    let agent = bed.agent().await;
    agent.set_pods(wanted(&[&a]), Extent::Complete);
    bed.runtime.called("ListPodSandbox all").await;
    bed.runtime.called("StartContainer").await;
    agent.set_pods(wanted(&[&b]), Extent::Complete);
    pass(Duration::from_secs(1)).await;
    bed.runtime.release("ListPodSandbox all");
    pass(Duration::from_secs(1)).await;
    let stopped = bed.runtime.calls(&format!("StopContainer {runs}"));
    assert_eq!(stopped, Vec::<String>::new(), "the container of the pod that waits was stopped as an orphan");
}

/// What the ledger has of such a pod is kept for it, also if the copy of the pod is lost.
#[tokio::test(start_paused = true)]
async fn the_evidence_of_a_pod_that_waits_for_its_name_is_kept() {
    let (bed, a, b) = (stuck(), pod("web", "a"), pod("web", "b"));
    bed.runtime.put(&a);
    bed.runtime.put(&b);
    bed.remember(&a, Evidence::default(), Some(&a));
    bed.remember(&b, Evidence::default(), None);
    let agent = bed.agent().await;
    agent.set_pods(wanted(&[&b]), Extent::Complete);
    bed.runtime.called("ListContainers all").await;
    pass(Duration::from_secs(1)).await;
    assert_eq!(bed.remembered(), ["a", "b"], "evidence of a pod that is wanted was removed");
}

/// A pod of the ledger that is not wanted and has no copy: what runs of it is stopped first, and while the runtime cannot be
/// asked what that is, nothing of the pod is forgotten.
#[tokio::test(start_paused = true)]
async fn an_unwanted_pod_without_a_copy_ends_before_it_is_forgotten() {
    let (bed, a) = (Bed::new(), pod("web", "a"));
    let (_, runs) = bed.runtime.put(&a);
    bed.remember(&a, Evidence::default(), None);
    bed.runtime.fail("ListPodSandbox", Some(Code::Unavailable));
    let agent = bed.agent().await;
    agent.set_pods(WantedPods::new(), Extent::Complete);
    bed.runtime.called("ListPodSandbox all").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(bed.remembered(), ["a"], "forgotten although its containers run");
    bed.runtime.fail("ListPodSandbox", None);
    bed.runtime.hold(&format!("StopContainer {runs}"));
    bed.runtime.called(&format!("StopContainer {runs}")).await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(bed.remembered(), ["a"], "forgotten while its containers are being stopped");
    bed.runtime.release(&format!("StopContainer {runs}"));
    bed.runtime.called("RemovePodSandbox").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(bed.remembered(), Vec::<String>::new(), "remembered although nothing is left of it");
}
