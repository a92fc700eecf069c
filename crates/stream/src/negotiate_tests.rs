//! Tables of client offers and their agreements.

use super::*;
use crate::backend::{Exec, PortForward, Streams};

fn exec() -> Request {
    Request::Exec(Exec { container: "c".into(), cmd: vec!["true".into()], streams: Streams::default() })
}

fn port_forward() -> Request {
    Request::PortForward(PortForward { sandbox: "s".into(), ports: vec![80] })
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}

fn spdy_with(versions: &[&str]) -> HeaderMap {
    let mut headers = headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "SPDY/3.1")]);
    for version in versions {
        headers.append(STREAM_VERSION, version.parse().unwrap());
    }
    headers
}

fn websocket_with(protocols: Option<&str>) -> HeaderMap {
    let mut headers = headers(&[
        ("connection", "Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ]);
    if let Some(protocols) = protocols {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocols.parse().unwrap());
    }
    headers
}

#[test]
fn the_first_known_version_that_a_spdy_client_offers_is_chosen() {
    for (offered, version, answered) in [
        (&["v4.channel.k8s.io", "v3.channel.k8s.io"][..], Version::V4, Some("v4.channel.k8s.io")),
        (&["v9.channel.k8s.io", "v3.channel.k8s.io"], Version::V3, Some("v3.channel.k8s.io")),
        (&["v2.channel.k8s.io,channel.k8s.io"], Version::V2, Some("v2.channel.k8s.io")),
        (&["channel.k8s.io"], Version::V1, Some("channel.k8s.io")),
        (&[], Version::V1, None),
    ] {
        let agreed = negotiate(&Method::POST, &spdy_with(offered), &exec()).unwrap();
        assert_eq!((agreed.transport, agreed.version), (Transport::Spdy, version), "{offered:?}");
        let header = agreed.headers.get(STREAM_VERSION).map(|value| value.to_str().unwrap());
        assert_eq!(header, answered, "{offered:?}");
    }
}

#[test]
fn a_spdy_client_without_a_known_version_gets_the_accepted_ones() {
    let refused = negotiate(&Method::POST, &spdy_with(&["v9.channel.k8s.io"]), &exec()).unwrap_err();
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert_eq!(refused.headers.get_all(ACCEPTED_VERSIONS).iter().count(), 4);
    let refused = negotiate(&Method::POST, &spdy_with(&["v4.channel.k8s.io"]), &port_forward()).unwrap_err();
    assert!(refused.message.contains("portforward.k8s.io"), "{}", refused.message);
}

#[test]
fn the_first_known_protocol_that_a_websocket_client_offers_is_chosen() {
    let plain = |close_signal| Framing::Channels { close_signal };
    for (request, offered, framing, version) in [
        (exec(), Some("v5.channel.k8s.io, v4.channel.k8s.io"), plain(true), Version::V5),
        (exec(), Some("v4.channel.k8s.io,v5.channel.k8s.io"), plain(false), Version::V4),
        (exec(), Some("v4.base64.channel.k8s.io"), Framing::Base64Channels, Version::V4),
        (exec(), Some("base64.channel.k8s.io"), Framing::Base64Channels, Version::V1),
        (exec(), None, plain(false), Version::V1),
        (port_forward(), Some("SPDY/3.1+portforward.k8s.io"), Framing::Tunnel, Version::V1),
        (port_forward(), Some("v4.channel.k8s.io"), plain(false), Version::V4),
    ] {
        let agreed = negotiate(&Method::GET, &websocket_with(offered), &request).unwrap();
        assert_eq!((agreed.transport, agreed.version), (Transport::WebSocket(framing), version), "{offered:?}");
        assert_eq!(agreed.headers[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}

#[test]
fn requests_that_cannot_be_upgraded_are_refused_with_a_reason() {
    let without = |name: HeaderName| {
        let mut headers = websocket_with(None);
        headers.remove(name);
        headers
    };
    for (method, headers, status) in [
        (Method::PUT, websocket_with(None), StatusCode::METHOD_NOT_ALLOWED),
        (Method::GET, HeaderMap::new(), StatusCode::BAD_REQUEST),
        (Method::GET, headers(&[("connection", "upgrade"), ("upgrade", "h2c")]), StatusCode::BAD_REQUEST),
        (Method::GET, without(SEC_WEBSOCKET_KEY), StatusCode::BAD_REQUEST),
        (Method::GET, without(SEC_WEBSOCKET_VERSION), StatusCode::UPGRADE_REQUIRED),
        (Method::GET, websocket_with(Some("v5.channel.k8s.io.example")), StatusCode::FORBIDDEN),
    ] {
        let refused = negotiate(&method, &headers, &exec()).unwrap_err();
        assert_eq!(refused.status, status, "{}", refused.message);
        assert!(!refused.message.is_empty());
    }
}
