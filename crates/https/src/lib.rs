//! The HTTPS server of a node: the kubelet's API for clients on the network.
//!
//! ```text
//! client --TLS--> listen: bounds, handshakes ---> guard ---------------------------------> keelet-serve: KubeletApi
//!                   '-- certificates, reloaded     |-- identity: who asks
//!                                                  |     certificate of the client CA, or a token (TokenReview)
//!                                                  '-- attributes: what is asked, as the action (SubjectAccessReview)
//! ```
//!
//! - [`attributes`]: from method and path to what a client has to be allowed. Pure.
//! - `identity`: a user from a client certificate. Pure.
//! - `reviews`: what the API server says about tokens and permissions, kept for as long as it may be. An API server that does not answer
//!   means that a request is refused.
//! - `told`: what is logged of requests that are refused, however many there are.
//! - `tls`: certificates from files, read again when they change.
//! - `bounds`: how many connections each user, each address and all together may have.
//! - `listen`: TLS connections; everything runs on the thread that polls [`serve`], never on the one that plans pods.
//!
//! There is no anonymous user, and HTTP/2 is not offered: each request has a connection to itself, so that what a client may hold is
//! counted in connections.

pub mod attributes;
mod bounds;
mod cache;
mod guard;
mod identity;
mod listen;
mod reviews;
mod tls;
mod told;

pub use self::{
    guard::Guard,
    identity::{BadCertificate, User},
    listen::{Listening, serve},
    reviews::{ReviewSettings, Reviews},
    tls::{Certificates, MinVersion, ServingCertificate, TlsError, TlsSettings},
};
