//! `keelet agent` from the outside, without a runtime: how it starts, what it says, how it ends.

mod daemon;

use std::{fs, process::Command};

use tempfile::TempDir;

use self::daemon::{Agent, run};

/// A node without a runtime.
struct Node {
    directory: TempDir,
}

// === impl Node ===

impl Node {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        fs::create_dir(directory.path().join("manifests")).unwrap();
        Self { directory }
    }

    /// With paths as people type them: relative to where they are.
    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keelet"));
        command.current_dir(self.directory.path()).env_remove("KEELET_LOG").env("NO_COLOR", "1").arg("agent");
        let endpoint = format!("unix://{}/none.sock", self.directory.path().display());
        command.args(["--container-runtime-endpoint", &endpoint, "--pod-manifest-path", "manifests"]);
        command.args(["--root-dir", "lib", "--state-dir", "run", "--pod-logs-dir", "logs"]);
        command
    }

    fn want(&self, image: &str) {
        let pod = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: web, uid: u1}}\nspec: {{containers: [{{name: main, image: {image}}}]}}\n"
        );
        let path = self.directory.path().join("manifests");
        // In one step, so that the agent never sees half of it.
        fs::write(path.join(".web.yaml"), pod).unwrap();
        fs::rename(path.join(".web.yaml"), path.join("web.yaml")).unwrap();
    }

    /// The image of the copy that the ledger keeps.
    fn kept(&self) -> String {
        let copy = fs::read_to_string(self.directory.path().join("lib/ledger/pods/u1/pod.json")).unwrap();
        let copy: serde_json::Value = serde_json::from_str(&copy).unwrap();
        copy.to_string().split("\"image\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
    }

    fn start(&self) -> Agent {
        let agent = Agent::start(&mut self.command());
        agent.says("agent started");
        agent
    }
}

// === impl Agent ===

impl Agent {
    #[expect(clippy::disallowed_methods, reason = "a test waits for the process it tests")]
    fn stop(mut self, signal: &str) -> i32 {
        self.signal(signal);
        self.says("agent stopping; pods keep running");
        self.process.wait().unwrap().code().expect("it ends by itself")
    }
}

#[test]
fn a_runtime_that_is_not_there_is_said_and_signals_end_the_agent() {
    for signal in ["TERM", "INT"] {
        let node = Node::new();
        let agent = node.start();
        let line = agent.says("cannot reach the container runtime; retrying");
        assert!(line.contains("cannot connect to the runtime at unix://") && line.contains("/none.sock: "), "{line}");
        assert_eq!(agent.stop(signal), 0);
    }
}

#[test]
fn two_agents_do_not_share_a_ledger() {
    let node = Node::new();
    let agent = node.start();
    let (code, err) = run(&mut node.command());
    let pid = agent.process.id();
    assert_eq!(code, 2);
    assert!(err.contains(&format!("another keelet agent (pid {pid}) uses ")), "{err}");
    assert_eq!(agent.stop("TERM"), 0);
}

#[test]
fn what_cannot_work_is_refused_before_anything_starts() {
    let node = Node::new();
    fs::write(node.directory.path().join("file"), "").unwrap();
    for (option, value, expected) in [
        ("--root-dir", "file", "error: --root-dir: file is not a directory\n"),
        ("--pod-logs-dir", "file", "error: --pod-logs-dir: file is not a directory\n"),
        ("--state-dir", "file/run", "error: --state-dir: file/run is not a directory\n"),
        ("--container-runtime-endpoint", "tcp://x", "has a scheme other than unix: it must be a unix socket"),
        ("--feature-gates", "X=maybe", "must be Name=true or Name=false"),
        ("--max-concurrent-probes", "0", "invalid number \"0\": expected a whole number from 1 to "),
        ("--kubeconfig", "x", "error: cannot use the kubeconfig x: failed to read"),
        ("--kubeconfig", "file", "error: cannot use the kubeconfig file: "),
        ("--bootstrap-kubeconfig", "x", "keelet cannot request a certificate yet; give a --kubeconfig"),
        ("--node-labels", "pool", "invalid label \"pool\": expected KEY=VALUE"),
        ("--node-labels", "pool=blue", "the following required arguments were not provided:\n  --kubeconfig <FILE>"),
        ("--register-with-taints", "a:Never", "invalid taint \"a:Never\": expected KEY=VALUE:EFFECT or KEY:EFFECT"),
        ("--node-monitor-grace-period", "-1", "invalid number \"-1\": expected a whole number from 0 to "),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keelet"));
        command.current_dir(node.directory.path()).arg("agent").args([option, value]);
        for other in
            [["--container-runtime-endpoint", "/none"], ["--pod-manifest-path", "manifests"], ["--root-dir", "lib"]]
        {
            if other[0] != option {
                command.args(other);
            }
        }
        let (code, err) = run(&mut command);
        assert!(code == 2 && err.contains(expected), "{option} {value}: {code} {err}");
        assert!(!node.directory.path().join("lib").exists(), "{option}");
    }
}

#[test]
fn the_log_can_be_json() {
    let node = Node::new();
    let agent = Agent::start(node.command().args(["--log-format", "json"]));
    let line: serde_json::Value = serde_json::from_str(&agent.says("agent started")).expect("an object on a line");
    assert_eq!((&line["level"], &line["message"]), (&"INFO".into(), &"agent started".into()));
    assert!(line["manifests"].as_str().is_some_and(|path| path.ends_with("manifests")), "{line}");
    assert!(line["timestamp"].is_string() && line["version"].is_string(), "{line}");
    assert_eq!(agent.stop("TERM"), 0);
}

#[test]
fn a_filter_for_the_log_that_means_nothing_is_said() {
    let node = Node::new();
    let agent = Agent::start(node.command().env("KEELET_LOG", "a=b=c["));
    let line = agent.says("KEELET_LOG");
    assert!(line.contains("ignored: expected a filter such as warn,keelet_agent=debug"), "{line}");
    agent.says("agent started");
    assert_eq!(agent.stop("TERM"), 0);
}

/// API-10, API-19: a pod does not change under its UID, neither while the agent is there nor while it is not.
#[test]
fn a_living_pod_stays_as_it_is_over_a_restart_of_the_agent() {
    let node = Node::new();
    node.want("first");
    let agent = node.start();
    agent.says("cannot get pod state from the container runtime");
    node.want("second");
    let line = agent.says("pod default/web rejected: its metadata.uid \"u1\"");
    assert!(line.contains("/manifests/web.yaml: "), "{line}");
    assert_eq!((agent.stop("TERM"), node.kept()), (0, "first".to_owned()));
    node.want("third");
    let agent = node.start();
    agent.says("pod default/web rejected: its metadata.uid \"u1\"");
    assert_eq!((agent.stop("TERM"), node.kept()), (0, "first".to_owned()));
}
