//! Whole sessions over loopback: with keelet's client, and with hostile clients.

mod backend;
mod hostile;
mod sessions;
mod wire;
