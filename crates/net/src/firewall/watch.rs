//! Notifications about tables that another program removed: `nft flush ruleset`, a firewall service that restarts.

use std::fmt;
use std::io;

use rtnetlink::sys::protocols::NETLINK_NETFILTER;
use rtnetlink::sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};

use super::message::DELETE_TABLE;
use super::socket::read_messages;

/// The multicast group of nftables, as a bit: the seventh.
const NFTABLES_GROUP: u32 = 1 << 6;

/// Notifications of the kernel about removed tables.
pub(crate) struct Removals {
    socket: TokioSocket,
}

// === impl Removals ===

impl Removals {
    /// Subscribes. Needs a tokio runtime.
    pub(crate) fn listen() -> io::Result<Removals> {
        let mut socket = TokioSocket::new(NETLINK_NETFILTER)?;
        socket.socket_mut().bind(&SocketAddr::new(0, NFTABLES_GROUP))?;
        Ok(Removals { socket })
    }

    /// Waits until a table of this network namespace was removed. An overflow of the socket's buffer counts as a removal.
    pub(crate) async fn next(&mut self) -> io::Result<()> {
        loop {
            match self.socket.recv_from_full().await {
                Ok((bytes, _)) => {
                    if read_messages(&bytes).iter().any(|message| message.is(DELETE_TABLE)) {
                        return Ok(());
                    }
                }
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

impl fmt::Debug for Removals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Removals").finish_non_exhaustive()
    }
}
