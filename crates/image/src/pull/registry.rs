//! One host that may have an image: asking it, and saying clearly what went wrong.

use std::collections::BTreeSet;
use std::error::Error as StdError;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use oci_client::client::{BlobResponse, Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::manifest::OciDescriptor;
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};

use super::PullOptions;
use super::credentials::{Auth, docker_auth};
use crate::digest::Digest;
use crate::error::{Error, RegistryProblem};
use crate::manifest::{Descriptor, LARGEST_DOCUMENT};

/// A host and how to ask it.
pub(super) struct Endpoint {
    client: Client,
    /// the reference as this host is asked for it
    reference: Reference,
    auth: RegistryAuth,
}

/// A blob that begins to arrive.
pub(super) struct Blob {
    /// whether it begins where it was asked to, not at the start
    pub(super) continues: bool,
    pub(super) stream: BoxStream<'static, std::io::Result<bytes::Bytes>>,
}

/// Everything that may describe an image.
const ACCEPTED: [&str; 4] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];

/// The key of those mirrors that are asked for the images of every registry.
const EVERY_REGISTRY: &str = "*";

/// The hosts to ask for an image, in order: mirrors of its registry, mirrors of all, then the registry itself.
pub(super) fn endpoints(name: &Reference, auth: Option<&Auth>, options: &PullOptions) -> Result<Vec<Endpoint>, Error> {
    let client = client(options)?;
    let from_file = |host: &str| match &options.docker_config {
        Some(path) => docker_auth(path, host, name.repository()),
        None => Ok(Auth::Anonymous),
    };
    let mut endpoints = Vec::new();
    let mirrors = [name.registry(), EVERY_REGISTRY].into_iter().filter_map(|key| options.mirrors.get(key));
    for mirror in mirrors.flatten() {
        let mut reference = name.clone();
        reference.set_mirror_registry(mirror.clone());
        endpoints.push(Endpoint { client: client.clone(), reference, auth: from_file(mirror)?.into() });
    }
    let own = match auth {
        Some(auth) => auth.clone(),
        None => from_file(name.registry())?,
    };
    endpoints.push(Endpoint { client, reference: name.clone(), auth: own.into() });
    Ok(endpoints)
}

fn client(options: &PullOptions) -> Result<Client, Error> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        return Err(Error::NoTlsProvider);
    }
    let plain: BTreeSet<String> = options.plain_http.clone();
    let certificate = |pem: &Vec<u8>| Certificate { encoding: CertificateEncoding::Pem, data: pem.clone() };
    let config = ClientConfig {
        protocol: ClientProtocol::HttpsExcept(plain.into_iter().collect()),
        extra_root_certificates: options.extra_roots.iter().map(certificate).collect(),
        connect_timeout: Some(options.connect_timeout),
        read_timeout: Some(options.read_timeout),
        user_agent: concat!("keelet/", env!("CARGO_PKG_VERSION")),
        ..ClientConfig::default()
    };
    Client::try_from(config)
        .map_err(|error| Error::Image { what: "setting up TLS".to_owned(), reason: with_causes(&error) })
}

/// An error and everything behind it, since the first line often says only that something failed.
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

fn problem_of(error: &OciDistributionError) -> RegistryProblem {
    match error {
        OciDistributionError::AuthenticationFailure(_) | OciDistributionError::UnauthorizedError { .. } => {
            RegistryProblem::Unauthorised
        }
        OciDistributionError::RegistryError { envelope, .. } => {
            let first = envelope.errors.first().map(|error| &error.code);
            match first {
                Some(OciErrorCode::Unauthorized | OciErrorCode::Denied) => RegistryProblem::Unauthorised,
                Some(OciErrorCode::Toomanyrequests) => RegistryProblem::TooManyRequests,
                Some(
                    OciErrorCode::ManifestUnknown
                    | OciErrorCode::NameUnknown
                    | OciErrorCode::NotFound
                    | OciErrorCode::BlobUnknown
                    | OciErrorCode::ManifestBlobUnknown,
                ) => RegistryProblem::NotFound,
                _ => RegistryProblem::BadAnswer,
            }
        }
        OciDistributionError::ServerError { code, .. } => problem_of_status(*code),
        OciDistributionError::ImageManifestNotFoundError(_) => RegistryProblem::NotFound,
        OciDistributionError::RequestError(error) => match error.status() {
            Some(status) => problem_of_status(status.as_u16()),
            None => RegistryProblem::Unreachable,
        },
        OciDistributionError::IoError(_) => RegistryProblem::Unreachable,
        _ => RegistryProblem::BadAnswer,
    }
}

fn problem_of_status(code: u16) -> RegistryProblem {
    match code {
        401 | 403 => RegistryProblem::Unauthorised,
        404 => RegistryProblem::NotFound,
        429 => RegistryProblem::TooManyRequests,
        // Gateways say so when what is behind them does not answer.
        502..=504 => RegistryProblem::Unreachable,
        _ => RegistryProblem::BadAnswer,
    }
}

// === impl Endpoint ===

impl Endpoint {
    pub(super) fn host(&self) -> &str {
        self.reference.resolve_registry()
    }

    /// Host and reference, for messages.
    pub(super) fn describe(&self) -> String {
        format!("registry {}: {}", self.host(), self.reference)
    }

    fn failed(&self, problem: RegistryProblem, detail: String) -> Error {
        let reference = self.reference.to_string();
        Error::Registry { registry: self.host().to_owned(), reference, problem, detail }
    }

    pub(super) fn bad_answer(&self, detail: String) -> Error {
        self.failed(RegistryProblem::BadAnswer, detail)
    }

    /// A connection that ended in the middle of a blob.
    pub(super) fn broken(&self, digest: &Digest, done: u64, total: u64, error: &std::io::Error) -> Error {
        let detail = format!("blob {digest}: broke off after {done} of {total} bytes: {}", with_causes(error));
        self.failed(RegistryProblem::Unreachable, detail)
    }

    fn explain(&self, error: &OciDistributionError) -> Error {
        self.failed(problem_of(error), with_causes(error))
    }

    /// Fetches what the reference points to, or another manifest of the same repository by digest.
    pub(super) async fn fetch_manifest(&self, digest: Option<&Digest>) -> Result<(Digest, Vec<u8>), Error> {
        let reference = match digest {
            Some(digest) => self.reference.clone_with_digest(digest.to_string()),
            None => self.reference.clone(),
        };
        let (content, _) = self
            .client
            .pull_manifest_raw(&reference, &self.auth, &ACCEPTED)
            .await
            .map_err(|error| self.explain(&error))?;
        let found = Digest::of(&content);
        let wanted = reference.digest().map(Digest::parse).transpose();
        match wanted.map_err(|reason| self.bad_answer(reason))? {
            Some(wanted) if wanted != found => {
                Err(self.bad_answer(format!("manifest {wanted}: the content has the digest {found}")))
            }
            _ => Ok((found, content.to_vec())),
        }
    }

    /// Fetches a blob that has to fit into memory.
    pub(super) async fn fetch_document(&self, descriptor: &Descriptor) -> Result<Vec<u8>, Error> {
        let mut stream = self.open_blob(descriptor, 0).await?.stream;
        let mut content = Vec::new();
        while let Some(chunk) = stream.next().await {
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(_) if content.len() as u64 == descriptor.size => break,
                Err(error) => {
                    return Err(self.broken(&descriptor.digest, content.len() as u64, descriptor.size, &error));
                }
            };
            if content.len() as u64 + chunk.len() as u64 > LARGEST_DOCUMENT {
                let detail = format!("blob {}: larger than {LARGEST_DOCUMENT} bytes", descriptor.digest);
                return Err(self.bad_answer(detail));
            }
            content.extend_from_slice(&chunk);
        }
        let found = Digest::of(&content);
        if found != descriptor.digest {
            return Err(self.bad_answer(format!("blob {}: the content has the digest {found}", descriptor.digest)));
        }
        Ok(content)
    }

    /// Asks for a blob, or for the rest of it.
    pub(super) async fn open_blob(&self, descriptor: &Descriptor, offset: u64) -> Result<Blob, Error> {
        let explain = |error: OciDistributionError| self.explain(&error);
        self.client.store_auth_if_needed(self.host(), &self.auth).await;
        let layer = OciDescriptor { digest: descriptor.digest.to_string(), ..OciDescriptor::default() };
        if offset == 0 {
            let blob = self.client.pull_blob_stream(&self.reference, &layer).await.map_err(explain)?;
            return Ok(Blob { continues: false, stream: blob.stream });
        }
        let answer = self.client.pull_blob_stream_partial(&self.reference, &layer, offset, None).await;
        match answer.map_err(explain)? {
            BlobResponse::Full(blob) => Ok(Blob { continues: false, stream: blob.stream }),
            BlobResponse::Partial(blob) => Ok(Blob { continues: true, stream: blob.stream }),
        }
    }
}
