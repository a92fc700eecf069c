//! Archives of images: OCI layouts and `docker save`, from a stranger.
//!
//! An input that begins with `r` is an archive as it is, but for the checksums of its headers. All others have parts, each
//! with the name of a file in its first line; `@N@` stands for the digest of part N. Nothing is ever written outside of
//! the store, a refused archive leaves nothing in it, and an image that was taken can be removed without a trace.

#![no_main]

use keelet_fuzz::{archive, parts, store};
use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: store::prepare(),
    |input: &[u8]| {
        let bytes = match input.strip_prefix(b"r") {
            Some(raw) => archive::with_checksums(raw),
            None => assembled(input),
        };
        store::check_import(&bytes);
    }
);

/// An archive of the parts.
fn assembled(input: &[u8]) -> Vec<u8> {
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for part in parts::split(input, 12) {
        let (name, content) = parts::title(part);
        let (mut name, mut content) = (name, content.to_vec());
        for (number, (_, before)) in files.iter().enumerate() {
            let (sign, digest) = (format!("@{number}@"), archive::sha256(before));
            name = name.replace(&sign, &digest);
            content = replaced(&content, sign.as_bytes(), digest.as_bytes());
        }
        files.push((name, content));
    }
    archive::of_files(files.iter().map(|(name, content)| (name.as_str(), content.as_slice())))
}

fn replaced(content: &[u8], sign: &[u8], by: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(content.len());
    let mut rest = content;
    while let Some(at) = rest.windows(sign.len()).position(|window| window == sign) {
        result.extend_from_slice(&rest[..at]);
        result.extend_from_slice(by);
        rest = &rest[at + sign.len()..];
    }
    result.extend_from_slice(rest);
    result
}
