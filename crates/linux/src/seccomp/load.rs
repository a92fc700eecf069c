//! Installing a filter on the calling thread.

use std::io;

use super::Program;
use crate::sys;

/// Filters every further system call of this thread and its descendants, irrevocably.
///
/// The process must have a single thread, or the others stay unfiltered (unless the profile has the TSYNC flag). The kernel requires
/// `CAP_SYS_ADMIN` or no_new_privs; without both it answers EACCES. After an error nothing is filtered, so the caller must not run the
/// container.
pub fn load(program: &Program) -> io::Result<()> {
    let mut filter: Vec<libc::sock_filter> = program
        .instructions
        .iter()
        .map(|i| libc::sock_filter { code: i.code, jt: i.if_true, jf: i.if_false, k: i.operand })
        .collect();
    // The compiler keeps programs far below this limit.
    let len = u16::try_from(filter.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    match sys::seccomp::set_filter(&mut filter, len, program.flags) {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        // With TSYNC: the thread that could not be synchronised.
        thread => Err(io::Error::other(format!("cannot install the seccomp filter on thread {thread}"))),
    }
}
