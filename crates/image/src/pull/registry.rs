//! One host that may have an image: requests to it, and errors about it.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use oci_spec::distribution::Reference;
use reqwest::{Client, StatusCode};

use super::PullOptions;
use super::answer::{ErrorCode, RequestError};
use super::credentials::{Auth, docker_auth};
use super::guard::Guard;
use super::http::{self, Repository};
use super::pulse::Stalled;
use crate::digest::Digest;
use crate::error::{Error, RegistryProblem};
use crate::manifest::{Descriptor, LARGEST_DOCUMENT};

/// A host and how to connect to it.
pub(super) struct Endpoint {
    repository: Repository,
    pub(super) retry_pause: Duration,
}

/// A blob whose response has begun.
pub(super) struct Blob {
    /// whether it begins at the requested offset and not at the start
    pub(super) continues: bool,
    pub(super) stream: BoxStream<'static, std::io::Result<bytes::Bytes>>,
}

/// The key of the mirrors for every registry.
const EVERY_REGISTRY: &str = "*";

/// The hosts to try for an image, in order: mirrors of its registry, mirrors of all, then the registry itself.
pub(super) fn endpoints(name: &Reference, auth: Option<&Auth>, options: &PullOptions) -> Result<Vec<Endpoint>, Error> {
    let from_file = |host: &str| match &options.docker_config {
        Some(path) => docker_auth(path, host, name.repository()),
        None => Ok(Auth::Anonymous),
    };
    let endpoint = |reference: Reference, auth: Auth| {
        let guard = Guard::new(reference.resolve_registry());
        let repository = Repository::new(client(options, &guard)?, guard, options, reference, auth);
        Ok::<_, Error>(Endpoint { repository, retry_pause: options.retry_pause })
    };
    let mut endpoints = Vec::new();
    let mirrors = [name.registry(), EVERY_REGISTRY].into_iter().filter_map(|key| options.mirrors.get(key));
    for mirror in mirrors.flatten() {
        let mut reference = name.clone();
        reference.set_mirror_registry(mirror.clone());
        endpoints.push(endpoint(reference, from_file(mirror)?)?);
    }
    let own = match auth {
        Some(auth) => auth.clone(),
        None => from_file(name.registry())?,
    };
    endpoints.push(endpoint(name.clone(), own)?);
    Ok(endpoints)
}

fn client(options: &PullOptions, guard: &Guard) -> Result<Client, Error> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        return Err(Error::NoTlsProvider);
    }
    http::client(options, guard)
        .map_err(|error| Error::Image { what: "setting up TLS".to_owned(), reason: with_causes(&error) })
}

/// An error with all its causes, because the first line often says only that something failed.
fn with_causes(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let line = error.to_string();
        if !text.contains(&line) {
            text.push_str(": ");
            text.push_str(&line);
        }
        cause = error.source();
    }
    text
}

/// What the resolver said, if that is what went wrong. No type tells it apart.
fn unresolved(chain: &str) -> Option<&str> {
    let (_, dns) = chain.split_once("dns error")?;
    let said = dns.rsplit_once("failed to lookup address information: ").map(|(_, said)| said);
    Some(said.filter(|said| !said.is_empty()).unwrap_or("no DNS"))
}

fn problem_of(error: &RequestError) -> RegistryProblem {
    match error {
        RequestError::Authentication(_) | RequestError::Unauthorised { .. } => RegistryProblem::Unauthorised,
        RequestError::Refused { envelope, .. } => {
            let first = envelope.errors.first().map(|error| &error.code);
            match first {
                Some(ErrorCode::Unauthorized | ErrorCode::Denied) => RegistryProblem::Unauthorised,
                Some(ErrorCode::TooManyRequests) => RegistryProblem::TooManyRequests,
                Some(
                    ErrorCode::ManifestUnknown
                    | ErrorCode::NameUnknown
                    | ErrorCode::NotFound
                    | ErrorCode::BlobUnknown
                    | ErrorCode::ManifestBlobUnknown,
                ) => RegistryProblem::NotFound,
                _ => RegistryProblem::BadAnswer,
            }
        }
        RequestError::Status { code, .. } => problem_of_status(*code),
        RequestError::Transport(error) => match error.status() {
            Some(status) => problem_of_status(status.as_u16()),
            None if error.is_redirect() => RegistryProblem::BadAnswer,
            None => RegistryProblem::Unreachable,
        },
        RequestError::Timeout(_) => RegistryProblem::Unreachable,
        RequestError::Token(_) | RequestError::TooLarge { .. } => RegistryProblem::BadAnswer,
    }
}

fn problem_of_status(code: u16) -> RegistryProblem {
    match code {
        401 | 403 => RegistryProblem::Unauthorised,
        404 => RegistryProblem::NotFound,
        429 => RegistryProblem::TooManyRequests,
        // Gateways return these when the server behind them does not respond.
        502..=504 => RegistryProblem::Unreachable,
        _ => RegistryProblem::BadAnswer,
    }
}

// === impl Endpoint ===

impl Endpoint {
    pub(super) fn host(&self) -> &str {
        self.repository.reference.resolve_registry()
    }

    /// Host and reference, for messages.
    pub(super) fn describe(&self) -> String {
        format!("registry {}: {}", self.host(), self.repository.reference)
    }

    fn failed(&self, problem: RegistryProblem, detail: String) -> Error {
        let reference = self.repository.reference.to_string();
        Error::Registry { registry: self.host().to_owned(), reference, problem, detail }
    }

    pub(super) fn bad_answer(&self, detail: String) -> Error {
        self.failed(RegistryProblem::BadAnswer, detail)
    }

    /// A connection that ended in the middle of a blob.
    pub(super) fn broken(&self, digest: &Digest, done: u64, total: u64, error: &std::io::Error) -> Error {
        let detail = format!("blob {digest}: connection lost after {done} of {total} bytes: {}", with_causes(error));
        self.failed(RegistryProblem::Unreachable, detail)
    }

    fn explain(&self, error: &RequestError) -> Error {
        let chain = with_causes(error);
        let Some(why) = unresolved(&chain) else { return self.failed(problem_of(error), chain) };
        let detail = format!("cannot resolve {}: {why}", self.host());
        tracing::debug!(registry = self.host(), chain, "cannot resolve the name of a registry");
        self.failed(problem_of(error), detail)
    }

    /// Downloads what the reference points to, or another manifest of the same repository by digest.
    pub(super) async fn fetch_manifest(&self, digest: Option<&Digest>) -> Result<(Digest, Vec<u8>), Error> {
        let own = &self.repository.reference;
        let named = own.digest().map(Digest::parse).transpose().map_err(|error| self.bad_answer(error.to_string()))?;
        let wanted = digest.cloned().or(named);
        let name = wanted.as_ref().map_or_else(|| own.tag().unwrap_or("latest").to_owned(), ToString::to_string);
        let content = self.fetch_whole(&format!("manifests/{name}")).await?;
        let found = Digest::of(&content);
        match wanted {
            Some(wanted) if wanted != found => {
                Err(self.bad_answer(format!("manifest {wanted}: the content has the digest {found}")))
            }
            _ => Ok((found, content)),
        }
    }

    /// Downloads a blob that has to fit into memory.
    pub(super) async fn fetch_document(&self, descriptor: &Descriptor) -> Result<Vec<u8>, Error> {
        let content = self.fetch_whole(&format!("blobs/{}", descriptor.digest)).await?;
        let found = Digest::of(&content);
        if found != descriptor.digest {
            return Err(self.bad_answer(format!("blob {}: the content has the digest {found}", descriptor.digest)));
        }
        Ok(content)
    }

    async fn fetch_whole(&self, what: &str) -> Result<Vec<u8>, Error> {
        let content = self.watch(self.repository.get_whole(what, LARGEST_DOCUMENT)).await?;
        content.map_err(|error| self.explain(&error))
    }

    /// Requests a blob, or the rest of it.
    pub(super) async fn open_blob(&self, descriptor: &Descriptor, offset: u64) -> Result<Blob, Error> {
        let response = self.repository.get(&format!("blobs/{}", descriptor.digest), offset).await;
        let response = response.map_err(|error| self.explain(&error))?;
        let continues = offset > 0 && response.status() == StatusCode::PARTIAL_CONTENT;
        let pulse = Arc::clone(self.repository.pulse());
        let stream = response.bytes_stream().map_err(std::io::Error::other).inspect_ok(move |_| pulse.beat());
        Ok(Blob { continues, stream: stream.boxed() })
    }

    /// Waits for this host, and gives up when no data arrives any more.
    pub(super) async fn watch<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        self.repository.pulse().watch(work).await.map_err(|Stalled(patience)| {
            self.failed(RegistryProblem::Stalled, format!("no data received for {} s", patience.as_secs_f64()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::unresolved;

    #[test]
    fn a_name_that_does_not_resolve_is_recognised_in_the_chain_of_errors() {
        let chain = "error sending request for url (https://r.example/v2/): client error (Connect): dns error: failed to \
                     lookup address information: Name or service not known";
        assert_eq!(unresolved(chain), Some("Name or service not known"));
        assert_eq!(unresolved("client error (Connect): dns error"), Some("no DNS"));
        assert_eq!(unresolved("client error (Connect): tcp connect error: Connection refused (os error 111)"), None);
    }
}
