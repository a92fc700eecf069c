//! `grpc`: one unary call of `grpc.health.v1.Health/Check`, made by hand.
//!
//! The protocol needs little: a POST over HTTP/2, a message of one string behind a prefix of five bytes, a response of
//! one integer behind another, and a status in the trailers. Every error is the target's failure, unless the agent
//! itself ran out of a resource.

use std::{borrow::Cow, time::Duration};

use bytes::{Buf, BufMut, Bytes};
use http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use keelet_pod::{GrpcProbe, Scheme};
use tokio::time::timeout;

use crate::{
    PROBE_AGENT,
    capped::{Capped, Opening},
    door::{Connection, Dial},
    http::Url,
    shortage, text,
    tls::{Purpose, Tls},
    wire::{Wire, converse},
};

const METHOD: &str = "/grpc.health.v1.Health/Check";
/// A health response has two bytes. Later versions may add fields.
const LARGEST_MESSAGE: usize = 4096;
/// How much of a server's error message is shown.
const LONGEST_WORDS: usize = 1024;

/// Why a service does not count as healthy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unhealthy {
    #[error("grpc: connecting to {0}: {1}")]
    Unreachable(String, String),
    /// The agent ran out of a resource (`shortage`).
    #[error("grpc: this node could not connect to {0}: {1}")]
    Exhausted(String, String),
    #[error("grpc: {0} timed out after {within}", within = text::limit(*.1))]
    TimedOut(String, Duration),
    #[error("grpc: {0}")]
    NoGrpc(String),
    #[error("grpc: the server does not implement the health service (grpc.health.v1.Health)")]
    Unimplemented,
    #[error("grpc: {}{}", status_name(*.code), with_colon(.message))]
    Refused { code: u32, message: String },
    #[error("grpc: service {service:?} is {}", health_name(*.health))]
    Health { service: String, health: u64 },
}

/// Why a response has no health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum BadResponse {
    #[error("the response has no message")]
    Empty,
    #[error("the response is truncated")]
    CutShort,
    #[error("the response is compressed, but the request does not accept compression")]
    Compressed,
    #[error("the response has more than one message")]
    SeveralMessages,
    #[error("the response is not a HealthCheckResponse")]
    NotHealth,
}

/// Checks the health of a service, within one time limit.
pub(crate) async fn check(
    dial: &dyn Dial,
    tls: &Tls,
    probe: &GrpcProbe,
    pod: &str,
    host: &str,
    within: Duration,
) -> Result<(), Unhealthy> {
    let scheme = if probe.tls { Scheme::Https } else { Scheme::Http };
    let url = Url::new(scheme, host, probe.port, METHOD);
    match timeout(within, call(dial, tls, probe, pod, &url, within)).await {
        Ok(done) => done,
        Err(_) => Err(Unhealthy::TimedOut(url.authority, within)),
    }
}

async fn call(
    dial: &dyn Dial,
    tls: &Tls,
    probe: &GrpcProbe,
    pod: &str,
    url: &Url,
    within: Duration,
) -> Result<(), Unhealthy> {
    let opening = Opening::default();
    let exhausted = |why| Unhealthy::Exhausted(url.authority.clone(), why);
    let unreachable = |why| Unhealthy::Unreachable(url.authority.clone(), why);
    let io = dial.connect(pod, &url.host, url.port).await.map_err(|error| {
        let why = text::io_error(&error);
        if shortage::is_ours(&error) { exhausted(why) } else { unreachable(why) }
    })?;
    let io = Capped::new(io, opening.clone());
    let talk = async {
        let io: Box<dyn Connection> = if probe.tls {
            let handshake = tls.connect(Purpose::Grpc, &url.host, io).await;
            Box::new(handshake.map_err(|error| unreachable(format!("TLS handshake: {}", text::causes(&error))))?)
        } else {
            Box::new(io)
        };
        let request = request(url, &probe.service, within).map_err(|error| unreachable(error.to_string()))?;
        converse(Wire::Http2, io, request, answer).await.map_err(|error| {
            let speaks_http1 = !probe.tls && opening.is_http1();
            let why = if speaks_http1 { "the server speaks HTTP/1, not gRPC".to_owned() } else { text::causes(&error) };
            Unhealthy::NoGrpc(why)
        })?
    };
    match talk.await {
        Ok(SERVING) => Ok(()),
        Ok(health) => Err(Unhealthy::Health { service: probe.service.clone(), health }),
        Err(error) if opening.failed_here() => Err(exhausted(error.to_string())),
        Err(error) => Err(error),
    }
}

fn request(url: &Url, service: &str, within: Duration) -> Result<Request<Full<Bytes>>, http::Error> {
    let uri =
        Uri::builder().scheme(url.scheme_name()).authority(url.authority.as_str()).path_and_query(METHOD).build()?;
    Request::builder()
        .method(Method::POST)
        .uri(uri)
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .header(header::USER_AGENT, PROBE_AGENT)
        .header("grpc-timeout", deadline(within))
        .body(Full::new(encode(service)))
}

/// A duration in the protocol's terms: at most eight digits and a unit.
fn deadline(within: Duration) -> String {
    match within.as_millis() {
        millis @ 0..=99_999_999 => format!("{millis}m"),
        _ => format!("{}S", within.as_secs().min(99_999_999)),
    }
}

/// The health in a response.
async fn answer(response: http::Response<Incoming>) -> Result<u64, Unhealthy> {
    let (head, mut body) = response.into_parts();
    let no_grpc = |why: String| Err(Unhealthy::NoGrpc(why));
    if head.status != StatusCode::OK {
        return no_grpc(format!("the server responded with HTTP {}", head.status.as_u16()));
    }
    let kind = head.headers.get(header::CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    if !kind.starts_with(b"application/grpc") {
        return no_grpc(format!("the server responded with content type {:?}", String::from_utf8_lossy(kind)));
    }
    // A call that fails at once has its status in the headers.
    if head.headers.contains_key("grpc-status") {
        status(&head.headers)?;
    }
    let mut message = Vec::new();
    loop {
        match body.frame().await {
            None => return no_grpc("the response ended without a status".to_owned()),
            Some(Err(error)) => return no_grpc(text::causes(&error)),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) if message.len() + data.len() > PREFIX + LARGEST_MESSAGE => {
                    return no_grpc(format!("the response is larger than {LARGEST_MESSAGE} bytes"));
                }
                Ok(data) => message.extend_from_slice(&data),
                Err(frame) => {
                    status(frame.trailers_ref().unwrap_or(&HeaderMap::new()))?;
                    return decode(&message).or_else(|why| no_grpc(why.to_string()));
                }
            },
        }
    }
}

/// Whether the call went well, by its trailers.
fn status(trailers: &HeaderMap) -> Result<(), Unhealthy> {
    const OK: u32 = 0;
    const UNKNOWN: u32 = 2;
    const UNIMPLEMENTED: u32 = 12;
    let Some(code) = trailers.get("grpc-status") else {
        return Err(Unhealthy::NoGrpc("the response ended without a status".to_owned()));
    };
    let code = code.to_str().ok().and_then(|code| code.parse().ok()).unwrap_or(UNKNOWN);
    match code {
        OK => Ok(()),
        UNIMPLEMENTED => Err(Unhealthy::Unimplemented),
        code => {
            let message =
                trailers.get("grpc-message").map_or(Cow::Borrowed(&b""[..]), |text| unescape(text.as_bytes()));
            let mut message = String::from_utf8_lossy(&message).into_owned();
            text::shorten(&mut message, LONGEST_WORDS);
            Err(Unhealthy::Refused { code, message })
        }
    }
}

// === The wire format ===

/// Whether the message is compressed, and its length.
const PREFIX: usize = 5;
/// Field 1 of both messages: the service in the request, the health in the response.
const FIELD: u64 = 1;
/// The one healthy state.
const SERVING: u64 = 1;

/// `HealthCheckRequest` behind its prefix.
fn encode(service: &str) -> Bytes {
    let mut message = Vec::with_capacity(service.len() + 6);
    if !service.is_empty() {
        put_varint(&mut message, FIELD << 3 | 2);
        put_varint(&mut message, service.len() as u64);
        message.extend_from_slice(service.as_bytes());
    }
    let mut framed = Vec::with_capacity(PREFIX + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.extend_from_slice(&message);
    framed.into()
}

/// The health in a `HealthCheckResponse` behind its prefix.
fn decode(mut framed: &[u8]) -> Result<u64, BadResponse> {
    if framed.is_empty() {
        return Err(BadResponse::Empty);
    }
    let compressed = framed.try_get_u8().map_err(|_| BadResponse::CutShort)?;
    let length = framed.try_get_u32().map_err(|_| BadResponse::CutShort)? as usize;
    if compressed != 0 {
        return Err(BadResponse::Compressed);
    }
    match framed.len() {
        have if have < length => return Err(BadResponse::CutShort),
        have if have > length => return Err(BadResponse::SeveralMessages),
        _ => {}
    }
    let mut health = 0;
    while framed.has_remaining() {
        let key = get_varint(&mut framed)?;
        match (key >> 3, key & 7) {
            (FIELD, 0) => health = get_varint(&mut framed)?,
            (_, 0) => drop(get_varint(&mut framed)?),
            (_, 1) => skip(&mut framed, 8)?,
            (_, 2) => {
                let length = get_varint(&mut framed)?;
                skip(&mut framed, length)?;
            }
            (_, 5) => skip(&mut framed, 4)?,
            _ => return Err(BadResponse::NotHealth),
        }
    }
    Ok(health)
}

fn put_varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

fn get_varint(from: &mut &[u8]) -> Result<u64, BadResponse> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = from.try_get_u8().map_err(|_| BadResponse::NotHealth)?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(BadResponse::NotHealth)
}

fn skip(from: &mut &[u8], bytes: u64) -> Result<(), BadResponse> {
    let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= from.len()).ok_or(BadResponse::NotHealth)?;
    from.advance(bytes);
    Ok(())
}

/// Decodes the percent escapes of a `grpc-message`. Invalid escapes stay.
fn unescape(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'%') {
        return Cow::Borrowed(text);
    }
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = match after {
            [high, low, ..] if byte == b'%' => digit(high).zip(digit(low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => {
                plain.push(high << 4 | low);
                rest = &after[2..];
            }
            None => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    Cow::Owned(plain)
}

// === Names ===

fn health_name(health: u64) -> Cow<'static, str> {
    match health {
        0 => "UNKNOWN".into(),
        SERVING => "SERVING".into(),
        2 => "NOT_SERVING".into(),
        3 => "SERVICE_UNKNOWN".into(),
        other => format!("in state {other}").into(),
    }
}

fn status_name(code: u32) -> Cow<'static, str> {
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    let known = usize::try_from(code).ok().and_then(|code| NAMES.get(code));
    known.map_or_else(|| format!("status {code}").into(), |name| (*name).into())
}

fn with_colon(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PROBE-38.
    #[test]
    fn a_request_names_the_service_or_nothing() {
        assert_eq!(encode("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(encode("liveness")[..], *b"\0\0\0\0\x0a\x0a\x08liveness");
        let long = encode(&"s".repeat(300));
        assert_eq!(long[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 0x02]);
        assert_eq!(long.len(), 5 + 303);
    }

    /// PROBE-38.
    #[test]
    fn a_health_is_found_among_other_fields() {
        assert_eq!(decode(b"\0\0\0\0\0"), Ok(0));
        assert_eq!(decode(b"\0\0\0\0\x02\x08\x01"), Ok(SERVING));
        assert_eq!(decode(b"\0\0\0\0\x14\x12\x02hi\x1d1234\x218bytes!!\x08\x02"), Ok(2));
        assert_eq!(decode(b"\0\0\0\0\x04\x10\x7f\x08\x03"), Ok(3));
    }

    /// PROBE-38.
    #[test]
    fn invalid_health_messages_are_recognised() {
        for (framed, why) in [
            (&b""[..], BadResponse::Empty),
            (b"\0\0", BadResponse::CutShort),
            (b"\0\0\0\0\x02\x08", BadResponse::CutShort),
            (b"\0\0\0\0\x02\x08\x01\0", BadResponse::SeveralMessages),
            (b"\x01\0\0\0\x02\x08\x01", BadResponse::Compressed),
            (b"\0\0\0\0\x01\x08", BadResponse::NotHealth),
            (b"\0\0\0\0\x01\x0b", BadResponse::NotHealth),
            (b"\0\0\0\0\x03\x12\x05h", BadResponse::NotHealth),
            (b"\0\0\0\0\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", BadResponse::NotHealth),
        ] {
            assert_eq!(decode(framed), Err(why), "{framed:?}");
        }
    }

    /// PROBE-38.
    #[test]
    fn a_deadline_has_at_most_eight_digits() {
        assert_eq!(deadline(Duration::from_millis(1500)), "1500m");
        assert_eq!(deadline(Duration::from_secs(i32::MAX as u64)), "99999999S");
        assert_eq!(deadline(Duration::from_secs(200_000)), "200000S");
    }

    /// PROBE-38.
    #[test]
    fn a_message_is_unescaped() {
        assert_eq!(*unescape(b"plain"), *b"plain");
        assert_eq!(*unescape(b"100%25 %C3%BC %zz %2"), *"100% ü %zz %2".as_bytes());
    }
}
