//! Commands in containers.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use keelet_cri::v1;
use keelet_shim::protocol::{Answer, Request};
use rustix::{
    fs::{Mode, OFlags, open},
    pipe::{PipeFlags, pipe_with},
};
use tokio::{io::AsyncReadExt, net::unix::pipe};
use tonic::Status;

use crate::{
    container::Container,
    engine::Engine,
    sandbox::{failed, internal},
    shim::Connection,
};

/// Output that is kept of a command, for each stream.
const MOST_OUTPUT: usize = 16 * 1024 * 1024;
/// What a command's children may still say after it has ended: they can hold its output open for ever.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// A command that runs. Dropped before it has ended, it is killed with all that it started.
#[derive(Debug)]
pub(crate) struct Running {
    engine: Engine,
    connection: Connection,
    cgroup: String,
    part: String,
    ended: bool,
}

/// What a command gets as its standard input, output and error.
#[derive(Debug)]
pub(crate) enum Stdio {
    Pipes([OwnedFd; 3]),
    Terminal,
}

// === impl Running ===

impl Running {
    /// How it ended.
    pub(crate) async fn wait(&mut self) -> Result<i32, Status> {
        match self.connection.answer().await.map_err(|error| failed(&error))? {
            Answer::Ended { exit, .. } => {
                self.ended = true;
                Ok(exit.code.unwrap_or_default())
            }
            other => Err(Status::internal(format!("the shim answered {other:?}"))),
        }
    }

    /// The terminal it got.
    pub(crate) fn terminal(&mut self) -> Option<OwnedFd> {
        self.connection.take_fds().pop()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let (engine, ended) = (self.engine.clone(), self.ended);
        let (cgroup, part) = (self.cgroup.clone(), self.part.clone());
        let clean_up = move || {
            let whole = format!("{cgroup}/{part}");
            let cgroups = &engine.parts.cgroups;
            // What one that has ended left behind runs on in there, and goes with the container.
            let _ = if ended { cgroups.remove(&whole) } else { cgroups.clear(&whole) };
        };
        match tokio::runtime::Handle::try_current() {
            Ok(handle) => drop(handle.spawn_blocking(clean_up)),
            Err(_) => clean_up(),
        }
    }
}

// === impl Engine ===

impl Engine {
    /// Starts a command in a container.
    pub(crate) async fn exec(
        &self,
        container: &Container,
        command: &[String],
        stdio: Stdio,
    ) -> Result<Running, Status> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        if command.is_empty() {
            return Err(Status::invalid_argument("no command is given"));
        }
        if !container.is_running() {
            return Err(Status::failed_precondition(format!("the container {} does not run", container.id)));
        }
        // Another server may have started one with the same number; the process number tells them apart.
        let part = format!("exec-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let request = Request::Exec {
            id: container.id.clone(),
            command: command.to_vec(),
            terminal: matches!(stdio, Stdio::Terminal),
            cgroup: Some(part.clone()),
        };
        let sandbox = self.sandbox(&container.sandbox)?;
        let connection = match &stdio {
            Stdio::Pipes(fds) => {
                let fds = fds.each_ref().map(|fd| fd.as_fd());
                sandbox.shim().ask(&request, &fds).await
            }
            Stdio::Terminal => sandbox.shim().ask(&request, &[]).await,
        };
        drop(stdio);
        let connection = connection.map_err(|error| failed(&error.into()))?;
        let mut running = Running { engine: self.clone(), connection, cgroup: container.cgroup(), part, ended: false };
        match running.connection.answer().await {
            Ok(Answer::Running { .. }) => Ok(running),
            Ok(other) => Err(Status::internal(format!("the shim answered {other:?}"))),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Runs a command and answers with what it said. One that takes too long is killed with all that it started.
    pub(crate) async fn exec_sync(
        &self,
        id: &str,
        command: &[String],
        timeout: Duration,
    ) -> Result<v1::ExecSyncResponse, Status> {
        let container = self.container(id)?;
        let (mut out, theirs_out) = reader().map_err(|error| internal("pipe", &error))?;
        let (mut err, theirs_err) = reader().map_err(|error| internal("pipe", &error))?;
        let null = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| internal("/dev/null", &error))?;
        let work = async {
            let mut running = self.exec(&container, command, Stdio::Pipes([null, theirs_out, theirs_err])).await?;
            let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
            let exit_code = {
                let reading = async { tokio::join!(collect(&mut out, &mut stdout), collect(&mut err, &mut stderr)) };
                tokio::pin!(reading);
                let waiting = running.wait();
                tokio::pin!(waiting);
                tokio::select! {
                    code = &mut waiting => {
                        let _ = tokio::time::timeout(LAST_WORDS, &mut reading).await;
                        code?
                    }
                    // It closed its output before it ended.
                    _ = &mut reading => waiting.await?,
                }
            };
            Ok(v1::ExecSyncResponse { stdout, stderr, exit_code })
        };
        if timeout.is_zero() {
            return work.await;
        }
        // Dropped, the command is killed.
        tokio::time::timeout(timeout, work).await.unwrap_or_else(|_| {
            Err(Status::deadline_exceeded(format!("command {command:?} timed out after {timeout:?} and was killed")))
        })
    }
}

/// A pipe that is read here and written by a command.
pub(crate) fn reader() -> io::Result<(pipe::Receiver, OwnedFd)> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((pipe::Receiver::from_owned_fd(ours)?, theirs))
}

/// Reads to the end. What is too much is read and forgotten, so that the command is not held up.
async fn collect(pipe: &mut pipe::Receiver, kept: &mut Vec<u8>) -> io::Result<()> {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let read = pipe.read(&mut bytes).await?;
        if read == 0 {
            return Ok(());
        }
        let room = MOST_OUTPUT.saturating_sub(kept.len());
        kept.extend_from_slice(&bytes[..read.min(room)]);
    }
}
