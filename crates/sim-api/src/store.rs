//! What is stored, under one growing revision, as etcd keeps it: objects, and all changes.
//!
//! Nothing here knows what an object means. Every change gets the next revision, which is written into the object as its
//! resourceVersion. Lists of the past and watches are made from the changes.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;

/// Where an object is: `nodes n1`, `pods default/web`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The plural and the group, as messages name them: `leases.coordination.k8s.io`.
    pub resource: Arc<str>,
    /// Empty for objects of the whole cluster.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

/// A change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    /// When, since the beginning.
    pub(crate) at: Duration,
    pub(crate) key: Key,
    /// What was stored before.
    pub(crate) before: Option<Arc<Value>>,
    /// What is stored now. Of a deleted object, nothing.
    pub(crate) after: Option<Arc<Value>>,
}

/// All objects and changes.
#[derive(Debug)]
pub(crate) struct Store {
    revision: u64,
    /// What was before this revision is not shown any more.
    compacted: u64,
    /// By resource, then by path within it, in the order in which lists give them.
    objects: BTreeMap<Arc<str>, BTreeMap<String, Arc<Value>>>,
    /// By resource.
    changes: BTreeMap<Arc<str>, VecDeque<Change>>,
    /// When each revision was made, since the beginning; the first entry is that of the first revision.
    times: Vec<Duration>,
    restores: u32,
}

/// Why the past cannot be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// It is compacted.
    Compacted,
    /// It is still to come.
    Future,
}

// === impl Key ===

impl Key {
    /// The path within the resource. Lists are sorted by it.
    pub(crate) fn path(&self) -> String {
        if self.namespace.is_empty() { self.name.clone() } else { format!("{}/{}", self.namespace, self.name) }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.resource, self.path())
    }
}

// === impl Store ===

impl Default for Store {
    fn default() -> Self {
        // As an etcd that nothing was written to.
        Self {
            revision: 1,
            compacted: 0,
            objects: BTreeMap::new(),
            changes: BTreeMap::new(),
            times: vec![Duration::ZERO],
            restores: 0,
        }
    }
}

impl Store {
    /// The revision of the last change.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The last revision that was made by that time.
    pub(crate) fn revision_at(&self, at: Duration) -> u64 {
        self.times.partition_point(|time| *time <= at).max(1) as u64
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(&key.resource)?.get(&key.path())
    }

    /// All objects of a resource, or those of a namespace, sorted by path.
    pub(crate) fn list<'a>(
        &'a self,
        resource: &str,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a String, &'a Arc<Value>)> {
        let objects = self.objects.get(resource).into_iter().flatten();
        objects.filter(move |(path, _)| is_in(path, namespace))
    }

    /// The objects as they were at a revision.
    pub(crate) fn list_at(
        &self,
        resource: &str,
        namespace: &str,
        revision: u64,
    ) -> Result<BTreeMap<String, Arc<Value>>, Unknown> {
        let mut objects: BTreeMap<String, Arc<Value>> =
            self.list(resource, namespace).map(|(path, object)| (path.clone(), Arc::clone(object))).collect();
        if revision > self.revision {
            return Err(Unknown::Future);
        }
        if revision < self.compacted {
            return Err(Unknown::Compacted);
        }
        for change in self.changes.get(resource).into_iter().flatten().rev() {
            if change.revision <= revision {
                break;
            }
            let path = change.key.path();
            if is_in(&path, namespace) {
                match &change.before {
                    Some(before) => drop(objects.insert(path, Arc::clone(before))),
                    None => drop(objects.remove(&path)),
                }
            }
        }
        Ok(objects)
    }

    /// The changes of a resource after a revision. Those before a compaction are there for watches that began earlier.
    pub(crate) fn changes_after(&self, resource: &str, revision: u64) -> impl Iterator<Item = &Change> {
        let changes = self.changes.get(resource);
        let first = changes.map_or(0, |changes| changes.partition_point(|change| change.revision <= revision));
        changes.into_iter().flat_map(move |changes| changes.range(first..))
    }

    /// Stores an object, or with `None` deletes it. The revision is written into what is stored.
    pub(crate) fn put(&mut self, key: Key, object: Option<Value>, at: Duration) -> Change {
        self.revision += 1;
        self.times.push(at);
        let revision = self.revision;
        let after = object.map(|mut object| {
            object["metadata"]["resourceVersion"] = revision.to_string().into();
            Arc::new(object)
        });
        let objects = self.objects.entry(Arc::clone(&key.resource)).or_default();
        let path = key.path();
        let before = match &after {
            Some(after) => objects.insert(path, Arc::clone(after)),
            None => objects.remove(&path),
        };
        let change = Change { revision, at, key, before, after };
        self.changes.entry(Arc::clone(&change.key.resource)).or_default().push_back(change.clone());
        change
    }

    /// Has again what it had at a revision, and forgets all that came after it, as an etcd does that was restored from a backup.
    pub(crate) fn restore(&mut self, revision: u64) {
        let revision = revision.clamp(1, self.revision);
        for (resource, changes) in &mut self.changes {
            let objects = self.objects.entry(Arc::clone(resource)).or_default();
            while let Some(change) = changes.pop_back_if(|change| change.revision > revision) {
                let path = change.key.path();
                match change.before {
                    Some(before) => drop(objects.insert(path, before)),
                    None => drop(objects.remove(&path)),
                }
            }
        }
        self.revision = revision;
        self.times.truncate(usize::try_from(revision).unwrap_or(usize::MAX));
        self.compacted = self.compacted.min(revision);
        self.restores += 1;
    }

    /// How often it was restored.
    pub(crate) fn restores(&self) -> u32 {
        self.restores
    }

    /// Shows nothing any more of what was before a revision.
    pub(crate) fn compact(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision.min(self.revision));
    }

    /// The oldest revision that a watch may begin at.
    pub(crate) fn oldest(&self) -> u64 {
        self.compacted
    }
}

fn is_in(path: &str, namespace: &str) -> bool {
    namespace.is_empty() || path.strip_prefix(namespace).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn key(name: &str) -> Key {
        Key { resource: "pods".into(), namespace: "default".to_owned(), name: name.to_owned() }
    }

    fn names(store: &Store, revision: u64) -> Result<Vec<String>, Unknown> {
        store.list_at("pods", "", revision).map(|objects| {
            objects.values().map(|o| format!("{} {}", o["name"], o["metadata"]["resourceVersion"])).collect()
        })
    }

    #[test]
    fn the_past_can_be_listed_until_it_is_compacted() {
        let mut store = Store::default();
        store.put(key("a"), Some(json!({ "name": "a" })), secs(1));
        store.put(key("b"), Some(json!({ "name": "b" })), secs(2));
        store.put(key("a"), Some(json!({ "name": "A" })), secs(2));
        store.put(key("b"), None, secs(5));
        assert_eq!(names(&store, 1), Ok(vec![]));
        assert_eq!(names(&store, 3), Ok(vec!["\"a\" \"2\"".to_owned(), "\"b\" \"3\"".to_owned()]));
        assert_eq!(names(&store, 4), Ok(vec!["\"A\" \"4\"".to_owned(), "\"b\" \"3\"".to_owned()]));
        assert_eq!(names(&store, 5), Ok(vec!["\"A\" \"4\"".to_owned()]));
        assert_eq!(names(&store, 6), Err(Unknown::Future));
        store.compact(4);
        assert_eq!(names(&store, 3), Err(Unknown::Compacted));
        assert_eq!(names(&store, 4), Ok(vec!["\"A\" \"4\"".to_owned(), "\"b\" \"3\"".to_owned()]));
        let after: Vec<u64> = store.changes_after("pods", 4).map(|c| c.revision).collect();
        assert_eq!(after, [5]);
        let revisions = [0, 1, 2, 4, 5, 9].map(|at| store.revision_at(secs(at)));
        assert_eq!(revisions, [1, 2, 4, 4, 5, 5]);
    }

    #[test]
    fn a_restored_store_is_as_it_was() {
        let mut store = Store::default();
        store.put(key("a"), Some(json!({ "name": "a" })), secs(1));
        store.put(key("b"), Some(json!({ "name": "b" })), secs(2));
        let before = names(&store, 3);
        store.put(key("a"), None, secs(3));
        store.put(key("b"), Some(json!({ "name": "B" })), secs(4));
        store.put(key("c"), Some(json!({ "name": "c" })), secs(5));
        store.restore(3);
        assert_eq!((store.revision(), store.revision_at(secs(9)), store.restores()), (3, 3, 1));
        assert_eq!(names(&store, 3), before);
        assert_eq!(store.changes_after("pods", 0).count(), 2);
        assert_eq!(store.put(key("d"), Some(json!({ "name": "d" })), secs(9)).revision, 4);
    }

    #[test]
    fn lists_are_sorted_by_path_and_bound_to_a_namespace() {
        let mut store = Store::default();
        for (namespace, name) in [("a", "x"), ("a-b", "x"), ("ab", "x")] {
            let key = Key { resource: "pods".into(), namespace: namespace.to_owned(), name: name.to_owned() };
            store.put(key, Some(json!({})), Duration::ZERO);
        }
        let paths = |namespace: &str| store.list("pods", namespace).map(|(path, _)| path.clone()).collect::<Vec<_>>();
        assert_eq!(paths(""), ["a-b/x", "a/x", "ab/x"]);
        assert_eq!(paths("a"), ["a/x"]);
    }
}
