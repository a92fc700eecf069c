//! Certificates: our own, and the authority of clients. Files are read again when they change, without a restart.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustls::{
    RootCertStore, ServerConfig, SupportedProtocolVersion,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::{NoServerSessionStorage, WebPkiClientVerifier, danger::ClientCertVerifier},
};
use tokio::time::Instant;

/// What a server is recognised by, and which clients it recognises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Our own certificate.
    pub serving: ServingCertificate,
    /// Certificates of the authority of clients; none if no client has a certificate.
    pub client_ca: Option<PathBuf>,
    /// The oldest version that is spoken.
    pub min_version: MinVersion,
}

/// Our own certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServingCertificate {
    /// From files.
    Files {
        /// The certificate, and those between it and its authority.
        certificate: PathBuf,
        /// Its private key.
        key: PathBuf,
    },
    /// Made at the start, for these names; clients cannot know it. The key is never on a disk.
    SelfSigned(Vec<String>),
}

/// The oldest version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinVersion {
    /// TLS 1.2.
    #[default]
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file has not what it should have.
    #[error("no {what} in {}: {why}", .path.display())]
    Content {
        /// What it should have.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Certificate and key cannot be used together.
    #[error("cannot use the certificate in {} with the key in {}: {error}", .certificate.display(), .key.display())]
    Pair {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
        /// Why.
        error: rustls::Error,
    },
    /// The authority of clients cannot be used.
    #[error("cannot use the certificate authority in {}: {why}", .path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// No certificate can be made.
    #[error("cannot make a self-signed certificate: {0}")]
    SelfSigned(String),
    /// The library refuses the settings.
    #[error("cannot configure TLS: {0}")]
    Config(#[from] rustls::Error),
}

/// The certificates as they are now.
#[derive(Debug)]
pub struct Certificates {
    settings: TlsSettings,
    /// A certificate of our own and its key, whose `Debug` does not show it.
    made: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    loaded: Arc<Loaded>,
    files: Vec<Option<FileState>>,
    looked: Instant,
    /// What was last logged.
    told: String,
}

/// What belongs together.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Arc<ServerConfig>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

/// What distinguishes a file from one that was written later.
type FileState = (u64, u64, i64, i64, u64);

/// How often files are looked at, while clients connect.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];

// === impl Certificates ===

impl Certificates {
    /// Reads the certificates.
    pub fn load(settings: TlsSettings) -> Result<Self, TlsError> {
        let made = match &settings.serving {
            ServingCertificate::Files { .. } => None,
            ServingCertificate::SelfSigned(names) => Some(self_signed(names)?),
        };
        let files = file_states(&settings);
        let loaded = Arc::new(load(&settings, made.as_ref())?);
        let state = State { loaded, files, looked: Instant::now(), told: String::new() };
        Ok(Self { settings, made, state: Mutex::new(state) })
    }

    /// The certificates of the newest files that can be used. Files that cannot change nothing.
    pub(crate) fn current(&self) -> Arc<Loaded> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if now.duration_since(state.looked) >= LOOK_AGAIN {
            state.looked = now;
            self.look(&mut state);
        }
        Arc::clone(&state.loaded)
    }

    fn look(&self, state: &mut State) {
        let files = file_states(&self.settings);
        if files == state.files {
            return;
        }
        match load(&self.settings, self.made.as_ref()) {
            Ok(loaded) => {
                tracing::info!("reloaded the certificates of the HTTPS server");
                *state = State { loaded: Arc::new(loaded), files, looked: state.looked, told: String::new() };
            }
            // A certificate and its key are two files: for a moment they may not belong together.
            Err(error) => {
                let text = error.to_string();
                if text != state.told {
                    tracing::warn!(%error, "cannot reload the certificates of the HTTPS server: the old ones stay in use");
                    state.told = text;
                }
            }
        }
    }
}

// === impl Loaded ===

impl Loaded {
    /// Whether a client's certificate is of the authority of now, and valid now. It was when the connection was made.
    pub(crate) fn verifies(&self, chain: &[CertificateDer<'_>]) -> bool {
        let (Some(verifier), Some((own, between))) = (&self.verifier, chain.split_first()) else { return false };
        verifier.verify_client_cert(own, between, UnixTime::now()).is_ok()
    }
}

fn load(
    settings: &TlsSettings,
    made: Option<&(CertificateDer<'static>, PrivateKeyDer<'static>)>,
) -> Result<Loaded, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = match settings.min_version {
        MinVersion::Tls12 => &VERSIONS[..],
        MinVersion::Tls13 => &VERSIONS[..1],
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions)?;
    let verifier = match &settings.client_ca {
        None => None,
        Some(path) => {
            let wrong = |why: String| TlsError::Authority { path: path.clone(), why };
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            // Clients without a certificate may have a token.
            Some(verifier.allow_unauthenticated().build().map_err(|error| wrong(error.to_string()))?)
        }
    };
    let builder = match &verifier {
        Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
        None => builder.with_no_client_auth(),
    };
    let mut config = match (&settings.serving, made) {
        (ServingCertificate::Files { certificate, key }, _) => {
            let private = private_key(key)?;
            let wrong = |error| TlsError::Pair { certificate: certificate.clone(), key: key.clone(), error };
            builder.with_single_cert(certificates(certificate)?, private).map_err(wrong)?
        }
        (ServingCertificate::SelfSigned(_), made) => {
            let (own, key) = made.ok_or_else(|| TlsError::SelfSigned("none was made".to_owned()))?;
            builder.with_single_cert(vec![own.clone()], key.clone_key())?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Every connection shows its certificate: none is remembered from a connection of before a change of the authority.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Loaded { config: Arc::new(config), verifier })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(path)?;
    let wrong = |why: String| TlsError::Content { what: "certificate", path: path.to_owned(), why };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() { Err(wrong("it is empty, or not in PEM format".to_owned())) } else { Ok(found) }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let bytes = read(path)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| TlsError::Content {
        what: "private key",
        path: path.to_owned(),
        why: error.to_string(),
    })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

fn file_states(settings: &TlsSettings) -> Vec<Option<FileState>> {
    let own = match &settings.serving {
        ServingCertificate::Files { certificate, key } => vec![certificate, key],
        ServingCertificate::SelfSigned(_) => Vec::new(),
    };
    let state = |path: &PathBuf| {
        let found = path.metadata().ok()?;
        Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
    };
    own.into_iter().chain(&settings.client_ca).map(state).collect()
}

fn self_signed(names: &[String]) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), TlsError> {
    let wrong = |error: rcgen::Error| TlsError::SelfSigned(error.to_string());
    let made = rcgen::generate_simple_self_signed(names).map_err(wrong)?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der());
    Ok((made.cert.der().clone(), key.map_err(|why| TlsError::SelfSigned(why.to_owned()))?))
}
