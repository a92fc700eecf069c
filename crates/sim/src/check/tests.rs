//! Every checker notices an agent that breaks its promise, and none complains about one that keeps it.

use std::{sync::Arc, time::Duration};

use keelet_lifecycle::{
    Wall,
    status::{
        Condition, ConditionType, ContainerState, ContainerStatus, Phase, PodStatus, Running, Terminated, Truth,
        Waiting,
    },
};
use keelet_pod::ProbeKind;

use super::convergence;
use crate::{
    faults::{CallKind, Fate},
    node::{Blueprint, Sandbox},
    script::{Answer, Reply},
    sim::State,
    timeline::{Attempt, ExitCause, Happening, Memory},
    world::{World, millis, secs},
};

mod excuses;

/// A world whose agent is played by the test.
struct Stage {
    world: World,
    version: u64,
    run: u32,
}

impl Stage {
    fn new(spec: &str) -> Self {
        let world = World::new(1).pod(spec).without_agent().quietly().build();
        let mut stage = Self { world, version: 0, run: 0 };
        stage.start_agent();
        stage.act(|state| {
            state.run_sandbox(Sandbox {
                id: String::new(),
                pod: "web".to_owned(),
                pod_name: "web".to_owned(),
                namespace: "shop".to_owned(),
                attempt: 0,
                ready: true,
                ip: String::new(),
                host_network: false,
                created_ns: 0,
                labels: Default::default(),
                annotations: Default::default(),
                loss: None,
            });
        });
        stage
    }

    fn act(&mut self, act: impl FnOnce(&mut State)) -> &mut Self {
        self.world.inside(act);
        self
    }

    fn start_agent(&mut self) -> &mut Self {
        self.run += 1;
        let run = self.run;
        self.act(|state| state.note(Happening::AgentStarts { run, memory: Memory::Kept }))
    }

    fn kill_agent(&mut self) -> &mut Self {
        let run = self.run;
        self.act(|state| state.note(Happening::AgentDies { run, effects: 0 }))
    }

    fn pass(&mut self, span: Duration) -> &mut Self {
        self.world.run(span);
        self
    }

    /// Creates and starts the next instance of a container.
    fn launch(&mut self, name: &str) -> &mut Self {
        let id = self.create(name);
        self.act(|state| state.start(&id))
    }

    /// The agent asks for the start of an instance, which a slow runtime has yet to carry out.
    fn ask_for_start(&mut self, id: &str) -> &mut Self {
        let (kind, subject, fate) = (CallKind::StartContainer, id.to_owned(), Fate::Applied);
        self.act(|state| state.note(Happening::Call { kind, subject, fate }))
    }

    /// Creates the next instance of a container.
    fn create(&mut self, name: &str) -> String {
        let attempt = u32::try_from(self.world.starts(name)).unwrap();
        self.world.inside(|state| {
            let blueprint = Blueprint {
                sandbox: "web-sandbox-1".to_owned(),
                name: name.to_owned(),
                attempt,
                image: "app".to_owned(),
                mounts: Default::default(),
                labels: Default::default(),
                annotations: Default::default(),
            };
            state.create(blueprint).unwrap()
        })
    }

    fn exit(&mut self, name: &str, exit_code: i32) -> &mut Self {
        self.world.exit(name, exit_code);
        self
    }

    fn kill(&mut self, name: &str) -> &mut Self {
        let id = self.world.running(name).unwrap();
        self.act(|state| state.exit(&id, 137, ExitCause::Killed))
    }

    fn remove(&mut self, name: &str) -> &mut Self {
        let id = self.world.container_runs(name).last().unwrap().instance.id.clone();
        self.act(|state| state.remove(&id, true))
    }

    /// A probe asks the running instance, or finds none.
    fn probe(&mut self, name: &str, kind: ProbeKind, reply: Reply) -> &mut Self {
        self.probe_sent(name, kind, reply, Duration::ZERO)
    }

    /// The same, for an attempt that the agent sent so long ago.
    fn probe_sent(&mut self, name: &str, kind: ProbeKind, reply: Reply, ago: Duration) -> &mut Self {
        self.act(|state| {
            let (instance, sent) = (state.node.running("web", name).cloned(), state.elapsed().saturating_sub(ago));
            let Answer { reply, after: latency } = Answer::new(reply);
            let (pod, container, question) = ("web".to_owned(), name.to_owned(), "asked".to_owned());
            let kinds = vec![kind];
            state.note_attempt(Attempt { pod, container, instance, kinds, question, sent, reply, latency });
        })
        .pass(millis(10))
    }

    fn publish(&mut self, phase: Phase, containers: Vec<ContainerStatus>) -> &mut Self {
        self.publish_with(phase, containers, false)
    }

    fn publish_with(&mut self, phase: Phase, containers: Vec<ContainerStatus>, restarting: bool) -> &mut Self {
        self.version += 1;
        let (run, version) = (self.run, self.version);
        let condition = Condition {
            kind: ConditionType::AllContainersRestarting,
            status: Truth::from(restarting),
            reason: None,
            message: None,
            last_transition_time: None,
            observed_generation: None,
        };
        let (init, regular) = containers.into_iter().partition(|c| c.name == "setup");
        let status = Arc::new(PodStatus {
            phase,
            conditions: vec![condition],
            init_container_statuses: init,
            container_statuses: regular,
            ..PodStatus::default()
        });
        self.act(|state| {
            state.api_statuses.statuses.insert("web".to_owned(), (version, Arc::clone(&status)));
            state.note(Happening::Published { pod: "web".to_owned(), run, version, status });
        })
    }

    /// The running instance as an honest agent shows it.
    fn running(&self, name: &str) -> ContainerStatus {
        let starts = u32::try_from(self.world.starts(name)).unwrap();
        let state = ContainerState::Running(Running { started_at: Wall::default() });
        let mut shown = shown(name, state, starts - 1);
        shown.container_id = Some(format!("sim://{}", self.world.container_runs(name).last().unwrap().instance.id));
        shown.last_state = (starts > 1).then(Terminated::default).into();
        shown.started = Some(true);
        shown
    }

    /// Which checkers complained.
    fn findings(&self) -> Vec<&'static str> {
        self.world.violations().iter().map(|violation| violation.check).collect()
    }
}

fn shown(name: &str, state: ContainerState, restart_count: u32) -> ContainerStatus {
    ContainerStatus {
        name: name.to_owned(),
        state,
        last_state: Default::default(),
        ready: false,
        started: Some(false),
        restart_count,
        image: String::new(),
        image_id: String::new(),
        container_id: None,
    }
}

fn waiting(name: &str, restart_count: u32) -> ContainerStatus {
    shown(name, ContainerState::Waiting(Waiting::default()), restart_count)
}

fn ended(name: &str, exit_code: i32, restart_count: u32) -> ContainerStatus {
    let state = ContainerState::Terminated(Terminated { exit_code, ..Terminated::default() });
    shown(name, state, restart_count)
}

const PROBED: &str = "  containers:
  - name: main
    image: app
    readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 5}
    startupProbe: {exec: {command: [started]}}
";

const PLAIN: &str = "  restartPolicy: OnFailure
  initContainers:
  - {name: setup, image: tool}
  containers:
  - {name: main, image: app}
";

const RESTARTING: &str = "  restartPolicy: Never
  containers:
  - name: main
    image: app
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]
  - {name: helper, image: app}
";

#[test]
fn ready_needs_a_readiness_probe_that_said_so() {
    let ready = |stage: &Stage| ContainerStatus { ready: true, ..stage.running("main") };
    let play = |probe: Option<Reply>| {
        let mut stage = Stage::new(PROBED);
        stage.launch("main").probe("main", ProbeKind::Startup, Reply::Pass);
        stage.publish(Phase::Running, vec![stage.running("main")]).pass(secs(5));
        if let Some(reply) = probe {
            stage.probe("main", ProbeKind::Readiness, reply);
        }
        stage.publish(Phase::Running, vec![ready(&stage)]);
        stage.findings()
    };
    assert_eq!(play(Some(Reply::Pass)), [""; 0]);
    assert_eq!(play(Some(Reply::Fail)), ["evidence"]);
    assert_eq!(play(None), ["evidence"]);
}

#[test]
fn an_agent_restart_is_no_evidence_and_a_long_absence_is() {
    let play = |away: Duration| {
        let mut stage = Stage::new(PROBED);
        stage.launch("main").probe("main", ProbeKind::Startup, Reply::Pass);
        stage.publish(Phase::Running, vec![ContainerStatus { ready: true, ..stage.running("main") }]);
        stage.pass(secs(10)).kill_agent().pass(away).start_agent();
        stage.publish(Phase::Running, vec![stage.running("main")]);
        stage.findings()
    };
    assert_eq!(play(secs(5)), ["evidence"]);
    assert_eq!(play(secs(60)), [""; 0]);
}

#[test]
fn restart_counts_are_exact() {
    let mut stage = Stage::new(RESTARTING);
    stage.launch("helper");
    let wrong = ContainerStatus { restart_count: 1, ..stage.running("helper") };
    stage.publish(Phase::Running, vec![wrong]);
    assert_eq!(stage.findings(), ["counts"]);

    let mut stage = Stage::new(PLAIN);
    stage.launch("setup").exit("setup", 1).launch("setup");
    stage.publish(Phase::Pending, vec![stage.running("setup")]);
    assert_eq!(stage.findings(), [""; 0]);
    stage.publish(Phase::Pending, vec![waiting("setup", 0)]);
    assert_eq!(stage.findings(), ["counts"]);
}

#[test]
fn nothing_is_started_twice_or_out_of_order() {
    let mut stage = Stage::new(PLAIN);
    stage.launch("setup").exit("setup", 0).launch("main");
    assert_eq!(stage.findings(), [""; 0]);
    stage.launch("main");
    assert_eq!(stage.findings(), ["order"]);

    let mut stage = Stage::new(PLAIN);
    stage.launch("setup").exit("setup", 1).launch("main");
    assert_eq!(stage.findings(), ["order"]);

    let mut stage = Stage::new(PLAIN);
    stage.publish(Phase::Failed, vec![]).launch("setup");
    assert_eq!(stage.findings(), ["order"]);

    // All containers restart while a slow runtime starts one of them.
    for asked_before in [true, false] {
        let mut stage = Stage::new(PLAIN);
        stage.launch("setup").exit("setup", 0);
        let id = stage.create("main");
        if asked_before {
            stage.ask_for_start(&id).remove("setup");
        } else {
            stage.remove("setup").ask_for_start(&id);
        }
        stage.act(|state| state.start(&id));
        let expected: &[&str] = if asked_before { &[] } else { &["order"] };
        assert_eq!(stage.findings(), expected, "asked for before the restart: {asked_before}");
    }
}

#[test]
fn no_probe_outlives_its_container_or_comes_before_its_time() {
    let mut stage = Stage::new(PROBED);
    stage.launch("main").probe("main", ProbeKind::Readiness, Reply::Pass);
    assert_eq!(stage.findings(), ["probing"]);

    let mut stage = Stage::new(PROBED);
    stage.launch("main").exit("main", 1).probe("main", ProbeKind::Startup, Reply::Refuse);
    assert_eq!(stage.findings(), [""; 0], "the agent has not noticed the exit yet");
    stage.publish(Phase::Running, vec![ended("main", 1, 0)]).pass(secs(1));
    stage.probe_sent("main", ProbeKind::Startup, Reply::Refuse, secs(2));
    assert_eq!(stage.findings(), [""; 0], "it was sent before the exit was published, and arrives late");
    stage.probe("main", ProbeKind::Startup, Reply::Refuse);
    assert_eq!(stage.findings(), ["probing"]);

    let mut stage = Stage::new(PROBED);
    stage.launch("main").exit("main", 1).publish(Phase::Running, vec![ended("main", 1, 0)]).pass(secs(1));
    stage.launch("main");
    let status = PodStatus { container_statuses: vec![stage.running("main")], ..PodStatus::default() };
    let undelivered = Happening::Undelivered { pod: "web".to_owned(), status: Arc::new(status) };
    stage.act(|state| state.note(undelivered));
    stage.probe("main", ProbeKind::Startup, Reply::Refuse);
    assert_eq!(stage.findings(), [""; 0], "the agent knows that it runs, and cannot reach the API server");
}

#[test]
fn a_crashing_container_waits_for_its_backoff() {
    let play = |delay: Duration| {
        let mut stage = Stage::new(PROBED);
        stage.launch("main").pass(secs(1)).exit("main", 1);
        stage.launch("main").pass(secs(1)).exit("main", 1);
        stage.kill_agent().pass(delay).start_agent().launch("main");
        stage.findings()
    };
    assert_eq!(play(secs(10)), [""; 0]);
    assert_eq!(play(secs(9)), ["backoff"]);
}

#[test]
fn a_trigger_is_followed_by_a_restart_of_all_and_by_nothing_final() {
    let mut stage = Stage::new(RESTARTING);
    stage.launch("main").launch("helper").exit("main", 88);
    stage.publish(Phase::Failed, vec![ended("main", 88, 0), stage.running("helper")]);
    assert_eq!(stage.findings(), ["restart all"]);

    let play = |launches: &[&str]| {
        let mut stage = Stage::new(RESTARTING);
        stage.launch("main").launch("helper").exit("main", 88);
        stage.publish_with(Phase::Pending, vec![ended("main", 88, 0), stage.running("helper")], true).pass(secs(1));
        stage.kill("helper").remove("helper").remove("main");
        stage.publish_with(Phase::Pending, vec![waiting("main", 1), waiting("helper", 1)], false);
        for name in launches {
            stage.launch(name);
        }
        stage.publish(Phase::Running, launches.iter().map(|name| stage.running(name)).collect());
        stage.findings()
    };
    assert_eq!(play(&["main", "helper"]), [""; 0]);
    assert_eq!(play(&["main"]), ["restart all"]);

    let mut stage = Stage::new(RESTARTING);
    stage.launch("main").launch("helper").exit("main", 88);
    stage.publish_with(Phase::Pending, vec![ended("main", 88, 0), stage.running("helper")], true).pass(secs(1));
    stage.launch("main");
    assert_eq!(stage.findings(), ["restart all"]);
}

#[test]
fn an_ignored_trigger_is_found_at_rest() {
    let mut stage = Stage::new(RESTARTING);
    stage.launch("main").launch("helper").exit("main", 88);
    stage.publish(Phase::Running, vec![ended("main", 88, 0), stage.running("helper")]);
    stage.act(|state| {
        let State { checks, node, pods, .. } = state;
        let found = checks.at_rest(secs(1), node, pods);
        assert_eq!(found.iter().map(|violation| violation.check).collect::<Vec<_>>(), ["restart all"]);
    });
}

#[test]
fn kept_probes_are_asked_soon_after_an_agent_start() {
    let play = |wait: Duration| {
        let mut stage = Stage::new(PROBED);
        stage.launch("main").probe("main", ProbeKind::Startup, Reply::Pass);
        stage.probe("main", ProbeKind::Readiness, Reply::Pass);
        stage.publish(Phase::Running, vec![ContainerStatus { ready: true, ..stage.running("main") }]);
        stage.kill_agent().pass(secs(2)).start_agent().pass(wait);
        stage.probe("main", ProbeKind::Readiness, Reply::Pass);
        stage.publish(Phase::Running, vec![ContainerStatus { ready: true, ..stage.running("main") }]);
        stage.findings()
    };
    assert_eq!(play(millis(900)), [""; 0]);
    assert_eq!(play(secs(2)), ["first results"]);
}

#[test]
fn no_status_follows_that_the_api_server_would_reject() {
    let mut stage = Stage::new(RESTARTING);
    stage.publish(Phase::Succeeded, vec![]).publish(Phase::Running, vec![]);
    assert_eq!(stage.findings(), ["transitions"]);

    let mut stage = Stage::new("  restartPolicy: Never\n  containers:\n  - {name: main, image: app}\n");
    stage.launch("main").exit("main", 1);
    stage.publish(Phase::Running, vec![ended("main", 1, 0)]).publish(Phase::Running, vec![waiting("main", 0)]);
    assert_eq!(stage.findings(), ["transitions"]);

    let mut stage = Stage::new(PLAIN);
    stage.publish(Phase::Pending, vec![]);
    stage.version = 0;
    stage.publish(Phase::Running, vec![]);
    assert_eq!(stage.findings(), ["transitions"]);
}

#[test]
fn a_world_at_rest_says_what_the_node_has() {
    let mut stage = Stage::new(PROBED);
    stage.launch("main");
    let missing = |stage: &Stage| {
        let (pod, status) = (stage.world.spec("web"), stage.world.find_status("web"));
        stage.world.inside(|state| {
            let State { node, scripts, .. } = state;
            convergence::missing(&pod, status.as_ref(), node, |name| scripts.of("web", name).clone())
        })
    };
    assert!(missing(&stage).is_some(), "nothing was published");
    stage.publish(Phase::Running, vec![stage.running("main")]);
    assert!(missing(&stage).is_some_and(|text| text.contains("ready")), "{:?}", missing(&stage));
    stage.publish(Phase::Running, vec![ContainerStatus { ready: true, ..stage.running("main") }]);
    assert_eq!(missing(&stage), None);
    stage.exit("main", 0);
    assert!(missing(&stage).is_some_and(|text| text.contains("web-main-1")), "{:?}", missing(&stage));
}
