//! The `runc` program, or another that is called the same way.
//!
//! It gets the whole configuration, filter and capabilities included. Its state is in the container's directory and goes with that;
//! nothing of it is read but the number of the first process.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use super::{CONSOLE, Job, Maker, text};

const PID_FILE: &str = "runc.pid";
const LOG: &str = "runc.log";

pub(super) struct Runc<'a> {
    pub(super) program: &'a Path,
}

// === impl Runc ===

impl Maker for Runc<'_> {
    fn make(&self, job: &Job<'_>) -> Result<(), String> {
        let mut spec = job.spec.clone();
        if let Some(process) = spec.process_mut() {
            // Inherited; see the caller.
            process.set_oom_score_adj(None);
        }
        let bundle = job.bundle(&spec)?;
        let console = job.console()?;
        let mut create = self.command(job, "create");
        create.arg("--bundle").arg(bundle).arg("--pid-file").arg(job.dir.join(PID_FILE));
        if console.is_some() {
            // From the bundle, where it goes before it looks: a path to a socket must be short.
            create.arg("--console-socket").arg(Path::new("..").join(CONSOLE));
        } else {
            let [input, output, error] = job.stdio()?.map(Stdio::from);
            // Whatever it prints itself is in these pipes too, and goes with them if it fails.
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
    fn start(&self, job: &Job<'_>, console: Option<super::Console>) -> Result<(), String> {
        let pid = fs::read_to_string(job.dir.join(PID_FILE)).map_err(|error| text(PID_FILE, error))?;
        let pid = pid.trim().parse().map_err(|_| format!("{PID_FILE}: {pid:?} is not a number"))?;
        job.tell(pid, console)?;
        self.run(job, self.command(job, "start").arg(job.id))
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

    fn run(&self, job: &Job<'_>, command: &mut Command) -> Result<(), String> {
        let status = command.status().map_err(|error| format!("{}: {error}", self.program.display()))?;
        if status.success() {
            return Ok(());
        }
        let log = fs::read_to_string(job.dir.join(LOG)).unwrap_or_default();
        Err(last_error(&log).unwrap_or_else(|| format!("{} ended with {status}", self.program.display())))
    }
}

/// What it gave as its reason: the last line of its log that is an error.
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
