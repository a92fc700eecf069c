//! `grpc`.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use keelet_lifecycle::operation::Outcome;
use keelet_pod::{GrpcProbe, Handler};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::{
    servers::{TlsServer, always, closed_port, drain, page, serve},
    target::{LONG, SHORT, ask, ask_at, prober},
};

/// The parts of a server's response.
#[derive(Clone)]
struct Answer {
    status: u16,
    headers: Vec<(&'static str, &'static str)>,
    body: Vec<u8>,
    trailers: Option<Vec<(&'static str, &'static str)>>,
}

/// A request that a server got: its head, and its body.
type Asked = Arc<Mutex<Vec<(http::request::Parts, Bytes)>>>;

const GRPC: (&str, &str) = ("content-type", "application/grpc");
const SERVING: &[u8] = b"\0\0\0\0\x02\x08\x01";
const NOT_SERVING: &[u8] = b"\0\0\0\0\x02\x08\x02";

impl Answer {
    fn health(body: &[u8]) -> Self {
        Self { status: 200, headers: vec![GRPC], body: body.to_vec(), trailers: Some(vec![("grpc-status", "0")]) }
    }

    /// A call that fails at once: a status and nothing else.
    fn refusal(code: &'static str, message: &'static str) -> Self {
        let headers = vec![GRPC, ("grpc-status", code), ("grpc-message", message)];
        Self { status: 200, headers, body: Vec::new(), trailers: None }
    }

    async fn talk(self, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, asked: Asked) {
        let service = service_fn(move |request: Request<Incoming>| {
            let (answer, asked) = (self.clone(), Arc::clone(&asked));
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                asked.lock().unwrap().push((head, body));
                let trailers = answer.trailers.map(|trailers| Ok::<_, Infallible>(map(&trailers)));
                let body = Full::new(Bytes::from(answer.body)).with_trailers(std::future::ready(trailers));
                let mut response = Response::new(body);
                *response.status_mut() = answer.status.try_into().unwrap();
                *response.headers_mut() = map(&answer.headers);
                Ok::<_, Infallible>(response)
            }
        });
        let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(io), service).await;
    }
}

fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
}

async fn answering(answer: Answer) -> (u16, Asked) {
    let asked = Asked::default();
    let notes = Arc::clone(&asked);
    let port = serve(move |socket| answer.clone().talk(socket, Arc::clone(&notes))).await;
    (port, asked)
}

fn grpc(port: u16, service: &str) -> Handler {
    Handler::Grpc(GrpcProbe { port, service: service.to_owned(), tls: false })
}

/// The outcome of a probe of service "db" against a server with that response.
async fn shown(answer: Answer) -> (Outcome, String) {
    ask(grpc(answering(answer).await.0, "db"), LONG).await
}

fn failure(words: &str) -> (Outcome, String) {
    (Outcome::Failure, words.to_owned())
}

/// PROBE-38, SCN-U33.
#[tokio::test]
async fn a_service_that_serves_passes() {
    assert_eq!(shown(Answer::health(SERVING)).await, (Outcome::Success, "SERVING".to_owned()));
}

/// PROBE-38, SCN-U33.
#[tokio::test]
async fn every_other_health_fails_by_its_name() {
    for (body, words) in [
        (NOT_SERVING, "grpc: service \"db\" is NOT_SERVING"),
        (b"\0\0\0\0\0", "grpc: service \"db\" is UNKNOWN"),
        (b"\0\0\0\0\x02\x08\0", "grpc: service \"db\" is UNKNOWN"),
        (b"\0\0\0\0\x02\x08\x03", "grpc: service \"db\" is SERVICE_UNKNOWN"),
        (b"\0\0\0\0\x02\x08\x63", "grpc: service \"db\" is in state 99"),
    ] {
        assert_eq!(shown(Answer::health(body)).await, failure(words));
    }
}

/// PROBE-38.
#[tokio::test]
async fn the_call_is_a_health_check() {
    for (service, message) in [("", &b"\0\0\0\0\0"[..]), ("db", b"\0\0\0\0\x04\x0a\x02db")] {
        let (port, asked) = answering(Answer::health(SERVING)).await;
        assert_eq!(ask(grpc(port, service), LONG).await.0, Outcome::Success);
        let asked = asked.lock().unwrap();
        let [(head, body)] = &asked[..] else { panic!("one call") };
        assert_eq!(head.method, "POST");
        assert_eq!(head.uri.to_string(), format!("http://127.0.0.1:{port}/grpc.health.v1.Health/Check"));
        let expected = map(&[
            GRPC,
            ("te", "trailers"),
            ("user-agent", "kube-probe/1.37"),
            ("grpc-timeout", "30000m"),
            ("content-length", if service.is_empty() { "5" } else { "9" }),
        ]);
        assert_eq!(head.headers, expected);
        assert_eq!(body, message);
    }
}

/// PROBE-38: the status may be in the headers.
#[tokio::test]
async fn a_refused_call_fails_with_the_servers_words() {
    for (code, message, words) in [
        ("5", "unknown service", "grpc: NOT_FOUND: unknown service"),
        ("5", "", "grpc: NOT_FOUND"),
        ("12", "unknown method", "grpc: the server does not implement the health service (grpc.health.v1.Health)"),
        ("16", "who%3F %C3%BC", "grpc: UNAUTHENTICATED: who? ü"),
        ("77", "new", "grpc: status 77: new"),
        ("nonsense", "new", "grpc: UNKNOWN: new"),
    ] {
        assert_eq!(shown(Answer::refusal(code, message)).await, failure(words));
        let in_trailers = Answer {
            trailers: Some(vec![("grpc-status", code), ("grpc-message", message)]),
            headers: vec![GRPC],
            ..Answer::health(b"")
        };
        assert_eq!(shown(in_trailers).await, failure(words));
    }
}

/// PROBE-38: a status after the message overrides the message.
#[tokio::test]
async fn a_status_after_the_message_decides() {
    let answer = Answer { trailers: Some(vec![("grpc-status", "14")]), ..Answer::health(SERVING) };
    assert_eq!(shown(answer).await, failure("grpc: UNAVAILABLE"));
    let answer = Answer { trailers: None, ..Answer::health(SERVING) };
    assert_eq!(shown(answer).await, failure("grpc: the response ended without a status"));
    let answer = Answer { trailers: Some(vec![("x-other", "1")]), ..Answer::health(SERVING) };
    assert_eq!(shown(answer).await, failure("grpc: the response ended without a status"));
}

/// PROBE-38.
#[tokio::test]
async fn a_response_that_is_not_grpc_fails() {
    let page = Answer { headers: vec![("content-type", "text/html")], ..Answer::health(SERVING) };
    assert_eq!(shown(page).await, failure("grpc: the server responded with content type \"text/html\""));
    let untyped = Answer { headers: Vec::new(), ..Answer::health(SERVING) };
    assert_eq!(shown(untyped).await, failure("grpc: the server responded with content type \"\""));
    let missing = Answer { status: 404, ..Answer::health(SERVING) };
    assert_eq!(shown(missing).await, failure("grpc: the server responded with HTTP 404"));
    let typed = Answer { headers: vec![("content-type", "application/grpc+proto")], ..Answer::health(SERVING) };
    assert_eq!(shown(typed).await.0, Outcome::Success);
}

/// PROBE-38.
#[tokio::test]
async fn an_invalid_message_fails() {
    for (body, words) in [
        (&b""[..], "grpc: the response has no message"),
        (b"\x01\0\0\0\x02\x08\x01", "grpc: the response is compressed, but the request does not accept compression"),
        (b"\0\0\0\0\x09\x08\x01", "grpc: the response is truncated"),
        (b"\0\0\0\0\x02\x08\x01\0\0\0\0\x02\x08\x01", "grpc: the response has more than one message"),
        (b"\0\0\0\0\x02\x0f\x01", "grpc: the response is not a HealthCheckResponse"),
        (&[0; 5000], "grpc: the response is larger than 4096 bytes"),
    ] {
        assert_eq!(shown(Answer::health(body)).await, failure(words));
    }
}

/// PROBE-38, SCN-U33.
#[tokio::test]
async fn a_refused_connection_fails() {
    let port = closed_port().await;
    let expected = format!("grpc: connecting to 127.0.0.1:{port}: connection refused");
    assert_eq!(ask(grpc(port, ""), LONG).await, failure(&expected));
}

/// PROBE-38, SCN-U33.
#[tokio::test]
async fn a_connection_that_closes_fails() {
    let port = serve(|socket| async move { drop(socket) }).await;
    let (outcome, output) = ask(grpc(port, ""), LONG).await;
    assert_eq!(outcome, Outcome::Failure);
    assert!(output.starts_with("grpc: "), "{output}");
}

/// PROBE-38, SCN-U33.
#[tokio::test]
async fn a_server_that_is_too_slow_fails() {
    let port = serve(|mut socket| async move { drain(&mut socket).await }).await;
    let expected = format!("grpc: 127.0.0.1:{port} timed out after 200 ms");
    assert_eq!(ask(grpc(port, ""), SHORT).await, failure(&expected));
}

/// PROBE-38.
#[tokio::test]
async fn a_server_that_speaks_http_1_fails() {
    let port = always(page(400, "this is no HTTP/2")).await;
    assert_eq!(ask(grpc(port, ""), LONG).await, failure("grpc: the server speaks HTTP/1, not gRPC"));
}

/// PROBE-31.
#[tokio::test]
async fn a_pod_without_an_address_cannot_be_probed() {
    let done = ask_at(&prober(), None, grpc(1, ""), LONG).await;
    assert_eq!((done.report.outcome, done.report.output.as_str()), (Outcome::Error, "the pod has no address"));
}

/// PROBE-38, SCN-U33: servers with and without TLS.
#[tokio::test]
async fn tls_is_spoken_where_the_probe_says_so() {
    let asked = Asked::default();
    let notes = Arc::clone(&asked);
    let server = TlsServer { alpn: &["h2"], versions: rustls::ALL_VERSIONS };
    let secure = server.serve(move |stream| Answer::health(SERVING).talk(stream, Arc::clone(&notes))).await;
    let (plain, _) = answering(Answer::health(SERVING)).await;
    let over_tls = |port| Handler::Grpc(GrpcProbe { port, service: String::new(), tls: true });

    assert_eq!(ask(over_tls(secure), LONG).await, (Outcome::Success, "SERVING".to_owned()));
    assert_eq!(asked.lock().unwrap()[0].0.uri.scheme_str(), Some("https"));
    let (outcome, output) = ask(grpc(secure, ""), LONG).await;
    assert_eq!(outcome, Outcome::Failure, "{output}");
    let (outcome, output) = ask(over_tls(plain), LONG).await;
    assert_eq!(outcome, Outcome::Failure);
    assert!(output.starts_with(&format!("grpc: connecting to 127.0.0.1:{plain}: TLS handshake: ")), "{output}");
}

/// PROBE-38: a server that has TLS but no HTTP/2.
#[tokio::test]
async fn a_tls_server_without_http_2_fails() {
    for alpn in [&["http/1.1"][..], &[]] {
        let server = TlsServer { alpn, versions: rustls::ALL_VERSIONS };
        let port = server
            .serve(|mut stream| async move {
                let _ = stream.write_all(&page(400, "no HTTP/2")).await;
                drain(&mut stream).await;
            })
            .await;
        let handler = Handler::Grpc(GrpcProbe { port, service: String::new(), tls: true });
        let (outcome, output) = ask(handler, LONG).await;
        assert_eq!(outcome, Outcome::Failure, "{output}");
    }
}
