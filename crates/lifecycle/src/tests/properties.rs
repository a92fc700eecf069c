//! Invariants of every pod and every sequence of events, checked at every plan of random runs.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use keelet_pod::{ProbeKind, Role};
use proptest::{prelude::*, sample::select};

use super::world::World;
use crate::{
    Plan, Stage, Wall,
    observed::InstanceState,
    operation::{KillReason, OpReport, OpState, Operation, Outcome, Step},
    restart::{BackoffLimits, RestartAllStage},
    status::{ConditionType, ContainerState, Phase, PodStatus},
};

/// What can happen to a pod.
#[derive(Clone, Debug)]
enum Happening {
    Exit(usize, i32),
    Answer(usize, ProbeKind, Outcome),
    Pass(u64),
    RestartAgent,
    CrashAgent,
    Reboot,
    Lose(usize),
    Forget(usize),
    Hold(&'static str),
    Release,
    Fail(&'static str),
    Mend,
    Request(u32),
    SetClock(i64),
    ChangeImage(usize),
    Delete(u64),
}

const OPERATIONS: [&str; 8] =
    ["Launch", "Stop {", "Remove {", "CreateSandbox", "EnsureImage", "PreStop", "PostStart", "Probe"];

fn happening() -> impl Strategy<Value = Happening> {
    let container = 0..6usize;
    let kind = select(ProbeKind::ALL.to_vec());
    let outcome = select(vec![
        Outcome::Success,
        Outcome::Failure,
        Outcome::Warning,
        Outcome::Error,
        Outcome::Late,
        Outcome::Cancelled,
    ]);
    prop_oneof![
        6 => (container.clone(), select(vec![0, 1, 42, 88, 137])).prop_map(|(c, code)| Happening::Exit(c, code)),
        4 => (container.clone(), kind, outcome).prop_map(|(c, k, o)| Happening::Answer(c, k, o)),
        6 => select(vec![1, 300, 1000, 2500, 11_000, 61_000, 700_000]).prop_map(Happening::Pass),
        3 => Just(Happening::RestartAgent),
        3 => Just(Happening::CrashAgent),
        1 => Just(Happening::Reboot),
        1 => container.clone().prop_map(Happening::Lose),
        1 => container.clone().prop_map(Happening::Forget),
        2 => select(OPERATIONS.to_vec()).prop_map(Happening::Hold),
        2 => Just(Happening::Release),
        2 => select(OPERATIONS.to_vec()).prop_map(Happening::Fail),
        2 => Just(Happening::Mend),
        1 => (0..3u32).prop_map(Happening::Request),
        1 => select(vec![-3_600_000i64, 3_600_000, -1500]).prop_map(Happening::SetClock),
        1 => container.prop_map(Happening::ChangeImage),
        1 => select(vec![0u64, 5, 30]).prop_map(Happening::Delete),
    ]
}

fn spec() -> impl Strategy<Value = String> {
    let policy = select(vec!["Always", "OnFailure", "Never"]);
    let rule = select(vec![
        "",
        "{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}",
        "{action: Restart, exitCodes: {operator: In, values: [1]}}",
        "{action: RestartAllContainers, exitCodes: {operator: NotIn, values: [0]}}",
    ]);
    let flags = any::<[bool; 8]>();
    (policy.clone(), policy, rule.clone(), rule, flags).prop_map(|(pod, own, rule, sidecar_rule, f)| {
        let probe = |wanted: bool, kind: &str, more: &str| {
            if wanted {
                format!("    {kind}: {{tcpSocket: {{port: 80}}, periodSeconds: 1{more}}}\n")
            } else {
                String::new()
            }
        };
        let rules = |policy: &str, rule: &str| {
            let rules = if rule.is_empty() { String::new() } else { format!("    restartPolicyRules: [{rule}]\n") };
            format!("    restartPolicy: {policy}\n{rules}")
        };
        let mut text = format!("  restartPolicy: {pod}\n  terminationGracePeriodSeconds: 5\n");
        if f[0] || f[1] {
            text.push_str("  initContainers:\n");
        }
        if f[0] {
            text.push_str("  - {name: setup, image: tool}\n");
        }
        if f[1] {
            text.push_str("  - name: watcher\n    image: proxy\n");
            text.push_str(&rules("Always", sidecar_rule));
            text.push_str(&probe(f[2], "startupProbe", ", failureThreshold: 4"));
            text.push_str(&probe(f[3], "livenessProbe", ""));
            text.push_str("  - {name: late, image: tool}\n");
        }
        text.push_str("  containers:\n  - name: main\n    image: app\n");
        if !rule.is_empty() {
            text.push_str(&rules(own, rule));
        }
        text.push_str(&probe(f[4], "startupProbe", ", failureThreshold: 5"));
        text.push_str(&probe(f[5], "readinessProbe", ", failureThreshold: 2, successThreshold: 2"));
        text.push_str(&probe(f[6], "livenessProbe", ""));
        if f[7] {
            text.push_str("    lifecycle: {postStart: {exec: {command: [a]}}, preStop: {exec: {command: [b]}}}\n");
        }
        text.push_str("  - {name: helper, image: app}\n");
        text
    })
}

/// What the checks remember from plan to plan.
#[derive(Default)]
struct Watch {
    previous: Option<PodStatus>,
    instances: BTreeMap<String, BTreeSet<String>>,
}

impl Watch {
    fn look(&mut self, world: &World, plan: &Plan) {
        self.count_instances(world);
        is_idempotent(world, plan);
        for step in &plan.operations {
            if let Step::Start { operation, .. } = step {
                is_justified(world, plan, operation);
            }
        }
        if let Some(previous) = self.previous.take() {
            compare(world, plan, &previous);
        }
        self.counts_are_exact(world, plan);
        everything_has_a_reason(plan);
        self.previous = Some(plan.status.clone());
    }

    fn count_instances(&mut self, world: &World) {
        for instance in &world.observed.containers {
            if instance.state != InstanceState::Created {
                self.instances.entry(instance.name.clone()).or_default().insert(instance.id.clone());
            }
        }
    }

    /// A running container was restarted exactly once per instance before this one.
    fn counts_are_exact(&self, world: &World, plan: &Plan) {
        for status in plan.status.all_containers() {
            let instances = u32::try_from(self.instances.get(&status.name).map_or(0, BTreeSet::len)).unwrap();
            if matches!(status.state, ContainerState::Running(_)) {
                assert_eq!(status.restart_count + 1, instances, "{} of {:#?}", status.name, world.observed.containers);
            }
            assert!(status.restart_count <= instances, "{} counts instances that never existed", status.name);
        }
    }
}

/// Planning on the planned state starts nothing, and says and remembers the same.
fn is_idempotent(world: &World, plan: &Plan) {
    let mut observed = world.observed.clone();
    observed.operations.retain(|report| report.state == OpState::InFlight);
    for step in &plan.operations {
        if let Step::Start { id, .. } = step {
            observed.operations.push(OpReport { id: *id, state: OpState::InFlight });
        }
    }
    if plan.evidence.volatile.reset_due {
        return;
    }
    let again = world.rules.plan(&world.pod, &observed, &plan.evidence, world.now);
    assert_eq!(again.operations, [], "planned again on {:#?}", plan.operations);
    assert_eq!(again.status, plan.status);
    assert_eq!(again.version, plan.version);
    assert_eq!(again.evidence, plan.evidence);
    if let Some(at) = again.wake_at {
        assert!(plan.wake_at.is_some_and(|planned| at.has_reached(&planned)), "{at:?} was not foreseen");
    }
    assert!(again.events.is_empty(), "{:?} said twice", again.events);
}

fn is_justified(world: &World, plan: &Plan, operation: &Operation) {
    let durable = &plan.evidence.durable;
    let alive = |name: &str| world.observed.containers.iter().any(|i| i.name == name && i.may_run());
    match operation {
        Operation::Launch { container, sandbox, .. } => {
            assert!(!alive(container), "{container} is started twice");
            assert!(durable.ending.is_none(), "{container} is started in an ending pod");
            assert!(!matches!(durable.restart_all.stage, RestartAllStage::Terminating(_)));
            assert!(world.observed.sandboxes.iter().any(|s| s.id == *sandbox && s.ready));
            let index = world.pod.init_containers.iter().position(|c| c.name == *container);
            let initialized = durable.initialized_in.as_ref() == Some(sandbox);
            let earlier = &world.pod.init_containers[..index.unwrap_or(world.pod.init_containers.len())];
            for before in earlier.iter().filter(|_| !initialized) {
                let record = durable.container(&before.name);
                let over = match before.role {
                    Role::Init => record.is_some_and(|record| record.completed_in.as_ref() == Some(sandbox)),
                    Role::Sidecar | Role::Regular | Role::Ephemeral => record.is_some_and(|record| record.has_lived()),
                };
                assert!(over, "{container} is started before {}", before.name);
            }
        }
        Operation::Stop { container, id, reason, .. } => {
            let remembered = world.evidence.volatile.instances.get(container).filter(|remembered| remembered.id == *id);
            let new_instance =
                plan.evidence.volatile.instances.get(container).filter(|remembered| remembered.id == *id);
            match reason {
                KillReason::Probe(kind) => {
                    assert_eq!(new_instance.unwrap().probe(*kind).verdict.passed(), Some(false), "{container}");
                }
                KillReason::PodEnding => assert!(durable.ending.is_some()),
                KillReason::RestartAll => {
                    assert!(
                        matches!(durable.restart_all.stage, RestartAllStage::Terminating(_))
                            || durable.ending.is_some()
                    );
                }
                KillReason::DefinitionChanged => {
                    let hash = world.observed.containers.iter().find(|i| i.id == *id).unwrap().hash;
                    assert!(hash != Some(world.pod.container(container).unwrap().hash) || remembered.is_some());
                }
                KillReason::PostStartFailed => {
                    assert_eq!(new_instance.unwrap().post_start, crate::evidence::HookProgress::Failed);
                }
                KillReason::SandboxGone => assert!(!plan.status.is_true(&ConditionType::PodReadyToStartContainers)),
                KillReason::StateUnknown | KillReason::Superseded => {}
            }
        }
        Operation::Probe { container, id, probe, .. } => {
            let remembered = plan.evidence.volatile.instances.get(container).unwrap();
            assert_eq!(remembered.id, *id);
            let spec = world.pod.container(container).unwrap();
            let started = spec.startup.is_none() || remembered.startup.verdict.passed() == Some(true);
            assert_eq!(started, *probe != ProbeKind::Startup, "{probe} probe of {container}");
        }
        Operation::Remove { container, id } => {
            let instance = world.observed.containers.iter().find(|i| i.id == *id).unwrap();
            assert!(!instance.may_run(), "{container} is removed while it runs");
        }
        _ => {}
    }
}

/// What may and may not change from one status to the next.
fn compare(world: &World, plan: &Plan, previous: &PodStatus) {
    let probed = |name: &str, kinds: &[ProbeKind]| {
        plan.results.iter().any(|result| result.container == name && kinds.contains(&result.probe))
    };
    for now in plan.status.all_containers() {
        let Some(before) = previous.container(&now.name) else { continue };
        assert!(now.restart_count >= before.restart_count, "restart count of {} falls", now.name);
        assert!(now.restart_count <= before.restart_count + 1, "restart count of {} jumps", now.name);
        let both_run = matches!((&before.state, &now.state), (ContainerState::Running(_), ContainerState::Running(_)));
        if both_run && before.container_id == now.container_id {
            assert!(
                before.started == now.started || probed(&now.name, &[ProbeKind::Startup]),
                "started of {} changes without a probe",
                now.name
            );
            assert!(
                before.ready == now.ready || probed(&now.name, &[ProbeKind::Startup, ProbeKind::Readiness]),
                "ready of {} changes without a probe",
                now.name
            );
        }
    }
    if previous.phase.is_terminal() {
        assert_eq!(plan.status.phase, previous.phase, "a terminal phase is final");
    }
    if plan.evidence.durable.restart_all.stage.is_under_way() {
        assert_eq!(plan.status.phase, Phase::Pending);
    }
    if plan.status.phase.is_terminal() {
        assert!(matches!(plan.stage, Stage::Ended | Stage::Gone), "{:?} in {:?}", plan.status.phase, plan.stage);
        assert!(!world.observed.containers.iter().any(|instance| instance.may_run()));
    }
    if previous.is_true(&ConditionType::Initialized) {
        assert!(plan.status.is_true(&ConditionType::Initialized), "Initialized returned to False");
    }
    for condition in &plan.status.conditions {
        let before = previous.condition(&condition.kind).filter(|before| before.status == condition.status);
        if let Some(before) = before {
            assert_eq!(before.last_transition_time, condition.last_transition_time, "{:?}", condition.kind);
        }
    }
}

fn everything_has_a_reason(plan: &Plan) {
    use crate::plan::Subject;
    let has =
        |subject: Subject| assert!(plan.why.iter().any(|why| why.subject == subject), "no reason for {subject:?}");
    has(Subject::Phase);
    for condition in &plan.status.conditions {
        has(Subject::Condition(condition.kind.clone()));
    }
    for status in plan.status.init_container_statuses.iter().chain(&plan.status.container_statuses) {
        has(Subject::State(status.name.clone()));
        has(Subject::Started(status.name.clone()));
        has(Subject::Ready(status.name.clone()));
    }
}

fn play(world: &mut World, happenings: &[Happening]) {
    let names: Vec<String> = world.pod.lasting_containers().map(|container| container.name.clone()).collect();
    let name = |index: usize| names[index % names.len()].clone();
    world.settle();
    for happening in happenings {
        match happening.clone() {
            Happening::Exit(index, code) => {
                if world.running().contains(name(index).as_str()) {
                    world.exit_only(&name(index), code);
                }
            }
            Happening::Answer(index, kind, outcome) => {
                world.answer(&name(index), kind, outcome);
            }
            Happening::Pass(millis) => {
                world.pass(Duration::from_millis(millis));
            }
            Happening::RestartAgent => {
                world.restart_agent_only();
            }
            Happening::CrashAgent => {
                world.plan_once();
                world.restart_agent_only();
            }
            Happening::Reboot => {
                world.settle();
                world.reboot();
            }
            Happening::Lose(index) => {
                world.settle();
                world.lose(&name(index));
            }
            Happening::Forget(index) => {
                if world.running().contains(name(index).as_str()) {
                    world.running_instance(&name(index)).state = InstanceState::Unknown;
                }
            }
            Happening::Hold(text) => {
                world.hold(move |operation| format!("{operation:?}").starts_with(text));
            }
            Happening::Release => {
                world.release();
            }
            Happening::Fail(text) => {
                world.fail(text, "Broken");
            }
            Happening::Mend => world.failing.clear(),
            Happening::Request(number) => {
                let request = crate::observed::RestartRequest { id: format!("r{number}"), by: "chance".to_owned() };
                world.observed.restart_request = Some(request);
            }
            Happening::SetClock(by) => {
                world.now.wall = Wall::from_millis(world.now.wall.as_millis() + by);
            }
            Happening::ChangeImage(index) => {
                for list in [&mut world.pod.init_containers, &mut world.pod.containers] {
                    for container in list.iter_mut().filter(|container| container.name == name(index)) {
                        container.hash += 1;
                    }
                }
            }
            Happening::Delete(grace) => {
                world.observed.deletion = Some(crate::observed::Deletion { grace: Duration::from_secs(grace) });
            }
        }
        world.settle();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// PROC-1, API-20, STAT-20, STAT-21, RALL-16, RALL-21, SIDE-1, KEEP-23: plans are idempotent and total, nothing is
    /// started twice or out of order, nothing is killed without a reason, counts are exact, and no status bit changes
    /// without evidence, whatever happens.
    #[test]
    fn the_rules_hold_in_every_history(spec in spec(), happenings in prop::collection::vec(happening(), 0..40)) {
        let mut world = World::with_spec(&spec);
        let watch = Rc::new(RefCell::new(Watch::default()));
        world.inspector = Some(Box::new(move |world, plan| watch.borrow_mut().look(world, plan)));
        play(&mut world, &happenings);
    }

    /// RALL-33, RALL-34, SYNC-3: once faults stop, every pod comes to rest: it runs and is ready, or it has ended.
    #[test]
    fn every_pod_converges_once_faults_stop(spec in spec(), happenings in prop::collection::vec(happening(), 0..25)) {
        let mut world = World::with_spec(&spec);
        // Short delays, so that little time has to pass for all of them to be over.
        world.rules.crash_backoff = BackoffLimits { initial: Duration::from_secs(1), cap: Duration::from_secs(8) };
        world.rules.pull_backoff = world.rules.crash_backoff;
        play(&mut world, &happenings);
        world.failing.clear();
        world.answers.clear();
        world.release();
        for _ in 0..8 {
            world.seconds(20);
            for name in ["setup", "late"] {
                if world.running().contains(name) {
                    world.exit(name, 0);
                }
            }
        }
        match world.stage() {
            Stage::Ended | Stage::Gone => prop_assert!(world.running().is_empty()),
            stage => {
                prop_assert_eq!(stage, Stage::Live, "{:#?}", world.plan);
                prop_assert_eq!(world.status().phase, Phase::Running, "{:#?}", world.plan);
                for container in &world.pod.containers {
                    let status = world.container(&container.name);
                    let ended = matches!(status.state, ContainerState::Terminated(_));
                    let lost = status.last_state.terminated.as_ref().is_some_and(|t| t.reason == "ContainerStatusUnknown");
                    prop_assert!(status.ready || ended || lost, "{:#?}", world.plan);
                }
            }
        }
    }
}
