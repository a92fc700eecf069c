//! An agent that a test starts, listens to and signals.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{Receiver, sync_channel},
    thread,
    time::Duration,
};

/// It only ends a test that failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// More lines than any of these agents writes.
const LINES: usize = 1000;

/// An agent that runs.
pub(crate) struct Agent {
    pub(crate) process: Child,
    log: Receiver<String>,
}

// === impl Agent ===

impl Agent {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let (sender, log) = sync_channel(LINES);
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { process, log }
    }

    /// Reads the log up to a line that says this.
    pub(crate) fn says(&self, what: &str) -> String {
        let mut seen = String::new();
        while let Ok(line) = self.log.recv_timeout(PATIENCE) {
            if line.contains(what) {
                return line;
            }
            seen.push_str(&line);
            seen.push('\n');
        }
        panic!("the agent never said {what:?}:\n{seen}");
    }

    #[expect(clippy::disallowed_methods, reason = "a test waits for the process it tests")]
    pub(crate) fn signal(&self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.process.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }
}

/// No test leaves an agent behind.
impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
    }
}

/// Runs one that ends by itself.
#[expect(clippy::disallowed_methods, reason = "a test waits for the process it tests")]
pub(crate) fn run(command: &mut Command) -> (i32, String) {
    let Output { status, stdout, stderr } = command.output().expect("keelet runs");
    assert_eq!(stdout, b"", "the log is on standard error");
    (status.code().expect("no signal"), String::from_utf8(stderr).expect("UTF-8"))
}
