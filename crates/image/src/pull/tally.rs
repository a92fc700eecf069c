//! The progress of a pull, summed up over its layers.

use std::collections::BTreeMap;

use super::Progress;

/// A pull, summed up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// layers that have to be fetched; none before the manifest is known
    pub layers: usize,
    /// those that are unpacked
    pub unpacked: usize,
    /// bytes that have to be fetched
    pub bytes: u64,
    /// bytes of each layer that have arrived, by its digest
    arrived: BTreeMap<String, u64>,
}

// === impl Tally ===

impl Tally {
    /// Counts a progress report.
    pub fn note(&mut self, progress: Progress) {
        match progress {
            // After a mirror failed in the middle, counting starts again.
            Progress::Resolved { layers, bytes, .. } => *self = Self { layers, bytes, ..Self::default() },
            Progress::Fetched { layer, done, .. } => drop(self.arrived.insert(layer, done)),
            Progress::Unpacked { .. } => self.unpacked += 1,
        }
    }

    /// Bytes that have arrived.
    pub fn fetched(&self) -> u64 {
        self.arrived.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_summed_up_and_a_second_host_begins_anew() {
        let mut tally = Tally::default();
        let fetched = |layer: &str, done| Progress::Fetched { layer: layer.to_owned(), done, total: 10 };
        let resolved = || Progress::Resolved { digest: "sha256:1".to_owned(), layers: 2, bytes: 20 };
        tally.note(resolved());
        for progress in [fetched("a", 3), fetched("b", 4), fetched("a", 10), Progress::Unpacked { layer: "a".into() }] {
            tally.note(progress);
        }
        assert_eq!((tally.layers, tally.unpacked, tally.bytes, tally.fetched()), (2, 1, 20, 14));
        tally.note(fetched("b", 1));
        assert_eq!(tally.fetched(), 11, "a layer whose connection broke may begin anew");
        tally.note(resolved());
        assert_eq!((tally.unpacked, tally.fetched()), (0, 0));
    }
}
