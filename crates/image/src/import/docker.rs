//! Archives of `docker save`: a table of images with their configurations, layers and names.

use serde::Deserialize;

use super::spool::Spool;
use super::{ARCHIVE, Candidate, parse_member};
use crate::digest::Digest;
use crate::error::Error;

/// The archive's table of contents.
pub(super) const TABLE: &str = "manifest.json";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Row {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    layers: Option<Vec<String>>,
}

/// Finds all images.
pub(super) fn find(spool: &Spool) -> Result<Vec<Candidate>, Error> {
    let rows = read_table(spool)?;
    if rows.is_empty() {
        return Err(Error::Image { what: format!("{ARCHIVE}: {TABLE}"), reason: "it has no images".to_owned() });
    }
    rows.into_iter().map(|row| candidate(spool, row)).collect()
}

/// Adds names to images that were found otherwise.
pub(super) fn add_names(spool: &Spool, candidates: &mut [Candidate]) -> Result<(), Error> {
    for row in read_table(spool)? {
        if !spool.has(&row.config) {
            continue;
        }
        let id = Digest::of(&spool.read_document(&row.config)?);
        for candidate in candidates.iter_mut().filter(|candidate| candidate.parsed.id == id) {
            let names = row.repo_tags.iter().flatten().filter(|name| !candidate.names.contains(name));
            let names: Vec<String> = names.cloned().collect();
            candidate.names.extend(names);
        }
    }
    Ok(())
}

fn read_table(spool: &Spool) -> Result<Vec<Row>, Error> {
    serde_json::from_slice(&spool.read_document(TABLE)?)
        .map_err(|error| Error::Image { what: format!("{ARCHIVE}: {TABLE}"), reason: error.to_string() })
}

fn candidate(spool: &Spool, row: Row) -> Result<Candidate, Error> {
    let parsed = parse_member(spool, &row.config)?;
    // Configurations are named by their digest. A mismatch means that the archive was modified.
    let stem = row.config.rsplit('/').next().unwrap_or_default().trim_end_matches(".json");
    if let Ok(expected) = Digest::parse(&format!("sha256:{stem}")) {
        expected.expect(&parsed.id, format!("{ARCHIVE}: {}", row.config))?;
    }
    Ok(Candidate {
        parsed,
        layers: row.layers.unwrap_or_default().into_iter().map(|layer| (layer, None)).collect(),
        manifest: None,
        names: row.repo_tags.unwrap_or_default(),
    })
}
