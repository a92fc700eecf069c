//! What is new, one JSON object a line, for clients that watch.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use axum::{
    body::Body,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::stream;
use serde_json::Value;
use tokio::sync::watch;

use crate::api::{Change, ChangeKind};

/// Lists all things of a kind, by whatever distinguishes them. A thing that has changed is another `Arc`.
pub(super) type List<T> = Box<dyn Fn() -> BTreeMap<String, Arc<T>> + Send>;

/// How one of them is shown.
pub(super) type Show<T> = Box<dyn Fn(&T) -> Result<Value, serde_json::Error> + Send>;

struct Watching<T> {
    changes: watch::Receiver<u64>,
    list: List<T>,
    show: Show<T>,
    /// What was reported to the reader.
    known: BTreeMap<String, Arc<T>>,
    /// Lines that were not taken yet: never more than one round of them.
    lines: VecDeque<Bytes>,
    begun: bool,
}

/// An answer that goes on for as long as a client reads it. A slow client misses steps in between and never the newest
/// state; nothing piles up for it.
pub(super) fn answer<T: Send + Sync + 'static>(
    changes: watch::Receiver<u64>,
    list: List<T>,
    show: Show<T>,
) -> Response {
    let watching = Watching { changes, list, show, known: BTreeMap::new(), lines: VecDeque::new(), begun: false };
    let lines = stream::unfold(watching, |mut watching| async {
        let line = watching.next().await?;
        Some((Ok::<_, std::convert::Infallible>(line), watching))
    });
    ([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

// === impl Watching ===

impl<T> Watching<T> {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            if self.begun {
                self.changes.changed().await.ok()?;
            }
            self.begun = true;
            self.changes.borrow_and_update();
            self.round();
        }
    }

    fn round(&mut self) {
        let now = (self.list)();
        let gone =
            self.known.iter().filter(|(key, _)| !now.contains_key(*key)).map(|(_, thing)| (ChangeKind::Deleted, thing));
        let here = now.iter().filter_map(|(key, thing)| match self.known.get(key) {
            None => Some((ChangeKind::Added, thing)),
            Some(old) if Arc::ptr_eq(old, thing) => None,
            Some(_) => Some((ChangeKind::Modified, thing)),
        });
        for (kind, thing) in gone.chain(here) {
            match (self.show)(thing).and_then(|object| serde_json::to_vec(&Change { kind, object })) {
                Ok(mut line) => {
                    line.push(b'\n');
                    self.lines.push_back(line.into());
                }
                Err(error) => tracing::warn!(%error, "cannot encode a change for watch clients"),
            }
        }
        self.known = now;
    }
}
