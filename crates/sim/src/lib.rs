//! A simulated world to run the real agent in, and to break it in.
//!
//! The agent of [`keelet_agent`] runs unchanged on simulated doors: a container runtime, a network, a disk, a clock,
//! readers. Time is tokio's paused time, there is one thread and one source of chance, so a seed replays a run byte for
//! byte. [`World`] is the way in: it holds the pods, plays what containers are scripted to do, lets time pass, kills the
//! agent wherever one likes, and shows what was published.
//!
//! ```text
//! World ---> Agent (a process) --doors--> runtime  network  disk  clock  host  readers
//!   |                                            |        |       |     |      |      |
//!   '--- scripts, faults --------------------> State: node, medium, time, api_statuses, timeline
//!                                                                                     |
//!                                                   checkers <--- every entry --------'
//! ```
//!
//! - The `node` and everything on it outlives the agent. Calls belong to the world from the moment they are sent.
//! - A run of the agent ends as a process does that is killed: nothing of it is dropped, nothing keeps running (`process`).
//! - What must hold is checked at every entry of the [`Timeline`] (`check`). A broken promise comes with the whole
//!   timeline, one line for each thing that happened.
//! - [`random_run`] runs a random pod with random faults, and `make sim` many of them; [`for_each_death`] plays one sequence of events
//!   again and again, and kills the agent before and after each of its effects.

mod bare;
mod check;
mod clock;
mod deaths;
mod dial;
mod disk;
mod faults;
mod host;
mod node;
mod process;
mod publisher;
mod random_run;
mod runtime;
mod script;
mod scripting;
mod sim;
mod targets;
mod timeline;
mod world;

pub use keelet_sim_api::Random;

pub use self::{
    bare::{bare_agent, bare_runtime, bare_server},
    check::Violation,
    deaths::{for_each_death, for_some_deaths},
    faults::{Acknowledging, CallKind, CallOdds, DiskMood, EventOdds, Fate, Faults},
    node::{ContainerRun, Loss, Node, Remains},
    process::{Death, InFlight},
    random_run::{Failure, Report, random_run, replay_command},
    script::{Answer, ContainerScript, ExitRule, ImageScript, Instances, OnTerm, Reply, Scripts, Wire},
    scripting::{Image, Script},
    timeline::{Attempt, ExitCause, Happening, InstanceRef, Memory, Occurrence, SandboxChange, Timeline},
    world::{SimSource, World, WorldBuilder, millis, secs},
};
