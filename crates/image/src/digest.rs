//! Content addresses: parsing, computing and checking them.

use std::fmt;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::Error;

/// A SHA-256 content address, `sha256:` and 64 hexadecimal digits in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Digest(String);

/// A text that is not a digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadDigest {
    #[error("invalid digest {0:?}: must be sha256: and 64 digits 0-9a-f")]
    Malformed(String),
    #[error("unsupported digest {0:?}: must be sha256: and 64 digits 0-9a-f")]
    Algorithm(String),
}

/// Counts and hashes what is read through it.
pub(crate) struct HashingReader<R> {
    inner: R,
    hash: Sha256,
}

/// The identity of a layer on top of its parents: the first layer's own digest, later ones hashed together with all below.
pub(crate) fn chain_ids(diff_ids: &[Digest]) -> Vec<Digest> {
    let mut chain: Vec<Digest> = Vec::with_capacity(diff_ids.len());
    for diff in diff_ids {
        let next = match chain.last() {
            None => diff.clone(),
            Some(parent) => Digest::of(format!("{parent} {diff}").as_bytes()),
        };
        chain.push(next);
    }
    chain
}

// === impl Digest ===

impl Digest {
    const PREFIX: &'static str = "sha256:";

    pub(crate) fn of(content: &[u8]) -> Self {
        Self::from_hash(&Sha256::digest(content))
    }

    pub(crate) fn from_hash(hash: &[u8]) -> Self {
        use fmt::Write as _;
        let mut hex = String::with_capacity(64);
        for byte in hash {
            // Writing into a String cannot fail.
            let _ = write!(hex, "{byte:02x}");
        }
        Self(hex)
    }

    pub(crate) fn parse(text: &str) -> Result<Self, BadDigest> {
        match text.strip_prefix(Self::PREFIX) {
            Some(hex) if is_hex(hex) && hex.len() == 64 => Ok(Self(hex.to_owned())),
            Some(_) => Err(BadDigest::Malformed(text.to_owned())),
            None => Err(BadDigest::Algorithm(text.to_owned())),
        }
    }

    /// The digits alone, as used for file names.
    pub(crate) fn hex(&self) -> &str {
        &self.0
    }

    /// Compares what was found with what should be there.
    pub(crate) fn expect(&self, found: &Self, what: impl Into<String>) -> Result<(), Error> {
        if self == found {
            return Ok(());
        }
        Err(Error::Digest { what: what.into(), expected: self.to_string(), found: found.to_string() })
    }
}

pub(crate) fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::PREFIX, self.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = BadDigest;

    fn try_from(text: String) -> Result<Self, BadDigest> {
        Self::parse(&text)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

// === impl HashingReader ===

impl<R: Read> HashingReader<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, hash: Sha256::new() }
    }

    /// Reads what is left, so that the digest covers all of it.
    pub(crate) fn finish(mut self) -> io::Result<Digest> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(Digest::from_hash(&self.hash.finalize()))
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hash.update(&buffer[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_nothing_is_the_known_one() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(Digest::parse(empty), Ok(Digest::of(b"")));
    }

    #[test]
    fn only_whole_sha256_digests_in_lower_case_are_taken() {
        for wrong in [
            "",
            "sha256:",
            "sha256:E3B0",
            "sha512:00",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ] {
            assert!(Digest::parse(wrong).is_err(), "{wrong}");
        }
        let upper = format!("sha256:{}", "A".repeat(64));
        assert!(Digest::parse(&upper).is_err());
        let traversal = format!("sha256:{}", "../".repeat(21) + "a");
        assert!(Digest::parse(&traversal).is_err());
    }

    #[test]
    fn a_chain_begins_with_the_first_layer_and_depends_on_every_one_below() {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        let chain = chain_ids(&[a.clone(), b.clone()]);
        assert_eq!(chain[0], a);
        assert_eq!(chain[1], Digest::of(format!("{a} {b}").as_bytes()));
        assert_ne!(chain_ids(&[b.clone(), a])[1], chain[1]);
        assert!(chain_ids(&[]).is_empty());
    }
}
