//! The two directories of an agent, and an operator who names the wrong ones, moves them, or deletes them: pods keep running.

use std::{fs, path::Path, process::Stdio, time::Duration};

use keelet_harness::{Actor, Node, Seen, eventually, manifest};
use tokio::process::Command;

use super::on_a_node;

/// More than any command takes that refuses to start.
const REFUSAL: Duration = Duration::from_secs(120);

async fn a_pod(node: &mut Node) -> Seen {
    node.want("web", &manifest("web", &format!("containers:\n{}", Actor::new("main"))));
    node.start();
    node.ready("web").await
}

/// Starts an agent or a server on directories of the test; what it said, and its exit status.
async fn refusal(node: &Node, command: &[&str], root: &str, state: &str) -> (Option<i32>, String) {
    let path = |name: &str| node.path(name).display().to_string();
    let mut arguments: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    arguments.extend(["--root-dir".to_owned(), path(root), "--state-dir".to_owned(), path(state)]);
    match command {
        ["agent"] => {
            arguments.extend(["--pod-manifest-path".to_owned(), path("manifests"), "--pod-logs-dir".to_owned()])
        }
        _ => arguments.push("--listen".to_owned()),
    }
    arguments.push(path("elsewhere"));
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut command = node.command(&words);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("keelet");
    let output = tokio::time::timeout(REFUSAL, child.wait_with_output()).await;
    let output = output.unwrap_or_else(|_| panic!("it went on: {words:?}")).expect("an end");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// What a pod is made of, beside its processes: its interface on the node, and its files.
fn parts(node: &Node, seen: &Seen) -> Vec<String> {
    let interfaces = fs::read_to_string("/proc/net/dev").expect("interfaces");
    let interfaces = interfaces.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim().to_owned());
    let files =
        fs::read_dir(node.path("root/runtime/sandboxes").join(&seen.sandbox().id)).into_iter().flatten().flatten();
    let mut parts: Vec<_> = interfaces.chain(files.map(|file| file.path().display().to_string())).collect();
    parts.sort();
    parts
}

/// Asserts that an agent on these directories, and a server, is refused with these words, and that nothing of the pod changes.
async fn assert_refused(node: &Node, seen: &Seen, root: &str, state: &str, words: &str) {
    let before = parts(node, seen);
    for command in [&["agent"][..], &["runtime", "serve"]] {
        let (code, said) = refusal(node, command, root, state).await;
        assert_eq!(parts(node, seen), before, "{command:?} removed a part of a running pod, and said: {said}");
        assert!(code == Some(2) && said.contains(words), "{command:?} was to say {words:?}: {said}");
    }
}

/// Asserts that the agent finds the pod as it was.
async fn assert_as_before(node: &mut Node, before: &Seen) {
    node.start();
    let now = node.ready("web").await;
    assert_eq!((&now.status, now.running(), &now.sandboxes), (&before.status, before.running(), &before.sandboxes));
    assert_eq!(node.starts("web", ["main"]), [1]);
}

async fn run(program: &str, arguments: &[&Path]) {
    let status = Command::new(program).args(arguments).status().await.expect(program);
    assert!(status.success(), "{program} {arguments:?}: {status}");
}

async fn mount_over(dir: &Path) {
    run(
        "mount",
        &["-t", "tmpfs", "-o", "mode=755", "tmpfs"].map(Path::new).into_iter().chain([dir]).collect::<Vec<_>>(),
    )
    .await;
}

/// DIR-1, DIR-2, DIR-3: another agent or a server on one of an agent's directories, while that one runs and after it was killed.
#[test]
fn a_wrong_directory_is_refused_and_pods_run_on() {
    on_a_node(async |node| {
        let before = a_pod(node).await;
        let agent = format!("another keelet agent (pid {}) uses ", node.agent().expect("an agent"));
        assert_refused(node, &before, "root", "other-state", &agent).await;
        assert_refused(node, &before, "other-root", "state", &agent).await;
        node.kill().await;
        let state = format!("start with --state-dir {}, or", node.path("state").display());
        assert_refused(node, &before, "root", "other-state", &state).await;
        let root = format!("start with --root-dir {}, or", node.path("root").display());
        assert_refused(node, &before, "other-root", "state", &root).await;
        assert_as_before(node, &before).await;
        node.leaves_nothing().await;
    });
}

/// DIR-3: the root directory is moved or copied while no agent runs.
#[test]
fn a_root_directory_that_was_moved_or_copied_is_refused() {
    on_a_node(async |node| {
        let before = a_pod(node).await;
        node.kill().await;
        let (root, copy, moved) = (node.path("root"), node.path("copy"), node.path("moved"));
        let words = format!("was moved or copied from {}, and pods of it run", root.display());
        // What is mounted below it stays out of the copy.
        run("cp", &[Path::new("-ax"), &root, &copy]).await;
        assert_refused(node, &before, "copy", "other-state", &words).await;
        fs::rename(&root, &moved).expect("moved");
        let (_, said) = refusal(node, &["agent"], "moved", "state").await;
        assert!(said.contains(&words), "{said}");
        fs::rename(&moved, &root).expect("moved back");
        assert_as_before(node, &before).await;
        node.leaves_nothing().await;
    });
}

/// DIR-4: a directory is empty although pods of it run, because its file system is not mounted, or another one is.
#[test]
fn a_directory_that_is_empty_although_pods_run_is_refused() {
    on_a_node(async |node| {
        // The state directory is on a file system of its own, as it usually is.
        mount_over(&node.path("state")).await;
        let before = a_pod(node).await;
        node.kill().await;
        for name in ["root", "state"] {
            let dir = node.path(name);
            mount_over(&dir).await;
            let words = format!("--{name}-dir: {} is not the directory that it was, and pods of it run", dir.display());
            for command in [&["agent"][..], &["runtime", "serve"]] {
                let (code, said) = refusal(node, command, "root", "state").await;
                assert!(code == Some(2) && said.contains(&words), "{command:?}: {said}");
                assert_eq!(fs::read_dir(&dir).expect("a directory").count(), 0, "nothing was made in {name}");
            }
            run("umount", &[&dir]).await;
        }
        assert_as_before(node, &before).await;
        node.want_no_more("web");
        node.gone("web").await;
        node.kill().await;
        run("umount", &[&node.path("state")]).await;
        node.leaves_nothing().await;
    });
}

/// DIR-5: a file system is mounted over the root directory while the agent runs. The agent ends, because nothing there is its own;
/// the pod keeps running.
#[test]
fn an_agent_ends_when_its_root_directory_is_mounted_late() {
    on_a_node(async |node| {
        let before = a_pod(node).await;
        let root = node.path("root");
        mount_over(&root).await;
        assert_eq!(node.ended().await.code(), Some(2));
        assert!(node.log().contains("was replaced, or a file system was mounted over it"), "{}", node.log());
        run("umount", &[&root]).await;
        assert_as_before(node, &before).await;
        node.leaves_nothing().await;
    });
}

async fn why(node: &Node, pod: &str) -> String {
    let [root, state] = ["root", "state"].map(|name| node.path(name).display().to_string());
    let why = ["why", pod, "--root-dir", &root, "--state-dir", &state];
    let output = node.command(&why).output().await.expect("keelet why");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn in_a_new_sandbox(before: &Seen) -> impl Fn(&Seen) -> bool {
    let old = before.sandbox().id.clone();
    move |seen| seen.is_ready() && seen.sandboxes.iter().any(|one| one.ready && one.id != old)
}

/// DIR-6: a program removes files of a sandbox. The sandbox is made anew, and `why` tells what was missing.
#[test]
fn a_sandbox_without_its_files_is_made_anew() {
    on_a_node(async |node| {
        let before = a_pod(node).await;
        let hosts = node.path("root/runtime/sandboxes").join(&before.sandbox().id).join("hosts");
        fs::remove_file(&hosts).expect("a file");
        node.pod_when("web", "in a new sandbox", in_a_new_sandbox(&before)).await;
        let said = why(node, "web").await;
        assert!(said.contains(&format!("its file {} is gone", hosts.display())), "{said}");
        node.leaves_nothing().await;
    });
}

/// DIR-9: the records of a pod are lost while no agent runs. One that can be recovered runs on as before; otherwise the sandbox is
/// stopped and made anew, and `why` tells the reason.
#[test]
fn a_pod_whose_records_are_lost_runs_on_or_is_made_anew_with_the_reason() {
    on_a_node(async |node| {
        let before = a_pod(node).await;
        let dir = node.path("state/runtime/sandboxes").join(&before.sandbox().id);
        node.kill().await;
        fs::write(dir.join("record.json"), "").expect("cut to nothing");
        assert_as_before(node, &before).await;
        node.kill().await;
        fs::write(dir.join("record.json"), "").expect("cut to nothing");
        fs::remove_file(dir.join("pause.json")).expect("removed");
        node.start();
        node.pod_when("web", "in a new sandbox", in_a_new_sandbox(&before)).await;
        let said = why(node, "web").await;
        assert!(said.contains("its record.json is lost, and its pause.json cannot be read"), "{said}");
        node.leaves_nothing().await;
    });
}

/// DIR-7: both directories are deleted while the agent runs. It makes them again, rebuilds its pods, and can be asked why.
#[test]
fn both_directories_are_deleted_under_a_running_agent() {
    on_a_node(async |node| {
        let before = a_pod(node).await;
        let (root, state) = (node.path("root"), node.path("state"));
        // What is mounted stays, and keeps the directories above it.
        let mut find = Command::new("find");
        find.args([&root, &state]).args(["-xdev", "-depth", "-delete"]).stderr(Stdio::null());
        find.status().await.expect("find");
        assert!(!state.join("keelet.sock").exists() && !root.join("owner.json").exists(), "they were emptied");
        node.pod_when("web", "in a new sandbox", in_a_new_sandbox(&before)).await;
        eventually("an answer", async || {
            let said = why(node, "web").await;
            if said.contains("is gone") { Ok(()) } else { Err(said) }
        })
        .await;
        assert!(root.join("owner.json").exists() && state.join("owner.json").exists());
        let (_, said) = refusal(node, &["agent"], "root", "other-state").await;
        assert!(said.contains("another keelet agent (pid "), "they are locked again: {said}");
        node.leaves_nothing().await;
    });
}
