//! The shim: the process that is the parent of a pod's containers.
//!
//! The agent may be killed at any time, and containers must not notice. So each pod has a shim: a small single-threaded process that
//! creates the pod's containers, is their parent, writes their output to log files and records their exits before it reports them.
//!
//! ```text
//! runtime --socket--> shim ---fork---> creator: libcontainer creates a container and exits; the shim inherits the container
//!    ^                 |   ---fork---> exec:    joins a container and executes a command
//!    |                 |   ---fork---> pause:   holds the pod's namespaces, reaps where containers share a PID namespace
//!    '---- events -----'
//! ```
//!
//! - libcontainer runs only in a creator, which is forked from a process with a single thread, so none of its state stays in memory and
//!   a crash of libcontainer costs one start.
//! - The shim is the authority on a container: it writes `state.json` in the container's directory when the container runs and again when
//!   it has exited, atomically each time. libcontainer's own state file is not read.
//! - The shim runs from a sealed executable ([`keelet_linux::seal`]), because a container can open the executable of its creator.
//! - If a shim is killed, its containers keep running. The runtime starts another shim on the same directory, which adopts them by their
//!   pidfds; since Linux 6.15 a pidfd gives the exit status to processes that are not the parent.
//!
//! The runtime uses [`protocol`] and [`wire`] to talk to a shim, and [`running`] to find shims.

mod command;
mod confinement;
mod create;
mod error;
mod exec;
mod logfile;
mod node_ids;
mod pause;
pub mod protocol;
mod report;
pub mod running;
mod shim;
pub mod wire;

pub use self::shim::run;
