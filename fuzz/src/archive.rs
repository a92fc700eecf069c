//! Archives around arbitrary bytes, with every checksum and digest right, so that what lies behind them is reached.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

const BLOCK: usize = 512;
const CHECKSUM: std::ops::Range<usize> = 148..156;
const SIZE: std::ops::Range<usize> = 124..136;

/// The SHA-256 in hexadecimal digits.
pub fn sha256(content: &[u8]) -> String {
    let mut hex = String::new();
    for byte in Sha256::digest(content) {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// Puts the right checksum into every header of a tar archive, as far as headers can be told from content.
pub fn with_checksums(archive: &[u8]) -> Vec<u8> {
    let mut archive = archive.to_vec();
    let mut at = 0;
    while let Some(header) = archive.get_mut(at..at + BLOCK) {
        if header.iter().all(|byte| *byte == 0) {
            break;
        }
        header[CHECKSUM].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let content = size(&header[SIZE]).next_multiple_of(BLOCK);
        at = at.saturating_add(BLOCK).saturating_add(content);
        if at.checked_add(BLOCK).is_none() {
            break;
        }
    }
    archive
}

/// A tar archive of files.
pub fn of_files<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        // A name that no archive can hold is left out.
        let _ = builder.append_data(&mut header, name, content);
    }
    builder.into_inner().unwrap_or_default()
}

/// The archive of an image for this machine with these layers, as `docker save` writes it.
pub fn of_image(layers: &[Vec<u8>]) -> Vec<u8> {
    let list = |texts: Vec<String>| texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(",");
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let ids = list(layers.iter().map(|layer| format!("sha256:{}", sha256(layer))).collect());
    let config =
        format!(r#"{{"architecture":"{architecture}","os":"linux","rootfs":{{"type":"layers","diff_ids":[{ids}]}}}}"#);
    let names: Vec<String> = (0..layers.len()).map(|index| format!("{index}/layer.tar")).collect();
    let table = format!(
        r#"[{{"Config":"config.json","RepoTags":["fuzz.example/image:1"],"Layers":[{}]}}]"#,
        list(names.clone())
    );
    let fixed = [("manifest.json", table.as_bytes()), ("config.json", config.as_bytes())];
    of_files(fixed.into_iter().chain(names.iter().map(String::as_str).zip(layers.iter().map(Vec::as_slice))))
}

fn size(field: &[u8]) -> usize {
    let text = String::from_utf8_lossy(field);
    let digits = text.split('\0').next().unwrap_or_default().trim();
    usize::from_str_radix(digits, 8).unwrap_or(0).min(usize::MAX / 4)
}
