//! Pulls that are under way. CRI has no word for how far one has come; code in this process can ask here.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use keelet_image::{Progress, Tally};

/// An image that is being pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulling {
    /// Its name, as it was asked for.
    pub image: String,
    /// How far it has come.
    pub tally: Tally,
}

/// All of them, in the order they began.
#[derive(Debug, Default)]
pub(crate) struct Pulls(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    running: BTreeMap<u64, Pulling>,
}

/// One of them. It is over when this is dropped, however it ended.
#[derive(Debug)]
pub(crate) struct PullGuard<'a> {
    pulls: &'a Pulls,
    number: u64,
}

// === impl Pulls ===

impl Pulls {
    pub(crate) fn now(&self) -> Vec<Pulling> {
        self.table().running.values().cloned().collect()
    }

    pub(crate) fn begin(&self, image: &str) -> PullGuard<'_> {
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        table.running.insert(number, Pulling { image: image.to_owned(), tally: Tally::default() });
        PullGuard { pulls: self, number }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl PullGuard ===

impl PullGuard<'_> {
    pub(crate) fn note(&self, progress: Progress) {
        if let Some(pulling) = self.pulls.table().running.get_mut(&self.number) {
            pulling.tally.note(progress);
        }
    }
}

impl Drop for PullGuard<'_> {
    fn drop(&mut self) {
        self.pulls.table().running.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_is_reported_until_it_ends() {
        let pulls = Pulls::default();
        let (first, second) = (pulls.begin("app:1"), pulls.begin("app:1"));
        second.note(Progress::Resolved { digest: String::new(), layers: 3, bytes: 70 });
        let told: Vec<_> = pulls.now().into_iter().map(|pulling| (pulling.image, pulling.tally.bytes)).collect();
        assert_eq!(told, [("app:1".to_owned(), 0), ("app:1".to_owned(), 70)]);
        drop(first);
        assert_eq!(pulls.now().len(), 1);
        drop(second);
        assert!(pulls.now().is_empty());
    }
}
