//! Manifests and indexes: the blobs of an image, and the image for this machine.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::digest::Digest;
use crate::error::Error;
use crate::overlay::MOST_LAYERS;
use crate::platform::Platform;

/// Registries refuse to store larger manifests. What is read of one takes up to ten times as much memory.
pub(crate) const LARGEST_DOCUMENT: u64 = 4 * 1024 * 1024;
/// An index may name another index. No builder nests deeper than two.
pub(crate) const DEEPEST_INDEX: usize = 4;

/// A blob by its address.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    #[serde(default)]
    pub(crate) size: u64,
    #[serde(default)]
    pub(crate) platform: Option<Platform>,
    #[serde(default)]
    pub(crate) annotations: Option<BTreeMap<String, String>>,
}

/// What a digest or tag points to.
#[derive(Debug)]
pub(crate) enum Document {
    Index(Vec<Descriptor>),
    Manifest(Manifest),
}

/// The blobs of one image.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    schema_version: u32,
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
}

/// Parses a manifest or index. Its fields decide which of them it is, not its media type.
pub(crate) fn parse(json: &[u8], what: &str) -> Result<Document, Error> {
    let wrong = |reason: String| Error::Image { what: what.to_owned(), reason };
    let raw: Raw = serde_json::from_slice(json).map_err(|error| wrong(format!("not a manifest: {error}")))?;
    if raw.schema_version != 2 {
        return Err(wrong(format!("manifest schema version {}, only 2 is supported", raw.schema_version)));
    }
    match (raw.manifests, raw.config) {
        (Some(manifests), None) => Ok(Document::Index(manifests)),
        (None, Some(config)) => {
            let layers = raw.layers.unwrap_or_default();
            if let Some(layer) = layers.iter().find(|layer| layer.media_type.contains("encrypted")) {
                return Err(wrong(format!("layer {} is encrypted ({})", layer.digest, layer.media_type)));
            }
            Ok(Document::Manifest(Manifest { config, layers }))
        }
        (Some(_), Some(_)) => Err(wrong("both a manifest and an index".to_owned())),
        (None, None) => Err(wrong("neither a manifest nor an index".to_owned())),
    }
}

/// Chooses the entry of an index for a platform: one with that platform, else one without a platform.
pub(crate) fn choose<'a>(entries: &'a [Descriptor], platform: &Platform, what: &str) -> Result<&'a Descriptor, Error> {
    let named = entries.iter().filter(|entry| entry.platform.as_ref().is_some_and(|theirs| platform.runs(theirs)));
    let exact = |entry: &&Descriptor| entry.platform.as_ref().is_some_and(|theirs| theirs.variant == platform.variant);
    let unnamed = || entries.iter().find(|entry| entry.platform.is_none());
    let chosen = named.clone().find(exact).or_else(|| named.clone().next()).or_else(unnamed);
    chosen.ok_or_else(|| {
        let found: Vec<String> =
            entries.iter().filter_map(|entry| entry.platform.as_ref()).map(ToString::to_string).collect();
        let found = if found.is_empty() { "nothing".to_owned() } else { found.join(", ") };
        Error::NoPlatform { what: what.to_owned(), wanted: platform.to_string(), found }
    })
}

/// Checks that a manifest and its configuration have the same number of layers, and not more than the kernel can mount.
/// Documents have room for tens of thousands of layers, each of which would be looked up in all layers below it.
pub(crate) fn check_layers(layers: usize, diff_ids: usize, what: &str) -> Result<(), Error> {
    let reason = match layers {
        _ if layers != diff_ids => format!("the manifest has {layers} layers, the configuration {diff_ids}"),
        0..=MOST_LAYERS => return Ok(()),
        _ => format!("{layers} layers, the kernel allows {MOST_LAYERS}"),
    };
    Err(Error::Image { what: what.to_owned(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(letter: char) -> String {
        format!("sha256:{}", letter.to_string().repeat(64))
    }

    fn index(platforms: &[&str]) -> Vec<Descriptor> {
        let entries: Vec<String> = platforms
            .iter()
            .zip("abcdef".chars())
            .map(|(platform, letter)| format!(r#"{{"digest":"{}","size":1{platform}}}"#, digest(letter)))
            .collect();
        let json = format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, entries.join(","));
        match parse(json.as_bytes(), "test").unwrap() {
            Document::Index(entries) => entries,
            Document::Manifest(_) => panic!("not an index"),
        }
    }

    #[test]
    fn the_entry_for_this_platform_is_chosen() {
        let amd64 = Platform { os: "linux".into(), architecture: "amd64".into(), variant: String::new() };
        let of =
            |os: &str, architecture: &str| format!(r#","platform":{{"os":"{os}","architecture":"{architecture}"}}"#);
        let entries = index(&[&of("linux", "arm64"), &of("linux", "amd64"), &of("unknown", "unknown")]);
        assert_eq!(choose(&entries, &amd64, "x").unwrap().digest.to_string(), digest('b'));
        let entries = index(&[&of("linux", "arm64"), &of("windows", "amd64")]);
        let error = choose(&entries, &amd64, "x.tar").unwrap_err().to_string();
        assert_eq!(error, "x.tar: no image for linux/amd64; available: linux/arm64, windows/amd64");
        let entries = index(&[&of("linux", "arm64"), ""]);
        assert_eq!(choose(&entries, &amd64, "x").unwrap().digest.to_string(), digest('b'));
    }

    #[test]
    fn more_layers_than_the_kernel_takes_are_refused() {
        check_layers(500, 500, "m").unwrap();
        let error = check_layers(501, 501, "m").unwrap_err().to_string();
        assert_eq!(error, "m: 501 layers, the kernel allows 500");
        let error = check_layers(2, 1, "m").unwrap_err().to_string();
        assert_eq!(error, "m: the manifest has 2 layers, the configuration 1");
    }

    #[test]
    fn documents_other_than_manifests_and_indexes_are_refused() {
        for (json, part) in [
            ("{}", "schemaVersion"),
            ("[]", "not a manifest"),
            (r#"{"schemaVersion":1}"#, "schema version 1"),
            (r#"{"schemaVersion":2}"#, "neither"),
            (r#"{"schemaVersion":2,"config":{"digest":"sha256:00"}}"#, "64 digits"),
        ] {
            let error = parse(json.as_bytes(), "m").unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
