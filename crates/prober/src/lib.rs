//! Runs one probe attempt, or one hook, when told. When to ask and what an answer means for the container are decided
//! elsewhere, by `keelet-lifecycle`.
//!
//! What comes in: an [`Attempt`] or a hook, with the [`Target`] it is for. What goes out: an [`Attempted`], or how the
//! hook ended. What is owned: the turns of the node, which limit attempts at a time and share them out between pods.
//!
//! ```text
//! attempt --turns--> exec  --Exec--> the runtime
//!                    tcp  -.
//!                    http -+-Dial--> [tls] --> one connection, one request, closed
//!                    grpc -'
//! ```
//!
//! Two rules hold everywhere. An attempt is one future: nothing is spawned for it, so dropping it closes its connection
//! and leaves nothing behind (`wire`). And whatever the target sends, an attempt takes bounded time and memory: one
//! deadline for all of it, and a limit on the bytes that a connection may deliver (`capped`). What the agent itself lacks
//! is never held against a target (`shortage`).

mod attempt;
mod capped;
mod dial;
mod door;
mod exec;
mod grpc;
mod hook;
mod http;
mod shortage;
mod tcp;
mod text;
mod tls;
mod turns;
mod wire;

pub use self::{
    attempt::{Attempt, Attempted, NoAddress, Prober, Target},
    dial::TcpDial,
    door::{Connection, Dial, Exec, ExecError, Executed},
    hook::{HookDone, HookError},
    text::LONGEST_OUTPUT,
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
