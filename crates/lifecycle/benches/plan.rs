//! The cost of one plan: a pod of three containers with probes, at rest and with a probe result coming in.

use std::{hint::black_box, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use keelet_lifecycle::{
    BootId, Evidence, Moment, Observed, Rules, Wall,
    observed::{AgentRun, Before, Instance, InstanceState, Sandbox},
    operation::{OpReport, OpResult, OpState, Operation, Outcome, ProbeReport, Step},
};
use keelet_pod::Pod;

const MANIFEST: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, uid: uid-1}
spec:
  initContainers:
  - name: proxy
    image: proxy
    restartPolicy: Always
    startupProbe: {tcpSocket: {port: 80}, periodSeconds: 1, failureThreshold: 30}
  containers:
  - name: main
    image: app
    readinessProbe: {httpGet: {port: 80}, periodSeconds: 1}
    livenessProbe: {httpGet: {port: 80}, periodSeconds: 1}
  - name: helper
    image: app
    readinessProbe: {httpGet: {port: 81}, periodSeconds: 1}
    livenessProbe: {httpGet: {port: 81}, periodSeconds: 1}
";

/// A running pod: its observation, its evidence, and the time.
struct Scene {
    rules: Rules,
    pod: Pod,
    observed: Observed,
    evidence: Evidence,
    now: Moment,
}

impl Scene {
    fn running() -> Self {
        let pod = keelet_pod::parse_one(MANIFEST).expect("the manifest is valid");
        let now = Moment { boot_ms: 60_000, wall: Wall::from_millis(1_800_000_000_000), boot_id: BootId::from_u128(7) };
        let mut observed = Observed::nothing(AgentRun { started: now, before: Before::Standalone(None), missed: None });
        observed.sandboxes.push(Sandbox {
            id: "sandbox".to_owned(),
            ready: true,
            attempt: 0,
            created_at: now.wall,
            ips: vec!["10.0.0.1".to_owned()],
            host_network: false,
            lost: None,
        });
        observed.containers.extend(pod.lasting_containers().map(|container| Instance {
            id: format!("bench://{}", container.name),
            name: container.name.clone(),
            sandbox: "sandbox".to_owned(),
            attempt: 0,
            hash: Some(container.hash),
            image: container.image.clone(),
            image_id: "sha256:1".to_owned(),
            created_at: now.wall,
            state: InstanceState::Running { started_at: now.wall },
        }));
        let mut scene = Self { rules: Rules::default(), pod, observed, evidence: Evidence::default(), now };
        for _ in 0..5 {
            scene.second();
        }
        scene
    }

    /// A second passes, and every probe that was due succeeds.
    fn second(&mut self) {
        self.now = self.now.plus(Duration::from_secs(1));
        let plan = self.rules.plan(&self.pod, &self.observed, &self.evidence, self.now);
        self.evidence = plan.evidence;
        self.observed.operations = plan.operations.iter().filter_map(|step| self.succeed(step)).collect();
        let plan = self.rules.plan(&self.pod, &self.observed, &self.evidence, self.now);
        self.observed.operations.clear();
        self.evidence = plan.evidence;
    }

    fn succeed(&self, step: &Step) -> Option<OpReport> {
        let Step::Start { id, operation: Operation::Probe { .. } } = step else { return None };
        let report =
            ProbeReport { outcome: Outcome::Success, latency: Duration::from_millis(1), output: "HTTP 200".to_owned() };
        Some(OpReport { id: *id, state: OpState::Finished { at: self.now, result: OpResult::Probed(report) } })
    }
}

fn plans(criterion: &mut Criterion) {
    let scene = Scene::running();
    criterion.bench_function("plan a pod of 3 containers at rest", |bencher| {
        bencher.iter(|| {
            scene.rules.plan(black_box(&scene.pod), black_box(&scene.observed), black_box(&scene.evidence), scene.now)
        });
    });

    let mut scene = Scene::running();
    scene.now = scene.now.plus(Duration::from_secs(1));
    let plan = scene.rules.plan(&scene.pod, &scene.observed, &scene.evidence, scene.now);
    scene.observed.operations = plan.operations.iter().filter_map(|step| scene.succeed(step)).collect();
    assert_eq!(scene.observed.operations.len(), 4, "all four probes are due");
    scene.evidence = plan.evidence;
    criterion.bench_function("plan a pod of 3 containers with 4 probe results", |bencher| {
        bencher.iter(|| {
            scene.rules.plan(black_box(&scene.pod), black_box(&scene.observed), black_box(&scene.evidence), scene.now)
        });
    });
}

criterion_group!(benches, plans);
criterion_main!(benches);
