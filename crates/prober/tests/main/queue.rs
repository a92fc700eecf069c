//! Permits, time limits and cancellation, in simulated time where there is no real socket.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use keelet_lifecycle::operation::Outcome;
use keelet_pod::{Handler, Probe, ProbeKind};
use keelet_prober::{
    Attempt, Attempted, Connection, Dial, Exec, ExecError, Executed, MOST_NODE_PROBES, Prober, Target, TcpDial,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::mpsc,
    time::{Instant, advance, sleep},
};

use crate::{
    servers::{page, read_head, serve},
    target::{LONG, http_get, no_exec, pod, probe},
};

/// A limit at which one pod may have two attempts in progress.
const TWO_EACH: usize = 8;

/// Connects to servers in memory: the test gets the other end of every connection.
#[derive(Debug)]
struct InMemory(mpsc::Sender<DuplexStream>);

impl Dial for InMemory {
    fn connect<'a>(&'a self, _: &'a str, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
        Box::pin(async move {
            let (ours, theirs) = duplex(1024);
            self.0.send(theirs).await.map_err(io::Error::other)?;
            Ok(Box::new(ours) as Box<dyn Connection>)
        })
    }
}

fn in_memory(limit: usize) -> (Prober, mpsc::Receiver<DuplexStream>) {
    let (sender, connections) = mpsc::channel(16);
    (Prober::new(Arc::new(InMemory(sender)), no_exec(), limit), connections)
}

/// Serves all connections, each after that time.
fn serve_after(delay: Duration, mut connections: mpsc::Receiver<DuplexStream>) {
    tokio::spawn(async move {
        while let Some(mut connection) = connections.recv().await {
            tokio::spawn(async move {
                let _ = read_head(&mut connection).await;
                sleep(delay).await;
                let _ = connection.write_all(&page(200, "fine")).await;
            });
        }
    });
}

fn web(timeout: Duration) -> Probe {
    probe(Handler::HttpGet(http_get(80, "/")), timeout)
}

async fn attempt(prober: &Prober, probe: &Probe) -> Attempted {
    attempt_of("", prober, probe).await
}

/// An attempt of the pod with that UID.
async fn attempt_of(uid: &str, prober: &Prober, probe: &Probe) -> Attempted {
    let mut pod = pod(80);
    uid.clone_into(&mut pod.uid);
    let target = Target { pod: &pod, container: &pod.containers[0], container_id: uid, address: Some("127.0.0.1") };
    prober.attempt(Attempt { target, kind: ProbeKind::Readiness, probe }).await
}

/// PROBE-19: the wait is the agent's, so it does not count against the target.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_permit_is_measured_apart_and_does_not_shorten_the_attempt() {
    let (prober, connections) = in_memory(1);
    serve_after(Duration::from_millis(900), connections);
    let probe = web(Duration::from_secs(2));
    let (first, second) = tokio::join!(attempt(&prober, &probe), attempt(&prober, &probe));
    for (done, queued) in [(first, 0), (second, 900)] {
        assert_eq!((done.report.outcome, done.report.output.as_str()), (Outcome::Success, "fine"));
        assert_eq!(done.report.latency, Duration::from_millis(900));
        assert_eq!(done.queued, Duration::from_millis(queued));
    }
}

/// PROBE-19.
#[tokio::test(start_paused = true)]
async fn more_than_half_the_timeout_in_the_queue_is_late_and_no_attempt_is_made() {
    let (prober, mut connections) = in_memory(TWO_EACH);
    let probe = web(Duration::from_secs(2));
    let third = async {
        let done = attempt(&prober, &probe).await;
        assert_eq!(done.report.outcome, Outcome::Late);
        assert_eq!(done.report.latency, Duration::ZERO);
        // The timer may be a millisecond behind.
        assert_eq!(done.queued.as_secs_f32().round(), 1.0, "{:?}", done.queued);
        assert!(done.report.output.starts_with("not attempted: "), "{}", done.report.output);
    };
    let (first, second, ()) = tokio::join!(attempt(&prober, &probe), attempt(&prober, &probe), third);
    for done in [first, second] {
        assert_eq!(done.report.outcome, Outcome::Failure, "no server answered these");
        assert_eq!(done.queued, Duration::ZERO);
    }
    assert!(connections.recv().await.is_some() && connections.recv().await.is_some());
    assert!(connections.try_recv().is_err(), "the third attempt connected");
}

/// PROBE-19: permits are granted in order, and each attempt that ends frees one.
#[tokio::test(start_paused = true)]
async fn permits_are_granted_in_order() {
    let (prober, connections) = in_memory(TWO_EACH);
    serve_after(Duration::from_millis(100), connections);
    let probe = web(Duration::from_secs(2));
    let done = futures::future::join_all((0..6).map(|_| attempt(&prober, &probe))).await;
    let queued: Vec<_> = done.iter().map(|done| done.queued.as_millis()).collect();
    assert_eq!(queued, [0, 0, 100, 100, 200, 200]);
}

/// PROBE-19: a busy thread did not observe what the target did in time.
#[tokio::test(start_paused = true)]
async fn a_timeout_that_is_observed_far_too_late_is_late() {
    let (prober, _connections) = in_memory(1);
    let probe = web(Duration::from_secs(2));
    for (stop, outcome) in [(2900, Outcome::Failure), (3100, Outcome::Late)] {
        let mut running = std::pin::pin!(attempt(&prober, &probe));
        assert!(running.as_mut().now_or_never().is_none());
        // Nothing polls the attempt meanwhile.
        advance(Duration::from_millis(stop)).await;
        let done = running.await;
        assert_eq!(done.report.outcome, outcome, "{}", done.report.output);
    }
}

/// PROBE-31: one timeout covers the whole attempt.
#[tokio::test(start_paused = true)]
async fn the_timeout_begins_with_the_attempt_and_ends_it() {
    let (prober, _connections) = in_memory(1);
    let begun = Instant::now();
    let done = attempt(&prober, &web(Duration::from_secs(2))).await;
    assert_eq!(done.report.outcome, Outcome::Failure);
    assert_eq!(done.report.output, "GET http://127.0.0.1:80/: timed out after 2 s");
    assert!(done.report.latency >= Duration::from_secs(2) && begun.elapsed() < Duration::from_secs(3));
}

/// PROBE-6, DEF-9: dropping an attempt leaves neither a connection nor a permit behind.
#[tokio::test(start_paused = true)]
async fn dropping_an_attempt_closes_its_connection_and_frees_its_permit() {
    let (prober, mut connections) = in_memory(1);
    let probe = web(LONG);
    let mut running = Box::pin(attempt(&prober, &probe));
    assert!(running.as_mut().now_or_never().is_none());
    let mut connection = connections.recv().await.unwrap();
    assert!(running.as_mut().now_or_never().is_none());
    read_head(&mut connection).await.unwrap();
    drop(running);
    assert_eq!(connection.read(&mut [0; 16]).await.unwrap(), 0);
    serve_after(Duration::ZERO, connections);
    let next = attempt(&prober, &probe).await;
    assert_eq!((next.report.outcome, next.queued), (Outcome::Success, Duration::ZERO));
}

/// PROBE-6, DEF-9: the same over a real socket. The server sees the connection close.
#[tokio::test]
async fn a_server_sees_the_end_of_a_dropped_attempt() {
    let (report, mut reported) = mpsc::channel(2);
    let port = serve(move |mut socket| {
        let report = report.clone();
        async move {
            let _ = read_head(&mut socket).await;
            let _ = report.send(None).await;
            let _ = report.send(Some(socket.read(&mut [0; 16]).await.ok())).await;
        }
    })
    .await;
    let prober = Prober::new(Arc::new(TcpDial::default()), no_exec(), 1);
    let probe = probe(Handler::HttpGet(http_get(port, "/")), LONG);
    {
        let running = std::pin::pin!(attempt(&prober, &probe));
        let asked = std::pin::pin!(reported.recv());
        match futures::future::select(running, asked).await {
            futures::future::Either::Right((requests, _)) => assert_eq!(requests, Some(None)),
            futures::future::Either::Left((done, _)) => {
                panic!("the server never answered, but the attempt ended: {done:?}")
            }
        }
    }
    assert_eq!(reported.recv().await, Some(Some(Some(0))), "closed in order");
}

/// A runtime that never reports how a command ended, even after its timeout. It records when a container was probed.
#[derive(Debug, Default)]
struct Silent(Mutex<Vec<(String, Instant)>>);

impl Exec for Silent {
    fn exec<'a>(&'a self, id: &'a str, _: &'a [String], _: Duration) -> BoxFuture<'a, Result<Executed, ExecError>> {
        self.0.lock().unwrap().push((id.to_owned(), Instant::now()));
        Box::pin(std::future::pending())
    }
}

fn command(timeout: Duration) -> Probe {
    probe(Handler::Exec { command: vec!["hang".to_owned()] }, timeout)
}

/// PROBE-46: commands that hang do not delay attempts over the network.
#[tokio::test(start_paused = true)]
async fn commands_and_attempts_over_the_network_have_permits_of_their_own() {
    let (sender, connections) = mpsc::channel(16);
    serve_after(Duration::ZERO, connections);
    let prober = Prober::new(Arc::new(InMemory(sender)), Arc::<Silent>::default(), 1);
    let (hangs, web) = (command(LONG), web(LONG));
    let mut hanging = std::pin::pin!(attempt(&prober, &hangs));
    assert!(hanging.as_mut().now_or_never().is_none());
    let done = attempt(&prober, &web).await;
    assert_eq!((done.report.outcome, done.queued), (Outcome::Success, Duration::ZERO), "{}", done.report.output);
}

/// PROBE-46: the permit of a command is free at the command's timeout, even if the runtime has not answered, and after
/// ten seconds in any case. The command counts for its own pod as long as it runs.
#[tokio::test(start_paused = true)]
async fn a_command_past_its_timeout_gives_up_its_permit_whatever_the_runtime_does() {
    for (timeout, permit) in [(3, 3), (9, 9), (11, 10), (i32::MAX as u64, 10)] {
        let runtime = Arc::<Silent>::default();
        let prober = Prober::new(Arc::new(TcpDial::default()), runtime.clone(), 1);
        let (slow, next) = (command(Duration::from_secs(timeout)), command(LONG));
        let begun = Instant::now();
        let later = async {
            sleep(Duration::from_secs(2)).await;
            tokio::join!(attempt_of("hostile", &prober, &next), attempt_of("honest", &prober, &next))
        };
        let all = async { tokio::join!(attempt_of("hostile", &prober, &slow), later) };
        assert!(tokio::time::timeout(Duration::from_secs(12), all).await.is_err(), "no command ends");
        let asked = runtime.0.lock().unwrap();
        let asked: Vec<_> = asked.iter().map(|(pod, at)| (pod.as_str(), (*at - begun).as_secs())).collect();
        assert_eq!(asked, [("hostile", 0), ("honest", permit)], "timeout {timeout} s");
    }
}

/// PROBE-46: attempts of a pod at its cap are soon reported as late, however long their timeout is.
#[tokio::test(start_paused = true)]
async fn an_attempt_with_a_timeout_of_years_does_not_wait_for_years() {
    let prober = Prober::new(Arc::new(TcpDial::default()), Arc::<Silent>::default(), 1);
    let slow = command(Duration::from_secs(i32::MAX as u64));
    let mut first = std::pin::pin!(attempt(&prober, &slow));
    assert!(first.as_mut().now_or_never().is_none());
    let done = attempt(&prober, &slow).await;
    assert_eq!((done.report.outcome, done.queued.as_secs()), (Outcome::Late, 10), "{}", done.report.output);
}

/// A limit of zero would stop all probes.
#[tokio::test(start_paused = true)]
async fn a_limit_of_zero_is_one() {
    let (prober, connections) = in_memory(0);
    serve_after(Duration::ZERO, connections);
    assert_eq!(attempt(&prober, &web(LONG)).await.report.outcome, Outcome::Success);
}

/// GATE-7, PROBE-46: probes of the node's components and probes of pods take no permits from each other, and as many components as there may be
/// are asked at once.
#[tokio::test(start_paused = true)]
async fn components_of_the_node_have_permits_of_their_own() {
    let (prober, connections) = in_memory(1);
    serve_after(Duration::from_millis(900), connections);
    let probe = web(Duration::from_secs(2));
    let names: Vec<String> = (0..MOST_NODE_PROBES).map(|number| format!("component-{number}")).collect();
    let of_node = futures::future::join_all(names.iter().map(|name| prober.attempt_on_node(name, &probe)));
    let (of_pod, of_node) = tokio::join!(attempt(&prober, &probe), of_node);
    for done in of_node.iter().chain([&of_pod]) {
        assert_eq!((done.report.outcome, done.queued), (Outcome::Success, Duration::ZERO), "{done:?}");
    }
}

/// GATE-8: what the configuration refuses, the prober does not do either.
#[tokio::test]
async fn a_component_of_the_node_is_never_asked_with_a_command() {
    let prober = Prober::new(Arc::new(TcpDial::default()), no_exec(), 1);
    let done = prober.attempt_on_node("a", &command(Duration::from_secs(1))).await;
    assert_eq!(done.report.outcome, Outcome::Error);
}
