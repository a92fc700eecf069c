//! Threads: one for a whole operation, and one that enters a namespace.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::Error;

/// Runs `work` on a new thread and awaits it. The work runs to completion also if the caller is cancelled: its changes to the kernel could not
/// be reverted half-way.
pub(crate) async fn aside<T, F>(name: &'static str, work: F) -> Result<T, Error>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, Error> + Send + 'static,
{
    let (report, reported) = tokio::sync::oneshot::channel();
    let run = move || {
        let _ = report.send(work());
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(|source| Error::Thread { name, source })?;
    reported.await.map_err(|_| panicked(name))?
}

/// Runs `work` inside a network namespace, on a thread that exits afterwards. Blocks: for use on threads of [`aside`].
pub(crate) fn inside<T, F>(netns: &Path, work: F) -> Result<T, Error>
where
    T: Send,
    F: FnOnce() -> Result<T, Error> + Send,
{
    const NAME: &str = "keelet-netns";
    std::thread::scope(|scope| {
        let run = || {
            enter(netns)?;
            work()
        };
        let thread = std::thread::Builder::new().name(NAME.to_owned());
        let thread = thread.spawn_scoped(scope, run).map_err(|source| Error::Thread { name: NAME, source })?;
        thread.join().map_err(|_| panicked(NAME))?
    })
}

/// Runs a future to completion on this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|source| Error::Thread { name: "keelet-net runtime", source })?.block_on(work)
}

/// Whether a path is a namespace. A file on which one was mounted remains after the unmount.
pub(crate) fn is_namespace(path: &Path) -> bool {
    const NAMESPACES: u64 = 0x6e73_6673;
    rustix::fs::statfs(path).is_ok_and(|found| u64::try_from(found.f_type) == Ok(NAMESPACES))
}

/// Moves this thread into a namespace, irrevocably.
fn enter(netns: &Path) -> Result<(), Error> {
    let failed = |source| Error::Namespace { path: netns.to_owned(), source };
    let file = File::open(netns).map_err(failed)?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).map_err(|errno| failed(errno.into()))
}

fn panicked(name: &'static str) -> Error {
    Error::Thread { name, source: std::io::Error::other("it panicked") }
}
