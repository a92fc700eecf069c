use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::future::BoxFuture;
use keelet_lifecycle::{BootId, Wall};
use serde_json::json;

use super::*;
use crate::bed::FaultyDisk;

fn at(ms: i64) -> Moment {
    Moment { boot_ms: ms, wall: Wall::from_millis(ms), boot_id: BootId::from_u128(1) }
}

fn reference(uid: &str) -> Arc<PodRef> {
    Arc::new(PodRef { uid: uid.to_owned(), namespace: "default".to_owned(), name: uid.to_owned() })
}

fn record(uid: &str) -> Record {
    let evidence = Arc::new(Evidence::default());
    Record { pod: reference(uid), evidence, results: Vec::new(), version: 1, why: Vec::new() }
}

fn open<D: Disk>(disk: D, root: &Path) -> Ledger<D> {
    let settings = keelet_ledger::Settings::new(root.join("durable"), root.join("run"), BootId::from_u128(1));
    Ledger::open_on(disk, settings).expect("a ledger").ledger
}

/// What the writer has acknowledged to each pod so far.
#[derive(Default)]
struct Acknowledged(BTreeMap<&'static str, Box<dyn FnMut() -> bool + Send>>);

impl Acknowledged {
    /// A sender for that pod; from now on it is known whether it was used.
    fn expect<T: Send + 'static>(&mut self, uid: &'static str) -> oneshot::Sender<T> {
        let (done, mut answer) = oneshot::channel();
        let mut acknowledged = false;
        let is_acknowledged = move || {
            acknowledged |= answer.try_recv().is_ok();
            acknowledged
        };
        self.0.insert(uid, Box::new(is_acknowledged));
        done
    }
}

/// A pod acts on a plan as soon as the writer acknowledges its evidence, so the writer does so after the last write.
#[test]
fn what_is_acknowledged_is_on_disk() {
    let directory = tempfile::tempdir().expect("a directory");
    let acknowledged = Arc::new(Mutex::new(Acknowledged::default()));
    let (early, writes) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(BTreeMap::new())));
    let on_write = {
        let (acknowledged, early, writes) = (Arc::clone(&acknowledged), Arc::clone(&early), Arc::clone(&writes));
        move |path: &Path| {
            for (uid, is_acknowledged) in &mut acknowledged.lock().expect("no panic").0 {
                if path.iter().any(|part| part.to_string_lossy().starts_with(uid)) {
                    *writes.lock().expect("no panic").entry(*uid).or_insert(0) += 1;
                    if is_acknowledged() {
                        early.lock().expect("no panic").push(format!("{uid}: {}", path.display()));
                    }
                }
            }
            Ok(())
        }
    };
    let mut ledger = open(FaultyDisk::new(on_write), directory.path());
    let mut trouble = DiskTrouble::default();
    serve(&mut ledger, &mut trouble, vec![Request::Commit(record("removed"), oneshot::channel().0)], at(0));
    let requests = {
        let mut acknowledged = acknowledged.lock().expect("no panic");
        vec![
            Request::Commit(record("first"), acknowledged.expect("first")),
            Request::Commit(record("second"), acknowledged.expect("second")),
            Request::KeepPod(reference("copied"), json!({"spec": {}}), acknowledged.expect("copied")),
            Request::Remove("removed".to_owned(), acknowledged.expect("removed")),
            Request::Commit(record("last"), acknowledged.expect("last")),
        ]
    };
    serve(&mut ledger, &mut trouble, requests, at(1));
    assert_eq!(*early.lock().expect("no panic"), Vec::<String>::new(), "written after the pod had its acknowledgement");
    for (uid, is_acknowledged) in &mut acknowledged.lock().expect("no panic").0 {
        assert!(is_acknowledged(), "{uid} is never acknowledged");
        assert!(writes.lock().expect("no panic").contains_key(uid), "nothing of {uid} was written");
    }
}

/// A commit that waits beside the removal of its pod does not bring the pod back.
#[test]
fn requests_are_served_in_their_order() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut ledger = open(keelet_ledger::OsDisk, directory.path());
    let removal = Request::Remove("a".to_owned(), oneshot::channel().0);
    let requests = vec![Request::Commit(record("a"), oneshot::channel().0), removal];
    serve(&mut ledger, &mut DiskTrouble::default(), requests, at(0));
    assert_eq!(ledger.uids().collect::<Vec<_>>(), Vec::<&str>::new(), "the removed pod is known again");
    let again =
        vec![Request::Remove("a".to_owned(), oneshot::channel().0), Request::Commit(record("a"), oneshot::channel().0)];
    serve(&mut ledger, &mut DiskTrouble::default(), again, at(1));
    assert_eq!(ledger.uids().collect::<Vec<_>>(), ["a"], "what comes after the removal is of a new pod");
}

/// Counts what is done off the tasks' threads.
#[derive(Debug, Default)]
struct Counted(AtomicUsize);

impl Tasks for Counted {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        drop(tokio::spawn(task));
    }

    fn block(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move { work() })
    }
}

#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now(&self) -> Moment {
        at(1000)
    }
}

/// Evidence that need not be written is acknowledged without waking another thread, and no other is.
#[tokio::test]
async fn evidence_that_decides_nothing_is_acknowledged_on_the_spot() {
    let directory = tempfile::tempdir().expect("a directory");
    let counted = Arc::new(Counted::default());
    let tasks = Arc::clone(&counted) as Arc<dyn Tasks>;
    let ledger = open(keelet_ledger::OsDisk, directory.path());
    let writer = LedgerWriter::open(ledger, Arc::new(Still), &tasks);
    let blocked = || counted.0.load(Ordering::Relaxed);
    writer.commit(record("a")).await;
    assert_eq!(blocked(), 1, "a new pod is written");
    for _ in 0..10 {
        writer.commit(record("a")).await;
    }
    assert_eq!(blocked(), 1, "nothing has changed");
    let mut evidence = Evidence::default();
    evidence.durable.version = 7;
    writer.commit(Record { evidence: Arc::new(evidence), ..record("a") }).await;
    assert_eq!(blocked(), 2, "durable evidence is written");
    writer.commit(record("")).await;
    assert_eq!(blocked(), 3, "a pod that cannot be kept is said to be one");
}
