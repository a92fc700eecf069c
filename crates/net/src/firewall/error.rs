//! Why packet rules cannot be changed or read.

use std::io;

/// What nftables or connection tracking answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FirewallError {
    /// The netlink socket cannot be opened or used.
    #[error("nftables: {0}")]
    Netlink(#[source] io::Error),
    /// The kernel refused a batch.
    #[error("nftables refused message {sequence} of the batch: {source}")]
    Refused {
        /// The sequence number of the message.
        sequence: u32,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The kernel did not acknowledge a batch.
    #[error("nftables did not acknowledge the batch")]
    NotAcknowledged,
    /// Tracked connections cannot be listed or deleted.
    #[error("connection tracking: {0}")]
    Tracking(#[source] io::Error),
}
