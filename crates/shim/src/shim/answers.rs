//! Who asks a shim, and what is answered.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Instant,
};

use keelet_linux::pidfd;

use super::{Container, Shim};
use crate::{
    protocol::{Answer, Request},
    wire,
};

/// Requests are small: arguments and variables of a command are the largest part, and the kernel bounds those.
const LONGEST_REQUEST: usize = 8 * 1024 * 1024;

// === impl Shim ===

impl Shim {
    pub(super) fn hear(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let mut bytes = [0; 16 * 1024];
        match wire::receive(&connection.socket, &mut bytes, &mut connection.fds) {
            Ok(0) => self.hang_up(number),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.hang_up(number),
            Ok(length) => {
                connection.received.extend_from_slice(&bytes[..length]);
                if connection.asked || connection.received.len() > LONGEST_REQUEST {
                    return self.hang_up(number);
                }
                if connection.received.last() == Some(&b'\n') {
                    connection.asked = true;
                    let (line, fds) = (std::mem::take(&mut connection.received), std::mem::take(&mut connection.fds));
                    self.asked(number, &line, fds);
                }
            }
        }
    }

    /// Whoever started a command and went away no longer wants it: it is killed with all that it started.
    fn hang_up(&mut self, number: u64) {
        self.connections.remove(&number);
        for command in self.commands.values().filter(|command| command.connection == number) {
            self.kill(command.cgroup.as_deref());
        }
    }

    /// Kills whatever is in a cgroup.
    pub(super) fn kill(&self, cgroup: Option<&str>) {
        if let Some(cgroup) = cgroup {
            self.cgroups.kill(cgroup);
        }
    }

    pub(super) fn answer(&mut self, number: u64, answer: &Answer, fds: &[BorrowedFd<'_>]) {
        let Some(connection) = self.connections.get(&number) else { return };
        let Ok(mut line) = serde_json::to_vec(answer) else { return };
        line.push(b'\n');
        if wire::send(&connection.socket, &line, fds).is_err() {
            self.connections.remove(&number);
        }
    }

    pub(super) fn finish(&mut self, number: u64, result: Result<(), String>) {
        let answer = match result {
            Ok(()) => Answer::Done,
            Err(message) => Answer::Failed { message },
        };
        self.answer(number, &answer, &[]);
        self.connections.remove(&number);
    }

    pub(super) fn announce(&mut self, news: &Answer) {
        let watchers: Vec<_> =
            self.connections.iter().filter(|(_, one)| one.watches).map(|(number, _)| *number).collect();
        for number in watchers {
            self.answer(number, news, &[]);
        }
    }

    fn asked(&mut self, number: u64, line: &[u8], fds: Vec<OwnedFd>) {
        let request = match serde_json::from_slice::<Request>(line) {
            Ok(request) => request,
            Err(error) => return self.finish(number, Err(format!("not a request: {error}"))),
        };
        let begun = match request {
            Request::Sandbox(sandbox) => self.sandbox(number, &sandbox),
            Request::Start { id } => self.start(number, id),
            // Descriptors that the kernel has no room for here are missing from the message.
            Request::Exec { terminal, .. }
                if (!terminal && fds.len() < STDIO) || !has_free_descriptors(&self.listener) =>
            {
                self.answer(number, &Answer::Exhausted, &[]);
                self.connections.remove(&number);
                return;
            }
            Request::Exec { id, command, terminal, cgroup } => {
                let stdio = stdio_of(terminal, fds);
                stdio.and_then(|stdio| self.exec(number, &id, command, cgroup.as_deref(), stdio))
            }
            Request::Watch => {
                // Whatever has ended before is on disk now, or is told.
                self.catch_up();
                self.write_down(Instant::now());
                let untold = self.unwritten.iter().filter_map(|(id, state)| Some((id.clone(), state.exit?)));
                for (id, exit) in untold.collect::<Vec<_>>() {
                    self.answer(number, &Answer::Ended { id, exit }, &[]);
                }
                if let Some(connection) = self.connections.get_mut(&number) {
                    connection.watches = true;
                }
                self.answer(number, &Answer::Done, &[]);
                Ok(())
            }
            Request::ReopenLog { id } => {
                let reopened =
                    self.container(&id).and_then(|one| one.output.reopen().map_err(|error| error.to_string()));
                return self.finish(number, reopened);
            }
            Request::CloseStdin { id } => {
                let closed = self.container(&id).map(|container| container.output.close_stdin());
                return self.finish(number, closed);
            }
            Request::Attach { id } => return self.attach(number, &id, fds),
            Request::Adopt { ids } => {
                let adopted = self.adopt(&ids, fds);
                return self.finish(number, adopted);
            }
            Request::Quit { kill } => {
                if kill {
                    self.kill_all();
                }
                self.done = true;
                return self.finish(number, Ok(()));
            }
        };
        if let Err(error) = begun {
            self.finish(number, Err(error));
        }
    }

    /// Ends what runs. An adopted container may have ended, and its PID may be reused, so containers are killed by their handles. The
    /// pod's own process is a child that has not been reaped.
    fn kill_all(&self) {
        for handle in self.containers.values().filter_map(|container| container.handle.as_ref()) {
            let _ = pidfd::send_signal(handle, libc::SIGKILL);
        }
        if let Some(pid) = self.pause.and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    pub(super) fn container(&mut self, id: &str) -> Result<&mut Container, String> {
        self.containers.get_mut(id).ok_or_else(|| format!("container {id} does not run"))
    }

    fn attach(&mut self, number: u64, id: &str, fds: Vec<OwnedFd>) {
        let attached = self.container(id).and_then(|container| {
            let stdin = container.output.stdin().map_err(|error| error.to_string())?;
            container.output.attach(fds);
            Ok(stdin)
        });
        match attached {
            Ok(stdin) => {
                let fds: Vec<_> = stdin.iter().map(AsFd::as_fd).collect();
                self.answer(number, &Answer::Done, &fds);
                self.connections.remove(&number);
            }
            Err(error) => self.finish(number, Err(error)),
        }
    }
}

/// Standard input, output and error.
const STDIO: usize = 3;

/// What starting a command may take at once: its configuration, a handle, a socket pair and the place of null devices here; then
/// in the process that becomes the command three null devices or a terminal, a cgroup's file and a namespace.
const FOR_A_COMMAND: usize = 16;

/// Whether a command can be started without running out of descriptors half-way, where that would look like its own failure.
fn has_free_descriptors(any: &impl AsFd) -> bool {
    let free: Result<Vec<_>, _> = (0..FOR_A_COMMAND).map(|_| rustix::io::fcntl_dupfd_cloexec(any, 0)).collect();
    free.is_ok()
}

/// Standard input, output and error of a command; none if it gets a terminal.
fn stdio_of(terminal: bool, fds: Vec<OwnedFd>) -> Result<Option<[OwnedFd; 3]>, String> {
    match (terminal, <[OwnedFd; 3]>::try_from(fds)) {
        (true, _) => Ok(None),
        (false, Ok(fds)) => Ok(Some(fds)),
        (false, Err(fds)) => Err(format!("a command needs 3 descriptors, {} were sent", fds.len())),
    }
}
