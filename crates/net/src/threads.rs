//! Threads of our own: one that does a whole operation, and one that enters a namespace.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::Error;

/// Runs `work` on a new thread and waits for it without blocking the caller's. When the caller stops waiting, the work
/// still goes on to its end: what it changes in the kernel could not be taken back half-way.
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
    reported.await.map_err(|_| died(name))?
}

/// Runs `work` inside a network namespace, on a thread that ends with it. Blocks: for use on threads of [`aside`].
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
        thread.join().map_err(|_| died(NAME))?
    })
}

/// Drives async code to its end on this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|source| Error::Thread { name: "keelet-net runtime", source })?.block_on(work)
}

/// Whether a path leads to a namespace. A file that one was bound to stays when the binding goes.
pub(crate) fn is_namespace(path: &Path) -> bool {
    const NAMESPACES: u64 = 0x6e73_6673;
    rustix::fs::statfs(path).is_ok_and(|found| u64::try_from(found.f_type) == Ok(NAMESPACES))
}

/// Moves this thread, for good.
fn enter(netns: &Path) -> Result<(), Error> {
    let failed = |source| Error::Namespace { path: netns.to_owned(), source };
    let file = File::open(netns).map_err(failed)?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).map_err(|errno| failed(errno.into()))
}

fn died(name: &'static str) -> Error {
    Error::Thread { name, source: std::io::Error::other("it died without an answer") }
}
