//! A registry on the loopback interface whose behaviour the test chooses.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;

use crate::build::{Sample, sha256};

/// The authentication that the registry requires.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Door {
    Basic,
    Bearer,
}

/// A fault of a blob.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    /// another content
    Wrong,
    /// the connection ends in the middle, every time
    Broken,
    /// the connection ends in the middle, the first time
    BrokenOnce,
    /// shorter than in the manifest, but a complete response
    Short,
    /// longer than in the manifest
    Long,
    /// never ends
    Stuck,
    /// not there
    Missing,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) manifests: BTreeMap<String, Vec<u8>>,
    pub(crate) blobs: BTreeMap<String, Vec<u8>>,
    pub(crate) faults: BTreeMap<String, Fault>,
    pub(crate) door: Option<Door>,
    /// how many requests a token is valid for
    pub(crate) uses: Option<usize>,
    /// how many are left
    pub(crate) left: usize,
    pub(crate) status: Option<u16>,
    /// the response to paths with this text, which never ends
    pub(crate) endless: Option<(&'static str, u16)>,
    /// bytes of endless responses that were read
    pub(crate) taken: usize,
    /// paths of all requests
    pub(crate) log: Vec<String>,
    /// authorisation headers of all requests
    pub(crate) told: Vec<String>,
    /// the host to which blobs are redirected
    pub(crate) elsewhere: Option<String>,
    /// concurrent blob requests, and their maximum
    pub(crate) at_once: (usize, usize),
    pub(crate) slow: Duration,
    /// No layer is served before that many are requested at once.
    pub(crate) together: usize,
}

pub(crate) struct Registry {
    pub(crate) host: String,
    pub(crate) state: Arc<Mutex<State>>,
}

type Body = BoxBody<Bytes, std::io::Error>;

impl Registry {
    pub(crate) async fn start() -> Self {
        Self::start_with(None).await
    }

    /// A registry with a certificate of its own, in PEM.
    pub(crate) async fn start_tls() -> (Self, Vec<u8>) {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        (Self::start_with(Some(acceptor)).await, cert.pem().into_bytes())
    }

    async fn start_with(tls: Option<tokio_rustls::TlsAcceptor>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let state = Arc::new(Mutex::new(State::default()));
        let (served, own_host) = (state.clone(), host.clone());
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                let (state, host, tls) = (served.clone(), own_host.clone(), tls.clone());
                tokio::spawn(async move {
                    let service =
                        hyper::service::service_fn(move |request| answer(request, state.clone(), host.clone()));
                    let server = hyper::server::conn::http1::Builder::new();
                    let _ = match tls {
                        None => server.serve_connection(TokioIo::new(stream), service).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => server.serve_connection(TokioIo::new(stream), service).await,
                            Err(_) => return,
                        },
                    };
                });
            }
        });
        Self { host, state }
    }

    pub(crate) fn put(&self, repository: &str, tag: &str, sample: &Sample) {
        let mut state = self.state.lock().unwrap();
        let manifest = sample.manifest_json();
        state.manifests.insert(format!("{repository}:{tag}"), manifest.clone());
        state.manifests.insert(format!("{repository}:{}", sha256(&manifest)), manifest);
        state.blobs.extend(sample.all_blobs());
    }

    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap())
    }

    /// The number of blob requests.
    pub(crate) fn blob_requests(&self) -> usize {
        self.with(|state| state.log.iter().filter(|path| path.contains("/blobs/")).count())
    }
}

fn full(status: u16, content: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(content.into()).map_err(|never: Infallible| match never {}).boxed();
    Response::builder().status(StatusCode::from_u16(status).unwrap()).body(body).unwrap()
}

async fn answer(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
    host: String,
) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    let auth =
        request.headers().get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let (door, status) = {
        let mut state = state.lock().unwrap();
        state.log.push(path.clone());
        state.told.extend(Some(auth.clone()).filter(|auth| !auth.is_empty()));
        (state.door, state.status)
    };
    if let Some(status) = status {
        return Ok(full(status, "told to"));
    }
    if let Some((_, status)) = state.lock().unwrap().endless.filter(|(part, _)| path.contains(part)) {
        return Ok(endless(status, &state));
    }
    // NAME:PASSWORD in base64.
    let is_basic = auth == "Basic TkFNRTpQQVNTV09SRA==";
    if path == "/token" {
        let scope = request.uri().query().unwrap_or_default().contains("scope=repository%3A");
        if is_basic && scope {
            let mut state = state.lock().unwrap();
            state.left = state.uses.unwrap_or(usize::MAX);
            return Ok(full(200, r#"{"token":"granted"}"#));
        }
        return Ok(full(401, "no"));
    }
    let is_let_in = match door {
        None => true,
        Some(Door::Basic) => is_basic,
        Some(Door::Bearer) => {
            auth == "Bearer granted" && {
                let mut state = state.lock().unwrap();
                let left = state.left.checked_sub(1);
                state.left = left.unwrap_or(0);
                left.is_some()
            }
        }
    };
    if !is_let_in {
        let challenge = match door {
            Some(Door::Bearer) => format!(r#"Bearer realm="http://{host}/token",service="test""#),
            _ => r#"Basic realm="test""#.to_owned(),
        };
        let mut refusal = full(401, r#"{"errors":[{"code":"UNAUTHORIZED","message":"log in"}]}"#);
        refusal.headers_mut().insert("www-authenticate", challenge.parse().unwrap());
        return Ok(refusal);
    }
    if path == "/v2/" {
        return Ok(full(200, "{}"));
    }
    let rest = path.trim_start_matches("/v2/");
    if let Some((repository, reference)) = rest.split_once("/manifests/") {
        let found = state.lock().unwrap().manifests.get(&format!("{repository}:{reference}")).cloned();
        return Ok(match found {
            Some(manifest) => full(200, manifest),
            None => full(404, r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"no such manifest"}]}"#),
        });
    }
    if let Some((_, digest)) = rest.split_once("/blobs/") {
        if let Some(elsewhere) = &state.lock().unwrap().elsewhere {
            let mut answer = full(307, "");
            answer.headers_mut().insert("location", format!("http://{elsewhere}{path}").parse().unwrap());
            return Ok(answer);
        }
        let range = request.headers().get("range").and_then(|value| value.to_str().ok()).map(str::to_owned);
        return Ok(blob(&state, digest, range.as_deref()));
    }
    Ok(full(404, "no such thing"))
}

/// More than any limit, and still less than the machine's memory.
pub(crate) const ENDLESS: usize = 512 << 20;

fn endless(status: u16, state: &Arc<Mutex<State>>) -> Response<Body> {
    let part = Bytes::from(vec![b' '; PART]);
    let stream = futures::stream::unfold(state.clone(), move |state| {
        let part = part.clone();
        async move {
            state.lock().unwrap().taken += PART;
            let goes_on = state.lock().unwrap().taken < ENDLESS;
            goes_on.then_some((Ok(Frame::data(part)), state))
        }
    });
    Response::builder().status(status).body(BodyExt::boxed(StreamBody::new(stream))).unwrap()
}

/// What a response gives at a time.
const PART: usize = 64 * 1024;

fn blob(state: &Arc<Mutex<State>>, digest: &str, range: Option<&str>) -> Response<Body> {
    let (content, fault, slow, together) = {
        let mut state = state.lock().unwrap();
        let fault = state.faults.get(digest).copied();
        if fault == Some(Fault::BrokenOnce) {
            state.faults.remove(digest);
        }
        (state.blobs.get(digest).cloned(), fault, state.slow, state.together)
    };
    let Some(mut content) = content.filter(|_| fault != Some(Fault::Missing)) else {
        return full(404, r#"{"errors":[{"code":"BLOB_UNKNOWN","message":"no such blob"}]}"#);
    };
    match fault {
        Some(Fault::Wrong) => *content.last_mut().unwrap() ^= 1,
        Some(Fault::Short) => content.truncate(content.len() / 2),
        Some(Fault::Long) => content.extend_from_slice(b"more"),
        _ => {}
    }
    let offset: usize =
        range.and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()).unwrap_or(0);
    let content = Bytes::from(content).slice(offset..);
    let length = content.len();
    let cut = match fault {
        Some(Fault::Broken | Fault::BrokenOnce | Fault::Stuck) => length / 2,
        _ => length,
    };
    let state = state.clone();
    {
        let at_once = &mut state.lock().unwrap().at_once;
        at_once.0 += 1;
        at_once.1 = at_once.1.max(at_once.0);
    }
    // The configuration is small, and fetched alone.
    let together = if length < PART { 0 } else { together };
    let parts: Vec<Bytes> = content.slice(..cut).chunks(PART).map(Bytes::copy_from_slice).collect();
    let start = (parts.into_iter().peekable(), state, fault);
    let stream = futures::stream::unfold(start, move |(mut parts, state, fault)| async move {
        while state.lock().unwrap().at_once.1 < together {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(slow).await;
        let part = parts.next();
        if parts.peek().is_none() && part.is_some() {
            // The server does not ask again after the last byte.
            state.lock().unwrap().at_once.0 -= 1;
        }
        match (part, fault) {
            (Some(part), _) => Some((Ok(Frame::data(part)), (parts, state, fault))),
            (None, Some(Fault::Stuck)) => std::future::pending().await,
            (None, Some(Fault::Broken | Fault::BrokenOnce)) => {
                Some((Err(std::io::Error::other("cut")), (parts, state, None)))
            }
            (None, _) => None,
        }
    });
    let status = if offset > 0 { 206 } else { 200 };
    Response::builder()
        .status(status)
        .header("content-length", length)
        .body(BodyExt::boxed(StreamBody::new(stream)))
        .unwrap()
}
