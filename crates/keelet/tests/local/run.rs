//! `keelet run`: how it begins, what it shows, and how it ends.

use std::fs;
use std::io::Read;
use std::process::{Command, Output, Stdio};

use crate::node::*;

#[test]
fn what_cannot_be_run_is_said_before_anything_starts() {
    let node = Node::with_runtime();
    let endpoint = node.endpoint();
    let run = |files: &[&str], endpoint: &str| {
        node.keelet(&[&["run", "--container-runtime-endpoint", endpoint], files].concat())
    };
    fs::write(node.path("pod.yaml"), PODS).unwrap();
    fs::write(node.path("same.yaml"), PODS).unwrap();
    fs::write(node.path("bad.yaml"), PODS.replace("containers:", "container:")).unwrap();
    let (code, out, err) = run(&["bad.yaml"], &endpoint);
    assert_eq!((code, out.as_str()), (2, ""));
    let (_, validated, _) = node.keelet(&["validate", "bad.yaml"]);
    assert_eq!(err, validated, "the same words");
    let (code, _, err) = run(&["pod.yaml", "same.yaml"], &endpoint);
    assert!(
        code == 2 && err.contains("same.yaml: pod default/db is also in pod.yaml; a name is for one pod\n"),
        "{err}"
    );
    let (code, _, err) = run(&["pod.yaml"], "unix:///none.sock");
    assert!(code == 2 && err.contains("no container runtime to run pods with") && err.contains("/none.sock"), "{err}");
    assert_eq!(run(&[], &endpoint).0, 2);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test waits for the process it tests")]
fn pods_run_until_a_signal_ends_the_run() {
    let node = Node::with_runtime();
    fs::write(node.path("pod.yaml"), PODS).unwrap();
    let mut run = node
        .command(&["run", "--container-runtime-endpoint", &node.endpoint(), "pod.yaml"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let socket = || {
        let entries = fs::read_dir(node.directory.path()).unwrap().map(|entry| entry.unwrap().path());
        let own = entries.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("keelet-run-"));
        own.map(|path| path.join("run/keelet.sock")).find(|path| path.exists())
    };
    node.until(|node| {
        let Some(socket) = socket() else { return false };
        let (_, pods, _) = node.keelet(&["get", "pods", "-A", "--socket", socket.to_str().unwrap()]);
        pods.contains("2/2     Running") && pods.contains("1/1     Running")
    });
    // These are deleted without a file.
    let path = socket().unwrap();
    let (code, out, err) = node.keelet(&["delete", "pod", "db", "--socket", path.to_str().unwrap()]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "pod \"db\" deleted\n", ""));
    let (_, left, _) = node.keelet(&["get", "pods", "-A", "-o", "name", "--socket", path.to_str().unwrap()]);
    assert_eq!(left, "pod/web\n", "it was waited for");
    let interrupt = format!("kill -INT {}", run.id());
    assert!(Command::new("sh").args(["-c", &interrupt]).status().unwrap().success());
    assert_eq!(run.wait().unwrap().code(), Some(130));
    let mut out = String::new();
    run.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    for part in [
        " web main: running\n",
        " web Ready is True\n",
        " web phase is Running\n",
        " keelet stopping, for up to 1 s;",
        " web is gone\n",
        " web was stopped",
    ] {
        assert!(out.contains(part), "{part:?} is missing:\n{out}");
    }
    assert!(socket().is_none(), "nothing is left of it");
    let left = fs::read_dir(node.directory.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with("keelet-run-"));
    assert_eq!(left.count(), 0);
}

/// The exit status of a run says whether its pods did their work, whatever the cause.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test waits for the process it tests")]
fn a_run_whose_pods_were_deleted_did_not_succeed() {
    let node = Node::with_runtime();
    let mut run = node.begin_run(&[]);
    let socket = node.directories_of_runs()[0].join("run/keelet.sock");
    let delete = |pod: &str| node.keelet(&["delete", "pod", pod, "--socket", socket.to_str().unwrap()]).0;
    assert_eq!((delete("db"), delete("web")), (0, 0));
    let code = run.process.wait().unwrap().code();
    assert!(code == Some(1) && run.out().contains(" web was stopped"), "{code:?}: {}", run.out());
}

#[test]
fn the_first_line_of_a_run_says_how_to_reach_it() {
    let node = Node::with_runtime();
    let run = node.begin_run(&[]);
    let out = run.out();
    let (_, command) = out.lines().next().unwrap().split_once(" keelet from another terminal: ").expect(&out);
    let pods = node.shell(command);
    assert!(pods.contains("2/2     Running") && pods.contains("1/1     Running"), "{command}: {pods}");
}

/// On a terminal the view shows what probes have found, and how to reach the pods.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test waits for the processes it tests")]
fn the_view_of_a_run_shows_probes_and_the_way_to_it() {
    let node = Node::with_runtime();
    let probes = "readinessProbe: {exec: {command: [a]}, periodSeconds: 1}, livenessProbe: {exec: {command: [a]}, periodSeconds: 1}";
    fs::write(node.path("pod.yaml"), PODS.replace("'db:3'", &format!("'db:3', {probes}"))).unwrap();
    let run = format!("stty cols 120 rows 40; keelet run --container-runtime-endpoint {} pod.yaml", node.endpoint());
    let mut terminal = Command::new("script");
    terminal.args(["-qefc", &run, "/dev/null"]).env("PATH", path_with_keelet()).env("TERM", "xterm");
    terminal.env("TMPDIR", node.directory.path()).env("NO_COLOR", "1").current_dir(node.directory.path());
    let process = terminal.stdin(Stdio::null()).stdout(fs::File::create(node.path("out")).unwrap()).spawn().unwrap();
    let mut terminal = Going { process, out: node.path("out"), err: node.path("err") };
    node.until(|_| terminal.out().contains("RESTARTS   PROBES") && terminal.out().contains("ready ok, live ok"));
    let socket = node.directories_of_runs()[0].join("run/keelet.sock");
    assert!(
        terminal.out().contains(&format!("\nkeelet get pods -A --socket {}", socket.display())),
        "{}",
        terminal.out()
    );
    terminal.process.kill().unwrap();
    terminal.process.wait().unwrap();
    node.until(|node| node.sandboxes() == 0 && node.directories_of_runs().is_empty());
}

/// A run does not have the state of the agent's runtime: to it those pods would be gone, and what is left of them to be
/// removed.
#[test]
fn a_run_keeps_out_of_the_directory_of_an_agent() {
    let mut node = Node::running();
    node.terminate();
    fs::write(node.path("pod.yaml"), PODS).unwrap();
    let run = format!("timeout 60 keelet run --container-runtime-endpoint {} pod.yaml --root-dir", node.endpoint());
    for _ in 0..2 {
        let said = node.shell(&format!("{run} lib; echo $?"));
        let why = format!("--root-dir: {} has pods of an agent", node.path("lib").display());
        assert!(said.starts_with("2\n") && said.contains(&why), "{said}");
    }
    assert_eq!(node.sandboxes(), 2, "they keep running");
    let (code, _, err) = node.keelet(&[
        "run",
        "pod.yaml",
        "--root-dir",
        "/var/lib/keelet/",
        "--container-runtime-endpoint",
        "unix:///none.sock",
    ]);
    assert!(code == 2 && err.contains("is the directory of the node's agent"), "{err}");
}

/// What an earlier run has left of a pod goes first; its end is not that of the log.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test waits for the process it tests")]
fn a_run_shows_the_log_of_a_pod_that_an_earlier_one_was_stopping() {
    let node = Node::with_runtime();
    fs::write(node.path("pod.yaml"), pods_that_linger()).unwrap();
    let begin = || {
        let endpoint = node.endpoint();
        node.begin(&["run", "--logs", "--container-runtime-endpoint", &endpoint, "pod.yaml", "--root-dir", "dir"])
    };
    let mut run = begin();
    node.until(|_| run.out().contains(" db Ready is True\n"));
    run.signal("INT");
    node.until(|_| run.out().contains(" db main: Killing: Stopping container main"));
    run.process.kill().unwrap();
    run.process.wait().unwrap();
    let run = begin();
    node.until(|_| run.out().contains(" db Ready is True\n"));
    assert!(run.out().contains(" db containers of an earlier run are stopped first\n"), "{}", run.out());
    let socket = node.path("dir/run/keelet.sock");
    let (_, json, _) = node.keelet(&["get", "pod", "db", "-o", "json", "--socket", socket.to_str().unwrap()]);
    let pod: serde_json::Value = serde_json::from_str(&json).unwrap();
    let directory = node.path(&format!("dir/logs/default_db_{}/main", pod["metadata"]["uid"].as_str().unwrap()));
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("0.log"), "2026-01-01T00:00:00Z stdout F new run\n").unwrap();
    node.until(|_| run.out().contains("db/main  | new run\n"));
}

/// Pods run without a socket too, and it is said that there is none.
#[test]
fn a_run_without_a_socket_says_so() {
    let node = Node::with_runtime();
    // More than fits into the address of a socket.
    let mut run = node.begin_run(&["--root-dir", &"a".repeat(120)]);
    let err = run.err();
    assert!(err.starts_with("warning: other commands cannot reach these pods: cannot create the socket "), "{err}");
    assert!(!run.out().contains("--socket"), "{}", run.out());
    assert_eq!(run.ends_by("INT"), Some(130));
}

/// Of one closed terminal the kernel tells and the shell does: that is no second Ctrl-C.
#[test]
fn a_run_stops_its_pods_when_its_terminal_is_closed() {
    let node = Node::with_runtime();
    let mut run = node.begin_run(&[]);
    run.signal("HUP");
    assert_eq!(run.ends_by("HUP"), Some(129));
    let out = run.out();
    assert!(out.contains(" keelet stopping, for up to 1 s;") && !out.contains("killing"), "{out}");
    node.has_nothing_left();
}

/// A run that ignores that its terminal is closed finds that it cannot write there.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test waits for the processes it tests")]
fn a_run_stops_its_pods_when_its_terminal_cannot_be_written() {
    let node = Node::with_runtime();
    fs::write(node.path("pod.yaml"), PODS).unwrap();
    let run = format!("keelet run --container-runtime-endpoint {} pod.yaml 2>/dev/null", node.endpoint());
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &format!("trap '' HUP; {run}; echo $? >ended"), "/dev/null"]);
    terminal.env("PATH", path_with_keelet()).env("TMPDIR", node.directory.path()).env("TERM", "xterm");
    terminal.current_dir(node.directory.path()).stdin(Stdio::null()).stdout(Stdio::null());
    let mut terminal = terminal.spawn().unwrap();
    node.until(|node| node.sandboxes() == 2);
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    node.until(|node| fs::read_to_string(node.path("ended")).is_ok_and(|code| code.ends_with('\n')));
    assert_eq!(fs::read_to_string(node.path("ended")).unwrap(), "129\n");
    node.has_nothing_left();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test waits for the process it tests")]
fn a_run_stops_its_pods_when_the_disk_is_full() {
    let node = Node::with_runtime();
    fs::write(node.path("pod.yaml"), PODS).unwrap();
    let mut run = node.command(&["run", "--container-runtime-endpoint", &node.endpoint(), "pod.yaml"]);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let run = run.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let Output { status, stderr, .. } = run.wait_with_output().unwrap();
    let err = String::from_utf8(stderr).unwrap();
    assert!(err.starts_with("error: cannot write: No space left on device"), "{err}");
    assert_eq!(status.code(), Some(130));
    node.has_nothing_left();
}

/// What the agent has to say is not worth a pod.
#[test]
fn a_run_goes_on_if_its_log_cannot_be_written() {
    let node = Node::with_runtime();
    fs::write(node.path("pod.yaml"), PODS).unwrap();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut run = node.command(&["run", "-v", "--container-runtime-endpoint", &node.endpoint(), "pod.yaml"]);
    let process = run.stdout(fs::File::create(node.path("out")).unwrap()).stderr(full).spawn().unwrap();
    let mut run = Going { process, out: node.path("out"), err: node.path("err") };
    node.until(|_| run.out().contains(" web Ready is True\n"));
    assert_eq!(run.ends_by("INT"), Some(130));
    node.has_nothing_left();
}
