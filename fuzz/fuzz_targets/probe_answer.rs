//! Answers of probe targets: any bytes over any of the protocols.
//!
//! The first byte says which probe asks, the second in how large pieces the answer arrives and whether the connection ends
//! after it; each further part of the input answers one more connection. An attempt ends within its time, its output is
//! bounded, and only an answer that says so is a success.

#![no_main]

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use keelet_fuzz::parts;
use keelet_lifecycle::operation::Outcome;
use keelet_pod::{Pod, Probe, ProbeKind, parse_one};
use keelet_prober::{Attempt, Connection, Dial, Exec, ExecError, Executed, Prober, Target};
use libfuzzer_sys::fuzz_target;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    runtime::{Builder, Runtime},
};

/// One container for each probe.
const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: http, image: i, livenessProbe: {httpGet: {port: 80, path: '/a?b'}, timeoutSeconds: 2}}
  - {name: https, image: i, livenessProbe: {httpGet: {port: 80, scheme: HTTPS}, timeoutSeconds: 2}}
  - {name: http2, image: i, livenessProbe: {httpGet: {port: 80}, timeoutSeconds: 2}}
  - {name: grpc, image: i, livenessProbe: {grpc: {port: 80, service: s}, timeoutSeconds: 2}}
";
const HTTP: u8 = 0;
const HTTPS: u8 = 1;
const HTTP2: u8 = 2;
/// Frames of HTTP/2, as they are.
const GRPC: u8 = 3;
/// A message, with the frames put around it.
const GRPC_MESSAGE: u8 = 4;

/// As much of an output as is kept, and a few words around it.
const LONGEST_OUTPUT: usize = 11 * 1024;

fuzz_target!(|input: &[u8]| {
    let [kind, manner, answers @ ..] = input else { return };
    let kind = kind % 5;
    let answers: Vec<Vec<u8>> = parts::split(answers, 12)
        .into_iter()
        .map(|answer| if kind == GRPC_MESSAGE { grpc_frames(answer) } else { answer.to_vec() })
        .collect();
    let says_well = match kind {
        HTTP => answers.iter().any(|answer| contains(answer, b"HTTP/1.") && contains(answer, b" 2")),
        HTTPS => false,
        _ => true,
    };
    let dial = Arc::new(Answers { left: Mutex::new(answers.into_iter().rev().collect()), manner: *manner });
    let (pod, probe) = probe(kind);
    let target = Target { pod, container: &pod.containers[0], container_id: "c", address: Some("192.0.2.1") };
    let prober = Prober::new(dial, Arc::new(NoExec), 1);
    let attempt = Attempt { target, kind: ProbeKind::Liveness, probe };
    let done = runtime().block_on(prober.attempt(attempt));
    let report = done.report;
    // Timers count in milliseconds.
    assert!(report.latency <= probe.timeout + Duration::from_millis(2), "{report:?}");
    assert!(report.output.len() <= LONGEST_OUTPUT, "{} bytes", report.output.len());
    assert!(
        !matches!(report.outcome, Outcome::Success | Outcome::Warning) || says_well || says_elsewhere(&report.output),
        "{report:?}"
    );
    assert!(report.outcome == Outcome::Success || !report.output.is_empty(), "{report:?}: without a reason");
});

/// A redirect to another host is taken for an answer.
fn says_elsewhere(output: &str) -> bool {
    output.starts_with('3')
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime"))
}

fn probe(kind: u8) -> (&'static Pod, &'static Probe) {
    static POD_AND_PROBES: OnceLock<(Pod, Vec<Probe>)> = OnceLock::new();
    let (pod, probes) = POD_AND_PROBES.get_or_init(|| {
        let pod = parse_one(POD).unwrap_or_else(|report| panic!("{report}"));
        let mut probes: Vec<Probe> = pod.containers.iter().filter_map(|c| c.liveness.clone()).collect();
        if let keelet_pod::Handler::HttpGet(get) = &mut probes[usize::from(HTTP2)].handler {
            get.protocol = keelet_pod::HttpProtocol::Http2;
        }
        (pod, probes)
    });
    (pod, &probes[usize::from(kind.min(GRPC))])
}

/// Settings, headers of a good answer, the message, and trailers that say that all went well.
fn grpc_frames(message: &[u8]) -> Vec<u8> {
    let literal = |name: &str, value: &str| {
        [&[0, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
    };
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let length = payload.len() as u32;
        [&length.to_be_bytes()[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
    };
    let message = &message[..message.len().min(16_000)];
    let head = [vec![0x88], literal("content-type", "application/grpc")].concat();
    let framed = [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat();
    [frame(4, 0, 0, &[]), frame(1, 4, 1, &head), frame(0, 0, 1, &framed), frame(1, 5, 1, &literal("grpc-status", "0"))]
        .concat()
}

/// Answers connections one after the other, and refuses those beyond.
#[derive(Debug)]
struct Answers {
    left: Mutex<Vec<Vec<u8>>>,
    manner: u8,
}

struct Canned {
    answer: Vec<u8>,
    at: usize,
    piece: usize,
    stays: bool,
}

#[derive(Debug)]
struct NoExec;

// === impl Answers ===

impl Dial for Answers {
    fn connect<'a>(&'a self, _: &'a str, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
        let answer = self.left.lock().expect("one thread").pop();
        let (piece, stays) = (usize::from(self.manner >> 1) * 16 + 1, self.manner & 1 == 1);
        Box::pin(async move {
            let answer = answer.ok_or(io::ErrorKind::ConnectionRefused)?;
            Ok(Box::new(Canned { answer, at: 0, piece, stays }) as Box<dyn Connection>)
        })
    }
}

// === impl Canned ===

impl AsyncRead for Canned {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let end = self.answer.len().min(self.at + self.piece.min(buffer.remaining()));
        if end == self.at && self.stays {
            return Poll::Pending;
        }
        buffer.put_slice(&self.answer[self.at..end]);
        self.at = end;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Canned {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

// === impl NoExec ===

impl Exec for NoExec {
    fn exec<'a>(&'a self, _: &'a str, _: &'a [String], _: Duration) -> BoxFuture<'a, Result<Executed, ExecError>> {
        Box::pin(async { Err(ExecError::NotRun("nothing to run".to_owned())) })
    }
}
