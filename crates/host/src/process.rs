//! Waiting for the end of a process that is not ours.

use futures::{FutureExt, future::BoxFuture};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::{Interest, unix::AsyncFd};

/// Resolves when the process ends. `None` if the kernel knows no such process here, or cannot watch it: it may live in
/// a namespace that this agent does not see, so that says nothing about its end.
pub(super) fn end(pid: u32) -> Option<BoxFuture<'static, ()>> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    let descriptor = pidfd_open(pid, PidfdFlags::NONBLOCK).ok()?;
    let wait = async move {
        #[expect(deprecated, reason = "unsound for types that change their descriptor; this one owns it until the end")]
        let watched = AsyncFd::with_interest(descriptor, Interest::READABLE);
        // It becomes readable when the process ends, and stays so.
        match watched {
            Ok(descriptor) => drop(descriptor.readable().await),
            Err(error) => {
                tracing::warn!(pid = pid.as_raw_nonzero().get(), %error, "cannot watch process; its exit is found by the next observation");
                futures::future::pending().await
            }
        }
    };
    Some(wait.boxed())
}
