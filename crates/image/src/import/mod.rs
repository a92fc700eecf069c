//! Images from archives: OCI layouts and `docker save`.
//!
//! The archive is a stream without seek, and its table of contents often comes last. So its files are first spooled
//! into a working directory, under numbers; no name in the archive becomes a name on the disk. Then the images are
//! found and their layers unpacked.

mod docker;
mod layout;
mod spool;

use std::collections::BTreeSet;
use std::io::Read;

use crate::assemble::{Assembly, Position};
use crate::digest::{Digest, HashingReader};
use crate::error::{At, Error};
use crate::image::{Image, Parsed, parse_config};
use crate::limits::Budget;
use crate::manifest::check_layers;
use crate::reference::{parse_name, repository_of, tag_of};
use crate::store::Store;
use spool::Spool;

/// An image in an archive.
struct Candidate {
    parsed: Parsed,
    /// the archive's files with the layers, the lowest first, and their digests where the archive has them
    layers: Vec<(String, Option<Digest>)>,
    manifest: Option<Digest>,
    names: Vec<String>,
}

/// The name of the imported stream in messages.
const ARCHIVE: &str = "archive";

// === impl Store ===

impl Store {
    /// Imports all images for this machine from an OCI layout or a docker archive, plain or compressed. With a name, there
    /// must be one image, and it gets this name instead of those in the archive.
    pub fn import(&self, reader: impl Read, name: Option<&str>) -> Result<Vec<Image>, Error> {
        let name = name.map(parse_name).transpose()?;
        let mut assembly = Assembly::new(self)?;
        let files = assembly.path("files");
        crate::store::make_directory(&files, 0o700)?;
        let budget = Budget::new(&self.inner.options.limits, &files)?;
        let spool = Spool::read(reader, &files, &budget)?;
        let mut candidates = self.find_candidates(&spool)?;
        if let Some(name) = name {
            let [candidate] = candidates.as_mut_slice() else {
                let reason = format!("{} images, but one name for all of them", candidates.len());
                return Err(Error::Image { what: ARCHIVE.to_owned(), reason });
            };
            let tag = tag_of(&name).ok_or_else(|| Error::Reference {
                reference: name.whole(),
                reason: "an imported image is named by a tag, not by a digest".to_owned(),
            })?;
            candidate.names = vec![tag];
        }
        for candidate in &candidates {
            add_candidate(&mut assembly, &spool, candidate)?;
        }
        drop(spool);
        assembly.publish()
    }

    fn find_candidates(&self, spool: &Spool) -> Result<Vec<Candidate>, Error> {
        let platform = &self.inner.options.platform;
        let mut candidates = if spool.has(layout::INDEX) {
            let mut candidates = layout::find(spool, platform)?;
            // `docker save` writes both tables; names may be in the second one only.
            if spool.has(docker::TABLE) {
                docker::add_names(spool, &mut candidates)?;
            }
            candidates
        } else if spool.has(docker::TABLE) {
            docker::find(spool)?
        } else {
            let reason = format!("neither {} nor {} is in it, so it is not an image", layout::INDEX, docker::TABLE);
            return Err(Error::Image { what: ARCHIVE.to_owned(), reason });
        };
        for candidate in &candidates {
            if !platform.runs(&candidate.parsed.platform) {
                return Err(Error::NoPlatform {
                    what: format!("{ARCHIVE}: image {}", candidate.parsed.id),
                    wanted: platform.to_string(),
                    found: candidate.parsed.platform.to_string(),
                });
            }
            let what = format!("{ARCHIVE}: image {}", candidate.parsed.id);
            check_layers(candidate.layers.len(), candidate.parsed.diff_ids.len(), &what)?;
        }
        candidates.iter_mut().for_each(|candidate| candidate.names.sort());
        Ok(candidates)
    }
}

fn add_candidate(assembly: &mut Assembly, spool: &Spool, candidate: &Candidate) -> Result<(), Error> {
    let parsed = &candidate.parsed;
    let chain = assembly.claim(&parsed.diff_ids)?;
    for (index, ((member, digest), diff_id)) in candidate.layers.iter().zip(&parsed.diff_ids).enumerate() {
        if assembly.has(&chain[index]) {
            continue;
        }
        let what = format!("{ARCHIVE}: layer {member}");
        if let Some(digest) = digest {
            let found = HashingReader::new(spool.open(member)?).finish().at("read", member)?;
            digest.expect(&found, &what)?;
        }
        let position = Position { chain: &chain, index, diff_id, what: &what };
        assembly.unpack(&position, spool.open(member)?)?;
    }
    let mut tags = BTreeSet::new();
    let mut digests = BTreeSet::new();
    for name in &candidate.names {
        let name = parse_name(name)?;
        tags.extend(tag_of(&name));
        digests.extend(candidate.manifest.as_ref().map(|digest| format!("{}@{digest}", repository_of(&name))));
    }
    assembly.add(parsed, tags, digests);
    Ok(())
}

/// Parses a configuration whose digest is verified.
fn parse_member(spool: &Spool, member: &str) -> Result<Parsed, Error> {
    parse_config(&spool.read_document(member)?, &format!("{ARCHIVE}: {member}"))
}
