//! From the JSON of the API to a [`Node`]: what is kept, and words that are kept once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;

use super::{
    BadJson, Condition, Effect, Failure, Node, Page, Pairs, Status, Taint, Text, Version, WatchEvent,
    raw::{RawCondition, RawEvent, RawList, RawNode, RawPairs, RawTaint},
};
use crate::{gate::Prefixes, record};

/// What of a node is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Labels and annotations below these are kept.
    pub prefixes: Prefixes,
    /// Labels that rules select nodes by.
    pub labels: BTreeSet<String>,
    /// Whether it is for a controller or for a person.
    pub detail: Detail,
}

/// For whom a node is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// For decisions: messages of conditions are dropped.
    #[default]
    Decisions,
    /// For people: messages of conditions are kept.
    Full,
}

/// Reads nodes, and keeps each word once.
#[derive(Debug, Default)]
pub struct Reader {
    interest: Interest,
    words: BTreeSet<Text>,
    /// Words that found no room since those that no node has any more were dropped.
    missed: usize,
}

/// How many words are kept for sharing. A cluster has some hundred types of conditions, reasons and taint keys; a node that invents
/// new ones all the time must not fill the memory.
const WORDS: usize = 4096;

/// The longest value of an annotation that is kept: "passed" and the name of a rule are shorter. Of a longer one only the key counts.
const VALUE: usize = 512;

// === impl Reader ===

impl Reader {
    /// Reads what this interest asks for.
    pub fn new(interest: Interest) -> Self {
        Self { interest, words: BTreeSet::new(), missed: 0 }
    }

    /// What it reads.
    pub fn interest(&self) -> &Interest {
        &self.interest
    }

    /// Reads a Node.
    pub fn node(&mut self, json: &[u8]) -> Result<Node, BadJson> {
        let raw = parse("a node", json)?;
        self.keep(&raw)
    }

    /// Reads a page of a NodeList.
    pub fn page(&mut self, json: &[u8]) -> Result<Page<Node>, BadJson> {
        let raw: RawList<'_> = parse("a list of nodes", json)?;
        let items = raw.items.iter().map(|item| self.keep(item)).collect::<Result<_, _>>()?;
        let next = Some(raw.metadata.next.to_string()).filter(|next| !next.is_empty());
        Ok(Page { items, version: Version::new(&raw.metadata.resource_version), next })
    }

    /// Reads a line of a watch of nodes.
    pub fn event(&mut self, json: &[u8]) -> Result<WatchEvent<Node>, BadJson> {
        let raw: RawEvent<'_> = parse("a watch event", json)?;
        Ok(match &*raw.kind {
            "ADDED" | "MODIFIED" => WatchEvent::Changed(self.keep(&raw.object)?),
            "DELETED" => WatchEvent::Deleted(self.keep(&raw.object)?),
            "BOOKMARK" => WatchEvent::Bookmark(Version::new(&raw.object.metadata.resource_version)),
            "ERROR" => WatchEvent::Failed(Failure {
                code: raw.object.code,
                reason: raw.object.reason.to_string(),
                message: raw.object.message.to_string(),
            }),
            other => return Err(BadJson::Event(other.to_owned())),
        })
    }

    fn keep(&mut self, raw: &RawNode<'_>) -> Result<Node, BadJson> {
        let meta = &raw.metadata;
        for (what, text) in
            [("a name", &meta.name), ("a UID", &meta.uid), ("a resource version", &meta.resource_version)]
        {
            if text.is_empty() {
                return Err(BadJson::Nameless("node", what));
            }
        }
        let status = &raw.status.0;
        Ok(Node {
            name: Arc::from(&*meta.name),
            uid: Arc::from(&*meta.uid),
            version: Version::new(&meta.resource_version),
            created: time(&meta.creation_timestamp),
            boot_id: Arc::from(&*status.node_info.boot_id),
            labels: self.labels(&meta.labels),
            annotations: self.annotations(&meta.annotations),
            taints: raw.spec.taints.0.iter().map(|taint| self.taint(taint)).collect(),
            conditions: status.conditions.0.iter().map(|condition| self.condition(condition)).collect(),
        })
    }

    fn labels(&mut self, raw: &RawPairs<'_>) -> Pairs {
        let wanted = raw
            .0
            .iter()
            .filter(|(key, _)| self.interest.prefixes.split(key).is_some() || self.interest.labels.contains(&**key));
        let wanted: Vec<_> = wanted.collect();
        wanted.into_iter().map(|(key, value)| (self.word(key), self.word(value))).collect()
    }

    fn annotations(&mut self, raw: &RawPairs<'_>) -> Pairs {
        let mut kept = BTreeMap::new();
        for (key, value) in &raw.0 {
            let value: &str = match &**key {
                record::ANNOTATION if value.len() <= record::LONGEST => value,
                record::ANNOTATION => continue,
                _ if self.interest.prefixes.split(key).is_none() => continue,
                _ if value.len() <= VALUE => value,
                _ => "",
            };
            let value = if value.len() > 32 { Arc::from(value) } else { self.word(value) };
            kept.insert(self.word(key), value);
        }
        kept.into_iter().collect()
    }

    fn taint(&mut self, raw: &RawTaint<'_>) -> Taint {
        Taint {
            key: self.word(&raw.key),
            value: raw.value.as_deref().map(|value| self.word(value)),
            effect: Effect::from(&*raw.effect),
            time_added: raw.time_added.as_deref().map(Arc::from),
            more: raw.more.clone(),
        }
    }

    fn condition(&mut self, raw: &RawCondition<'_>) -> Condition {
        Condition {
            kind: self.word(&raw.kind),
            status: Status::from(&*raw.status),
            reason: self.word(&raw.reason),
            message: match self.interest.detail {
                Detail::Full => Arc::from(&*raw.message),
                Detail::Decisions => self.word(""),
            },
            heartbeat: time(&raw.last_heartbeat_time),
            transition: time(&raw.last_transition_time),
        }
    }

    fn word(&mut self, text: &str) -> Text {
        if let Some(word) = self.words.get(text) {
            return Arc::clone(word);
        }
        if self.words.len() >= WORDS {
            self.missed += 1;
            // Not for every word: a node with thousands of words of its own would cost thousands of walks through all of them.
            if self.missed > WORDS / 8 {
                self.words.retain(|word| Arc::strong_count(word) > 1);
                self.missed = 0;
            }
        }
        let word: Text = text.into();
        if self.words.len() < WORDS {
            self.words.insert(Arc::clone(&word));
        }
        word
    }
}

fn parse<'a, T: serde::Deserialize<'a>>(what: &'static str, json: &'a [u8]) -> Result<T, BadJson> {
    serde_json::from_slice(json).map_err(|error| BadJson::Malformed { what, error })
}

/// A time of the API; none if there is none, or if it is no time.
fn time(text: &str) -> Option<Timestamp> {
    if text.is_empty() { None } else { text.parse().ok() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn reader() -> Reader {
        Reader::new(Interest { labels: BTreeSet::from(["role".to_owned()]), ..Interest::default() })
    }

    fn node() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": "n1", "uid": "u1", "resourceVersion": "7", "creationTimestamp": "2026-01-02T03:04:05Z",
                "labels": {"role": "worker", "readiness.k8s.io/CNIReady": "true", "kubernetes.io/hostname": "n1"},
                "annotations": {
                    "readiness.k8s.io/CNIReady": "passed", "keelet.dev/gates": "{}", "csi.volume.kubernetes.io/nodeid": "{\"a\":1}",
                },
            },
            "spec": {
                "podCIDR": "10.0.0.0/24",
                "taints": [{"key": "a/b", "value": "v", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z", "later": [1]}],
            },
            "status": {
                "images": [{"names": ["x"], "sizeBytes": 1}],
                "nodeInfo": {"bootID": "boot", "kernelVersion": "6"},
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fine \"so far\"",
                    "lastHeartbeatTime": "2026-01-02T03:04:06Z", "lastTransitionTime": "2026-01-02T03:04:05Z",
                }],
            },
        })
    }

    fn read(value: &Value) -> Node {
        reader().node(value.to_string().as_bytes()).unwrap()
    }

    /// GN-10
    #[test]
    fn only_what_decisions_read_is_kept() {
        let read = read(&node());
        assert_eq!((&*read.name, &*read.uid, read.version.as_str(), &*read.boot_id), ("n1", "u1", "7", "boot"));
        assert_eq!(read.created, Some("2026-01-02T03:04:05Z".parse().unwrap()));
        let keys = |pairs: &Pairs| pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>();
        assert_eq!(keys(&read.labels), ["readiness.k8s.io/CNIReady=true", "role=worker"]);
        assert_eq!(keys(&read.annotations), ["keelet.dev/gates={}", "readiness.k8s.io/CNIReady=passed"]);
        let condition = &read.conditions[0];
        assert_eq!((&*condition.kind, condition.status, &*condition.reason), ("Ready", Status::True, "KubeletReady"));
        assert_eq!(&*condition.message, "", "for people only");
        assert_eq!(condition.heartbeat, Some("2026-01-02T03:04:06Z".parse().unwrap()));
        assert_eq!(condition.transition, Some("2026-01-02T03:04:05Z".parse().unwrap()));
    }

    #[test]
    fn people_get_messages() {
        let mut reader = Reader::new(Interest { detail: Detail::Full, ..Interest::default() });
        let read = reader.node(node().to_string().as_bytes()).unwrap();
        assert_eq!(&*read.conditions[0].message, "fine \"so far\"");
    }

    /// CTRL-7: a field of a taint that keelet does not know is written back with the list.
    #[test]
    fn a_taint_is_written_as_it_was_read() {
        let node = node();
        assert_eq!(serde_json::to_value(&read(&node).taints).unwrap(), node["spec"]["taints"]);
    }

    #[test]
    fn what_is_null_is_absent() {
        let bare = json!({
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "1", "labels": null, "annotations": null, "creationTimestamp": null},
            "spec": {"taints": null}, "status": {"conditions": null},
        });
        let read = read(&bare);
        assert_eq!((read.taints.len(), read.conditions.len(), read.created), (0, 0, None));
        let nothing = reader().node(br#"{"metadata":{"name":"n","uid":"u","resourceVersion":"1"}}"#).unwrap();
        assert_eq!(nothing.labels, Pairs::default());
    }

    /// GN-1: a node without a version could not be the precondition of a patch.
    #[test]
    fn a_node_without_name_uid_or_version_is_refused() {
        for (field, what) in [("name", "a name"), ("uid", "a UID"), ("resourceVersion", "a resource version")] {
            let mut node = node();
            node["metadata"][field] = "".into();
            let error = reader().node(node.to_string().as_bytes()).unwrap_err();
            assert!(matches!(error, BadJson::Nameless("node", found) if found == what), "{error}");
        }
    }

    #[test]
    fn statuses_are_exact() {
        let of = |status: &str| {
            let mut node = node();
            node["status"]["conditions"][0]["status"] = status.into();
            read(&node).conditions[0].status
        };
        assert_eq!([of("True"), of("False"), of("Unknown")], [Status::True, Status::False, Status::Unknown]);
        assert_eq!([of("true"), of("TRUE"), of(" True"), of("")], [Status::Unknown; 4]);
    }

    /// GN-3: annotations are written by nodes too, and may be of any length.
    #[test]
    fn long_annotations_are_not_kept() {
        let mut node = node();
        node["metadata"]["annotations"] = json!({
            "keelet.dev/gates": "x".repeat(record::LONGEST + 1), "readiness.k8s.io/A": "y".repeat(VALUE + 1),
        });
        let read = read(&node);
        assert_eq!(read.annotations.get("keelet.dev/gates"), None);
        assert_eq!(read.annotations.get("readiness.k8s.io/A").map(|value| &**value), Some(""));
    }

    #[test]
    fn events_of_a_watch() {
        let line = |kind: &str, object: &Value| json!({"type": kind, "object": object}).to_string();
        let mut reader = reader();
        let mut read = |line: String| reader.event(line.as_bytes());
        assert!(matches!(read(line("ADDED", &node())), Ok(WatchEvent::Changed(node)) if &*node.name == "n1"));
        assert!(matches!(read(line("MODIFIED", &node())), Ok(WatchEvent::Changed(_))));
        assert!(matches!(read(line("DELETED", &node())), Ok(WatchEvent::Deleted(_))));
        let bookmark =
            json!({"kind": "Node", "metadata": {"resourceVersion": "12"}, "spec": {}, "status": {"nodeInfo": {}}});
        assert!(matches!(read(line("BOOKMARK", &bookmark)), Ok(WatchEvent::Bookmark(v)) if v.as_str() == "12"));
        let status =
            json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"});
        let failure = Failure { code: 410, reason: "Expired".to_owned(), message: "too old".to_owned() };
        assert!(matches!(read(line("ERROR", &status)), Ok(WatchEvent::Failed(found)) if found == failure));
        assert!(matches!(read(line("MELTED", &node())), Err(BadJson::Event(kind)) if kind == "MELTED"));
        assert!(matches!(read("{".to_owned()), Err(BadJson::Malformed { .. })));
        assert!(matches!(read(line("ADDED", &json!({}))), Err(BadJson::Nameless("node", "a name"))));
    }

    #[test]
    fn pages_of_a_list() {
        let page = json!({"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [node()]}).to_string();
        let page = reader().page(page.as_bytes()).unwrap();
        assert_eq!((page.items.len(), page.version.as_str(), page.next.as_deref()), (1, "9", Some("more")));
        let last = json!({"metadata": {"resourceVersion": "9", "continue": ""}, "items": []}).to_string();
        assert_eq!(reader().page(last.as_bytes()).unwrap().next, None);
    }

    /// GN-10
    #[test]
    fn words_are_shared_and_bounded() {
        let mut reader = reader();
        let (a, b) = (reader.word("CNIReady"), reader.word("CNIReady"));
        assert!(Arc::ptr_eq(&a, &b));
        for number in 0..3 * WORDS {
            reader.word(&number.to_string());
        }
        assert!(reader.words.len() <= WORDS, "{}", reader.words.len());
        assert!(Arc::ptr_eq(&a, &reader.word("CNIReady")), "a word in use stays shared");
    }

    /// GN-10: a node that invents words by thousands makes no other node's words cost more.
    #[test]
    fn words_that_no_node_has_any_more_make_room_now_and_then() {
        let mut reader = reader();
        let live: Vec<_> = (0..WORDS).map(|number| reader.word(&number.to_string())).collect();
        for number in 0..WORDS / 8 {
            reader.word(&format!("new-{number}"));
        }
        assert_eq!((reader.words.len(), reader.missed), (WORDS, WORDS / 8), "no walk for any of these");
        drop(live);
        let (a, b) = (reader.word("CNIReady"), reader.word("CNIReady"));
        assert!(Arc::ptr_eq(&a, &b) && reader.words.len() == 1);
    }

    /// CTRL-13
    #[test]
    fn a_heartbeat_says_nothing_new() {
        let before = node();
        let mut after = node();
        after["metadata"]["resourceVersion"] = "8".into();
        after["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-02T03:05:06Z".into();
        assert!(read(&before).says_the_same(&read(&after)));
        for (pointer, value) in [
            ("/status/conditions/0/status", json!("False")),
            ("/status/conditions/0/type", json!("NotReady")),
            ("/status/conditions/0/lastTransitionTime", json!("2026-01-02T03:05:06Z")),
            ("/spec/taints/0/value", json!("w")),
            ("/spec/taints", json!([])),
            ("/metadata/annotations/readiness.k8s.io~1CNIReady", json!("")),
            ("/metadata/labels/role", json!("")),
            ("/metadata/uid", json!("u2")),
            ("/status/nodeInfo/bootID", json!("other")),
        ] {
            let mut changed = node();
            *changed.pointer_mut(pointer).unwrap() = value;
            assert!(!read(&before).says_the_same(&read(&changed)), "{pointer}");
        }
    }
}
