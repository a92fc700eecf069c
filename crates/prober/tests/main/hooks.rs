//! Hooks.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use keelet_pod::{Hook, HttpGet, PortRef, Scheme, TcpSocket};
use keelet_prober::{Connection, Dial, ExecError, Executed, HookDone, HookError, Prober, TcpDial};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::Instant,
};

use crate::{
    servers::{
        Requests, TlsServer, always, answer, blurt, closed_port, drain, page, read_head, redirect, serve, stall_after,
    },
    target::{FakeExec, HALFWAY, SHORT, headers, http_get, prober, prober_over, run_hook},
};

fn http(port: u16) -> Hook {
    Hook::HttpGet(http_get(port, "/hook"))
}

fn exec(words: &[&str]) -> Hook {
    Hook::Exec { command: words.iter().map(|word| (*word).to_owned()).collect() }
}

const DONE: Result<HookDone, HookError> = Ok(HookDone { http_fallback: None });

/// TERM-11.
#[tokio::test]
async fn any_answer_to_an_http_hook_is_a_success() {
    for status in [200, 204, 302, 404, 500] {
        assert_eq!(run_hook(&prober(), &http(always(page(status, "x")).await), None).await, DONE, "{status}");
    }
    let elsewhere = always(redirect(302, "http://0.0.0.0/", "")).await;
    assert_eq!(run_hook(&prober(), &http(elsewhere), None).await, DONE);
    let half = stall_after("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").await;
    assert_eq!(run_hook(&prober(), &http(half), Some(HALFWAY)).await, DONE);
}

/// TERM-11.
#[tokio::test]
async fn a_hook_has_its_own_user_agent() {
    let (port, requests) = answer(|_| page(200, "")).await;
    assert_eq!(run_hook(&prober(), &http(port), None).await, DONE);
    assert!(requests.lock().unwrap()[0].starts_with("GET /hook HTTP/1.1\r\nUser-Agent: kube-lifecycle/1.37\r\n"));
}

/// TERM-11.
#[tokio::test]
async fn an_http_hook_without_a_response_fails() {
    let port = closed_port().await;
    let refused = HookError::NoAnswer(format!("GET http://127.0.0.1:{port}/hook: connection refused"));
    assert_eq!(run_hook(&prober(), &http(port), None).await, Err(refused));
    let silent = stall_after("").await;
    assert_eq!(run_hook(&prober(), &http(silent), Some(SHORT)).await, Err(HookError::TimedOut(SHORT)));
    let unknown = Hook::HttpGet(HttpGet { port: PortRef::Name("admin".to_owned()), ..http_get(0, "/") });
    let error = run_hook(&prober(), &unknown, None).await.unwrap_err();
    assert_eq!(error.to_string(), "container \"main\" has no port named \"admin\"");
}

/// TERM-11: manifests that rely on an ignored scheme still work, and their credentials are not sent in cleartext.
#[tokio::test]
async fn an_https_hook_answered_in_plain_http_is_retried_in_plain_http() {
    let (port, requests) = answer_anything().await;
    let get = HttpGet {
        scheme: Scheme::Https,
        headers: headers(&[("Authorization", "Bearer secret"), ("X-Kept", "yes")]),
        ..http_get(port, "/hook")
    };
    let done = run_hook(&prober(), &Hook::HttpGet(get), None).await.unwrap();
    let expected = format!(
        "GET https://127.0.0.1:{port}/hook: the server answered in plain HTTP to an HTTPS client; \
         plain HTTP was tried and worked"
    );
    assert_eq!(done.http_fallback, Some(expected));
    let requests = requests.lock().unwrap();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].contains("\r\nX-Kept: yes\r\n") && !requests[0].contains("secret"), "{}", requests[0]);
}

/// TERM-11: both requests together have the hook's time limit, not each of them.
#[tokio::test(start_paused = true)]
async fn the_retry_in_plain_http_has_the_rest_of_the_time_limit() {
    /// Answers TLS in plain HTTP after three seconds, and plain HTTP never.
    #[derive(Debug)]
    struct Slow;
    impl Dial for Slow {
        fn connect<'a>(
            &'a self,
            _: &'a str,
            _: &'a str,
            _: u16,
        ) -> BoxFuture<'a, std::io::Result<Box<dyn Connection>>> {
            Box::pin(async {
                let (ours, mut theirs) = tokio::io::duplex(4096);
                tokio::spawn(async move {
                    let mut first = [0];
                    let _ = theirs.read_exact(&mut first).await;
                    if first != *b"G" {
                        tokio::time::sleep(Duration::from_secs(3)).await;
                        let _ = theirs.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await;
                    }
                    drain(&mut theirs).await;
                });
                Ok(Box::new(ours) as Box<dyn Connection>)
            })
        }
    }
    let prober = prober_over(Arc::new(Slow));
    let hook = Hook::HttpGet(HttpGet { scheme: Scheme::Https, ..http_get(443, "/hook") });
    let (begun, time) = (Instant::now(), Duration::from_secs(5));
    assert_eq!(run_hook(&prober, &hook, Some(time)).await, Err(HookError::TimedOut(time)));
    assert_eq!(begun.elapsed().as_secs(), 5, "a hook of 5 s took {:?}", begun.elapsed());
}

/// TERM-11.
#[tokio::test]
async fn an_https_hook_that_finds_no_http_either_fails() {
    let port = blurt("\u{15}no TLS, no HTTP").await;
    let hook = Hook::HttpGet(HttpGet { scheme: Scheme::Https, ..http_get(port, "/hook") });
    let error = run_hook(&prober(), &hook, Some(Duration::from_secs(30))).await.unwrap_err();
    assert!(error.to_string().contains("/hook: TLS handshake: "), "{error}");
}

/// TERM-11.
#[tokio::test]
async fn an_https_hook_needs_no_fallback_with_a_server_that_speaks_tls() {
    let server = TlsServer { alpn: &[], versions: rustls::ALL_VERSIONS };
    let port = server
        .serve(|mut stream| async move {
            let _ = read_head(&mut stream).await;
            let _ = stream.write_all(&page(500, "")).await;
        })
        .await;
    let hook = Hook::HttpGet(HttpGet { scheme: Scheme::Https, ..http_get(port, "/hook") });
    assert_eq!(run_hook(&prober(), &hook, None).await, DONE);
}

/// TERM-11, EVT-5: the output of a hook does not appear in events.
#[tokio::test]
async fn an_exec_hook_is_judged_by_its_exit_code_and_its_output_is_hidden() {
    let run = async |answer| {
        let exec_door = FakeExec::answering(answer);
        let prober = Prober::new(Arc::new(TcpDial::default()), exec_door.clone(), 1);
        let result = run_hook(&prober, &exec(&["drain", "$(PORT)"]), Some(Duration::from_secs(20))).await;
        let calls = exec_door.calls.lock().unwrap().clone();
        let words = vec!["drain".to_owned(), "$(PORT)".to_owned()];
        assert_eq!(calls, [("c0ffee".to_owned(), words, Duration::from_secs(20))], "run unchanged");
        result
    };
    let exited = |exit_code| Ok(Executed { exit_code, output: b"secret".to_vec() });
    assert_eq!(run(exited(0)).await, DONE);
    let failed = run(exited(7)).await.unwrap_err();
    assert_eq!((failed.to_string().as_str(), &failed), ("command exited with code 7", &HookError::Exited(7)));
    let time = Duration::from_secs(20);
    assert_eq!(run(Err(ExecError::TimedOut(time))).await, Err(HookError::TimedOut(time)));
    let words = "no such file".to_owned();
    assert_eq!(run(Err(ExecError::NotRun(words.clone()))).await, Err(HookError::NotRun(words.clone())));
    assert_eq!(run(Err(ExecError::RuntimeAway(words.clone()))).await, Err(HookError::RuntimeAway(words)));
}

/// TERM-11.
#[tokio::test]
async fn an_exec_hook_has_no_time_limit_of_its_own() {
    let door = FakeExec::answering(Ok(Executed { exit_code: 0, output: Vec::new() }));
    let prober = Prober::new(Arc::new(TcpDial::default()), door.clone(), 1);
    assert_eq!(run_hook(&prober, &exec(&["warm-up"]), None).await, DONE);
    let ten_years = Duration::from_secs(10 * 365 * 24 * 3600);
    assert!(door.calls.lock().unwrap()[0].2 > ten_years);
}

/// TERM-11, API-24.
#[tokio::test(start_paused = true)]
async fn a_sleep_hook_just_waits() {
    for (sleep, timeout, waited, result) in [
        (0, None, 0, DONE),
        (5, None, 5, DONE),
        (5, Some(30), 5, DONE),
        (5, Some(5), 5, DONE),
        (5, Some(2), 2, Err(HookError::TimedOut(Duration::from_secs(2)))),
    ] {
        let begun = Instant::now();
        let hook = Hook::Sleep(Duration::from_secs(sleep));
        assert_eq!(run_hook(&prober(), &hook, timeout.map(Duration::from_secs)).await, result);
        assert_eq!(begun.elapsed().as_millis() / 1000, waited);
    }
}

/// API-24.
#[tokio::test]
async fn a_tcp_hook_is_not_supported() {
    let hook = Hook::TcpSocket(TcpSocket { host: None, port: PortRef::Number(80) });
    assert_eq!(run_hook(&prober(), &hook, None).await, Err(HookError::TcpSocket));
}

/// A server of plain HTTP that responds even to invalid requests, as servers do.
async fn answer_anything() -> (u16, Requests) {
    let requests = Requests::default();
    let notes = Arc::clone(&requests);
    let port = serve(move |mut socket| {
        let notes = Arc::clone(&notes);
        async move {
            let mut first = [0];
            let _ = socket.read_exact(&mut first).await;
            if first == *b"G" {
                let rest = read_head(&mut socket).await.unwrap_or_default();
                notes.lock().unwrap().push(format!("G{rest}"));
                let _ = socket.write_all(&page(200, "")).await;
            } else {
                let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await;
            }
            let _ = socket.shutdown().await;
            drain(&mut socket).await;
        }
    })
    .await;
    (port, requests)
}
