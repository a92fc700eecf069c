//! What `keelet run` shows of its pods, from the first container to the end of the last one.
//!
//! ```text
//! load (files -> pods) --> a Node (the binary's) --> session (until all have ended, or Ctrl-C)
//!                                                       |        |
//!                       frame, screen (a terminal) <----'        '--> plain (anything else)
//! ```

mod ending;
mod frame;
mod load;
mod logs;
mod notes;
mod plain;
mod probes;
mod screen;
mod session;

use std::{path::Path, sync::Arc};

use keelet_agent::{
    board::{Board, Published},
    clock::OsClock,
};
use keelet_host::Layout;
use keelet_pod::Pod;
use keelet_serve::{BindError, api::Pulling};

pub use self::{
    ending::{Ending, Signals},
    frame::Lives,
    load::pods,
    notes::Notes,
    session::follow,
};

/// The agent behind a run, as a session sees it.
pub trait Node {
    /// Its pods, in the order of the files.
    fn pods(&self) -> &[Arc<Pod>];
    /// The newest statuses, events and probe results of the pods.
    fn board(&self) -> &Arc<Board>;
    /// Its clock.
    fn clock(&self) -> &OsClock;
    /// Where the logs are.
    fn layout(&self) -> &Layout;
    /// The socket on which other commands reach these pods, or why there is none.
    fn socket(&self) -> Result<&Path, &BindError>;
    /// The containers of a pod that run, and what their probes have shown.
    fn lives(&self, pod: &Pod) -> Lives;
    /// The images that are being pulled.
    fn pulling(&self) -> Vec<Pulling>;
    /// Deletes all pods, with their grace periods.
    fn dismiss(&self);
    /// Kills all pods at once.
    fn kill(&self);
    /// Whether what is here of a pod was left by an earlier run on the same directory: either this one does not have it,
    /// or wants it to run while it is on its way out.
    fn is_of_earlier_run(&self, published: &Published) -> bool;
    /// A test for whether a pod of this run has begun. What an earlier run has left of it does not count.
    fn has_begun(&self, uid: &str) -> Box<dyn Fn() -> bool + Send>;
    /// Whether nothing is left of pods that have to go, also those of an earlier run.
    fn is_clear(&self) -> bool;
}
