//! Runs one probe attempt, or one hook, when told. When to ask and what an answer means for the container are decided
//! elsewhere, by `keelet-lifecycle`.
//!
//! What comes in: an [`Attempt`] or a hook, with the [`Target`] it is for. What goes out: an [`Attempted`], or how the
//! hook ended. What is owned: the node-wide limit of attempts at a time, and nothing of any pod.
//!
//! ```text
//! attempt --queue--> exec  --Exec--> the runtime
//!                    tcp  -.
//!                    http -+-Dial--> [tls] --> one connection, one request, closed
//!                    grpc -'
//! ```
//!
//! Two rules hold everywhere. An attempt is one future: nothing is spawned for it, so dropping it closes its connection
//! and leaves nothing behind (`wire`). And whatever the target sends, an attempt takes bounded time and memory: one
//! deadline for all of it, and a limit on the bytes that a connection may deliver (`capped`).

mod attempt;
mod capped;
mod dial;
mod door;
mod exec;
mod grpc;
mod hook;
mod http;
mod tcp;
mod text;
mod tls;
mod wire;

pub use self::{
    attempt::{Attempt, Attempted, NoAddress, Prober, Target},
    dial::TcpDial,
    door::{Connection, Dial, Exec, ExecError, Executed},
    hook::{HookDone, HookError},
};

/// The version of the Kubernetes API that requests name in their user agent.
macro_rules! api_version {
    () => {
        "1.37"
    };
}
/// How probes introduce themselves.
const PROBE_AGENT: &str = concat!("kube-probe/", api_version!());
/// How hooks introduce themselves.
const HOOK_AGENT: &str = concat!("kube-lifecycle/", api_version!());
