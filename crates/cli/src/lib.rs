//! The commands of keelet, one file per verb.
//!
//! Each verb is a module with `Args`, which clap fills in, and `run`, which does it, prints the answer and says how it went. The binary has the
//! list of verbs and starts what runs for long: the agent, the embedded runtime, and the agent behind `keelet run`.
//!
//! - Verbs that ask the agent over its socket: [`get`], [`describe`], [`logs`], [`exec`], [`port_forward`], [`events`], [`top`],
//!   [`change`] (restart and delete), [`image`]. What they share is in `ask` (which socket, which pod) and `absence` (an agent that is restarted meanwhile).
//! - Verbs that read the ledger, with or without an agent: [`why`], [`timeline`]. Their sentences are made in `keelet-explain`.
//! - Verbs that need neither: [`validate`], [`simulate`].
//! - Verbs that ask the API server of a cluster: [`gates`]. They decide with the functions of the controller, `keelet-gates`.
//! - [`run`] is what `keelet run` shows: the live view on a terminal, lines elsewhere.
//! - Options that several commands take: [`feature_gates`], [`paths`], [`registries`], [`number`].
//! - How it looks: `view` (tables, YAML, ages, the state of a pod in a word), [`style`], `progress`, [`output`].

mod absence;
mod ask;
pub mod change;
pub mod describe;
pub mod events;
pub mod exec;
pub mod exit;
pub mod feature_gates;
mod format;
pub mod gates;
pub mod get;
pub mod image;
pub mod logs;
mod lookup;
mod manifest;
pub mod number;
pub mod output;
pub mod paths;
pub mod port_forward;
mod progress;
pub mod registries;
pub mod run;
pub mod simulate;
pub mod style;
mod terminal;
mod text_style;
pub mod timeline;
pub mod top;
pub mod validate;
mod view;
pub mod why;
