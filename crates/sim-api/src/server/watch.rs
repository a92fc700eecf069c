//! Watches: what a client gets to see of the changes of a collection, in the order of their revisions.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    Answer, Body, Call, Result, Server,
    list::{Selection, invalid_options, version},
};
use crate::{
    field::FieldError,
    refusal::Refusal,
    request::Target,
    resources::Resource,
    store::{Change, Store, Unknown},
};

/// An open watch. It holds where it is; the changes are the store's.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) resource: Arc<Resource>,
    namespace: String,
    selection: Selection,
    only_metadata: bool,
    /// The revision up to which everything was given out.
    cursor: u64,
    /// What is given out before any change: the state that the watch begins with.
    first: VecDeque<WatchEvent>,
    /// Whether the client asked for bookmarks.
    pub(crate) bookmarks: bool,
    /// How long it lasts.
    pub(crate) timeout: Duration,
    /// Whether nothing follows what is in `first`.
    pub(crate) over: bool,
}

/// One event, as it is sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WatchEvent {
    pub(crate) kind: &'static str,
    pub(crate) object: Value,
}

/// A watch that says nothing about its end lasts this long and up to twice as long.
const LEAST_TIMEOUT: Duration = Duration::from_secs(1800);

const END_OF_FIRST: &str = "k8s.io/initial-events-end";

// === impl Server ===

impl Server {
    pub(super) fn watch(&mut self, call: &Call<'_>, target: &Target, resource: &Arc<Resource>) -> Result<Answer> {
        let selection = Selection::parse(target, &call.query, resource)?;
        let asked = version(&call.query)?;
        let mut with_first = call.query.switch("sendInitialEvents");
        let matched = call.query.get("resourceVersionMatch");
        options(with_first, matched)?;
        if with_first.is_none() && asked.unwrap_or(0) == 0 {
            with_first = Some(true);
        }
        let timeout = match call.query.number("timeoutSeconds")? {
            Some(seconds @ 1..) => Duration::from_secs(seconds.unsigned_abs()),
            _ => LEAST_TIMEOUT + self.random.millis(LEAST_TIMEOUT),
        };
        let newest = self.store.revision();
        let mut watch = Watch {
            resource: Arc::clone(resource),
            namespace: if resource.namespaced { target.namespace.clone() } else { String::new() },
            selection,
            only_metadata: call.wants_metadata(),
            cursor: newest,
            first: VecDeque::new(),
            bookmarks: call.query.flag("allowWatchBookmarks"),
            timeout,
            over: false,
        };
        if with_first == Some(true) {
            watch.begin_with_state(&self.store, call, asked);
        } else if let Some(asked) = asked.filter(|asked| *asked > 0) {
            watch.cursor = asked;
            if asked > newest && self.store.restores() > 0 {
                // What was seen before the server was restored from a backup. A real one lets the watch wait; here it is refused, so that clients list
                // again at once.
                watch.fail(&Refusal::too_large_version(asked, newest));
            }
            if asked < self.store.oldest() {
                watch.fail(&Refusal::expired(format!("too old resource version: {asked} ({})", self.store.oldest())));
            }
        }
        Ok(Answer { code: 200, body: Body::Watch(Box::new(watch)) })
    }
}

/// Refuses options that do not go together.
fn options(with_first: Option<bool>, matched: Option<&str>) -> Result<()> {
    let field = "resourceVersionMatch";
    let mut errors = Vec::new();
    if with_first.is_some() && matched != Some("NotOlderThan") {
        let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.push(FieldError::forbidden(field, detail));
    }
    if let Some(matched) = matched {
        if with_first.is_none() {
            let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden(field, detail));
        }
        if matched != "NotOlderThan" {
            errors.push(FieldError::not_supported(field, &matched.into(), &["NotOlderThan"]));
        }
    }
    invalid_options(&errors)
}

// === impl Watch ===

impl Watch {
    /// Begins with the objects that are there, as if they had just been added.
    fn begin_with_state(&mut self, store: &Store, call: &Call<'_>, asked: Option<u64>) {
        let newest = store.revision();
        let shown = call.shown.min(newest);
        let revision = match asked {
            None if call.breaks_promise => shown,
            None => newest,
            Some(least) if least > newest => return self.fail(&Refusal::too_large_version(least, newest)),
            Some(least) => shown.max(least),
        };
        match store.list_at(&self.resource.stored, &self.namespace, revision) {
            Ok(objects) => {
                let selected = objects.values().filter(|object| self.selection.matches(&self.resource, object));
                self.first = selected.map(|object| self.event("ADDED", object)).collect();
                self.cursor = revision;
                if self.bookmarks {
                    let mut end = self.bookmark(revision);
                    end.object["metadata"]["annotations"] = json!({ END_OF_FIRST: "true" });
                    self.first.push_back(end);
                }
            }
            Err(Unknown::Compacted | Unknown::Future) => {
                self.fail(&Refusal::expired(format!("too old resource version: {revision} ({})", store.oldest())));
            }
        }
    }

    /// Ends with an error, which is an event of the stream.
    pub(crate) fn fail(&mut self, why: &Refusal) {
        self.first.push_back(WatchEvent { kind: "ERROR", object: why.to_status() });
        self.over = true;
    }

    /// Everything that happened up to a time and was not given out yet; and when the next change after that time
    /// happened, if there is one already.
    pub(crate) fn take(&mut self, store: &Store, until: Duration) -> (Vec<WatchEvent>, Option<Duration>) {
        let mut events: Vec<WatchEvent> = self.first.drain(..).collect();
        if self.over {
            return (events, None);
        }
        for change in store.changes_after(&self.resource.stored, self.cursor) {
            if change.at > until {
                return (events, Some(change.at));
            }
            self.cursor = change.revision;
            events.extend(self.seen(change));
        }
        // Changes of other resources count for bookmarks.
        self.cursor = self.cursor.max(store.revision_at(until));
        (events, None)
    }

    /// The revision up to which everything was given out.
    pub(crate) fn cursor(&self) -> u64 {
        self.cursor
    }

    /// What a change looks like to this watch: an object may come into its selection, and leave it.
    fn seen(&self, change: &Change) -> Option<WatchEvent> {
        if !self.namespace.is_empty() && change.key.namespace != self.namespace {
            return None;
        }
        let selected = |object: &Option<Arc<Value>>| {
            object.as_ref().filter(|object| self.selection.matches(&self.resource, object)).cloned()
        };
        match (selected(&change.before), selected(&change.after)) {
            (None, None) => None,
            (None, Some(after)) => Some(self.event("ADDED", &after)),
            (Some(_), Some(after)) => Some(self.event("MODIFIED", &after)),
            (Some(before), None) => {
                let mut gone = (*before).clone();
                gone["metadata"]["resourceVersion"] = change.revision.to_string().into();
                Some(self.event("DELETED", &gone))
            }
        }
    }

    fn event(&self, kind: &'static str, object: &Value) -> WatchEvent {
        let object =
            if self.only_metadata { Resource::printed_metadata(object) } else { self.resource.printed(object) };
        WatchEvent { kind, object }
    }

    /// A bookmark: an empty object that says how far the watch is.
    pub(crate) fn bookmark(&self, revision: u64) -> WatchEvent {
        let mut empty = self.resource.strategy.decode(json!({})).unwrap_or_else(|_| json!({}));
        empty["metadata"] = json!({ "resourceVersion": revision.to_string() });
        self.event("BOOKMARK", &empty)
    }
}

// === impl WatchEvent ===

impl WatchEvent {
    /// The line that is sent.
    pub(crate) fn line(&self) -> String {
        let mut line = json!({ "type": self.kind, "object": self.object }).to_string();
        line.push('\n');
        line
    }
}
