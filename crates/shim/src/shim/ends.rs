//! How containers end, and that it is written down.

use std::{fs, io};

use super::Shim;
use crate::{
    maker::{STDERR, STDIN, STDOUT},
    pidfd::{self, exit_code},
    process::now,
    protocol::{Answer, Exit, STATE, State, container_dir, write},
};

/// How often it is asked how an adopted container ended, 2 ms apart: five seconds, which is long for a first process that
/// reaps at all, also on a busy node.
const ATTEMPTS_TO_HEAR: usize = 2500;

// === impl Shim ===

impl Shim {
    pub(super) fn adopted_ended(&mut self, id: &str) {
        let Some(container) = self.containers.get(id) else { return };
        let (Some(handle), process) = (&container.handle, container.process) else { return };
        // Reaped by the node's first process, which may take a moment; before that nobody is told, and afterwards there is
        // nothing to wait for.
        let mut status = None;
        for _ in 0..ATTEMPTS_TO_HEAR {
            // What cannot be looked at now may be there.
            let is_reaped = match pidfd::identify(process.pid) {
                Ok(found) => found != process,
                Err(error) => matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)),
            };
            status = pidfd::wait_status(handle);
            if status.is_some() || is_reaped {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        self.container_ended(id, status.map(exit_code));
    }

    pub(super) fn container_ended(&mut self, id: &str, code: Option<i32>) {
        let Some(mut container) = self.containers.remove(id) else { return };
        let at = now();
        // Where processes are shared with others the kernel does not end the rest of the container.
        let oom = container.cgroup.as_deref().is_some_and(|cgroup| {
            self.cgroups.kill(cgroup);
            code != Some(0) && self.cgroups.oom_kills(cgroup) > 0
        });
        self.last_words.extend(container.output.finish(at));
        let exit = Exit { code, at, oom };
        let state = State { process: container.process, started_at: container.started_at, exit: Some(exit) };
        self.unwritten.insert(id.to_owned(), state);
        self.write_down();
        let dir = container_dir(&self.dir, id);
        for name in [STDIN, STDOUT, STDERR] {
            let _ = fs::remove_file(dir.join(name));
        }
        self.announce(&Answer::Ended { id: id.to_owned(), exit });
    }

    /// Writes down how containers ended. What cannot be written now is kept, told to whoever asks, and tried again: nobody
    /// else knows it.
    pub(super) fn write_down(&mut self) {
        let dir = &self.dir;
        self.unwritten.retain(|id, state| match write(&container_dir(dir, id).join(STATE), state) {
            Ok(()) => false,
            // The container was removed.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        });
    }

    /// Takes notice of all that has ended by now.
    pub(super) fn catch_up(&mut self) {
        self.children();
        let ended = self
            .containers
            .iter()
            .filter(|(_, container)| container.adopted && container.handle.as_ref().is_some_and(pidfd::has_ended));
        let ended: Vec<_> = ended.map(|(id, _)| id.clone()).collect();
        ended.iter().for_each(|id| self.adopted_ended(id));
    }
}
