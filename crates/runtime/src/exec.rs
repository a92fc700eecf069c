//! Commands in containers.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use keelet_cri::{OUTPUT_LIMIT, v1};
use keelet_shim::protocol::{Answer, Request};
use rustix::{
    fs::{Mode, OFlags, open},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
};
use tokio::{io::AsyncReadExt, net::unix::pipe};
use tonic::{Status, metadata::MetadataMap};

use crate::{
    container::Container,
    engine::Engine,
    sandbox::{failed, internal},
    shim::Connection,
};

/// Output that is kept of a command, for each stream, where the caller does not need less.
const MOST_OUTPUT: usize = 16 * 1024 * 1024;
/// How long a command waits that goes on writing what is not kept: at most 16 KiB are read in this time, so that a probe
/// which writes without end costs its container the processor, and not the agent.
const PAUSE: Duration = Duration::from_millis(1);
/// What a command's children may still say after it has ended: they can hold its output open for ever.
const REMAINING_OUTPUT: Duration = Duration::from_millis(50);

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
            other => Err(Status::internal(format!("unexpected answer of the shim: {other:?}"))),
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
            // What an ended command left behind keeps running there, and ends with the container.
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
            return Err(Status::invalid_argument("no command specified"));
        }
        if !container.is_running() {
            return Err(Status::failed_precondition(format!("container {} is not running", container.id)));
        }
        // Another server may have used the same count; the server's PID keeps the names of their commands distinct.
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
        let connection = connection.map_err(|error| match lacks_something(&error) {
            true => not_begun("the pod's shim", &error),
            false => failed(&error.into()),
        })?;
        let mut running = Running { engine: self.clone(), connection, cgroup: container.cgroup(), part, ended: false };
        match running.connection.answer().await {
            Ok(Answer::Running { .. }) => Ok(running),
            Ok(other) => Err(Status::internal(format!("unexpected answer of the shim: {other:?}"))),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Runs a command and answers with what it said. One that takes too long is killed with all that it started.
    pub(crate) async fn exec_sync(
        &self,
        id: &str,
        command: &[String],
        timeout: Duration,
        keep: usize,
    ) -> Result<v1::ExecSyncResponse, Status> {
        let container = self.container(id)?;
        let (mut out, theirs_out) = reader().map_err(|error| not_begun("pipe", &error))?;
        let (mut err, theirs_err) = reader().map_err(|error| not_begun("pipe", &error))?;
        let null = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| not_begun("/dev/null", &error.into()))?;
        let work = async {
            let mut running = self.exec(&container, command, Stdio::Pipes([null, theirs_out, theirs_err])).await?;
            let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
            let exit_code = {
                let reading =
                    async { tokio::join!(collect(&mut out, &mut stdout, keep), collect(&mut err, &mut stderr, keep)) };
                tokio::pin!(reading);
                let waiting = running.wait();
                tokio::pin!(waiting);
                tokio::select! {
                    code = &mut waiting => {
                        let _ = tokio::time::timeout(REMAINING_OUTPUT, &mut reading).await;
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

/// How much of each stream a call needs, by its metadata.
pub(crate) fn kept_output(metadata: &MetadataMap) -> usize {
    let asked = metadata.get(OUTPUT_LIMIT).and_then(|value| value.to_str().ok()?.parse().ok());
    asked.unwrap_or(MOST_OUTPUT).min(MOST_OUTPUT)
}

/// Why a command could not even be begun. A shortage on the node has its own code: it is not the command's failure.
fn not_begun(what: &str, error: &io::Error) -> Status {
    if lacks_something(error) { Status::resource_exhausted(format!("{what}: {error}")) } else { internal(what, error) }
}

/// Whether the server, and with it the node, is short of descriptors or memory. (Too many references: descriptors on their
/// way to shims.)
fn lacks_something(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::TOOMANYREFS))
}

/// Reads to the end. What is too much is read and forgotten, so that the command can end.
async fn collect(pipe: &mut pipe::Receiver, kept: &mut Vec<u8>, keep: usize) -> io::Result<()> {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let read = pipe.read(&mut bytes).await?;
        if read == 0 {
            return Ok(());
        }
        let room = keep.saturating_sub(kept.len());
        kept.extend_from_slice(&bytes[..read.min(room)]);
        if room < read {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    /// PROBE-49: of a command that writes without end no more is kept than was asked for, and it can write on.
    #[tokio::test]
    async fn output_is_cut_where_it_is_read() {
        let (mut ours, theirs) = reader().expect("a pipe");
        let writer = tokio::task::spawn_blocking(move || {
            let mut pipe = std::fs::File::from(theirs);
            (0..64).try_for_each(|_| io::Write::write_all(&mut pipe, &[b'y'; 16 * 1024]))
        });
        let mut kept = Vec::new();
        collect(&mut ours, &mut kept, 10 * 1024).await.expect("read to the end");
        assert!(writer.await.expect("no panic").is_ok(), "the writer was cut off");
        assert_eq!(kept.len(), 10 * 1024);
        assert!(kept.capacity() <= 32 * 1024, "{} bytes are held for 10 KiB", kept.capacity());
    }

    /// PROBE-49.
    #[test]
    fn a_call_says_how_much_output_it_needs() {
        for (asked, kept) in
            [(None, MOST_OUTPUT), (Some("10240"), 10240), (Some("99999999"), MOST_OUTPUT), (Some("much"), MOST_OUTPUT)]
        {
            let mut metadata = MetadataMap::new();
            if let Some(asked) = asked {
                metadata.insert(OUTPUT_LIMIT, asked.parse().expect("ASCII"));
            }
            assert_eq!(kept_output(&metadata), kept, "{asked:?}");
        }
    }

    /// PROBE-47: what the node lacks is not the command's failure.
    #[test]
    fn a_command_that_the_node_cannot_begin_is_distinguished() {
        for (errno, code) in [
            (Errno::MFILE, Code::ResourceExhausted),
            (Errno::NFILE, Code::ResourceExhausted),
            (Errno::NOMEM, Code::ResourceExhausted),
            (Errno::NOENT, Code::Internal),
        ] {
            assert_eq!(not_begun("pipe", &errno.into()).code(), code, "{errno}");
        }
    }
}
