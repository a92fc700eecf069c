//! Shims in trouble: those that cannot write, have received no request, or do not answer.

use std::{
    env, fs,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use keelet_cri::v1::ContainerState;
use keelet_shim::protocol::{self, Exit, STATE, State, container_dir};

use crate::{
    Shown, cases,
    survival::{assert_ended, kill, send, shims},
    world::{Pod, World, run, until},
};

cases![
    an_exit_that_cannot_be_written_is_known,
    a_shim_without_its_list_gets_it,
    an_end_that_cannot_be_read_is_not_made_up,
    more_containers_than_go_with_one_request_are_adopted,
    a_shim_that_does_not_answer_delays_no_other_pod,
];

/// Waits for a word from outside, and ends with this code.
fn ends_on_request(code: i32) -> String {
    format!("while ! test -e /mnt/go; do sleep 0.05; done; exit {code}")
}

fn request_end(pid: u32) {
    fs::write(format!("/proc/{pid}/root/mnt/go"), "").unwrap();
}

/// Fills a file system, and says with which file.
fn fill(dir: &Path) -> PathBuf {
    let path = dir.join("fills-it");
    let error = fs::write(&path, vec![0; 8 << 20]).expect_err("there is less room than that");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    path
}

fn recorded(world: &World, pod: &Pod, id: &str) -> State {
    protocol::read(&container_dir(&world.sandbox_dir(&pod.id), id).join(STATE)).expect("a state")
}

async fn is_gone(pid: u32) {
    until("it is gone", async || (!Path::new(&format!("/proc/{pid}")).exists()).then_some(())).await;
}

/// The runtime does not make up an exit status. A new server may have to wait for the shim to know.
async fn is_unknown(world: &World, id: &str) {
    assert_eq!(world.ended(id).await.state(), ContainerState::ContainerUnknown);
}

async fn an_exit_that_cannot_be_written_is_known(world: &mut World) -> Shown {
    world.close();
    let state = world.dir.join("state");
    let place = state.display().to_string();
    run("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs", &place]);
    world.reopen().await;
    let pod = world.pod("full").await;
    let main = world.start(&pod, world.container("main", &ends_on_request(7))).await;
    let other = world.start(&pod, world.container("other", "sleep 1000")).await;
    let full = fill(&state);
    request_end(world.pid(&main).await);
    let status = world.ended(&main).await;
    assert_eq!((status.state(), status.exit_code), (ContainerState::ContainerExited, 7));
    assert_eq!(recorded(world, &pod, &main).exit, None, "there was no room for it");
    // The shim reports it to the next server as well.
    world.reopen().await;
    let status = world.ended(&main).await;
    assert_eq!((status.state(), status.exit_code), (ContainerState::ContainerExited, 7));
    fs::remove_file(&full).unwrap();
    let exit = until("it is written down", async || recorded(world, &pod, &main).exit).await;
    assert_eq!((exit.code, exit.at), (Some(7), status.finished_at));

    // An exit that no shim saw has an unknown status, also if that cannot be written.
    let pid = world.pid(&other).await;
    let full = fill(&state);
    kill_unseen(world, pid).await;
    world.reopen().await;
    is_unknown(world, &other).await;
    world.cri().stop_container(&other, Duration::from_secs(5)).await.expect("stopped");
    let status = world.status(&other).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (137, "ContainerStatusUnknown"));

    // Nothing has to be written for a pod to go.
    world.cri().stop_pod_sandbox(&pod.id).await.expect("stopped");
    world.cri().remove_pod_sandbox(&pod.id).await.expect("removed");
    assert!(full.exists());
    world.close();
    run("umount", &["--lazy", &place]);
    Shown::Yes
}

/// A shim as it is when its server was killed before it could say anything.
fn fresh_shim(dir: &Path) -> Child {
    let at = OwnedFd::from(fs::File::open(dir).unwrap());
    // A path to a socket must be short.
    let socket = format!("/proc/self/fd/{}/shim.sock", at.as_raw_fd());
    let _ = fs::remove_file(&socket);
    let listener = UnixListener::bind(socket).unwrap();
    Command::new(env::current_exe().unwrap())
        .arg("shim")
        .arg(dir)
        .stdin(OwnedFd::from(listener))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills a process while neither a server nor a shim runs.
async fn kill_unseen(world: &mut World, pid: u32) {
    world.close();
    shims().into_iter().for_each(kill);
    until("no shim is left", async || shims().is_empty().then_some(())).await;
    kill(pid);
    is_gone(pid).await;
}

async fn a_shim_without_its_list_gets_it(world: &mut World) -> Shown {
    let pod = world.pod("fresh").await;
    let script = "trap 'exit 21' TERM; while :; do echo on; sleep 0.05; done";
    let main = world.start(&pod, world.container("main", script)).await;
    let spoilt = world.start(&pod, world.container("spoilt", script)).await;
    let unseen = world.start(&pod, world.container("unseen", "sleep 1000")).await;
    let pid = world.pid(&unseen).await;
    kill_unseen(world, pid).await;
    let dir = world.sandbox_dir(&pod.id);
    fs::write(container_dir(&dir, &spoilt).join(protocol::START_OPTIONS), "{").unwrap();
    let mut shim = fresh_shim(&dir);
    let so_far = world.said(&pod, "main").len();
    world.reopen().await;
    assert_eq!(shims(), [shim.id()], "the shim that is there serves on");
    is_unknown(world, &unseen).await;
    assert_eq!(world.exec(&main, "echo here").await, "here\n");
    until("its log goes on", async || (world.said(&pod, "main").len() > so_far).then_some(())).await;
    // Twice is once.
    world.reopen().await;
    for id in [&main, &spoilt] {
        assert_eq!(world.exec(id, "echo here").await, "here\n");
        world.cri().stop_container(id, Duration::from_secs(30)).await.expect("stopped");
        assert_ended(&world.status(id).await, 21);
    }
    world.cri().stop_pod_sandbox(&pod.id).await.expect("stopped");
    world.cri().remove_pod_sandbox(&pod.id).await.expect("removed");
    shim.wait().unwrap();
    Shown::Yes
}

/// What is written of a container may say how it ended, also when it cannot be read just now.
async fn an_end_that_cannot_be_read_is_not_made_up(world: &mut World) -> Shown {
    let pod = world.pod("unread").await;
    let main = world.start(&pod, world.container("main", "sleep 1000")).await;
    let unread = world.start(&pod, world.container("unread", "sleep 1000")).await;
    let pid = world.pid(&unread).await;
    kill_unseen(world, pid).await;
    let dir = world.sandbox_dir(&pod.id);
    let mut shim = fresh_shim(&dir);
    send(shim.id(), rustix::process::Signal::STOP);
    world.reopen().await;
    // It was read once, and the server has concluded nothing. From now on it leads to itself.
    let state = recorded(world, &pod, &unread);
    let path = container_dir(&dir, &unread).join(STATE);
    let (aside, exit) = (path.with_extension("aside"), Exit { code: Some(7), at: state.started_at + 1, oom: false });
    std::os::unix::fs::symlink(&path, &aside).unwrap();
    fs::rename(&aside, &path).unwrap();
    send(shim.id(), rustix::process::Signal::CONT);
    let ran = async || world.try_exec(&main, "true", 60).await.ok();
    assert_eq!(until("the shim knows what runs", ran).await.exit_code, 0);
    assert_eq!(world.state(&unread).await, ContainerState::ContainerRunning, "the exit is not known yet");
    protocol::write(&path, &State { exit: Some(exit), ..state }).unwrap();
    let status = world.ended(&unread).await;
    assert_eq!((status.state(), status.exit_code), (ContainerState::ContainerExited, 7));
    world.cri().stop_pod_sandbox(&pod.id).await.expect("stopped");
    world.cri().remove_pod_sandbox(&pod.id).await.expect("removed");
    shim.wait().unwrap();
    Shown::Yes
}

async fn more_containers_than_go_with_one_request_are_adopted(world: &mut World) -> Shown {
    let pod = world.pod("many").await;
    let mut ids = Vec::new();
    for number in 0..keelet_shim::wire::MOST_FDS + 6 {
        ids.push(world.start(&pod, world.container(&format!("c{number}"), "sleep 1000")).await);
    }
    let old = shims();
    old.iter().copied().for_each(kill);
    until("another shim runs", async || shims().iter().any(|pid| !old.contains(pid)).then_some(())).await;
    for id in &ids {
        let ran = async || world.try_exec(id, "true", 60).await.ok();
        assert_eq!(until("it has been adopted", ran).await.exit_code, 0);
    }
    Shown::Yes
}

async fn a_shim_that_does_not_answer_delays_no_other_pod(world: &mut World) -> Shown {
    let script = "trap 'exit 21' TERM; while :; do sleep 0.05; done";
    let stuck = world.pod("stuck").await;
    let shim = shims()[0];
    let held = world.start(&stuck, world.container("main", script)).await;
    let other = world.pod("other").await;
    let free = world.start(&other, world.container("main", script)).await;
    send(shim, rustix::process::Signal::STOP);
    world.reopen().await;
    assert_eq!(world.exec(&free, "echo here").await, "here\n");
    assert_eq!(world.state(&held).await, ContainerState::ContainerRunning);
    assert_eq!(world.run(&other, world.container("next", "exit 3")).await.0.exit_code, 3);
    send(shim, rustix::process::Signal::CONT);
    assert_eq!(world.exec(&held, "echo here").await, "here\n");
    world.cri().stop_container(&held, Duration::from_secs(30)).await.expect("stopped");
    assert_eq!(world.status(&held).await.exit_code, 21);
    assert!(shims().contains(&shim), "it was not replaced");
    Shown::Yes
}
