//! How much went through the interfaces of a pod.

use std::path::Path;

use crate::kernel::Kernel;
use crate::{Error, threads};

/// What one interface counted since it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceCounters {
    /// Its name inside the pod.
    pub name: String,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets that could not be received.
    pub rx_errors: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
}

/// The counters of all interfaces in a network namespace, in the kernel's order and without loopback.
///
/// # Errors
///
/// When the namespace cannot be entered, or the kernel does not answer.
pub async fn counters(netns: &Path) -> Result<Vec<InterfaceCounters>, Error> {
    let path = netns.to_owned();
    let look = move || threads::inside(&path, || threads::block_on(async { Kernel::open()?.links().await }));
    let links = threads::aside("keelet-counters", look).await?;
    let counted = links.into_iter().filter(|link| link.name != "lo").filter_map(|link| {
        let stats = link.counted?;
        Some(InterfaceCounters {
            name: link.name,
            rx_bytes: stats.rx_bytes,
            rx_errors: stats.rx_errors,
            tx_bytes: stats.tx_bytes,
            tx_errors: stats.tx_errors,
        })
    });
    Ok(counted.collect())
}
