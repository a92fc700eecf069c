//! The body of a watch: lines as they come, bookmarks, and its end.

use std::{pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::time::{Instant, sleep_until};

use crate::{
    connection::{AnswerBody, Connection, ConnectionError},
    faults::{Partition, WatchEnd, WatchFate},
    log::Happening,
    refusal::Refusal,
    server::Watch,
};

/// Bookmarks come this often, and once more shortly before the end.
const BOOKMARKS: Duration = Duration::from_secs(60);
const BEFORE_END: Duration = Duration::from_secs(2);

/// A watch that is being read.
struct Follower {
    connection: Connection,
    watch: Box<Watch>,
    opened: Instant,
    next_bookmark: Option<Instant>,
    fate: WatchFate,
    /// How often the store had been restored when it was opened.
    restores: u32,
    /// What has been decided to be the last thing.
    last: Option<Last>,
}

/// How it ends.
enum Last {
    Nothing,
    Error,
}

/// What to do next.
enum Step {
    /// Send this.
    Send(Bytes),
    /// Nothing happens before this time, or before something changes.
    Wait(Instant),
    /// Silence until the server can be reached again; then the connection is broken.
    Silence,
    /// No more.
    End(Last),
}

/// The stream of a watch. Nothing happens on its own: what is due is computed when the client reads.
pub(crate) fn follow(connection: Connection, watch: Box<Watch>) -> AnswerBody {
    let opened = Instant::now();
    let (fate, restores) = {
        let mut state = connection.shared.lock();
        let restores = state.server.store.restores();
        let client = state.client(&connection.name);
        (client.faults.watch_fate(&mut client.random), restores)
    };
    let next_bookmark = watch.bookmarks.then(|| opened + BOOKMARKS);
    let follower = Follower { connection, watch, opened, next_bookmark, fate, restores, last: None };
    let frames = stream::unfold(follower, |mut follower| async {
        let frame = follower.next().await?;
        Some((frame.map(Frame::data), follower))
    });
    StreamBody::new(frames).boxed_unsync()
}

// === impl Follower ===

impl Follower {
    async fn next(&mut self) -> Option<Result<Bytes, ConnectionError>> {
        match self.last.take() {
            Some(Last::Nothing) => {
                self.last = Some(Last::Nothing);
                return None;
            }
            Some(Last::Error) => {
                self.last = Some(Last::Nothing);
                return Some(Err(ConnectionError::Reset));
            }
            None => {}
        }
        loop {
            self.connection.process.running().await;
            let shared = Arc::clone(&self.connection.shared);
            let mut changes = pin!(shared.changed.notified());
            changes.as_mut().enable();
            match self.step() {
                Step::Send(bytes) => {
                    // A process that was stopped meanwhile reads it later.
                    self.connection.process.running().await;
                    return Some(Ok(bytes));
                }
                Step::End(Last::Nothing) => {
                    self.last = Some(Last::Nothing);
                    return None;
                }
                Step::End(Last::Error) => {
                    self.last = Some(Last::Nothing);
                    return Some(Err(ConnectionError::Reset));
                }
                Step::Silence => {
                    self.connection.shared.reachable_again(&self.connection.name).await;
                    self.note("went silent");
                    self.last = Some(Last::Nothing);
                    return Some(Err(ConnectionError::Reset));
                }
                Step::Wait(until) => {
                    tokio::select! {
                        biased;
                        () = changes => {}
                        () = sleep_until(until) => {}
                    }
                }
            }
        }
    }

    fn step(&mut self) -> Step {
        let now = Instant::now();
        let at = self.connection.shared.clock.elapsed();
        let end = self.opened + self.watch.timeout;
        let mut state = self.connection.shared.lock();
        match state.client(&self.connection.name).faults.partition {
            Partition::Open => {}
            Partition::Silent => return Step::Silence,
            Partition::Refused => {
                drop(state);
                self.note("connection reset");
                return Step::End(Last::Error);
            }
        }
        if state.server.store.restores() != self.restores {
            drop(state);
            self.note("connection reset");
            return Step::End(Last::Error);
        }
        let (events, later) = self.watch.take(&state.server.store, at.saturating_sub(self.fate.lag));
        let cursor = self.watch.cursor();
        drop(state);
        let early = self.fate.end.map(|(after, how)| (self.opened + after, how)).filter(|(when, _)| *when <= now);
        if !events.is_empty() {
            let mut text: String = events.iter().map(|event| event.line()).collect();
            if let Some((_, WatchEnd::Breaks)) = early {
                // The connection breaks in the middle of the last line.
                text.truncate(text.len() - text.len() / 3);
                self.note("broke");
                self.last = Some(Last::Error);
            }
            return Step::Send(Bytes::from(text));
        }
        if self.watch.over {
            self.note("failed");
            return Step::End(Last::Nothing);
        }
        if let Some((_, how)) = early {
            return self.end_early(how);
        }
        if now >= end {
            self.note("timed out");
            return Step::End(Last::Nothing);
        }
        if self.next_bookmark.is_some_and(|next| next <= now) {
            let last = end - BEFORE_END;
            self.next_bookmark = Some(if now < last { (now + BOOKMARKS).min(last) } else { end + BOOKMARKS });
            return Step::Send(Bytes::from(self.watch.bookmark(cursor).line()));
        }
        let due = [
            self.next_bookmark,
            later.map(|change| now + (change + self.fate.lag).saturating_sub(at)),
            self.fate.end.map(|(after, _)| self.opened + after),
        ];
        Step::Wait(due.into_iter().flatten().fold(end, Instant::min))
    }

    fn end_early(&mut self, how: WatchEnd) -> Step {
        match how {
            WatchEnd::Ends => {
                self.note("ended early");
                Step::End(Last::Nothing)
            }
            WatchEnd::Breaks => {
                self.note("broke");
                Step::End(Last::Error)
            }
            WatchEnd::Stalls => Step::Silence,
            WatchEnd::Gone => {
                self.fate.end = None;
                self.watch.fail(&Refusal::expired("The resourceVersion for the provided watch is too old."));
                self.step()
            }
        }
    }

    fn note(&self, why: &'static str) {
        let what = Happening::WatchEnded { resource: self.watch.resource.stored.clone(), why };
        self.connection.shared.note(&self.connection.name, what);
    }
}
