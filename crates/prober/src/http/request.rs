//! The request a probe or hook sends.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Uri, Version,
    header::{
        ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, TRAILER, TRANSFER_ENCODING, UPGRADE, USER_AGENT,
    },
    uri::{Authority, PathAndQuery, Scheme as UriScheme},
};
use http_body_util::Full;
use keelet_pod::HttpGet;

use super::url::Url;
use crate::wire::Wire;

/// What all requests of one attempt have in common.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    headers: HeaderMap,
    /// The configured `Host`. Not a header among others: a redirect may drop it.
    host: Option<HeaderValue>,
}

/// A request that cannot be sent as it is configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadRequest {
    #[error("the header {0:?} cannot be sent as it is configured")]
    Header(String),
    #[error("{0} is not a location that can be asked")]
    Location(String),
}

// === impl Template ===

impl Template {
    /// The configured headers, with defaults where they are silent.
    pub(crate) fn new(get: &HttpGet, agent: &'static str) -> Result<Self, BadRequest> {
        let mut headers = HeaderMap::with_capacity(get.headers.len() + 4);
        for (name, value) in &get.headers {
            let bad = || BadRequest::Header(name.clone());
            let value = HeaderValue::from_str(value.trim()).map_err(|_| bad())?;
            headers.append(HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?, value);
        }
        let host = headers.get(HOST).filter(|host| !host.is_empty()).cloned();
        // There is one host, and there is no body: what says otherwise would only confuse the server.
        for name in [HOST, CONTENT_LENGTH, TRANSFER_ENCODING, TRAILER] {
            headers.remove(name);
        }
        // An empty value is a way to send none. Other headers are sent empty.
        for (name, default) in [(USER_AGENT, agent), (ACCEPT, "*/*")] {
            match headers.get(&name) {
                None => drop(headers.insert(name, HeaderValue::from_static(default))),
                Some(value) if value.is_empty() => drop(headers.remove(name)),
                Some(_) => {}
            }
        }
        Ok(Self { headers, host })
    }

    /// The same for a target that did not speak TLS: what proves who we are is not sent in the clear.
    pub(crate) fn without_credentials(mut self) -> Self {
        self.headers.remove(AUTHORIZATION);
        self
    }

    /// The same after a redirect to another location in full: the configured host is not meant for that one.
    pub(crate) fn without_host(&mut self) {
        self.host = None;
    }

    /// The request for that location.
    pub(crate) fn request(&self, url: &Url, wire: Wire) -> Result<Request<Full<Bytes>>, BadRequest> {
        let bad_location = || BadRequest::Location(url.to_string());
        let target = PathAndQuery::from_maybe_shared(Bytes::from(url.target.clone())).map_err(|_| bad_location())?;
        let mut headers = self.headers.clone();
        let (uri, version) = match wire {
            Wire::Http1 => {
                let host = match &self.host {
                    Some(host) => host.clone(),
                    None => HeaderValue::from_str(&url.authority).map_err(|_| bad_location())?,
                };
                headers.insert(HOST, host);
                // One connection, one request; but who asks for an upgrade has to say so in this header.
                if !headers.contains_key(CONNECTION) {
                    headers.insert(CONNECTION, HeaderValue::from_static("close"));
                }
                (Uri::from(target), Version::HTTP_11)
            }
            Wire::Http2 => {
                headers.remove(CONNECTION);
                headers.remove(UPGRADE);
                let authority = match &self.host {
                    Some(host) => {
                        Authority::try_from(host.as_bytes()).map_err(|_| BadRequest::Header(HOST.to_string()))?
                    }
                    None => Authority::try_from(url.authority.as_str()).map_err(|_| bad_location())?,
                };
                let mut parts = http::uri::Parts::default();
                parts.scheme = UriScheme::try_from(url.scheme_name()).ok();
                parts.authority = Some(authority);
                parts.path_and_query = Some(target);
                (Uri::from_parts(parts).map_err(|_| bad_location())?, Version::HTTP_2)
            }
        };
        let mut request = Request::new(Full::default());
        *request.uri_mut() = uri;
        *request.version_mut() = version;
        *request.headers_mut() = headers;
        Ok(request)
    }
}
