//! The process that stays with a pod.
//!
//! The runtime's server may be killed at any time; containers must not notice. So each pod has a shim: a small
//! single-threaded process that makes the pod's containers, is their parent, writes what they say into log files and
//! records how they ended before it tells anybody.
//!
//! ```text
//! server --socket--> shim ---fork---> maker: libcontainer makes a container, then goes; the container falls to the shim
//!    ^                |  ---fork---> exec:  joins a container and becomes a command
//!    |                |  ---fork---> pause: holds the pod's namespaces, reaps where they share processes
//!    '--- events -----'
//! ```
//!
//! - libcontainer runs only in a maker, which forks off a process with one thread, so nothing of it stays in memory and
//!   a crash of it costs one start.
//! - The shim is the authority on a container: `state.json` in the container's directory is written when it runs and
//!   again when it has ended, each time in one step. libcontainer's own state file is not read.
//! - It runs from a sealed executable ([`keelet_linux::mount::sealed`]), because a container can reach the file that its maker ran from.
//! - If a shim is killed its containers run on. The server starts another on the same directory, which adopts them by
//!   their pidfds; since Linux 6.15 those tell an exit code to somebody who is not the parent.

mod exec;
mod finish;
pub mod living;
mod logfile;
mod maker;
mod on_node;
mod pause;
pub mod protocol;
mod shim;
mod text;
pub mod wire;

pub use self::shim::run;
