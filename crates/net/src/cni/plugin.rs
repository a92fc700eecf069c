//! Running one plugin once.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use super::config::{NetworkList, Plugin};
use super::result::failure;
use crate::Error;
use crate::names::POD_INTERFACE;

/// More than any plugin has to say; the rest of a babbling one is thrown away.
const LONGEST_OUTPUT: u64 = 1 << 20;

/// What a plugin is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Add,
    Delete,
    Status,
}

/// Whom a call is about, as the environment tells it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Subject {
    pub(crate) sandbox: String,
    /// None: the namespace is gone.
    pub(crate) netns: Option<PathBuf>,
    pub(crate) arguments: String,
}

/// How plugins are found and how long they may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Runner<'a> {
    pub(crate) dirs: &'a [PathBuf],
    pub(crate) timeout: Duration,
}

async fn read_all(mut from: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = (&mut from).take(LONGEST_OUTPUT).read_to_end(&mut bytes).await;
    // A plugin that still writes must not wait for a reader.
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    bytes
}

// === impl Ask ===

impl Ask {
    pub(crate) fn command(self) -> &'static str {
        match self {
            Ask::Add => "ADD",
            Ask::Delete => "DEL",
            Ask::Status => "STATUS",
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

    /// Asks a plugin; what it answered, null for nothing.
    pub(crate) async fn run(
        &self,
        ask: Ask,
        list: &NetworkList,
        plugin: &Plugin,
        subject: &Subject,
        input: &Value,
    ) -> Result<Value, Error> {
        let failed = |problem: String| Error::CniPlugin {
            plugin: plugin.kind.clone(),
            network: list.name.clone(),
            command: ask.command(),
            problem,
        };
        let program = self.find(list, plugin)?;
        let (ended, output, errors) = self.call(ask, &program, subject, input.to_string()).await.map_err(&failed)?;
        if !ended.success() {
            let how = match ended.signal() {
                Some(signal) => format!("killed by signal {signal}"),
                None => format!("exit code {}", ended.code().unwrap_or(-1)),
            };
            return Err(failed(failure(&output, &errors, &how)));
        }
        if output.iter().all(u8::is_ascii_whitespace) {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&output)
            .map_err(|error| failed(failure(b"", &errors, &format!("its answer is not JSON: {error}"))))
    }

    async fn call(
        &self,
        ask: Ask,
        program: &Path,
        subject: &Subject,
        input: String,
    ) -> Result<(std::process::ExitStatus, Vec<u8>, Vec<u8>), String> {
        let search: Vec<String> = self.dirs.iter().map(|dir| dir.display().to_string()).collect();
        let mut command = Command::new(program);
        command
            .env("CNI_COMMAND", ask.command())
            .env("CNI_PATH", search.join(":"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Plugins start other plugins; a timeout ends all of them.
            .process_group(0)
            .kill_on_drop(true);
        if ask != Ask::Status {
            command
                .env("CNI_CONTAINERID", &subject.sandbox)
                .env("CNI_NETNS", subject.netns.as_deref().unwrap_or(Path::new("")))
                .env("CNI_IFNAME", POD_INTERFACE)
                .env("CNI_ARGS", &subject.arguments);
        }
        let mut child = command.spawn().map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let talk = async {
            let write = async {
                if let Some(mut stdin) = stdin {
                    // A plugin that does not read its input may still work.
                    let _ = stdin.write_all(input.as_bytes()).await;
                }
            };
            let read = |pipe: Option<_>| async move {
                match pipe {
                    Some(pipe) => read_all(pipe).await,
                    None => Vec::new(),
                }
            };
            let output = async {
                match stdout {
                    Some(pipe) => read_all(pipe).await,
                    None => Vec::new(),
                }
            };
            let (_, output, errors, ended) = tokio::join!(write, output, read(stderr), child.wait());
            ended.map(|ended| (ended, output, errors)).map_err(|error| format!("cannot wait for it: {error}"))
        };
        if let Ok(finished) = tokio::time::timeout(self.timeout, talk).await {
            return finished;
        }
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // It is dead at once, unless it sits in the kernel; then somebody else reaps it some day.
        let _ = tokio::time::timeout(Duration::from_secs(1), child.wait()).await;
        Err(format!("no answer in {} s, killed", self.timeout.as_secs_f32()))
    }
}
