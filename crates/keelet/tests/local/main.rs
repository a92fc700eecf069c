//! The commands that ask an agent, and `keelet run`, from the outside, on a simulated runtime.

mod commands;
mod node;
mod run;
