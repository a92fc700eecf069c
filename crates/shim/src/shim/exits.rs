//! Noticing exits, and recording those of containers.

use std::{
    io,
    time::{Duration, Instant},
};

use keelet_linux::{
    pidfd::{self, exit_code},
    process::reap,
};

use super::{Command, RETRY, Shim, now};
use crate::protocol::{Answer, Exit, STATE, State, container_dir, write};

/// The most wait statuses that are kept for reports that have not been read yet.
const MOST_UNCLAIMED: usize = 256;

/// How long to wait for the exit statuses of adopted containers, for all of them together. The shim serves no request meanwhile, and the
/// node's init process may take a moment to reap.
const EXIT_STATUS_TIMEOUT: Duration = Duration::from_secs(1);
const EXIT_STATUS_POLL: Duration = Duration::from_millis(2);

// === impl Shim ===

impl Shim {
    /// Notices all exits up to now.
    pub(super) fn catch_up(&mut self) {
        self.reap_children();
        self.adopted_exits();
    }

    /// Reaps all children that have exited.
    pub(super) fn reap_children(&mut self) {
        while matches!(self.signals.read_signal(), Ok(Some(_))) {}
        while let Some((pid, status)) = reap() {
            self.child_exited(pid, status);
        }
    }

    /// A PID that is not known may be in a report that has not been read yet.
    pub(super) fn child_exited(&mut self, pid: u32, status: i32) {
        if self.handle_exit(pid, status) {
            return;
        }
        self.read_reports();
        // Once no report is outstanding the process belongs to none, and its PID may be reused.
        if !self.handle_exit(pid, status) && !self.pending.is_empty() {
            if self.unclaimed.len() == MOST_UNCLAIMED {
                self.unclaimed.pop_first();
            }
            self.unclaimed.insert(pid, status);
        }
    }

    /// Handles the exit of a known process; false if the PID is not known.
    pub(super) fn handle_exit(&mut self, pid: u32, status: i32) -> bool {
        let code = Some(exit_code(status));
        if self.pause == Some(pid) {
            self.pause = None;
            self.announce(&Answer::Ended { id: String::new(), exit: Exit { code, at: now(), oom: false } });
            return true;
        }
        if let Some(Command { connection, .. }) = self.commands.remove(&pid) {
            let exit = Exit { code, at: now(), oom: false };
            self.answer(connection, &Answer::Ended { id: String::new(), exit }, &[]);
            self.connections.remove(&connection);
            return true;
        }
        let found = self.containers.iter().find(|(_, container)| container.process.pid == pid && !container.adopted);
        let Some(id) = found.map(|(id, _)| id.clone()) else { return false };
        self.container_exited(&id, code);
        true
    }

    /// Handles the exits of adopted containers.
    pub(super) fn adopted_exits(&mut self) {
        let exited = self
            .containers
            .iter()
            .filter(|(_, container)| container.adopted && container.pidfd.as_ref().is_some_and(pidfd::has_exited));
        let exited: Vec<_> = exited.map(|(id, _)| id.clone()).collect();
        let deadline = Instant::now() + EXIT_STATUS_TIMEOUT;
        exited.iter().for_each(|id| self.adopted_exit(id, deadline));
    }

    /// Reads the exit status of an adopted container, at least once also after the deadline.
    fn adopted_exit(&mut self, id: &str, deadline: Instant) {
        let Some(container) = self.containers.get(id) else { return };
        let (Some(handle), process) = (&container.pidfd, container.process) else { return };
        // The node's init process reaps it. Before that the kernel does not give the exit status; afterwards there is nothing to wait for.
        let status = loop {
            // Any other error says nothing about the process.
            let is_reaped = match pidfd::identify(process.pid) {
                Ok(found) => !found.is_same(process),
                Err(error) => matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)),
            };
            let status = pidfd::wait_status(handle);
            if status.is_some() || is_reaped || Instant::now() >= deadline {
                break status;
            }
            std::thread::sleep(EXIT_STATUS_POLL);
        };
        self.container_exited(id, status.map(exit_code));
    }

    /// Records the exit of a container and announces it. Without a code the exit status is unknown.
    pub(super) fn container_exited(&mut self, id: &str, code: Option<i32>) {
        let Some(mut container) = self.containers.remove(id) else { return };
        let at = now();
        // In a shared PID namespace the kernel does not kill the other processes of the container.
        let oom = container.cgroup.as_deref().is_some_and(|cgroup| {
            self.cgroups.kill(cgroup);
            code != Some(0) && self.cgroups.oom_kills(cgroup) > 0
        });
        self.draining.extend(container.output.finish(at));
        let exit = Exit { code, at, oom };
        let state = State { process: container.process, started_at: container.started_at, exit: Some(exit) };
        self.unwritten.insert(id.to_owned(), state);
        self.write_exits(Instant::now());
        self.remove_pipes(id);
        self.announce(&Answer::Ended { id: id.to_owned(), exit });
    }

    /// Writes the states of exited containers. A state that cannot be written is kept, reported to watchers, and retried: no other process
    /// knows the exit status.
    pub(super) fn write_exits(&mut self, now: Instant) {
        self.last_write = now;
        let dir = &self.dir;
        self.unwritten.retain(|id, state| match write(&container_dir(dir, id).join(STATE), state) {
            Ok(()) => false,
            // The container was removed.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        });
    }

    /// Retries writes, but not at every step of the loop: a container with much output causes many.
    pub(super) fn retry_writes(&mut self, now: Instant) {
        if now.duration_since(self.last_write) >= RETRY {
            self.write_exits(now);
        }
    }
}
