//! `httpGet` over HTTP/1.1 and cleartext HTTP/2.

use std::{collections::BTreeMap, convert::Infallible};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use keelet_lifecycle::operation::Outcome;
use keelet_pod::{Handler, HttpGet, HttpProtocol, PortRef};

use crate::{
    servers::{Requests, always, answer, closed_port, page, serve, stall_after},
    target::{HALFWAY, LONG, SHORT, ask, ask_at, get, headers, http_get, prober},
};

/// The header lines of the one request a server got, in order.
fn lines(requests: &Requests) -> Vec<String> {
    let requests = requests.lock().unwrap();
    assert_eq!(requests.len(), 1, "one request");
    requests[0].trim_end().split("\r\n").map(str::to_owned).collect()
}

/// The headers a probe with these configured headers sends, beside `Host` and `Connection`.
async fn sent(configured: &[(&str, &str)]) -> Vec<String> {
    let (port, requests) = answer(|_| page(200, "")).await;
    get(HttpGet { headers: headers(configured), ..http_get(port, "/") }).await;
    let own = [format!("Host: 127.0.0.1:{port}"), "Connection: close".to_owned()];
    let mut lines = lines(&requests).split_off(1);
    lines.retain(|line| !own.contains(line));
    lines.sort();
    lines
}

/// VEC-21, PROBE-34, SCN-U31.
#[tokio::test]
async fn every_2xx_passes_with_its_body() {
    for status in [200, 201, 204, 226, 299] {
        let body = if status == 204 { "" } else { "fine" };
        let port = always(page(status, body)).await;
        assert_eq!(get(http_get(port, "/")).await, (Outcome::Success, body.to_owned()), "{status}");
    }
}

/// VEC-22, VEC-23, PROBE-34, PROBE-35.
#[tokio::test]
async fn a_3xx_that_leads_nowhere_passes_with_a_warning() {
    for (status, words) in [
        (300, "300 Multiple Choices has no location to follow, response body: choose"),
        (301, "301 Moved Permanently has no location to follow, response body: choose"),
        (304, "304 Not Modified has no location to follow, response body: "),
        (399, "399 <unknown status code> has no location to follow, response body: choose"),
    ] {
        let port = always(page(status, "choose")).await;
        assert_eq!(get(http_get(port, "/")).await, (Outcome::Warning, words.to_owned()), "{status}");
    }
}

/// VEC-23, PROBE-34, SCN-U31.
#[tokio::test]
async fn every_other_status_fails_and_shows_no_body() {
    for status in [101, 400, 404, 418, 500, 503, 599, 999] {
        let port = always(page(status, "password: 123")).await;
        let expected = format!("HTTP probe failed with statuscode: {status}");
        assert_eq!(get(http_get(port, "/")).await, (Outcome::Failure, expected), "{status}");
    }
}

/// PROBE-34: the status decides, whatever happens to the body.
#[tokio::test]
async fn a_failing_status_fails_also_with_a_body_that_stalls_or_breaks() {
    let expected = (Outcome::Failure, "HTTP probe failed with statuscode: 500".to_owned());
    let head = "HTTP/1.1 500 Oh\r\nContent-Length: 100\r\n\r\nhalf";
    assert_eq!(get(http_get(always(head).await, "/")).await, expected);
    assert_eq!(ask(Handler::HttpGet(http_get(stall_after(head).await, "/")), HALFWAY).await, expected);
}

/// PROBE-33, SCN-U31.
#[tokio::test]
async fn a_request_is_a_get_on_a_connection_of_its_own() {
    let (port, requests) = answer(|_| page(200, "")).await;
    get(http_get(port, "/healthz?deep=1")).await;
    assert_eq!(
        lines(&requests),
        [
            "GET /healthz?deep=1 HTTP/1.1",
            "User-Agent: kube-probe/1.37",
            "Accept: */*",
            &format!("Host: 127.0.0.1:{port}"),
            "Connection: close",
        ]
    );
}

/// PROBE-33, SCN-U31.
#[tokio::test]
async fn user_agent_and_accept_have_defaults_that_can_be_changed_or_emptied() {
    assert_eq!(sent(&[]).await, ["Accept: */*", "User-Agent: kube-probe/1.37"]);
    assert_eq!(sent(&[("user-agent", "me/1")]).await, ["Accept: */*", "User-Agent: me/1"]);
    assert_eq!(sent(&[("USER-AGENT", "")]).await, ["Accept: */*"]);
    assert_eq!(sent(&[("Accept", "text/html")]).await, ["Accept: text/html", "User-Agent: kube-probe/1.37"]);
    assert_eq!(sent(&[("accept", "")]).await, ["User-Agent: kube-probe/1.37"]);
    assert_eq!(sent(&[("Accept", ""), ("User-Agent", "")]).await, [""; 0]);
}

/// PROBE-33, SCN-U31.
#[tokio::test]
async fn other_headers_are_sent_as_they_are_and_repeats_stay_in_order() {
    let (port, requests) = answer(|_| page(200, "")).await;
    let configured = [("X-Cake", "muffin"), ("X-Empty", ""), ("X-Other", "1"), ("x-cake", "cupcake")];
    get(HttpGet { headers: headers(&configured), ..http_get(port, "/") }).await;
    let lines = lines(&requests);
    let cakes: Vec<_> = lines.iter().filter(|line| line.starts_with("X-Cake")).collect();
    assert_eq!(cakes, ["X-Cake: muffin", "X-Cake: cupcake"]);
    assert!(lines.contains(&"X-Empty: ".to_owned()) && lines.contains(&"X-Other: 1".to_owned()), "{lines:?}");
}

/// PROBE-33: a request has no body, whatever the configured headers say.
#[tokio::test]
async fn headers_of_a_body_are_not_sent() {
    let configured = [("Content-Length", "7"), ("Transfer-Encoding", "chunked"), ("Trailer", "x")];
    assert_eq!(sent(&configured).await, ["Accept: */*", "User-Agent: kube-probe/1.37"]);
}

/// PROBE-33, SCN-U31.
#[tokio::test]
async fn a_configured_host_is_the_host_of_the_request_but_not_where_it_goes() {
    let (port, requests) = answer(|_| page(200, "")).await;
    let configured = headers(&[("hOsT", "web.example.org"), ("Host", "second.example.org")]);
    let (outcome, _) = get(HttpGet { headers: configured, ..http_get(port, "/") }).await;
    assert_eq!(outcome, Outcome::Success);
    let hosts: Vec<_> = lines(&requests).into_iter().filter(|line| line.to_lowercase().starts_with("host:")).collect();
    assert_eq!(hosts, ["Host: web.example.org"]);
}

/// PROBE-33, SCN-U31: an empty `Host` means the default.
#[tokio::test]
async fn an_empty_host_is_the_default() {
    let (port, requests) = answer(|_| page(200, "")).await;
    get(HttpGet { headers: headers(&[("Host", "")]), ..http_get(port, "/") }).await;
    assert!(lines(&requests).contains(&format!("Host: 127.0.0.1:{port}")));
}

/// PROBE-32: no request reached the target.
#[tokio::test]
async fn a_header_that_cannot_be_sent_gives_no_result() {
    let (port, requests) = answer(|_| page(200, "")).await;
    let configured = headers(&[("X-Line", "one\r\nX-Smuggled: two")]);
    let (outcome, output) = get(HttpGet { headers: configured, ..http_get(port, "/") }).await;
    assert_eq!(outcome, Outcome::Error);
    assert_eq!(output, "invalid header \"X-Line\": name or value cannot be sent");
    assert!(requests.lock().unwrap().is_empty());
}

/// PROBE-31: the request goes to the configured host, not to the pod.
#[tokio::test]
async fn a_configured_host_is_probed_instead_of_the_pod() {
    let port = always(page(200, "here")).await;
    for host in ["127.0.0.1", "localhost"] {
        let handler = Handler::HttpGet(HttpGet { host: Some(host.to_owned()), ..http_get(port, "/") });
        let done = ask_at(&prober(), None, handler, LONG).await;
        assert_eq!((done.report.outcome, done.report.output.as_str()), (Outcome::Success, "here"), "{host}");
    }
}

/// PROBE-31.
#[tokio::test]
async fn a_pod_without_an_address_cannot_be_probed() {
    let done = ask_at(&prober(), None, Handler::HttpGet(http_get(80, "/")), LONG).await;
    assert_eq!((done.report.outcome, done.report.output.as_str()), (Outcome::Error, "the pod has no address"));
}

/// PROBE-32, SCN-U35.
#[tokio::test]
async fn ports_go_by_number_or_by_a_name_of_the_container() {
    let by_name = |name: &str| HttpGet { port: PortRef::Name(name.to_owned()), ..http_get(0, "/") };
    // Port 80 of loopback may be served or not; what matters is where the request went.
    let (_, output) = get(by_name("web")).await;
    assert!(!output.contains("no port named"), "{output}");
    for unknown in ["admin", "WEB", ""] {
        let expected = format!("container \"main\" has no port named {unknown:?}");
        assert_eq!(get(by_name(unknown)).await, (Outcome::Error, expected));
    }
    assert_eq!(get(http_get(0, "/")).await, (Outcome::Error, "port 0 is not between 1 and 65535".to_owned()));
}

/// VEC-29, PROBE-36, SCN-U31.
#[tokio::test]
async fn a_long_body_is_cut_and_passes() {
    for (length, kept) in [(10239, 10239), (10240, 10240), (10241, 10240), (5_000_000, 10240)] {
        let port = always(page(200, &"b".repeat(length))).await;
        let (outcome, output) = get(http_get(port, "/")).await;
        assert_eq!((outcome, output.len()), (Outcome::Success, kept), "{length}");
    }
}

/// PROBE-36: bytes that are not text are replaced, within the same limit.
#[tokio::test]
async fn a_body_of_bytes_is_shown_as_text() {
    let mut response = page(200, &" ".repeat(10240));
    let body = response.len() - 10240;
    response[body..].fill(0xff);
    let (outcome, output) = get(http_get(always(response).await, "/")).await;
    assert_eq!(outcome, Outcome::Success);
    assert!(output.chars().all(|c| c == char::REPLACEMENT_CHARACTER) && output.len() > 10_000, "{output:?}");
    assert!(output.len() <= 10240);
}

/// PROBE-36, DEF-23.
#[tokio::test]
async fn a_body_that_stalls_past_the_timeout_fails() {
    let port = stall_after("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").await;
    let shown = ask(Handler::HttpGet(http_get(port, "/")), HALFWAY).await;
    assert_eq!(shown, (Outcome::Failure, "timed out reading the body after 4 s".to_owned()));
}

/// PROBE-36: an incomplete body proves neither success nor failure.
#[tokio::test]
async fn an_incomplete_body_gives_no_result() {
    for head in [
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
        "HTTP/1.1 302 Found\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
    ] {
        let (outcome, output) = get(http_get(always(head).await, "/")).await;
        assert_eq!(outcome, Outcome::Error);
        assert!(output.starts_with("reading the body: "), "{output}");
    }
}

/// VEC-30, PROBE-34, SCN-U31.
#[tokio::test]
async fn no_answer_within_the_timeout_fails() {
    let port = stall_after("HTTP/1.1 200 OK\r\n").await;
    let done = ask_at(&prober(), Some("127.0.0.1"), Handler::HttpGet(http_get(port, "/slow")), SHORT).await;
    let expected = format!("GET http://127.0.0.1:{port}/slow: timed out after 200 ms");
    assert_eq!((done.report.outcome, done.report.output), (Outcome::Failure, expected));
    assert!(done.report.latency >= SHORT);
}

/// VEC-31, PROBE-34.
#[tokio::test]
async fn a_refused_connection_fails() {
    let port = closed_port().await;
    let expected = format!("GET http://127.0.0.1:{port}/: connection refused");
    assert_eq!(get(http_get(port, "/")).await, (Outcome::Failure, expected));
}

/// VEC-32, PROBE-34, SCN-U31.
#[tokio::test]
async fn an_invalid_response_fails() {
    for nonsense in [
        "",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n",
        "HTTP/1.1 -1 Oops\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno header at all\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: much\r\n\r\n",
        "SSH-2.0-OpenSSH_9.9\r\n",
        "\0\u{1}\u{2}",
    ] {
        let port = always(nonsense).await;
        let (outcome, output) = get(http_get(port, "/")).await;
        assert_eq!(outcome, Outcome::Failure, "{nonsense:?}: {output}");
        assert!(output.starts_with(&format!("GET http://127.0.0.1:{port}/: ")), "{output}");
    }
}

/// PROBE-34: informational responses are skipped.
#[tokio::test]
async fn an_answer_after_informational_ones_counts() {
    let port = always("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nok").await;
    assert_eq!(get(http_get(port, "/")).await, (Outcome::Success, "ok".to_owned()));
}

/// PROBE-33: HTTP/1.0 ends a body by closing the connection.
#[tokio::test]
async fn http_1_0_is_understood() {
    let port = always("HTTP/1.0 200 OK\r\n\r\nold but well").await;
    assert_eq!(get(http_get(port, "/")).await, (Outcome::Success, "old but well".to_owned()));
}

/// PROBE-33.
#[tokio::test]
async fn many_and_long_headers_are_taken() {
    let mut response = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n".to_owned();
    for number in 0..200 {
        response += &format!("X-Header-{number}: {}\r\n", "v".repeat(200));
    }
    assert_eq!(get(http_get(always(response + "\r\nok").await, "/")).await, (Outcome::Success, "ok".to_owned()));
}

/// PROBE-31, SCN-U31: the only server is on loopback; a proxy would get the request for it.
#[tokio::test]
async fn no_proxy_is_asked() {
    // Every request is in origin form; one to a proxy would carry the whole location.
    let (port, requests) = answer(|_| page(200, "")).await;
    get(http_get(port, "/direct")).await;
    assert_eq!(lines(&requests)[0], "GET /direct HTTP/1.1");
}

/// An HTTP/2 server that answers with the request's own head.
async fn h2c_echo() -> u16 {
    serve(|socket| async move {
        let echo = service_fn(|request: Request<Incoming>| async move {
            let uri = request.uri();
            let headers: BTreeMap<_, _> =
                request.headers().iter().map(|(name, value)| (name.as_str(), value)).collect();
            let text = format!("{:?} {} {uri} {headers:?}", request.version(), request.method());
            let status = if uri.path() == "/bad" { 503 } else { 200 };
            Ok::<_, Infallible>(Response::builder().status(status).body(Full::new(Bytes::from(text))).unwrap())
        });
        let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), echo).await;
    })
    .await
}

/// PROBE-33: HTTP/2 without TLS, with prior knowledge.
#[tokio::test]
async fn http_2_is_spoken_over_cleartext_where_the_probe_says_so() {
    let port = h2c_echo().await;
    let over_h2c = |path: &str, configured| HttpGet {
        protocol: HttpProtocol::Http2,
        headers: headers(configured),
        ..http_get(port, path)
    };
    let (outcome, output) = get(over_h2c("/x?y", &[("X-One", "1"), ("Connection", "close")])).await;
    assert_eq!(outcome, Outcome::Success);
    let expected = format!(
        "HTTP/2.0 GET http://127.0.0.1:{port}/x?y \
         {{\"accept\": \"*/*\", \"user-agent\": \"kube-probe/1.37\", \"x-one\": \"1\"}}"
    );
    assert_eq!(output, expected);
    let (_, output) = get(over_h2c("/", &[("Host", "web.example.org")])).await;
    assert!(output.starts_with("HTTP/2.0 GET http://web.example.org/ "), "{output}");
    let failed = (Outcome::Failure, "HTTP probe failed with statuscode: 503".to_owned());
    assert_eq!(get(over_h2c("/bad", &[])).await, failed);
}

/// PROBE-33: a server of the other protocol version fails the probe.
#[tokio::test]
async fn http_1_and_2_do_not_mix() {
    let old = always(page(400, "what?")).await;
    let handler = HttpGet { protocol: HttpProtocol::Http2, ..http_get(old, "/") };
    let (outcome, output) = get(handler).await;
    assert_eq!(outcome, Outcome::Failure, "{output}");
    let new = h2c_echo().await;
    let (outcome, output) = ask(Handler::HttpGet(http_get(new, "/")), LONG).await;
    assert_eq!(outcome, Outcome::Failure, "{output}");
}

/// PROBE-31: concurrent attempts of one prober do not affect each other.
#[tokio::test]
async fn many_attempts_run_side_by_side() {
    let port = always(page(200, "fine")).await;
    let prober = prober();
    let asked = (0..32).map(|_| ask_at(&prober, Some("127.0.0.1"), Handler::HttpGet(http_get(port, "/")), LONG));
    for done in futures::future::join_all(asked).await {
        assert_eq!((done.report.outcome, done.report.output.as_str()), (Outcome::Success, "fine"));
    }
}
