use keelet_lifecycle::evidence::{Ending, EndingCause};
use tonic::Code;

use super::*;
use crate::bed::{Bed, FaultyDisk, pass, pod, pod_of, wanted};

/// A manager that hangs, or has ended, sends no pulse.
#[tokio::test]
async fn a_manager_that_is_stuck_has_no_pulse() {
    let mailbox = Mailbox::default();
    let mut pulse = std::pin::pin!(mailbox.pulse());
    assert!(futures::poll!(&mut pulse).is_pending());
    // As a manager does that takes its notes and dies over them.
    drop(std::mem::take(&mut *mailbox.notes()));
    assert!(futures::poll!(&mut pulse).is_pending());
    let mut pulse = std::pin::pin!(mailbox.pulse());
    assert!(futures::poll!(&mut pulse).is_pending());
    for pulse in std::mem::take(&mut *mailbox.notes()).pulses {
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

/// A node with a pod that neither the ledger nor a source knows, while part of a source cannot be read; and its container.
async fn set_aside() -> (Bed, crate::Agent, Arc<Pod>, String) {
    let (bed, web, other) = (Bed::new(), pod("web", "a"), pod("other", "b"));
    let (_, runs) = bed.runtime.put(&web);
    // One that the ledger knows, without a copy of it.
    let (_, known) = bed.runtime.put(&other);
    bed.remember(&other, Evidence::default(), None);
    let agent = bed.agent().await;
    agent.set_pods(WantedPods::new(), Extent::Unreadable);
    bed.runtime.called(&format!("StopContainer {known}")).await;
    // The directory is lost in between, which says nothing about the file in it.
    agent.set_pods(WantedPods::new(), Extent::Partial);
    bed.runtime.called_often("ListContainers all", 3).await;
    pass(Duration::from_secs(1)).await;
    let ended = bed.runtime.calls(&format!("StopContainer {runs}"));
    assert_eq!(ended, Vec::<String>::new(), "ended by a file that cannot be read");
    (bed, agent, web, runs)
}

/// NODE-10: a broken file ends nothing that runs, also if the ledger is lost: the pod may be of that file.
#[tokio::test(start_paused = true)]
async fn a_pod_that_the_ledger_lost_is_kept_while_a_source_cannot_be_read() {
    let (bed, agent, web, runs) = set_aside().await;
    agent.set_pods(wanted(&[&web]), Extent::Complete);
    bed.runtime.called_often("ListContainers all", 5).await;
    pass(Duration::from_secs(1)).await;
    let ended = bed.runtime.calls(&format!("StopContainer {runs}"));
    assert_eq!(ended, Vec::<String>::new(), "the pod that the file asks for was ended");
}

/// NODE-10
#[tokio::test(start_paused = true)]
async fn a_pod_that_was_kept_ends_when_every_source_can_be_read_and_none_wants_it() {
    let (bed, agent, _, runs) = set_aside().await;
    agent.set_pods(WantedPods::new(), Extent::Complete);
    bed.runtime.called(&format!("StopContainer {runs}")).await;
}

/// What no source has named yet may be another source's: nothing is called an orphan before every source is complete.
#[tokio::test(start_paused = true)]
async fn nothing_is_an_orphan_before_every_source_is_complete() {
    let (bed, a, b, c) = (Bed::new(), pod("files", "a"), pod("api", "b"), pod("left", "c"));
    let (_, unknown) = bed.runtime.put(&b);
    bed.runtime.put(&c);
    bed.remember(&c, Evidence::default(), Some(&c));
    let agent = bed.agent().await;
    let (files, api) = (agent.source(), agent.source());
    files.set(wanted(&[&a]), Extent::Complete);
    for extent in [Extent::Partial, Extent::Relisting] {
        api.set(WantedPods::new(), extent);
        pass(SEARCH * 2).await;
        assert_eq!(
            bed.runtime.calls("StopPodSandbox"),
            Vec::<String>::new(),
            "{extent:?}: the other source is not complete"
        );
    }
    api.set(wanted(&[&b]), Extent::Complete);
    bed.runtime.called("RemovePodSandbox").await;
    pass(SEARCH * 2).await;
    assert_eq!(bed.runtime.calls(&format!("StopContainer {unknown}")), Vec::<String>::new(), "it is wanted");
    assert!(agent.board().statuses().contains_key("b"), "it runs");
    assert_eq!(bed.remembered(), ["a", "b"], "what no source wants is gone");
}

/// A source that lists anew stops nothing, and an update in the middle of it reaches everything that holds the pod: what images
/// are in use, which volumes are kept up to date.
#[tokio::test(start_paused = true)]
async fn an_update_reaches_everything_that_holds_the_pod() {
    let with_image = |image: &str| {
        pod_of(&format!("metadata: {{name: web, uid: a}}\nspec: {{containers: [{{name: main, image: {image}}}]}}\n"))
    };
    let (bed, old, new) = (Bed::new(), with_image("app:1"), with_image("app:2"));
    let agent = bed.agent().await;
    let source = agent.source();
    source.set(wanted(&[&old]), Extent::Complete);
    bed.runtime.called("StartContainer").await;
    source.set(WantedPods::new(), Extent::Relisting);
    pass(Duration::from_secs(5)).await;
    assert_eq!(bed.runtime.calls("StopContainer"), Vec::<String>::new(), "a source that lists anew deletes nothing");
    source.set(wanted(&[&new]), Extent::Relisting);
    pass(Duration::from_secs(5)).await;
    assert_eq!(agent.shared.registry.images(), BTreeSet::from(["app:2".to_owned()]), "images that pods name");
    let held: Vec<_> = agent.shared.registry.all().into_iter().map(|(pod, _)| pod).collect();
    assert_eq!(held, [Arc::clone(&new)], "pods whose volumes are kept up to date");
    assert_eq!(agent.board().statuses()["a"].pod.containers[0].image, "app:2");
}

/// Pods of two namespaces may have one name.
#[tokio::test(start_paused = true)]
async fn a_name_is_taken_within_its_namespace_only() {
    let bed = Bed::new();
    let elsewhere =
        pod_of("metadata: {name: web, namespace: other, uid: b}\nspec: {containers: [{name: main, image: app}]}\n");
    let agent = bed.agent().await;
    agent.set_pods(wanted(&[&pod("web", "a"), &elsewhere]), Extent::Complete);
    pass(Duration::from_secs(10)).await;
    let made: BTreeSet<_> = bed.runtime.calls("RunPodSandbox").into_iter().collect();
    assert_eq!(made, ["RunPodSandbox a", "RunPodSandbox b"].map(str::to_owned).into(), "both of them run");
}

/// A source that goes on naming a pod that it has deleted does not bring it back.
#[tokio::test(start_paused = true)]
async fn a_deleted_pod_that_is_still_named_stays_gone() {
    let (bed, a) = (Bed::new(), pod("web", "a"));
    let agent = bed.agent().await;
    agent.set_pods(wanted(&[&a]), Extent::Complete);
    bed.runtime.called("StartContainer").await;
    let deletion = Some(Deletion { grace: Duration::from_secs(1) });
    let deleted = Wanted { deletion, ..Wanted::new(Arc::clone(&a)) };
    agent.set_pods(WantedPods::from([(a.uid.clone(), deleted)]), Extent::Complete);
    bed.runtime.called("RemovePodSandbox").await;
    tokio::select! {
        // One that ends at once, again and again, leaves no time to pass.
        () = bed.runtime.called_often("ListPodSandbox a", 100) => panic!("a deleted pod was recovered again"),
        () = pass(Duration::from_secs(100)) => assert!(agent.is_empty(), "the pod is not gone"),
    }
}

/// API-19: a pod that comes back under its UID while the old one ends is another one: the deletion stays, also if the pod's own
/// task does not know of it yet.
#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_back_under_its_uid_does_not_undo_the_deletion() {
    let (bed, a) = (Bed::new(), pod("web", "a"));
    let agent = bed.agent().await;
    let mut manager = Manager::new(Arc::clone(&agent.shared), Arc::default(), Vec::new());
    let source = manager.mailbox.open_source();
    for (now, deleted) in [(wanted(&[&a]), false), (WantedPods::new(), true), (wanted(&[&a]), true)] {
        manager.mailbox.set_wanted(source, now, Extent::Complete);
        manager.receive();
        manager.reconcile();
        assert_eq!(manager.pods["a"].wanted.deletion.is_some(), deleted, "the deletion that its task is sent");
    }
}

/// KEEP-20: an agent that finds a pod on its way out shows so on its board, as the one before it did.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_an_earlier_agent_began_is_on_the_board() {
    let (bed, a) = (stuck(), pod("web", "a"));
    bed.runtime.put(&a);
    let mut evidence = Evidence::default();
    let since = bed.now();
    evidence.durable.ending =
        Some(Ending { cause: EndingCause::Deleted, since, grace: Duration::from_secs(1), deleted: true });
    bed.remember(&a, evidence, Some(&a));
    let agent = bed.agent().await;
    agent.set_pods(wanted(&[&a]), Extent::Complete);
    pass(Duration::from_secs(5)).await;
    let statuses = agent.board().statuses();
    assert!(statuses["a"].leaving.is_some(), "the board does not show that it ends");
}

/// Forgetting a pod is tried until the ledger has done it: the next agent would bring the pod back.
#[tokio::test(start_paused = true)]
async fn a_pod_that_the_ledger_cannot_forget_yet_is_forgotten_later() {
    let (bed, a) = (Bed::new(), pod("web", "a"));
    let refusals = Arc::new(Mutex::new(3));
    let left = Arc::clone(&refusals);
    let disk = FaultyDisk::new(move |path| {
        let is_removal = path.file_name().is_some_and(|name| name.to_string_lossy().contains("gone"));
        let mut left = left.lock().expect("no panic");
        if is_removal && *left > 0 {
            *left -= 1;
            return Err(std::io::ErrorKind::ReadOnlyFilesystem.into());
        }
        Ok(())
    });
    let agent = bed.agent_on(disk).await;
    agent.set_pods(wanted(&[&a]), Extent::Complete);
    bed.runtime.called("StartContainer").await;
    pass(Duration::from_secs(1)).await;
    assert_eq!(bed.remembered(), ["a"]);
    agent.set_pods(WantedPods::new(), Extent::Complete);
    pass(Duration::from_secs(100)).await;
    assert_eq!(bed.remembered(), Vec::<String>::new(), "the pod is still in the ledger");
    assert_eq!(*refusals.lock().expect("no panic"), 0, "the disk did not refuse as often as it should");
}

/// What belongs to no pod gets the time to end that its pod would have given it, and the API's default if it does not say.
#[tokio::test(start_paused = true)]
async fn orphans_have_the_grace_period_of_their_pod() {
    let bed = Bed::new();
    let (_, says) = bed.runtime.put(&pod("says", "a"));
    let (_, silent) = bed.runtime.put(&pod("silent", "b"));
    bed.runtime.annotate(&says, "io.kubernetes.pod.terminationGracePeriod", "7");
    let agent = bed.agent().await;
    agent.set_pods(WantedPods::new(), Extent::Complete);
    bed.runtime.called_often("RemovePodSandbox", 2).await;
    assert_eq!((bed.runtime.grace_of(&says), bed.runtime.grace_of(&silent)), (Some(7), Some(30)));
}

/// METR-3: what runs is counted from the looks at the runtime, and no longer when the pod is gone.
#[tokio::test(start_paused = true)]
async fn pods_and_containers_that_run_are_counted_while_they_are_there() {
    let (bed, web) = (Bed::new(), pod("web", "a"));
    let agent = bed.agent().await;
    let counts = |agent: &crate::Agent| {
        let text = agent.metrics();
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u32>().ok());
        (value("kubelet_running_pods "), value("kubelet_running_containers{container_state=\"running\"} "))
    };
    agent.set_pods(wanted(&[&web]), Extent::Complete);
    bed.runtime.called("StartContainer").await;
    pass(Duration::from_secs(2)).await;
    assert_eq!(counts(&agent), (Some(1), Some(1)));
    agent.set_pods(wanted(&[]), Extent::Complete);
    pass(Duration::from_secs(60)).await;
    assert_eq!(agent.board().gone_pods().len(), 1, "the pod is gone");
    assert_eq!(counts(&agent), (Some(0), Some(0)));
}
