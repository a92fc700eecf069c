//! Resources that the agent itself may run out of: descriptors, memory, local ports, name lookups.
//!
//! An attempt that fails for lack of one says nothing about its target. Its outcome is late, never a failure.

use std::io;

use rustix::io::Errno;

/// All permitted name lookups are in use. [`crate::TcpDial`] returns it; its kind identifies it, because no socket
/// error has that kind.
pub(crate) fn no_lookup_free() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "too many name lookups in progress on this node")
}

/// Whether the error is a shortage of the agent and not of the target.
pub(crate) fn is_ours(error: &io::Error) -> bool {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(errno) => {
            matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::ADDRNOTAVAIL)
        }
        None => error.kind() == io::ErrorKind::ResourceBusy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PROBE-47.
    #[test]
    fn a_shortage_of_the_agent_is_distinguished_from_an_error_of_the_target() {
        for (errno, ours) in [
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::NOMEM, true),
            (Errno::NOBUFS, true),
            (Errno::ADDRNOTAVAIL, true),
            (Errno::CONNREFUSED, false),
            (Errno::CONNRESET, false),
            (Errno::HOSTUNREACH, false),
            (Errno::NETUNREACH, false),
            (Errno::TIMEDOUT, false),
            (Errno::PIPE, false),
            (Errno::ACCESS, false),
        ] {
            assert_eq!(is_ours(&errno.into()), ours, "{errno}");
        }
        assert!(is_ours(&no_lookup_free()));
        assert!(!is_ours(&io::Error::other("more than 256 KiB received")));
    }
}
