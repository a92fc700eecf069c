//! The commands that ask an agent.

use std::fs;
use std::io::{Read, Write};
use std::process::Stdio;

use serde_json::Value;

use crate::node::*;

#[test]
fn without_an_agent_every_command_says_where_it_looked_and_how_to_start_one() {
    let node = Node::bare();
    for arguments in [
        &["get", "pods"][..],
        &["describe", "pod", "web"],
        &["logs", "web"],
        &["events"],
        &["top"],
        &["restart", "web"],
        &["delete", "pod", "web"],
        &["image", "ls"],
        &["image", "rm", "x"],
    ] {
        let (code, out, err) = node.keelet(arguments);
        assert_eq!((code, out.as_str()), (1, ""), "{arguments:?}");
        let socket = node.path("run/keelet.sock");
        assert!(err.contains(&format!("no agent answers on {}: no such socket\n", socket.display())), "{err}");
        assert!(err.contains("To start one: keelet agent "), "{err}");
    }
    fs::create_dir(node.path("run")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(node.path("run/keelet.sock")).unwrap());
    let (_, _, err) = node.keelet(&["get", "pods"]);
    assert!(err.contains("connection refused: the agent that made the socket has stopped"), "{err}");
}

#[test]
fn an_agent_is_asked_about_its_pods() {
    let node = Node::running();
    let (code, out, err) = node.keelet(&["get", "pods", "-A"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "NAMESPACE   NAME   READY   STATUS    RESTARTS   AGE");
    assert!(lines[1].starts_with("default     db     1/1     Running   0 "), "{out}");
    assert!(lines[2].starts_with("shop        web    2/2     Running   0 "), "{out}");

    let (_, out, err) = node.keelet(&["get", "pods", "-n", "nowhere"]);
    assert_eq!(
        (out.as_str(), err.as_str()),
        ("", "No resources found in nowhere namespace; others have 2: -A shows them.\n")
    );
    let (code, out, err) = node.keelet(&["get", "pods", "db", "nix", "--no-headers"]);
    assert!(code == 1 && out.starts_with("db "), "{out}");
    assert_eq!(err, "error: pod \"nix\" not found in namespace \"default\"\n");

    let (_, json, _) = node.keelet(&["get", "pod/web", "-n", "shop", "-o", "json"]);
    let pod: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&pod["kind"], &pod["status"]["phase"]), (&"Pod".into(), &"Running".into()));
    let (_, list, _) = node.keelet(&["get", "pods", "-A", "-o", "json"]);
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!((&list["kind"], list["items"].as_array().map(Vec::len)), (&"List".into(), Some(2)));
    let (_, yaml, _) = node.keelet(&["get", "pod", "db", "-o", "yaml"]);
    assert!(yaml.starts_with("apiVersion: v1\nkind: Pod\nmetadata:\n"), "{yaml}");
    assert_eq!(node.keelet(&["get", "pods", "-A", "-o", "name"]).1, "pod/db\npod/web\n");

    let (_, page, _) = node.keelet(&["describe", "pod", "web"]);
    for part in
        ["Name:             web\n", "Containers:\n  main:\n", "    Environment:  A=b\n", "Started container main\n"]
    {
        assert!(page.contains(part), "{part:?} is missing:\n{page}");
    }
    let (code, _, err) = node.keelet(&["describe", "pod", "wep"]);
    assert!(code == 1 && err.starts_with("error: pod \"wep\" not found; did you mean web -n shop?; "), "{err}");
    assert_eq!(node.keelet(&["get", "services"]).0, 2);
    for arguments in [&["get", "images", "-w"][..], &["image", "ls", "-w"]] {
        let (code, _, err) = node.keelet(arguments);
        let why = "error: -w: images cannot be watched; pods and events can\n";
        assert_eq!((code, err.as_str()), (2, why), "{arguments:?}");
    }
    let (_, images, _) = node.keelet(&["image", "ls"]);
    assert!(images.contains("proxy") && images.starts_with("IMAGE "), "{images}");
    let (_, containers, _) = node.keelet(&["get", "containers", "-n", "shop"]);
    assert!(containers.contains("web   side        Running   0"), "{containers}");
}

#[test]
fn what_is_wanted_is_found_and_what_is_not_there_is_said() {
    let node = Node::running();
    assert_eq!(node.keelet(&["get", "pods", "-A", "-l", "app=web", "-o", "name"]).1, "pod/web\n");
    assert_eq!(node.keelet(&["get", "pods", "-A", "-l", "app notin (web)", "-o", "name"]).1, "pod/db\n");
    for arguments in
        [&["get", "pods", "-l", "a b"][..], &["get", "images", "-l", "a"], &["get", "pods", "db", "-l", "a"]]
    {
        assert_eq!(node.keelet(arguments).0, 2, "{arguments:?}");
    }
    // What was misspelt is said at once, and what is there is watched.
    let missing = "error: pod \"wep\" not found in namespace \"shop\"\n";
    assert_eq!(node.shell("timeout 60 keelet get pod wep -w -n shop; echo $?"), format!("1\n{missing}"));
    let mut pods = node.begin(&["get", "pods", "wep", "web", "-w", "-n", "shop"]);
    node.until(|_| pods.out().contains("web "));
    assert_eq!(pods.err(), missing);
    fs::remove_file(node.path("manifests/all.yaml")).unwrap();
    node.until(|_| pods.out().contains("Terminating"));
    node.until(|node| node.keelet(&["get", "pods", "-A", "-o", "name"]).1.is_empty());
    assert_eq!(pods.process.try_wait().unwrap(), None, "what goes later does not end it");

    // What happened to a pod is told for a while after it is gone.
    let (_, events, _) = node.keelet(&["events", "--for", "pod/web", "-n", "shop", "--no-headers"]);
    assert!(events.lines().count() > 0 && events.lines().all(|line| line.contains(" pod/web ")), "{events}");
    let (_, events, err) = node.keelet(&["events", "--for", "pod/db", "-n", "shop"]);
    assert!(events.is_empty() && err.starts_with("No resources found"), "{events}{err}");
    assert_eq!(node.keelet(&["events", "--for", "node/x"]).0, 2);
    let (code, _, err) = node.keelet(&["describe", "node", "x"]);
    assert_eq!((code, err.contains("only pods can be named")), (2, true), "{err}");
}

#[test]
fn what_is_before_the_name_of_a_thing_is_its_kind() {
    let node = Node::bare();
    for (arguments, why) in [
        (&["pod/web", "node/n1"][..], "invalid pod \"node/n1\": use pod/NAME or NAME"),
        (&["pods", "shop/web"], "invalid pod \"shop/web\": use pod/NAME or NAME, and -n for the namespace"),
        (&["node", "shop/n1"], "invalid node \"shop/n1\": use node/NAME or NAME"),
    ] {
        let (code, _, err) = node.keelet(&[&["get"], arguments].concat());
        assert_eq!((code, err), (2, format!("error: {why}\n")), "{arguments:?}");
    }
    for arguments in [&["pods", "po/web"][..], &["image/a", "shop/web"], &["images", "shop/web"]] {
        let (code, _, err) = node.keelet(&[&["get"], arguments].concat());
        assert!(code == 1 && err.contains("no agent answers"), "{arguments:?}: {err}");
    }
}

#[test]
fn logs_are_those_of_the_container_that_is_meant() {
    let node = Node::running();
    let (_, json, _) = node.keelet(&["get", "pod/web", "-n", "shop", "-o", "json"]);
    let pod: Value = serde_json::from_str(&json).unwrap();
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    for (container, text) in [("main", "one"), ("main", "two"), ("side", "three")] {
        let directory = node.path(&format!("logs/shop_web_{uid}/{container}"));
        fs::create_dir_all(&directory).unwrap();
        let old = fs::read_to_string(directory.join("0.log")).unwrap_or_default();
        fs::write(directory.join("0.log"), format!("{old}2026-01-01T00:00:00Z stdout F {text}\n")).unwrap();
    }
    let (code, out, err) = node.keelet(&["logs", "web"]);
    assert_eq!(
        (code, out.as_str(), err.as_str()),
        (0, "one\ntwo\n", "Defaulted container \"main\" out of: main, side\n")
    );
    assert_eq!(node.keelet(&["logs", "web", "side"]).1, "three\n");
    assert_eq!(
        node.keelet(&["logs", "web", "-c", "main", "--tail", "1", "--timestamps"]).1,
        "2026-01-01T00:00:00Z two\n"
    );
    let (_, all, note) = node.keelet(&["logs", "web", "--all-containers", "--prefix"]);
    assert_eq!(all, "[pod/web/main] one\n[pod/web/main] two\n[pod/web/side] three\n");
    assert_eq!(note, "");
    let (_, some, note) = node.keelet(&["logs", "db", "--all-containers", "--prefix"]);
    assert_eq!((some.as_str(), note.as_str()), ("", "error: container \"main\" in pod \"db\" has left no log\n"));
    assert_eq!(node.keelet(&["logs", "web", "--since", "1h", "-c", "main"]).1, "", "it is older");
    assert_eq!(node.keelet(&["logs", "web", "--since", "1.5h", "-c", "main"]).1, "", "it is older");
    for (time, expected) in [("2026-01-01T00:00:00Z", "one\ntwo\n"), ("2026-01-01T00:00:01Z", "")] {
        assert_eq!(node.keelet(&["logs", "web", "--since-time", time, "-c", "main"]).1, expected, "{time}");
    }
    assert_eq!(node.keelet(&["logs", "web", "--tail=-1", "-c", "main"]).1, "one\ntwo\n");
    let (code, _, err) = node.keelet(&["logs", "web", "-p", "-c", "main"]);
    let missing = "error: previous terminated container \"main\" in pod \"web\" not found\n";
    assert_eq!((code, err.as_str()), (1, missing));
    let (code, _, err) = node.keelet(&["logs", "web", "-c", "x"]);
    assert_eq!((code, err.as_str()), (1, "error: container \"x\" not found in pod shop/web; containers: main, side\n"));
    assert_eq!(node.keelet(&["logs", "web", "-f", "-p"]).0, 2);
    assert_eq!(node.keelet(&["logs", "web", "--since", "noon"]).0, 2);
    // A reader that has read enough ends it, without a message.
    assert_eq!(node.shell("set -o pipefail; timeout 60 keelet logs -f web -c main | head -1; echo $?"), "one\n0\n");
}

#[test]
fn pods_are_restarted_in_place_and_deleted_by_their_file() {
    let node = Node::running_these(&pods_that_linger());
    assert_eq!(node.keelet(&["restart", "db"]), (0, "pod/db restarting\n".to_owned(), String::new()));
    node.until(|node| node.keelet(&["get", "pods"]).1.contains("1/1     Running   1 ("));
    let (code, _, err) = node.keelet(&["delete", "pod", "db", "none"]);
    let file = node.path("manifests/all.yaml");
    let (first, second) = err.split_once('\n').unwrap();
    assert_eq!(code, 1);
    assert_eq!(
        first,
        format!(
            "error: pod default/db comes from {}, and another pod too: take it out of that file to delete it",
            file.display()
        )
    );
    assert!(second.starts_with("error: pod \"none\" not found"), "{second}");
    // A client that watches before it is gone sees it go.
    let pods = node.begin(&["get", "pods", "-A", "-w"]);
    node.until(|_| pods.out().lines().count() >= 3);
    fs::remove_file(file).unwrap();
    node.until(|_| pods.out().contains("Terminating"));
}

#[test]
fn a_reader_that_has_enough_of_a_watch_ends_it() {
    let node = Node::running();
    assert_eq!(
        node.shell("set -o pipefail; timeout 60 keelet events -A -w | head -1 | cut -c1-9; echo $?"),
        "NAMESPACE\n0\n"
    );
    let shown = node.shell("keelet get pods -A | cat; NO_COLOR=1 script -qec 'keelet get pods -A' /dev/null");
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
}

/// The agent is killed and stops, again and again. A watch reports that it went away, waits, and shows nothing that
/// did not change.
#[test]
fn a_watch_continues_with_the_next_agent() {
    let mut node = Node::running_these(&pods_that_linger());
    let pods = node.begin(&["get", "pods", "-A", "-w"]);
    node.until(|_| pods.out().lines().count() == 3);
    for death in 1..=4 {
        if death % 2 == 0 {
            node.kill();
        } else {
            node.terminate();
        }
        node.until(|_| pods.err().matches("stopped; waiting for the next one\n").count() == death);
        node.start();
        node.until(|_| pods.err().matches("the agent is back\n").count() == death);
    }
    let before = pods.out();
    assert_eq!(before.lines().count(), 3, "nothing changed:\n{before}");
    // The next agent reports what changed while no agent ran, and nothing else.
    node.kill();
    let only_web = PODS.split("---").next().unwrap();
    fs::write(node.path("manifests/all.yaml"), only_web).unwrap();
    node.start();
    node.until(|_| pods.out().contains("Terminating"));
    let after = pods.out();
    assert_eq!(after.lines().filter(|line| line.contains(" web ")).count(), 1, "{after}");
    assert_eq!(pods.err().lines().count(), 2 * 5, "{}", pods.err());
}

/// The log of a container is read on while there is no agent: no line is missing, none comes twice, and it ends with the pod.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test waits for the process it tests")]
fn logs_go_on_without_an_agent() {
    let mut node = Node::running();
    let (_, json, _) = node.keelet(&["get", "pod/web", "-n", "shop", "-o", "json"]);
    let pod: Value = serde_json::from_str(&json).unwrap();
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let write = |node: &Node, container: &str, text: &str| {
        let directory = node.path(&format!("logs/shop_web_{uid}/{container}"));
        fs::create_dir_all(&directory).unwrap();
        // All at one time, as a quick container writes.
        let mut log = fs::File::options().create(true).append(true).open(directory.join("0.log")).unwrap();
        log.write_all(format!("2026-01-01T00:00:00Z stdout F {text}\n").as_bytes()).unwrap();
    };
    write(&node, "main", "old");
    write(&node, "main", "one");
    let mut logs = node.begin(&["logs", "-f", "web", "--all-containers", "--prefix", "--tail", "1"]);
    node.until(|_| logs.out() == "[pod/web/main] one\n");
    node.kill();
    node.until(|_| logs.err().contains("stopped; the log goes on without it\n"));
    write(&node, "main", "two");
    write(&node, "side", "three");
    node.until(|_| logs.out().contains("two") && logs.out().contains("three"));
    node.start();
    node.until(|_| logs.err().contains("the agent is back\n"));
    write(&node, "main", "four");
    node.until(|_| logs.out().contains("four"));
    assert_eq!(logs.process.try_wait().unwrap(), None, "it goes on");
    fs::remove_file(node.path("manifests/all.yaml")).unwrap();
    assert!(logs.process.wait().unwrap().success(), "it ends with the pod");
    let mut lines: Vec<String> = logs.out().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["[pod/web/main] four", "[pod/web/main] one", "[pod/web/main] two", "[pod/web/side] three"]);
    assert_eq!(logs.err().lines().count(), 2, "{}", logs.err());
}

/// A slow reader, such as a pager, gets all of it, whatever becomes of the agent meanwhile.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test waits for the process it tests")]
fn a_log_is_read_to_its_end_however_slowly() {
    let mut node = Node::running();
    let (_, json, _) = node.keelet(&["get", "pod/db", "-o", "json"]);
    let pod: Value = serde_json::from_str(&json).unwrap();
    let directory = node.path(&format!("logs/default_db_{}/main", pod["metadata"]["uid"].as_str().unwrap()));
    fs::create_dir_all(&directory).unwrap();
    // More than a pipe and a socket hold.
    let lines: Vec<String> = (0..40_000).map(|number| format!("{number} {}", "x".repeat(100))).collect();
    let log: String = lines.iter().map(|line| format!("2026-01-01T00:00:00Z stdout F {line}\n")).collect();
    fs::write(directory.join("0.log"), log).unwrap();
    for arguments in [&["logs", "db"][..], &["logs", "db", "--all-containers"]] {
        let mut logs = node.command(arguments).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let mut out = logs.stdout.take().unwrap();
        let mut first = [0];
        out.read_exact(&mut first).unwrap();
        node.kill();
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert!(logs.wait().unwrap().success(), "{arguments:?}");
        assert!(rest.lines().eq([&lines[0][1..]].into_iter().chain(lines[1..].iter().map(String::as_str))));
        node.start();
        node.until(|node| node.keelet(&["get", "pods"]).1.contains("1/1     Running"));
    }
}

#[test]
fn registries_are_for_the_embedded_runtime() {
    let node = Node::bare();
    fs::write(node.path("pod.yaml"), PODS).unwrap();
    let other = ["--container-runtime-endpoint", "unix:///none.sock"];
    for command in [&["run", "pod.yaml"][..], &["agent", "--pod-manifest-path", "manifests", "--state-dir", "run"]] {
        let keelet = |more: &[&str]| node.keelet(&[command, &["--root-dir", "lib"], more].concat());
        let (code, _, err) = keelet(&["--registry-mirror", "docker.io"]);
        assert!(code == 2 && err.contains("expected REGISTRY=URL"), "{err}");
        let (code, _, err) = keelet(&[&["--registry-mirror", "*=http://127.0.0.1:5000"], &other[..]].concat());
        assert!(code == 2 && err.contains("--registry-mirror is for the embedded runtime; unix:///none.sock"), "{err}");
        let (code, _, err) = keelet(&["--docker-config", "none.json"]);
        assert!(code == 2 && err.contains("--docker-config: cannot read none.json"), "{err}");
    }
    let (code, _, err) = node.keelet(&["run", "pod.yaml", "--image-store", "pod.yaml"]);
    assert_eq!((code, err.as_str()), (2, "error: --image-store: pod.yaml is not a directory\n"));
}

#[test]
fn scripts_for_shells_know_the_commands() {
    let node = Node::bare();
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, _) = node.keelet(&["completion", shell]);
        assert!(code == 0 && script.contains("all-containers") && script.contains("describe"), "{shell}");
        // fish completes no arguments without a dash.
        let kinds = script.contains("pods containers images node events");
        assert!(kinds || shell == "fish", "{shell}: the kinds of things to get");
    }
    let (code, _, err) = node.keelet(&["completion", "tcsh"]);
    assert!(code == 2 && err.contains("expected bash, zsh or fish"), "{err}");
}
