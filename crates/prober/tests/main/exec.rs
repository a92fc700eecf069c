//! `exec`.

use std::{
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use futures::future::BoxFuture;
use keelet_lifecycle::operation::Outcome;
use keelet_pod::{Handler, ProbeKind};
use keelet_prober::{Attempt, Attempted, Exec, ExecError, Executed, Prober, Target, TcpDial};

use crate::target::{FakeExec, pod, probe};

const TIMEOUT: Duration = Duration::from_secs(3);

fn command(words: &[&str]) -> Handler {
    Handler::Exec { command: words.iter().map(|word| (*word).to_owned()).collect() }
}

/// Unlike in other tests, a late outcome is a result here.
async fn attempt(exec: Arc<dyn Exec>, handler: Handler) -> Attempted {
    let (pod, probe) = (pod(80), probe(handler, TIMEOUT));
    let target = Target { pod: &pod, container: &pod.containers[0], container_id: "c0ffee", address: None };
    let prober = Prober::new(Arc::new(TcpDial::default()), exec, 1);
    prober.attempt(Attempt { target, kind: ProbeKind::Liveness, probe: &probe }).await
}

async fn outcome(answer: Result<Executed, ExecError>) -> (Outcome, String) {
    let report = attempt(FakeExec::answering(answer), command(&["check"])).await.report;
    (report.outcome, report.output)
}

fn exited(exit_code: i32, output: impl Into<Vec<u8>>) -> Result<Executed, ExecError> {
    Ok(Executed { exit_code, output: output.into() })
}

/// PROBE-39, SCN-U34.
#[tokio::test]
async fn the_exit_code_decides() {
    assert_eq!(outcome(exited(0, "all well")).await, (Outcome::Success, "all well".to_owned()));
    assert_eq!(outcome(exited(1, "not well")).await, (Outcome::Failure, "not well".to_owned()));
    assert_eq!(outcome(exited(126, "")).await, (Outcome::Failure, "command exited with code 126".to_owned()));
    assert_eq!(outcome(exited(-1, " \n")).await, (Outcome::Failure, "command exited with code -1".to_owned()));
}

/// PROBE-39, SCN-U34.
#[tokio::test]
async fn output_is_cut() {
    for exit_code in [0, 1] {
        let (_, output) = outcome(exited(exit_code, vec![b'o'; 11 * 1024])).await;
        assert_eq!(output.len(), 10 * 1024);
    }
    // Not in the middle of a character.
    let (_, output) = outcome(exited(0, format!("x{}", "ü".repeat(6000)))).await;
    assert!(output.len() <= 10 * 1024 && output.starts_with("xüü"), "{}", output.len());
}

/// PROBE-39, SCN-U34.
#[tokio::test]
async fn a_timeout_fails_and_says_so() {
    let expected = (Outcome::Failure, "command timed out after 3 s".to_owned());
    assert_eq!(outcome(Err(ExecError::TimedOut(TIMEOUT))).await, expected);
}

/// PROBE-39, SCN-U34.
#[tokio::test]
async fn a_command_that_does_not_start_gives_no_result() {
    let not_run = Err(ExecError::NotRun("no such file: check".to_owned()));
    assert_eq!(outcome(not_run).await, (Outcome::Error, "no such file: check".to_owned()));
}

/// PROBE-19: an unavailable runtime says nothing about the container.
#[tokio::test]
async fn an_unavailable_runtime_gives_no_result() {
    let away = Err(ExecError::RuntimeAway("connection refused".to_owned()));
    let expected = "the runtime did not answer: connection refused".to_owned();
    assert_eq!(outcome(away).await, (Outcome::Late, expected));
}

/// PROBE-19, PROBE-40: the same for a runtime that reports nothing long after it should have killed the command.
#[tokio::test(start_paused = true)]
async fn an_attempt_gives_up_on_a_runtime_that_never_answers() {
    #[derive(Debug)]
    struct Silent;
    impl Exec for Silent {
        fn exec<'a>(&'a self, _: &'a str, _: &'a [String], _: Duration) -> BoxFuture<'a, Result<Executed, ExecError>> {
            Box::pin(std::future::pending())
        }
    }
    let done = attempt(Arc::new(Silent), command(&["check"])).await;
    assert_eq!(done.report.outcome, Outcome::Late);
    assert_eq!(done.report.output, "the runtime did not answer: no response 10 s after the command's timeout");
    assert_eq!(done.report.latency, Duration::from_secs(13));
}

/// PROBE-6, DEF-9: dropping an attempt cancels the call for its command.
#[tokio::test(start_paused = true)]
async fn dropping_an_attempt_cancels_its_command() {
    #[derive(Debug, Default)]
    struct Hanging(Mutex<Vec<Weak<()>>>);
    impl Exec for Hanging {
        fn exec<'a>(&'a self, _: &'a str, _: &'a [String], _: Duration) -> BoxFuture<'a, Result<Executed, ExecError>> {
            let under_way = Arc::new(());
            self.0.lock().unwrap().push(Arc::downgrade(&under_way));
            Box::pin(async move {
                let _under_way = under_way;
                std::future::pending().await
            })
        }
    }
    let exec = Arc::new(Hanging::default());
    let cut_short = tokio::time::timeout(TIMEOUT / 2, attempt(exec.clone(), command(&["check"]))).await;
    assert!(cut_short.is_err(), "the runtime never answered, but the attempt ended: {cut_short:?}");
    let calls = exec.0.lock().unwrap();
    assert_eq!(calls.len(), 1);
    assert!(calls[0].upgrade().is_none(), "the call is still in progress");
}

/// PROBE-39: a runtime may be slow to report that it killed a command.
#[tokio::test(start_paused = true)]
async fn a_timeout_that_is_reported_late_still_fails() {
    #[derive(Debug)]
    struct Slow;
    impl Exec for Slow {
        fn exec<'a>(
            &'a self,
            _: &'a str,
            _: &'a [String],
            timeout: Duration,
        ) -> BoxFuture<'a, Result<Executed, ExecError>> {
            Box::pin(async move {
                tokio::time::sleep(timeout * 3).await;
                Err(ExecError::TimedOut(timeout))
            })
        }
    }
    let done = attempt(Arc::new(Slow), command(&["check"])).await;
    assert_eq!(done.report.outcome, Outcome::Failure);
}

/// PROBE-39: the container's own variables are expanded with their values in the manifest, without a shell.
#[tokio::test]
async fn variables_of_the_container_are_expanded() {
    let exec = FakeExec::answering(exited(0, ""));
    let words =
        ["sh", "-c", "curl :$(PORT)/$$(PORT)/$(FROM_ELSEWHERE)/$(ITS_OWN)/$(HOME)/$(TWICE) > /dev/null; exit $?"];
    attempt(exec.clone(), command(&words)).await;
    let calls = exec.calls.lock().unwrap();
    let run = ["sh", "-c", "curl :8080/$(PORT)//$(ITS_OWN)/$(HOME)/$(PORT) > /dev/null; exit $?"].map(str::to_owned);
    assert_eq!(*calls, [("c0ffee".to_owned(), run.to_vec(), TIMEOUT)]);
}
