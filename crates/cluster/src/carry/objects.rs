//! Which objects are followed, and what is known of each. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use keelet_host::{ObjectError, ObjectName};
use keelet_launch::{Data, ObjectKind};

/// An object of the API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectKey {
    pub(super) kind: ObjectKind,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// What was seen of an object. The values of a secret are among it: there is no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nothing: what the API server said last, if it said anything.
    NotYet(String),
    /// There is none.
    Missing,
    /// Its values.
    Found(Arc<Data>),
}

/// Whether what pods have in volumes may differ from what is known now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Differs,
    Same,
}

/// An object that is to be followed. The same object again, after a time in which no pod referred to it, has another number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Follow {
    pub(super) key: ObjectKey,
    number: u64,
}

/// The objects that pods refer to.
#[derive(Default)]
pub(super) struct Objects {
    by_key: BTreeMap<ObjectKey, Entry>,
    count: u64,
}

struct Entry {
    number: u64,
    seen: Seen,
    /// What an earlier agent saw, until this one sees it.
    before: Option<Seen>,
    immutable: bool,
}

// === impl Objects ===

impl Objects {
    /// What is referred to from now on, or in addition. Whether objects came, and whether some went.
    pub(super) fn refer(&mut self, wanted: BTreeSet<ObjectKey>, all: bool) -> (bool, bool) {
        let before = self.by_key.len();
        if all {
            self.by_key.retain(|key, _| wanted.contains(key));
        }
        let kept = self.by_key.len();
        for key in wanted {
            self.count += 1;
            let new = Entry { number: self.count, seen: Seen::NotYet(String::new()), before: None, immutable: false };
            self.by_key.entry(key).or_insert(new);
        }
        (self.by_key.len() > kept, kept < before)
    }

    /// Those that are followed: an object that is immutable is not, once it was seen.
    pub(super) fn followed(&self) -> BTreeSet<Follow> {
        let followed = self.by_key.iter().filter(|(_, entry)| !entry.immutable);
        followed.map(|(key, entry)| Follow { key: key.clone(), number: entry.number }).collect()
    }

    /// Whether the object never changes.
    pub(super) fn is_immutable(&self, key: &ObjectKey) -> bool {
        self.by_key.get(key).is_some_and(|entry| entry.immutable)
    }

    /// What an earlier agent saw of an object.
    pub(super) fn recall(&mut self, key: &ObjectKey, found: Option<Arc<Data>>) {
        if let Some(entry) = self.by_key.get_mut(key) {
            entry.before = Some(found.map_or(Seen::Missing, Seen::Found));
        }
    }

    /// Something new of an object. What was seen stays if the API server cannot say it again.
    pub(super) fn learn(&mut self, key: &ObjectKey, seen: Seen, immutable: bool) -> Change {
        let Some(entry) = self.by_key.get_mut(key) else { return Change::Same };
        if matches!((&seen, &entry.seen), (Seen::NotYet(_), Seen::Found(_) | Seen::Missing)) {
            return Change::Same;
        }
        let before = entry.before.take_if(|_| !matches!(seen, Seen::NotYet(_)));
        let known = match &entry.seen {
            Seen::NotYet(_) => before,
            known => Some(known.clone()),
        };
        let differs = known.is_some_and(|known| known != seen);
        entry.immutable = immutable;
        entry.seen = seen;
        if differs { Change::Differs } else { Change::Same }
    }

    /// What is known of an object; `None` if no pod refers to it.
    pub(super) fn seen(&self, key: &ObjectKey) -> Option<&Seen> {
        self.by_key.get(key).map(|entry| &entry.seen)
    }

    /// All of them.
    pub(super) fn keys(&self) -> BTreeSet<ObjectKey> {
        self.by_key.keys().cloned().collect()
    }

    pub(super) fn has(&self, key: &ObjectKey) -> bool {
        self.by_key.contains_key(key)
    }

    /// Whether the API server has said what it is, or that there is none.
    pub(super) fn is_known(&self, key: &ObjectKey) -> bool {
        matches!(self.seen(key), Some(Seen::Found(_) | Seen::Missing))
    }

    /// Whether the API server has refused it, or cannot be reached.
    #[cfg(test)]
    fn has_failed(&self, key: &ObjectKey) -> bool {
        matches!(self.seen(key), Some(Seen::NotYet(why)) if !why.is_empty())
    }

    /// Whether the API server has refused it, or cannot be reached, and what an earlier agent saw takes its place.
    pub(super) fn is_recalled(&self, key: &ObjectKey) -> bool {
        self.by_key
            .get(key)
            .is_some_and(|entry| entry.before.is_some() && matches!(&entry.seen, Seen::NotYet(why) if !why.is_empty()))
    }
}

// === impl ObjectKey ===

impl ObjectKey {
    /// An object. Its name comes from a pod, and becomes part of a URL and of a path.
    pub(super) fn new(kind: ObjectKind, namespace: &str, name: &str) -> Result<Self, ObjectError> {
        let key = Self { kind, namespace: namespace.to_owned(), name: name.to_owned() };
        let plain = |part: &str| {
            let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
            !part.is_empty() && part.len() <= 253 && !part.starts_with('.') && part.bytes().all(good)
        };
        match [namespace, name].into_iter().find(|part| !plain(part)) {
            None => Ok(key),
            Some(part) => Err(ObjectError::Name { object: key.into(), part: part.to_owned() }),
        }
    }

    /// The kind as paths have it.
    pub(super) fn resource(&self) -> &'static str {
        match self.kind {
            ObjectKind::ConfigMap => "configmaps",
            ObjectKind::Secret => "secrets",
        }
    }
}

impl From<ObjectKey> for ObjectName {
    fn from(key: ObjectKey) -> Self {
        Self { kind: key.kind, namespace: key.namespace, name: key.name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new(ObjectKind::Secret, "shop", name).expect("a name")
    }

    fn keys(names: &[&str]) -> BTreeSet<ObjectKey> {
        names.iter().map(|name| key(name)).collect()
    }

    fn found(text: &str) -> Seen {
        Seen::Found(Arc::new(Data::from([("k".to_owned(), text.as_bytes().to_vec())])))
    }

    fn not_yet(why: &str) -> Seen {
        Seen::NotYet(why.to_owned())
    }

    /// CLU-31: an object is followed as long as a pod refers to it. A list that is not complete takes nothing away.
    #[test]
    fn objects_are_followed_while_a_pod_refers_to_them() {
        let mut objects = Objects::default();
        let names =
            |objects: &Objects| objects.followed().into_iter().map(|follow| follow.key).collect::<BTreeSet<_>>();
        assert_eq!(objects.refer(keys(&["a", "b"]), false), (true, false));
        assert_eq!(objects.refer(keys(&["a"]), false), (false, false), "the list is not complete");
        assert_eq!(names(&objects), keys(&["a", "b"]));
        assert_eq!(objects.refer(keys(&["a", "c"]), true), (true, true));
        assert_eq!(names(&objects), keys(&["a", "c"]));
        let before = objects.followed();
        assert_eq!(objects.refer(keys(&["a", "c"]), true), (false, false));
        assert_eq!(objects.followed(), before);
        objects.refer(keys(&["a"]), true);
        objects.refer(keys(&["a", "c"]), true);
        assert_ne!(objects.followed(), before, "no pod referred to it meanwhile: it is read anew");
    }

    /// CLU-31
    #[test]
    fn an_immutable_object_is_not_followed_once_it_was_seen() {
        let mut objects = Objects::default();
        objects.refer(keys(&["a", "b"]), true);
        objects.learn(&key("a"), found("1"), true);
        objects.learn(&key("b"), found("1"), false);
        let names =
            |objects: &Objects| objects.followed().into_iter().map(|follow| follow.key).collect::<BTreeSet<_>>();
        assert_eq!(names(&objects), keys(&["b"]));
        assert!(objects.is_known(&key("a")));
        objects.refer(keys(&["b"]), true);
        objects.refer(keys(&["a", "b"]), true);
        assert_eq!(names(&objects), keys(&["a", "b"]), "no pod referred to it meanwhile: it may be another one");
    }

    /// CLU-31: volumes are filled anew when something that was seen is different now, by this agent or the one before; the first sight of
    /// an object is none, and an API server that fails takes nothing away.
    #[test]
    fn volumes_are_filled_anew_when_what_was_seen_has_changed() {
        let cases = [
            (vec![found("1")], Change::Same),
            (vec![Seen::Missing], Change::Same),
            (vec![not_yet("403"), found("1")], Change::Same),
            (vec![found("1"), found("1")], Change::Same),
            (vec![found("1"), found("2")], Change::Differs),
            (vec![found("1"), Seen::Missing], Change::Differs),
            (vec![Seen::Missing, found("1")], Change::Differs),
            (vec![found("1"), not_yet("away"), found("1")], Change::Same),
            (vec![found("1"), not_yet("away"), found("2")], Change::Differs),
        ];
        for (at, (steps, last)) in cases.into_iter().enumerate() {
            let mut objects = Objects::default();
            objects.refer(keys(&["a"]), true);
            let changes: Vec<_> = steps.into_iter().map(|seen| objects.learn(&key("a"), seen, false)).collect();
            assert_eq!(changes.last(), Some(&last), "case {at}");
        }
        for (before, now, change) in [
            (Some("1"), found("1"), Change::Same),
            (Some("1"), found("2"), Change::Differs),
            (None, found("1"), Change::Differs),
            (None, Seen::Missing, Change::Same),
        ] {
            let mut objects = Objects::default();
            objects.refer(keys(&["a"]), true);
            let Seen::Found(data) = found(before.unwrap_or_default()) else { continue };
            objects.recall(&key("a"), before.map(|_| data));
            assert_eq!(objects.learn(&key("a"), not_yet("403"), false), Change::Same);
            assert_eq!(objects.learn(&key("a"), now, false), change, "an earlier agent saw {before:?}");
        }
    }

    #[test]
    fn what_was_seen_outlasts_a_failure() {
        let mut objects = Objects::default();
        objects.refer(keys(&["a", "b"]), true);
        objects.learn(&key("a"), found("1"), false);
        objects.learn(&key("a"), not_yet("no answer"), false);
        objects.learn(&key("b"), not_yet("no answer"), false);
        assert!(objects.is_known(&key("a")) && !objects.has_failed(&key("a")));
        assert!(!objects.is_known(&key("b")) && objects.has_failed(&key("b")));
        assert!(objects.seen(&key("c")).is_none());
    }

    #[test]
    fn names_that_are_no_names_of_the_api_are_refused() {
        for name in ["", ".", "..", "../x", "a/b", "A", "a b", "a?b", ".a", &"a".repeat(254)] {
            assert!(ObjectKey::new(ObjectKind::Secret, "shop", name).is_err(), "{name:?}");
            assert!(ObjectKey::new(ObjectKind::Secret, name, "keys").is_err(), "{name:?}");
        }
        assert!(ObjectKey::new(ObjectKind::ConfigMap, "kube-system", "kube-root-ca.crt").is_ok());
    }
}
