//! A pod to probe, and functions that probe it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use keelet_lifecycle::operation::Outcome;
use keelet_pod::{Handler, Hook, HttpGet, HttpProtocol, Pod, PortRef, Probe, ProbeKind, Scheme};
use keelet_prober::{
    Attempt, Attempted, Dial, Exec, ExecError, Executed, HookDone, HookError, Prober, Target, TcpDial,
};

/// Longer than any response takes, however busy the machine is.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// For attempts that have to time out.
pub(crate) const SHORT: Duration = Duration::from_millis(200);

/// For attempts that have to time out after some data has arrived, however busy the machine is.
pub(crate) const HALFWAY: Duration = Duration::from_secs(4);

/// A runtime that records commands and answers as configured.
#[derive(Debug)]
pub(crate) struct FakeExec {
    pub(crate) answer: Result<Executed, ExecError>,
    pub(crate) calls: Mutex<Vec<(String, Vec<String>, Duration)>>,
}

impl FakeExec {
    pub(crate) fn answering(answer: Result<Executed, ExecError>) -> Arc<Self> {
        Arc::new(Self { answer, calls: Mutex::default() })
    }
}

impl Exec for FakeExec {
    fn exec<'a>(
        &'a self,
        container_id: &'a str,
        command: &'a [String],
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Executed, ExecError>> {
        self.calls.lock().unwrap().push((container_id.to_owned(), command.to_vec(), timeout));
        Box::pin(async move { self.answer.clone() })
    }
}

pub(crate) fn no_exec() -> Arc<dyn Exec> {
    FakeExec::answering(Err(ExecError::NotRun("nothing to run".to_owned())))
}

pub(crate) fn prober() -> Prober {
    prober_over(Arc::new(TcpDial::default()))
}

pub(crate) fn prober_over(dial: Arc<dyn Dial>) -> Prober {
    Prober::new(dial, no_exec(), 4)
}

/// A pod whose one container has a port by name and some variables.
pub(crate) fn pod(port: u16) -> Pod {
    let manifest = format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: web}}
spec:
  containers:
  - name: main
    image: registry.local/web:1
    ports: [{{name: web, containerPort: {port}}}]
    env:
    - {{name: PORT, value: '8080'}}
    - {{name: FROM_ELSEWHERE, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}
    - {{name: TWICE, value: first}}
    - {{name: TWICE, value: $(PORT)}}
  - name: beside
    image: registry.local/beside:1
    ports: [{{name: admin, containerPort: 9}}]
    env: [{{name: ITS_OWN, value: hidden}}]
"
    );
    keelet_pod::parse_one(&manifest).unwrap_or_else(|report| panic!("bad manifest: {report:#?}"))
}

pub(crate) fn probe(handler: Handler, timeout: Duration) -> Probe {
    Probe {
        handler,
        initial_delay: Duration::ZERO,
        timeout,
        period: Duration::from_secs(10),
        success_threshold: 1,
        failure_threshold: 3,
        termination_grace: None,
    }
}

pub(crate) fn http_get(port: u16, path: &str) -> HttpGet {
    HttpGet {
        host: None,
        port: PortRef::Number(port),
        path: path.to_owned(),
        scheme: Scheme::Http,
        headers: Vec::new(),
        protocol: HttpProtocol::Http1,
    }
}

pub(crate) fn headers(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// One attempt on a pod at this address. An attempt that was late because the machine is busy has no result; it is made
/// again, as the agent would.
pub(crate) async fn ask_at(prober: &Prober, address: Option<&str>, handler: Handler, timeout: Duration) -> Attempted {
    let (pod, probe) = (pod(80), probe(handler, timeout));
    let target = Target { pod: &pod, container: &pod.containers[0], container_id: "c0ffee", address };
    for _ in 0..20 {
        let done = prober.attempt(Attempt { target, kind: ProbeKind::Readiness, probe: &probe }).await;
        if done.report.outcome != Outcome::Late {
            return done;
        }
    }
    panic!("this machine is too busy to probe anything");
}

/// The outcome of an attempt on loopback.
pub(crate) async fn ask(handler: Handler, timeout: Duration) -> (Outcome, String) {
    let report = ask_at(&prober(), Some("127.0.0.1"), handler, timeout).await.report;
    (report.outcome, report.output)
}

/// The same for an http probe with a long timeout.
pub(crate) async fn get(get: HttpGet) -> (Outcome, String) {
    ask(Handler::HttpGet(get), LONG).await
}

/// Runs a hook of a pod on loopback.
pub(crate) async fn run_hook(prober: &Prober, hook: &Hook, timeout: Option<Duration>) -> Result<HookDone, HookError> {
    let pod = pod(80);
    let target =
        Target { pod: &pod, container: &pod.containers[0], container_id: "c0ffee", address: Some("127.0.0.1") };
    prober.hook(hook, target, timeout).await
}
