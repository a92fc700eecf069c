//! A shortage of the agent (descriptors, memory, ports) says nothing about a target, in any handler.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use keelet_lifecycle::operation::Outcome;
use keelet_pod::{GrpcProbe, Handler, Hook, HttpGet, HttpProtocol, PortRef, Probe, ProbeKind, Scheme, TcpSocket};
use keelet_prober::{
    Attempt, Connection, Dial, Exec, ExecError, Executed, HookDone, HookError, Prober, Target, TcpDial,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use crate::target::{FakeExec, LONG, http_get, no_exec, pod, probe, run_hook};

/// EMFILE, ENFILE, ENOMEM, EADDRNOTAVAIL, ENOBUFS.
const SHORTAGES: [i32; 5] = [24, 23, 12, 99, 105];

/// The step at which a connection fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Connect,
    Write,
    Read,
}

/// A network on which one step fails with this error, every time or the first few times.
#[derive(Debug)]
struct Failing {
    step: Step,
    errno: i32,
    left: Mutex<usize>,
}

/// A connection that accepts requests and responds with an error.
struct Broken {
    step: Step,
    errno: i32,
}

impl Dial for Failing {
    fn connect<'a>(&'a self, _: &'a str, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
        Box::pin(async move {
            let mut left = self.left.lock().unwrap();
            if *left == 0 {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            *left -= 1;
            match self.step {
                Step::Connect => Err(io::Error::from_raw_os_error(self.errno)),
                step => Ok(Box::new(Broken { step, errno: self.errno }) as Box<dyn Connection>),
            }
        })
    }
}

impl AsyncRead for Broken {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::Error::from_raw_os_error(self.errno)))
    }
}

impl AsyncWrite for Broken {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(match self.step {
            Step::Write => Err(io::Error::from_raw_os_error(self.errno)),
            Step::Connect | Step::Read => Ok(bytes.len()),
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn failing(step: Step, errno: i32, times: usize) -> Prober {
    Prober::new(Arc::new(Failing { step, errno, left: Mutex::new(times) }), no_exec(), 1)
}

async fn ask(prober: &Prober, probe: &Probe) -> (Outcome, String) {
    let pod = pod(80);
    let target = Target { pod: &pod, container: &pod.containers[0], container_id: "c0ffee", address: Some("10.0.0.1") };
    let report = prober.attempt(Attempt { target, kind: ProbeKind::Liveness, probe }).await.report;
    (report.outcome, report.output)
}

/// Every handler that uses the network.
fn handlers() -> Vec<(&'static str, Handler)> {
    let https = HttpGet { scheme: Scheme::Https, ..http_get(80, "/") };
    let h2c = HttpGet { protocol: HttpProtocol::Http2, ..http_get(80, "/") };
    let grpc = |tls| Handler::Grpc(GrpcProbe { port: 80, service: String::new(), tls });
    vec![
        ("http", Handler::HttpGet(http_get(80, "/"))),
        ("https", Handler::HttpGet(https)),
        ("h2c", Handler::HttpGet(h2c)),
        ("tcp", Handler::TcpSocket(TcpSocket { host: None, port: PortRef::Number(80) })),
        ("grpc", grpc(false)),
        ("grpc over TLS", grpc(true)),
    ]
}

/// PROBE-47.
#[tokio::test]
async fn a_shortage_of_the_agent_is_late_in_every_handler() {
    for (name, handler) in handlers() {
        let probe = probe(handler, LONG);
        for errno in SHORTAGES {
            for step in [Step::Connect, Step::Write, Step::Read] {
                if name == "tcp" && step != Step::Connect {
                    continue;
                }
                let (outcome, output) = ask(&failing(step, errno, usize::MAX), &probe).await;
                let why = io::Error::from_raw_os_error(errno).to_string();
                assert_eq!(outcome, Outcome::Late, "{name}, {step:?}, {why}: {output}");
                assert!(output.contains("this node could not connect"), "{name}, {step:?}, {why}: {output}");
            }
        }
        // Errors of the peer are failures.
        for errno in [111, 104, 113, 110, 32] {
            let (outcome, output) = ask(&failing(Step::Connect, errno, usize::MAX), &probe).await;
            assert_eq!(outcome, Outcome::Failure, "{name}, errno {errno}: {output}");
        }
    }
}

/// PROBE-47.
#[tokio::test]
async fn a_command_that_the_node_could_not_start_is_late() {
    let exec = FakeExec::answering(Err(ExecError::Exhausted("pipe: too many open files".to_owned())));
    let prober = Prober::new(Arc::new(TcpDial::default()), exec, 1);
    let probe = probe(Handler::Exec { command: vec!["check".to_owned()] }, LONG);
    let expected = (Outcome::Late, "not started: pipe: too many open files".to_owned());
    assert_eq!(ask(&prober, &probe).await, expected);
}

/// PROBE-47, TERM-11: a hook is retried until the shortage is over, within the hook's time limit.
#[tokio::test(start_paused = true)]
async fn a_hook_is_retried_during_a_shortage_and_does_not_fail() {
    #[derive(Debug)]
    struct Recovers(Mutex<usize>);
    impl Exec for Recovers {
        fn exec<'a>(&'a self, _: &'a str, _: &'a [String], _: Duration) -> BoxFuture<'a, Result<Executed, ExecError>> {
            let mut left = self.0.lock().unwrap();
            let short = *left > 0;
            *left = left.saturating_sub(1);
            Box::pin(async move {
                let done = Executed { exit_code: 0, output: Vec::new() };
                if short { Err(ExecError::Exhausted("pipe: too many open files".to_owned())) } else { Ok(done) }
            })
        }
    }
    let command = Hook::Exec { command: vec!["warm-up".to_owned()] };
    let prober = Prober::new(Arc::new(TcpDial::default()), Arc::new(Recovers(Mutex::new(90))), 1);
    assert_eq!(run_hook(&prober, &command, None).await, Ok(HookDone::default()), "a hook without a time limit");

    // Over the network the node recovers too; then the target refuses, which is its own failure.
    let get = Hook::HttpGet(http_get(80, "/hook"));
    for errno in SHORTAGES {
        let error = run_hook(&failing(Step::Connect, errno, 5), &get, Some(LONG)).await.unwrap_err();
        assert_eq!(error, HookError::NoAnswer("GET http://127.0.0.1:80/hook: connection refused".to_owned()));
    }

    // It has its time limit and no more.
    let begun = Instant::now();
    let error = run_hook(&failing(Step::Connect, 24, usize::MAX), &get, Some(Duration::from_secs(5))).await;
    assert!(matches!(error, Err(HookError::Exhausted(_))), "{error:?}");
    assert!(begun.elapsed() <= Duration::from_secs(5), "{:?}", begun.elapsed());
}
