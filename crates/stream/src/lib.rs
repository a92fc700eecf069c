//! The streaming side of exec, attach and port-forward, as Kubernetes speaks it over HTTP.
//!
//! # Input and output
//!
//! The input is an HTTP request for an upgrade, to SPDY/3.1 or to WebSocket. Its purpose is known already: from a
//! one-time token ([`Sessions`], as the CRI requires) or from the path of another server ([`upgrade`]). The transports
//! turn the connection into streams, and a [`Backend`] gets them as plain readers and writers. Its result goes back on
//! the error stream.
//!
//! ```text
//!                       negotiate                                      Backend
//! request --> sessions ----+----> spdy ------> session (exec, attach) --> exec(..), attach(..)
//!             upgrade      '----> ws --------> forward (port-forward) --> port_forward(..)
//!                                  '-- tunnel --> spdy
//! ```
//!
//! [`client`] is the client: exec and attach over WebSocket, port-forward over SPDY.
//!
//! # Ownership
//!
//! One task owns the socket of a connection, for reading and writing (`link.rs`). One small task per stream moves what
//! is written to it. One task runs the session and calls the backend. The sizes of pipes and queues bound the memory
//! per connection, whatever a peer sends; see [`Config`] for time limits.
//!
//! # Protocols
//!
//! | | exec and attach | port-forward |
//! | --- | --- | --- |
//! | SPDY/3.1 | `v4.channel.k8s.io`, v3, v2, v1 | `portforward.k8s.io` |
//! | WebSocket | v5, v4 and v1 (`channel.k8s.io`); base64 of v4 and v1 | `v4.channel.k8s.io`, its base64, `SPDY/3.1+portforward.k8s.io` |
//!
//! The test with client-go as the peer takes a minute to build when nothing is cached, so it is not part of the usual
//! tests: `cargo test -p keelet-stream --test peer -- --ignored --nocapture`.

mod backend;
pub mod client;
mod error;
mod forward;
mod link;
mod negotiate;
mod server;
mod session;
mod sessions;
mod spdy;
mod status;
mod ws;

pub use backend::{
    Attach, Backend, BoxFuture, Duplex, Exec, Failure, Input, Io, Output, PortForward, Request, Resizes, Size, Streams,
};
pub use error::StreamError;
pub use link::Hangup;
pub use server::{Config, serve, upgrade};
pub use sessions::{SessionError, Sessions};
pub use spdy::SpdyError;
pub use status::ExitStatus;
pub use ws::WsError;
