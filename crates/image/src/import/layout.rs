//! OCI image layouts: an index by name, blobs by digest.

use std::collections::BTreeMap;

use super::spool::Spool;
use super::{ARCHIVE, Candidate};
use crate::digest::Digest;
use crate::error::Error;
use crate::image::parse_config;
use crate::manifest::{DEEPEST_INDEX, Descriptor, Document, Manifest, choose, parse};
use crate::platform::Platform;

/// The layout's table of contents.
pub(super) const INDEX: &str = "index.json";

/// Full names, as containerd and docker write them.
const FULL_NAME: &str = "io.containerd.image.name";
/// A tag by the specification, a full name with some tools.
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// Finds the images for a platform. Entries for other platforms are skipped; it is an error if none is left.
pub(super) fn find(spool: &Spool, platform: &Platform) -> Result<Vec<Candidate>, Error> {
    let what = format!("{ARCHIVE}: {INDEX}");
    let Document::Index(entries) = parse(&spool.read_document(INDEX)?, &what)? else {
        return Err(Error::Image { what, reason: "it is a manifest, not an index".to_owned() });
    };
    if entries.is_empty() {
        return Err(Error::Image { what, reason: "it has no images".to_owned() });
    }
    let (fitting, others): (Vec<&Descriptor>, Vec<&Descriptor>) =
        entries.iter().partition(|entry| entry.platform.as_ref().is_none_or(|theirs| platform.runs(theirs)));
    if fitting.is_empty() {
        let found: Vec<String> =
            others.iter().filter_map(|entry| entry.platform.as_ref()).map(ToString::to_string).collect();
        return Err(Error::NoPlatform { what, wanted: platform.to_string(), found: found.join(", ") });
    }
    // One image may be listed once for each of its names.
    let mut candidates: BTreeMap<Digest, Candidate> = BTreeMap::new();
    for entry in fitting {
        let names = name_of(entry);
        match candidates.get_mut(&entry.digest) {
            Some(candidate) => candidate.names.extend(names),
            None => {
                let mut candidate = resolve(spool, entry, platform)?;
                candidate.names.extend(names);
                candidates.insert(entry.digest.clone(), candidate);
            }
        }
    }
    Ok(candidates.into_values().collect())
}

fn name_of(entry: &Descriptor) -> Option<String> {
    let annotations = entry.annotations.as_ref()?;
    let looks_full = |name: &&String| name.contains(['/', ':']);
    annotations.get(FULL_NAME).or_else(|| annotations.get(REF_NAME).filter(looks_full)).cloned()
}

fn resolve(spool: &Spool, entry: &Descriptor, platform: &Platform) -> Result<Candidate, Error> {
    let mut at = entry.clone();
    for _ in 0..DEEPEST_INDEX {
        let what = format!("{ARCHIVE}: manifest {}", at.digest);
        match parse(&read_blob(spool, &at.digest)?, &what)? {
            Document::Index(entries) => at = choose(&entries, platform, &what)?.clone(),
            Document::Manifest(manifest) => return candidate(spool, &manifest, entry),
        }
    }
    let reason = format!("indexes within indexes, more than {DEEPEST_INDEX} deep");
    Err(Error::Image { what: format!("{ARCHIVE}: manifest {}", entry.digest), reason })
}

fn candidate(spool: &Spool, manifest: &Manifest, entry: &Descriptor) -> Result<Candidate, Error> {
    let config = read_blob(spool, &manifest.config.digest)?;
    let layers = manifest.layers.iter().map(|layer| (member(&layer.digest), Some(layer.digest.clone()))).collect();
    Ok(Candidate {
        parsed: parse_config(&config, &format!("{ARCHIVE}: configuration {}", manifest.config.digest))?,
        layers,
        manifest: Some(entry.digest.clone()),
        names: Vec::new(),
    })
}

fn member(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn read_blob(spool: &Spool, digest: &Digest) -> Result<Vec<u8>, Error> {
    let name = member(digest);
    let content = spool.read_document(&name)?;
    digest.expect(&Digest::of(&content), format!("{ARCHIVE}: {name}"))?;
    Ok(content)
}
