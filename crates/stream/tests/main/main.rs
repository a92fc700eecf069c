//! Whole sessions over loopback: with our own client, and with clients that mean harm.

mod backend;
mod hostile;
mod sessions;
mod wire;
