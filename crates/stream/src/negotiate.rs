//! The agreement of client and server before the first stream: the transport and the version of the protocol. Pure.

use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use crate::backend::Request;
use crate::ws::{Framing, accept_key};

/// The version of SPDY that Kubernetes upgrades to.
pub(crate) const SPDY: &str = "SPDY/3.1";

/// The header in which SPDY clients offer versions, and in which the server names its choice.
pub(crate) const STREAM_VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// The header that lists what the server accepts.
const ACCEPTED_VERSIONS: HeaderName = HeaderName::from_static("x-accepted-stream-protocol-versions");

/// Port-forward over SPDY.
pub(crate) const PORT_FORWARD: &str = "portforward.k8s.io";

/// Port-forward over SPDY over WebSocket.
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";

/// Exec and attach over SPDY, the best first.
const COMMAND_VERSIONS: [(&str, Version); 4] = [
    ("v4.channel.k8s.io", Version::V4),
    ("v3.channel.k8s.io", Version::V3),
    ("v2.channel.k8s.io", Version::V2),
    ("channel.k8s.io", Version::V1),
];

/// Exec and attach over WebSocket.
const COMMAND_PROTOCOLS: [(&str, Framing, Version); 5] = [
    ("v5.channel.k8s.io", Framing::Channels { close_signal: true }, Version::V5),
    ("v4.channel.k8s.io", Framing::Channels { close_signal: false }, Version::V4),
    ("v4.base64.channel.k8s.io", Framing::Base64Channels, Version::V4),
    ("channel.k8s.io", Framing::Channels { close_signal: false }, Version::V1),
    ("base64.channel.k8s.io", Framing::Base64Channels, Version::V1),
];

/// Port-forward over WebSocket.
const FORWARD_PROTOCOLS: [(&str, Framing, Version); 3] = [
    (TUNNEL, Framing::Tunnel, Version::V1),
    ("v4.channel.k8s.io", Framing::Channels { close_signal: false }, Version::V4),
    ("v4.base64.channel.k8s.io", Framing::Base64Channels, Version::V4),
];

/// The protocol version of exec and attach. Resizing came with 3, exit codes with 4, closing stdin with 5 (over
/// WebSocket only; SPDY always could).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    V1,
    V2,
    V3,
    V4,
    V5,
}

/// The transport after the upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Spdy,
    WebSocket(Framing),
}

/// The agreement.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    pub(crate) transport: Transport,
    pub(crate) version: Version,
    /// Headers of the response.
    pub(crate) headers: HeaderMap,
}

/// Why there is no agreement; the client gets it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Disagreement {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    pub(crate) headers: HeaderMap,
}

/// Negotiates transport and version for `request`.
pub(crate) fn negotiate(
    method: &Method,
    headers: &HeaderMap,
    request: &Request,
) -> Result<Agreement, Box<Disagreement>> {
    if method != Method::GET && method != Method::POST {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, format!("{method} cannot stream, use GET or POST"));
    }
    let wants = |protocol: &str| list(headers, &UPGRADE).any(|token| token.eq_ignore_ascii_case(protocol));
    if !list(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade")) {
        return refuse(StatusCode::BAD_REQUEST, "unable to upgrade: the request has no Connection: Upgrade".to_owned());
    }
    if wants("websocket") {
        websocket(headers, request)
    } else if wants(SPDY) {
        spdy(headers, request)
    } else {
        refuse(StatusCode::BAD_REQUEST, format!("unable to upgrade: Upgrade has to be {SPDY} or websocket"))
    }
}

fn spdy(headers: &HeaderMap, request: &Request) -> Result<Agreement, Box<Disagreement>> {
    let known: &[(&str, Version)] = match request {
        Request::Exec(_) | Request::Attach(_) => &COMMAND_VERSIONS,
        Request::PortForward(_) => &[(PORT_FORWARD, Version::V1)],
    };
    let mut answer = upgrade_to(SPDY);
    let mut offered = list(headers, &STREAM_VERSION).peekable();
    // Clients older than the versions offer none, and get none.
    if offered.peek().is_none() {
        return Ok(Agreement { transport: Transport::Spdy, version: Version::V1, headers: answer });
    }
    let chosen = offered.find_map(|offer| known.iter().find(|(name, _)| *name == offer));
    if let Some((name, version)) = chosen {
        answer.insert(STREAM_VERSION, HeaderValue::from_static(name));
        return Ok(Agreement { transport: Transport::Spdy, version: *version, headers: answer });
    }
    let mut accepted = HeaderMap::new();
    for (name, _) in known {
        accepted.append(ACCEPTED_VERSIONS, HeaderValue::from_static(name));
    }
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let message = format!(
        "unable to upgrade: unable to negotiate protocol: the client offers {:?}, the server accepts {names:?}",
        list(headers, &STREAM_VERSION).collect::<Vec<_>>(),
    );
    Err(Box::new(Disagreement { status: StatusCode::FORBIDDEN, message, headers: accepted }))
}

fn websocket(headers: &HeaderMap, request: &Request) -> Result<Agreement, Box<Disagreement>> {
    let known: &[(&str, Framing, Version)] = match request {
        Request::Exec(_) | Request::Attach(_) => &COMMAND_PROTOCOLS,
        Request::PortForward(_) => &FORWARD_PROTOCOLS,
    };
    if !list(headers, &SEC_WEBSOCKET_VERSION).any(|version| version == "13") {
        let message = "Sec-WebSocket-Version has to be 13".to_owned();
        let version = HeaderMap::from_iter([(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"))]);
        return Err(Box::new(Disagreement { status: StatusCode::UPGRADE_REQUIRED, message, headers: version }));
    }
    let Some(key) = headers.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok()) else {
        return refuse(StatusCode::BAD_REQUEST, "the request has no Sec-WebSocket-Key".to_owned());
    };
    let mut answer = upgrade_to("websocket");
    if let Ok(accept) = HeaderValue::try_from(accept_key(key)) {
        answer.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    let mut offered = list(headers, &SEC_WEBSOCKET_PROTOCOL).peekable();
    if offered.peek().is_none() {
        let transport = Transport::WebSocket(Framing::Channels { close_signal: false });
        return Ok(Agreement { transport, version: Version::V1, headers: answer });
    }
    let chosen = offered.find_map(|offer| known.iter().find(|(name, ..)| *name == offer));
    let Some((name, framing, version)) = chosen else {
        let names: Vec<&str> = known.iter().map(|(name, ..)| *name).collect();
        let offered: Vec<&str> = list(headers, &SEC_WEBSOCKET_PROTOCOL).collect();
        let message = format!("unable to upgrade: the client offers {offered:?}, the server accepts {names:?}");
        return refuse(StatusCode::FORBIDDEN, message);
    };
    answer.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    Ok(Agreement { transport: Transport::WebSocket(*framing), version: *version, headers: answer })
}

fn upgrade_to(protocol: &'static str) -> HeaderMap {
    HeaderMap::from_iter([
        (CONNECTION, HeaderValue::from_static("Upgrade")),
        (UPGRADE, HeaderValue::from_static(protocol)),
    ])
}

fn refuse<T>(status: StatusCode, message: String) -> Result<T, Box<Disagreement>> {
    Err(Box::new(Disagreement { status, message, headers: HeaderMap::new() }))
}

/// The values of a header that may occur several times and may contain commas.
fn list<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> + use<'a> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

#[cfg(test)]
#[path = "negotiate_tests.rs"]
mod tests;
