//! Commands that go on while the agent is killed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use keelet_harness::{Actor, Node, eventually, manifest};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
};

use super::on_a_node;

/// How often the agent is killed.
const DEATHS: usize = 3;

fn into_file(command: &mut Command, out: &Path, err: &Path) {
    command.stdout(fs::File::create(out).expect("a file")).stderr(fs::File::create(err).expect("a file"));
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

async fn until_said(path: &Path, word: &str, times: usize) {
    eventually(word, async || {
        let said = text(path);
        if said.matches(word).count() >= times { Ok(()) } else { Err(format!("{}: {said}", path.display())) }
    })
    .await;
}

async fn until_longer(path: &Path) {
    let before = text(path).lines().count();
    eventually("five more lines", async || {
        let now = text(path).lines().count();
        if now >= before + 5 { Ok(()) } else { Err(format!("there are {now} lines, there were {before}")) }
    })
    .await;
}

/// A log is followed while agents come and go: it goes on without them, no line is missing, none comes twice, and it ends
/// with the container.
#[test]
fn a_log_is_followed_past_every_agent() {
    on_a_node(async |node| {
        let script = "number=0; until [ -e enough ]; do number=$((number + 1)); echo line $number; nap 0.02; done";
        let actor = Actor::new("main").does(script);
        node.want("web", &manifest("web", &format!("restartPolicy: Never\ncontainers:\n{actor}")));
        node.start();
        node.pod_until("web", "running", |seen| !seen.running().is_empty()).await;
        let (out, err) = (node.path("out"), node.path("err"));
        let mut logs = node.command(&["logs", "-f", "web"]);
        into_file(&mut logs, &out, &err);
        let mut logs = logs.spawn().expect("keelet logs");
        until_longer(&out).await;
        for death in 1..=DEATHS {
            node.kill().await;
            until_said(&err, "stopped", death).await;
            until_longer(&out).await;
            node.start();
            until_said(&err, "the agent is back", death).await;
            until_longer(&out).await;
        }
        node.touch("enough");
        node.exit("web", "main", 0);
        let status = logs.wait().await.expect("it ends with the container");
        assert!(status.success(), "{status}: {}", text(&err));
        let said = text(&out);
        let expected: String = (1..=said.lines().count()).map(|number| format!("line {number}\n")).collect();
        assert_eq!(said, expected);
        let words = text(&err);
        assert_eq!(words.matches("stopped; the log goes on without it").count(), DEATHS, "{words}");
        node.leaves_nothing().await;
    });
}

async fn page(port: u16) -> String {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).await.expect("it accepts");
    connection.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("it reads");
    let mut answer = String::new();
    let _ = connection.read_to_string(&mut answer).await;
    answer
}

/// Ports go on being forwarded, by the next agent: connections that come in between wait for it.
#[test]
fn ports_are_forwarded_by_the_next_agent() {
    on_a_node(async |node| {
        let ready = "readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1, timeoutSeconds: 20}";
        let actor = Actor::new("main").serves_pages().with(ready);
        node.want("web", &manifest("web", &format!("containers:\n{actor}")));
        node.start();
        node.ready("web").await;
        let err = node.path("err");
        let mut forward = node.command(&["port-forward", "web", ":8080"]);
        forward.stdout(Stdio::piped()).stderr(fs::File::create(&err).expect("a file"));
        let mut forward = forward.spawn().expect("keelet port-forward");
        let mut lines = BufReader::new(forward.stdout.take().expect("a pipe")).lines();
        let line = lines.next_line().await.expect("readable").expect("a line");
        let port = line.split(' ').nth(2).and_then(|address| address.rsplit(':').next()).expect("a port");
        let port: u16 = port.parse().expect("a number");
        assert!(page(port).await.ends_with("ok\n"), "{line}");
        for death in 1..=DEATHS {
            node.kill().await;
            until_said(&err, "stopped; connections wait for the next one", death).await;
            let (answer, ()) = tokio::join!(page(port), async { node.start() });
            assert!(answer.ends_with("ok\n"), "{answer:?}: {}", text(&err));
        }
        assert!(forward.try_wait().expect("it can be asked").is_none(), "it goes on");
        forward.kill().await.expect("it ends");
        node.leaves_nothing().await;
    });
}

/// A command in a container ends with the agent: it says so, and with a status that tells it from the command's own.
#[test]
fn a_command_says_that_its_agent_went_away() {
    on_a_node(async |node| {
        node.want("web", &manifest("web", &format!("containers:\n{}", Actor::new("main"))));
        node.start();
        node.ready("web").await;
        let (out, err) = (node.path("out"), node.path("err"));
        let mut exec = node.command(&["exec", "web", "--", "sh", "-c", "echo here; sleep 1000"]);
        into_file(&mut exec, &out, &err);
        let mut exec = exec.spawn().expect("keelet exec");
        until_said(&out, "here", 1).await;
        node.kill().await;
        let status = exec.wait().await.expect("it ends");
        assert_eq!(status.code(), Some(255), "{}", text(&err));
        assert_eq!(text(&err), "error: the agent stopped, and the command with it; the container keeps running\n");
        node.start();
        node.ready("web").await;
        node.leaves_nothing().await;
    });
}

/// A run of a pod with one container, in a directory of its own.
fn a_run_of(node: &Node, command: &str) -> Command {
    let command = command.replace(' ', ", ");
    let spec = format!(
        "{{terminationGracePeriodSeconds: 1, containers: [{{name: main, image: 'rootfs:/', command: [{command}]}}]}}"
    );
    node.put("pod.yaml", &format!("{{apiVersion: v1, kind: Pod, metadata: {{name: job}}, spec: {spec}}}"));
    let arguments = run_arguments(node);
    node.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

fn run_arguments(node: &Node) -> [String; 4] {
    let path = |name: &str| node.path(name).display().to_string();
    ["run".to_owned(), "--root-dir".to_owned(), path("run"), path("pod.yaml")]
}

/// A run of a pod that would go on, once it listens, and its socket.
async fn a_run(node: &Node) -> (Child, PathBuf) {
    let run = a_run_of(node, "sleep '99'").spawn().expect("keelet run");
    let socket = node.path("run/run/keelet.sock");
    eventually("a socket", async || if socket.exists() { Ok(()) } else { Err("there is none") }).await;
    (run, socket)
}

async fn interrupt(run: &mut Child) {
    let id = run.id().expect("it runs").to_string();
    let told = Command::new("kill").args(["-INT", &id]).status().await.expect("kill");
    assert!(told.success() && run.wait().await.expect("it ends").code() == Some(130));
}

/// Whatever is being made just then: a run that is told to end leaves no mount, process or cgroup.
#[test]
fn a_run_leaves_nothing_whenever_it_is_interrupted() {
    on_a_node(async |node: &mut Node| {
        for moment in 0..12 {
            let (mut run, _) = a_run(node).await;
            tokio::time::sleep(Duration::from_millis(moment * 10)).await;
            interrupt(&mut run).await;
            let left = fs::remove_dir_all(node.path("run"));
            left.unwrap_or_else(|error| panic!("interrupted after {moment}0 ms: {error}"));
        }
        node.leaves_nothing().await;
    });
}

/// A user who closes the terminal wants the run to end, and no process is left to clean up after it.
#[test]
fn a_run_leaves_nothing_when_its_terminal_is_closed() {
    on_a_node(async |node: &mut Node| {
        let run = a_run_of(node, "sleep '99'");
        // The parent of the tests may have been told to ignore that its terminal is closed, and that is inherited.
        let line = format!(
            "exec env --default-signal=HUP {} {}",
            run.as_std().get_program().display(),
            run_arguments(node).join(" ")
        );
        let mut terminal = Command::new("script");
        terminal.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        let mut terminal = terminal.spawn().expect("script");
        eventually("a container", async || if node.processes("sleep 99") == 1 { Ok(()) } else { Err("there is none") })
            .await;
        terminal.kill().await.expect("it ends");
        node.leaves_nothing().await;
    });
}

/// A process with that command line.
fn process(command: &str) -> Option<String> {
    let all = fs::read_dir("/proc").expect("processes").flatten().map(|entry| entry.path());
    let is_it = |path: &PathBuf| fs::read_to_string(path.join("cmdline")).is_ok_and(|found| found == command);
    all.filter(is_it).map(|path| path.display().to_string()).next()
}

/// Waits until so many processes run this command.
async fn running(node: &Node, command: &str, times: usize) {
    eventually(command, async || match node.processes(command) {
        count if count == times => Ok(()),
        count => Err(format!("{count} processes")),
    })
    .await;
}

/// What a run that was killed has left goes before the next one on its directory, of the same pod or another, begins.
#[test]
fn a_run_takes_the_place_of_one_that_was_killed() {
    on_a_node(async |node: &mut Node| {
        let mut first = a_run_of(node, "sleep '99'").spawn().expect("keelet run");
        running(node, "sleep 99", 1).await;
        first.kill().await.expect("it dies");
        // Another pod under the same name.
        let (out, err) = (node.path("out"), node.path("err"));
        let mut second = a_run_of(node, "sleep '88'");
        into_file(&mut second, &out, &err);
        let mut second = second.spawn().expect("keelet run");
        running(node, "sleep 88", 1).await;
        assert_eq!(node.processes("sleep 99"), 0, "it was stopped first");
        assert_eq!(text(&out).matches("job containers of an earlier run are stopped first").count(), 1);
        // It dies while it stops its pod, and the same one is to run again.
        let before = process("sleep\x0088\0");
        let told = Command::new("kill").args(["-INT", &second.id().expect("it runs").to_string()]).status().await;
        assert!(told.expect("kill").success());
        // Once for the pod before it, and once for its own.
        until_said(&out, "job main: Killing: Stopping container main", 2).await;
        second.kill().await.expect("it dies");
        let mut third = a_run_of(node, "sleep '88'");
        into_file(&mut third, &out, &err);
        let mut third = third.spawn().expect("keelet run");
        eventually("another instance", async || match process("sleep\x0088\0") {
            Some(now) if Some(&now) != before.as_ref() => Ok(()),
            other => Err(format!("{other:?}: {}", text(&out))),
        })
        .await;
        interrupt(&mut third).await;
        node.leaves_nothing().await;
        fs::remove_dir_all(node.path("run")).expect("nothing is mounted there");
    });
}

/// No command is left waiting for the agent of a run that is over.
#[test]
fn a_watch_of_a_run_ends_with_it() {
    on_a_node(async |node: &mut Node| {
        let (mut run, socket) = a_run(node).await;
        let (out, err) = (node.path("out"), node.path("err"));
        let mut watch = node.command(&["get", "pods", "-w", "--socket", &socket.display().to_string()]);
        into_file(&mut watch, &out, &err);
        let mut watch = watch.spawn().expect("keelet get");
        until_said(&out, "job ", 1).await;
        interrupt(&mut run).await;
        until_said(&err, "stopped; waiting for the next one", 1).await;
        fs::remove_dir_all(node.path("run")).expect("its directory");
        assert_eq!(watch.wait().await.expect("it ends").code(), Some(1), "{}", text(&err));
        assert!(text(&err).contains("stopped, and its directory was removed"), "{}", text(&err));
    });
}

/// A run that has a directory of its own, and images of the test.
fn a_run_somewhere(node: &Node, seconds: u32) -> Command {
    let spec = format!("{{containers: [{{name: main, image: 'rootfs:/', command: [sleep, '{seconds}']}}]}}");
    let meta = format!("{{name: job-{seconds}, annotations: {{}}}}");
    node.put("pod.yaml", &format!("{{apiVersion: v1, kind: Pod, metadata: {meta}, spec: {spec}}}"));
    let path = |name: &str| node.path(name).display().to_string();
    node.command(&["run", "--image-store", &path("images"), &path("pod.yaml")])
}

fn directories_of_runs(node: &Node) -> usize {
    let entries = fs::read_dir(node.path("")).expect("a directory").flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("keelet-run-")).count()
}

/// DIR-8: what a run that was killed has left is named by the next one, on another directory, which ends none of it; with --clean
/// it goes. What does not run any more goes by itself.
#[test]
fn pods_of_a_run_that_was_killed_are_named_and_removed_on_request() {
    on_a_node(async |node: &mut Node| {
        let mut first = a_run_somewhere(node, 99).spawn().expect("keelet run");
        running(node, "sleep 99", 1).await;
        // One that is alive is not left over.
        let mut second = a_run_somewhere(node, 77);
        let (out, err) = (node.path("out"), node.path("err"));
        into_file(&mut second, &out, &err);
        let mut second = second.spawn().expect("keelet run");
        running(node, "sleep 77", 1).await;
        assert!(!text(&err).contains("has left"), "{}", text(&err));
        first.kill().await.expect("it dies");
        let mut third = a_run_of(node, "sleep '88'");
        into_file(&mut third, &out, &err);
        let mut third = third.spawn().expect("keelet run");
        running(node, "sleep 88", 1).await;
        let said = text(&err);
        assert!(said.contains("default/job-99; `keelet run --clean` ends them"), "{said}");
        assert!(!said.contains("job-77"), "{said}");
        assert_eq!(node.processes("sleep 99"), 1, "it was named, not ended");
        let clean = node.command(&["run", "--clean"]).output().await.expect("keelet run --clean");
        let said = String::from_utf8_lossy(&clean.stderr).into_owned();
        assert_eq!(clean.status.code(), Some(0), "{said}");
        assert!(
            said.contains("removed what a run that was killed has left in ") && said.contains("default/job-99"),
            "{said}"
        );
        let now = ["sleep 99", "sleep 88", "sleep 77"].map(|command| node.processes(command));
        assert_eq!((now, directories_of_runs(node)), ([0, 1, 1], 1), "the others keep running");
        // Nothing of the second one runs any more, so the next run removes the rest of it.
        second.kill().await.expect("it dies");
        interrupt(&mut third).await;
        node.kill_shims();
        let sleeper = process("sleep\x0077\0").expect("a container outlives its shim");
        let pid = sleeper.rsplit('/').next().expect("a number");
        assert!(Command::new("kill").args(["-KILL", pid]).status().await.expect("kill").success());
        running(node, "sleep 77", 0).await;
        let mut fourth = a_run_of(node, "sleep '88'");
        into_file(&mut fourth, &out, &err);
        let mut fourth = fourth.spawn().expect("keelet run");
        running(node, "sleep 88", 1).await;
        assert_eq!(directories_of_runs(node), 0, "{}", text(&err));
        interrupt(&mut fourth).await;
        node.leaves_nothing().await;
    });
}

fn bridges() -> Vec<String> {
    let names = fs::read_to_string("/proc/net/dev").expect("interfaces");
    let names = names.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
    names.filter(|name| name.starts_with("keelet")).collect()
}

/// DIR-8: a run on a directory that was named is killed, and all its pods with it. Nothing but its bridge runs on; the next run, on
/// another directory, names it and removes it. With its directory removed too, `--clean` does.
#[test]
fn the_bridge_of_a_run_whose_pods_have_all_ended_is_named_and_removed() {
    on_a_node(async |node: &mut Node| {
        let (out, err) = (node.path("out"), node.path("err"));
        let killed = async || {
            let mut run = a_run_of(node, "sleep '99'");
            into_file(&mut run, &out, &err);
            let mut run = run.spawn().expect("keelet run");
            eventually("a pod", async || match process("sleep\x0099\0") {
                Some(process) => Ok(process),
                None => Err(text(&err)),
            })
            .await;
            run.kill().await.expect("it dies");
            node.kill_shims();
            let sleeper = process("sleep\x0099\0").expect("a container outlives its shim");
            let pid = sleeper.rsplit('/').next().expect("a number").to_owned();
            assert!(Command::new("kill").args(["-KILL", &pid]).status().await.expect("kill").success());
            eventually("its end", async || match process("sleep\x0099\0") {
                None => Ok(()),
                Some(process) => Err(process),
            })
            .await;
            assert_eq!(bridges().len(), 1, "the bridge of the run that was killed: {:?}", bridges());
        };
        killed().await;
        let mut other = a_run_somewhere(node, 77);
        into_file(&mut other, &out, &err);
        let mut other = other.spawn().expect("keelet run");
        let place = node.path("run").display().to_string();
        until_said(&err, &format!("removed what a run that was killed has left in {place}: default/job"), 1).await;
        interrupt(&mut other).await;
        assert_eq!(bridges(), [] as [String; 0], "{}", text(&err));
        node.leaves_nothing().await;

        killed().await;
        let name = bridges().pop().expect("a bridge");
        let script = "cut -d ' ' -f 2 /proc/mounts | grep \"^$1/\" | sort -r | xargs -r umount";
        let unmounted = Command::new("sh").args(["-c", script, "sh", &place]).status().await.expect("sh");
        assert!(unmounted.success(), "what is mounted below {place}: {unmounted}");
        fs::remove_dir_all(&place).expect("its directory");
        let clean = node.command(&["run", "--clean"]).output().await.expect("keelet run --clean");
        let said = String::from_utf8_lossy(&clean.stderr).into_owned();
        assert!(said.contains(&format!("removed the bridge {name}, whose directory {place} is gone")), "{said}");
        assert_eq!((clean.status.code(), bridges()), (Some(0), Vec::new()), "{said}");
    });
}
