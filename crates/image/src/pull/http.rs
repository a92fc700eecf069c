//! HTTP requests to a registry: authentication, and a size limit for each kind of response.
//!
//! The clients of other crates keep every response in memory: an endless response of a registry, or of an attacker in
//! between, would fill it.

use std::sync::Arc;
use std::time::Duration;

use http_auth::parser::ChallengeParser;
use oci_spec::distribution::Reference;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, RANGE, WWW_AUTHENTICATE};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::PullOptions;
use super::answer::{Envelope, RequestError};
use super::credentials::Auth;
use super::guard::Guard;
use super::pulse::Pulse;

/// One repository on one host.
pub(super) struct Repository {
    client: Client,
    guard: Guard,
    pulse: Arc<Pulse>,
    scheme: &'static str,
    /// the reference as sent to this host
    pub(super) reference: Reference,
    auth: Auth,
    pass: Mutex<Pass>,
}

/// The authorisation to send.
#[derive(Clone, PartialEq)]
enum Pass {
    Unasked,
    Unneeded,
    Header(HeaderValue),
}

/// Credentials are sent only to the host that the user named. Another host to which the registry redirects may want a
/// token too, and gets an anonymous request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asker {
    Registry,
    Other,
}

/// How a registry asks for authentication.
#[derive(Debug, PartialEq, Eq)]
enum Challenge {
    Bearer { realm: String, service: Option<String> },
    Basic,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

/// Everything that may describe an image.
const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

/// Tokens are signed lists of rights; the largest in use have a few kilobytes.
const LARGEST_TOKEN: u64 = 1024 * 1024;
/// How much of an error response is read.
const LARGEST_REFUSAL: u64 = 64 * 1024;
/// How much of an error response is repeated if it is not an error of the protocol.
const LONGEST_MESSAGE: usize = 1024;
/// The time limit of a response that is kept in memory. The largest, 4 MiB, arrives within it over a line of 35 kB/s.
const WHOLE_ANSWER: Duration = Duration::from_secs(120);

type Asked<T> = Result<T, RequestError>;

/// A client for one registry or mirror, and for the hosts to which it redirects.
pub(super) fn client(options: &PullOptions, guard: &Guard) -> reqwest::Result<Client> {
    let certificates = options.extra_roots.iter().map(|pem| reqwest::Certificate::from_pem(pem));
    guard
        .apply(Client::builder())
        .tls_certs_merge(certificates.collect::<Result<Vec<_>, _>>()?)
        .connect_timeout(options.connect_timeout)
        .read_timeout(options.read_timeout)
        .user_agent(concat!("keelet/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Reads a response that has to fit into memory.
async fn whole(mut response: Response, most: u64, pulse: &Pulse) -> Asked<Vec<u8>> {
    let url = response.url().to_string();
    in_time(async {
        let mut content = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            pulse.beat();
            if content.len() as u64 + chunk.len() as u64 > most {
                return Err(RequestError::TooLarge { url: url.clone(), most });
            }
            content.extend_from_slice(&chunk);
        }
        Ok(content)
    })
    .await
}

/// The error response of a registry, as far as it is readable.
async fn refusal(mut response: Response) -> RequestError {
    let (status, url) = (response.status(), response.url().to_string());
    if status == StatusCode::UNAUTHORIZED {
        return RequestError::Unauthorised { url };
    }
    let body = words(&mut response).await;
    if status.is_client_error()
        && let Ok(envelope) = serde_json::from_slice::<Envelope>(&body)
    {
        return RequestError::Refused { envelope, url };
    }
    RequestError::Status { code: status.as_u16(), url, message: shortened(&body) }
}

/// The beginning of an error response; an incomplete one is shorter.
async fn words(response: &mut Response) -> Vec<u8> {
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            let room = LARGEST_REFUSAL.saturating_sub(body.len() as u64);
            body.extend(chunk.iter().take(usize::try_from(room).unwrap_or(usize::MAX)));
            if room <= chunk.len() as u64 {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(WHOLE_ANSWER, read).await;
    body
}

fn shortened(words: &[u8]) -> String {
    let text = String::from_utf8_lossy(words);
    text[..text.floor_char_boundary(LONGEST_MESSAGE)].to_owned()
}

async fn in_time<T>(asking: impl Future<Output = Asked<T>>) -> Asked<T> {
    let answer = tokio::time::timeout(WHOLE_ANSWER, asking).await;
    answer.unwrap_or(Err(RequestError::Timeout(WHOLE_ANSWER)))
}

/// The authentication that a response asks for. A token is preferred to a password.
fn challenge(headers: &HeaderMap) -> Option<Challenge> {
    let texts: Vec<&str> = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok()).collect();
    let all: Vec<_> = texts.iter().flat_map(|text| ChallengeParser::new(text)).filter_map(Result::ok).collect();
    let bearer = all.iter().filter(|one| one.scheme.eq_ignore_ascii_case("bearer")).find_map(|one| {
        let value = |name: &str| {
            let named = one.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
            named.map(|(_, value)| value.to_unescaped())
        };
        Some(Challenge::Bearer { realm: value("realm")?, service: value("service") })
    });
    bearer.or_else(|| (!texts.is_empty()).then_some(Challenge::Basic))
}

/// Whether a response comes from the requested host and not from one after a redirect.
fn is_of_same_host(asked: &str, answered: &Url) -> bool {
    Url::parse(asked).is_ok_and(|asked| asked.origin() == answered.origin())
}

/// A header value that is never printed.
fn secret(text: &str) -> Asked<HeaderValue> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| RequestError::Authentication("the token is not a valid header value".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

// === impl Repository ===

impl Repository {
    /// Hosts in `plain_http` are asked over plain HTTP.
    pub(super) fn new(client: Client, guard: Guard, options: &PullOptions, reference: Reference, auth: Auth) -> Self {
        let scheme = if options.plain_http.contains(reference.resolve_registry()) { "http" } else { "https" };
        let pulse = Arc::new(Pulse::new(options.progress_timeout));
        Self { client, guard, pulse, scheme, reference, auth, pass: Mutex::new(Pass::Unasked) }
    }

    /// Records that data arrived from this host.
    pub(super) fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }

    /// Requests something that has to fit into memory.
    pub(super) async fn get_whole(&self, what: &str, most: u64) -> Asked<Vec<u8>> {
        whole(self.get(what, 0).await?, most, &self.pulse).await
    }

    /// Requests something of the repository, or the rest of it from an offset. The caller has to limit how much of the
    /// response it reads.
    pub(super) async fn get(&self, what: &str, offset: u64) -> Asked<Response> {
        let response = in_time(self.let_in(what, offset)).await?;
        self.pulse.beat();
        if response.status().is_success() { Ok(response) } else { Err(refusal(response).await) }
    }

    async fn let_in(&self, what: &str, offset: u64) -> Asked<Response> {
        // Without authorisation the registry may still serve it, or refuse by itself.
        let (pass, why_none) = match self.pass().await {
            Ok(pass) => (pass, None),
            Err(error) => (Pass::Unneeded, Some(error)),
        };
        let ask = |pass: &Pass| {
            let mut request = self.client.get(self.url(what)).header(ACCEPT, ACCEPTED);
            if offset > 0 {
                request = request.header(RANGE, format!("bytes={offset}-"));
            }
            with(request, pass).send()
        };
        let response = ask(&pass).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        let asker = Asker::of(&self.url(what), &response);
        match (why_none, self.renewed(&pass, &response, asker).await?) {
            (Some(error), _) => Err(error),
            (None, Some(pass)) => Ok(ask(&pass).await?),
            (None, None) => Ok(response),
        }
    }

    fn url(&self, what: &str) -> String {
        let namespace = self.reference.namespace().map(|name| format!("?ns={name}")).unwrap_or_default();
        let (host, repository) = (self.reference.resolve_registry(), self.reference.repository());
        format!("{}://{host}/v2/{repository}/{what}{namespace}", self.scheme)
    }

    /// The authorisation, requested once. The base URL of the protocol tells how to authenticate.
    async fn pass(&self) -> Asked<Pass> {
        let mut pass = self.pass.lock().await;
        if *pass == Pass::Unasked {
            *pass = match &self.auth {
                Auth::Token(token) => Pass::Header(secret(&format!("Bearer {token}"))?),
                _ => {
                    let url = format!("{}://{}/v2/", self.scheme, self.reference.resolve_registry());
                    let response = self.client.get(&url).send().await?;
                    self.answer_to(challenge(response.headers()), Asker::of(&url, &response)).await?
                }
            };
        }
        Ok(pass.clone())
    }

    /// Renews an expired authorisation, as happens during long pulls.
    async fn renewed(&self, old: &Pass, refusal: &Response, asker: Asker) -> Asked<Option<Pass>> {
        let asked = challenge(refusal.headers()).filter(|asked| matches!(asked, Challenge::Bearer { .. }));
        if asked.is_none() || matches!(old, Pass::Unneeded) || matches!(self.auth, Auth::Token(_)) {
            return Ok(None);
        }
        let mut pass = self.pass.lock().await;
        // Concurrent requests that are refused at the same time need one renewal only.
        if *pass == *old {
            *pass = self.answer_to(asked, asker).await?;
        }
        Ok(Some(pass.clone()))
    }

    async fn answer_to(&self, asked: Option<Challenge>, asker: Asker) -> Asked<Pass> {
        match (asked, &self.auth) {
            (Some(Challenge::Bearer { realm, service }), _) => {
                let token = self.token(&realm, service.as_deref(), asker).await?;
                Ok(Pass::Header(secret(&format!("Bearer {token}"))?))
            }
            (Some(Challenge::Basic), Auth::Basic { username, password }) if asker == Asker::Registry => {
                use base64::Engine as _;
                let both = base64::engine::general_purpose::STANDARD.encode(format!("{username}:{password}"));
                Ok(Pass::Header(secret(&format!("Basic {both}"))?))
            }
            _ => Ok(Pass::Unneeded),
        }
    }

    async fn token(&self, realm: &str, service: Option<&str>, asker: Asker) -> Asked<String> {
        let refused =
            |reason: &dyn std::fmt::Display| RequestError::Authentication(format!("token realm {realm:?}: {reason}"));
        let url = Url::parse(realm).map_err(|error| refused(&error))?;
        self.guard.check(&url).map_err(|error| refused(&error))?;
        let scope = format!("repository:{}:pull", self.reference.repository());
        let service = service.map(|service| ("service", service));
        let mut request = self.client.get(url).query(&[("scope", scope.as_str())]).query(service.as_slice());
        if let (Auth::Basic { username, password }, Asker::Registry) = (&self.auth, asker) {
            if self.scheme == "https" && !realm.starts_with("https://") {
                let why = format!("refusing to send the password to {realm}, because the connection is not encrypted");
                return Err(RequestError::Authentication(why));
            }
            request = request.basic_auth(username, Some(password));
        }
        let mut response = request.send().await?;
        if response.status() != StatusCode::OK {
            return Err(RequestError::Authentication(shortened(&words(&mut response).await)));
        }
        let undecoded = |reason: String| RequestError::Token(reason);
        let token = whole(response, LARGEST_TOKEN, &self.pulse).await?;
        let token: Token = serde_json::from_slice(&token).map_err(|error| undecoded(error.to_string()))?;
        token.token.or(token.access_token).ok_or_else(|| undecoded("there is none".to_owned()))
    }
}

// === impl Asker ===

impl Asker {
    fn of(asked: &str, answer: &Response) -> Self {
        if is_of_same_host(asked, answer.url()) { Self::Registry } else { Self::Other }
    }
}

fn with(request: RequestBuilder, pass: &Pass) -> RequestBuilder {
    match pass {
        Pass::Header(value) => request.header(AUTHORIZATION, value.clone()),
        Pass::Unasked | Pass::Unneeded => request,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use futures::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A server with the same response for every request.
    async fn server(answer: impl Fn(SocketAddr) -> String) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = answer(address);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        address
    }

    /// Requests from a registry at this address, under a host name of its own.
    async fn ask(registry: SocketAddr) -> RequestError {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let host = format!("registry.test:{}", registry.port());
        let mut options = PullOptions::default();
        options.plain_http.insert(host.clone());
        let guard = Guard::new(&host);
        let client = guard.apply(Client::builder()).resolve("registry.test", registry).build().unwrap();
        let reference = Reference::try_from(format!("{host}/app:v1")).unwrap();
        let repository = Repository::new(client, guard, &options, reference, Auth::Anonymous);
        repository.get("manifests/v1", 0).await.expect_err("the registry serves nothing")
    }

    /// IMG-4: the realm of tokens, and redirects.
    #[tokio::test]
    async fn a_remote_registry_reaches_no_service_of_this_node() {
        let victim = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = victim.local_addr().unwrap().port();
        let realm = format!(
            "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer realm=\"http://127.0.0.1:{port}/token\"\r\n\
             content-length: 0\r\nconnection: close\r\n\r\n"
        );
        let redirect = format!(
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:{port}/secret\r\ncontent-length: 0\r\n\
             connection: close\r\n\r\n"
        );
        for (case, answer) in [("a realm", realm), ("a redirect", redirect)] {
            let asked = ask(server(|_| answer.clone()).await);
            let error = tokio::select! {
                error = asked => error,
                _ = victim.accept() => panic!("{case} reached a service of this node"),
            };
            let mut told = format!("{error:?}");
            told.retain(|letter| letter != '\\');
            assert!(told.contains("127.0.0.1") && told.contains("registry.test"), "{case}: {told}");
            assert!(victim.accept().now_or_never().is_none(), "{case} reached a service of this node");
        }
    }

    #[test]
    fn the_requested_host_is_identified_by_scheme_name_and_port() {
        let asked = "https://r.example/v2/app/blobs/x";
        for (answered, same) in [
            ("https://r.example:443/other", true),
            ("https://r.example:444/v2/", false),
            ("http://r.example/v2/", false),
            ("https://cdn.r.example/v2/", false),
        ] {
            assert_eq!(is_of_same_host(asked, &Url::parse(answered).unwrap()), same, "{answered}");
        }
    }

    #[test]
    fn a_token_is_preferred_to_a_password() {
        let asked = |texts: &[&'static str]| {
            let values = texts.iter().map(|text| (WWW_AUTHENTICATE, HeaderValue::from_static(text)));
            challenge(&values.collect())
        };
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer { realm: realm.to_owned(), service: service.map(str::to_owned) })
        };
        assert_eq!(asked(&[]), None);
        assert_eq!(asked(&[r#"Basic realm="x""#]), Some(Challenge::Basic));
        assert_eq!(asked(&[r#"Bearer realm="https://a/t",service="s""#]), bearer("https://a/t", Some("s")));
        assert_eq!(asked(&[r#"bearer Realm="https://a/t""#]), bearer("https://a/t", None));
        assert_eq!(asked(&[r#"Basic realm="x", Bearer realm="https://a/t""#]), bearer("https://a/t", None));
        assert_eq!(asked(&[r#"Basic realm="x""#, r#"Bearer realm="https://a/t""#]), bearer("https://a/t", None));
        assert_eq!(asked(&["Bearer service=s"]), Some(Challenge::Basic), "nowhere to ask");
    }
}
