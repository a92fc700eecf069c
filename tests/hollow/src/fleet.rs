//! Creating hollow nodes, keeping them alive, deleting them.

use std::{
    collections::BTreeSet,
    ops::ControlFlow,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{
    StreamExt as _, TryStreamExt as _,
    stream::{self, FuturesUnordered},
};
use kube::{
    Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams},
};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use crate::{
    Pace, Shape,
    follow::{Change, follow},
    objects::{self, Seen},
};

/// The taint that the API server gives every new node, until the controller manager sees that it is ready.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Why a step for the fleet failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A node or its lease was not created.
    #[error("creating node {name}: {source}")]
    Create {
        /// The node.
        name: String,
        /// The answer.
        #[source]
        source: kube::Error,
    },
    /// The nodes could not be watched.
    #[error("watching nodes: {0}")]
    Watch(#[source] kube::Error),
    /// Nodes or leases were not deleted.
    #[error("deleting nodes: {0}")]
    Delete(#[source] kube::Error),
}

/// What was done so far.
#[derive(Debug, Default)]
pub struct Tally {
    /// Nodes created.
    pub created: AtomicUsize,
    /// Leases renewed.
    pub renewals: AtomicUsize,
    /// Statuses reported.
    pub heartbeats: AtomicUsize,
    /// Requests that failed.
    pub errors: AtomicUsize,
    /// How many milliseconds the last request was late.
    pub behind: AtomicU64,
    last_error: Mutex<String>,
}

/// What a node has to do from time to time.
#[derive(Clone, Copy, Debug)]
enum Duty {
    /// Renew its lease.
    Renew,
    /// Report its status.
    Report,
}

/// Does the duties of all nodes.
#[derive(Clone, Copy)]
struct Keeper<'a> {
    client: &'a Client,
    shape: &'a Shape,
    in_flight: usize,
    tally: &'a Tally,
}

/// Creates the nodes and their leases. Those that are there already stay as they are.
pub async fn create(client: &Client, shape: &Shape, in_flight: usize, tally: &Tally) -> Result<(), Error> {
    stream::iter(0..shape.nodes)
        .map(|index| async move {
            let created = create_one(client, shape, index).await;
            tally.created.fetch_add(1, Ordering::Relaxed);
            created.map_err(|source| Error::Create { name: shape.name(index), source })
        })
        .buffer_unordered(in_flight.max(1))
        .try_collect()
        .await
}

/// Waits until all nodes are there and the controller manager has accepted them.
pub async fn accepted(client: &Client, shape: &Shape) -> Result<(), Error> {
    let mut waiting: BTreeSet<String> = (0..shape.nodes).map(|index| shape.name(index)).collect();
    let selected = WatchParams::default().labels(&shape.selector());
    let each = |change| {
        match change {
            Change::Applied(Seen { metadata, spec, .. }) => {
                if spec.taints.iter().any(|taint| taint.key == NOT_READY) {
                    waiting.insert(metadata.name);
                } else {
                    waiting.remove(&metadata.name);
                }
            }
            Change::Deleted(Seen { metadata, .. }) => {
                waiting.insert(metadata.name);
            }
            Change::Began | Change::Complete => {}
        }
        if waiting.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    follow(client, &objects::nodes(), &selected, each).await.map_err(Error::Watch)
}

/// Renews leases and reports statuses, for ever. Requests are spread evenly over the pace's periods; those that fail are counted and made
/// again when they are due again.
pub async fn keep_alive(client: &Client, shape: &Shape, pace: &Pace, tally: &Tally) {
    let keeper = Keeper { client, shape, in_flight: pace.in_flight.max(1), tally };
    tokio::join!(keeper.one_by_one(Duty::Renew, pace.lease), keeper.one_by_one(Duty::Report, pace.heartbeat));
}

/// Deletes the nodes and their leases.
pub async fn delete(client: &Client, prefix: &str) -> Result<(), Error> {
    let selected = ListParams::default().labels(&Shape::new(prefix, 0).selector());
    for request in [objects::nodes(), objects::leases()] {
        let sent = request.delete_collection(&DeleteParams::default(), &selected);
        send(client, sent).await.map_err(Error::Delete)?;
    }
    Ok(())
}

async fn create_one(client: &Client, shape: &Shape, index: usize) -> Result<(), kube::Error> {
    let name = shape.name(index);
    let body = objects::node(shape, index).to_string().into_bytes();
    let created = send(client, objects::nodes().create(&PostParams::default(), body)).await;
    let node = if is_conflict(&created) {
        send(client, objects::nodes().get(&name, &Default::default())).await?
    } else {
        created?
    };
    let uid = node["metadata"]["uid"].as_str().unwrap_or_default();
    let body = objects::lease(shape, index, uid).to_string().into_bytes();
    let leased = send(client, objects::leases().create(&PostParams::default(), body)).await;
    if !is_conflict(&leased) {
        leased?;
    }
    Ok(())
}

fn is_conflict(answer: &Result<Value, kube::Error>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 409)
}

/// Sends a request and reads the answer.
pub(crate) async fn send(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<Value, kube::Error> {
    client.request(request.map_err(kube::Error::BuildRequest)?).await
}

// === impl Keeper ===

impl Keeper<'_> {
    /// Does a duty for one node after the other, for each once in every period.
    async fn one_by_one(self, duty: Duty, period: Duration) {
        let Self { shape: Shape { nodes, .. }, in_flight, tally, .. } = self;
        let mut begun = Instant::now();
        let mut running = FuturesUnordered::new();
        let mut turn = 0_usize;
        if *nodes == 0 {
            return std::future::pending().await;
        }
        loop {
            let due = begun + period.mul_f64(turn as f64 / *nodes as f64);
            tokio::select! {
                Some(()) = running.next() => {}
                () = sleep_until(due), if running.len() < in_flight => {
                    let late = Instant::now().saturating_duration_since(due);
                    // A node whose turn was missed has a later one. To make up for all would keep a slow API server slow.
                    if late > period {
                        begun += late;
                    }
                    let milliseconds = u64::try_from(late.as_millis()).unwrap_or(u64::MAX);
                    tally.behind.store(milliseconds, Ordering::Relaxed);
                    running.push(self.act(duty, turn % nodes));
                    turn += 1;
                }
            }
        }
    }

    async fn act(self, duty: Duty, index: usize) {
        let Self { client, shape, in_flight, tally } = self;
        // Nodes are created nearly in order: of the last few that are there some may be missing.
        let created = tally.created.load(Ordering::Relaxed);
        if created < shape.nodes && index + in_flight >= created {
            return;
        }
        let (name, parameters) = (shape.name(index), PatchParams::default());
        let (counter, sent) = match duty {
            Duty::Renew => {
                let patch = Patch::Merge(objects::renewal());
                (&tally.renewals, objects::leases().patch(&name, &parameters, &patch))
            }
            Duty::Report => {
                let patch = Patch::Strategic(objects::heartbeat(shape));
                (&tally.heartbeats, objects::nodes().patch_subresource("status", &name, &parameters, &patch))
            }
        };
        tally.count(counter, send(client, sent).await);
    }
}

// === impl Tally ===

impl Tally {
    /// The last request that failed.
    pub fn last_error(&self) -> String {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self, what: &AtomicUsize, answer: Result<Value, kube::Error>) {
        match answer {
            Ok(_) => what.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = error.to_string();
                self.errors.fetch_add(1, Ordering::Relaxed)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Response;
    use kube::client::Body;
    use tokio::time::{sleep, timeout};

    use super::*;

    /// A client of an API server that answers after this time, always with an empty object.
    fn answering_after(delay: Duration) -> Client {
        let service = tower::service_fn(move |_: http::Request<Body>| async move {
            sleep(delay).await;
            Ok::<_, Infallible>(Response::new(Body::from(b"{}".to_vec())))
        });
        Client::new(service, "default")
    }

    async fn keep_for(minutes: u64, delay: Duration) -> Tally {
        let shape = Shape::new("h", 10);
        let pace = Pace { lease: Duration::from_secs(10), heartbeat: Duration::from_secs(60), in_flight: 2 };
        let tally = Tally { created: AtomicUsize::new(shape.nodes), ..Tally::default() };
        let client = answering_after(delay);
        let _ = timeout(Duration::from_secs(60 * minutes), keep_alive(&client, &shape, &pace, &tally)).await;
        tally
    }

    #[tokio::test(start_paused = true)]
    async fn every_node_reports_once_in_a_period() {
        let tally = keep_for(10, Duration::from_millis(5)).await;
        assert_eq!((tally.renewals.into_inner(), tally.heartbeats.into_inner()), (600, 100));
        assert!(tally.behind.into_inner() < 10);
    }

    #[tokio::test(start_paused = true)]
    async fn turns_that_a_slow_api_server_missed_are_not_made_up_for() {
        // Two requests in 30 s, where ten in 10 s are due.
        let tally = keep_for(60, Duration::from_secs(30)).await;
        let behind = Duration::from_millis(tally.behind.into_inner());
        assert!(behind <= Duration::from_secs(40), "{behind:?} behind after an hour");
    }
}
