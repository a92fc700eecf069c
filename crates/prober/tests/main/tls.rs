//! `httpGet` over TLS.

use std::sync::{Arc, Mutex};

use keelet_lifecycle::operation::Outcome;
use keelet_pod::{Handler, HttpGet, Scheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    servers::{TlsServer, blurt, drain, page, read_head, serve},
    target::{LONG, SHORT, ask, ask_at, get, http_get, prober},
};

fn https(port: u16) -> HttpGet {
    HttpGet { scheme: Scheme::Https, ..http_get(port, "/") }
}

/// PROBE-33: a self-signed certificate for another name is accepted, with either version of TLS.
#[tokio::test]
async fn any_certificate_will_do() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let versions = Box::leak(Box::new([version]));
        let port = TlsServer { alpn: &["http/1.1"], versions }.serve(greet).await;
        assert_eq!(get(https(port)).await, (Outcome::Success, "over TLS".to_owned()), "{version:?}");
    }
}

/// PROBE-33: a server need not know ALPN.
#[tokio::test]
async fn a_server_without_alpn_is_spoken_to_in_http_1() {
    let port = TlsServer { alpn: &[], versions: rustls::ALL_VERSIONS }.serve(greet).await;
    assert_eq!(get(https(port)).await, (Outcome::Success, "over TLS".to_owned()));
}

/// PROBE-33: HTTP/2 is spoken with servers that choose it.
#[tokio::test]
async fn a_server_that_chooses_http_2_is_spoken_to_in_http_2() {
    let port = TlsServer { alpn: &["h2"], versions: rustls::ALL_VERSIONS }
        .serve(|stream| async move {
            use hyper_util::rt::{TokioExecutor, TokioIo};
            let service = hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                let text = format!("{:?} {}", request.version(), request.uri());
                Ok::<_, std::convert::Infallible>(http::Response::new(http_body_util::Full::new(bytes::Bytes::from(
                    text,
                ))))
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        })
        .await;
    assert_eq!(get(https(port)).await, (Outcome::Success, format!("HTTP/2.0 https://127.0.0.1:{port}/")));
}

/// PROBE-33: a host name is sent as SNI, an address is not.
#[tokio::test]
async fn a_host_name_is_sent_as_sni_and_an_address_is_not() {
    let names: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let notes = Arc::clone(&names);
    let port = TlsServer { alpn: &[], versions: rustls::ALL_VERSIONS }
        .serve(move |stream| {
            notes.lock().unwrap().push(stream.get_ref().1.server_name().map(str::to_owned));
            greet(stream)
        })
        .await;
    for host in ["localhost", "127.0.0.1"] {
        let handler = Handler::HttpGet(HttpGet { host: Some(host.to_owned()), ..https(port) });
        let done = ask_at(&prober(), None, handler, LONG).await;
        assert_eq!(done.report.outcome, Outcome::Success, "{}", done.report.output);
    }
    assert_eq!(*names.lock().unwrap(), [Some("localhost".to_owned()), None]);
}

/// PROBE-34.
#[tokio::test]
async fn a_server_that_speaks_plain_http_fails() {
    // Such a server does not find the end of a request in a TLS hello: it responds at once.
    let port = blurt(page(400, "plain HTTP here")).await;
    let expected = format!("GET https://127.0.0.1:{port}/: the server answered in plain HTTP to an HTTPS client");
    assert_eq!(get(https(port)).await, (Outcome::Failure, expected));
}

/// PROBE-34.
#[tokio::test]
async fn a_handshake_that_never_ends_fails_with_the_timeout() {
    let port = serve(|mut socket| async move { drain(&mut socket).await }).await;
    let expected = format!("GET https://127.0.0.1:{port}/: timed out after 200 ms");
    assert_eq!(ask(Handler::HttpGet(https(port)), SHORT).await, (Outcome::Failure, expected));
}

/// PROBE-34.
#[tokio::test]
async fn garbage_instead_of_tls_fails() {
    let port = blurt([0xff; 512]).await;
    let (outcome, output) = get(https(port)).await;
    assert_eq!(outcome, Outcome::Failure);
    assert!(output.starts_with(&format!("GET https://127.0.0.1:{port}/: TLS handshake: ")), "{output}");
}

/// PROBE-33: the server gets close_notify, so it need not suspect truncation.
#[tokio::test]
async fn a_tls_connection_is_closed_in_order() {
    for (response, outcome) in [
        (page(200, "over TLS"), Outcome::Success),
        // More than the probe reads.
        (page(200, &"long".repeat(9000)), Outcome::Success),
        (page(500, &"long".repeat(9000)), Outcome::Failure),
    ] {
        let (report, mut reported) = tokio::sync::mpsc::channel(1);
        let port = TlsServer { alpn: &[], versions: rustls::ALL_VERSIONS }
            .serve(move |mut stream| {
                let (report, response) = (report.clone(), response.clone());
                async move {
                    let _ = read_head(&mut stream).await;
                    let _ = stream.write_all(&response).await;
                    // Without close_notify this is an error.
                    let end = stream.read(&mut [0; 16]).await;
                    let _ = report.send(end.map_err(|error| error.to_string())).await;
                }
            })
            .await;
        assert_eq!(get(https(port)).await.0, outcome);
        assert_eq!(reported.recv().await, Some(Ok(0)));
    }
}

async fn greet(mut stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>) {
    let _ = read_head(&mut stream).await;
    let _ = stream.write_all(&page(200, "over TLS")).await;
    let _ = stream.shutdown().await;
    drain(&mut stream).await;
}
