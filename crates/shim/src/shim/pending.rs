//! Forked processes whose report has not been read completely.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use keelet_linux::{pidfd, process::fork};

use super::{Command, Shim, error::RequestError, starts::PipeEnds};
use crate::{
    error::step,
    protocol::{Answer, PAUSE, StartOptions, write},
    report::{self, Report},
    wire,
};

/// A forked process and the request that it was forked for.
pub(super) struct Pending {
    what: Child,
    pub(super) connection: u64,
    pub(super) report: OwnedFd,
    received: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// What the forked process starts.
pub(super) enum Child {
    Pause,
    Container {
        id: String,
        options: StartOptions,
        cgroup: Option<String>,
        pipes: Option<PipeEnds>,
    },
    /// With the cgroup of the command and its descendants.
    Command(Option<String>),
}

// === impl Shim ===

impl Shim {
    /// Forks a process that reports over a socket.
    pub(super) fn fork(
        &mut self,
        connection: u64,
        what: Child,
        child: impl FnOnce(Report) -> i32,
    ) -> Result<(), RequestError> {
        let pair = UnixStream::pair().and_then(|(ours, theirs)| ours.set_nonblocking(true).map(|()| (ours, theirs)));
        let (ours, theirs) = pair.map_err(step("create a socket pair"))?;
        fork(|| child(Report::new(theirs.into()))).map_err(step("fork"))?;
        self.pending.push(Pending::new(what, connection, ours));
        Ok(())
    }

    /// Reads reports, and handles those that are complete.
    pub(super) fn read_reports(&mut self) {
        let mut index = 0;
        while index < self.pending.len() {
            if self.pending[index].read_to_end() {
                let pending = self.pending.swap_remove(index);
                self.reported(pending);
            } else {
                index += 1;
            }
        }
        if self.pending.is_empty() {
            self.unclaimed.clear();
        }
    }

    fn reported(&mut self, pending: Pending) {
        let Pending { what, connection, received, mut fds, .. } = pending;
        let pid = match report::parse(&String::from_utf8_lossy(&received)) {
            Ok(pid) => pid,
            Err(failure) => {
                if let Child::Container { id, cgroup, .. } = &what {
                    // There may be a first process that waits to be started.
                    self.kill_cgroup(cgroup.as_deref());
                    self.remove_pipes(id);
                }
                return self.finish(connection, Err(failure.into()));
            }
        };
        let running = Answer::Running { pid };
        match what {
            Child::Pause => {
                self.pause = Some(pid);
                // For a runtime that recovers an incomplete sandbox without a shim.
                let _ = pidfd::identify(pid).and_then(|process| write(&self.dir.join(PAUSE), &process));
                self.answer(connection, &running, &[]);
                self.connections.remove(&connection);
            }
            Child::Command(cgroup) => {
                let terminal: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
                self.answer(connection, &running, &terminal);
                if !self.connections.contains_key(&connection) {
                    self.kill_cgroup(cgroup.as_deref());
                }
                self.commands.insert(pid, Command { connection, cgroup });
            }
            Child::Container { id, options, cgroup, pipes } => {
                match self.add_container(&id, pid, &options, cgroup, fds.pop().ok_or(pipes)) {
                    Ok(()) => {
                        self.answer(connection, &running, &[]);
                        self.announce(&Answer::Started { id });
                    }
                    Err(error) => {
                        // Its exit could not be recorded, so it must not run.
                        if let Ok(process) = pidfd::identify(pid)
                            && let Ok(Some(pidfd)) = pidfd::open(process)
                        {
                            let _ = pidfd::send_signal(pidfd, libc::SIGKILL);
                        }
                        self.answer(connection, &Answer::Failed { message: error.to_string() }, &[]);
                    }
                }
                self.connections.remove(&connection);
            }
        }
        // It may have exited meanwhile.
        if let Some(status) = self.unclaimed.remove(&pid) {
            self.handle_exit(pid, status);
        }
    }
}

#[cfg(test)]
impl Shim {
    /// As if a command had been forked. The socket is the end that its process would report to.
    pub(super) fn expect_command(&mut self, connection: u64) -> UnixStream {
        self.expect(connection, Child::Command(None))
    }

    /// The same for a container.
    pub(super) fn expect_container(&mut self, connection: u64, id: &str) -> UnixStream {
        let what = Child::Container { id: id.to_owned(), options: StartOptions::default(), cgroup: None, pipes: None };
        self.expect(connection, what)
    }

    fn expect(&mut self, connection: u64, what: Child) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("set");
        self.pending.push(Pending::new(what, connection, ours));
        theirs
    }
}

// === impl Pending ===

impl Pending {
    fn new(what: Child, connection: u64, report: UnixStream) -> Self {
        Self { what, connection, report: report.into(), received: Vec::new(), fds: Vec::new() }
    }

    pub(super) fn is_container(&self, wanted: &str) -> bool {
        matches!(&self.what, Child::Container { id, .. } if id == wanted)
    }

    /// Whether the report is complete.
    fn read_to_end(&mut self) -> bool {
        let mut bytes = [0; 4096];
        loop {
            match wire::receive(&self.report, &mut bytes, &mut self.fds) {
                Ok(0) => return true,
                Ok(length) => self.received.extend_from_slice(&bytes[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(_) => return true,
            }
        }
    }
}
