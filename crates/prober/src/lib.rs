//! Runs one probe attempt or one hook when the agent asks for it. `keelet-lifecycle` decides when to probe and what a
//! result means for the container.
//!
//! Input: an [`Attempt`] or a hook, with its [`Target`]. Output: an [`Attempted`], or how the hook ended. Owned state:
//! the permits of the node, which limit concurrent attempts and which pods share fairly.
//!
//! ```text
//! attempt --permits--> exec  --Exec--> the runtime
//!                      tcp  -.
//!                      http -+-Dial--> [tls] --> one connection, one request, closed
//!                      grpc -'
//! ```
//!
//! Two rules hold everywhere. An attempt is one future: it spawns nothing, so dropping it closes its connection and
//! leaves nothing behind (`wire`). And whatever the target sends, an attempt takes bounded time and memory: it has one
//! deadline and a limit on the bytes that a connection may deliver (`capped`). A shortage of the agent is never a
//! failure of the target (`shortage`).

mod attempt;
mod capped;
mod dial;
mod door;
mod exec;
mod grpc;
mod hook;
mod http;
mod permits;
mod shortage;
mod tcp;
mod text;
mod tls;
mod wire;

pub use self::{
    attempt::{Attempt, Attempted, MOST_NODE_PROBES, NoAddress, Prober, Target},
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
/// The user agent of probes.
const PROBE_AGENT: &str = concat!("kube-probe/", api_version!());
/// The user agent of hooks.
const HOOK_AGENT: &str = concat!("kube-lifecycle/", api_version!());
