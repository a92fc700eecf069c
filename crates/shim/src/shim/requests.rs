//! Connections, requests and answers.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Instant,
};

use keelet_linux::pidfd;

use super::{Container, Shim, error::RequestError};
use crate::{
    error::step,
    protocol::{Answer, Request},
    wire,
};

/// The longest request. Arguments and variables of a command are the largest part, and the kernel bounds those.
const LONGEST_REQUEST: usize = 8 * 1024 * 1024;

/// Standard input, output and error.
const STDIO: usize = 3;

/// The most descriptors that starting a command uses at once: its configuration, a pidfd, a socket pair and the tmpfs of null devices here;
/// then in the forked process three null devices or a terminal, a file of a cgroup and a namespace.
const DESCRIPTORS_OF_EXEC: usize = 16;

// === impl Shim ===

impl Shim {
    pub(super) fn receive(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let mut bytes = [0; 16 * 1024];
        match wire::receive(&connection.socket, &mut bytes, &mut connection.fds) {
            Ok(0) => self.hang_up(id),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.hang_up(id),
            Ok(length) => {
                connection.received.extend_from_slice(&bytes[..length]);
                if connection.has_request || connection.received.len() > LONGEST_REQUEST {
                    return self.hang_up(id);
                }
                if connection.received.last() == Some(&b'\n') {
                    connection.has_request = true;
                    let (line, fds) = (std::mem::take(&mut connection.received), std::mem::take(&mut connection.fds));
                    self.handle(id, &line, fds);
                }
            }
        }
    }

    /// Closes a connection. A command whose client has gone is killed with its descendants.
    fn hang_up(&mut self, id: u64) {
        self.connections.remove(&id);
        for command in self.commands.values().filter(|command| command.connection == id) {
            self.kill_cgroup(command.cgroup.as_deref());
        }
    }

    /// Kills all processes of a cgroup.
    pub(super) fn kill_cgroup(&self, cgroup: Option<&str>) {
        if let Some(cgroup) = cgroup {
            self.cgroups.kill(cgroup);
        }
    }

    /// Sends an answer. A client that does not read is disconnected.
    pub(super) fn answer(&mut self, id: u64, answer: &Answer, fds: &[BorrowedFd<'_>]) {
        let Some(connection) = self.connections.get(&id) else { return };
        let Ok(mut line) = serde_json::to_vec(answer) else { return };
        line.push(b'\n');
        if wire::send(&connection.socket, &line, fds).is_err() {
            self.connections.remove(&id);
        }
    }

    /// Sends the last answer of a connection.
    pub(super) fn finish(&mut self, id: u64, result: Result<(), RequestError>) {
        let answer = match result {
            Ok(()) => Answer::Done,
            Err(error) => Answer::Failed { message: error.to_string() },
        };
        self.answer(id, &answer, &[]);
        self.connections.remove(&id);
    }

    /// Sends an event to all watchers.
    pub(super) fn announce(&mut self, event: &Answer) {
        let watchers: Vec<_> = self.connections.iter().filter(|(_, one)| one.watches).map(|(id, _)| *id).collect();
        for id in watchers {
            self.answer(id, event, &[]);
        }
    }

    fn handle(&mut self, id: u64, line: &[u8], fds: Vec<OwnedFd>) {
        let request = match serde_json::from_slice::<Request>(line) {
            Ok(request) => request,
            Err(error) => return self.finish(id, Err(error.into())),
        };
        // The first group is answered later, by the report of a forked process; the second at once.
        let started = match request {
            Request::Sandbox(sandbox) => self.sandbox(id, &sandbox),
            Request::Start { id: container } => self.start(id, container),
            // Descriptors for which this process has no room are missing in the message.
            Request::Exec { terminal, .. }
                if (!terminal && fds.len() < STDIO) || !has_free_descriptors(&self.listener) =>
            {
                self.answer(id, &Answer::Exhausted, &[]);
                self.connections.remove(&id);
                return;
            }
            Request::Exec { id: container, command, terminal, cgroup } => {
                let stdio = stdio_of(terminal, fds);
                stdio.and_then(|stdio| self.exec(id, &container, command, cgroup.as_deref(), stdio))
            }
            Request::Watch => {
                self.watch(id);
                Ok(())
            }
            Request::Attach { id: container } => self.attach(id, &container, fds),
            Request::ReopenLog { id: container } => {
                let reopened = self.reopen_log(&container);
                return self.finish(id, reopened);
            }
            Request::CloseStdin { id: container } => {
                let closed = self.container(&container).map(|container| container.output.close_stdin());
                return self.finish(id, closed);
            }
            Request::Adopt { ids } => {
                let adopted = self.adopt(&ids, fds);
                return self.finish(id, adopted);
            }
            Request::Quit { kill } => {
                if kill {
                    self.kill_all();
                }
                self.done = true;
                return self.finish(id, Ok(()));
            }
        };
        if let Err(error) = started {
            self.finish(id, Err(error));
        }
    }

    /// Subscribes a connection to events. Every exit up to now is on disk or reported first.
    fn watch(&mut self, id: u64) {
        self.catch_up();
        self.write_exits(Instant::now());
        let unwritten = self.unwritten.iter().filter_map(|(id, state)| Some((id.clone(), state.exit?)));
        for (container, exit) in unwritten.collect::<Vec<_>>() {
            self.answer(id, &Answer::Ended { id: container, exit }, &[]);
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.watches = true;
        }
        self.answer(id, &Answer::Done, &[]);
    }

    /// Kills all containers and the pause process. An adopted container may have exited and its PID may be reused, so containers are killed
    /// through pidfds. The pause process is a child that has not been reaped.
    fn kill_all(&self) {
        for pidfd in self.containers.values().filter_map(|container| container.pidfd.as_ref()) {
            let _ = pidfd::send_signal(pidfd, libc::SIGKILL);
        }
        if let Some(pid) = self.pause.and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    pub(super) fn container(&mut self, id: &str) -> Result<&mut Container, RequestError> {
        self.containers.get_mut(id).ok_or_else(|| RequestError::NotRunning(id.to_owned()))
    }

    fn reopen_log(&mut self, container: &str) -> Result<(), RequestError> {
        let reopened = self.container(container)?.output.reopen();
        Ok(reopened.map_err(step(format!("reopen the log of container {container}")))?)
    }

    fn attach(&mut self, id: u64, container: &str, fds: Vec<OwnedFd>) -> Result<(), RequestError> {
        let output = &mut self.container(container)?.output;
        let stdin = output.stdin().map_err(step(format!("duplicate standard input of container {container}")))?;
        output.attach(fds);
        let fds: Vec<_> = stdin.iter().map(AsFd::as_fd).collect();
        self.answer(id, &Answer::Done, &fds);
        self.connections.remove(&id);
        Ok(())
    }
}

/// Whether a command can be started without running out of descriptors half-way, which would look like a failure of the command.
fn has_free_descriptors(any: &impl AsFd) -> bool {
    let free: Result<Vec<_>, _> = (0..DESCRIPTORS_OF_EXEC).map(|_| rustix::io::fcntl_dupfd_cloexec(any, 0)).collect();
    free.is_ok()
}

/// Standard input, output and error of a command; none if it gets a terminal.
fn stdio_of(terminal: bool, fds: Vec<OwnedFd>) -> Result<Option<[OwnedFd; 3]>, RequestError> {
    match (terminal, <[OwnedFd; 3]>::try_from(fds)) {
        (true, _) => Ok(None),
        (false, Ok(fds)) => Ok(Some(fds)),
        (false, Err(fds)) => Err(RequestError::Descriptors(fds.len())),
    }
}
