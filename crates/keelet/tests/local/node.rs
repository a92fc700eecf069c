//! A node with a simulated runtime, and commands that a user gives there.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;

/// Directories, and a runtime in which every container is healthy.
pub(crate) struct Node {
    pub(crate) directory: TempDir,
    pub(crate) agent: Option<Child>,
}

pub(crate) const PODS: &str = "apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: 'app:1', env: [{name: A, value: b}]}
  - {name: side, image: 'proxy:2'}
---
apiVersion: v1
kind: Pod
metadata: {name: db}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: main, image: 'db:3'}]}
";

/// The same, but `db` takes its time to end, so that a client that watches sees it end.
pub(crate) fn pods_that_linger() -> String {
    let lingers = "terminationGracePeriodSeconds: 60, containers: [{name: main, image: 'db:3', \
                   lifecycle: {preStop: {sleep: {seconds: 10}}}}]";
    let quick = "terminationGracePeriodSeconds: 1, containers: [{name: main, image: 'db:3'}]";
    assert!(PODS.contains(quick));
    PODS.replace(quick, lingers)
}

/// It only ends a test that failed.
const ROUNDS: usize = 1200;

impl Node {
    /// A node without an agent.
    pub(crate) fn bare() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("manifests")).unwrap();
        Self { directory, agent: None }
    }

    pub(crate) fn with_runtime() -> Self {
        let node = Self::bare();
        let socket = node.path("runtime.sock");
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let connections = UnixListenerStream::new(UnixListener::bind(socket).unwrap());
                let server = tonic::transport::Server::builder();
                server.serve_with_incoming(keelet_sim::bare_server(1), connections).await.unwrap();
            });
        });
        node.until(|node| node.path("runtime.sock").exists());
        node
    }

    /// A node with an agent whose pods are ready.
    pub(crate) fn running() -> Self {
        Self::running_these(PODS)
    }

    pub(crate) fn running_these(pods: &str) -> Self {
        let mut node = Self::with_runtime();
        fs::write(node.path("manifests/all.yaml"), pods).unwrap();
        node.start();
        node.until(|node| {
            let (code, pods, _) = node.keelet(&["get", "pods", "-A"]);
            code == 0 && pods.contains("2/2     Running") && pods.contains("1/1     Running")
        });
        node
    }

    pub(crate) fn start(&mut self) {
        let agent = self
            .command(&["agent", "--pod-manifest-path", "manifests", "--root-dir", "lib", "--state-dir", "run"])
            .args(["--pod-logs-dir", "logs", "--healthz-port", "0", "--container-runtime-endpoint", &self.endpoint()])
            .stderr(Stdio::null())
            .spawn();
        self.agent = Some(agent.unwrap());
    }

    /// Kills the agent without a warning.
    #[expect(clippy::disallowed_methods, reason = "a test waits for the processes it tests")]
    pub(crate) fn kill(&mut self) {
        let mut agent = self.agent.take().unwrap();
        agent.kill().unwrap();
        agent.wait().unwrap();
    }

    /// Asks the agent to stop.
    #[expect(clippy::disallowed_methods, reason = "a test waits for the processes it tests")]
    pub(crate) fn terminate(&mut self) {
        let mut agent = self.agent.take().unwrap();
        let told = Command::new("kill").arg(agent.id().to_string()).status().unwrap();
        assert!(told.success() && agent.wait().unwrap().success());
    }

    /// Starts a command that goes on, with what it says in files.
    pub(crate) fn begin(&self, arguments: &[&str]) -> Going {
        let file = |name: &str| fs::File::create(self.path(name)).unwrap();
        let process = self.command(arguments).stdout(file("out")).stderr(file("err")).spawn().unwrap();
        Going { process, out: self.path("out"), err: self.path("err") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("unix://{}", self.path("runtime.sock").display())
    }

    /// Starts a run of the pods, and waits until they are ready.
    pub(crate) fn begin_run(&self, more: &[&str]) -> Going {
        fs::write(self.path("pod.yaml"), PODS).unwrap();
        let run = ["run", "--container-runtime-endpoint", &self.endpoint(), "pod.yaml"];
        let run = self.begin(&[&run[..], more].concat());
        self.until(|_| run.out().contains(" web Ready is True\n") && run.out().contains(" db Ready is True\n"));
        run
    }

    /// Neither a pod nor a directory of a run.
    pub(crate) fn has_nothing_left(&self) {
        assert_eq!((self.sandboxes(), self.directories_of_runs()), (0, Vec::new()));
    }

    /// The pods that the runtime has, of every origin.
    pub(crate) fn sandboxes(&self) -> usize {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listed = runtime.block_on(async {
            keelet_cri::Runtime::connect(&self.endpoint()).unwrap().list_pod_sandbox(None).await.unwrap()
        });
        listed.len()
    }

    /// Directories of runs that did not take them away.
    pub(crate) fn directories_of_runs(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("keelet-run-")).collect()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        // The parent of the tests may have been told to ignore that its terminal is closed, and that is inherited.
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_keelet")]);
        command.current_dir(self.directory.path()).env("KEELET_SOCKET", self.path("run/keelet.sock")).args(arguments);
        command.env_remove("KEELET_LOG").env("TMPDIR", self.directory.path());
        command
    }

    /// Exit status, output, errors.
    pub(crate) fn keelet(&self, arguments: &[&str]) -> (i32, String, String) {
        ended(&mut self.command(arguments))
    }

    #[expect(clippy::disallowed_methods, reason = "a test waits for the processes it tests")]
    pub(crate) fn until(&self, holds: impl Fn(&Self) -> bool) {
        for _ in 0..ROUNDS {
            if holds(self) {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("it never came to hold");
    }

    /// What a command of the shell says; `keelet` is in its path.
    pub(crate) fn shell(&self, line: &str) -> String {
        let mut command = Command::new("bash");
        command.args(["-c", line]).env("PATH", path_with_keelet()).env("KEELET_SOCKET", self.path("run/keelet.sock"));
        let (_, out, err) = ended(command.current_dir(self.directory.path()));
        out + &err
    }
}

pub(crate) fn path_with_keelet() -> String {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_keelet"));
    format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap())
}

/// A command that goes on.
pub(crate) struct Going {
    pub(crate) process: Child,
    pub(crate) out: PathBuf,
    pub(crate) err: PathBuf,
}

impl Going {
    #[expect(clippy::disallowed_methods, reason = "a test waits for the processes it tests")]
    pub(crate) fn signal(&self, signal: &str) {
        let kill = Command::new("sh").args(["-c", &format!("kill -{signal} {}", self.process.id())]).status();
        assert!(kill.unwrap().success());
    }

    /// The exit status, after that signal.
    #[expect(clippy::disallowed_methods, reason = "a test waits for the processes it tests")]
    pub(crate) fn ends_by(&mut self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.process.wait().unwrap().code()
    }

    pub(crate) fn out(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    pub(crate) fn err(&self) -> String {
        fs::read_to_string(&self.err).unwrap()
    }
}

impl Drop for Going {
    #[expect(clippy::disallowed_methods, reason = "a test waits for the processes it tests")]
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// No test leaves an agent behind.
impl Drop for Node {
    fn drop(&mut self) {
        if let Some(agent) = &mut self.agent {
            let _ = agent.kill();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a test waits for the process it tests")]
pub(crate) fn ended(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("no signal"), text(stdout), text(stderr))
}
