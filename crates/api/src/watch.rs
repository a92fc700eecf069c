//! Lists and watches as the API server sends them.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

/// The `resourceVersion` of an object; empty of one that does not exist yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version(Arc<str>);

/// An event of a watch.
#[derive(Debug)]
pub enum WatchEvent<T> {
    /// The object was created or changed.
    Changed(T),
    /// The object was deleted: its last state.
    Deleted(T),
    /// The watch has seen everything up to this version.
    Bookmark(Version),
    /// The watch has sent every object that there was at this version; changes follow.
    Complete(Version),
    /// The API server ended the watch.
    Failed(Failure),
}

/// A page of a list.
#[derive(Debug)]
pub struct Page<T> {
    /// The objects of this page.
    pub items: Vec<T>,
    /// The version of the list, from which a watch continues.
    pub version: Version,
    /// How to ask for the next page; none after the last.
    pub next: Option<String>,
}

/// What the API server said when it refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Failure {
    /// The code of the HTTP answer.
    pub code: u16,
    /// `Expired`, `Conflict`, `Forbidden`, ...
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

/// What came is not what the API server should send.
#[derive(Debug, thiserror::Error)]
pub enum BadJson {
    /// It is no JSON, or has strings where there should be objects.
    #[error("cannot read {what} of the API server: {error}")]
    Malformed {
        /// What should have come.
        what: &'static str,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// An object without a name or UID.
    #[error("the API server sent a {0} without {1}")]
    Nameless(&'static str, &'static str),
    /// An event of a type that the API does not have.
    #[error("the API server sent a watch event of the unknown type {0:?}")]
    Event(String),
}

#[derive(Debug, Deserialize)]
struct RawList {
    metadata: RawMeta,
    #[serde(default)]
    items: Vec<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    next: String,
}

#[derive(Debug, Deserialize)]
struct RawEvent {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

/// Reads a page of a list, each object by `read`.
pub fn read_page<T>(json: &[u8], read: impl FnMut(Value) -> Result<T, BadJson>) -> Result<Page<T>, BadJson> {
    let list: RawList = parse("a list", json)?;
    let items = list.items.into_iter().map(read).collect::<Result<_, _>>()?;
    let next = Some(list.metadata.next).filter(|next| !next.is_empty());
    Ok(Page { items, version: Version::new(&list.metadata.resource_version), next })
}

/// Reads a line of a watch, its object by `read`.
pub fn read_event<T>(json: &[u8], read: impl FnOnce(Value) -> Result<T, BadJson>) -> Result<WatchEvent<T>, BadJson> {
    let RawEvent { kind, object } = parse("a watch event", json)?;
    Ok(match &*kind {
        "ADDED" | "MODIFIED" => WatchEvent::Changed(read(object)?),
        "DELETED" => WatchEvent::Deleted(read(object)?),
        "BOOKMARK" if ends_first_events(&object) => WatchEvent::Complete(Version::of(&object)),
        "BOOKMARK" => WatchEvent::Bookmark(Version::of(&object)),
        "ERROR" => WatchEvent::Failed(serde_json::from_value(object).unwrap_or_default()),
        _ => return Err(BadJson::Event(kind)),
    })
}

/// Whether a bookmark says that the objects of the beginning have all been sent.
fn ends_first_events(bookmark: &Value) -> bool {
    bookmark["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
}

fn parse<'a, T: Deserialize<'a>>(what: &'static str, json: &'a [u8]) -> Result<T, BadJson> {
    serde_json::from_slice(json).map_err(|error| BadJson::Malformed { what, error })
}

// === impl Version ===

impl Version {
    /// A version as the API server wrote it.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The version of an object.
    pub fn of(object: &Value) -> Self {
        Self::new(object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default())
    }

    /// As the API server wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether an object of this version is older than one of the other. Versions are numbers that grow; one that is not a number is
    /// never older, so that what the API server said last wins.
    pub fn is_older_than(&self, other: &Self) -> bool {
        let (Ok(this), Ok(other)) = (self.0.parse::<u64>(), other.0.parse::<u64>()) else { return false };
        this < other
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn name(object: Value) -> Result<String, BadJson> {
        object["metadata"]["name"].as_str().map(str::to_owned).ok_or(BadJson::Nameless("thing", "a name"))
    }

    #[test]
    fn pages_say_where_a_watch_continues_and_whether_there_is_more() {
        let page = |next: &str| {
            let list =
                json!({"metadata": {"resourceVersion": "9", "continue": next}, "items": [{"metadata": {"name": "a"}}]});
            read_page(list.to_string().as_bytes(), name).unwrap()
        };
        let (first, last) = (page("more"), page(""));
        assert_eq!(
            (first.items, first.version.as_str(), first.next.as_deref()),
            (vec!["a".to_owned()], "9", Some("more"))
        );
        assert_eq!(last.next, None);
        let nameless = json!({"metadata": {}, "items": [{}]}).to_string();
        assert!(matches!(read_page(nameless.as_bytes(), name), Err(BadJson::Nameless("thing", "a name"))));
    }

    #[test]
    fn lines_of_a_watch_are_changes_deletions_bookmarks_and_failures() {
        let read = |kind: &str, object: Value| {
            read_event(json!({"type": kind, "object": object}).to_string().as_bytes(), name)
        };
        let named = || json!({"metadata": {"name": "a", "resourceVersion": "3"}});
        assert!(matches!(read("ADDED", named()), Ok(WatchEvent::Changed(found)) if found == "a"));
        assert!(matches!(read("MODIFIED", named()), Ok(WatchEvent::Changed(_))));
        assert!(matches!(read("DELETED", named()), Ok(WatchEvent::Deleted(_))));
        assert!(matches!(read("BOOKMARK", named()), Ok(WatchEvent::Bookmark(version)) if version.as_str() == "3"));
        let last = json!({"metadata": {"resourceVersion": "3", "annotations": {"k8s.io/initial-events-end": "true"}}});
        assert!(matches!(read("BOOKMARK", last), Ok(WatchEvent::Complete(version)) if version.as_str() == "3"));
        assert!(matches!(read("ERROR", json!({"code": 410})), Ok(WatchEvent::Failed(failure)) if failure.code == 410));
        assert!(matches!(read("MELTED", named()), Err(BadJson::Event(kind)) if kind == "MELTED"));
        assert!(matches!(read_event(b"{", name), Err(BadJson::Malformed { .. })));
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let older = |a: &str, b: &str| Version::new(a).is_older_than(&Version::new(b));
        assert_eq!(
            [older("9", "10"), older("10", "9"), older("9", "9"), older("x", "9"), older("9", "")],
            [true, false, false, false, false]
        );
    }
}
