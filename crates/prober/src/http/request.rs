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
    /// The configured `Host`, apart from the headers because a redirect may drop it.
    host: Option<HeaderValue>,
}

/// A request that cannot be sent as it is configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadRequest {
    #[error("invalid header {0:?}: name or value cannot be sent")]
    Header(String),
    #[error("invalid URL {0}")]
    Location(String),
}

// === impl Template ===

impl Template {
    /// The configured headers, with defaults for missing ones.
    pub(crate) fn new(get: &HttpGet, agent: &'static str) -> Result<Self, BadRequest> {
        let mut headers = HeaderMap::with_capacity(get.headers.len() + 4);
        for (name, value) in &get.headers {
            let bad = || BadRequest::Header(name.clone());
            let value = HeaderValue::from_str(value.trim()).map_err(|_| bad())?;
            headers.append(HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?, value);
        }
        let host = headers.get(HOST).filter(|host| !host.is_empty()).cloned();
        // A request has one host and no body; headers that say otherwise would confuse the server.
        for name in [HOST, CONTENT_LENGTH, TRANSFER_ENCODING, TRAILER] {
            headers.remove(name);
        }
        // An empty value removes the default header. Other headers are sent empty.
        for (name, default) in [(USER_AGENT, agent), (ACCEPT, "*/*")] {
            match headers.get(&name) {
                None => drop(headers.insert(name, HeaderValue::from_static(default))),
                Some(value) if value.is_empty() => drop(headers.remove(name)),
                Some(_) => {}
            }
        }
        Ok(Self { headers, host })
    }

    /// The same for a target that does not speak TLS: credentials are not sent in cleartext.
    pub(crate) fn without_credentials(mut self) -> Self {
        self.headers.remove(AUTHORIZATION);
        self
    }

    /// The same after an absolute redirect: the configured host is not meant for the new location.
    pub(crate) fn without_host(&mut self) {
        self.host = None;
    }

    /// The request for a location.
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
                // The connection serves one request. A request for an upgrade must say so in this header.
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
