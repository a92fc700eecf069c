//! A keelet that a test may freeze, kill and start again.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    thread,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::{Child, Command},
    time::timeout,
};

use crate::bed::{Cluster, Identity, setting};

/// Lines of a log that are printed if a test fails.
const TAIL: usize = 40;

/// A process of keelet. When it is dropped it is killed, and its log is printed if the test has failed.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    child: Child,
}

// === impl Process ===

impl Process {
    /// Starts `keelet controller` as this user, with more arguments. The name is for the log.
    pub fn controller(cluster: &Cluster, name: &str, identity: &Identity, arguments: &[&str]) -> Self {
        let kubeconfig = identity.kubeconfig.to_string_lossy();
        let all = [&["controller", "--kubeconfig", &kubeconfig], arguments].concat();
        Self::keelet(cluster, name, &all)
    }

    /// Starts keelet with these arguments, and without the kubeconfig of the test.
    pub fn keelet(cluster: &Cluster, name: &str, arguments: &[&str]) -> Self {
        Self::start(cluster.directory(), name, Path::new(&setting("KEELET_E2E_AGENT")), arguments)
    }

    fn start(directory: &Path, name: &str, program: &Path, arguments: &[&str]) -> Self {
        let log = directory.join(format!("log/{name}.log"));
        let out = File::options().create(true).append(true).open(&log).expect("a file for the log");
        let child = Command::new(program)
            .args(arguments)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(out.try_clone().expect("a second handle"))
            .stderr(out)
            .kill_on_drop(true)
            .spawn();
        let child = child.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        Self { name: name.to_owned(), log, child }
    }

    /// Stops the process where it is, as a machine without time for it does (SIGSTOP).
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets a frozen process continue.
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Kills it, and waits for its end (SIGKILL).
    pub async fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        self.ended().await;
    }

    /// Asks it to end, and waits for that (SIGTERM).
    pub async fn terminate(mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.ended().await
    }

    /// Waits until it ends by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        let patience = keelet_harness::patience();
        let ended = timeout(patience, self.child.wait()).await;
        ended.unwrap_or_else(|_| panic!("{} did not end within {patience:?}", self.name)).expect("a child")
    }

    /// Its PID.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().unwrap_or_else(|| panic!("{} has ended:\n{}", self.name, self.tail()));
        let pid = Pid::from_raw(i32::try_from(pid).expect("a PID"));
        kill(pid, signal).unwrap_or_else(|error| panic!("{signal} for {}: {error}", self.name));
    }

    fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }
}

impl Drop for Process {
    #[expect(clippy::print_stderr, reason = "what a failed test shows")]
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- the end of the log of {}\n{}", self.name, self.tail());
        }
    }
}

/// The status and body of a plain GET on this machine, for health and metrics.
///
/// # Errors
///
/// What the kernel says if the server is not there.
pub async fn http_get(address: &str, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
    Ok((status, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use keelet_harness::eventually;

    use super::Process;

    /// The state of a process, as the kernel shows it.
    fn state(process: &Process) -> Result<char, String> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid().expect("it runs")));
        let stat = stat.map_err(|error| error.to_string())?;
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).ok_or(stat)
    }

    async fn becomes(process: &Process, wanted: char) {
        eventually("another state", async || match state(process)? {
            found if found == wanted => Ok(()),
            found => Err(format!("{found} instead of {wanted}")),
        })
        .await;
    }

    #[tokio::test]
    async fn a_process_is_frozen_thawed_and_killed() {
        let directory = tempfile::tempdir().expect("a directory");
        let directory = directory.path();
        fs::create_dir(directory.join("log")).expect("a directory");
        let process = Process::start(directory, "sleeper", Path::new("sleep"), &["1000"]);
        process.freeze();
        becomes(&process, 'T').await;
        process.thaw();
        becomes(&process, 'S').await;
        process.kill().await;
        let process = Process::start(directory, "speaker", Path::new("sh"), &["-c", "echo said; sleep 1000"]);
        eventually("its output", async || if process.log() == "said\n" { Ok(()) } else { Err(process.log()) }).await;
        assert_eq!(process.terminate().await.code(), None, "ended by the signal");
    }
}
