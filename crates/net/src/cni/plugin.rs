//! One call of a plugin.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use super::config::{NetworkList, Plugin};
use super::error::CniPluginError;
use super::result::failure;
use crate::Error;
use crate::names::POD_INTERFACE;

/// More than any plugin prints; the rest is discarded.
const LONGEST_OUTPUT: u64 = 1 << 20;

/// An operation of CNI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Add,
    Delete,
    Status,
}

/// The sandbox of a call, passed in the environment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Subject {
    pub(crate) sandbox: String,
    /// None: the namespace is gone.
    pub(crate) netns: Option<PathBuf>,
    pub(crate) arguments: String,
}

/// Where plugins are installed and how long they may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Runner<'a> {
    pub(crate) dirs: &'a [PathBuf],
    pub(crate) timeout: Duration,
}

async fn read_all(from: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let Some(mut from) = from else { return Vec::new() };
    let mut bytes = Vec::new();
    let _ = (&mut from).take(LONGEST_OUTPUT).read_to_end(&mut bytes).await;
    // A plugin that still writes must not block.
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    bytes
}

// === impl Operation ===

impl Operation {
    pub(crate) fn command(self) -> &'static str {
        match self {
            Operation::Add => "ADD",
            Operation::Delete => "DEL",
            Operation::Status => "STATUS",
        }
    }
}

// === impl Runner ===

impl Runner<'_> {
    /// The program of a plugin.
    pub(crate) fn find(&self, list: &NetworkList, plugin: &Plugin) -> Result<PathBuf, Error> {
        let is_program = |path: &PathBuf| path.is_file();
        self.dirs.iter().map(|dir| dir.join(&plugin.kind)).find(is_program).ok_or_else(|| Error::CniPluginMissing {
            plugin: plugin.kind.clone(),
            network: list.name.clone(),
            dirs: self.dirs.to_vec(),
        })
    }

    /// Calls a plugin and returns its result; null if it printed none.
    pub(crate) async fn run(
        &self,
        operation: Operation,
        list: &NetworkList,
        plugin: &Plugin,
        subject: &Subject,
        input: &Value,
    ) -> Result<Value, Error> {
        let failed = |source: CniPluginError| Error::CniPlugin {
            plugin: plugin.kind.clone(),
            network: list.name.clone(),
            command: operation.command(),
            source,
        };
        let program = self.find(list, plugin)?;
        let (status, output, errors) =
            self.call(operation, &program, subject, input.to_string()).await.map_err(&failed)?;
        if !status.success() {
            let how = match status.signal() {
                Some(signal) => format!("killed by signal {signal}"),
                None => format!("exit code {}", status.code().unwrap_or(-1)),
            };
            return Err(failed(CniPluginError::Failed(failure(&output, &errors, &how))));
        }
        if output.iter().all(u8::is_ascii_whitespace) {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&output)
            .map_err(|error| failed(CniPluginError::Result(failure(b"", &errors, &format!("invalid JSON: {error}")))))
    }

    async fn call(
        &self,
        operation: Operation,
        program: &Path,
        subject: &Subject,
        input: String,
    ) -> Result<(std::process::ExitStatus, Vec<u8>, Vec<u8>), CniPluginError> {
        let search: Vec<String> = self.dirs.iter().map(|dir| dir.display().to_string()).collect();
        let mut command = Command::new(program);
        command
            .env("CNI_COMMAND", operation.command())
            .env("CNI_PATH", search.join(":"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Plugins start other plugins; a timeout kills all of them.
            .process_group(0)
            .kill_on_drop(true);
        if operation != Operation::Status {
            command
                .env("CNI_CONTAINERID", &subject.sandbox)
                .env("CNI_NETNS", subject.netns.as_deref().unwrap_or(Path::new("")))
                .env("CNI_IFNAME", POD_INTERFACE)
                .env("CNI_ARGS", &subject.arguments);
        }
        let mut child =
            command.spawn().map_err(|source| CniPluginError::Start { program: program.to_owned(), source })?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let talk = async {
            let write = async {
                if let Some(mut stdin) = stdin {
                    // A plugin that does not read its input may still work.
                    let _ = stdin.write_all(input.as_bytes()).await;
                }
            };
            let (_, output, errors, status) = tokio::join!(write, read_all(stdout), read_all(stderr), child.wait());
            status.map(|status| (status, output, errors)).map_err(CniPluginError::Wait)
        };
        if let Ok(finished) = tokio::time::timeout(self.timeout, talk).await {
            return finished;
        }
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // It exits at once, unless it is in an uninterruptible system call; tokio reaps it then.
        let _ = tokio::time::timeout(Duration::from_secs(1), child.wait()).await;
        Err(CniPluginError::Timeout(self.timeout))
    }
}
