//! The manifest of a random pod in files that are copied and renamed.

use std::sync::Arc;

use keelet_agent::source::{Content, Listing, Manifests};
use keelet_pod::{Features, Pod, Strictness};

use keelet_sim_api::Random;

use crate::world::World;

const NAMES: [&str; 4] = ["a.yaml", "b.yaml", "c.yaml", "d.yaml"];

/// Files that all hold the same manifest.
pub(super) struct Files {
    content: Content,
    /// The names of the files.
    names: Vec<&'static str>,
    source: Manifests,
}

fn source() -> Manifests {
    Manifests::new("/manifests", Features::default(), Strictness::Strict)
}

// === impl Files ===

impl Files {
    pub(super) fn new(manifest: &str) -> Self {
        let content = Content::Bytes(manifest.as_bytes().to_vec());
        let mut files = Self { content, names: vec![NAMES[1]], source: source() };
        files.read();
        files
    }

    /// Has the agent hear what the files ask for.
    pub(super) fn tell(&self, world: &mut World) {
        world.set_listing(&self.source.listing());
    }

    /// A file is renamed, copied, or removed beside a copy. Whatever it is, the pod that is wanted stays the same.
    pub(super) fn change(&mut self, random: &mut Random, world: &mut World) -> &'static str {
        let free: Vec<&'static str> = NAMES.into_iter().filter(|name| !self.names.contains(name)).collect();
        let act = match random.within(0..3) {
            0 if self.names.len() > 1 => {
                let gone = random.within(0..self.names.len() as u64);
                self.names.remove(usize::try_from(gone).unwrap_or(0));
                "a copied manifest is removed"
            }
            1 if !free.is_empty() => {
                self.names.push(*random.pick(&free));
                "a manifest is copied"
            }
            _ if !free.is_empty() => {
                let renamed = random.within(0..self.names.len() as u64);
                self.names[usize::try_from(renamed).unwrap_or(0)] = *random.pick(&free);
                "a manifest is renamed"
            }
            _ => "manifests stay",
        };
        // An agent that has just started reads the directory for the first time, and knows its ledger's pods.
        if !world.is_alive() {
            let copies =
                world.ledger().into_iter().filter_map(|pod| Pod::from_json(pod.copy?, &Features::default()).ok());
            self.source = source().beside(copies.map(Arc::new));
        }
        let before: Vec<String> = world.wanted_uids();
        self.read();
        let Listing { pods, .. } = self.source.listing();
        let after: Vec<String> = pods.keys().cloned().collect();
        if before != after {
            world.accuse("manifests", format!("{act}, and {before:?} are replaced by {after:?}"));
        }
        self.tell(world);
        act
    }

    fn read(&mut self) {
        self.source.merge(self.names.iter().map(|name| ((*name).to_owned(), self.content.clone())).collect());
    }
}
