//! Stopping and removing containers.

use std::{fs, io, sync::Arc, time::Duration};

use keelet_shim::protocol::{self, Exit, Request};
use tonic::Status;

use super::{Container, Phase};
use crate::{
    engine::{Engine, now},
    records::RECORD,
    sandbox::{failed, internal},
};

/// How long a killed process may take to be gone. It is the kernel's time: unmapping memory, closing files.
const KILLED: Duration = Duration::from_secs(30);

/// How often a directory that was not empty after all is removed again.
const REMOVED_AGAIN: usize = 2;

/// The exit status of a container whose end was not seen stays unknown. A caller that stops it need not wait for that,
/// nor for room to write it down: the caller can stop it again at the next server.
fn settle(container: &Container) {
    let unknown = matches!(&*container.phase(), Phase::Ended { exit: Exit { code: None, .. }, .. });
    if !unknown {
        return;
    }
    let record = {
        let mut record = container.record();
        record.given_up_at.get_or_insert_with(now);
        record.clone()
    };
    if let Err(error) = protocol::write(&container.dir.join(RECORD), &record) {
        tracing::warn!(container = container.id, %error, "cannot record that a container was abandoned");
    }
}

/// Removes a directory that may be gone already. Its shim may be about to write down an end for which there was no room before:
/// it does so once, and what is not empty for that reason is so once.
fn remove_at_last(mut remove: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let mut again = REMOVED_AGAIN;
    loop {
        match remove() {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && again > 0 => again -= 1,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => return Ok(()),
        }
    }
}

// === impl Engine ===

impl Engine {
    pub(crate) async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), Status> {
        let Ok(container) = self.container(id) else { return Ok(()) };
        if !grace.is_zero() && container.is_running() {
            let stop_signal = container.record().stop_signal;
            container.signal(stop_signal);
            if tokio::time::timeout(grace, container.wait()).await.is_ok() {
                settle(&container);
                return Ok(());
            }
        }
        self.stop_container_now(&container).await
    }

    /// Kills a container and waits for its end.
    pub(crate) async fn stop_container_now(&self, container: &Arc<Container>) -> Result<(), Status> {
        if container.is_running() {
            container.signal(libc::SIGKILL);
            tokio::time::timeout(KILLED, container.wait()).await.map_err(|_| {
                Status::deadline_exceeded(format!("container {} was killed and has not exited yet", container.id))
            })?;
        }
        settle(container);
        Ok(())
    }

    /// Removes a container, by force if it runs. May be repeated.
    pub(crate) async fn remove_container(&self, id: &str) -> Result<(), Status> {
        let Ok(container) = self.container(id) else { return Ok(()) };
        let _lock = container.lock.lock().await;
        self.stop_container_now(&container).await?;
        let one = Arc::clone(&container);
        let removed = self.blocking(move |parts| {
            parts.cgroups.kill(&one.cgroup());
            for mount in one.image_mounts() {
                parts.images.unmount_image(&mount).map_err(|error| internal("image volume", &error))?;
            }
            parts.images.remove_root(&one.id).map_err(|error| internal("the container's files", &error))?;
            parts.cgroups.clear(&one.cgroup()).map_err(|error| internal("the container's cgroup", &error))?;
            remove_at_last(|| fs::remove_dir_all(&one.dir))
                .map_err(|error| internal("the container's directory", &error))
        });
        removed.await?;
        self.forget_container(&container.id);
        self.removed(&container);
        Ok(())
    }

    pub(crate) async fn reopen_log(&self, id: &str) -> Result<(), Status> {
        let container = self.container(id)?;
        if !container.is_running() {
            return Err(Status::failed_precondition(format!("container {} is not running", container.id)));
        }
        let sandbox = self.sandbox(&container.sandbox)?;
        let request = Request::ReopenLog { id: container.id.clone() };
        sandbox.shim().done(&request, &[]).await.map_err(|error| failed(&error))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::remove_at_last;

    /// What each attempt says, in turn, and how many of them are left.
    fn removed(attempts: &[Option<ErrorKind>]) -> (Result<(), ErrorKind>, usize) {
        let mut attempts = attempts.iter();
        let removed = remove_at_last(|| match attempts.next().expect("no more attempts than these") {
            Some(kind) => Err(Error::from(*kind)),
            None => Ok(()),
        });
        (removed.map_err(|error| error.kind()), attempts.len())
    }

    #[test]
    fn what_a_shim_still_writes_does_not_keep_a_directory() {
        use ErrorKind::{DirectoryNotEmpty, NotFound, PermissionDenied};
        assert_eq!(removed(&[None]), (Ok(()), 0));
        assert_eq!(removed(&[Some(NotFound)]), (Ok(()), 0), "by another process");
        assert_eq!(removed(&[Some(DirectoryNotEmpty), None]), (Ok(()), 0));
        assert_eq!(removed(&[Some(DirectoryNotEmpty), Some(DirectoryNotEmpty), Some(NotFound)]), (Ok(()), 0));
        assert_eq!(removed(&[Some(DirectoryNotEmpty); 4]), (Err(DirectoryNotEmpty), 1), "not for ever");
        assert_eq!(removed(&[Some(PermissionDenied), None]), (Err(PermissionDenied), 1));
    }
}
