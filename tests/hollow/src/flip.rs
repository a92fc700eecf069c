//! Setting a condition on many nodes, and measuring how long their taint outlives it.
//!
//! A flip is a patch of a node's status that turns one condition to True. The API server answers it; later a controller removes the taint
//! that stands for the condition, and a watch reports the node without it. The latency is the time from the answer to the report, by the
//! monotonic clock of this process. With [`Remover::Bare`] this process removes the taint itself as soon as it has the answer: what a
//! controller can be compared with.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Taint;
use kube::{
    Client,
    api::{Patch, PatchParams, WatchParams},
};
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    Shape,
    fleet::send,
    follow::{Change, follow},
    objects::{self, Seen},
    percentiles::Percentiles,
};

/// The annotation of keelet's controller about passed gates.
const RECORD: &str = "keelet.dev/gates";

/// What to flip, and how fast.
#[derive(Clone, Debug)]
pub struct FlipSettings {
    /// The nodes: the first so many of a fleet.
    pub shape: Shape,
    /// The condition's type.
    pub condition: String,
    /// The key of the taint that stands for it.
    pub taint: String,
    /// How fast.
    pub rate: Rate,
    /// Status patches at once.
    pub in_flight: usize,
    /// The controller that removes the taints.
    pub remover: Remover,
    /// How long to wait for the last taints to go.
    pub patience: Duration,
}

/// How fast nodes are flipped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// So many each second, whether or not earlier ones have been answered.
    PerSecond(f64),
    /// The next as soon as one has been answered.
    Full,
}

/// The controller that removes the taints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remover {
    /// A controller that is running elsewhere.
    Controller,
    /// This process, with the same kind of patch as a controller, and without a watch before it.
    Bare,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Report {
    /// From the answer to the status patch to the watch event without the taint.
    pub latency: Percentiles,
    /// The same, from the moment at which the status patch was sent.
    pub since_sent: Percentiles,
    /// How late the status patches were sent: with a rate, time in which the API server was not kept as busy as planned.
    pub lateness: Percentiles,
    /// From the first status patch to the last event.
    pub took: Duration,
    /// Nodes that still had the taint when patience ended.
    pub missed: usize,
    /// Events without the taint that came before the answer to the status patch; they count as zero.
    pub before_answer: usize,
    /// Patches of the bare client that lost against another writer and were made again.
    pub conflicts: usize,
    /// How often the watch began. More than once: some events came later than they would have.
    pub watches: usize,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A node could not be made ready for its flip.
    #[error("preparing node {name}: {source}")]
    Prepare {
        /// The node.
        name: String,
        /// The answer.
        #[source]
        source: kube::Error,
    },
    /// The nodes did not get to the state before a flip.
    #[error("{0} nodes did not get the condition and the taint; does another controller remove it?")]
    NotPrepared(usize),
    /// A flip failed.
    #[error("flipping node {name}: {source}")]
    Flip {
        /// The node.
        name: String,
        /// The answer.
        #[source]
        source: kube::Error,
    },
    /// The nodes could not be watched.
    #[error("watching nodes: {0}")]
    Watch(#[source] kube::Error),
}

/// What is known about one flip.
#[derive(Clone, Copy, Debug, Default)]
struct Flip {
    lateness: Duration,
    sent: Option<Instant>,
    answered: Option<Instant>,
    gone: Option<Instant>,
}

/// What the watch has seen, shared with the tasks that flip.
#[derive(Debug, Default)]
struct Board {
    /// Tainted, and with a condition that is not True.
    prepared: BTreeMap<String, bool>,
    flips: BTreeMap<String, Flip>,
    watches: usize,
    conflicts: usize,
}

/// The board, and the news that it changed.
#[derive(Debug, Default)]
struct Shared {
    board: Mutex<Board>,
    changed: Notify,
}

/// Flips the nodes and waits until their taints are gone. Before, it gives each of them the taint, and a condition that is False.
pub async fn measure(client: &Client, settings: &FlipSettings) -> Result<Report, Error> {
    let shared = Arc::new(Shared::default());
    // A task of its own, so that the time of an event is not delayed by requests.
    let mut watch = tokio::spawn(watch(client.clone(), settings.clone(), shared.clone()));
    let flipped = async {
        prepare(client, settings, &shared).await?;
        flip_all(client, settings, &shared).await?;
        let all_gone = |board: &Board| board.flips.values().filter(|flip| flip.gone.is_none()).count() == 0;
        // What is missing then is in the report.
        let _ = timeout(settings.patience, shared.until(all_gone)).await;
        Ok(())
    };
    let ended = tokio::select! {
        ended = flipped => ended,
        broken = &mut watch => match broken {
            Ok(Err(error)) => Err(Error::Watch(error)),
            Ok(Ok(())) | Err(_) => unreachable!("a watch ends with an error only"),
        },
    };
    watch.abort();
    ended?;
    Ok(shared.lock().report())
}

async fn watch(client: Client, settings: FlipSettings, shared: Arc<Shared>) -> Result<(), kube::Error> {
    let selected = WatchParams::default().labels(&settings.shape.selector());
    let each = |change| {
        let now = Instant::now();
        let mut board = shared.lock();
        match change {
            Change::Applied(node) => board.saw(&node, &settings, now),
            Change::Began => board.watches += 1,
            Change::Deleted(_) | Change::Complete => {}
        }
        drop(board);
        shared.changed.notify_one();
        ControlFlow::<()>::Continue(())
    };
    follow(&client, &objects::nodes(), &selected, each).await
}

async fn prepare(client: &Client, settings: &FlipSettings, shared: &Shared) -> Result<(), Error> {
    stream::iter(0..settings.shape.nodes)
        .map(|index| async move {
            let name = settings.shape.name(index);
            let prepared = prepare_one(client, settings, &name).await;
            prepared.map_err(|source| Error::Prepare { name, source })
        })
        .buffer_unordered(settings.in_flight.max(1))
        .try_collect::<()>()
        .await?;
    let missing = |board: &Board| settings.shape.nodes - board.prepared.values().filter(|prepared| **prepared).count();
    if timeout(settings.patience, shared.until(|board| missing(board) == 0)).await.is_err() {
        return Err(Error::NotPrepared(missing(&shared.lock())));
    }
    Ok(())
}

/// First the condition, then the taint: a controller that sees the taint must not find a condition that is True.
async fn prepare_one(client: &Client, settings: &FlipSettings, name: &str) -> Result<(), kube::Error> {
    let mut node = set_condition(client, name, &settings.condition, "False").await?;
    loop {
        let mut taints = node.spec.taints.clone();
        if !node.is_tainted(&settings.taint) {
            taints.push(Taint { key: settings.taint.clone(), effect: "NoSchedule".to_owned(), ..Taint::default() });
        }
        let annotations = json!({ settings.taint.as_str(): null, RECORD: null });
        match patch(client, &node, annotations, &taints).await {
            Err(kube::Error::Api(status)) if status.code == 409 => node = get(client, name).await?,
            answer => return answer.map(|_| ()),
        }
    }
}

async fn flip_all(client: &Client, settings: &FlipSettings, shared: &Shared) -> Result<(), Error> {
    let begun = Instant::now();
    let due = |index: usize| match settings.rate {
        Rate::PerSecond(rate) => begun + Duration::from_secs_f64(index as f64 / rate),
        Rate::Full => begun,
    };
    stream::iter(0..settings.shape.nodes)
        .then(|index| async move {
            sleep_until(due(index)).await;
            (settings.shape.name(index), Instant::now().saturating_duration_since(due(index)))
        })
        .map(|(name, late)| async move {
            let lateness = if settings.rate == Rate::Full { Duration::ZERO } else { late };
            let flipped = flip_one(client, settings, shared, &name, lateness).await;
            flipped.map_err(|source| Error::Flip { name, source })
        })
        .buffer_unordered(settings.in_flight.max(1))
        .try_collect()
        .await
}

async fn flip_one(
    client: &Client,
    settings: &FlipSettings,
    shared: &Shared,
    name: &str,
    lateness: Duration,
) -> Result<(), kube::Error> {
    let sent = Some(Instant::now());
    shared.lock().flips.insert(name.to_owned(), Flip { lateness, sent, ..Flip::default() });
    let mut node = set_condition(client, name, &settings.condition, "True").await?;
    let answered = Instant::now();
    if let Some(flip) = shared.lock().flips.get_mut(name) {
        flip.answered = Some(answered);
    }
    if settings.remover == Remover::Controller {
        return Ok(());
    }
    loop {
        let mut taints = node.spec.taints.clone();
        taints.retain(|taint| taint.key != settings.taint);
        let annotations = json!({ settings.taint.as_str(): "passed" });
        match patch(client, &node, annotations, &taints).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                shared.lock().conflicts += 1;
                node = get(client, name).await?;
            }
            answer => return answer.map(|_| ()),
        }
    }
}

async fn set_condition(client: &Client, name: &str, kind: &str, status: &str) -> Result<Seen, kube::Error> {
    let patch = Patch::Strategic(objects::condition_patch(kind, status));
    let sent = objects::nodes().patch_subresource("status", name, &PatchParams::default(), &patch);
    read(send(client, sent).await?)
}

async fn get(client: &Client, name: &str) -> Result<Seen, kube::Error> {
    read(send(client, objects::nodes().get(name, &Default::default())).await?)
}

/// Taints and annotations in one patch, which fails if the node has changed in between or is another node.
async fn patch(client: &Client, node: &Seen, annotations: Value, taints: &[Taint]) -> Result<Value, kube::Error> {
    let metadata = json!({
        "uid": node.metadata.uid,
        "resourceVersion": node.metadata.resource_version,
        "annotations": annotations,
    });
    let patch = Patch::Merge(json!({ "metadata": metadata, "spec": { "taints": taints } }));
    send(client, objects::nodes().patch(&node.metadata.name, &PatchParams::default(), &patch)).await
}

fn read(node: Value) -> Result<Seen, kube::Error> {
    serde_json::from_value(node).map_err(kube::Error::SerdeError)
}

// === impl Shared ===

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the board is so. One task waits at a time.
    async fn until(&self, so: impl Fn(&Board) -> bool) {
        while !so(&self.lock()) {
            self.changed.notified().await;
        }
    }
}

// === impl Board ===

impl Board {
    fn saw(&mut self, node: &Seen, settings: &FlipSettings, now: Instant) {
        let tainted = node.is_tainted(&settings.taint);
        let name = &node.metadata.name;
        match self.flips.get_mut(name) {
            Some(flip) if !tainted && flip.gone.is_none() => flip.gone = Some(now),
            Some(_) => {}
            None => {
                let prepared = tainted && node.condition(&settings.condition).is_some_and(|status| status != "True");
                self.prepared.insert(name.clone(), prepared);
            }
        }
    }

    fn report(&self) -> Report {
        let flips = || self.flips.values();
        let between = |from: Option<Instant>, to: Option<Instant>| Some(to?.saturating_duration_since(from?));
        let first = flips().filter_map(|flip| flip.sent).min();
        let last = flips().filter_map(|flip| flip.gone).max();
        Report {
            latency: Percentiles::of(flips().filter_map(|flip| between(flip.answered, flip.gone))),
            since_sent: Percentiles::of(flips().filter_map(|flip| between(flip.sent, flip.gone))),
            lateness: Percentiles::of(flips().map(|flip| flip.lateness)),
            took: between(first, last).unwrap_or_default(),
            missed: flips().filter(|flip| flip.gone.is_none()).count(),
            before_answer: flips().filter(|flip| flip.gone.is_some() && flip.gone < flip.answered).count(),
            conflicts: self.conflicts,
            watches: self.watches,
        }
    }
}

// === impl Report ===

impl Report {
    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "latency": self.latency.json(),
            "since_sent": self.since_sent.json(),
            "lateness": self.lateness.json(),
            "took_s": self.took.as_secs_f64(),
            "missed": self.missed,
            "before_answer": self.before_answer,
            "conflicts": self.conflicts,
            "watches": self.watches,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> FlipSettings {
        FlipSettings {
            shape: Shape::new("n", 2),
            condition: "NetworkReady".to_owned(),
            taint: "readiness.k8s.io/NetworkReady".to_owned(),
            rate: Rate::Full,
            in_flight: 1,
            remover: Remover::Controller,
            patience: Duration::ZERO,
        }
    }

    fn node(name: &str, taint: Option<&str>, status: &str) -> Seen {
        let taints: Vec<_> = taint.into_iter().map(|key| json!({ "key": key, "effect": "NoSchedule" })).collect();
        let value = json!({
            "metadata": { "name": name, "uid": "u", "resourceVersion": "1" },
            "spec": { "taints": taints },
            "status": { "conditions": [{ "type": "NetworkReady", "status": status }] },
        });
        read(value).expect("a node")
    }

    #[test]
    fn a_node_is_prepared_if_it_is_tainted_and_its_condition_does_not_hold() {
        let settings = settings();
        let now = Instant::now();
        for (taint, status, prepared) in [
            (Some(settings.taint.as_str()), "False", true),
            (Some(settings.taint.as_str()), "True", false),
            (Some("other"), "False", false),
            (None, "False", false),
        ] {
            let mut board = Board::default();
            board.saw(&node("n-0", taint, status), &settings, now);
            assert_eq!(board.prepared["n-0"], prepared, "{taint:?} {status}");
        }
    }

    #[test]
    fn a_latency_is_from_the_answer_to_the_first_event_without_the_taint() {
        let settings = settings();
        let begun = Instant::now();
        let at = |milliseconds| begun + Duration::from_millis(milliseconds);
        let mut board = Board::default();
        for (name, sent, answered) in [("n-0", 0, 10), ("n-1", 5, 50), ("n-2", 6, 11)] {
            let flip = Flip { sent: Some(at(sent)), answered: Some(at(answered)), ..Flip::default() };
            board.flips.insert(name.to_owned(), flip);
        }
        // Still tainted, gone, and a later event about something else.
        board.saw(&node("n-0", Some(&settings.taint), "True"), &settings, at(12));
        board.saw(&node("n-0", None, "True"), &settings, at(17));
        board.saw(&node("n-0", None, "True"), &settings, at(90));
        // Before the answer.
        board.saw(&node("n-1", None, "True"), &settings, at(40));
        let report = board.report();
        let latencies = (report.latency.at(50), report.latency.at(100));
        assert_eq!(latencies, (Duration::ZERO, Duration::from_millis(7)), "{report:?}");
        assert_eq!(report.since_sent.at(100), Duration::from_millis(35));
        assert_eq!((report.took, report.missed, report.before_answer), (Duration::from_millis(40), 1, 1));
    }
}
