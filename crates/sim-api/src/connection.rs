//! A client's connection: the tower service under `kube::Client`.
//!
//! A request belongs to the world from the moment it is sent: it is carried out, or lost, whatever becomes of the client
//! meanwhile. What the client gets to see depends on the faults, and on whether its process still runs.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use jiff::{SignedDuration, Timestamp};
use tokio::{sync::oneshot, time::sleep};
use tower::Service;

use crate::{
    access::Identity,
    api::Shared,
    faults::{Fate, Faults, Partition},
    follow::follow,
    process::{InFlight, Process},
    refusal::Refusal,
    request::{Path, Query, Verb},
    server::{Answer, Body, Call},
};

/// A connection of a client to the simulated server. It is cheap to clone.
#[derive(Clone)]
pub struct Connection {
    pub(crate) shared: Arc<Shared>,
    pub(crate) name: Arc<str>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) process: Process,
}

/// Why a client gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// Nothing listens.
    #[error("connection refused")]
    Refused,
    /// The connection broke; whether the request was carried out is unknown.
    #[error("connection reset by peer")]
    Reset,
    /// The body of the request could not be read.
    #[error("the body of the request could not be read")]
    Body,
}

/// The body of an answer.
pub type AnswerBody = UnsyncBoxBody<Bytes, ConnectionError>;

/// A request as it is sent.
struct Sent {
    method: String,
    path: String,
    query: Query,
    content_type: String,
    accept: String,
    body: Bytes,
    verb: Option<Verb>,
    /// `nodes`, `pods/status`.
    resource: String,
    namespace: String,
    name: String,
}

/// What comes back.
type Reply = Result<Response<AnswerBody>, ConnectionError>;

// === impl Connection ===

impl Connection {
    /// The client's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process that it belongs to.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The client's wall clock, which may differ from the server's.
    pub fn now(&self) -> Timestamp {
        let skew = self.shared.lock().client(&self.name).skew;
        let now = self.shared.clock.now();
        now.checked_add(skew).unwrap_or(now)
    }

    /// Sets by how much the client's wall clock is ahead of the server's.
    pub fn set_skew(&self, skew: SignedDuration) {
        self.shared.lock().client(&self.name).skew = skew;
    }

    /// Changes the client's faults. Requests that wait for a partition to end check again.
    pub fn faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.shared.lock().client(&self.name).faults);
        self.shared.changed.notify_waiters();
    }

    async fn send(self, sent: Sent) -> Reply {
        self.process.running().await;
        let number = if sent.verb.is_some_and(Verb::is_write) {
            match self.process.send_write() {
                Some(number) => Some(number),
                None => std::future::pending().await,
            }
        } else {
            None
        };
        let (reply, answer) = oneshot::channel();
        // A task of the world's own, so that the request goes on when the client stops waiting for it.
        drop(tokio::spawn(self.clone().deliver(sent, number, reply)));
        let answer = answer.await.unwrap_or(Err(ConnectionError::Reset));
        self.process.running().await;
        answer
    }

    /// Takes a request to the server and its answer back.
    async fn deliver(self, sent: Sent, number: Option<u64>, reply: oneshot::Sender<Reply>) {
        let subject = sent.subject();
        let (fate, there, back) = {
            let mut state = self.shared.lock();
            let client = state.client(&self.name);
            let way = (client.random.millis(LATENCY), client.random.millis(LATENCY));
            let (fate, there, back) = client.faults.fate(sent.verb, &subject, &mut client.random);
            (fate, way.0 + there + LATENCY, way.1 + back + LATENCY)
        };
        sleep(there).await;
        let fate = match self.shared.lock().client(&self.name).faults.partition {
            Partition::Open => fate,
            Partition::Refused => Fate::Refused,
            Partition::Silent => Fate::Hangs,
        };
        let fate = if self.process.is_dead() && !self.arrives() { Fate::Lost } else { fate };
        let answer = self.carry_out(&sent, fate);
        if let (Some(number), true) = (number, fate.is_applied()) {
            self.process.wrote(number);
        }
        match fate {
            Fate::Hangs | Fate::HangsApplied => self.shared.reachable_again(&self.name).await,
            _ => sleep(back).await,
        }
        // An answer is lost on the way back, too, if the client is cut off by then.
        let partition = self.shared.lock().client(&self.name).faults.partition;
        if partition == Partition::Silent {
            self.shared.reachable_again(&self.name).await;
            drop(reply.send(Err(ConnectionError::Reset)));
        } else {
            // Whether the client still waits is the client's affair.
            drop(reply.send(answer));
        }
    }

    /// Whether a request arrives whose process died meanwhile.
    fn arrives(&self) -> bool {
        match self.process.in_flight() {
            InFlight::Applied => true,
            InFlight::Lost => false,
            InFlight::ByChance => self.shared.lock().client(&self.name).random.chance(500),
        }
    }

    /// What the server makes of a request, and what the fate makes of that.
    fn carry_out(&self, sent: &Sent, fate: Fate) -> Reply {
        let at = self.shared.clock.elapsed();
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        let newest = state.server.store.revision();
        let (shown, breaks_promise) = match fate {
            Fate::Stale(age) => (state.server.store.revision_at(at.saturating_sub(age)), false),
            Fate::StaleAlways(age) => (state.server.store.revision_at(at.saturating_sub(age)), true),
            _ => (newest, false),
        };
        let call = Call {
            client: Arc::clone(&self.name),
            identity: &self.identity,
            method: &sent.method,
            path: &sent.path,
            query: sent.query.clone(),
            content_type: &sent.content_type,
            accept: &sent.accept,
            body: &sent.body,
            at,
            now: self.shared.clock.at(at),
            shown,
            breaks_promise,
        };
        let refuses_watch = sent.verb == Some(Verb::Watch) && {
            let client = state.client(&self.name);
            client.faults.refuses_watch(&mut client.random)
        };
        let entry = state.server.log.entries().len();
        let answer = fate.is_applied().then(|| {
            if refuses_watch {
                let refusal = Refusal::expired("too old resource version");
                return Answer { code: refusal.code, body: Body::Refusal(refusal) };
            }
            state.server.handle(&call)
        });
        let code = answer.as_ref().map(|answer| answer.code);
        state.server.note_request(entry, &call, sent.describe(&self.identity, code, fate));
        let wrote = state.server.store.revision() > newest;
        drop(guard);
        if wrote {
            self.shared.changed.notify_waiters();
        }
        match (fate, answer) {
            (Fate::Answered | Fate::Stale(_) | Fate::StaleAlways(_), Some(answer)) => Ok(self.response(answer)),
            (Fate::Refused, _) => Err(ConnectionError::Refused),
            (Fate::TooManyRequests(seconds), _) => Ok(self.response(refused(Refusal::too_many_requests(seconds)))),
            (Fate::Error(code) | Fate::ErrorApplied(code), _) => Ok(self.response(refused(match code {
                503 => Refusal::unavailable(),
                504 => Refusal::timeout(),
                _ => Refusal::internal("etcdserver: request timed out"),
            }))),
            (Fate::Page(code), _) => Ok(page(code)),
            _ => Err(ConnectionError::Reset),
        }
    }

    fn response(&self, answer: Answer) -> Response<AnswerBody> {
        let (kind, retry, body) = match answer.body {
            Body::Json(object) => (JSON, None, whole(object.to_string())),
            Body::Text(text) => ("text/plain; charset=utf-8", None, whole(text.to_owned())),
            Body::Refusal(refusal) => (JSON, refusal.retry_seconds(), whole(refusal.to_status().to_string())),
            Body::Watch(watch) => (JSON, None, follow(self.clone(), watch)),
        };
        let mut response = Response::builder().status(answer.code).header(header::CONTENT_TYPE, kind);
        if let Some(seconds) = retry {
            response = response.header(header::RETRY_AFTER, seconds);
        }
        response.body(body).unwrap_or_else(|_| Response::new(whole(String::new())))
    }
}

/// One way takes between one and two milliseconds where nothing makes it slower: enough for requests to overtake.
const LATENCY: Duration = Duration::from_millis(1);

const JSON: &str = "application/json";

fn refused(refusal: Refusal) -> Answer {
    Answer { code: refusal.code, body: Body::Refusal(refusal) }
}

fn whole(text: String) -> AnswerBody {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
}

/// What a proxy shows to people.
fn page(code: u16) -> Response<AnswerBody> {
    let text = format!("<html><head><title>{code}</title></head><body><h1>Something went wrong</h1></body></html>\n");
    let response = Response::builder().status(code).header(header::CONTENT_TYPE, "text/html").body(whole(text));
    response.unwrap_or_else(|_| Response::new(whole(String::new())))
}

impl<B> Service<Request<B>> for Connection
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Send,
{
    type Response = Response<AnswerBody>;
    type Error = ConnectionError;
    type Future = BoxFuture<'static, Reply>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let connection = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map_err(|_| ConnectionError::Body)?.to_bytes();
            connection.send(Sent::new(&head, body)).await
        })
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("name", &self.name).finish_non_exhaustive()
    }
}

// === impl Sent ===

impl Sent {
    fn new(head: &http::request::Parts, body: Bytes) -> Self {
        let header = |name: header::HeaderName| {
            head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("").to_owned()
        };
        let query = Query::parse(head.uri.query().unwrap_or(""));
        let target = match Path::parse(head.method.as_str(), head.uri.path(), &query) {
            Some(Path::Resource(target)) => Some(target),
            _ => None,
        };
        let mut sent = Self {
            method: head.method.as_str().to_owned(),
            path: head.uri.path().to_owned(),
            query,
            content_type: header(header::CONTENT_TYPE),
            accept: header(header::ACCEPT),
            body,
            verb: None,
            resource: head.uri.path().to_owned(),
            namespace: String::new(),
            name: String::new(),
        };
        if let Some(target) = target {
            sent.verb = Some(target.verb);
            sent.resource = target.resource;
            if !target.subresource.is_empty() {
                sent.resource = format!("{}/{}", sent.resource, target.subresource);
            }
            sent.namespace = target.namespace;
            sent.name = target.name;
        }
        sent
    }

    /// As tests name it when they seal a fate.
    fn subject(&self) -> String {
        let place = if self.namespace.is_empty() { String::new() } else { format!("{}/", self.namespace) };
        format!("{} {place}{}", self.resource, self.name)
    }

    fn describe(&self, identity: &Identity, code: Option<u16>, fate: Fate) -> crate::log::Request {
        crate::log::Request {
            user: identity.user.as_str().into(),
            verb: self.verb,
            resource: self.resource.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            code,
            fault: fate.to_string(),
        }
    }
}
