//! The `runc` program, or another with the same command line.
//!
//! It gets the whole configuration, seccomp profile and capabilities included. Its state is in the container's directory and is removed
//! with that; of its files only the PID file and the log are read.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use super::{CONSOLE, Console, CreateError, Creator, Job};

const PID_FILE: &str = "runc.pid";
const LOG: &str = "runc.log";

pub(super) struct Runc<'a> {
    pub(super) program: &'a Path,
}

/// Why runc did not create or start a container.
#[derive(Debug, thiserror::Error)]
pub(super) enum RuncError {
    #[error("cannot run {}: {source}", program.display())]
    Run { program: PathBuf, source: io::Error },
    /// Its own message.
    #[error("{0}")]
    Logged(String),
    #[error("{} failed with {status} and logged no error", program.display())]
    Failed { program: PathBuf, status: ExitStatus },
    #[error("cannot read {}: {source}", path.display())]
    PidFile { path: PathBuf, source: io::Error },
    #[error("invalid PID {text:?} in {}", path.display())]
    Pid { path: PathBuf, text: String },
}

// === impl Runc ===

impl Creator for Runc<'_> {
    fn create(&self, job: &Job<'_>) -> Result<(), CreateError> {
        let mut spec = job.spec.clone();
        if let Some(process) = spec.process_mut() {
            // Inherited from this process, which has set it.
            process.set_oom_score_adj(None);
        }
        let bundle = job.bundle(&spec)?;
        let console = job.console()?;
        let mut create = self.command(job, "create");
        create.arg("--bundle").arg(bundle).arg("--pid-file").arg(job.dir.join(PID_FILE));
        if console.is_some() {
            // Relative to the bundle, which is its working directory: the path of a socket must be short.
            create.arg("--console-socket").arg(Path::new("..").join(CONSOLE));
        } else {
            let [input, output, error] = job.stdio()?.map(Stdio::from);
            // Its own output goes to these pipes too, and is discarded with them if it fails.
            create.stdin(input).stdout(output).stderr(error);
        }
        self.run(job, create.arg(job.id))?;
        let started = self.start(job, console);
        if started.is_err() {
            let _ = self.run(job, self.command(job, "delete").arg("--force").arg(job.id));
        }
        started
    }
}

impl Runc<'_> {
    fn start(&self, job: &Job<'_>, console: Option<Console>) -> Result<(), CreateError> {
        let path = job.dir.join(PID_FILE);
        let pid = match fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().map_err(|_| RuncError::Pid { path, text })?,
            Err(source) => return Err(RuncError::PidFile { path, source }.into()),
        };
        job.report_pid(pid, console)?;
        Ok(self.run(job, self.command(job, "start").arg(job.id))?)
    }

    fn command(&self, job: &Job<'_>, name: &str) -> Command {
        let mut command = Command::new(self.program);
        command
            .current_dir(job.dir)
            .arg("--root")
            .arg(job.dir.join("runc"))
            .arg("--log")
            .arg(job.dir.join(LOG))
            .args(["--log-format", "json", name])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    fn run(&self, job: &Job<'_>, command: &mut Command) -> Result<(), RuncError> {
        let program = || self.program.to_owned();
        let status = command.status().map_err(|source| RuncError::Run { program: program(), source })?;
        if status.success() {
            return Ok(());
        }
        let log = fs::read_to_string(job.dir.join(LOG)).unwrap_or_default();
        Err(last_error(&log).map_or_else(|| RuncError::Failed { program: program(), status }, RuncError::Logged))
    }
}

/// The last error in its log.
fn last_error(log: &str) -> Option<String> {
    log.lines().rev().find_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        (line["level"] == "error").then(|| line["msg"].as_str().map(str::to_owned))?
    })
}

#[cfg(test)]
mod tests {
    use super::last_error;

    #[test]
    fn the_reason_is_the_last_error_of_the_log() {
        let log = "{\"level\":\"error\",\"msg\":\"first\"}\nnonsense\n{\"level\":\"error\",\"msg\":\"exec: \\\"x\\\": no\"}\n{\"level\":\"info\",\"msg\":\"bye\"}\n";
        assert_eq!(last_error(log).as_deref(), Some("exec: \"x\": no"));
        assert_eq!(last_error(""), None);
    }
}
