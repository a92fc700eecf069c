//! Several sources, one desired set. Pure.
//!
//! Each source has a completeness of its own ([`Extent`]). A UID that two sources name is the first source's, in the order in
//! which the sources were opened; so is a full name that two of them give to different pods, as long as neither runs. A pod that runs
//! keeps its name until it is gone: that is the manager's business, which knows what runs.

use std::collections::BTreeSet;

use crate::{
    manager::{Extent, WantedPods},
    slot::Wanted,
};

/// What all sources of an agent want.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// In the order in which they were opened.
    all: Vec<Listed>,
}

/// The newest that one source has said.
#[derive(Clone, Debug, Default)]
struct Listed {
    pods: WantedPods,
    /// Whether the source has named everything that it wants, since it was opened.
    received: bool,
    /// Whether it is naming everything anew.
    relisting: bool,
    /// Whether part of it could not be read when it last named everything.
    unreadable: bool,
}

/// Which source of an agent it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourceId(usize);

// === impl Sources ===

impl Sources {
    /// One more source. It has said nothing yet.
    pub(crate) fn open(&mut self) -> SourceId {
        self.all.push(Listed::default());
        SourceId(self.all.len() - 1)
    }

    /// A source says what it wants.
    pub(crate) fn set(&mut self, SourceId(index): SourceId, pods: WantedPods, extent: Extent) {
        let Some(listed) = self.all.get_mut(index) else { return };
        listed.received |= matches!(extent, Extent::Complete | Extent::Unreadable);
        listed.relisting = extent == Extent::Relisting;
        listed.unreadable = match extent {
            Extent::Complete => false,
            Extent::Unreadable => true,
            // Says nothing about what was not read.
            Extent::Partial | Extent::Relisting => listed.unreadable,
        };
        match extent {
            // What it named before may come yet.
            Extent::Relisting => listed.pods.extend(pods),
            Extent::Complete | Extent::Unreadable | Extent::Partial => listed.pods = pods,
        }
    }

    /// A pod that was to be deleted is gone: a source that goes on naming it has to do so anew.
    pub(crate) fn forget_deleted(&mut self, uid: &str) {
        for listed in &mut self.all {
            if listed.pods.get(uid).is_some_and(|wanted| wanted.deletion.is_some()) {
                listed.pods.remove(uid);
            }
        }
    }

    /// Whether every source has named everything that it wants: only then is what no source names an orphan.
    pub(crate) fn are_complete(&self) -> bool {
        !self.all.is_empty() && self.all.iter().all(|listed| listed.received && !listed.relisting)
    }

    /// Whether all of every source could be read: only then is a pod an orphan that the ledger does not know.
    pub(crate) fn are_readable(&self) -> bool {
        !self.all.iter().any(|listed| listed.unreadable)
    }

    /// All pods that are wanted, by UID.
    pub(crate) fn wanted(&self) -> WantedPods {
        self.in_order().into_iter().map(|wanted| (wanted.pod.uid.clone(), wanted)).collect()
    }

    /// The pods in the order in which they get their names: the first of a full name is started, the others wait for it.
    pub(crate) fn in_order(&self) -> Vec<Wanted> {
        let mut seen = BTreeSet::new();
        let all = self.all.iter().flat_map(|listed| &listed.pods);
        all.filter(|(uid, _)| seen.insert(*uid)).map(|(_, wanted)| wanted.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use keelet_lifecycle::observed::Deletion;

    use super::*;
    use crate::bed::{pod, wanted};

    fn uids(sources: &Sources) -> Vec<String> {
        sources.wanted().into_keys().collect()
    }

    /// Nothing is complete before every source is, and a source that lists anew is not.
    #[test]
    fn completeness_is_that_of_every_source() {
        let mut sources = Sources::default();
        assert!(!sources.are_complete(), "no source has said anything");
        let (files, api) = (sources.open(), sources.open());
        for (source, extent, complete) in [
            (files, Extent::Complete, false),
            (api, Extent::Partial, false),
            (api, Extent::Complete, true),
            (files, Extent::Partial, true),
            (api, Extent::Relisting, false),
            (api, Extent::Complete, true),
        ] {
            sources.set(source, WantedPods::new(), extent);
            assert_eq!(sources.are_complete(), complete, "{source:?} {extent:?}");
        }
    }

    /// A source that lists anew takes nothing back until it has named everything.
    #[test]
    fn listing_anew_deletes_nothing_before_its_end() {
        let mut sources = Sources::default();
        let api = sources.open();
        let (a, b, c) = (pod("a", "a"), pod("b", "b"), pod("c", "c"));
        sources.set(api, wanted(&[&a, &b]), Extent::Complete);
        sources.set(api, WantedPods::new(), Extent::Relisting);
        assert_eq!(uids(&sources), ["a", "b"]);
        sources.set(api, wanted(&[&c]), Extent::Relisting);
        assert_eq!(uids(&sources), ["a", "b", "c"]);
        sources.set(api, wanted(&[&c]), Extent::Complete);
        assert_eq!(uids(&sources), ["c"]);
    }

    /// A UID of two sources is the first one's; so is the place of a full name, whatever the UIDs are.
    #[test]
    fn the_first_source_decides_between_two_pods_of_a_uid_or_a_name() {
        let mut sources = Sources::default();
        let (files, api) = (sources.open(), sources.open());
        let (web, other, early) = (pod("web", "z"), pod("other", "z"), pod("web", "a"));
        sources.set(api, wanted(&[&other, &early]), Extent::Complete);
        sources.set(files, wanted(&[&web]), Extent::Complete);
        assert_eq!(sources.wanted()["z"].pod.name, "web");
        let order: Vec<_> = sources.in_order().into_iter().map(|wanted| wanted.pod.uid.clone()).collect();
        assert_eq!(order, ["z", "a"]);
        sources.set(files, WantedPods::new(), Extent::Complete);
        assert_eq!(sources.wanted()["z"].pod.name, "other", "what the first one does not want is the second one's");
    }

    /// A deletion that has been carried out is over, whichever source asked for it.
    #[test]
    fn a_pod_that_was_deleted_has_to_be_named_anew() {
        let mut sources = Sources::default();
        let (files, api) = (sources.open(), sources.open());
        let a = pod("a", "a");
        let deletion = Some(Deletion { grace: Duration::ZERO });
        let deleted = Wanted { deletion, ..Wanted::new(Arc::clone(&a)) };
        sources.set(api, WantedPods::from([("a".to_owned(), deleted)]), Extent::Complete);
        sources.set(files, wanted(&[&pod("b", "b")]), Extent::Complete);
        for uid in ["a", "b"] {
            sources.forget_deleted(uid);
        }
        assert_eq!(uids(&sources), ["b"]);
    }
}
