//! Evidence on disk: the agent's memory of its pods, so that the next agent decides as this one would have.
//!
//! The agent records the output of a plan ([`Ledger::commit`]) before it acts on the plan. The next agent loads it
//! ([`Ledger::open`]). The ledger decides nothing about pods and reads no clock; it owns two directories and the newest
//! value of everything in them. Its calls block, so the agent makes them off its async threads.
//!
//! # Two tiers
//!
//! | | durable | volatile |
//! | --- | --- | --- |
//! | where | a disk | tmpfs |
//! | survives | a reboot | the agent, within one boot |
//! | holds | restart counts, backoff, restart-all, exits, last status, a copy of the pod, the journal of what changed when | verdicts of probes per container ID (started and ready follow from them), streaks, operations, probe history, the reasons of the last status |
//! | written | on transitions: temporary file, sync, rename, sync of the directory (the journal: without the syncs, because nothing is decided from it) | at once where a decision could rest on the change, else every ten seconds; temporary file, rename |
//!
//! Beside the pods the ledger keeps what is remembered of the node itself (`node`) and, for people, the newest events of the node
//! (`events`) and the newest removed pods (`gone`).
//!
//! A passing probe changes nothing durable, and `quiet` says which volatile changes may wait. Both tiers are JSON that
//! `cat` shows; `names` says where, `envelope` what every file has in common.
//!
//! # The way of a commit
//!
//! ```text
//! PodCommit --page::take-> Page            newest values in memory, whatever the disk does
//!                       |--> volatile/pods/<uid>/evidence.json   carries all evidence: its rename is the commit
//!                       |                                     and its reasons and what is new in the journal
//!                       |    volatile/pods/<uid>/history.json
//!                       |--> durable/pods/<uid>/evidence.json    follows if durable evidence changed
//!                       '--> durable/pods/<uid>/journal.json     follows if there is something new to tell
//! ```
//!
//! The volatile file contains the durable evidence too, with the generation in which it last changed. So a commit is
//! atomic although it writes two files on two file systems: after a crash in between, the newer generation wins. For
//! the same reason evidence outlives the agent while the durable disk is full or read-only.
//!
//! # Failures
//!
//! - A write that fails is an [`Outcome::Failed`], nothing worse. Memory has the newest value, the old file is whole,
//!   and the next commits retry; [`Outcome::Written`] reports when it works again.
//! - A file that cannot be used is set aside and reported as a [`Loss`] (`load`, `set_aside`). Everything else is
//!   loaded, and nothing is invented in its place. The same goes for files of a newer keelet.
//! - Older versions are migrated (`migrate`); every released version stays under test.
//! - Two agents cannot open one ledger. [`Snapshot`] reads beside a running agent without disturbing it.
//!
//! Everything the ledger does to a file system goes through [`Disk`], so tests can simulate a crash between any two
//! calls.

mod commit;
mod crc;
mod disk;
mod envelope;
mod events;
mod gone;
mod guard;
mod heartbeat;
mod history;
mod journal;
mod ledger;
mod lines;
mod load;
mod migrate;
mod names;
mod node;
mod page;
mod quiet;
mod reader;
mod set_aside;
mod two_tiers;
mod write;

pub use self::{
    commit::{Committed, PodCommit, Taken},
    disk::{Disk, DiskEntry, EntryKind, Lock, OsDisk, Sheet},
    envelope::{Damage, Kind, LARGEST_FILE, PodRef},
    gone::Gone,
    heartbeat::Beat,
    history::Bounds,
    ledger::{Ledger, OpenError, Opened, Settings},
    load::{Fate, Loss, Place, Recovered},
    names::BadUid,
    page::Explanation,
    reader::Snapshot,
    write::{Outcome, WriteError, WriteStep},
};
