//! Putting a filter over the calling thread.

use std::io;

use super::Program;

/// Filters every further system call of this thread, and of everything it starts. There is no way back.
///
/// The process must have a single thread, or the others stay unfiltered (unless the profile has the TSYNC flag). The
/// kernel wants `CAP_SYS_ADMIN` or no_new_privs; without both it answers EACCES. Any error means that nothing is
/// filtered, so the caller must not go on to run the container.
pub fn load(program: &Program) -> io::Result<()> {
    let mut filter: Vec<libc::sock_filter> = program
        .instructions
        .iter()
        .map(|i| libc::sock_filter { code: i.code, jt: i.if_true, jf: i.if_false, k: i.operand })
        .collect();
    // The compiler keeps programs far below this.
    let len = u16::try_from(filter.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    match set_filter(&mut filter, len, program.flags) {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        // With TSYNC: which thread could not be brought in line.
        thread => Err(io::Error::other(format!("the seccomp filter cannot be put over thread {thread}"))),
    }
}

#[expect(unsafe_code, reason = "no safe form of seccomp(2) exists")]
fn set_filter(filter: &mut [libc::sock_filter], len: u16, flags: u32) -> libc::c_long {
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel reads `len` instructions behind the pointer: the slice, which is borrowed until it returns.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, std::ptr::from_ref(&program)) }
}
