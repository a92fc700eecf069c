//! The controller as a process: what is around it until it is asked to stop.
//!
//! ```text
//! stop ----> controller --vitals--.
//! check of permissions --access---+--> /healthz, /readyz, /metrics
//! ```
//!
//! Nothing here is a reason to end: an API server that is away, or a permission that is missing, is reported and waited for.

mod access;
mod http;

use std::{fs, sync::Arc};

use tokio::sync::watch;
use tracing::info;

pub use self::{
    access::Access,
    http::{BadAddress, BindAddress, BindError, Endpoint},
};
use crate::{
    api::Api,
    clock::WallClock,
    controller::{Controller, LeaseOptions, Options},
    gate,
    metrics::Metrics,
};

/// A controller and what is around it.
#[derive(Debug)]
pub struct Process {
    /// The API server.
    pub api: Api,
    /// The wall clock.
    pub clock: Arc<dyn WallClock>,
    /// What the controller does.
    pub options: Options,
    /// Where it is asked about its health; none if it is not.
    pub endpoint: Option<Endpoint>,
}

/// A name that a lease or its namespace cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid name {0:?}: expected lower case letters, digits, dashes and dots, such as keelet-gates")]
pub struct BadName(String);

/// The name of the lease, unless a person chooses another.
pub const LEASE: &str = "keelet-gates";

/// The namespace of the lease for a controller that is not a pod.
pub const LEASE_NAMESPACE: &str = "kube-system";

/// Where the kernel has the name of this machine. It is the name of the pod in a cluster.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// A name of this process that no other has: the host's name for people, then 64 random bits.
pub fn identity() -> String {
    let host = fs::read_to_string(HOST_NAME).unwrap_or_default();
    let mut random = [0; 8];
    // Without the kernel's random numbers the PID has to do.
    if getrandom::fill(&mut random).is_err() {
        random = u64::from(std::process::id()).to_be_bytes();
    }
    format!("{}_{:016x}", host.trim(), u64::from_be_bytes(random))
}

/// A name for a lease, or for its namespace.
pub fn name(text: &str) -> Result<String, BadName> {
    if gate::is_domain(text) { Ok(text.to_owned()) } else { Err(BadName(text.to_owned())) }
}

// === impl Process ===

impl Process {
    /// Runs until `stop` ends, then gives the lease away.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        let Self { api, clock, options, endpoint } = self;
        let metrics = Arc::new(Metrics::new());
        let access = watch::Sender::new(Access::Unknown);
        let permissions = options.permissions();
        let lease = options.lease().map(LeaseOptions::shown);
        let controller = Controller::new(api.clone(), clock, options, Arc::clone(&metrics));
        let granted = controller.granted();
        let server = endpoint.map(|endpoint| {
            info!(address = %endpoint.address(), "serving /healthz, /readyz and /metrics");
            let health = http::Health { vitals: controller.vitals(), access: access.subscribe(), metrics };
            tokio::spawn(endpoint.serve(health))
        });
        info!(version = env!("CARGO_PKG_VERSION"), lease, "controller started");
        tokio::select! {
            biased;
            () = controller.run(stop) => {}
            () = access::watch(&api, &permissions, &access, &granted) => {}
        }
        if let Some(server) = server {
            server.abort();
        }
        info!("controller stopped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_processes_have_the_same_identity() {
        let (one, other) = (identity(), identity());
        assert_ne!(one, other);
        let host = one.rsplit_once('_').map(|(host, _)| host.to_owned());
        assert_eq!(host.as_deref(), fs::read_to_string(HOST_NAME).ok().as_deref().map(str::trim));
    }

    #[test]
    fn names_of_leases() {
        for text in ["keelet-gates", "kube-system", "a.b"] {
            assert_eq!(name(text).as_deref(), Ok(text));
        }
        for text in ["", "A", "a_b", "a/b", "../x", "-a"] {
            assert_eq!(name(text), Err(BadName(text.to_owned())));
        }
    }
}
