//! Prepared sessions that have not begun: each has a token, valid once and for a minute.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use thiserror::Error;
use tokio::time::Instant;

use crate::backend::{Attach, Backend, Exec, PortForward, Request, Streams};
use crate::server::{Config, answer, upgrade};

/// A client uses its URL at once. One minute is the value of other CRI servers.
const LIFETIME: Duration = Duration::from_secs(60);

/// Sixteen per second for a minute, far more than people and probes need.
const MAX_PENDING: usize = 1000;

/// Prepared sessions.
#[derive(Debug)]
pub struct Sessions {
    base_url: String,
    pending: Mutex<BTreeMap<String, Pending>>,
}

#[derive(Debug)]
struct Pending {
    request: Request,
    until: Instant,
}

/// Why a session cannot be prepared.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SessionError {
    /// The request is invalid.
    #[error("{field}: {why}")]
    Invalid {
        /// The field that is wrong.
        field: &'static str,
        /// The error in it.
        why: &'static str,
    },
    /// Too many sessions wait for their clients.
    #[error("too many pending sessions: {MAX_PENDING} wait for their clients; retry within a minute")]
    TooMany,
    /// The kernel returned no random bytes.
    #[error("cannot read random bytes for a token: {0}")]
    Random(String),
}

// === impl Sessions ===

impl Sessions {
    /// Sessions whose URLs begin with `base_url`, for example `http://127.0.0.1:10010`.
    pub fn new(base_url: impl Into<String>) -> Self {
        let mut base_url = base_url.into();
        base_url.truncate(base_url.trim_end_matches('/').len());
        Self { base_url, pending: Mutex::default() }
    }

    /// The URL for running a command.
    pub fn exec(&self, exec: Exec) -> Result<String, SessionError> {
        check(&exec.container, exec.streams)?;
        if exec.cmd.is_empty() {
            return Err(SessionError::Invalid { field: "cmd", why: "must not be empty" });
        }
        self.prepare("exec", Request::Exec(exec))
    }

    /// The URL for attaching to a container.
    pub fn attach(&self, attach: Attach) -> Result<String, SessionError> {
        check(&attach.container, attach.streams)?;
        self.prepare("attach", Request::Attach(attach))
    }

    /// The URL for reaching ports of a sandbox.
    pub fn port_forward(&self, forward: PortForward) -> Result<String, SessionError> {
        if forward.sandbox.is_empty() {
            return Err(SessionError::Invalid { field: "pod_sandbox_id", why: "must not be empty" });
        }
        self.prepare("portforward", Request::PortForward(forward))
    }

    /// Responds to a request for one of the URLs: with an upgrade, after which the session runs in its own task, or
    /// with an error. Has to be called within a tokio runtime.
    pub fn respond<B>(
        &self,
        request: http::Request<B>,
        backend: Arc<dyn Backend>,
        config: &Config,
    ) -> Response<Full<Bytes>> {
        let prefix = self.base_url.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..]));
        let path = request.uri().path();
        match path.strip_prefix(prefix.unwrap_or_default()).and_then(|path| self.take(path)) {
            Some(prepared) => upgrade(request, prepared, backend, config),
            None => answer(StatusCode::NOT_FOUND, "session not found: its token was already used or has expired"),
        }
    }

    fn prepare(&self, verb: &str, request: Request) -> Result<String, SessionError> {
        let now = Instant::now();
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.retain(|_, session| session.until > now);
        if pending.len() >= MAX_PENDING {
            return Err(SessionError::TooMany);
        }
        let path = format!("/{verb}/{}", token()?);
        let url = format!("{}{path}", self.base_url);
        pending.insert(path, Pending { request, until: now + LIFETIME });
        Ok(url)
    }

    fn take(&self, path: &str) -> Option<Request> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let session = pending.remove(path)?;
        (session.until > Instant::now()).then_some(session.request)
    }
}

fn check(container: &str, streams: Streams) -> Result<(), SessionError> {
    let invalid = |field, why| Err(SessionError::Invalid { field, why });
    match streams {
        _ if container.is_empty() => invalid("container_id", "must not be empty"),
        Streams { tty: true, stderr: true, .. } => invalid("stderr", "must be false with tty, which has one output"),
        Streams { stdin: false, stdout: false, stderr: false, .. } => {
            invalid("stdin, stdout, stderr", "one of them must be true")
        }
        _ => Ok(()),
    }
}

/// 128 random bits. A token allows running a command, so it must not be guessable within a minute.
fn token() -> Result<String, SessionError> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| SessionError::Random(error.to_string()))?;
    Ok(random.iter().fold(String::with_capacity(32), |mut token, byte| {
        let _ = write!(token, "{byte:02x}");
        token
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forward() -> PortForward {
        PortForward { sandbox: "s".into(), ports: Vec::new() }
    }

    fn path(url: &str) -> &str {
        url.strip_prefix("http://127.0.0.1:1").expect("the base URL")
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_valid_once() {
        let sessions = Sessions::new("http://127.0.0.1:1/");
        let url = sessions.port_forward(forward()).unwrap();
        assert_eq!(path(&url).len(), "/portforward/".len() + 32, "{url}");
        assert_eq!(sessions.take(path(&url)), Some(Request::PortForward(forward())));
        assert_eq!(sessions.take(path(&url)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_valid_for_a_minute_and_for_its_own_verb() {
        let sessions = Sessions::new("http://127.0.0.1:1");
        let url = sessions.port_forward(forward()).unwrap();
        assert_eq!(sessions.take(&path(&url).replace("portforward", "exec")), None);
        tokio::time::advance(LIFETIME).await;
        assert_eq!(sessions.take(path(&url)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_wait() {
        let sessions = Sessions::new("http://127.0.0.1:1");
        for _ in 0..MAX_PENDING {
            sessions.port_forward(forward()).unwrap();
        }
        assert_eq!(sessions.port_forward(forward()), Err(SessionError::TooMany));
        tokio::time::advance(LIFETIME).await;
        sessions.port_forward(forward()).unwrap();
    }

    #[test]
    fn invalid_requests_are_refused_by_field() {
        let sessions = Sessions::new("http://127.0.0.1:1");
        let exec = |container: &str, cmd: &[&str], stdout, stderr, tty| {
            let streams = Streams { stdin: false, stdout, stderr, tty };
            let cmd = cmd.iter().map(|&word| word.to_owned()).collect();
            match sessions.exec(Exec { container: container.into(), cmd, streams }) {
                Err(SessionError::Invalid { field, .. }) => field,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(exec("", &["true"], true, false, false), "container_id");
        assert_eq!(exec("c", &[], true, false, false), "cmd");
        assert_eq!(exec("c", &["true"], true, true, true), "stderr");
        assert_eq!(exec("c", &["true"], false, false, false), "stdin, stdout, stderr");
    }

    struct NoBackend;

    impl Backend for NoBackend {
        fn exec(&self, _: Exec, _: crate::Io) -> crate::BoxFuture<'_, Result<crate::ExitStatus, crate::Failure>> {
            unreachable!("nothing is upgraded")
        }

        fn attach(&self, _: Attach, _: crate::Io) -> crate::BoxFuture<'_, Result<(), crate::Failure>> {
            unreachable!("nothing is upgraded")
        }

        fn port_forward(
            &self,
            _: String,
            _: u16,
            _: Box<dyn crate::Duplex>,
        ) -> crate::BoxFuture<'_, Result<(), crate::Failure>> {
            unreachable!("nothing is upgraded")
        }
    }

    #[test]
    fn urls_may_be_below_a_path() {
        for base in ["http://127.0.0.1:1", "http://127.0.0.1:1/stream/"] {
            let sessions = Sessions::new(base);
            let status = |uri: &str| {
                let request = http::Request::builder().uri(uri).body(()).unwrap();
                sessions.respond(request, Arc::new(NoBackend), &Config::default()).status()
            };
            let url = sessions.port_forward(forward()).unwrap();
            assert_eq!(status(&url), StatusCode::BAD_REQUEST, "{url} exists, but the request is not an upgrade");
            assert_eq!(status(&url), StatusCode::NOT_FOUND, "{url} was used");
            assert_eq!(status("http://127.0.0.1:1/stream"), StatusCode::NOT_FOUND);
        }
    }
}
