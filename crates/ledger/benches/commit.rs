//! What a commit costs, and what a pod takes up: three containers with three probes each and full histories.

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use criterion::{BatchSize, Criterion};
use keelet_ledger::{Ledger, PodCommit, PodRef, Settings};
use keelet_lifecycle::{BootId, Evidence, Moment, ProbeRecord, Wall, operation::Outcome};
use keelet_pod::ProbeKind;
use serde_json::json;

const BOOT: BootId = BootId::from_u128(0x6f5c_0a9e_3c36_4f4b_9d1c_2f1f_2a3b_4c5d);
const NAMES: [&str; 3] = ["app", "db", "proxy"];
const OUTPUT: &str = "HTTP probe succeeded: 200 OK in 3 ms";

fn at(ms: i64) -> Moment {
    Moment { boot_ms: 5_000_000 + ms, wall: Wall::from_millis(1_790_000_000_000 + ms), boot_id: BOOT }
}

fn id(name: &str) -> String {
    format!("containerd://{name:0>64}")
}

fn evidence() -> Evidence {
    let mut evidence = Evidence::default();
    evidence.durable.first_seen = Some(at(0));
    evidence.volatile.boot_id = BOOT;
    let mut statuses = Vec::new();
    for name in NAMES {
        let record = json!({
            "restartCount": 3, "newest": id(name), "imageId": "sha256:0123456789abcdef0123456789abcdef",
            "running": {"id": id(name), "startedAt": at(0).wall, "sandbox": id("sandbox")},
            "lastExit": {"id": id(name), "sandbox": id("sandbox"), "exitCode": 137, "reason": "Error",
                "finished": at(0), "cause": {"killed": {"probe": "liveness"}}},
            "previousExit": {"id": id(name), "sandbox": id("sandbox"), "exitCode": 1, "reason": "Error",
                "finished": at(0), "cause": "own"},
            "backoff": {"delay": 10_000, "advanced": at(0), "key": "example.com/app:1", "served": id(name)},
        });
        evidence.durable.containers.insert(name.to_owned(), serde_json::from_value(record).unwrap());
        let memory = json!({
            "verdict": {"probed": {"passed": true, "at": at(0), "run": 1, "output": OUTPUT}},
            "run": {"passed": true, "length": 1, "last": at(0)},
            "due": at(0),
            "last": {"at": at(0), "outcome": "success", "latency": 3, "output": OUTPUT},
        });
        let instance = json!({"id": id(name), "started": at(0), "startup": memory, "readiness": memory,
            "liveness": memory, "postStart": "done"});
        evidence.volatile.instances.insert(name.to_owned(), serde_json::from_value(instance).unwrap());
        statuses.push(json!({
            "name": name, "state": {"running": {"startedAt": at(0).wall}}, "ready": true, "started": true,
            "restartCount": 3, "image": "example.com/app:1", "imageID": "sha256:0123456789abcdef", "containerID": id(name),
            "lastState": {"terminated": {"exitCode": 137, "reason": "Error", "containerID": id(name)}},
        }));
    }
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": at(0).wall});
    let conditions =
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
    let published =
        json!({"phase": "Running", "conditions": conditions, "containerStatuses": statuses, "podIP": "10.0.0.2"});
    evidence.durable.published = serde_json::from_value(published).unwrap();
    evidence
}

fn result(name: &str, probe: ProbeKind, ms: i64) -> ProbeRecord {
    ProbeRecord {
        eager: false,
        container: name.to_owned(),
        id: id(name),
        probe,
        at: at(ms),
        outcome: Outcome::Success,
        latency: Duration::from_millis(3),
        output: OUTPUT.to_owned(),
    }
}

fn full_history() -> Vec<ProbeRecord> {
    let rings = NAMES.into_iter().flat_map(|name| ProbeKind::ALL.map(|probe| (name, probe)));
    rings.flat_map(|(name, probe)| (0..16).map(move |n| result(name, probe, n))).collect()
}

fn pass(evidence: &mut Evidence, ms: i64) {
    let readiness = &mut evidence.volatile.instances.get_mut("app").unwrap().readiness;
    readiness.streak.as_mut().unwrap().last = at(ms);
    readiness.streak.as_mut().unwrap().length += 1;
    readiness.due = Some(at(ms + 1000));
    readiness.last.as_mut().unwrap().at = at(ms);
}

fn pod(n: usize) -> PodRef {
    PodRef { uid: format!("pod-{n}"), namespace: "default".into(), name: format!("web-{n}") }
}

fn size(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| if entry.path().is_dir() { size(&entry.path()) } else { entry.metadata().unwrap().len() }).sum()
}

/// A ledger with the durable tier on the build disk and the volatile one on tmpfs where there is one.
struct Bench {
    _directories: [tempfile::TempDir; 2],
    settings: Settings,
    ledger: Ledger,
    pods: Vec<PodRef>,
    now: i64,
}

impl Bench {
    fn new(pods: usize) -> Self {
        let shm = Path::new("/dev/shm");
        let durable = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).or_else(|_| tempfile::tempdir()).unwrap();
        let volatile = if shm.is_dir() { tempfile::tempdir_in(shm).unwrap() } else { tempfile::tempdir().unwrap() };
        let settings = Settings::new(durable.path(), volatile.path(), BOOT);
        let mut ledger = Ledger::open(settings.clone()).unwrap().ledger;
        let pods: Vec<PodRef> = (0..pods).map(pod).collect();
        for pod in &pods {
            let entry = PodCommit { pod, evidence: &Arc::new(evidence()), results: &full_history(), why: None };
            let committed = ledger.commit(&entry, at(0)).unwrap();
            assert!(committed.durable.is_written() && committed.volatile.is_written());
        }
        Self { _directories: [durable, volatile], settings, ledger, pods, now: 0 }
    }
}

#[allow(clippy::print_stdout, reason = "a benchmark tells its numbers")]
fn bytes_per_pod() {
    let mut bench = Bench::new(1);
    let copy = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "uid": "pod-0"}});
    let _ = bench.ledger.keep_pod(&bench.pods[0], &copy, at(0)).unwrap();
    for (tier, root) in [("durable", &bench.settings.durable_root), ("volatile", &bench.settings.volatile_root)] {
        let directory = root.join("pods/pod-0");
        for entry in fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap()) {
            println!("bytes per pod: {tier}/{} {}", entry.file_name().display(), entry.metadata().unwrap().len());
        }
        println!("bytes per pod: {tier} in all {}", size(&directory));
    }
}

/// The time that this thread had a processor, which others on the machine do not lengthen.
fn cpu() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

#[allow(clippy::print_stdout, reason = "a benchmark tells its numbers")]
fn processor_time() {
    const COMMITS: i64 = 2000;
    let mut bench = Bench::new(1);
    let mut evidence = evidence();
    for (what, step) in [("deferred", 0), ("written", 1000)] {
        let before = cpu();
        for _ in 0..COMMITS {
            bench.now += step;
            pass(&mut evidence, bench.now);
            let results = [result("app", ProbeKind::Readiness, bench.now)];
            let entry =
                PodCommit { pod: &bench.pods[0], evidence: &Arc::new(evidence.clone()), results: &results, why: None };
            let _ = bench.ledger.commit(&entry, at(bench.now)).unwrap();
        }
        let spent = (cpu() - before) / u32::try_from(COMMITS).unwrap();
        println!("processor time per commit of a passing result, volatile tier {what}: {spent:?}");
    }
}

/// Rounds of both kinds take turns, so that whatever else the disk has to do slows down both.
#[allow(clippy::print_stdout, reason = "a benchmark tells its numbers")]
#[allow(clippy::disallowed_methods, reason = "a benchmark looks at the clock")]
fn batching() {
    const ROUNDS: usize = 30;
    let mut bench = Bench::new(32);
    let mut evidence = evidence();
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..2 * ROUNDS {
        bench.now += 1000;
        evidence.durable.version += 1;
        let shared = Arc::new(evidence.clone());
        let entry = |pod| PodCommit { pod, evidence: &shared, results: &[], why: None };
        let entries: Vec<PodCommit<'_>> = bench.pods.iter().map(entry).collect();
        let start = Instant::now();
        if round % 2 == 0 {
            for entry in &entries {
                assert!(bench.ledger.commit(entry, at(bench.now)).unwrap().durable.is_written());
            }
        } else {
            let committed = bench.ledger.commit_many(&entries, at(bench.now));
            assert!(committed.iter().all(|committed| committed.as_ref().unwrap().durable.is_written()));
        }
        times[round % 2].push(start.elapsed());
    }
    for (what, mut times) in ["one by one", "together"].into_iter().zip(times) {
        times.sort();
        println!("32 durable commits {what}: median {:?}, best {:?}", times[ROUNDS / 2], times[0]);
    }
}

fn main() {
    bytes_per_pod();
    processor_time();
    batching();
    let mut criterion = Criterion::default().configure_from_args().measurement_time(Duration::from_secs(4));
    let mut bench = Bench::new(1);
    let web = bench.pods[0].clone();

    let mut evidence = evidence();
    let unchanged = Arc::new(evidence.clone());
    criterion.bench_function("commit: nothing changed", |bencher| {
        let entry = PodCommit { pod: &web, evidence: &unchanged, results: &[], why: None };
        bencher.iter(|| bench.ledger.commit(&entry, at(0)).unwrap());
    });
    criterion.bench_function("commit: passing result, deferred", |bencher| {
        bencher.iter_batched(
            || {
                pass(&mut evidence, 1);
                (Arc::new(evidence.clone()), [result("app", ProbeKind::Readiness, 1)])
            },
            |(evidence, results)| {
                let entry = PodCommit { pod: &web, evidence: &evidence, results: &results, why: None };
                bench.ledger.commit(&entry, at(1)).unwrap()
            },
            BatchSize::SmallInput,
        );
    });
    criterion.bench_function("commit: passing result, volatile files written", |bencher| {
        bencher.iter(|| {
            // Results that pass again are written every ten seconds.
            bench.now += 10_000;
            pass(&mut evidence, bench.now);
            let results = [result("app", ProbeKind::Readiness, bench.now)];
            let entry = PodCommit { pod: &web, evidence: &Arc::new(evidence.clone()), results: &results, why: None };
            let committed = bench.ledger.commit(&entry, at(bench.now)).unwrap();
            assert!(committed.volatile.is_written());
        });
    });
    criterion.bench_function("commit: restart, durable file written", |bencher| {
        bencher.iter(|| {
            bench.now += 1000;
            evidence.durable.version += 1;
            let entry = PodCommit { pod: &web, evidence: &Arc::new(evidence.clone()), results: &[], why: None };
            let committed = bench.ledger.commit(&entry, at(bench.now)).unwrap();
            assert!(committed.durable.is_written());
        });
    });

    let mut group = criterion.benchmark_group("110 pods");
    group.sample_size(20);
    let bench = Bench::new(110);
    let settings = bench.settings.clone();
    drop(bench.ledger);
    group.bench_function("open", |bencher| {
        bencher.iter(|| {
            let opened = Ledger::open(settings.clone()).unwrap();
            assert_eq!((opened.pods.len(), opened.losses.len()), (110, 0));
        });
    });
    group.finish();
    criterion.final_summary();
}
