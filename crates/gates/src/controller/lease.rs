//! The election with its connections: a lease of `coordination.k8s.io/v1` that is read, written and watched.

use std::time::Duration;

use jiff::{Timestamp, Unit};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tracing::{debug, info, warn};

use super::{LeaseOptions, Time};
use crate::{
    api::{Api, ApiError, Lines, escaped},
    election::{Action, Candidate, Lease, Role, Written},
    node::Version,
};

#[derive(Debug, Deserialize)]
struct RawLease {
    metadata: RawMeta,
    #[serde(default)]
    spec: RawSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawMeta {
    resource_version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawSpec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i64>,
    acquire_time: Option<Timestamp>,
    renew_time: Option<Timestamp>,
    lease_transitions: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct RawEvent {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

/// How long a follower's watch of the lease lasts.
const WATCH_SECONDS: u64 = 180;

/// How often a follower reads the lease when it cannot be watched.
const POLL: Duration = Duration::from_secs(1);

/// How often the log says that the lease cannot be read or written. An outage of hours is no reason to fill it.
const REPEAT: Duration = Duration::from_secs(60);

/// The election, for as long as the controller runs.
struct Elector<'a> {
    api: &'a Api,
    options: &'a LeaseOptions,
    candidate: Candidate,
    clock: &'a Time,
    role: &'a watch::Sender<Role>,
    /// A follower's watch of the lease.
    lines: Option<Lines>,
    /// When a failure was last logged.
    complained: Option<Duration>,
}

/// Takes part in the election until `finished`, then gives the lease away if nothing is under way any more.
pub(super) async fn elect(
    api: &Api,
    options: &LeaseOptions,
    candidate: Candidate,
    clock: &Time,
    role: &watch::Sender<Role>,
    mut finished: oneshot::Receiver<bool>,
) {
    let mut elector = Elector { api, options, candidate, clock, role, lines: None, complained: None };
    loop {
        // A request that is under way is awaited: it may give us the lease, which is given away below.
        match finished.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => {}
            quiet => return elector.end(quiet == Ok(true)).await,
        }
        let Some(until) = elector.step().await else { continue };
        tokio::select! {
            biased;
            quiet = &mut finished => return elector.end(quiet == Ok(true)).await,
            () = elector.wait(until) => {}
        }
    }
}

// === impl Elector ===

impl Elector<'_> {
    /// Does what is to be done next; until when to wait if that is nothing.
    async fn step(&mut self) -> Option<Duration> {
        let now = self.clock.now();
        let action = self.candidate.step(now.at, micros(now.wall));
        self.publish();
        let deadline = self.options.timing.renew_deadline / 3;
        match action {
            Action::Wait(until) => return Some(until),
            Action::Read => {
                let answer = self.api.get(&self.path(), deadline).await;
                let at = self.clock.now().at;
                match answer.map(|json| read(&json)) {
                    Ok(Some(lease)) => self.candidate.saw(Some(lease), at),
                    Err(error) if error.is_not_found() => self.candidate.saw(None, at),
                    Ok(None) => self.failed("read", &"it is no lease", at),
                    Err(error) => self.failed("read", &error, at),
                }
            }
            Action::Create(lease) => {
                let body = self.body(&lease);
                let answer = self.api.create(&self.leases(), &body).await;
                self.written("create", answer.map(|json| read(&json)));
            }
            Action::Replace(lease) => {
                let body = self.body(&lease).to_string().into_bytes();
                let answer = self.api.patch(&self.path(), body, deadline).await;
                self.written("renew", answer.map(|json| read(&json)));
            }
        }
        self.publish();
        None
    }

    fn written(&mut self, what: &str, answer: Result<Option<Lease>, ApiError>) {
        let at = self.clock.now().at;
        let written = match answer {
            Ok(Some(lease)) => Written::Done(lease),
            Ok(None) => Written::Unknown,
            Err(error) if error.is_conflict() || error.is_not_found() => Written::Lost,
            Err(error) => {
                self.complain(what, &error, at);
                Written::Unknown
            }
        };
        self.candidate.wrote(written, at);
    }

    fn failed(&mut self, what: &str, error: &dyn std::fmt::Display, at: Duration) {
        self.complain(what, error, at);
        self.candidate.could_not_read(at);
    }

    fn complain(&mut self, operation: &str, error: &dyn std::fmt::Display, at: Duration) {
        let lease = self.options.shown();
        if self.complained.is_some_and(|before| at.saturating_sub(before) < REPEAT) {
            return debug!(lease, operation, %error, "lease request failed; retrying");
        }
        self.complained = Some(at);
        warn!(lease, operation, %error, "lease request failed; retrying");
    }

    /// Waits until then. A follower looks at the lease meanwhile, so that it takes over at once when the lease is given away.
    async fn wait(&mut self, until: Duration) {
        let until = self.clock.instant(until).unwrap_or_else(|| Instant::now() + POLL);
        let leads = matches!(self.candidate.role(self.clock.now().at), Role::Leader { .. });
        let Some(version) = self.candidate.lease().map(|lease| lease.version.clone()).filter(|_| !leads) else {
            self.lines = None;
            return sleep_until(until).await;
        };
        if self.lines.is_none() {
            let path = format!(
                "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&fieldSelector=metadata.name%3D{}&resourceVersion={}",
                self.leases(),
                escaped(&self.options.name),
                escaped(version.as_str())
            );
            match timeout_at(until, self.api.watch(&path)).await {
                Ok(Ok(lines)) => self.lines = Some(lines),
                Ok(Err(error)) => {
                    debug!(%error, "cannot watch the lease");
                    sleep(POLL.min(until.saturating_duration_since(Instant::now()))).await;
                    return self.candidate.could_not_read(self.clock.now().at);
                }
                Err(_) => return,
            }
        }
        let Some(lines) = &mut self.lines else { return };
        let line = match timeout_at(until, lines.next()).await {
            Err(_) => return,
            Ok(line) => line,
        };
        let event: Option<RawEvent> = line.ok().flatten().and_then(|line| serde_json::from_slice(&line).ok());
        let at = self.clock.now().at;
        match event {
            Some(RawEvent { kind, .. }) if kind == "BOOKMARK" => {}
            Some(RawEvent { kind, .. }) if kind == "DELETED" => self.candidate.saw(None, at),
            Some(RawEvent { kind, object }) if kind != "ERROR" => match from_value(object) {
                Some(lease) => self.candidate.saw(Some(lease), at),
                None => self.lose_watch(at),
            },
            _ => self.lose_watch(at),
        }
    }

    fn lose_watch(&mut self, at: Duration) {
        self.lines = None;
        self.candidate.could_not_read(at);
    }

    /// Gives the lease away, unless a write is still under way. If that fails, others wait until it is over.
    async fn end(&mut self, quiet: bool) {
        if !quiet {
            let leads = matches!(self.candidate.role(self.clock.now().at), Role::Leader { .. });
            if leads {
                warn!(lease = self.options.name, "a write is still under way: the lease is kept until it is over");
            }
            return;
        }
        let now = self.clock.now();
        let released = self.candidate.release(now.at, micros(now.wall));
        self.publish();
        let Some(lease) = released else { return };
        let body = self.body(&lease).to_string().into_bytes();
        match self.api.patch(&self.path(), body, Duration::from_secs(2)).await {
            Ok(_) => info!(lease = self.options.name, "lease released"),
            Err(error) => warn!(lease = self.options.name, %error, "cannot release the lease"),
        }
    }

    fn publish(&self) {
        let role = self.candidate.role(self.clock.now().at);
        let leads = |role: &Role| matches!(role, Role::Leader { .. });
        let before = self.role.send_replace(role);
        if leads(&before) != leads(&role) {
            let holder = self.candidate.lease().map(|lease| &*lease.holder).unwrap_or_default();
            let (identity, lease) = (self.candidate.identity(), &*self.options.name);
            match role {
                Role::Leader { .. } => info!(identity, lease, "leading"),
                Role::Follower => info!(identity, lease, holder, "not leading any more"),
            }
        }
    }

    fn leases(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", escaped(&self.options.namespace))
    }

    fn path(&self) -> String {
        format!("{}/{}", self.leases(), escaped(&self.options.name))
    }

    /// The lease as the API has it: the whole object for a creation, and a patch otherwise.
    fn body(&self, lease: &Lease) -> Value {
        let mut metadata = json!({ "name": self.options.name, "namespace": self.options.namespace });
        if !lease.version.as_str().is_empty() {
            metadata["resourceVersion"] = lease.version.as_str().into();
        }
        let time = |time: Option<Timestamp>| time.map(|time| format!("{time:.6}"));
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
            "spec": {
                "holderIdentity": lease.holder, "leaseDurationSeconds": lease.duration.as_secs().max(1),
                "acquireTime": time(lease.acquired), "renewTime": time(lease.renewed), "leaseTransitions": lease.transitions,
            },
        })
    }
}

/// The time as a lease has it: a renewal is recognised by it.
fn micros(time: Timestamp) -> Timestamp {
    time.round(Unit::Microsecond).unwrap_or(time)
}

fn read(json: &[u8]) -> Option<Lease> {
    from_value(serde_json::from_slice(json).ok()?)
}

fn from_value(object: Value) -> Option<Lease> {
    let RawLease { metadata, spec } = serde_json::from_value(object).ok()?;
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(15);
    Some(Lease {
        version: Version::new(&metadata.resource_version),
        holder: spec.holder_identity.unwrap_or_default(),
        duration: Duration::from_secs(seconds),
        acquired: spec.acquire_time,
        renewed: spec.renew_time,
        transitions: spec.lease_transitions.unwrap_or_default(),
    })
}
