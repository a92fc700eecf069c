//! A Kubernetes API server, simulated in memory, to break its clients on.
//!
//! [`SimApi`] is the server. [`SimApi::connect`] gives a [`Connection`], a tower service that `kube::Client::new` takes, so that
//! the real client runs on it unchanged. Time is tokio's, paused; there is one thread and one source of chance; so a seed
//! replays a run byte for byte.
//!
//! ```text
//! client --kube::Client--> Connection --faults, time--> Server: access -> admission -> validation -> Store
//!   |                          |                                                                      |
//!   '--- Process: freeze, kill ---'      watches <--- changes, in the order of their revisions <---------+
//!                                                                                                     |
//!                                     Log, observers <--- every request, every stored change ---------'
//! ```
//!
//! - The server (`server`) answers at once and knows no time: what all kinds of objects share is there, what one kind does is in
//!   `kinds`. The store under it is as etcd is: one growing revision, all changes kept, so that the past can be listed.
//! - A connection adds what lies between a client and a server: latency, [`Faults`], partitions. Each client has its own. A request
//!   belongs to the world once it is sent: it is carried out, or lost, whatever becomes of the client.
//! - A client is part of a process ([`Process`]) that can be frozen, thawed and killed at any write, without destructors.
//! - [`Log`] has every request and every stored change with what was before and after. A checker is called at each change
//!   ([`SimApi::observe`]).
//!
//! # What there is
//!
//! Nodes, pods (with `status`, `ephemeralcontainers`, `binding`), leases, events of both groups, config maps, secrets, services,
//! service accounts (with `token`), namespaces, and custom resources by their definition ([`SimApi::install`]). All verbs; lists in
//! pages and of the past; watches with bookmarks, initial events and timeouts; JSON, merge and strategic merge patches with the real
//! merge keys; preconditions; grace periods and finalizers; dry runs; generations; the access rules of roles, of the node authorizer
//! and of NodeRestriction; token and access reviews.
//!
//! # What differs from the real server
//!
//! `make e2e` runs the same random requests against both and compares codes, reasons, causes and bodies
//! (`tests/cluster/tests/differential`). These differences are known:
//!
//! - `managedFields` are never there, and server-side apply is refused with 415.
//! - Messages of validation and of decoding are worded shorter where the real ones quote regular expressions, Go types or a
//!   difference between specs. Codes, reasons, kinds of causes and fields are the same.
//! - Validation covers what keelet's parts can meet, not every field of a pod or service. Rules of custom resources other than
//!   `self == oldSelf`, patterns and formats are not checked.
//! - No controllers: namespaces that are deleted stay, owners take nothing with them, events do not expire, services have no
//!   endpoints. A new namespace gets its default service account and `kube-root-ca.crt` at once.
//! - Quantities are kept as they are written, not made canonical.
//! - A pod's status may lower a restart count and leave a terminal phase: the real server does not refuse that either.

mod access;
mod api;
mod clock;
mod connection;
mod faults;
mod field;
mod follow;
mod json;
mod kinds;
mod log;
mod meta;
mod names;
mod patch;
mod process;
mod random;
mod refusal;
mod request;
mod resources;
mod selector;
mod server;
mod store;
mod typed;

pub use self::{
    access::{Grant, Identity},
    api::SimApi,
    clock::Clock,
    connection::{AnswerBody, Connection, ConnectionError},
    faults::{Fate, Faults, Odds, Partition, WatchOdds},
    log::{Happening, Log, LogEntry, Request, Write},
    process::{Death, InFlight, Mortal, Process},
    random::Random,
    request::Verb,
    store::Key,
};
