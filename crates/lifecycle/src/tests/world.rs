//! A small world around a pod: a runtime that carries out plans, a clock that stands still until a test advances it,
//! probes that answer as scripted.
//!
//! Every operation takes effect at once unless it is held. Whatever happens, the planner is asked again, as the agent
//! would, until it has nothing left to start.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use keelet_pod::{Pod, ProbeKind, Role};

use crate::{
    Evidence, Moment, Observed, Plan, Rules, Stage, Wall,
    evidence::RunningInstance,
    observed::{Acknowledged, AgentRun, Before, Deletion, Instance, InstanceState, RestartRequest, Sandbox},
    operation::{OpFailure, OpId, OpReport, OpResult, OpState, Operation, Outcome, ProbeReport, Step},
    status::{Condition, ConditionType, ContainerState, ContainerStatus, PodStatus, Truth, check_transition},
    time::BootId,
};

/// When the world begins.
pub(crate) const BEGINNING: i64 = 1_800_000_000_000;

/// Which operations are held back: asked with each one.
type Held = Box<dyn Fn(&Operation) -> bool>;

/// Looks at a plan before it is carried out.
type Inspector = Box<dyn FnMut(&World, &Plan)>;

/// A pod, its runtime, its memory and its clock.
pub(crate) struct World {
    pub(crate) rules: Rules,
    pub(crate) pod: Pod,
    pub(crate) observed: Observed,
    pub(crate) evidence: Evidence,
    pub(crate) now: Moment,
    /// The newest plan.
    pub(crate) plan: Option<Plan>,
    /// Every operation ever started, with the moment.
    pub(crate) started: Vec<(Moment, Operation)>,
    /// Every operation ever cancelled.
    pub(crate) cancelled: Vec<Operation>,
    /// Every different status, in order.
    pub(crate) statuses: Vec<PodStatus>,
    /// Every event: reason and message.
    pub(crate) events: Vec<(String, String)>,
    /// What each probe answers; success where nothing is said.
    pub(crate) answers: BTreeMap<(String, ProbeKind), Outcome>,
    /// Operations that fail: the first matching entry, by a text of the operation's debug form.
    pub(crate) failing: Vec<(String, OpFailure)>,
    /// Containers that exit as soon as they start, with this code.
    pub(crate) exits_at_once: BTreeMap<String, i32>,
    /// Looks at every plan before it is carried out, the world still being as the planner saw it.
    pub(crate) inspector: Option<Inspector>,
    /// Whether a cancelled operation has taken effect all the same.
    pub(crate) cancels_too_late: bool,
    /// Whether every status reaches its readers at once.
    pub(crate) acknowledges: bool,
    held: Held,
    in_flight: Vec<(OpId, Operation)>,
    next_id: u32,
}

impl World {
    /// A world with nothing in it but a request for this pod.
    pub(crate) fn new(manifest: &str) -> Self {
        let pod = keelet_pod::parse_one(manifest).unwrap_or_else(|report| panic!("bad manifest: {report:#?}"));
        let now = Moment { boot_ms: 1_000_000, wall: Wall::from_millis(BEGINNING), boot_id: BootId::from_u128(1) };
        let agent = AgentRun { started: now, before: Before::Standalone(None), missed: None };
        Self {
            rules: Rules::default(),
            pod,
            observed: Observed::nothing(agent),
            evidence: Evidence::default(),
            now,
            plan: None,
            started: Vec::new(),
            cancelled: Vec::new(),
            statuses: Vec::new(),
            events: Vec::new(),
            answers: BTreeMap::new(),
            failing: Vec::new(),
            exits_at_once: BTreeMap::new(),
            inspector: None,
            cancels_too_late: false,
            acknowledges: true,
            held: Box::new(|_| false),
            in_flight: Vec::new(),
            next_id: 0,
        }
    }

    /// A pod of which only the spec part is given, indented by two spaces.
    pub(crate) fn with_spec(spec: &str) -> Self {
        Self::new(&manifest(spec))
    }

    // --- time and planning ---

    /// Plans once and carries out what the plan starts, without planning again.
    pub(crate) fn plan_once(&mut self) -> Plan {
        let plan = self.rules.plan(&self.pod, &self.observed, &self.evidence, self.now);
        if let Some(mut inspect) = self.inspector.take() {
            inspect(self, &plan);
            self.inspector = Some(inspect);
        }
        self.check_transition(&plan);
        // A result that a plan has seen is taken.
        self.observed.operations.retain(|report| report.state == OpState::InFlight);
        self.evidence = plan.evidence.clone();
        if self.statuses.last() != Some(&plan.status) {
            self.statuses.push(plan.status.clone());
        }
        for event in &plan.events {
            self.events.push((event.reason.to_owned(), event.message.clone()));
        }
        if self.acknowledges {
            self.observed.acknowledged = Acknowledged::UpTo(plan.version);
        }
        for step in plan.operations.clone() {
            match step {
                Step::Start { id, operation } => {
                    self.started.push((self.now, operation.clone()));
                    self.in_flight.push((id, operation.clone()));
                    if (self.held)(&operation) {
                        self.observed.operations.push(OpReport { id, state: OpState::InFlight });
                    } else {
                        self.finish(id);
                    }
                }
                Step::Cancel { id } => {
                    if let Some((_, operation)) = self.in_flight.iter().find(|(flying, _)| *flying == id) {
                        let operation = operation.clone();
                        self.cancelled.push(operation.clone());
                        if self.cancels_too_late {
                            self.take_effect(&operation);
                        }
                        self.conclude(id, OpResult::Cancelled);
                    }
                }
            }
        }
        self.plan = Some(plan.clone());
        plan
    }

    /// API-20: no status is planned that the API server would reject after the one before it. On its own a node may
    /// show more: a restart that a person asked for, and init containers that run again after a reboot.
    fn check_transition(&self, plan: &Plan) {
        let Some(before) = &self.plan else { return };
        let result = check_transition(&self.pod, &before.status, &plan.status, self.rules.restart_all);
        let Err(violation) = result else { return };
        let standalone = matches!(self.observed.agent.before, Before::Standalone(_));
        let runs_again = plan.evidence.durable.sandbox_attempts > 1
            && self.pod.container(&violation.container).is_some_and(|container| container.role == Role::Init);
        let asked_for = self.observed.restart_request.is_some();
        assert!(standalone && (runs_again || asked_for), "{violation}: {:#?} -> {:#?}", before.status, plan.status);
    }

    /// Plans until there is nothing left to start at this moment.
    pub(crate) fn settle(&mut self) -> &mut Self {
        for _ in 0..500 {
            let before = self.evidence.clone();
            let plan = self.plan_once();
            let quiet = plan.operations.is_empty()
                && self.observed.operations.iter().all(|report| report.state == OpState::InFlight)
                && self.evidence == before;
            let due_now = plan.wake_at.is_some_and(|at| self.now.has_reached(&at));
            if quiet && !due_now {
                return self;
            }
        }
        panic!("the planner does not come to rest: {:#?}", self.plan);
    }

    /// Lets time pass, planning whenever a plan asked for it.
    pub(crate) fn pass(&mut self, span: Duration) -> &mut Self {
        let end = self.now.plus(span);
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

    /// Lets seconds pass.
    pub(crate) fn seconds(&mut self, seconds: u64) -> &mut Self {
        self.pass(Duration::from_secs(seconds))
    }

    // --- what happens ---

    /// A container exits.
    pub(crate) fn exit(&mut self, name: &str, exit_code: i32) -> &mut Self {
        self.exit_only(name, exit_code);
        self.settle()
    }

    /// A container exits, without a plan afterwards.
    pub(crate) fn exit_only(&mut self, name: &str, exit_code: i32) -> &mut Self {
        let wall = self.now.wall;
        let instance = self.running_instance(name);
        end(instance, wall, exit_code);
        self
    }

    /// An instance disappears from the runtime.
    pub(crate) fn lose(&mut self, name: &str) -> &mut Self {
        self.observed.containers.retain(|instance| instance.name != name);
        self
    }

    /// The agent is killed and started again, on the same ledger.
    pub(crate) fn restart_agent(&mut self) -> &mut Self {
        self.restart_agent_only();
        self.settle()
    }

    /// The same, without planning.
    pub(crate) fn restart_agent_only(&mut self) -> &mut Self {
        self.observed.agent.started = self.now;
        self.observed.operations.clear();
        self.in_flight.clear();
        self.observed.acknowledged = Acknowledged::UpTo(0);
        self
    }

    /// The node boots anew: all containers are dead, the sandbox is not ready.
    pub(crate) fn reboot(&mut self) -> &mut Self {
        let wall = self.now.wall;
        for instance in &mut self.observed.containers {
            if instance.may_run() {
                end(instance, wall, 255);
            }
        }
        for sandbox in &mut self.observed.sandboxes {
            sandbox.ready = false;
        }
        self.now = Moment {
            boot_ms: 5_000,
            wall: Wall::from_millis(wall.as_millis() + 20_000),
            boot_id: BootId::from_u128(self.next_number().into()),
        };
        self.restart_agent_only()
    }

    /// A user deletes the pod.
    pub(crate) fn delete(&mut self, grace: u64) -> &mut Self {
        self.observed.deletion = Some(Deletion { grace: Duration::from_secs(grace) });
        self.settle()
    }

    /// A user asks for all containers to be restarted.
    pub(crate) fn request_restart(&mut self, id: &str) -> &mut Self {
        self.observed.restart_request = Some(RestartRequest { id: id.to_owned(), by: "tester".to_owned() });
        self.settle()
    }

    /// From now on this probe answers so.
    pub(crate) fn answer(&mut self, container: &str, probe: ProbeKind, outcome: Outcome) -> &mut Self {
        self.answers.insert((container.to_owned(), probe), outcome);
        self
    }

    /// From now on operations that match stay in flight until [`Self::release`].
    pub(crate) fn hold(&mut self, held: impl Fn(&Operation) -> bool + 'static) -> &mut Self {
        self.held = Box::new(held);
        self
    }

    /// Everything held is carried out, and nothing is held any more.
    pub(crate) fn release(&mut self) -> &mut Self {
        self.held = Box::new(|_| false);
        for id in self.in_flight.iter().map(|(id, _)| *id).collect::<Vec<_>>() {
            self.finish(id);
        }
        self.settle()
    }

    /// Operations whose debug form contains `text` fail with this reason.
    pub(crate) fn fail(&mut self, text: &str, reason: &str) -> &mut Self {
        let failure = OpFailure { reason: reason.to_owned(), message: format!("{text} does not work") };
        self.failing.push((text.to_owned(), failure));
        self
    }

    // --- what there is to see ---

    /// The newest status.
    pub(crate) fn status(&self) -> &PodStatus {
        &self.plan.as_ref().expect("nothing has been planned").status
    }

    /// The status of a container.
    pub(crate) fn container(&self, name: &str) -> &ContainerStatus {
        self.status().container(name).unwrap_or_else(|| panic!("no status of container {name}"))
    }

    /// A condition.
    pub(crate) fn condition(&self, kind: ConditionType) -> &Condition {
        self.status().condition(&kind).unwrap_or_else(|| panic!("no condition {kind:?}"))
    }

    /// Whether a condition is True.
    pub(crate) fn holds(&self, kind: ConditionType) -> bool {
        self.condition(kind).status == Truth::True
    }

    /// The stage of the newest plan.
    pub(crate) fn stage(&self) -> Stage {
        self.plan.as_ref().expect("nothing has been planned").stage
    }

    /// The reason a container waits for, or nothing if it does not wait.
    pub(crate) fn waiting_reason(&self, name: &str) -> Option<&str> {
        match &self.container(name).state {
            ContainerState::Waiting(waiting) => Some(&waiting.reason),
            ContainerState::Running(_) | ContainerState::Terminated(_) => None,
        }
    }

    /// What is remembered of a running container.
    pub(crate) fn instance(&self, name: &str) -> &RunningInstance {
        self.evidence.volatile.instances.get(name).unwrap_or_else(|| panic!("container {name} does not run"))
    }

    /// Names of containers that run.
    pub(crate) fn running(&self) -> BTreeSet<&str> {
        self.observed
            .containers
            .iter()
            .filter(|instance| matches!(instance.state, InstanceState::Running { .. }))
            .map(|instance| instance.name.as_str())
            .collect()
    }

    /// Launches of a container, in seconds since the world began.
    pub(crate) fn launches(&self, name: &str) -> Vec<u64> {
        let beginning = Wall::from_millis(BEGINNING);
        self.started
            .iter()
            .filter(|(_, operation)| matches!(operation, Operation::Launch { container, .. } if container == name))
            .map(|(at, _)| at.wall.since(beginning).as_secs())
            .collect()
    }

    /// The operations started since the mark, without probes.
    pub(crate) fn since(&self, mark: usize) -> Vec<&Operation> {
        self.started[mark..]
            .iter()
            .map(|(_, operation)| operation)
            .filter(|operation| !matches!(operation, Operation::Probe { .. }))
            .collect()
    }

    /// How many operations were started so far: a mark for [`Self::since`].
    pub(crate) fn mark(&self) -> usize {
        self.started.len()
    }

    /// Scheduled probe attempts of a container since the mark.
    pub(crate) fn probes_since(&self, mark: usize, name: &str, kind: ProbeKind) -> usize {
        let is_it = |operation: &Operation| matches!(operation, Operation::Probe { container, probe, eager: false, .. } if container == name && *probe == kind);
        self.started[mark..].iter().filter(|(_, operation)| is_it(operation)).count()
    }

    /// Whether an event of that reason mentions the text.
    pub(crate) fn saw_event(&self, reason: &str, text: &str) -> bool {
        self.events.iter().any(|(seen, message)| seen == reason && message.contains(text))
    }

    /// The ID of the running instance of a container.
    pub(crate) fn id(&self, name: &str) -> String {
        self.observed.newest(name).unwrap_or_else(|| panic!("no instance of {name}")).id.clone()
    }

    // --- the runtime ---

    /// The running instance of a container.
    pub(crate) fn running_instance(&mut self, name: &str) -> &mut Instance {
        self.observed
            .containers
            .iter_mut()
            .find(|instance| instance.name == name && instance.may_run())
            .unwrap_or_else(|| panic!("container {name} does not run"))
    }

    /// Finishes an operation that is in flight, with its effect.
    pub(crate) fn finish(&mut self, id: OpId) {
        let Some((_, operation)) = self.in_flight.iter().find(|(flying, _)| *flying == id).cloned() else { return };
        let text = format!("{operation:?}");
        let failure = self.failing.iter().find(|(pattern, _)| text.contains(pattern.as_str()));
        let result = match failure {
            Some((_, failure)) => OpResult::Failed(failure.clone()),
            None => self.take_effect(&operation),
        };
        self.conclude(id, result);
    }

    /// Reports how an operation in flight ended, without its effect.
    pub(crate) fn conclude(&mut self, id: OpId, result: OpResult) {
        self.in_flight.retain(|(flying, _)| *flying != id);
        self.observed.operations.retain(|report| report.id != id);
        self.observed.operations.push(OpReport { id, state: OpState::Finished { at: self.now, result } });
    }

    /// The operations in flight.
    pub(crate) fn in_flight(&self) -> Vec<(OpId, Operation)> {
        self.in_flight.clone()
    }

    fn next_number(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    fn take_effect(&mut self, operation: &Operation) -> OpResult {
        let wall = self.now.wall;
        match operation {
            Operation::PrepareVolumes
            | Operation::EnsureImage { .. }
            | Operation::PostStart { .. }
            | Operation::PreStop { .. } => {}
            Operation::CreateSandbox { attempt } => {
                let number = self.next_number();
                self.observed.sandboxes.push(Sandbox {
                    id: format!("sandbox-{number}"),
                    ready: true,
                    attempt: *attempt,
                    created_at: wall,
                    ips: if self.pod.host_network { Vec::new() } else { vec![format!("10.0.0.{number}")] },
                    host_network: self.pod.host_network,
                    lost: None,
                });
            }
            Operation::StopSandbox { sandbox } => {
                if let Some(found) = self.observed.sandboxes.iter_mut().find(|found| found.id == *sandbox) {
                    found.ready = false;
                }
            }
            Operation::RemoveSandbox { sandbox } => {
                self.observed.sandboxes.retain(|found| found.id != *sandbox);
                self.observed.containers.retain(|instance| instance.sandbox != *sandbox);
            }
            Operation::Launch { container, attempt, sandbox } => {
                let number = self.next_number();
                let spec = self.pod.container(container).expect("launched from the spec");
                let mut instance = Instance {
                    id: format!("test://{container}-{number}"),
                    name: container.clone(),
                    sandbox: sandbox.clone(),
                    attempt: *attempt,
                    hash: Some(spec.hash),
                    image: spec.image.clone(),
                    image_id: format!("sha256:{}", spec.image),
                    created_at: wall,
                    state: InstanceState::Running { started_at: wall },
                };
                if let Some(code) = self.exits_at_once.get(container) {
                    end(&mut instance, wall, *code);
                }
                self.observed.containers.push(instance);
            }
            Operation::StartCreated { id, .. } => {
                if let Some(found) = self.observed.containers.iter_mut().find(|found| found.id == *id) {
                    found.state = InstanceState::Running { started_at: wall };
                }
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
                let outcome = self.answers.get(&(container.clone(), *probe)).copied().unwrap_or(Outcome::Success);
                return OpResult::Probed(ProbeReport {
                    outcome,
                    latency: Duration::from_millis(2),
                    output: format!("{outcome:?}"),
                });
            }
        }
        OpResult::Done
    }
}

/// A manifest of which only the spec part is given, indented by two spaces.
pub(crate) fn manifest(spec: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: shop, uid: uid-1}}\nspec:\n{spec}")
}

fn end(instance: &mut Instance, wall: Wall, exit_code: i32) {
    let started_at = match &instance.state {
        InstanceState::Running { started_at } | InstanceState::Exited { started_at, .. } => *started_at,
        InstanceState::Created | InstanceState::Unknown => wall,
    };
    let reason = if exit_code == 0 { "Completed" } else { "Error" };
    instance.state = InstanceState::Exited {
        started_at,
        finished_at: wall,
        exit_code,
        reason: reason.to_owned(),
        message: String::new(),
    };
}
