//! Turns, time and cancellation, in simulated time where there is no real socket.

use std::{io, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use keelet_lifecycle::operation::Outcome;
use keelet_pod::{Handler, Probe, ProbeKind};
use keelet_prober::{Attempt, Attempted, Connection, Dial, Prober, Target, TcpDial};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::mpsc,
    time::{Instant, advance, sleep},
};

use crate::{
    servers::{page, read_head, serve},
    target::{LONG, http_get, no_exec, pod, probe},
};

/// Connects to servers in memory: every connection's other end goes to the test.
#[derive(Debug)]
struct InMemory(mpsc::Sender<DuplexStream>);

impl Dial for InMemory {
    fn connect<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
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
    let pod = pod(80);
    let target =
        Target { pod: &pod, container: &pod.containers[0], container_id: "c0ffee", address: Some("127.0.0.1") };
    prober.attempt(Attempt { target, kind: ProbeKind::Readiness, probe }).await
}

/// PROBE-19: the queue is ours, so what it costs is not the target's fault.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_turn_is_measured_apart_and_does_not_shorten_the_attempt() {
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
async fn more_than_half_the_timeout_in_the_queue_is_late_and_nobody_is_asked() {
    let (prober, mut connections) = in_memory(2);
    let probe = web(Duration::from_secs(2));
    let third = async {
        let done = attempt(&prober, &probe).await;
        assert_eq!(done.report.outcome, Outcome::Late);
        assert_eq!(done.report.latency, Duration::ZERO);
        // The timer may be a millisecond behind.
        assert_eq!(done.queued.as_secs_f32().round(), 1.0, "{:?}", done.queued);
        assert!(done.report.output.starts_with("not asked: "), "{}", done.report.output);
    };
    let (first, second, ()) = tokio::join!(attempt(&prober, &probe), attempt(&prober, &probe), third);
    for done in [first, second] {
        assert_eq!(done.report.outcome, Outcome::Failure, "nobody answered these");
        assert_eq!(done.queued, Duration::ZERO);
    }
    assert!(connections.recv().await.is_some() && connections.recv().await.is_some());
    assert!(connections.try_recv().is_err(), "the third was not asked");
}

/// PROBE-19: turns are taken in order, and each one that comes to its end makes room.
#[tokio::test(start_paused = true)]
async fn turns_are_taken_in_order() {
    let (prober, connections) = in_memory(2);
    serve_after(Duration::from_millis(100), connections);
    let probe = web(Duration::from_secs(2));
    let done = futures::future::join_all((0..6).map(|_| attempt(&prober, &probe))).await;
    let queued: Vec<_> = done.iter().map(|done| done.queued.as_millis()).collect();
    assert_eq!(queued, [0, 0, 100, 100, 200, 200]);
}

/// PROBE-19: a thread that was busy elsewhere did not see what the target did in its time.
#[tokio::test(start_paused = true)]
async fn a_timeout_that_is_noticed_far_too_late_shows_nothing() {
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

/// PROBE-31: the timeout is one for everything.
#[tokio::test(start_paused = true)]
async fn the_timeout_begins_with_the_attempt_and_ends_it() {
    let (prober, _connections) = in_memory(1);
    let begun = Instant::now();
    let done = attempt(&prober, &web(Duration::from_secs(2))).await;
    assert_eq!(done.report.outcome, Outcome::Failure);
    assert_eq!(done.report.output, "GET http://127.0.0.1:80/: no answer within 2 s");
    assert!(done.report.latency >= Duration::from_secs(2) && begun.elapsed() < Duration::from_secs(3));
}

/// PROBE-6, DEF-9: a dropped attempt leaves nothing behind, neither a connection nor a taken turn.
#[tokio::test(start_paused = true)]
async fn dropping_an_attempt_closes_its_connection_and_frees_its_turn() {
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

/// PROBE-6, DEF-9: the same over a real socket. The server sees the end.
#[tokio::test]
async fn a_server_sees_the_end_of_a_dropped_attempt() {
    let (tell, mut told) = mpsc::channel(2);
    let port = serve(move |mut socket| {
        let tell = tell.clone();
        async move {
            let _ = read_head(&mut socket).await;
            let _ = tell.send(None).await;
            let _ = tell.send(Some(socket.read(&mut [0; 16]).await.ok())).await;
        }
    })
    .await;
    let prober = Prober::new(Arc::new(TcpDial), no_exec(), 1);
    let probe = probe(Handler::HttpGet(http_get(port, "/")), LONG);
    {
        let running = std::pin::pin!(attempt(&prober, &probe));
        let asked = std::pin::pin!(told.recv());
        match futures::future::select(running, asked).await {
            futures::future::Either::Right((heard, _)) => assert_eq!(heard, Some(None)),
            futures::future::Either::Left((done, _)) => panic!("nobody answered, yet {done:?}"),
        }
    }
    assert_eq!(told.recv().await, Some(Some(Some(0))), "closed in order");
}

/// A limit of none would stop all probing.
#[tokio::test(start_paused = true)]
async fn a_limit_of_zero_is_one() {
    let (prober, connections) = in_memory(0);
    serve_after(Duration::ZERO, connections);
    assert_eq!(attempt(&prober, &web(LONG)).await.report.outcome, Outcome::Success);
}
