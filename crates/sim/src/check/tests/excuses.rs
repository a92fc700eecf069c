//! What a full disk or a change of the spec excuses, and what it does not.

use super::*;

const ALONE: &str = "  containers:\n  - {name: main, image: app}\n";

const SIDECAR: &str = "  initContainers:
  - {name: setup, image: tool, restartPolicy: Always, startupProbe: {tcpSocket: {port: 80}}}
  containers:
  - {name: main, image: app}
";

impl Stage {
    /// The disk refuses a write, now if it has not before.
    fn refuse(&mut self) -> &mut Self {
        self.act(|state| state.note(Happening::DiskFailed { what: "create a file".to_owned() }))
    }

    /// The disk refuses a write if it is full.
    fn write(&mut self, full: bool) -> &mut Self {
        if full { self.refuse() } else { self }
    }

    /// The disk refuses a write, and then the agent dies over it and another one starts.
    fn restart_on_full_disk(&mut self, down: Duration) -> &mut Self {
        self.pass(secs(1)).refuse().kill_agent().pass(down).start_agent()
    }

    fn want_image(&mut self, image: &str) -> &mut Self {
        let (pod, container, image) = ("web".to_owned(), "main".to_owned(), image.to_owned());
        self.act(|state| state.note(Happening::ImageWanted { pod, container, image }))
    }
}

/// What was published before the first refusal is in the ledger.
#[test]
fn ready_may_be_lost_only_if_it_is_younger_than_the_ledger() {
    let play = |full_before: bool| {
        let mut stage = Stage::new(PROBED);
        stage.write(full_before).launch("main").probe("main", ProbeKind::Startup, Reply::Pass);
        stage.publish(Phase::Running, vec![ContainerStatus { ready: true, ..stage.running("main") }]).pass(secs(10));
        stage.restart_on_full_disk(secs(5));
        stage.publish(Phase::Running, vec![stage.running("main")]);
        stage.findings()
    };
    assert_eq!(play(true), [""; 0]);
    assert_eq!(play(false), ["evidence"]);
}

#[test]
fn a_count_may_lack_only_what_neither_ledger_nor_runtime_has() {
    let play = |full_before: bool, removed: bool| {
        let mut stage = Stage::new(ALONE);
        stage.write(full_before).launch("main");
        stage.publish(Phase::Running, vec![stage.running("main")]);
        stage.exit("main", 1);
        if removed {
            stage.remove("main");
        }
        stage.restart_on_full_disk(secs(5)).launch("main");
        stage.publish(Phase::Running, vec![ContainerStatus { restart_count: 0, ..stage.running("main") }]);
        stage.findings()
    };
    assert_eq!(play(true, true), [""; 0]);
    assert_eq!(play(true, false), ["counts"], "the runtime has it");
    assert_eq!(play(false, true), ["counts"], "the ledger has it");
}

#[test]
fn an_end_is_forgotten_only_if_it_is_younger_than_the_ledger() {
    let play = |full_before: bool| {
        let mut stage = Stage::new(PLAIN);
        stage.write(full_before).publish(Phase::Failed, vec![]).restart_on_full_disk(secs(5)).launch("setup");
        stage.findings()
    };
    assert_eq!(play(true), [""; 0]);
    assert_eq!(play(false), ["order"]);
}

#[test]
fn init_containers_stay_done_only_if_their_removal_is_younger_than_the_ledger() {
    let play = |full_before: bool| {
        let mut stage = Stage::new(PLAIN);
        stage.launch("setup").exit("setup", 0).write(full_before).remove("setup").pass(secs(60));
        stage.restart_on_full_disk(secs(5)).launch("main");
        stage.findings()
    };
    assert_eq!(play(true), [""; 0]);
    assert_eq!(play(false), ["order"]);
}

/// CON-3: and only if no ledger knows better.
#[test]
fn a_sidecar_has_started_by_its_age_only_if_it_runs_for_long() {
    let play = |full_before: bool, age: Duration| {
        let mut stage = Stage::new(SIDECAR);
        stage.write(full_before).launch("setup");
        stage.publish(Phase::Pending, vec![ContainerStatus { started: Some(false), ..stage.running("setup") }]);
        stage.restart_on_full_disk(age).launch("main");
        stage.findings()
    };
    assert_eq!(play(true, secs(15)), [""; 0]);
    assert_eq!(play(true, secs(5)), ["order"]);
    assert_eq!(play(false, secs(15)), ["order"]);
}

/// CLU-3: an image that changes and changes back resets the backoff if an agent was there in between.
#[test]
fn an_image_that_no_agent_saw_resets_no_backoff() {
    let play = |seen: bool| {
        let mut stage = Stage::new(ALONE);
        stage.launch("main").pass(secs(1)).exit("main", 1).launch("main").pass(secs(1)).exit("main", 1);
        if !seen {
            stage.kill_agent();
        }
        stage.want_image("app:2").pass(secs(1)).want_image("app");
        if !seen {
            stage.start_agent();
        }
        stage.launch("main").findings()
    };
    assert_eq!(play(true), [""; 0]);
    assert_eq!(play(false), ["backoff"]);
}
