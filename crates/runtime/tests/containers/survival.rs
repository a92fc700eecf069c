//! Which processes may be killed, and what goes on.

use std::{
    collections::BTreeMap,
    env, fs,
    io::Write,
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};

use keelet_cri::{Runtime, v1};

use crate::{
    Shown, cases,
    world::{Pod, World, names, until},
};

cases![
    containers_outlive_the_server,
    containers_outlive_their_shim,
    an_exit_without_a_record_is_unknown,
    containers_outlive_server_and_shim,
    a_terminal_goes_with_its_shim,
    an_exit_without_a_server_is_known_later,
    an_unfinished_sandbox_is_removed,
    a_command_dies_with_the_server_that_asked,
    what_is_begun_is_ended_without_its_caller,
    a_start_that_is_asked_for_twice_is_one,
    a_container_that_is_being_made_goes_with_its_pod,
    a_server_without_files_changes_nothing,
    numbers_may_come_again,
];

/// A server in a process of its own, to be killed.
pub(crate) fn serve(world: World) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let world = world.open().await;
        let listener = tokio::net::UnixListener::bind(world.dir.join("cri.sock")).unwrap();
        let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
        tonic::transport::Server::builder().serve_with_incoming(world.engine().server(), incoming).await.unwrap();
    });
    ExitCode::SUCCESS
}

/// How a container ended that had been adopted. Before Linux 6.15 the kernel reports an exit status to parents only,
/// and the runtime does not make one up.
pub(crate) fn assert_ended(status: &v1::ContainerStatus, code: i32) {
    use keelet_linux::pidfd::{identify, open, wait_status};
    let mut child = Command::new("true").spawn().unwrap();
    let handle = open(identify(child.id()).unwrap()).unwrap().unwrap();
    child.wait().unwrap();
    let expected = if wait_status(&handle).is_some() { (code, "Error") } else { (137, "ContainerStatusUnknown") };
    assert_eq!(status.state(), v1::ContainerState::ContainerExited);
    assert_eq!((status.exit_code, status.reason.as_str()), expected);
}

struct Other {
    child: Child,
    cri: Runtime,
}

async fn other(world: &World) -> Other {
    let socket = world.dir.join("cri.sock");
    let _ = fs::remove_file(&socket);
    let child = Command::new(env::current_exe().unwrap())
        .arg("serve")
        .arg(&world.dir)
        .arg(&world.cgroup)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let cri = Runtime::connect(&format!("unix://{}", socket.display())).unwrap();
    until("it listens", async || cri.version().await.ok()).await;
    Other { child, cri }
}

impl Other {
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    async fn pod(&self, world: &World, name: &str) -> Pod {
        let config = world.pod_config(name);
        let id = self.cri.run_pod_sandbox(config.clone(), "").await.expect("a sandbox");
        Pod { id, config }
    }

    async fn start(&self, pod: &Pod, config: v1::ContainerConfig) -> String {
        let id = self.cri.create_container(&pod.id, config, pod.config.clone()).await.expect("created");
        self.cri.start_container(&id).await.expect("started");
        id
    }
}

/// The shims that run. What a shim has forked has its name until it becomes the container's program, and is none.
pub(crate) fn shims() -> Vec<u32> {
    let parent_of_named = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, rest) = stat.split_once("(keelet-shim) ")?;
        rest.split(' ').nth(1)?.parse().ok().map(|parent: u32| (pid, parent))
    };
    let named: BTreeMap<u32, u32> = names(std::path::Path::new("/proc"))
        .iter()
        .filter_map(|name| name.parse().ok())
        .filter_map(parent_of_named)
        .collect();
    named.iter().filter(|(_, parent)| !named.contains_key(parent)).map(|(pid, _)| *pid).collect()
}

/// A process that is gone by now, such as one that a shim forked, is as good as killed.
pub(crate) fn kill(pid: u32) {
    send(pid, rustix::process::Signal::KILL);
}

pub(crate) fn send(pid: u32, signal: rustix::process::Signal) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).expect("a process");
    match rustix::process::kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => panic!("cannot send {signal:?} to {pid:?}: {error}"),
    }
}

const COUNTS: &str = "trap 'exit 21' TERM; i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done";

/// Nothing is missing and nothing is there twice.
fn counts(said: &str) -> usize {
    counts_over(said, 0)
}

/// Nothing is there twice, and what is missing is missing at so many deaths of a shim at most: the lines that it had
/// read and not yet written.
fn counts_over(said: &str, deaths: usize) -> usize {
    let numbers: Vec<usize> = said.lines().map(|line| line.parse().expect("a number")).collect();
    let from_nothing = std::iter::once(&0).chain(&numbers);
    let steps: Vec<usize> = from_nothing.zip(&numbers).map(|(a, b)| b.saturating_sub(*a)).collect();
    assert!(!steps.contains(&0), "something is there twice: {numbers:?}");
    let gaps = steps.iter().filter(|step| **step > 1).count();
    assert!(gaps <= deaths, "{gaps} gaps: {numbers:?}");
    numbers.len()
}

async fn containers_outlive_the_server(world: &mut World) -> Shown {
    world.close();
    let server = other(world).await;
    let pod = server.pod(world, "server").await;
    let runs = server.start(&pod, world.container("runs", COUNTS)).await;
    let made = server
        .cri
        .create_container(&pod.id, world.container("made", "exit 6"), pod.config.clone())
        .await
        .expect("created");
    let ended = server.start(&pod, world.container("ended", "exit 8")).await;
    until("it has ended", async || {
        let state = server.cri.container_status(&ended, false).await.expect("a status").0;
        (state.exit_code == 8).then_some(())
    })
    .await;
    let started_at = server.cri.container_status(&runs, false).await.expect("a status").0.started_at;
    let before = shims();
    server.kill();
    let so_far = counts(&world.said(&pod, "runs"));
    until("it goes on", async || (counts(&world.said(&pod, "runs")) > so_far + 3).then_some(())).await;
    world.reopen().await;
    assert_eq!(shims(), before, "the same shim serves on");
    let status = world.status(&runs).await;
    assert_eq!((status.state(), status.started_at), (v1::ContainerState::ContainerRunning, started_at));
    assert_eq!(world.state(&made).await, v1::ContainerState::ContainerCreated);
    assert_eq!(world.status(&ended).await.exit_code, 8);
    assert_eq!(world.exec(&runs, "echo here").await, "here\n");
    world.cri().start_container(&made).await.expect("started by the next server");
    assert_eq!(world.ended(&made).await.exit_code, 6);
    world.cri().stop_container(&runs, Duration::from_secs(30)).await.expect("stopped");
    assert_eq!(world.status(&runs).await.exit_code, 21);
    counts(&world.said(&pod, "runs"));
    Shown::Yes
}

async fn containers_outlive_their_shim(world: &mut World) -> Shown {
    let pod = world.pod("shim").await;
    let id = world.start(&pod, world.container("main", COUNTS)).await;
    let pid = world.pid(&id).await;
    for deaths in 1..=2 {
        let old = shims();
        old.iter().copied().for_each(kill);
        let so_far = counts_over(&world.said(&pod, "main"), deaths);
        until("another shim runs", async || shims().iter().any(|pid| !old.contains(pid)).then_some(())).await;
        let goes_on = async || (counts_over(&world.said(&pod, "main"), deaths) > so_far + 3).then_some(());
        until("its log goes on", goes_on).await;
        assert_eq!(world.pid(&id).await, pid);
        assert_eq!(world.exec(&id, "echo here").await, "here\n");
    }
    // A new container beside the one that was adopted.
    assert_eq!(world.run(&pod, world.container("other", "exit 3")).await.0.exit_code, 3);
    world.cri().stop_container(&id, Duration::from_secs(30)).await.expect("stopped");
    let status = world.status(&id).await;
    counts_over(&world.said(&pod, "main"), 2);
    assert_ended(&status, 21);
    Shown::Yes
}

async fn an_exit_without_a_record_is_unknown(world: &mut World) -> Shown {
    world.close();
    let server = other(world).await;
    let pod = server.pod(world, "unseen").await;
    let id = server.start(&pod, world.container("main", "echo up; sleep 1000")).await;
    let (_, info) = server.cri.container_status(&id, true).await.expect("a status");
    let pid = serde_json::from_str::<serde_json::Value>(&info["info"]).unwrap()["pid"].as_u64().unwrap();
    server.kill();
    shims().into_iter().for_each(kill);
    until("no shim is left", async || shims().is_empty().then_some(())).await;
    kill(u32::try_from(pid).unwrap());
    until("it is gone", async || (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(())).await;
    world.reopen().await;
    assert_eq!(world.state(&id).await, v1::ContainerState::ContainerUnknown);
    world.cri().stop_container(&id, Duration::from_secs(5)).await.expect("stopped");
    let status = world.status(&id).await;
    assert_eq!((status.state(), status.exit_code), (v1::ContainerState::ContainerExited, 137));
    assert_eq!(status.reason, "ContainerStatusUnknown");
    world.reopen().await;
    assert_eq!(world.state(&id).await, v1::ContainerState::ContainerExited, "and stays so");
    Shown::Yes
}

async fn containers_outlive_server_and_shim(world: &mut World) -> Shown {
    world.close();
    let server = other(world).await;
    let pod = server.pod(world, "both").await;
    let id = server.start(&pod, world.container("main", COUNTS)).await;
    until("it speaks", async || (counts(&world.said(&pod, "main")) > 2).then_some(())).await;
    server.kill();
    shims().into_iter().for_each(kill);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let so_far = counts_over(&world.said(&pod, "main"), 1);
    world.reopen().await;
    assert_eq!(world.state(&id).await, v1::ContainerState::ContainerRunning);
    let goes_on = async || (counts_over(&world.said(&pod, "main"), 1) > so_far + 3).then_some(());
    until("its log goes on", goes_on).await;
    assert_eq!(world.exec(&id, "echo here").await, "here\n");
    world.cri().stop_container(&id, Duration::from_secs(30)).await.expect("stopped");
    let status = world.status(&id).await;
    counts_over(&world.said(&pod, "main"), 1);
    assert_ended(&status, 21);
    Shown::Yes
}

/// A limit, written down in `docs/runtime.md`: the runtime still reports the container truly.
async fn a_terminal_goes_with_its_shim(world: &mut World) -> Shown {
    let pod = world.pod("terminal").await;
    let mut config = world.container("main", "echo up; sleep 1000");
    config.tty = true;
    let id = world.start(&pod, config).await;
    until("it runs", async || world.said(&pod, "main").contains("up").then_some(())).await;
    let old = shims();
    old.iter().copied().for_each(kill);
    until("another shim runs", async || shims().iter().any(|pid| !old.contains(pid)).then_some(())).await;
    assert_eq!(world.state(&id).await, v1::ContainerState::ContainerRunning, "it does not care for a hangup");
    world.cri().stop_container(&id, Duration::ZERO).await.expect("killed");
    assert_eq!(world.state(&id).await, v1::ContainerState::ContainerExited);
    assert_eq!(world.run(&pod, world.container("next", "exit 3")).await.0.exit_code, 3, "the pod goes on");
    Shown::Yes
}

async fn an_exit_without_a_server_is_known_later(world: &mut World) -> Shown {
    world.close();
    let server = other(world).await;
    let pod = server.pod(world, "later").await;
    let id = server
        .start(&pod, world.container("main", "while ! test -e /mnt/go; do sleep 0.05; done; echo gone; exit 17"))
        .await;
    let root = fs::read_dir(world.dir.join("root/images/roots")).map(|entries| entries.count()).unwrap_or(0);
    assert!(root > 0);
    let (_, info) = server.cri.container_status(&id, true).await.expect("a status");
    let pid = serde_json::from_str::<serde_json::Value>(&info["info"]).unwrap()["pid"].as_u64().unwrap();
    server.kill();
    fs::write(format!("/proc/{pid}/root/mnt/go"), "").unwrap();
    until("it has ended", async || (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(())).await;
    world.reopen().await;
    // Its shim has seen it, and may still be writing that down.
    let status = world.ended(&id).await;
    assert_eq!((status.state(), status.exit_code), (v1::ContainerState::ContainerExited, 17));
    assert_eq!(world.said(&pod, "main"), "gone\n");
    Shown::Yes
}

async fn an_unfinished_sandbox_is_removed(world: &mut World) -> Shown {
    let options = v1::NamespaceOption { network: v1::NamespaceMode::Pod.into(), ..world.options() };
    let config = crate::world::pod_config("cut", &world.dir.join("logs/cut"), options);
    let pod = world.run_pod(config).await.expect("a sandbox");
    let id = world.create(&pod, world.container("main", "sleep 1000")).await.expect("created");
    let dir = world.sandbox_dir(&pod.id);
    world.close();
    // As if the server had been killed before it was done: there is no record of it, and nothing was started in it.
    fs::remove_file(dir.join("record.json")).unwrap();
    world.reopen().await;
    assert!(world.cri().list_pod_sandbox(None).await.expect("sandboxes").is_empty());
    assert!(!dir.exists());
    world.cri().container_status(&id, false).await.expect_err("gone with it");
    world.leaves_nothing().await;

    // And with its shim gone as well.
    let pod = world.pod("cut-too").await;
    let dir = world.sandbox_dir(&pod.id);
    world.close();
    shims().into_iter().for_each(kill);
    fs::remove_file(dir.join("record.json")).unwrap();
    world.reopen().await;
    assert!(!dir.exists());
    Shown::Yes
}

async fn a_command_dies_with_the_server_that_asked(world: &mut World) -> Shown {
    world.close();
    let server = other(world).await;
    let pod = server.pod(world, "asked").await;
    let id = server.start(&pod, world.container("main", "sleep 1000")).await;
    let sleepers = || {
        let count = |name: &String| {
            fs::read_to_string(format!("/proc/{name}/cmdline")).is_ok_and(|text| text.contains("sleep\x00779"))
        };
        names(std::path::Path::new("/proc")).iter().filter(|name| count(name)).count()
    };
    let cri = server.cri.clone();
    let command = ["/bin/sh", "-c", "setsid sleep 7791 & sleep 7792"].map(str::to_owned);
    let call = tokio::spawn(async move { cri.exec_sync(&id, &command, Duration::from_secs(100)).await });
    until("it runs", async || (sleepers() >= 2).then_some(())).await;
    server.kill();
    until("no client waits for it, so it ends", async || (sleepers() == 0).then_some(())).await;
    let _ = call.await;
    Shown::Yes
}

/// PIDs are reused. The exit of an old process is not taken for that of a new one.
async fn numbers_may_come_again(world: &mut World) -> Shown {
    // The limit of this case's own namespace, so that numbers go round quickly. Before Linux 6.14 there was only one limit,
    // that of the machine.
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    if (numbers.next(), numbers.next()) < (Some(6), Some(14)) {
        return Shown::Skipped(format!("the range of PIDs is the machine's on Linux {release}"));
    }
    if fs::write("/proc/sys/kernel/pid_max", "400").is_err() {
        return Shown::Skipped("the range of PIDs cannot be narrowed here".to_owned());
    }
    let pod = world.pod("numbers").await;
    let id = world.start(&pod, world.container("main", "sleep 1000")).await;
    for round in 0..150 {
        let answer = world.try_exec(&id, "sleep 0.01; exit 7", 60).await.expect("it ran");
        assert_eq!(answer.exit_code, 7, "round {round}");
    }
    assert_eq!(world.state(&id).await, v1::ContainerState::ContainerRunning);
    Shown::Yes
}

/// Whenever a caller leaves, there is a whole sandbox or container in the end, or none, and it can be removed.
async fn what_is_begun_is_ended_without_its_caller(world: &mut World) -> Shown {
    let steady = world.pod("steady").await;
    for patience in (0..100).step_by(5).map(Duration::from_millis) {
        let config = world.pod_config("left");
        let asked = tokio::time::timeout(patience, world.cri().run_pod_sandbox(config, "")).await;
        let dirs = world.dir.join("state/sandboxes");
        let whole = async || {
            let known = world.cri().list_pod_sandbox(None).await.expect("sandboxes");
            let whole = known.iter().filter(|sandbox| dirs.join(&sandbox.id).join("record.json").exists()).count();
            (whole == names(&dirs).len()).then_some(known)
        };
        let known = until("every sandbox is whole", whole).await;
        assert!(asked.is_err() || known.len() == 2, "{known:?}");
        for sandbox in known.iter().filter(|sandbox| sandbox.id != steady.id) {
            world.cri().remove_pod_sandbox(&sandbox.id).await.expect("removed");
        }

        let config = world.container("left", "sleep 1000");
        let made = world.cri().create_container(&steady.id, config, steady.config.clone());
        let _ = tokio::time::timeout(patience / 4, made).await;
        let dirs = world.sandbox_dir(&steady.id).join("containers");
        let whole = async || {
            let known = world.cri().list_containers(None).await.expect("containers");
            (known.len() == names(&dirs).len()).then_some(known)
        };
        for container in until("every container is whole", whole).await {
            let _ = tokio::time::timeout(patience, world.cri().start_container(&container.id)).await;
            world.cri().remove_container(&container.id).await.expect("removed");
        }
    }
    Shown::Yes
}

/// Its caller may have left: then no other process removes it.
async fn a_container_that_is_being_made_goes_with_its_pod(world: &mut World) -> Shown {
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
    let archive = crate::images::archive("example.org/web:1");
    world.engine().images().import(archive.as_slice(), None).expect("imported");
    let pod = world.pod("pod").await;
    let mut config = world.container("main", "true");
    config.image.as_mut().unwrap().image = "example.org/web:1".to_owned();
    // Making a container begins with a look for its image: here that waits for us.
    let list = world.dir.join("root/images/images.json");
    let kept = list.with_extension("kept");
    fs::rename(&list, &kept).unwrap();
    mknodat(CWD, &list, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let (cri, one) = (world.cri().clone(), pod.clone());
    let made = tokio::spawn(async move { cri.create_container(&one.id, config, one.config.clone()).await });
    let pipe = until("it is being made", async || open(&list, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).ok());
    let mut pipe = fs::File::from(pipe.await);
    let (cri, id) = (world.cri().clone(), pod.id.clone());
    let mut removed = tokio::spawn(async move { cri.remove_pod_sandbox(&id).await });
    // A runtime that does not wait for the container has removed the pod by then.
    let early = tokio::time::timeout(Duration::from_secs(1), &mut removed).await;
    let images = fs::read(&kept).unwrap();
    fs::rename(&kept, &list).unwrap();
    pipe.write_all(&images).unwrap();
    drop(pipe);
    if early.is_err() {
        removed.await.unwrap().expect("removed");
    }
    let _ = made.await.unwrap();
    let left = world.cri().list_containers(None).await.expect("containers");
    assert!(left.is_empty(), "{left:?}");
    Shown::Yes
}

/// A server is killed while its shim has a start to do. The next one knows nothing of that, and asks again.
async fn a_start_that_is_asked_for_twice_is_one(world: &mut World) -> Shown {
    world.close();
    let server = other(world).await;
    let pod = server.pod(world, "twice").await;
    let shim = shims()[0];
    let config = world.container("main", "echo once; exec sleep 1000");
    let id = server.cri.create_container(&pod.id, config, pod.config.clone()).await.expect("created");
    let children = || fs::read_to_string(format!("/proc/{shim}/task/{shim}/children")).expect("children");
    let before = children();
    let (cri, asked) = (server.cri.clone(), id.clone());
    let call = tokio::spawn(async move { cri.start_container(&asked).await });
    // The process that makes the container is stopped as soon as it is there, which is not for long.
    let maker = loop {
        let now = children();
        let new = now.split_whitespace().find(|pid| !before.split_whitespace().any(|old| old == *pid));
        match new {
            Some(pid) => break pid.parse().expect("a number"),
            None => tokio::task::yield_now().await,
        }
    };
    send(maker, rustix::process::Signal::STOP);
    server.kill();
    let _ = call.await.unwrap();
    world.reopen().await;
    let go_on = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        send(maker, rustix::process::Signal::CONT);
    };
    let (started, ()) = tokio::join!(world.cri().start_container(&id), go_on);
    // It may have been too quick for us; then the new server knows.
    if let Err(error) = started {
        assert!(error.message.contains("is already running (FailedPrecondition)"), "{error}");
    }
    until("it says something", async || (!world.said(&pod, "main").is_empty()).then_some(())).await;
    // Time for a second instance, or for the first one to be taken for a failure.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.said(&pod, "main"), "once\n");
    assert_eq!(world.state(&id).await, v1::ContainerState::ContainerRunning);
    Shown::Yes
}

/// Wherever a server runs out of open files while it recovers what runs: it ends nothing, and the next finds all as it was.
async fn a_server_without_files_changes_nothing(world: &mut World) -> Shown {
    let mut running = Vec::new();
    for name in ["one", "two", "three"] {
        let pod = world.pod(name).await;
        for container in ["first", "second"] {
            let id = world.start(&pod, world.container(container, "sleep 1000")).await;
            running.push((world.pid(&id).await, id));
        }
    }
    let before = shims();
    world.close();
    let socket = world.dir.join("cri.sock");
    let (mut ended, mut served) = (0, 0);
    for files in (8..72).step_by(4) {
        let _ = fs::remove_file(&socket);
        let mut server = Command::new("sh")
            .args(["-c", &format!("ulimit -n {files}; exec \"$@\""), "sh"])
            .arg(env::current_exe().unwrap())
            .arg("serve")
            .args([&world.dir, std::path::Path::new(&world.cgroup)])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // A server without free files may serve no client, and go on. On a busy machine any may take its time.
        let patience = if ended > 0 && served > 0 { 40 } else { 400 };
        for _ in 0..patience {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if server.try_wait().unwrap().is_some() {
                ended += 1;
                break;
            } else if socket.exists() {
                served += 1;
                break;
            }
        }
        let _ = server.kill();
        server.wait().unwrap();
    }
    assert!(ended > 0 && served > 0, "{ended} ended, {served} served");
    world.reopen().await;
    for (pid, id) in running {
        assert_eq!((world.state(&id).await, world.pid(&id).await), (v1::ContainerState::ContainerRunning, pid));
        assert_eq!(world.exec(&id, "echo here").await, "here\n");
    }
    assert_eq!(shims(), before);
    Shown::Yes
}
