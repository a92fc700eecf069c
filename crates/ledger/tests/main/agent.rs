//! The ledger under the real rules: an agent in miniature that plans, records and acts.

use std::{collections::BTreeMap, sync::Arc};

use keelet_ledger::{Ledger, Outcome, PodCommit};
use keelet_lifecycle::{
    Evidence, Moment, Observed, Rules,
    observed::{AgentRun, Before, Instance, InstanceState, Sandbox},
    operation::{self, OpReport, OpResult, OpState, Operation, ProbeReport, Step},
};

use crate::{
    disk::SimDisk,
    sample::{DURABLE, UID, at, open_well, pod},
};

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: app
    image: example.com/app:1
    startupProbe: {tcpSocket: {port: 80}, periodSeconds: 1}
    readinessProbe: {httpGet: {port: 80}, periodSeconds: 1}
    livenessProbe: {httpGet: {port: 80}, periodSeconds: 1}
"#;

/// A runtime in which every operation succeeds at once.
#[derive(Default)]
struct Runtime {
    sandboxes: Vec<Sandbox>,
    containers: Vec<Instance>,
    finished: Vec<OpReport>,
    passed: u32,
}

impl Runtime {
    fn act(&mut self, steps: &[Step], now: Moment) {
        self.finished.clear();
        for step in steps {
            let Step::Start { id, operation } = step else { continue };
            let result = self.run(operation, now);
            self.finished.push(OpReport { id: *id, state: OpState::Finished { at: now, result } });
        }
    }

    fn run(&mut self, operation: &Operation, now: Moment) -> OpResult {
        match operation {
            Operation::CreateSandbox { attempt } => self.sandboxes.push(Sandbox {
                id: "sandbox-1".into(),
                ready: true,
                attempt: *attempt,
                created_at: now.wall,
                ips: vec!["10.0.0.2".into()],
                host_network: false,
                lost: None,
            }),
            Operation::Launch { container, attempt, sandbox } => self.containers.push(Instance {
                id: format!("containerd://{container}-{attempt}"),
                name: container.clone(),
                sandbox: sandbox.clone(),
                attempt: *attempt,
                hash: None,
                image: "example.com/app:1".into(),
                image_id: "sha256:1".into(),
                created_at: now.wall,
                state: InstanceState::Running { started_at: now.wall },
            }),
            Operation::Probe { .. } => {
                self.passed += 1;
                return OpResult::Probed(ProbeReport {
                    outcome: operation::Outcome::Success,
                    latency: std::time::Duration::from_millis(2),
                    output: "200 OK".into(),
                });
            }
            Operation::Stop { .. } | Operation::Remove { .. } => panic!("unexpected operation {operation:?}"),
            _ => {}
        }
        OpResult::Done
    }
}

/// Plans, records, acts; every hundred milliseconds until that many probes have passed.
struct Agent {
    started: Moment,
    evidence: Evidence,
    runtime: Runtime,
}

impl Agent {
    fn run(&mut self, ledger: &mut Ledger<SimDisk>, from: i64, probes: u32) -> i64 {
        let manifest = keelet_pod::parse_one(POD).unwrap();
        let enough = self.runtime.passed + probes;
        let mut ms = from;
        while self.runtime.passed < enough {
            ms += 100;
            assert!(ms < from + 1_000_000, "no probes");
            let agent = AgentRun { started: self.started, before: Before::Standalone(None), missed: None };
            let mut observed = Observed::nothing(agent);
            observed.sandboxes.clone_from(&self.runtime.sandboxes);
            observed.containers.clone_from(&self.runtime.containers);
            observed.operations = std::mem::take(&mut self.runtime.finished);
            observed.foreign_conditions = BTreeMap::new();
            let plan = Rules::default().plan(&manifest, &observed, &self.evidence, at(ms));
            let why = Some((plan.version, &plan.why[..]));
            let entry =
                PodCommit { pod: &pod(UID), evidence: &Arc::new(plan.evidence.clone()), results: &plan.results, why };
            let committed = ledger.commit(&entry, at(ms)).unwrap();
            assert!(committed.durable.error().is_none() && committed.volatile.error().is_none());
            self.evidence = plan.evidence;
            self.runtime.act(&plan.operations, at(ms));
        }
        ms
    }
}

/// KEEP-20: the cost of passing probes, under the real rules.
#[test]
fn a_thousand_passing_probes_of_a_running_pod_cause_no_durable_write() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    let mut agent = Agent { started: at(0), evidence: Evidence::default(), runtime: Runtime::default() };
    let ready = agent.run(&mut ledger, 0, 10);
    disk.forget_calls();
    let end = agent.run(&mut ledger, ready, 1000);
    assert_eq!(disk.writes(DURABLE), 0);
    // Two probes a second; evidence, history, and now and then the reasons.
    let seconds = usize::try_from((end - ready) / 1000).unwrap() + 1;
    let renames = disk.count(crate::disk::Op::Rename, "/run");
    assert!(renames <= 2 * seconds, "{renames} volatile files in {seconds} seconds");
    drop(ledger);
    // The next agent finds what this one knew, except for the probes of the last second.
    let opened = open_well(&disk);
    let found = &opened.pods[0];
    assert_eq!(found.evidence.durable, agent.evidence.durable);
    let verdict = |evidence: &Evidence| evidence.volatile.instances["app"].readiness.verdict.clone();
    assert_eq!(verdict(&found.evidence), verdict(&agent.evidence));
    assert_eq!(verdict(&agent.evidence).passed(), Some(true));
    assert!(!found.explanation.as_ref().unwrap().why.is_empty());
    assert!(found.history.len() > 16);
}

#[test]
fn a_commit_without_changes_writes_nothing() {
    let disk = SimDisk::default();
    let mut ledger = open_well(&disk).ledger;
    let evidence = Arc::default();
    let entry = PodCommit { pod: &pod(UID), evidence: &evidence, results: &[], why: None };
    let _ = ledger.commit(&entry, at(0)).unwrap();
    disk.forget_calls();
    let again = ledger.commit(&entry, at(5000)).unwrap();
    assert!(matches!((again.durable, again.volatile), (Outcome::Unchanged, Outcome::Unchanged)));
    assert!(disk.calls().is_empty());
}
