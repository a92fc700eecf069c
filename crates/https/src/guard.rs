//! What stands before the handlers: who asks, what is asked, and whether it is allowed.

use std::{
    any::Any,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    body::Body,
    http::{
        HeaderMap, HeaderValue, Request, Response, StatusCode,
        header::{AUTHORIZATION, CONNECTION, WWW_AUTHENTICATE},
    },
    response::IntoResponse,
};
use hyper::body::Incoming;
use keelet_serve::{KubeletApi, Patience, SessionHold};
use rustls::pki_types::CertificateDer;

use crate::{
    attributes::Demand,
    bounds::{Hold, Holdings, Sessions, Strangers, TooMuch},
    identity::User,
    reviews::Reviews,
    tls::Certificates,
    told::Seldom,
};

/// How long the client of a log or session may leave our bytes unread. This closes no idle session: the runtime's streaming server does, after the
/// same time.
const SESSION_PATIENCE: Duration = Duration::from_secs(4 * 60 * 60);

/// What a client is told while the API server gives no reviews. What the API server said is for the log: the client may be a stranger.
const UNREVIEWED: &str = "the API server does not say whether this request is allowed; retry later";

/// The API, and what stands before it.
#[derive(Debug)]
pub struct Guard {
    pub(crate) certificates: Certificates,
    reviews: Reviews,
    api: KubeletApi,
    pub(crate) strangers: Strangers,
    holdings: Arc<Holdings>,
    sessions: Arc<Sessions>,
    told: Seldom,
}

/// A connection, and what is known of its client.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: u64,
    /// The client's certificates, its own first; verified when the connection was made.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) patience: Patience,
    /// What its last user holds.
    pub(crate) hold: Mutex<Option<Arc<Hold>>>,
}

/// Why a request is not answered.
enum Refused {
    Unknown(&'static str),
    /// The API server does not say who asks.
    Unreviewed,
}

// === impl Guard ===

impl Guard {
    /// An API for clients that these certificates and reviews let in.
    pub fn new(certificates: Certificates, reviews: Reviews, api: KubeletApi) -> Self {
        let (strangers, holdings, sessions) = (Strangers::default(), Arc::default(), Arc::default());
        Self { certificates, reviews, api, strangers, holdings, sessions, told: Seldom::default() }
    }

    /// Answers a request, if its client is known and may make it.
    pub(crate) async fn answer(&self, peer: &Peer, mut request: Request<Incoming>) -> Response<Body> {
        let user = match self.user(peer, request.headers()).await {
            Ok(user) => user,
            Err(Refused::Unknown(why)) => {
                tracing::debug!(path = request.uri().path(), why, "refused request: client not authenticated");
                let mut answer = last(StatusCode::UNAUTHORIZED, "Unauthorized");
                answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                return answer;
            }
            Err(Refused::Unreviewed) => return last(StatusCode::SERVICE_UNAVAILABLE, UNREVIEWED),
        };
        let demand = match Demand::of(request.method(), request.uri().path()) {
            Ok(demand) => demand,
            Err(error) => return last(StatusCode::BAD_REQUEST, &error.to_string()),
        };
        match self.reviews.allows(&user, &demand).await {
            Ok(true) => {}
            Ok(false) => {
                let (user, verb, subresources) = (&user.username, demand.verb, demand.subresources.join(","));
                if self.told.is_new(user) {
                    tracing::info!(user, verb, subresources, "refused request: not allowed");
                }
                let message =
                    format!("Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{subresources}])");
                return last(StatusCode::FORBIDDEN, &message);
            }
            Err(_) => return last(StatusCode::SERVICE_UNAVAILABLE, UNREVIEWED),
        }
        // Not before: each pod of the cluster has a token, and could hold what is for those that may ask for something.
        let hold = match self.hold(peer, &user) {
            Ok(hold) => hold,
            Err(error) => return too_much(&error),
        };
        self.strangers.known(peer.id);
        peer.patience.set_usual();
        if let Some(pod) = demand.action.session_of() {
            let session = match self.sessions.begin(&pod.namespace, &pod.name) {
                Ok(session) => session,
                Err(error) => return too_much(&error),
            };
            peer.patience.set(SESSION_PATIENCE);
            request.extensions_mut().insert(SessionHold(Arc::new((hold, session)) as Arc<dyn Any + Send + Sync>));
        }
        self.api.answer(demand.action, request).await
    }

    /// The user that asks: by the certificate of the connection, else by a token. A certificate that is no longer valid is none.
    async fn user(&self, peer: &Peer, headers: &HeaderMap) -> Result<Arc<User>, Refused> {
        if !peer.chain.is_empty() && self.certificates.current().verifies(&peer.chain) {
            match User::of_certificate(&peer.chain[0]) {
                Ok(user) => return Ok(Arc::new(user)),
                Err(error) if self.told.is_new(&error.to_string()) => {
                    tracing::info!(%error, "refused client certificate")
                }
                Err(_) => {}
            }
        }
        let mut given = headers.get_all(AUTHORIZATION).into_iter();
        let (Some(value), None) = (given.next(), given.next()) else { return Err(Refused::Unknown("no credentials")) };
        let token = value.to_str().ok().and_then(|value| value.split_once(' '));
        let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
        let token = token.ok_or(Refused::Unknown("no bearer token"))?;
        match self.reviews.user(token).await {
            Ok(user) => user.ok_or(Refused::Unknown("the token stands for no user here")),
            Err(_) => Err(Refused::Unreviewed),
        }
    }

    /// What the connection counts for. A connection has one user at a time.
    fn hold(&self, peer: &Peer, user: &User) -> Result<Arc<Hold>, TooMuch> {
        let mut held = peer.hold.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hold) = held.as_ref().filter(|hold| hold.user() == user.username) {
            return Ok(Arc::clone(hold));
        }
        *held = None;
        Ok(Arc::clone(held.insert(Arc::new(self.holdings.hold(&user.username)?))))
    }
}

fn too_much(error: &TooMuch) -> Response<Body> {
    tracing::debug!(%error, "refused request: too much is open");
    last(StatusCode::TOO_MANY_REQUESTS, &error.to_string())
}

/// An answer after which the connection is closed.
fn last(status: StatusCode, message: &str) -> Response<Body> {
    let mut answer = (status, message.to_owned()).into_response();
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}
