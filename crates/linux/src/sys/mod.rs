//! System calls that have no safe wrapper in `rustix` or `nix`, each behind a function that is safe to call.

pub(crate) mod bpf;
pub(crate) mod mount;
pub(crate) mod pidfd;
pub(crate) mod process;
pub(crate) mod seccomp;
