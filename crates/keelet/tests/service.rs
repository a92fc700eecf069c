//! `keelet agent` as a service: its configuration file, reloads, and what the service manager is told.

mod daemon;

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixDatagram,
    path::Path,
    process::Command,
};

use tempfile::TempDir;

use self::daemon::{Agent, PATIENCE, run};

const HEADER: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

/// A node without a runtime.
struct Node {
    directory: TempDir,
}

// === impl Node ===

impl Node {
    /// With a configuration file that says where everything is, and this.
    fn new(fields: &str) -> Self {
        let node = Self { directory: TempDir::new().unwrap() };
        fs::create_dir(node.directory.path().join("manifests")).unwrap();
        node.configure(fields);
        node
    }

    fn configure(&self, fields: &str) {
        let places = "staticPodPath: manifests\npodLogsDir: logs\ncontainerRuntimeEndpoint: unix:///none.sock\n";
        fs::write(self.directory.path().join("config.yaml"), format!("{HEADER}{places}{fields}\n")).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keelet"));
        command.current_dir(self.directory.path()).env_remove("KEELET_LOG").env("NO_COLOR", "1").arg("agent");
        command.args([
            "--config",
            "config.yaml",
            "--root-dir",
            "lib",
            "--state-dir",
            "run",
            "--local-objects-dir",
            "etc",
        ]);
        command
    }
}

#[test]
fn the_service_manager_is_notified_of_what_the_agent_does() {
    let node = Node::new("");
    let path = node.directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let hears = |what: &str| {
        let mut buffer = [0; 512];
        loop {
            let length = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("{what}: {error}"));
            let said = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if said.starts_with(what) {
                return said;
            }
            assert_eq!(said, "WATCHDOG=1\n", "while waiting for {what}");
        }
    };
    // Not so often that a socket without a reader is full in a moment.
    let agent = Agent::start(node.command().env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "2000000"));
    assert!(hears("READY=1\n").contains("STATUS=keelet "));
    hears("WATCHDOG=1\n");
    hears("WATCHDOG=1\n");
    agent.signal("HUP");
    assert!(hears("RELOADING=1\n").contains("MONOTONIC_USEC="));
    hears("READY=1\n");
    hears("WATCHDOG=1\n");
    agent.signal("TERM");
    hears("STOPPING=1\n");
}

/// The file that is shipped beside the unit can be used as it is, and so can each field that it only mentions.
#[test]
fn the_file_that_is_shipped_is_right() {
    let shipped = include_str!("../../../deploy/config.yaml");
    let is_field = |line: &&str| line.starts_with(|letter: char| letter.is_ascii_lowercase()) && line.contains(": ");
    let uncommented = |line| Some(line).and_then(|line: &str| line.strip_prefix("# ")).filter(is_field).unwrap_or(line);
    let fields: Vec<&str> = shipped.lines().map(uncommented).collect();
    assert!(fields.contains(&"healthzPort: 10248"), "{fields:?}");
    for text in [shipped, &fields.join("\n")] {
        let read = keelet_agent::config::read(text.as_bytes(), Path::new("/etc/keelet/config.yaml"));
        let read = read.unwrap_or_else(|problems| panic!("{problems:?}"));
        assert_eq!((read.warnings.len(), read.remarks.len()), (0, 0), "{read:?}");
        assert_eq!(read.config.static_pod_path.as_deref(), Some(Path::new("/etc/keelet/manifests")));
    }
    assert!(include_str!("../../../deploy/keelet.service").contains("--config /etc/keelet/config.yaml\n"));
}

#[test]
fn a_file_says_everything_and_flags_win_over_it() {
    let node = Node::new("maxPods: 5\nnoSuchField: 1\nsyncFrequency: 1m\nfeatureGates: {ContainerRestartRules: false}");
    let agent = Agent::start(node.command().args(["--pod-manifest-path", "others", "--feature-gates", "Nobody=true"]));
    let file = node.directory.path().join("config.yaml").display().to_string();
    agent.says(&format!("{file}:6: known, not supported: maxPods"));
    agent.says(&format!("{file}:7:1: noSuchField: Unknown field"));
    agent.says("accepted, not needed: syncFrequency");
    // Of the file and of the flag.
    agent.says("unknown feature gate Nobody");
    agent.says("RestartAllContainersOnContainerExits is off because ContainerRestartRules is");
    let line = agent.says("agent started");
    assert!(line.contains("runtime=\"unix:///none.sock\"") && line.contains("/others"), "{line}");
}

#[test]
fn a_file_that_cannot_be_meant_keeps_the_agent_from_starting() {
    let node = Node::new("cpuManagerPolicy: static\nhealthzPort: x");
    let (code, err) = run(&mut node.command());
    let file = node.directory.path().join("config.yaml").display().to_string();
    assert_eq!(code, 2);
    assert!(err.contains(&format!("{file}:6:19: cpuManagerPolicy: Invalid value: \"static\"")), "{err}");
    assert!(err.contains(&format!("{file}:7:14: healthzPort: Invalid type: x: must be an integer")), "{err}");
    assert!(!node.directory.path().join("lib").exists());
    fs::remove_file(&file).unwrap();
    let (code, err) = run(&mut node.command());
    assert!(code == 2 && err.contains("--config: cannot read config.yaml"), "{err}");
    fs::write(node.directory.path().join("config.yaml"), HEADER).unwrap();
    let (code, err) = run(&mut node.command());
    assert_eq!(code, 2);
    assert!(err.contains("--pod-manifest-path is required, or staticPodPath in the file"), "{err}");
}

#[test]
fn a_reload_applies_what_can_change_and_names_the_rest() {
    let node = Node::new("");
    let agent = Agent::start(&mut node.command());
    agent.says("agent started");
    node.configure("containerLogMaxFiles: 3\nclusterDomain: new.local");
    agent.signal("HUP");
    let restart = agent.says("it takes effect after a restart of the agent");
    assert!(restart.contains("clusterDomain"), "{restart}");
    let now = agent.says("configuration field changed");
    assert!(now.contains("containerLogMaxFiles"), "{now}");
    node.configure("containerLogMaxFiles: many");
    agent.signal("HUP");
    let kept = agent.says("the old configuration stays in effect");
    assert!(kept.contains("containerLogMaxFiles: Invalid type"), "{kept}");
}

#[test]
fn health_is_served_where_it_is_asked_for() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let node = Node::new(&format!("healthzPort: {port}"));
    let agent = Agent::start(&mut node.command());
    agent.says("agent started");
    #[expect(clippy::disallowed_methods, reason = "a test asks over a real socket")]
    let ask = |path: &str| {
        let mut stream = loop {
            // It listens a moment after it says that it runs.
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
                break stream;
            }
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = ask("/healthz");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok"), "{answer}");
    assert!(ask("/other").starts_with("HTTP/1.1 404 "));
}
