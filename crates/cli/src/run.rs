//! What `keelet run` shows of its pods, from the first container to the end of the last one.
//!
//! ```text
//! load (files -> pods) --> keelet_assembly::Run --> session (until all have ended, or Ctrl-C)
//!                                                      |        |
//!                      frame, screen (a terminal) <----'        '--> plain (anything else)
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

pub use self::{
    ending::{Ending, Signals},
    load::pods,
    notes::Notes,
    session::follow,
};
