//! A pod on a stage: a runtime that does what plans ask for, a clock that stands still until told, and a user who
//! writes down what a ledger would. After every plan, every chain is checked.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use keelet_lifecycle::{
    BootId, Evidence, Moment, Observed, Plan, ProbeRecord, Rules, Wall,
    journal::{self, Note},
    observed::{Acknowledged, AgentRun, Before, Deletion, Instance, InstanceState, RestartRequest, Sandbox},
    operation::{OpFailure, OpId, OpReport, OpResult, OpState, Operation, Outcome, ProbeReport, Step},
};
use keelet_pod::{Pod, ProbeKind};

use crate::{Known, why::check_chains};

/// 2027-01-15 08:00:00 UTC.
pub(crate) const BEGINNING: i64 = 1_800_000_000_000;

pub(crate) struct Stage {
    pub(crate) rules: Rules,
    pub(crate) pod: Pod,
    pub(crate) observed: Observed,
    pub(crate) evidence: Evidence,
    pub(crate) now: Moment,
    pub(crate) plan: Option<Plan>,
    pub(crate) history: Vec<ProbeRecord>,
    pub(crate) journal: Vec<Note>,
    /// What probes answer; a success within 3 ms where nothing is said.
    pub(crate) answers: BTreeMap<(String, ProbeKind), ProbeReport>,
    /// Operations that fail: a text of their debug form, and how.
    pub(crate) failing: Vec<(String, OpFailure)>,
    /// Operations that stay in flight: a text of their debug form.
    pub(crate) held: Vec<String>,
    pub(crate) last_seen: Option<Moment>,
    numbers: u32,
}

impl Stage {
    pub(crate) fn new(spec: &str) -> Self {
        let manifest =
            format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: shop, uid: uid-1}}\nspec:\n{spec}");
        let pod = keelet_pod::parse_one(&manifest).unwrap_or_else(|report| panic!("{report:#?}"));
        let now = Moment { boot_ms: 1_000_000, wall: Wall::from_millis(BEGINNING), boot_id: BootId::from_u128(1) };
        Self {
            // Tests that are not about eager attempts count the scheduled ones.
            rules: Rules { eager_probes: false, ..Rules::default() },
            pod,
            observed: Observed::nothing(AgentRun { started: now, before: Before::Standalone(None), missed: None }),
            evidence: Evidence::default(),
            now,
            plan: None,
            history: Vec::new(),
            journal: Vec::new(),
            answers: BTreeMap::new(),
            failing: Vec::new(),
            held: Vec::new(),
            last_seen: None,
            numbers: 0,
        }
    }

    pub(crate) fn known(&self) -> Known<'_> {
        Known {
            namespace: &self.pod.namespace,
            name: &self.pod.name,
            uid: &self.pod.uid,
            spec: Some(Cow::Borrowed(&self.pod)),
            evidence: &self.evidence,
            why: self.plan.as_ref().map_or(&[], |plan| &plan.why),
            history: &self.history,
            journal: &self.journal,
        }
    }

    fn plan_once(&mut self) -> Plan {
        let plan = self.rules.plan(&self.pod, &self.observed, &self.evidence, self.now);
        self.journal.extend(journal::between(&self.evidence, &plan.evidence, &plan.why, self.last_seen, self.now));
        self.history.extend(plan.results.iter().cloned());
        self.observed.operations.retain(|report| report.state == OpState::InFlight);
        self.evidence = plan.evidence.clone();
        self.observed.acknowledged = Acknowledged::UpTo(plan.version);
        self.plan = Some(plan.clone());
        let faults = check_chains(&self.known(), self.now);
        assert!(faults.is_empty(), "{faults:#?}\n{:#?}", plan.status);
        for step in plan.operations.clone() {
            let (id, state) = match step {
                Step::Start { id, operation } => (id, self.run(&operation)),
                Step::Cancel { id } => (id, Some(OpResult::Cancelled)),
            };
            self.report(id, state);
        }
        plan
    }

    fn report(&mut self, id: OpId, result: Option<OpResult>) {
        self.observed.operations.retain(|report| report.id != id);
        let state = result.map_or(OpState::InFlight, |result| OpState::Finished { at: self.now, result });
        self.observed.operations.push(OpReport { id, state });
    }

    pub(crate) fn settle(&mut self) -> &mut Self {
        for _ in 0..500 {
            let before = self.evidence.clone();
            let plan = self.plan_once();
            let busy = self.observed.operations.iter().any(|report| report.state != OpState::InFlight);
            let due = plan.wake_at.is_some_and(|at| self.now.has_reached(&at));
            if plan.operations.is_empty() && !busy && self.evidence == before && !due {
                return self;
            }
        }
        panic!("the planner does not come to rest");
    }

    pub(crate) fn seconds(&mut self, seconds: u64) -> &mut Self {
        let end = self.now.plus(Duration::from_secs(seconds));
        loop {
            self.settle();
            match self.plan.as_ref().and_then(|plan| plan.wake_at) {
                Some(at) if end.has_reached(&at) => self.now = at,
                _ => break,
            }
        }
        self.now = end;
        self.settle()
    }

    pub(crate) fn exit(&mut self, name: &str, exit_code: i32) -> &mut Self {
        let wall = self.now.wall;
        let instance = self.observed.containers.iter_mut().find(|found| found.name == name && found.may_run());
        end(instance.unwrap_or_else(|| panic!("container {name} does not run")), wall, exit_code);
        self.settle()
    }

    pub(crate) fn lose(&mut self, name: &str) -> &mut Self {
        self.observed.containers.retain(|instance| instance.name != name);
        self
    }

    /// The agent dies and another one starts so many seconds later.
    pub(crate) fn restart_agent(&mut self, away: u64) -> &mut Self {
        self.die(away);
        self.observed.agent.before = Before::Standalone(Some(Duration::from_secs(away)));
        self.settle()
    }

    fn die(&mut self, away: u64) {
        self.last_seen = Some(self.now);
        self.now = self.now.plus(Duration::from_secs(away));
        self.observed.agent.started = self.now;
        self.observed.operations.clear();
        self.observed.acknowledged = Acknowledged::UpTo(0);
    }

    pub(crate) fn reboot(&mut self) -> &mut Self {
        let wall = self.now.wall;
        for instance in self.observed.containers.iter_mut().filter(|instance| instance.may_run()) {
            end(instance, wall, 255);
        }
        self.observed.sandboxes.iter_mut().for_each(|sandbox| sandbox.ready = false);
        self.last_seen = Some(self.now);
        self.now = Moment {
            boot_ms: 5000,
            wall: Wall::from_millis(wall.as_millis() + 20_000),
            boot_id: BootId::from_u128(self.number().into()),
        };
        self.observed.agent.started = self.now;
        self.observed.operations.clear();
        self.settle()
    }

    pub(crate) fn delete(&mut self, grace: u64) -> &mut Self {
        self.observed.deletion = Some(Deletion { grace: Duration::from_secs(grace) });
        self.settle()
    }

    pub(crate) fn request_restart(&mut self) -> &mut Self {
        self.observed.restart_request = Some(RestartRequest { id: "r1".to_owned(), by: "root".to_owned() });
        self.settle()
    }

    pub(crate) fn answer(&mut self, container: &str, probe: ProbeKind, outcome: Outcome, output: &str) -> &mut Self {
        let report = ProbeReport { outcome, latency: Duration::from_millis(12), output: output.to_owned() };
        self.answers.insert((container.to_owned(), probe), report);
        self
    }

    pub(crate) fn fail(&mut self, text: &str, reason: &str, message: &str) -> &mut Self {
        let failure = OpFailure { reason: reason.to_owned(), message: message.to_owned() };
        self.failing.push((text.to_owned(), failure));
        self
    }

    pub(crate) fn hold(&mut self, text: &str) -> &mut Self {
        self.held.push(text.to_owned());
        self
    }

    fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    fn run(&mut self, operation: &Operation) -> Option<OpResult> {
        let text = format!("{operation:?}");
        if self.held.iter().any(|held| text.contains(held)) {
            return None;
        }
        if let Some((_, failure)) = self.failing.iter().find(|(pattern, _)| text.contains(pattern)) {
            return Some(OpResult::Failed(failure.clone()));
        }
        let wall = self.now.wall;
        match operation {
            Operation::CreateSandbox { attempt } => {
                let number = self.number();
                self.observed.sandboxes.push(Sandbox {
                    id: format!("sandbox-{number}"),
                    ready: true,
                    attempt: *attempt,
                    created_at: wall,
                    ips: vec!["10.0.0.7".to_owned()],
                    host_network: false,
                    lost: None,
                });
            }
            Operation::StopSandbox { sandbox } => {
                for found in self.observed.sandboxes.iter_mut().filter(|found| found.id == *sandbox) {
                    found.ready = false;
                }
            }
            Operation::RemoveSandbox { sandbox } => {
                self.observed.sandboxes.retain(|found| found.id != *sandbox);
                self.observed.containers.retain(|instance| instance.sandbox != *sandbox);
            }
            Operation::Launch { container, attempt, sandbox } => {
                let number = self.number();
                let spec = self.pod.container(container).expect("launched from the spec");
                self.observed.containers.push(Instance {
                    id: format!("test://{container}-{number}"),
                    name: container.clone(),
                    sandbox: sandbox.clone(),
                    attempt: *attempt,
                    hash: Some(spec.hash),
                    image: spec.image.clone(),
                    image_id: format!("sha256:{}", spec.image),
                    created_at: wall,
                    state: InstanceState::Running { started_at: wall },
                });
            }
            Operation::Stop { id, timeout, .. } => {
                let exit_code = if timeout.is_zero() { 137 } else { 143 };
                let mut running = self.observed.containers.iter_mut().filter(|found| found.may_run());
                if let Some(found) = running.find(|found| found.id == *id) {
                    end(found, wall, exit_code);
                }
            }
            Operation::Remove { id, .. } => self.observed.containers.retain(|found| found.id != *id),
            Operation::Probe { container, probe, .. } => {
                let fine = ProbeReport {
                    outcome: Outcome::Success,
                    latency: Duration::from_millis(3),
                    output: "200 OK".to_owned(),
                };
                let answer = self.answers.get(&(container.clone(), *probe)).cloned();
                return Some(OpResult::Probed(answer.unwrap_or(fine)));
            }
            Operation::PrepareVolumes
            | Operation::EnsureImage { .. }
            | Operation::StartCreated { .. }
            | Operation::PostStart { .. }
            | Operation::PreStop { .. } => {}
        }
        Some(OpResult::Done)
    }
}

fn end(instance: &mut Instance, wall: Wall, exit_code: i32) {
    let InstanceState::Running { started_at } = instance.state else { return };
    let reason = if exit_code == 0 { "Completed" } else { "Error" };
    instance.state = InstanceState::Exited {
        started_at,
        finished_at: wall,
        exit_code,
        reason: reason.to_owned(),
        message: String::new(),
    };
}
