//! The rules as the API server has them, and which of those that were there are gone.
//!
//! A rule that is not seen any more is not therefore gone: a list may come from a cache or a proxy, and the definition of rules may have
//! moved on to another version. Its taints stay until an answer confirms it: a list that is not older than what was seen before and does
//! not have the rule, or a list of API groups without that of rules.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::Duration,
};

use crate::{
    api::{News, Page},
    election::Instant,
    node::{Text, Version},
    rule::{Rule, Rules, Source},
};

/// What is known of rules.
#[derive(Debug, Default)]
pub(super) struct Known {
    rules: Rules,
    /// Whether there was an answer at all.
    complete: bool,
    /// The rules of a list that is not complete.
    listing: BTreeMap<Text, Rule>,
    /// Rules that are not seen any more, by their UIDs.
    missing: BTreeMap<Text, Search>,
    /// The newest version of a rule that was seen: an answer that is older says nothing.
    newest: Version,
}

/// A rule that is not seen any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) name: Text,
    uid: Text,
}

/// What was found of a rule that is not seen any more.
#[derive(Debug)]
pub(super) enum Found {
    /// The rules of its name.
    Listed(Page<Rule>),
    /// The API server has no rules.
    NoSuchKind,
    /// There was no answer that says it.
    Unknown,
}

/// How the search for a rule stands.
#[derive(Debug)]
struct Search {
    name: Text,
    /// A request is under way.
    asking: bool,
    /// None is made before this.
    not_before: Instant,
}

/// How long to wait after an answer that confirmed nothing: rules vanish rarely, and a person can wait for this.
const AGAIN: Duration = Duration::from_secs(5);

/// UIDs of rules that are remembered as gone. A cluster has some ten rules; beyond this a person removes what is left of one.
const GONE: usize = 4096;

// === impl Known ===

impl Known {
    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Takes news; whether the rules may have changed.
    pub(super) fn hear(&mut self, news: News<Rule>) -> bool {
        match news {
            News::ListBegins => {
                self.listing.clear();
                return false;
            }
            News::Listed(rules) => {
                self.listing.extend(rules.into_iter().map(|rule| (Arc::clone(&rule.name), rule)));
                return false;
            }
            News::ListEnds => {
                let list = mem::take(&mut self.listing);
                self.replace(list);
            }
            // The list of groups is the confirmation.
            News::NoSuchKind => {
                self.replace(BTreeMap::new());
                self.rules.gone.extend(mem::take(&mut self.missing).into_keys());
            }
            // Nothing was ever known, so their taints are left alone; other gates need not wait for that.
            News::NotServed(_) if !self.complete => self.rules.source = Source::Off,
            News::NotServed(_) => {}
            News::Changed(rule) => {
                self.note(&rule);
                self.missing.remove(&rule.uid);
                self.rules.gone.remove(&rule.uid);
                if let Some(before) = self.rules.list.insert(Arc::clone(&rule.name), rule.clone())
                    && before.uid != rule.uid
                {
                    self.lose(&before);
                }
            }
            News::Deleted(rule) => {
                self.note(&rule);
                if let Some(before) = self.rules.list.remove(&rule.name) {
                    self.lose(&before);
                }
            }
        }
        self.complete = true;
        true
    }

    fn replace(&mut self, list: BTreeMap<Text, Rule>) {
        self.rules.source = Source::Known;
        let before = mem::replace(&mut self.rules.list, list);
        let uids: BTreeSet<_> = self.rules.list.values().map(|rule| Arc::clone(&rule.uid)).collect();
        self.missing.retain(|uid, _| !uids.contains(uid));
        self.rules.gone.retain(|uid| !uids.contains(uid));
        before.values().filter(|rule| !uids.contains(&rule.uid)).for_each(|rule| self.lose(rule));
        let listed: Vec<_> = self.rules.list.values().map(|rule| rule.version.clone()).collect();
        listed.into_iter().for_each(|version| self.note_version(version));
    }

    /// A rule is not seen any more.
    fn lose(&mut self, rule: &Rule) {
        let search = Search { name: Arc::clone(&rule.name), asking: false, not_before: Instant::ZERO };
        self.missing.insert(Arc::clone(&rule.uid), search);
    }

    fn note(&mut self, rule: &Rule) {
        self.note_version(rule.version.clone());
    }

    fn note_version(&mut self, version: Version) {
        if !version.is_older_than(&self.newest) {
            self.newest = version;
        }
    }

    /// Rules to ask for now. Each ends with [`Self::looked`].
    pub(super) fn unconfirmed(&mut self, now: Instant) -> Vec<Missing> {
        let due = self.missing.iter_mut().filter(|(_, search)| !search.asking && search.not_before <= now);
        due.map(|(uid, search)| {
            search.asking = true;
            Missing { name: Arc::clone(&search.name), uid: Arc::clone(uid) }
        })
        .collect()
    }

    /// What was found; whether the rule is gone.
    pub(super) fn looked(&mut self, missing: &Missing, found: Found, now: Instant) -> bool {
        let Some(search) = self.missing.get_mut(&missing.uid) else { return false };
        (search.asking, search.not_before) = (false, now + AGAIN);
        let gone = match found {
            Found::Listed(page) => {
                let knows = !page.version.as_str().is_empty() && !page.version.is_older_than(&self.newest);
                knows && page.next.is_none() && page.items.iter().all(|rule| rule.uid != missing.uid)
            }
            Found::NoSuchKind => true,
            Found::Unknown => false,
        };
        if gone {
            self.missing.remove(&missing.uid);
            if self.rules.gone.len() >= GONE {
                self.rules.gone.clear();
            }
            self.rules.gone.insert(Arc::clone(&missing.uid));
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(name: &str, uid: &str, version: &str) -> Rule {
        Rule::read(json!({"metadata": {"name": name, "uid": uid, "resourceVersion": version}})).unwrap()
    }

    fn page(items: Vec<Rule>, version: &str) -> Found {
        Found::Listed(Page { items, version: Version::new(version), next: None })
    }

    fn listed(known: &mut Known, rules: Vec<Rule>) {
        known.hear(News::ListBegins);
        known.hear(News::Listed(rules));
        known.hear(News::ListEnds);
    }

    fn gone(known: &Known) -> Vec<&str> {
        known.rules().gone.iter().map(|uid| &**uid).collect()
    }

    /// PEER-17, GN-8: a rule that is not seen any more is gone when an answer says so that is not older than what was seen.
    #[test]
    fn a_rule_is_gone_when_a_fresh_answer_confirms_it() {
        for deleted in [true, false] {
            let mut known = Known::default();
            listed(&mut known, vec![rule("net", "u-1", "7")]);
            assert_eq!(known.unconfirmed(Instant::ZERO), []);
            match deleted {
                true => drop(known.hear(News::Deleted(rule("net", "u-1", "9")))),
                false => listed(&mut known, vec![]),
            }
            assert!(known.rules().list.is_empty() && gone(&known).is_empty(), "not confirmed");
            let mut now = Instant::ZERO;
            for found in
                [Found::Unknown, page(vec![], "6"), page(vec![], ""), page(vec![rule("net", "u-1", "7")], "12")]
            {
                let [missing] = &known.unconfirmed(now)[..] else { panic!("it asks for the rule") };
                assert_eq!(known.unconfirmed(now), [], "once at a time");
                assert!(!known.looked(missing, found, now));
                assert_eq!(known.unconfirmed(now), [], "and not at once again");
                now += AGAIN;
            }
            let [missing] = &known.unconfirmed(now)[..] else { panic!("it asks again") };
            assert!(
                known.looked(missing, page(vec![rule("net", "u-2", "12")], "12"), now),
                "another rule of that name"
            );
            assert_eq!(known.unconfirmed(now + AGAIN), []);
            assert_eq!(gone(&known), ["u-1"]);
        }
    }

    /// GN-8
    #[test]
    fn a_definition_that_moved_on_changes_nothing_and_one_that_is_gone_takes_its_rules_along() {
        let mut known = Known::default();
        assert!(known.hear(News::NotServed("another version".to_owned())));
        assert_eq!(known.rules().source, Source::Off, "nothing was ever known of them");
        listed(&mut known, vec![rule("net", "u-1", "7")]);
        assert_eq!(known.rules().source, Source::Known);
        known.hear(News::NotServed("another version".to_owned()));
        assert_eq!((known.rules().list.len(), known.rules().source), (1, Source::Known));
        known.hear(News::NoSuchKind);
        assert_eq!((known.rules().list.len(), gone(&known)), (0, vec!["u-1"]));
    }

    /// A list that is older than the rule does not make it gone when it comes back.
    #[test]
    fn a_rule_that_comes_back_is_not_missing() {
        let mut known = Known::default();
        listed(&mut known, vec![rule("net", "u-1", "7")]);
        listed(&mut known, vec![]);
        listed(&mut known, vec![rule("net", "u-1", "7")]);
        assert_eq!(known.unconfirmed(Instant::ZERO), []);
        known.hear(News::Changed(rule("net", "u-2", "9")));
        assert_eq!(known.unconfirmed(Instant::ZERO).len(), 1, "another rule took its name");
    }
}
