//! What the agent itself may lack: descriptors, memory, local ports, a free name lookup.
//!
//! An attempt that fails for such a reason says nothing about its target. It is late, never a failure.

use std::io;

use rustix::io::Errno;

/// All lookups of names that may be under way are. Made by [`crate::TcpDial`], and told apart by its kind, which no socket
/// has.
pub(crate) fn no_lookup_free() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "this node resolves as many names at once as it may")
}

/// Whether the agent lacks something, rather than the target.
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
    fn what_the_agent_lacks_is_told_from_what_a_target_does() {
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
