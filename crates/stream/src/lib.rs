//! The streaming side of exec, attach and port-forward, as Kubernetes speaks it over HTTP.
//!
//! # What comes in, what goes out
//!
//! An HTTP request comes in that asks for an upgrade, to SPDY/3.1 or to WebSocket. What was asked for is known already:
//! from a one-time token ([`Sessions`], as the CRI wants it) or from the path of another server ([`upgrade`]). The
//! transports turn the connection into streams, and a [`Backend`] gets them as plain readers and writers. How its work
//! ended goes back on the error stream.
//!
//! ```text
//!                       negotiate                                      Backend
//! request --> sessions ----+----> spdy ------> session (exec, attach) --> exec(..), attach(..)
//!             upgrade      '----> ws --------> forward (port-forward) --> port_forward(..)
//!                                  '-- tunnel --> spdy
//! ```
//!
//! The other end is in [`client`]: exec and attach over WebSocket, port-forward over SPDY.
//!
//! # Who owns what
//!
//! One task owns the socket of a connection, reading and writing (`link.rs`). One small task per stream moves
//! what is written to it. One task runs the session and calls the backend. Memory per connection is bounded by the
//! sizes of pipes and queues, whatever a peer sends; see [`Config`] for time.
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
