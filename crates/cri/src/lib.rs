//! The door to the container runtime: CRI v1, as types, as a client and as a server.
//!
//! The agent holds one [`Runtime`] and does not know the implementation behind it: containerd or CRI-O on a unix socket
//! ([`Runtime::connect`]), or a runtime in this process ([`Runtime::in_process`]), embedded or simulated. Both use the
//! same generated client. In process the generated server takes the place of the connection, so messages are encoded
//! and limited alike and only HTTP/2 is missing.
//!
//! ```text
//! agent -> Runtime -> generated client -> Transport --> channel over a unix socket --> containerd, CRI-O
//!          deadlines                                '-> Server (generated, by path) --> embedded, simulated
//! ```
//!
//! - The wire contract is `proto/cri.proto`; [`v1`] is generated from it.
//! - Every call has a deadline ([`Deadlines`]), kept by us in tokio's time, so that paused time reaches it. A call that
//!   is dropped is cancelled; whether the runtime had already acted is not known then, as after any lost answer.
//! - An answer may be as large as [`MAX_MESSAGE`]: lists of a full node exceed gRPC's usual 4 MiB.
//! - Nothing is retried here. A lost connection is made again with the next call; what to do about the one that failed
//!   is for the caller to decide, by [`ErrorKind`].
//! - Events are hints and optional: CRI events ([`Runtime::container_events`]) where the runtime has them, else
//!   containerd's own ([`Runtime::containerd_exits`]), else none.

mod deadlines;
mod endpoint;
mod error;
mod events;
mod redacted;
mod runtime;
mod transport;

#[cfg(test)]
mod tests;

pub use self::{
    deadlines::Deadlines,
    endpoint::EndpointError,
    error::{Error, ErrorKind},
    events::{Events, Exits, TaskEvent},
    runtime::Runtime,
    transport::Server,
};

/// The annotation in which the embedded runtime names what a sandbox that is not ready lacks.
pub const LOST: &str = "keelet.dev/sandbox-lost";

/// The largest message that is read, by the client and by a server: 16 MiB, what containerd and CRI-O allow.
pub const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// Metadata of an ExecSync call: how many bytes of each output stream the response needs. The embedded runtime keeps no
/// more than that; other runtimes ignore it and keep up to 16 MiB.
pub const OUTPUT_LIMIT: &str = "keelet-output-limit";

/// CRI v1, generated from `proto/cri.proto`, which says what the fields mean.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::disallowed_types)]
pub mod v1 {
    tonic::include_proto!("runtime.v1");
}

/// containerd's own event service, generated from `proto/containerd_events.proto`.
#[allow(missing_docs, unreachable_pub, unused_qualifications, dead_code, clippy::all, clippy::disallowed_types)]
mod containerd {
    tonic::include_proto!("containerd.services.events.v1");
}
