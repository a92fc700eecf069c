//! Every kind of evidence has its sentence, and every chain is followed to its end.

use std::time::Duration;

use keelet_lifecycle::{Because, Subject, Why, operation::Outcome, status::ConditionType};
use keelet_pod::{AgentRestart, ProbeKind};

use super::stage::Stage;
use crate::why::{Detail, Link, explain, text};

pub(super) const WEB: &str = "
  initContainers: [{name: setup, image: tool}]
  containers:
  - name: main
    image: app
    startupProbe: {httpGet: {port: 80}, periodSeconds: 1, failureThreshold: 9}
    readinessProbe: {httpGet: {port: 80}, periodSeconds: 1, failureThreshold: 3}
    livenessProbe: {httpGet: {port: 80}, periodSeconds: 1, failureThreshold: 2}
  - {name: plain, image: app}
";

pub(super) const ALL: &str = "
  restartPolicy: Never
  initContainers:
  - {name: setup, image: tool}
  - {name: side, image: proxy, restartPolicy: Always}
  containers:
  - name: source
    image: app
    restartPolicy: Never
    restartPolicyRules:
    - {action: Restart, exitCodes: {operator: In, values: [7, 8]}}
    - {action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}
  - {name: other, image: app}
";

pub(super) fn up(spec: &str) -> Stage {
    let mut stage = Stage::new(spec);
    stage.settle().exit("setup", 0).seconds(10);
    stage
}

/// The chain of one part of the status: its headline, then its links, indented.
fn chain(stage: &Stage, subject: &Subject) -> String {
    let explained = explain(&stage.known(), None, stage.now);
    let answer = explained.answers.iter().find(|answer| answer.subject == *subject);
    let answer = answer.unwrap_or_else(|| panic!("no answer about {subject:?}"));
    let mut lines = vec![format!("{} {}", answer.value, answer.reason).trim_end().to_owned()];
    fn walk(links: &[Link], depth: usize, lines: &mut Vec<String>) {
        for link in links {
            lines.push(format!("{}{}", "  ".repeat(depth), link.text));
            walk(&link.because, depth + 1, lines);
        }
    }
    walk(&answer.because, 1, &mut lines);
    lines.join("\n")
}

fn ready(name: &str) -> Subject {
    Subject::Ready(name.to_owned())
}

fn started(name: &str) -> Subject {
    Subject::Started(name.to_owned())
}

fn state(name: &str) -> Subject {
    Subject::State(name.to_owned())
}

fn restarts(name: &str) -> Subject {
    Subject::RestartCount(name.to_owned())
}

fn condition(kind: ConditionType) -> Subject {
    Subject::Condition(kind)
}

/// PROBE-22, STAT-28: `Probe`, `Containers`, and the page as people see it.
#[test]
fn a_pod_that_is_not_ready_is_explained_down_to_the_attempts() {
    let mut stage = up(WEB);
    stage.answer("main", ProbeKind::Readiness, Outcome::Failure, "HTTP probe failed with statuscode: 503").seconds(17);
    let page = text(&explain(&stage.known(), None, stage.now), Detail::Brief);
    let expected = "\
pod shop/web as of 2027-01-15 08:00:27 UTC

pod shop/web   Ready=False since 08:00:13 (14 s ago): ContainersNotReady
  because container \"main\" is not ready
    because its readiness probe failed 3 times in a row (failureThreshold 3), last at 08:00:13 (14 s ago) after 12 ms: \
\"HTTP probe failed with statuscode: 503\"
      08:00:27  failed       12 ms  HTTP probe failed with statuscode: 503  (also at 08:00:11, 08:00:12, 08:00:13)

pod shop/web   phase=Running since 08:00:00 (27 s ago)
  because container \"setup\" has ended with exit code 0
    because it exited with code 0 at 08:00:00 (27 s ago, id setup-2)
      because an init container is done with its first success
  because container \"main\" runs
    because it runs since 08:00:00 (27 s ago, id main-3)
  because container \"plain\" runs
    because it runs since 08:00:00 (27 s ago, id plain-4)

pod shop/web   ContainersReady=False since 08:00:13 (14 s ago): ContainersNotReady
  because container \"main\" is not ready (see above)
";
    assert!(page.starts_with(expected), "{page}");
    let full = text(&explain(&stage.known(), None, stage.now), Detail::Full);
    let attempts = "
      08:00:11  failed       12 ms  HTTP probe failed with statuscode: 503
      08:00:12  failed       12 ms  HTTP probe failed with statuscode: 503
      08:00:13  failed       12 ms  HTTP probe failed with statuscode: 503
      08:00:27  failed       12 ms  HTTP probe failed with statuscode: 503
";
    assert!(full.contains(attempts), "{full}");
    let one = text(&explain(&stage.known(), Some("plain"), stage.now), Detail::Brief);
    let expected = "\
pod shop/web as of 2027-01-15 08:00:27 UTC

container \"plain\"   running since 08:00:00 (27 s ago)
  because it runs since 08:00:00 (27 s ago, id plain-4)
container \"plain\"   started=True since 08:00:00 (27 s ago)
  because it has no startup probe, and it runs since 08:00:00 (27 s ago, id plain-4)
container \"plain\"   ready=True since 08:00:00 (27 s ago)
  because it has no readiness probe, so running is enough
    because container \"plain\" runs (see above)
";
    assert_eq!(one, expected);
}

/// What a passed probe got is rarely of interest, and may be a whole page.
#[test]
fn the_output_of_a_passed_probe_takes_one_line_of_a_hundred_characters() {
    let page = format!("<!doctype html>\n<html>{}</html>", "<p>hello</p>".repeat(100));
    let mut stage = up(WEB);
    stage.answer("main", ProbeKind::Readiness, Outcome::Success, &page).seconds(5);
    let explained = explain(&stage.known(), None, stage.now);
    let brief = text(&explained, Detail::Brief);
    let said: Vec<&str> = brief.lines().filter(|line| line.contains("<!doctype")).collect();
    assert!(!said.is_empty(), "{brief}");
    for line in said.iter().filter(|line| line.contains("passed  ")) {
        assert!(line.chars().count() <= 100 && line.contains('…'), "{line}");
    }
    assert!(said.iter().all(|line| line.chars().count() < 220 && line.contains('…')), "{said:#?}");
    assert!(text(&explained, Detail::Full).contains("</html>"));
}

/// PROBE-21: a probe that cannot be tried is told from one that fails.
#[test]
fn a_probe_that_cannot_be_tried_says_so() {
    let mut stage = up(WEB);
    stage.answer("main", ProbeKind::Readiness, Outcome::Error, "no port named \"web\"").seconds(10);
    assert_eq!(
        chain(&stage, &ready("main")),
        "ready=False\n  its readiness probe could not be attempted 3 times in a row, which counts as a failure, last at \
         08:00:13 (7 s ago) after 12 ms: \"no port named \"web\"\""
    );
}

/// START-6: `NotYetProbed` and `NotStarted`.
#[test]
fn a_probe_that_has_not_decided_says_how_far_it_is_and_when_it_goes_on() {
    let mut stage = Stage::new(WEB);
    stage.answer("main", ProbeKind::Startup, Outcome::Failure, "connection refused");
    stage.settle().exit("setup", 0).seconds(2);
    assert_eq!(
        chain(&stage, &ready("main")),
        "ready=False\n  container \"main\" has not started up\n    its startup probe failed 3 times so far, which decides \
         nothing yet (successThreshold 1, failureThreshold 9)\n      it runs since 08:00:00 (2 s ago, id main-3)\n      \
         its next attempt is due at 08:00:03 (in 1 s)"
    );
    let mut fresh = Stage::new(WEB);
    fresh.hold("Probe").settle().exit("setup", 0);
    assert!(chain(&fresh, &started("main")).contains("no result of its startup probe yet"));
}

/// PROBE-51: eager attempts are marked, and no verdict but a pass rests on them.
#[test]
fn eager_attempts_are_marked() {
    let spec = "  containers: [{name: main, image: app, readinessProbe: {exec: {command: [up]}, periodSeconds: 2, failureThreshold: 2}}]\n";
    let mut stage = Stage::new(spec);
    let page = |stage: &Stage| text(&explain(&stage.known(), Some("main"), stage.now), Detail::Brief);
    stage.rules.eager_probes = true;
    stage.answer("main", ProbeKind::Readiness, Outcome::Failure, "refused").seconds(1);
    let undecided = page(&stage);
    assert!(undecided.contains("refused  (eager)"), "{undecided}");
    stage.seconds(2);
    let decided = page(&stage);
    assert!(decided.contains("failed twice in a row (failureThreshold 2)") && !decided.contains("eager"), "{decided}");
    stage.answer("main", ProbeKind::Readiness, Outcome::Success, "up").seconds(1);
    let passed = page(&stage);
    assert!(passed.contains("up  (eager)"), "{passed}");
}

/// STAT-13: `NoProbe`, `Running`, `Sandbox`, `Spec`, and an Initialized that rests on an exit.
#[test]
fn a_running_pod_rests_on_starts_exits_sandbox_and_spec() {
    let stage = up(WEB);
    assert_eq!(
        chain(&stage, &ready("plain")),
        "ready=True\n  it has no readiness probe, so running is enough\n    container \"plain\" runs\n      it runs since \
         08:00:00 (10 s ago, id plain-4)"
    );
    assert_eq!(
        chain(&stage, &condition(ConditionType::PodReadyToStartContainers)),
        "PodReadyToStartContainers=True\n  sandbox sandbox-1 is ready"
    );
    assert_eq!(
        chain(&stage, &condition(ConditionType::PodScheduled)),
        "PodScheduled=True\n  the pod is assigned to this node"
    );
    assert_eq!(
        chain(&stage, &condition(ConditionType::Initialized)),
        "Initialized=True\n  container \"setup\" is ready\n    it exited with code 0 at 08:00:00 (10 s ago, id setup-2)\n      \
         an init container is done with its first success"
    );
    let mut plain = Stage::new("  containers: [{name: a, image: b}]");
    plain.settle();
    assert!(chain(&plain, &condition(ConditionType::Initialized)).ends_with("the pod has no init containers"));
}

/// DIR-6: what was missing of a sandbox is told while there is none, and later of the containers that were stopped with it.
#[test]
fn a_lost_sandbox_is_shown_with_what_was_missing() {
    let damaged = || {
        let mut stage = Stage::new("  containers: [{name: a, image: b}]");
        stage.settle().seconds(10);
        for sandbox in &mut stage.observed.sandboxes {
            (sandbox.ready, sandbox.lost) = (false, Some("its interface kl0 is gone".to_owned()));
        }
        stage
    };
    let mut stage = damaged();
    stage.hold("Stop").settle();
    let said = chain(&stage, &condition(ConditionType::PodReadyToStartContainers));
    assert!(said.contains("the newest sandbox is not ready: its interface kl0 is gone"), "{said}");
    let mut stage = damaged();
    stage.settle().seconds(5);
    let said = chain(&stage, &Subject::RestartCount("a".to_owned()));
    assert!(said.contains("its sandbox is gone") && said.contains("its interface kl0 is gone"), "{said}");
}

/// KEEP-9, CON-9: `Carried` by a probe of an earlier run of the agent.
#[test]
fn what_an_agent_restart_keeps_names_the_probe_and_the_restart() {
    let mut stage = up(WEB);
    stage.hold("Probe").restart_agent(20);
    assert_eq!(
        chain(&stage, &ready("main")),
        "ready=True\n  its readiness probe passed at 08:00:00 (30 s ago), and restarts of the agent since then do not \
         change it\n    its readiness probe passed (successThreshold 1) at 08:00:00 (30 s ago) after 3 ms: \"200 OK\"\n    \
         an agent started at 08:00:30 (just now), 20 s after one was last seen"
    );
}

/// KEEP-19, KEEP-24: `Carried` for other reasons.
#[test]
fn doubt_and_the_legacy_reset_are_named() {
    let mut stage = up(WEB);
    stage.hold("Probe").restart_agent(120);
    assert!(chain(&stage, &ready("main")).starts_with(
        "ready=False\n  the agent was down for 2 min, longer than the grace period: readiness must be probed \
         again\n    an agent started at 08:02:10 (just now), 2 min after one was last seen"
    ));
    let why = |basis: &str| {
        let because: Because = serde_json::from_value(
            serde_json::json!({"carried": {"probe": "readiness", "passed": false, "basis": basis}}),
        )
        .unwrap();
        let why = [Why { subject: ready("main"), because }];
        let mut known = stage.known();
        known.why = &why;
        let explained = explain(&known, Some("main"), stage.now);
        let answer = explained.answers.into_iter().find(|answer| answer.subject == ready("main")).unwrap();
        answer.because[0].text.clone()
    };
    assert_eq!(
        why("foreignWrite"),
        "another client set the pod's Ready condition while the agent was down: readiness must be probed again"
    );
    assert_eq!(
        why("status"),
        "the status published before the agent started says so, and nothing seen since says otherwise"
    );
    let mut stage = up(WEB);
    stage.rules.agent_restart = AgentRestart::ResetStatus;
    stage.hold("Probe").restart_agent(1);
    assert!(chain(&stage, &ready("main")).contains("no result of its startup probe yet"));
    assert_eq!(
        why("legacyReset"),
        "the feature gate ChangeContainerStatusOnKubeletRestart has its readiness probe failed at every start of the agent"
    );
}

/// PROBE-28, BACK-2, STAT-7: `Exited`, `Backoff`, `NotRunning`, and a restart count with the probe behind each restart.
#[test]
fn a_crash_loop_is_explained_from_the_probe_to_the_backoff() {
    let mut stage = up(WEB);
    stage.answer("main", ProbeKind::Liveness, Outcome::Failure, "HTTP probe failed with statuscode: 500").seconds(2);
    stage.answer("main", ProbeKind::Liveness, Outcome::Success, "200 OK").seconds(1).exit("main", 3).seconds(4);
    assert_eq!(
        chain(&stage, &ready("main")),
        "ready=False\n  container \"main\" waits: CrashLoopBackOff\n    it waits 10 s from its last exit to its next start, \
         until 08:00:23 (in 6 s)\n      it exited with code 3 at 08:00:13 (4 s ago, id main-5)\n        its restart policy \
         is Always"
    );
    assert_eq!(
        chain(&stage, &restarts("main")),
        "restartCount=1\n  of restart 1 at 08:00:12 (5 s ago)\n    it exited with code 143 at 08:00:12 (5 s ago, id main-3)\n      \
         it had to stop: its liveness probe failed\n        its liveness probe failed twice in a row (failureThreshold 2), \
         last at 08:00:12 (5 s ago) after 12 ms: \"HTTP probe failed with statuscode: 500\"\n      its restart policy is Always"
    );
    stage.seconds(6).exit("main", 3).seconds(20).exit("main", 3).seconds(40).exit("main", 3).seconds(80);
    let counted = chain(&stage, &restarts("main"));
    assert_eq!(counted.matches("of restart").count(), 3, "{counted}");
    assert!(counted.ends_with("of 2 earlier restarts"), "{counted}");
}

/// STAT-7: `StartFailed`.
#[test]
fn a_start_that_fails_says_what_the_runtime_said() {
    let mut stage = up(WEB);
    stage.fail("Launch", "RunContainerError", "exec: \"app\": not found").exit("plain", 1).seconds(3);
    assert_eq!(
        chain(&stage, &state("plain")),
        "waiting RunContainerError\n  its start failed at 08:00:13 (just now): RunContainerError: \"exec: \"app\": not found\""
    );
}

/// STAT-3: `Pending`, for each thing that a container may wait for.
#[test]
fn a_waiting_container_names_the_container_that_is_ahead() {
    let mut stage = Stage::new(WEB);
    stage.settle();
    assert_eq!(
        chain(&stage, &state("main")),
        "waiting PodInitializing\n  container \"setup\" runs\n    it runs since 08:00:00 (just now, id setup-2)"
    );
    let mut stage = Stage::new(WEB);
    stage.fail("CreateSandbox", "SandboxError", "no network").seconds(5);
    assert_eq!(
        chain(&stage, &state("main")),
        "waiting PodInitializing\n  PodReadyToStartContainers is False\n    no sandbox has been created\n      creating one \
         failed 3 times: \"no network\""
    );
    let mut stage = Stage::new(WEB);
    stage.hold("EnsureImage").seconds(5);
    assert_eq!(
        chain(&stage, &state("setup")),
        "waiting PodInitializing\n  image \"tool\" is being fetched since 08:00:00 (5 s ago)"
    );
}

/// TERM-1, STAT-22: `Stopping` and `Ending`; a stop that keeps failing is named.
#[test]
fn a_pod_on_its_way_out_says_since_when_and_what_holds_it_up() {
    let mut stage = up(WEB);
    stage.hold("Stop {").delete(30).seconds(2);
    assert_eq!(
        chain(&stage, &state("plain")),
        "running\n  it is being stopped since 08:00:10 (2 s ago)\n    it had to stop: the pod is ending\n      the pod is \
         terminating since 08:00:10 (2 s ago): it was deleted"
    );
    let mut stage = up(WEB);
    stage.fail("Stop {", "StopError", "device or resource busy").delete(30).seconds(2);
    let text = chain(&stage, &state("plain"));
    assert!(text.contains("stopping plain-4 failed twice: \"device or resource busy\""), "{text}");
    let mut stage = up(WEB);
    stage.delete(30);
    assert_eq!(
        chain(&stage, &Subject::Phase),
        "phase=Failed\n  the pod is terminating since 08:00:10 (just now): it was deleted"
    );
}

/// STAT-18: a pod whose containers are all done, and one whose init container failed for good.
#[test]
fn a_pod_that_is_over_rests_on_its_exits() {
    let mut stage = Stage::new("  restartPolicy: OnFailure\n  containers: [{name: job, image: app}]");
    stage.settle().exit("job", 0);
    assert_eq!(
        chain(&stage, &Subject::Phase),
        "phase=Succeeded\n  the pod is over since 08:00:00 (just now): all of its containers have terminated, and none will be restarted\n    \
         container \"job\" has ended with exit code 0\n      it exited with code 0 at 08:00:00 (just now, id job-2)\n        \
         its restart policy is OnFailure"
    );
    let mut stage = Stage::new(ALL);
    stage.settle().exit("setup", 9);
    let phase = chain(&stage, &Subject::Phase);
    assert!(
        phase.contains("init container \"setup\" failed for good\n    container \"setup\" has ended with exit code 9"),
        "{phase}"
    );
    // `Kept`: what a finished pod leaves standing.
    assert!(
        chain(&stage, &condition(ConditionType::AllContainersRestarting))
            .contains("the pod has terminated, so this no longer changes")
    );
}

/// RALL-14, RALL-20: `RestartAll`, with the rule's own words.
#[test]
fn a_restart_of_all_names_trigger_and_rule() {
    let mut stage = up(ALL);
    stage.hold("Stop {").exit("source", 42).seconds(1);
    let trigger = "container \"source\" exited with code 42 at 08:00:10 (1 s ago), and its restart rule 1 asks for it";
    let rule = "its restart rule 1 matched: RestartAllContainers on exit codes in [42]";
    let restarting = chain(&stage, &condition(ConditionType::AllContainersRestarting));
    assert_eq!(
        restarting,
        format!(
            "AllContainersRestarting=True ContainerExited\n  all containers restart since 08:00:10 (1 s ago)\n    {trigger}\n      {rule}"
        )
    );
    assert_eq!(
        chain(&stage, &state("other")),
        format!(
            "running\n  it is being stopped since 08:00:10 (1 s ago)\n    it had to stop: all containers are restarting\n      {trigger}\n        {rule}"
        )
    );
    let mut stage = up(ALL);
    stage.exit("source", 42).exit("setup", 0).seconds(1);
    let restarting = chain(&stage, &condition(ConditionType::AllContainersRestarting));
    assert!(
        restarting.contains("the last RestartAllContainers is over\n    container \"source\" exited"),
        "{restarting}"
    );
    let counted = chain(&stage, &restarts("other"));
    assert!(
        counted.contains("it had to stop: all containers are restarting\n        container \"source\" exited"),
        "{counted}"
    );
    let mut stage = up(ALL);
    stage.hold("Stop {").request_restart();
    let restarting = chain(&stage, &condition(ConditionType::AllContainersRestarting));
    assert!(restarting.ends_with("root asked for it at 08:00:10 (just now) (request r1)"), "{restarting}");
}

/// RULE-3: a rule that restarts one container only, and rules of which none matches.
#[test]
fn an_exit_names_the_rule_that_matched_or_the_policy() {
    let mut stage = up(ALL);
    stage.exit("source", 7);
    let counted = chain(&stage, &restarts("source"));
    assert!(counted.ends_with("its restart rule 0 matched: Restart on exit codes in [7, 8]"), "{counted}");
    stage.seconds(10).exit("source", 1);
    assert!(
        chain(&stage, &state("source")).ends_with("none of its restart rules matched, and its restart policy is Never"),
        "{}",
        chain(&stage, &state("source"))
    );
    // Without the spec a rule has its number.
    let mut known = stage.known();
    known.spec = None;
    let explained = explain(&known, Some("source"), stage.now);
    let page = text(&explained, Detail::Brief);
    assert!(page.contains("its restart rule 0 matched\n"), "{page}");
    assert!(page.contains("there is no copy of the pod"), "{page}");
}

/// STAT-5: a container that vanished.
#[test]
fn a_container_that_vanished_has_an_unknown_exit_status() {
    let mut stage = up(WEB);
    stage.lose("plain").settle();
    let counted = chain(&stage, &restarts("plain"));
    assert!(
        counted.contains(
            "exited with code 137 at 08:00:10 (just now, id plain-4), as a stand-in: its exit status is unknown"
        ),
        "{counted}"
    );
    stage.hold("Stop {").delete(30).lose("plain").held.clear();
    stage.lose("main").lose("plain").seconds(40);
    let text = chain(&stage, &state("plain"));
    assert!(text.starts_with("ended with exit code 137"), "{text}");
}

/// STAT-29: `ReadinessGates`.
#[test]
fn a_readiness_gate_is_named() {
    let mut stage =
        Stage::new("  readinessGates: [{conditionType: example.com/lb}]\n  containers: [{name: a, image: b}]");
    stage.settle();
    assert_eq!(
        chain(&stage, &condition(ConditionType::Ready)),
        "Ready=False ReadinessGatesNotReady\n  readiness gate \"example.com/lb\", which another controller sets, is not True"
    );
}

/// STAT-26: `Kept`: once initialized, always so.
#[test]
fn what_is_kept_says_when_it_became_so() {
    let mut stage = up(ALL);
    stage.exit("source", 42);
    assert_eq!(
        chain(&stage, &condition(ConditionType::Initialized)),
        "Initialized=True\n  it was true before, and this condition does not change back\n    it became so at 08:00:00 (10 s \
         ago), because of containers \"setup\" and \"side\"\n      container \"setup\" is ready, because it exited with code \
         0 at 08:00:00\n      container \"side\" is ready, because it has no readiness probe, so running is enough"
    );
}

/// KEEP-13: after a reboot, before an agent has looked, the journal alone answers.
#[test]
fn without_the_reasons_of_the_newest_status_the_journal_answers() {
    let mut stage = up(WEB);
    stage.answer("main", ProbeKind::Readiness, Outcome::Failure, "HTTP probe failed with statuscode: 503").seconds(5);
    stage.exit("plain", 2);
    let mut evidence = stage.evidence.clone();
    evidence.volatile = Default::default();
    let mut known = stage.known();
    known.evidence = &evidence;
    known.why = &[];
    known.history = &[];
    let later = stage.now.plus(Duration::from_secs(60));
    let page = text(&explain(&known, None, later), Detail::Brief);
    assert!(page.contains("no agent has observed the pod since the node was booted"), "{page}");
    assert!(page.contains("the reasons of the newest status are lost; these are the ones in the journal"), "{page}");
    assert!(
        page.contains("because its readiness probe failed 3 times in a row (failureThreshold 3), last at 08:00:13"),
        "{page}"
    );
    assert!(crate::why::check_chains(&known, later).is_empty(), "{:#?}", crate::why::check_chains(&known, later));
}

/// The document for machines: every link of the text is in it, with its evidence.
#[test]
fn the_json_form_has_every_link_with_its_evidence() {
    let mut stage = up(WEB);
    stage.answer("main", ProbeKind::Readiness, Outcome::Failure, "503").seconds(5);
    let json = serde_json::to_value(explain(&stage.known(), None, stage.now)).unwrap();
    assert_eq!(json["format"], "keelet.dev/why/v1");
    let first = &json["answers"][0];
    assert_eq!((&first["value"], &first["reason"]), (&"Ready=False".into(), &"ContainersNotReady".into()));
    let probe = &first["because"][0]["because"][0];
    assert_eq!(probe["evidence"]["probe"]["run"], 3);
    assert_eq!((&probe["ground"], probe["attempts"].as_array().unwrap().len()), (&"evidence".into(), 4));
    assert_eq!(probe["attempts"][0]["latency"], 12);
}

#[test]
fn a_pod_of_which_nothing_is_known_says_so() {
    let stage = Stage::new(WEB);
    let page = text(&explain(&stage.known(), None, stage.now), Detail::Brief);
    assert!(page.ends_with("no status yet\n"), "{page}");
}

/// STAT-26, RULE-8: after a reboot an init container runs again, and what it was done for still stands.
#[test]
fn an_init_container_that_runs_again_says_why_and_initialized_says_why_it_stands() {
    let mut stage = up(WEB);
    stage.reboot().seconds(5);
    let counted = chain(&stage, &restarts("setup"));
    assert!(
        counted.ends_with("it was done, and had to run again: another sandbox was asked for, number 2"),
        "{counted}"
    );
    let initialized = chain(&stage, &condition(ConditionType::Initialized));
    assert!(
        initialized.starts_with(
            "Initialized=True\n  a regular container has been started, and none is before the init containers are done\n    \
             container \"main\" has ended with exit code 255"
        ),
        "{initialized}"
    );
}
