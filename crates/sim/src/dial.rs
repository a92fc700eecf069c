//! Connections to containers: scripted servers at the end of in-memory pipes.

use std::{
    convert::Infallible,
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use keelet_pod::Pod;
use keelet_prober::{Connection, Dial};
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex},
    sync::watch,
    time::sleep,
};

use crate::{
    node::Loss,
    process::{AgentProcess, Permit},
    script::{Answer, Reply, Wire},
    sim::Sim,
    targets::{self, GRPC_PATH, Port, Protocol},
    timeline::Attempt,
};

/// Bytes that a connection holds in each direction.
const PIPE: usize = 16 * 1024;

/// The network as one run of the agent sees it.
#[derive(Clone)]
pub(crate) struct SimDial {
    pub(crate) sim: Arc<Sim>,
    pub(crate) process: Arc<AgentProcess>,
}

/// The agent's end of a connection. It falls silent when the agent dies.
struct Line {
    process: Arc<AgentProcess>,
    stream: DuplexStream,
}

/// The container's end: the instance that answers there.
#[derive(Clone)]
struct Target {
    sim: Arc<Sim>,
    pod: Arc<Pod>,
    container: String,
    port: u16,
}

type Body = BoxBody<Bytes, Infallible>;

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused")
}

// === impl SimDial ===

impl fmt::Debug for SimDial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDial of run {}", self.process.number)
    }
}

impl Dial for SimDial {
    fn connect<'a>(&'a self, _: &'a str, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
        Box::pin(async move {
            if self.process.effect() != Permit::Go {
                self.sim.announce(&self.process);
                return std::future::pending().await;
            }
            let connected = self.open(host, port).await;
            if self.process.is_over() {
                return std::future::pending().await;
            }
            connected.map(|stream| {
                let line = Line { process: Arc::clone(&self.process), stream };
                Box::new(line) as Box<dyn Connection>
            })
        })
    }
}

impl SimDial {
    async fn open(&self, host: &str, port: u16) -> io::Result<DuplexStream> {
        let (pod, listener) = self.find(host, port).ok_or_else(refused)?;
        let Port { container, protocol, tcp } = listener;
        let target = Target { sim: Arc::clone(&self.sim), pod, container, port };
        let protocol = target.spoken().unwrap_or(protocol);
        let question = format!("tcp :{port}");
        let Some(ended) = target.word_of_end().filter(|_| target.has_network()) else {
            // No instance runs, or none can be reached. The caller learns it at once.
            let kinds = if tcp.is_empty() { target.kinds_on_port() } else { tcp };
            target.note(kinds, question, Answer::new(Reply::Refuse));
            return Err(refused());
        };
        if !tcp.is_empty() {
            let answer = target.answer(&tcp);
            target.note(tcp, question, answer);
            match answer.reply {
                Reply::Hang => std::future::pending().await,
                reply => {
                    sleep(answer.after).await;
                    if !reply.passes() {
                        return Err(refused());
                    }
                }
            }
        } else if target.refuses() {
            target.note(target.kinds_on_port(), question, Answer::new(Reply::Refuse));
            return Err(refused());
        }
        let (ours, theirs) = duplex(PIPE);
        drop(tokio::spawn(target.serve(protocol, theirs, ended)));
        Ok(ours)
    }

    /// The container that listens there: of several the one that runs.
    fn find(&self, host: &str, port: u16) -> Option<(Arc<Pod>, Port)> {
        let state = self.sim.lock();
        let mut found = None;
        for pod in state.pods_at(host) {
            for listener in targets::on_port(&pod, port) {
                let runs = state.node.running(&pod.uid, &listener.container).is_some();
                if runs {
                    return Some((pod, listener));
                }
                found = found.or(Some((Arc::clone(&pod), listener)));
            }
        }
        found
    }
}

// === impl Target ===

impl Target {
    /// Word of the end of the running instance; `None` if there is none.
    fn word_of_end(&self) -> Option<watch::Receiver<bool>> {
        let state = self.sim.lock();
        let id = &state.node.running(&self.pod.uid, &self.container)?.id;
        state.node.containers.get(id).map(|container| container.ended.subscribe())
    }

    /// Whether the network of the running instance is there.
    fn has_network(&self) -> bool {
        let state = self.sim.lock();
        let sandbox = state.node.running(&self.pod.uid, &self.container).map(|instance| &instance.sandbox);
        let loss = sandbox.and_then(|id| state.node.sandboxes.get(id)?.loss);
        loss != Some(Loss::Network)
    }

    /// What the script says that is spoken here.
    fn spoken(&self) -> Option<Protocol> {
        let speaks = self.sim.lock().scripts.of(&self.pod.name, &self.container).speaks?;
        Some(match speaks {
            Wire::Http1 => Protocol::Http1,
            Wire::Http2 => Protocol::Http2,
            Wire::Tls => Protocol::Tls,
        })
    }

    fn kinds_on_port(&self) -> Vec<keelet_pod::ProbeKind> {
        let Some(container) = self.pod.container(&self.container) else { return Vec::new() };
        let asks = |kind: &keelet_pod::ProbeKind| match container.probe(*kind).map(|probe| &probe.handler) {
            Some(keelet_pod::Handler::HttpGet(get)) => container.resolve_port(&get.port) == Ok(self.port),
            Some(keelet_pod::Handler::Grpc(grpc)) => grpc.port == self.port,
            Some(keelet_pod::Handler::TcpSocket(_) | keelet_pod::Handler::Exec { .. }) | None => false,
        };
        keelet_pod::ProbeKind::ALL.into_iter().filter(asks).collect()
    }

    fn answer(&self, kinds: &[keelet_pod::ProbeKind]) -> Answer {
        self.sim.lock().scripted_answer(&self.pod, &self.container, kinds).1
    }

    /// Whether the script closes the port to all probes that ask there.
    fn refuses(&self) -> bool {
        let kinds = self.kinds_on_port();
        !kinds.is_empty() && kinds.iter().all(|kind| self.answer(&[*kind]).reply == Reply::Refuse)
    }

    fn note(&self, kinds: Vec<keelet_pod::ProbeKind>, question: String, answer: Answer) {
        if kinds.is_empty() {
            return;
        }
        let mut state = self.sim.lock();
        let (instance, _) = state.scripted_answer(&self.pod, &self.container, &kinds);
        let sent = state.elapsed();
        state.note_attempt(Attempt {
            pod: self.pod.uid.clone(),
            container: self.container.clone(),
            instance,
            kinds,
            question,
            sent,
            reply: answer.reply,
            latency: answer.after,
        });
    }

    /// Answers on a connection until it is closed or the container ends.
    async fn serve(self, protocol: Protocol, stream: DuplexStream, mut ended: watch::Receiver<bool>) {
        let stream = TokioIo::new(stream);
        let target = self;
        let service = service_fn(move |request| target.clone().respond(request));
        let conversation = async {
            // A conversation that breaks off is no news: the caller sees it.
            match protocol {
                Protocol::Http1 => {
                    let server = hyper::server::conn::http1::Builder::new().auto_date_header(false).to_owned();
                    let _ = server.serve_connection(stream, service).await;
                }
                Protocol::Http2 => {
                    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                        .auto_date_header(false)
                        .to_owned();
                    let _ = server.serve_connection(stream, service).await;
                }
                Protocol::Silence | Protocol::Tls => {}
            }
        };
        tokio::select! {
            biased;
            _ = ended.wait_for(|ended| *ended) => {}
            () = conversation => {}
        }
    }

    async fn respond(self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let kinds = targets::by_path(&self.pod, &self.container, self.port, &path);
        let scripted = || self.sim.lock().scripts.of(&self.pod.name, &self.container).page(&path);
        let answer = kinds.is_empty().then(scripted).flatten().unwrap_or_else(|| self.answer(&kinds));
        let grpc = path == GRPC_PATH;
        let question = if grpc { format!("grpc :{}", self.port) } else { format!("http :{}{path}", self.port) };
        self.note(kinds, question, answer);
        if matches!(answer.reply, Reply::Hang | Reply::Refuse) {
            return std::future::pending().await;
        }
        sleep(answer.after).await;
        Ok(if grpc { health(answer.reply) } else { page(answer.reply) })
    }
}

fn page(reply: Reply) -> Response<Body> {
    let mut response = Response::new(Full::from(reply.to_string()).boxed());
    *response.status_mut() = http::StatusCode::from_u16(reply.status()).unwrap_or_default();
    if let Reply::Redirect(location) = reply {
        response.headers_mut().insert(http::header::LOCATION, HeaderValue::from_static(location));
    }
    response
}

/// `HealthCheckResponse`, in a gRPC frame: SERVING is 1, NOT_SERVING is 2.
fn health(reply: Reply) -> Response<Body> {
    let serving = if reply.passes() { 1 } else { 2 };
    let frame = Bytes::from(vec![0, 0, 0, 0, 2, 0x08, serving]);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let body = Full::from(frame).with_trailers(std::future::ready(Some(Ok(trailers)))).boxed();
    let mut response = Response::new(body);
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}

// === impl Line ===

impl AsyncRead for Line {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.process.is_over() { Poll::Pending } else { Pin::new(&mut self.stream).poll_read(cx, buffer) }
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.process.is_over() { Poll::Pending } else { Pin::new(&mut self.stream).poll_write(cx, bytes) }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.process.is_over() { Poll::Pending } else { Pin::new(&mut self.stream).poll_flush(cx) }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.process.is_over() { Poll::Pending } else { Pin::new(&mut self.stream).poll_shutdown(cx) }
    }
}
