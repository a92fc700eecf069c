//! From layers to an image: what import and pull have in common.
//!
//! All new layers are unpacked into one working directory. Only when they are complete and verified do they become part
//! of the store, in one step; until then no other process sees them, and an abandoned assembly leaves nothing behind.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::PathBuf;

use crate::digest::{Digest, chain_ids};
use crate::error::{At, Error};
use crate::image::{Image, Parsed};
use crate::index::Record;
use crate::limits::Budget;
use crate::store::{LayerNote, Store, Unpacked, make_directory};
use crate::tree;
use crate::unpack::{Layer, unpack};
use crate::work::Work;

/// Images on their way into the store.
pub(crate) struct Assembly {
    store: Store,
    work: Work,
    budget: Budget,
    /// layers that this assembly needs, by chain ID
    leased: BTreeSet<String>,
    /// layers that this assembly unpacked, by chain ID
    unpacked: BTreeMap<String, PathBuf>,
    records: Vec<(String, Record)>,
}

/// One layer of an image on the way.
pub(crate) struct Position<'a> {
    /// chain IDs of the image
    pub(crate) chain: &'a [Digest],
    /// which of them, from below
    pub(crate) index: usize,
    pub(crate) diff_id: &'a Digest,
    /// what to call it in messages
    pub(crate) what: &'a str,
}

// === impl Assembly ===

impl Assembly {
    pub(crate) fn new(store: &Store) -> Result<Self, Error> {
        let work = store.new_work()?;
        let budget = Budget::new(&store.inner.options.limits, work.path())?;
        Ok(Self {
            store: store.clone(),
            work,
            budget,
            leased: BTreeSet::new(),
            unpacked: BTreeMap::new(),
            records: Vec::new(),
        })
    }

    /// A place for files of this assembly.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    /// Claims the layers of an image, so that existing ones are not removed. Returns its chain IDs.
    pub(crate) fn claim(&mut self, diff_ids: &[Digest]) -> Result<Vec<Digest>, Error> {
        let chain = chain_ids(diff_ids);
        self.leased.extend(chain.iter().map(|id| id.hex().to_owned()));
        let leased: Vec<String> = self.leased.iter().cloned().collect();
        let _guard = self.store.lock()?;
        self.work.lease(&leased)?;
        Ok(chain)
    }

    /// Whether a claimed layer is in the store or was unpacked here.
    pub(crate) fn has(&self, chain: &Digest) -> bool {
        self.unpacked.contains_key(chain.hex()) || self.store.has_layer(chain.hex())
    }

    fn layer_path(&self, chain: &Digest) -> PathBuf {
        match self.unpacked.get(chain.hex()) {
            Some(path) => path.join("diff"),
            None => self.store.layer_path(chain.hex()),
        }
    }

    /// Unpacks a layer on top of the layers below, which must exist.
    pub(crate) fn unpack(&mut self, position: &Position<'_>, archive: impl Read) -> Result<(), Error> {
        let own = &position.chain[position.index];
        let below: Vec<PathBuf> = position.chain[..position.index].iter().rev().map(|id| self.layer_path(id)).collect();
        let directory = self.work.path().join(format!("layer-{}", own.hex()));
        let into = directory.join("diff");
        make_directory(&directory, 0o700)?;
        make_directory(&into, 0o755)?;
        let layer = Layer { what: position.what, diff_id: position.diff_id, into: &into, below: &below };
        unpack(archive, &layer, &self.budget)?;
        let usage = tree::usage(&into).at("count", &into)?;
        let note = LayerNote { bytes: usage.bytes, inodes: usage.inodes };
        let note_path = directory.join("layer.json");
        let content = serde_json::to_vec(&note)
            .map_err(|error| Error::Damaged { path: note_path.clone(), reason: error.to_string() })?;
        std::fs::write(&note_path, content).at("write", &note_path)?;
        self.unpacked.insert(own.hex().to_owned(), directory);
        Ok(())
    }

    /// Adds an image whose layers are complete.
    pub(crate) fn add(&mut self, parsed: &Parsed, tags: BTreeSet<String>, digests: BTreeSet<String>) {
        let layers = chain_ids(&parsed.diff_ids).iter().map(|id| id.hex().to_owned()).collect();
        let record = Record { tags, digests, layers, config: parsed.config.clone(), ..Record::default() };
        self.records.push((parsed.id.to_string(), record));
    }

    /// Makes everything part of the store.
    pub(crate) fn publish(self) -> Result<Vec<Image>, Error> {
        let layers = self.unpacked.into_iter().map(|(chain, path)| Unpacked { chain, path }).collect();
        self.store.publish(layers, self.records)
    }
}
