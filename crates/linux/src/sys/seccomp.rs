//! seccomp(2).

/// Installs a filter on the calling thread; the answer is the kernel's.
pub(crate) fn set_filter(filter: &mut [libc::sock_filter], length: u16, flags: u32) -> libc::c_long {
    assert!(usize::from(length) <= filter.len());
    let program = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel reads `length` instructions behind the pointer: the slice, which is borrowed until it returns.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, std::ptr::from_ref(&program)) }
}
