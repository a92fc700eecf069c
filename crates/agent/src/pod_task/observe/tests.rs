use tonic::Code;

use super::*;
use crate::bed::{Bed, pod};

#[test]
fn the_process_is_read_from_what_the_runtime_says_of_itself() {
    assert_eq!(process(r#"{"sandboxID":"a","pid":4711,"removing":false}"#), Some(4711));
    assert_eq!(process(r#"{"pid":0}"#), None);
    assert_eq!(process("no JSON"), None);
}

#[test]
fn times_are_cut_to_milliseconds() {
    assert_eq!(wall(1_999_999), Wall::from_millis(1));
    assert_eq!(wall(0), Wall::from_millis(0));
}

/// A runtime may report the address of a sandbox later than that it is ready: until there is one, the pod asks again.
#[tokio::test(start_paused = true)]
async fn an_address_that_comes_late_is_seen() {
    let (bed, web) = (Bed::new(), pod("web", "a"));
    let (sandbox, _) = bed.runtime.put(&web);
    let agent = bed.agent().await;
    let see = |before: Option<Arc<Observation>>| observe(Arc::clone(&agent.shared), Arc::clone(&web), before, 0);
    bed.runtime.set_address(&sandbox, "");
    let first = Arc::new(see(None).await.expect("it answers"));
    assert_eq!((first.sandboxes[0].ready, first.sandboxes[0].ips.len()), (true, 0));
    bed.runtime.set_address(&sandbox, "10.0.0.9");
    let second = Arc::new(see(Some(first)).await.expect("it answers"));
    assert_eq!(second.sandboxes[0].ips, ["10.0.0.9"], "the address that came late is not seen");
    let asked = bed.runtime.calls("PodSandboxStatus").len();
    see(Some(second)).await.expect("it answers");
    assert_eq!(bed.runtime.calls("PodSandboxStatus").len(), asked, "what is known is not asked again");
}

/// A container or sandbox is gone if the runtime says so, not if it does not answer.
#[tokio::test(start_paused = true)]
async fn what_the_runtime_does_not_answer_for_is_not_gone() {
    let (bed, web) = (Bed::new(), pod("web", "a"));
    bed.runtime.put(&web);
    let agent = bed.agent().await;
    let see = || observe(Arc::clone(&agent.shared), Arc::clone(&web), None, 0);
    for call in ["PodSandboxStatus", "ContainerStatus"] {
        for code in [Code::Unavailable, Code::Internal, Code::DeadlineExceeded] {
            bed.runtime.fail(call, Some(code));
            let seen = see().await;
            assert!(seen.is_err(), "{call} answers {code:?}, and {seen:?} is taken for the truth");
        }
        bed.runtime.fail(call, Some(Code::NotFound));
        let seen = see().await.expect("that is an answer");
        assert_eq!(seen.sandboxes.len() + seen.containers.len(), 1, "{call}: one of the two is gone");
        bed.runtime.fail(call, None);
    }
}
