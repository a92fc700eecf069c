//! `keelet controller` as a process: its flags, its kubeconfig, and API servers that are not what they should be. What it does in a
//! cluster is in `tests/cluster`.

mod daemon;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Command,
    thread,
};

use tempfile::TempDir;

use self::daemon::{Agent, PATIENCE, run};

/// A port that nothing listens on: TCP port multiplexer.
const AWAY: &str = "http://127.0.0.1:1";

fn controller(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keelet"));
    command.current_dir(directory).env("NO_COLOR", "1");
    for variable in ["KEELET_LOG", "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"] {
        command.env_remove(variable);
    }
    command.arg("controller").args(arguments);
    command
}

/// A directory with a kubeconfig for this server.
fn for_server(server: &str) -> TempDir {
    let directory = TempDir::new().unwrap();
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: \"{server}\"}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
    );
    fs::write(directory.path().join("kubeconfig"), kubeconfig).unwrap();
    directory
}

/// One that runs, and where it is asked about its health.
fn start(directory: &Path, arguments: &[&str]) -> (Agent, SocketAddr) {
    let usual = ["--kubeconfig", "kubeconfig", "--bind-address", "127.0.0.1:0"];
    let process = Agent::start(&mut controller(directory, &[&usual, arguments].concat()));
    let line = process.says("serving /healthz, /readyz and /metrics");
    let address = line.rsplit_once("address=").and_then(|(_, address)| address.trim().parse().ok());
    (process, address.unwrap_or_else(|| panic!("no address in {line}")))
}

#[expect(clippy::disallowed_methods, reason = "a test waits for the process it tests")]
fn get(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[test]
fn flags_that_cannot_be_meant_are_named() {
    let directory = for_server(AWAY);
    for (arguments, expected) in [
        (&["--enforcement", "always"][..], "[possible values: bootstrap, continuous]"),
        (&["--max-held", "-1"], "invalid limit \"-1\": expected a number of nodes, or a percentage such as 10%"),
        (&["--max-held", "101%"], "invalid limit \"101%\""),
        (&["--condition-max-age", "soon"], "invalid duration \"soon\""),
        (&["--condition-max-age", "0s"], "must be greater than zero"),
        (&["--taint-prefix", "example.com"], "'--taint-prefix <DOMAIN/>': invalid taint prefix \"example.com\""),
        (&["--taint-prefix", "node.kubernetes.io/"], "Kubernetes itself adds and removes these taints"),
        (&["--leader-elect=maybe"], "[possible values: true, false]"),
        (&["--leader-elect-lease-duration", "1500ms"], "expected whole seconds"),
        (
            &["--leader-elect-lease-duration", "10s"],
            "the renew deadline (10s) must be shorter than the lease duration (10s)",
        ),
        (&["--leader-elect-retry-period", "6s"], "at most half of the renew deadline (10s)"),
        (&["--leader-elect-retry-period", "0s"], "must be greater than zero"),
        (&["--leader-elect-resource-name", "A/b"], "invalid name \"A/b\""),
        (&["--leader-elect-resource-namespace", ""], "invalid name \"\""),
        (&["--bind-address", "localhost"], "invalid address \"localhost\": expected :8080"),
        (&["--rules", "never"], "[possible values: auto, off]"),
        (&["--feature-gates", "NodeReadinessGates"], "must be Name=true or Name=false"),
        (&["--log-format", "xml"], "[possible values: text, json]"),
        (&["--max-hold", "3"], "--max-held"),
        (&["nodes"], "unexpected argument 'nodes'"),
    ] {
        let usual = ["--kubeconfig", "kubeconfig", "--bind-address", "0"];
        let usual = if arguments[0] == "--bind-address" { &usual[..2] } else { &usual[..] };
        let (code, said) = run(&mut controller(directory.path(), &[usual, arguments].concat()));
        assert_eq!(code, 2, "{arguments:?}: {said}");
        assert!(said.contains("error: ") && said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_named() {
    let directory = TempDir::new().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("empty", "");
    write("page", "<html>Sign in</html>");
    write("no-context", "apiVersion: v1\nkind: Config\nclusters: []\n");
    let cluster = |more: &str| {
        format!(
            "current-context: c\nclusters: [{{name: c, cluster: {{{more}}}}}]\nusers: [{{name: u, user: {{}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
        )
    };
    write("no-server", &cluster(""));
    write("no-ca-file", &cluster("server: \"https://127.0.0.1:1\", certificate-authority: nowhere.crt"));
    write("bad-ca", &cluster("server: \"https://127.0.0.1:1\", certificate-authority-data: \"****\""));
    write("no-ca", &cluster("server: \"https://127.0.0.1:1\", certificate-authority-data: AAAA"));
    write("no-authority", &cluster("server: \"https://127.0.0.1:1\""));
    write("insecure", &cluster("server: \"https://127.0.0.1:1\", insecure-skip-tls-verify: true"));
    write("bad-scheme", &cluster("server: \"ftp://127.0.0.1:1\""));
    for (name, expected) in [
        ("missing", "No such file or directory"),
        ("empty", "failed to determine current context"),
        ("page", "failed to parse kubeconfig YAML"),
        ("no-context", "current context"),
        ("no-server", "cluster url is missing"),
        ("no-ca-file", "nowhere.crt"),
        ("bad-ca", "failed to load certificate authority"),
        ("no-ca", "the certificate authority has no certificate"),
        ("no-authority", "its cluster has neither certificate-authority-data nor certificate-authority"),
        ("insecure", "its cluster has insecure-skip-tls-verify: true"),
        ("bad-scheme", "expected https:// or http://"),
    ] {
        let (code, said) = run(&mut controller(directory.path(), &["--kubeconfig", name, "--bind-address", "0"]));
        assert_eq!(code, 2, "{name}: {said}");
        let is_named = said.contains(name) || said.contains("127.0.0.1:1");
        assert!(said.contains("error: ") && is_named && said.contains(expected), "{name}: {said}");
    }
    let (code, said) = run(&mut controller(directory.path(), &["--bind-address", "0"]));
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("--kubeconfig"), "outside of a cluster: {said}");
}

/// VEC-77, CTRL-1: off means that nothing happens at all: no connection, no lease.
#[test]
fn the_feature_gate_switches_the_controller_off() {
    // Not even the kubeconfig is read.
    let arguments = ["--feature-gates", "NodeReadinessGates=false", "--kubeconfig", "nowhere"];
    let (code, said) = run(&mut controller(TempDir::new().unwrap().path(), &arguments));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("feature gate is off") && said.contains("feature_gate=\"NodeReadinessGates\""), "{said}");
    let (process, _) = start(for_server(AWAY).path(), &["--feature-gates", "NodeReadinessGates=true"]);
    process.says("controller started");
}

/// CTRL-14: it waits, says so, is alive and not ready, and ends when it is asked to.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test waits for the process it tests")]
fn an_api_server_that_is_away_is_waited_for() {
    let directory = for_server(AWAY);
    let (mut process, address) = start(directory.path(), &[]);
    let line = process.says("cannot list objects; retrying");
    assert!(line.contains("Connection refused") && line.contains("error=client error (Connect): tcp"), "{line}");
    assert_eq!(get(address, "/healthz").0, "HTTP/1.1 200 OK");
    let (status, body) = get(address, "/readyz");
    assert!(status.contains("503") && body.contains("nodes are not listed yet"), "{status} {body}");
    assert!(get(address, "/metrics").1.contains("keelet_gates_synced 0"));
    process.signal("TERM");
    process.says("controller stopped");
    assert_eq!(process.process.wait().unwrap().code(), Some(0));
}

/// A proxy that asks to sign in answers every request with a page and 200.
#[test]
fn a_server_that_answers_with_pages_is_no_api_server() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let page = "<html><body>Sign in</body></html>";
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                // A request without a body ends with an empty line; the others are cut off.
                while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                    line.clear();
                }
                let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}", page.len());
                let _ = stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n{page}").as_bytes());
            });
        }
    });
    let directory = for_server(&server);
    let (process, address) = start(directory.path(), &["-v"]);
    let line = process.says("cannot list objects; retrying");
    assert!(line.contains("expected value at line 1"), "{line}");
    process.says("cannot ask for permissions");
    let (status, body) = get(address, "/readyz");
    assert!(status.contains("503") && !body.contains("not allowed"), "{status} {body}");
}

#[test]
fn a_log_line_is_an_object_if_that_is_asked_for() {
    let directory = for_server(AWAY);
    let mut command = controller(
        directory.path(),
        &["--kubeconfig", "kubeconfig", "--rules=off", "--bind-address=0", "--log-format=json"],
    );
    let line = Agent::start(&mut command).says("cannot list objects");
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["level"], &line["resource"]), (&"WARN".into(), &"nodes".into()));
}
