//! `httpGet`: one GET request, and the redirects it leads to.

mod request;
mod url;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header::LOCATION};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use keelet_lifecycle::operation::Outcome;
use keelet_pod::{HttpGet, HttpProtocol, Scheme};
use tokio::time::timeout;

use self::request::{BadRequest, Template};
use self::url::BadLocation;
pub(crate) use self::url::Url;
use crate::{
    capped::{Capped, Opening},
    door::{Connection, Dial},
    shortage, text,
    tls::{Purpose, Tls},
    wire::{Wire, converse},
};

/// How many requests one attempt may make: the first and nine redirects.
const MOST_REQUESTS: u32 = 10;

/// What a request needs besides its probe or hook.
#[derive(Clone, Copy)]
pub(crate) struct Client<'a> {
    pub(crate) dial: &'a dyn Dial,
    pub(crate) tls: &'a Tls,
    /// The UID of the pod on whose behalf the request is sent.
    pub(crate) pod: &'a str,
    /// The user agent, unless the manifest sets one.
    pub(crate) agent: &'static str,
}

/// A GET that got a response.
#[derive(Debug)]
pub(crate) struct Reply {
    status: StatusCode,
    /// The target of a redirect that was not followed.
    elsewhere: Option<String>,
    /// The beginning of the body, or why the body is incomplete.
    body: Result<Vec<u8>, NoBody>,
}

/// Why a body is incomplete.
#[derive(Debug, thiserror::Error)]
enum NoBody {
    #[error("timed out reading the body after {}", text::limit(*.0))]
    Stalled(Duration),
    #[error("reading the body: {0}")]
    Broken(String),
}

/// A GET that got no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unanswered {
    #[error("{0}")]
    NotSent(#[from] BadRequest),
    #[error("GET {url}: {why}")]
    Transport {
        url: Url,
        why: String,
        /// The client spoke TLS, and the server answered in plain HTTP.
        plain_http: bool,
    },
    /// The agent ran out of a resource (`shortage`).
    #[error("GET {url}: this node could not connect: {why}")]
    Exhausted { url: Url, why: String },
    #[error("stopped after {MOST_REQUESTS} redirects")]
    Redirects,
    #[error("GET {0}: invalid Location in the redirect")]
    Location(Url),
    #[error("GET {url}: timed out after {}", text::limit(*.within))]
    TimedOut { url: Url, within: Duration },
}

/// The progress of a GET, for the report of a timeout.
#[derive(Debug)]
struct Progress {
    url: Url,
    /// The status, once the head has arrived and only the body is missing.
    status: Option<StatusCode>,
}

/// The meaning of a response.
enum Received {
    Reply(Reply),
    Redirect { url: Url, absolute: bool },
    BadLocation,
}

// === impl Client ===

impl Client<'_> {
    /// Sends a GET within the time limit, and follows redirects on the same host.
    pub(crate) async fn get(
        self,
        get: &HttpGet,
        host: &str,
        port: u16,
        within: Option<Duration>,
    ) -> Result<Reply, Unanswered> {
        let url = Url::new(get.scheme, host, port, &get.path);
        self.get_url(url, Template::new(get, self.agent)?, get.protocol, within).await
    }

    /// The same without TLS and without credentials, for a target that does not speak TLS.
    pub(crate) async fn get_in_the_clear(
        self,
        get: &HttpGet,
        host: &str,
        port: u16,
        within: Option<Duration>,
    ) -> Result<Reply, Unanswered> {
        let url = Url::new(Scheme::Http, host, port, &get.path);
        self.get_url(url, Template::new(get, self.agent)?.without_credentials(), get.protocol, within).await
    }

    async fn get_url(
        self,
        url: Url,
        template: Template,
        protocol: HttpProtocol,
        within: Option<Duration>,
    ) -> Result<Reply, Unanswered> {
        let mut progress = Progress { url, status: None };
        let Some(within) = within else { return self.follow(template, protocol, &mut progress).await };
        match timeout(within, self.follow(template, protocol, &mut progress)).await {
            Ok(done) => done,
            Err(_) => match progress {
                // The response is incomplete. The caller decides what that means.
                Progress { status: Some(status), .. } => {
                    Ok(Reply { status, elsewhere: None, body: Err(NoBody::Stalled(within)) })
                }
                Progress { url, status: None } => Err(Unanswered::TimedOut { url, within }),
            },
        }
    }

    async fn follow(
        self,
        mut template: Template,
        protocol: HttpProtocol,
        progress: &mut Progress,
    ) -> Result<Reply, Unanswered> {
        let first_host = progress.url.host.clone();
        for _ in 0..MOST_REQUESTS {
            match self.ask(&template, protocol, &first_host, progress).await? {
                Received::Reply(reply) => return Ok(reply),
                Received::Redirect { url, absolute } => {
                    progress.url = url;
                    if absolute {
                        template.without_host();
                    }
                }
                Received::BadLocation => return Err(Unanswered::Location(progress.url.clone())),
            }
        }
        Err(Unanswered::Redirects)
    }

    /// Sends one request on a new connection.
    async fn ask(
        self,
        template: &Template,
        protocol: HttpProtocol,
        first_host: &str,
        progress: &mut Progress,
    ) -> Result<Received, Unanswered> {
        let url = progress.url.clone();
        let opening = Opening::default();
        let failed = |why: String| {
            if opening.failed_here() {
                return Unanswered::Exhausted { url: url.clone(), why };
            }
            let plain_http = url.scheme == Scheme::Https && opening.is_http1();
            let why = if plain_http { "the server answered in plain HTTP to an HTTPS client".to_owned() } else { why };
            Unanswered::Transport { url: url.clone(), why, plain_http }
        };
        let io = self.dial.connect(self.pod, &url.host, url.port).await.map_err(|error| {
            let why = text::io_error(&error);
            if shortage::is_ours(&error) { Unanswered::Exhausted { url: url.clone(), why } } else { failed(why) }
        })?;
        let io = Capped::new(io, opening.clone());
        let (io, wire): (Box<dyn Connection>, _) = match url.scheme {
            Scheme::Http if protocol == HttpProtocol::Http2 => (Box::new(io), Wire::Http2),
            Scheme::Http => (Box::new(io), Wire::Http1),
            Scheme::Https => {
                let handshake = self.tls.connect(Purpose::Http, &url.host, io).await;
                let io = handshake.map_err(|error| failed(format!("TLS handshake: {}", text::causes(&error))))?;
                let wire = if io.get_ref().1.alpn_protocol() == Some(b"h2") { Wire::Http2 } else { Wire::Http1 };
                (Box::new(io), wire)
            }
        };
        let request = template.request(&url, wire)?;
        let status = &mut progress.status;
        let received = converse(wire, io, request, |response| receive(response, &url, first_host, status)).await;
        match received.map_err(|error| failed(text::causes(&error)))? {
            Received::Reply(Reply { body: Err(NoBody::Broken(why)), .. }) if opening.failed_here() => Err(failed(why)),
            received => Ok(received),
        }
    }
}

// === impl Reply ===

impl Reply {
    /// The outcome of a probe by its response.
    pub(crate) fn judge(self) -> (Outcome, String) {
        let Self { status, elsewhere, body } = self;
        match (status.as_u16(), body) {
            (200..=399, Err(why @ NoBody::Stalled(_))) => (Outcome::Failure, why.to_string()),
            (200..=399, Err(why @ NoBody::Broken(_))) => (Outcome::Error, why.to_string()),
            (200..=299, Ok(body)) => (Outcome::Success, text::output(&body)),
            (300..=399, Ok(body)) => {
                let what = match elsewhere {
                    Some(url) => format!("{status} to {url} was not followed"),
                    None => format!("{status} has no location to follow"),
                };
                let mut output = format!("{what}, response body: {}", String::from_utf8_lossy(&body));
                text::shorten(&mut output, text::LONGEST_OUTPUT);
                (Outcome::Warning, output)
            }
            // The body is not shown here: it may contain what events must not.
            (status, _) => (Outcome::Failure, format!("HTTP probe failed with statuscode: {status}")),
        }
    }
}

/// Handles a response: a redirect on the same host is followed, any other response is read.
async fn receive(
    response: http::Response<Incoming>,
    from: &Url,
    first_host: &str,
    status: &mut Option<StatusCode>,
) -> Received {
    let (head, body) = response.into_parts();
    let elsewhere = match redirect(from, head.status, &head.headers) {
        Ok(Some((url, absolute))) if url.host.eq_ignore_ascii_case(first_host) => {
            return Received::Redirect { url, absolute };
        }
        Ok(other) => other.map(|(url, _)| url.to_string()),
        // A location without a host counts as another host.
        Err(BadLocation::Scheme(scheme)) => Some(format!("{scheme}:")),
        Err(BadLocation::Unreadable) => return Received::BadLocation,
    };
    *status = Some(head.status);
    Received::Reply(Reply { status: head.status, elsewhere, body: read(body).await })
}

/// The target of a redirect, and whether its location is absolute; `None` for a response that is not a redirect.
fn redirect(from: &Url, status: StatusCode, headers: &HeaderMap) -> Result<Option<(Url, bool)>, BadLocation> {
    match (status.as_u16(), headers.get(LOCATION)) {
        (301 | 302 | 303 | 307 | 308, Some(location)) if !location.is_empty() => {
            let location = std::str::from_utf8(location.as_bytes()).map_err(|_| BadLocation::Unreadable)?;
            from.follow(location).map(Some)
        }
        _ => Ok(None),
    }
}

/// The beginning of a body.
async fn read(mut body: Incoming) -> Result<Vec<u8>, NoBody> {
    let mut kept = Vec::new();
    while kept.len() < text::LONGEST_OUTPUT {
        match body.frame().await {
            None => break,
            Some(Ok(frame)) => {
                let data = frame.into_data().unwrap_or_else(|_| Bytes::new());
                kept.extend_from_slice(&data[..data.len().min(text::LONGEST_OUTPUT - kept.len())]);
            }
            Some(Err(error)) => return Err(NoBody::Broken(text::causes(&error))),
        }
    }
    Ok(kept)
}
