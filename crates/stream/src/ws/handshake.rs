//! The two keys of a WebSocket handshake.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use crate::StreamError;

/// The constant that RFC 6455 has both sides hash, so that no server accepts by accident.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key`.
pub(crate) fn accept_key(key: &str) -> String {
    STANDARD.encode(Sha1::new().chain_update(key.trim()).chain_update(GUID).finalize())
}

/// A new `Sec-WebSocket-Key`.
pub(crate) fn new_key() -> Result<String, StreamError> {
    let mut key = [0; 16];
    getrandom::fill(&mut key).map_err(StreamError::Random)?;
    Ok(STANDARD.encode(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 6455, section 1.3.
    #[test]
    fn the_key_of_the_specification_is_accepted_with_its_answer() {
        assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
