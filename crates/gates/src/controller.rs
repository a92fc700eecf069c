//! The controller: the engine with its connections.
//!
//! All of it is one future, so that a simulation can freeze it between two steps; it spawns no task and asks no clock but tokio's and the
//! one it was given.
//!
//! ```text
//! follow nodes ---.                  .--> requests under way, at most 32 ---.
//! follow rules ---+--> core: engine -+--> changes of rules                  +--> core
//! election -------'                  '--> events, when nothing else is to do'
//! ```

mod core;
mod events;
mod lease;
mod objects;
mod rules;

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, oneshot, watch},
    time::Instant,
};

use self::core::Core;
use crate::{
    api::{Api, Permission},
    clock::WallClock,
    election::{Candidate, Role, Timing},
    engine::{Mode, Now},
    metrics::Metrics,
    rule,
    settings::Settings,
};

/// What a controller does.
#[derive(Clone, Debug)]
pub struct Options {
    /// What a person chose about gates.
    pub settings: Settings,
    /// Whether decisions are carried out.
    pub mode: Mode,
    /// Whether other controllers may run beside this one.
    pub election: Election,
    /// Whether `NodeReadinessRule` objects are looked at.
    pub rules: RuleObjects,
}

/// Whether other controllers may run beside this one.
#[derive(Clone, Debug)]
pub enum Election {
    /// This one acts without asking. A dry run does too.
    Alone,
    /// The holder of a lease acts.
    Lease(Box<LeaseOptions>),
}

/// The lease that a leader holds.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who we are, unlike any other process.
    pub identity: String,
    /// How long it lasts.
    pub timing: Timing,
}

/// Whether `NodeReadinessRule` objects are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleObjects {
    /// Where the cluster has them.
    Auto,
    /// Never.
    Off,
}

/// A controller.
#[derive(Debug)]
pub struct Controller {
    api: Api,
    clock: Time,
    options: Options,
    metrics: Arc<Metrics>,
    vitals: watch::Sender<Vitals>,
    granted: Arc<Notify>,
}

/// How a controller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vitals {
    /// Whether it knows all nodes and rules.
    pub synced: bool,
    /// Whether it leads.
    pub leads: bool,
    /// When it last did anything.
    pub beat: Instant,
}

/// Both clocks.
#[derive(Clone, Debug)]
struct Time {
    wall: Arc<dyn WallClock>,
    began: Instant,
}

/// A controller that does nothing for so long is stuck. It looks around every [`TICK`].
const STUCK: Duration = Duration::from_secs(60);

/// How often it looks around when nothing happens.
const TICK: Duration = Duration::from_secs(5);

/// How long it waits for requests under way when it stops.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

// === impl Options ===

impl Options {
    /// The lease, if there is an election.
    pub fn lease(&self) -> Option<&LeaseOptions> {
        if let Election::Lease(lease) = &self.election { Some(lease) } else { None }
    }

    /// What it has to be allowed to do (CTRL-18).
    pub fn permissions(&self) -> Vec<Permission> {
        let act = self.mode == Mode::Act;
        let nodes: &[&str] = if act { &["get", "list", "watch", "patch"] } else { &["list", "watch"] };
        let mut permissions = vec![Permission::of_cluster(nodes, "", "nodes")];
        if act {
            permissions
                .push(Permission::of_cluster(&["create", "patch"], "", "events").in_namespace(events::NAMESPACE));
        }
        if let Election::Lease(lease) = &self.election {
            let of_leases =
                |verbs| Permission::of_cluster(verbs, "coordination.k8s.io", "leases").in_namespace(&lease.namespace);
            permissions.push(of_leases(&["create"]));
            permissions.push(of_leases(&["get", "watch", "patch"]).of_object(&lease.name));
        }
        if self.rules == RuleObjects::Auto {
            let rules: &[&str] = if act { &["list", "watch", "patch"] } else { &["list", "watch"] };
            permissions.push(Permission::of_cluster(rules, rule::GROUP, "nodereadinessrules"));
            if act {
                permissions.push(Permission::of_cluster(&["patch"], rule::GROUP, "nodereadinessrules/status"));
            }
        }
        permissions
    }
}

// === impl LeaseOptions ===

impl LeaseOptions {
    /// Namespace and name.
    pub fn shown(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

// === impl Controller ===

impl Controller {
    /// One that has not begun. To be called inside of a tokio runtime.
    pub fn new(api: Api, clock: Arc<dyn WallClock>, options: Options, metrics: Arc<Metrics>) -> Self {
        let began = Instant::now();
        let vitals = watch::Sender::new(Vitals { synced: false, leads: false, beat: began });
        Self { api, clock: Time { wall: clock, began }, options, metrics, vitals, granted: Arc::default() }
    }

    /// How it is, from now on.
    pub fn vitals(&self) -> watch::Receiver<Vitals> {
        self.vitals.subscribe()
    }

    /// To be notified when the controller may do something that it was not allowed to do before.
    pub fn granted(&self) -> Arc<Notify> {
        Arc::clone(&self.granted)
    }

    /// Runs until `stop` ends: then it makes no new requests, waits a moment for those under way, and gives its lease away. If one about a
    /// node is not answered by then, it keeps the lease, which others wait for until it is over.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        let role = watch::Sender::new(Role::Follower);
        let (finish, finished) = oneshot::channel();
        let core = Core::new(&self, role.subscribe());
        let core = async {
            // The lease is given away only when nothing is written any more.
            let quiet = core.run(stop).await;
            let _ = finish.send(quiet);
        };
        match &self.options.election {
            Election::Alone => {
                role.send_replace(Role::Leader { until: Duration::MAX });
                core.await;
            }
            Election::Lease(options) => {
                let candidate = Candidate::new(options.identity.clone(), options.timing);
                let elect = lease::elect(&self.api, options, candidate, &self.clock, &role, finished);
                futures::join!(core, elect);
            }
        }
    }
}

// === impl Vitals ===

impl Vitals {
    /// Whether it does anything.
    pub fn is_alive(&self) -> bool {
        self.beat.elapsed() < STUCK
    }
}

// === impl Time ===

impl Time {
    fn now(&self) -> Now {
        Now { at: self.began.elapsed(), wall: self.wall.now() }
    }

    /// A time of ours as one of tokio's.
    fn instant(&self, at: Duration) -> Option<Instant> {
        self.began.checked_add(at)
    }
}
