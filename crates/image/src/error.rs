//! What can go wrong with images, named by the step that failed.
//!
//! Every error carries what a person needs to act: the file, the entry, the reference or the registry. Callers that
//! have to tell cases apart (a pull that may be tried again, credentials that were refused) match on the variant and
//! on [`RegistryProblem`].

use std::io;
use std::path::PathBuf;

/// What the image store answers when it cannot do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something on the store's own files.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// what was tried, as a verb
        action: &'static str,
        /// on which file
        path: PathBuf,
        /// what the system said
        source: io::Error,
    },
    /// A file of the store is invalid; nothing was overwritten.
    #[error("{}: {reason}; the store was not changed", path.display())]
    Damaged {
        /// the file
        path: PathBuf,
        /// what is wrong with it
        reason: String,
    },
    /// The store was made by a version that writes another format.
    #[error("{}: store format {found}, this version reads format {known}", path.display())]
    Format {
        /// the store's index
        path: PathBuf,
        /// its format
        found: u32,
        /// the format this version knows
        known: u32,
    },
    /// An archive or layer has an entry that was refused. Nothing of it was kept.
    #[error("{archive}: entry {entry:?}: {fault}")]
    Entry {
        /// the archive or layer
        archive: String,
        /// the entry's name, or where it would begin
        entry: String,
        /// what is wrong with it
        fault: Fault,
    },
    /// An archive is not an image, or an image that contradicts itself.
    #[error("{what}: {reason}")]
    Image {
        /// which part of which image
        what: String,
        /// what is wrong
        reason: String,
    },
    /// Some content is not what its digest says.
    #[error("{what}: expected {expected}, found {found}")]
    Digest {
        /// the content
        what: String,
        /// the digest it should have
        expected: String,
        /// the digest it has
        found: String,
    },
    /// There is no image for this machine.
    #[error("{what}: no image for {wanted}; available: {found}")]
    NoPlatform {
        /// the archive or reference
        what: String,
        /// this machine's platform
        wanted: String,
        /// the platforms there are
        found: String,
    },
    /// The text is not an image reference.
    #[error("image reference {reference:?}: {reason}")]
    Reference {
        /// what was given
        reference: String,
        /// why it is invalid
        reason: String,
    },
    /// Several images have IDs with this prefix.
    #[error("image reference {reference:?}: ambiguous: {count} images have IDs that begin with it; give more digits")]
    Ambiguous {
        /// what was given
        reference: String,
        /// how many images match
        count: usize,
    },
    /// The image is not in the store.
    #[error("image {reference:?} is not in the store")]
    NotFound {
        /// what was asked for
        reference: String,
    },
    /// A request to a registry failed.
    #[error("registry {registry}: {reference}: {problem}: {detail}")]
    Registry {
        /// the host
        registry: String,
        /// the full reference
        reference: String,
        /// what kind of failure it is
        problem: RegistryProblem,
        /// what the registry or the network said
        detail: String,
    },
    /// Credentials are named in a file but cannot be used.
    #[error("{}: {reason}", path.display())]
    Credentials {
        /// the credentials file
        path: PathBuf,
        /// why they cannot be used
        reason: CredentialsFault,
    },
    /// The binary has not installed a TLS provider.
    #[error("no TLS provider is installed: call rustls::crypto::ring::default_provider().install_default() first")]
    NoTlsProvider,
    /// A name for a root or a mount is not allowed.
    #[error("key {key:?}: must be 1 to 128 of a-z, A-Z, 0-9, '.', '_' and '-', and begin with a letter or digit")]
    Key {
        /// what was given
        key: String,
    },
    /// A root or mount with this key exists and was made from another image.
    #[error("key {key:?}: in use by image {image}")]
    KeyInUse {
        /// the key
        key: String,
        /// the image it was made from
        image: String,
    },
    /// The kernel refused a mount.
    #[error("mount {what} at {}: {reason}", target.display())]
    Mount {
        /// what should have been mounted
        what: String,
        /// where
        target: PathBuf,
        /// what the kernel said
        reason: String,
    },
    /// A user or group that the image does not have.
    #[error("user {spec:?}: {reason}")]
    User {
        /// what was given
        spec: String,
        /// what is wrong with it
        reason: UserFault,
    },
    /// A background thread of the runtime ended without a result.
    #[error("{step} was abandoned")]
    Abandoned {
        /// the step
        step: &'static str,
    },
}

/// The kinds of failure of a registry that callers treat differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryProblem {
    /// credentials are missing, wrong or not enough
    #[error("unauthorised")]
    Unauthorised,
    /// no such repository, tag or blob
    #[error("not found")]
    NotFound,
    /// no connection, or it broke
    #[error("unreachable")]
    Unreachable,
    /// no data arrived for too long
    #[error("no progress")]
    Stalled,
    /// too many requests
    #[error("too many requests")]
    TooManyRequests,
    /// the response contradicts the protocol or the digest
    #[error("bad answer")]
    BadAnswer,
}

/// Why credentials cannot be used. No variant carries a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsFault {
    /// the file does not parse; the parser names lines, never content
    #[error("not a docker configuration: {0}")]
    Syntax(String),
    /// the credentials are with another program
    #[error(
        "{key}: credentials come from the helper docker-credential-{helper}, which is not supported; put them into \"auths\""
    )]
    Helper {
        /// the entry
        key: String,
        /// the helper's name
        helper: String,
    },
    /// an entry with an identity token
    #[error("{key}: an identity token is not supported; log in with a name and a password or an access token")]
    IdentityToken {
        /// the entry
        key: String,
    },
    /// an entry whose text is not a name and a password
    #[error("{}\"auth\" must be base64 of NAME:PASSWORD", key.as_ref().map(|key| format!("{key}: ")).unwrap_or_default())]
    Basic {
        /// the entry, where the text is from a file
        key: Option<String>,
    },
}

/// Why a user or group cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UserFault {
    /// a number that the kernel does not accept as a user
    #[error("{0} is not a valid user ID (0 to 4294967294)")]
    UserId(String),
    /// a name that the image does not have
    #[error("the image has no user {0:?} in /etc/passwd")]
    UserName(String),
    /// a number that the kernel does not accept as a group
    #[error("{0} is not a valid group ID (0 to 4294967294)")]
    GroupId(String),
    /// a name that the image does not have
    #[error("the image has no group {0:?} in /etc/group")]
    GroupName(String),
}

/// Why an entry of an archive was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// the names in an archive take too much memory
    #[error("names of more than {0} bytes")]
    Names(usize),
    /// the archive ends in the middle
    #[error("the archive ends in the middle of it")]
    Truncated,
    /// the header's checksum is wrong
    #[error("header checksum is {found}, the header says {expected}")]
    Checksum {
        /// computed
        found: u32,
        /// written
        expected: i64,
    },
    /// something follows the end of the archive
    #[error("there is data after the end of the archive")]
    TrailingData,
    /// an invalid number in the header
    #[error("invalid {field}: {value:?}")]
    Number {
        /// the field
        field: &'static str,
        /// its content
        value: String,
    },
    /// an extended header that cannot be read
    #[error("extended header: {0}")]
    Extended(&'static str),
    /// sparse file map that contradicts itself
    #[error("sparse file: {0}")]
    Sparse(&'static str),
    /// an unsupported entry type
    #[error("entry type {0:?} is not supported")]
    Type(char),
    /// a link or device with content
    #[error("a {kind} with {size} bytes of content")]
    Content {
        /// the kind of entry
        kind: &'static str,
        /// the content's size
        size: u64,
    },
    /// a name with `..` in it
    #[error("the name escapes the root")]
    Escapes,
    /// an invalid file name
    #[error("invalid file name")]
    Name,
    /// a directory above the entry cannot be used
    #[error("{parent:?} is not a directory")]
    Parent {
        /// the directory's name
        parent: String,
    },
    /// a hard link to a missing file, or to one outside
    #[error("hard link to {target:?}: {reason}")]
    HardLink {
        /// what it points to
        target: String,
        /// why it is refused
        reason: &'static str,
    },
    /// a whiteout without a name
    #[error("whiteout of {0:?}")]
    Whiteout(String),
    /// an extended attribute that controls overlayfs or the like
    #[error("extended attribute {0:?} is not allowed in an image")]
    Attribute(String),
    /// more than the limits allow
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// the operating system refused
    #[error("{step}: {source}")]
    Io {
        /// what was tried
        step: &'static str,
        /// what the system said
        source: io::Error,
    },
}

/// Which limit was exceeded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitExceeded {
    /// unpacked size
    #[error("more than {0} bytes unpacked, which is the limit")]
    Bytes(u64),
    /// number of entries
    #[error("more than {0} entries, which is the limit")]
    Entries(u64),
    /// what must stay free on the disk
    #[error("less than {0} bytes would stay free on the disk")]
    Reserve(u64),
    /// how many inodes must stay free on the disk
    #[error("less than {0} inodes would stay free on the disk")]
    Inodes(u64),
}

/// Adds the step and the file to an error of the system.
pub(crate) trait At<T> {
    fn at(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T, Error>;
}

/// Adds the step to an error of the system, where the entry is known further up.
pub(crate) trait Step<T> {
    fn step(self, step: &'static str) -> Result<T, Fault>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T, Error> {
        self.map_err(|error| Error::Io { action, path: path.into(), source: error.into() })
    }
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: &'static str) -> Result<T, Fault> {
        self.map_err(|error| Fault::from_io(step, error.into()))
    }
}

// === impl Fault ===

impl Fault {
    /// Finds the limit, or the end of the archive, behind an error that came through a chain of readers.
    pub(crate) fn from_io(step: &'static str, source: io::Error) -> Self {
        if let Some(limit) = source.get_ref().and_then(|inner| inner.downcast_ref::<LimitExceeded>()) {
            return Self::Limit(limit.clone());
        }
        if source.kind() == io::ErrorKind::UnexpectedEof {
            return Self::Truncated;
        }
        Self::Io { step, source }
    }

    pub(crate) fn in_entry(self, archive: &str, entry: &[u8]) -> Error {
        Error::Entry { archive: archive.to_owned(), entry: String::from_utf8_lossy(entry).into_owned(), fault: self }
    }
}

impl From<LimitExceeded> for io::Error {
    fn from(limit: LimitExceeded) -> Self {
        Self::other(limit)
    }
}
