//! The local API of a node agent: HTTP/1.1 with JSON over a unix socket, for root.
//!
//! ```text
//! keelet get, logs, ... --> client --- unix socket ---> server --> agent, its board, runtime
//! curl --unix-socket ---------------------'                '----> logs (files)
//! scrapers, health checks ------------- loopback port ------'     health and metrics only
//! ```
//!
//! The server holds no state of its own: pods and events are what is on the agent's board, containers and images what
//! the runtime has, logs what is in the files. What each request may ask for and answers is in `docs/local-api.md`; the
//! types are in [`api`].

pub mod api;
mod client;
pub mod logs;
mod server;

pub use self::{
    client::{Client, ClientError, escaped},
    server::{
        Action, Archive, Area, BadPath, BindError, ContainerRef, Debugging, DeleteError, DesiredPods, Images,
        ImportError, KubeletApi, KubeletSettings, Listener, Local, Numbers, Patience, Patient, PodRef, SessionHold,
        log_state, serve_loopback,
    },
};
