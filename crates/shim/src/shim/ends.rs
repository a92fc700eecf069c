//! How containers end, and that it is written down.

use std::{
    fs, io,
    time::{Duration, Instant},
};

use keelet_linux::pidfd::{self, exit_code};

use super::{AGAIN, Shim};
use crate::{
    maker::{STDERR, STDIN, STDOUT},
    protocol::{Answer, Exit, STATE, State, container_dir, write},
    text::now,
};

/// How long it is asked how adopted containers ended, for all of them together: nobody is served meanwhile, and a node's first
/// process that reaps at all takes a moment.
const TIME_TO_HEAR: Duration = Duration::from_secs(1);
/// Between two times it is asked.
const ASKED_AGAIN: Duration = Duration::from_millis(2);

// === impl Shim ===

impl Shim {
    /// Takes notice of all adopted containers that have ended.
    pub(super) fn adopted_ended(&mut self) {
        let ended = self
            .containers
            .iter()
            .filter(|(_, container)| container.adopted && container.handle.as_ref().is_some_and(pidfd::has_ended));
        let ended: Vec<_> = ended.map(|(id, _)| id.clone()).collect();
        let deadline = Instant::now() + TIME_TO_HEAR;
        ended.iter().for_each(|id| self.one_adopted_ended(id, deadline));
    }

    /// Each is asked about once at least.
    fn one_adopted_ended(&mut self, id: &str, deadline: Instant) {
        let Some(container) = self.containers.get(id) else { return };
        let (Some(handle), process) = (&container.handle, container.process) else { return };
        // Reaped by the node's first process, which may take a moment; before that nobody is told, and afterwards there is
        // nothing to wait for.
        let status = loop {
            // What cannot be looked at now may be there.
            let is_reaped = match pidfd::identify(process.pid) {
                Ok(found) => !found.is_same(process),
                Err(error) => matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)),
            };
            let status = pidfd::wait_status(handle);
            if status.is_some() || is_reaped || Instant::now() >= deadline {
                break status;
            }
            std::thread::sleep(ASKED_AGAIN);
        };
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
        self.write_down(Instant::now());
        let dir = container_dir(&self.dir, id);
        for name in [STDIN, STDOUT, STDERR] {
            let _ = fs::remove_file(dir.join(name));
        }
        self.announce(&Answer::Ended { id: id.to_owned(), exit });
    }

    /// Writes down how containers ended. What cannot be written now is kept, told to whoever asks, and tried again: nobody
    /// else knows it.
    pub(super) fn write_down(&mut self, now: Instant) {
        self.wrote_down_at = now;
        let dir = &self.dir;
        self.unwritten.retain(|id, state| match write(&container_dir(dir, id).join(STATE), state) {
            Ok(()) => false,
            // The container was removed.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        });
    }

    /// The same for what could not be written before, but not at every step: a container that talks makes many.
    pub(super) fn write_down_again(&mut self, now: Instant) {
        if now.duration_since(self.wrote_down_at) >= AGAIN {
            self.write_down(now);
        }
    }

    /// Takes notice of all that has ended by now.
    pub(super) fn catch_up(&mut self) {
        self.children();
        self.adopted_ended();
    }
}
