//! Redirects of http probes.

use keelet_lifecycle::operation::Outcome;
use keelet_pod::HttpGet;
use tokio::io::AsyncWriteExt;

use crate::{
    servers::{TlsServer, always, answer, drain, page, path, read_head, redirect},
    target::{get, headers, http_get},
};

const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

/// VEC-24, VEC-25, PROBE-35, SCN-U31.
#[tokio::test]
async fn a_redirect_on_the_same_host_counts_for_what_it_leads_to() {
    for status in REDIRECTS {
        let (port, requests) = answer(move |request| match path(request) {
            "/to-good" => redirect(status, "/good", "go there"),
            "/to-bad" => redirect(status, "bad", "go there"),
            "/good" => page(200, "good"),
            _ => page(500, "bad"),
        })
        .await;
        assert_eq!(get(http_get(port, "/to-good")).await, (Outcome::Success, "good".to_owned()), "{status}");
        let bad = (Outcome::Failure, "HTTP probe failed with statuscode: 500".to_owned());
        assert_eq!(get(http_get(port, "/to-bad")).await, bad, "{status}");
        assert_eq!(requests.lock().unwrap().len(), 4, "each request on a connection of its own");
    }
}

/// VEC-26, PROBE-35, SCN-U31.
#[tokio::test]
async fn a_redirect_to_another_port_of_the_same_host_is_followed() {
    for status in REDIRECTS {
        let other = always(page(200, "the other port")).await;
        let (port, _) = answer(move |_| redirect(status, &format!("http://127.0.0.1:{other}/"), "")).await;
        assert_eq!(get(http_get(port, "/")).await, (Outcome::Success, "the other port".to_owned()), "{status}");
    }
}

/// VEC-27, PROBE-35, SCN-U31.
#[tokio::test]
async fn a_redirect_to_another_host_is_not_followed_and_passes_with_a_warning() {
    for (location, shown) in [
        ("http://0.0.0.0/", "http://0.0.0.0/"),
        ("//localhost/x", "http://localhost/x"),
        ("https://login.example.org/?next=a", "https://login.example.org/?next=a"),
        ("mailto:root@example.org", "mailto:"),
    ] {
        let port = always(redirect(302, location, "moved")).await;
        let expected = format!("302 Found to {shown} was not followed, response body: moved");
        assert_eq!(get(http_get(port, "/")).await, (Outcome::Warning, expected));
    }
}

/// PROBE-35, SCN-U31: a warning's output has a bound too.
#[tokio::test]
async fn the_body_of_a_warning_is_cut() {
    let port = always(redirect(302, "http://0.0.0.0/", &"w".repeat(20_000))).await;
    let (outcome, output) = get(http_get(port, "/")).await;
    assert_eq!((outcome, output.len()), (Outcome::Warning, 10240));
}

/// VEC-28, PROBE-35, SCN-U31.
#[tokio::test]
async fn the_tenth_redirect_fails() {
    let chain = |length: usize| {
        answer(move |request| match path(request).trim_start_matches("/hop").parse::<usize>().unwrap() {
            hop if hop == length => page(200, "arrived"),
            hop => redirect(302, &format!("/hop{}", hop + 1), ""),
        })
    };
    let (nine, requests) = chain(9).await;
    assert_eq!(get(http_get(nine, "/hop0")).await, (Outcome::Success, "arrived".to_owned()));
    assert_eq!(requests.lock().unwrap().len(), 10);
    let (ten, requests) = chain(10).await;
    let stopped = (Outcome::Failure, "stopped after 10 redirects".to_owned());
    assert_eq!(get(http_get(ten, "/hop0")).await, stopped);
    assert_eq!(requests.lock().unwrap().len(), 10);
    let (endless, requests) = answer(|_| redirect(307, "/", "")).await;
    assert_eq!(get(http_get(endless, "/")).await, stopped);
    assert_eq!(requests.lock().unwrap().len(), 10);
}

/// PROBE-35, SCN-U31.
#[tokio::test]
async fn a_configured_host_survives_a_relative_redirect_only() {
    for (absolute, expected) in [(false, "web.example.org"), (true, "127.0.0.1")] {
        let (port, requests) = answer(move |request| match path(request) {
            "/landed" => page(200, "landed"),
            _ if absolute => {
                let port = request.split("X-Port: ").nth(1).and_then(|rest| rest.split("\r\n").next()).unwrap();
                redirect(302, &format!("http://127.0.0.1:{port}/landed"), "")
            }
            _ => redirect(302, "/landed", ""),
        })
        .await;
        let configured = headers(&[("Host", "web.example.org"), ("X-Port", &port.to_string())]);
        let shown = get(HttpGet { headers: configured, ..http_get(port, "/") }).await;
        assert_eq!(shown, (Outcome::Success, "landed".to_owned()));
        let expected = if absolute { format!("{expected}:{port}") } else { expected.to_owned() };
        let requests = requests.lock().unwrap();
        assert!(requests[0].contains("\r\nHost: web.example.org\r\n"), "{}", requests[0]);
        assert!(requests[1].contains(&format!("\r\nHost: {expected}\r\n")), "{}", requests[1]);
        assert!(requests[1].contains(&format!("\r\nX-Port: {port}\r\n")), "{}", requests[1]);
    }
}

/// PROBE-35.
#[tokio::test]
async fn a_redirect_with_an_invalid_location_fails() {
    for location in ["http://127.0.0.1:port/", "http://", "/%zz"] {
        let port = always(redirect(302, location, "")).await;
        let expected = format!("GET http://127.0.0.1:{port}/: invalid Location in the redirect");
        assert_eq!(get(http_get(port, "/")).await, (Outcome::Failure, expected), "{location}");
    }
}

/// PROBE-35: 300 and 304 are not redirects, and a redirect needs a Location.
#[tokio::test]
async fn only_redirects_redirect() {
    for response in [redirect(300, "/good", ""), redirect(304, "/good", ""), redirect(302, "", "")] {
        let (port, requests) = answer(move |_| response.clone()).await;
        let (outcome, output) = get(http_get(port, "/")).await;
        assert_eq!(outcome, Outcome::Warning);
        assert!(output.contains("has no location to follow"), "{output}");
        assert_eq!(requests.lock().unwrap().len(), 1);
    }
}

/// PROBE-35: the same for a redirect to another scheme.
#[tokio::test]
async fn a_redirect_to_https_of_the_same_host_is_followed() {
    let port = TlsServer { alpn: &[], versions: rustls::ALL_VERSIONS }
        .serve(|mut stream| async move {
            let request = read_head(&mut stream).await.unwrap_or_default();
            let _ = stream.write_all(&page(200, &format!("secure {}", path(&request)))).await;
            drain(&mut stream).await;
        })
        .await;
    let port = always(redirect(301, &format!("https://127.0.0.1:{port}/x"), "")).await;
    assert_eq!(get(http_get(port, "/")).await, (Outcome::Success, "secure /x".to_owned()));
}
