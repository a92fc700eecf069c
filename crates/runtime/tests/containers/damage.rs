//! What other programs and wrong directories do to pods that run.

use std::{collections::BTreeSet, fs, path::Path};

use keelet_cri::v1;
use keelet_runtime::Engine;

use crate::{Shown, cases, world::World};

cases! {
    a_server_with_other_directories_removes_nothing,
    pods_whose_records_are_gone_are_left_alone,
    a_sandbox_without_network_or_files_is_not_ready_and_says_so,
    a_lost_record_of_a_running_pod_is_recovered,
    a_sandbox_that_cannot_be_recovered_is_lost_and_runs_until_it_is_stopped,
    a_container_whose_request_is_lost_runs_until_its_sandbox_is_stopped,
    a_sandbox_whose_request_is_lost_is_left_alone,
}

/// A pod with a network of its own, and a container in it.
async fn connected(world: &World, name: &str) -> (crate::world::Pod, String) {
    let options = v1::NamespaceOption { network: v1::NamespaceMode::Pod.into(), ..world.options() };
    let config = crate::world::pod_config(name, &world.dir.join("logs").join(name), options.clone());
    let pod = world.run_pod(config).await.expect("a sandbox");
    let mut container = world.container("main", "sleep 1000");
    let linux = container.linux.as_mut().and_then(|linux| linux.security_context.as_mut()).expect("a context");
    linux.namespace_options = Some(options);
    let id = world.start(&pod, container).await;
    (pod, id)
}

fn interfaces() -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/net/dev").unwrap();
    text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

/// DIR-2: its state directory is another one, so it knows none of the pods whose networks and files are in its root directory.
async fn a_server_with_other_directories_removes_nothing(world: &mut World) -> Shown {
    let (pod, id) = connected(world, "web").await;
    let (before, files) = (interfaces(), world.dir.join("root/sandboxes").join(&pod.id));
    let mut settings = world.settings.clone();
    settings.state = world.dir.join("other");
    let other = Engine::open(settings).await.expect("it opens");
    assert_eq!(interfaces(), before, "the interfaces of a pod that runs");
    assert!(files.join("hosts").exists(), "the files of a pod that runs");
    assert_eq!(world.exec(&id, "cat /proc/net/dev | grep -c eth0").await, "1\n");
    drop(other);
    fs::remove_dir_all(world.dir.join("other")).unwrap();
    Shown::Yes
}

/// DIR-2: its state directory is empty, as it is before its file system is mounted.
async fn pods_whose_records_are_gone_are_left_alone(world: &mut World) -> Shown {
    let (pod, id) = connected(world, "web").await;
    let (before, pid) = (interfaces(), world.pid(&id).await);
    world.close();
    let (place, away) = (world.dir.join("state/sandboxes"), world.dir.join("state/away"));
    fs::rename(&place, &away).unwrap();
    let error = Engine::open(world.settings.clone()).await.expect_err("pods run").to_string();
    assert!(error.contains("1 pods run whose records are gone from") && error.contains(&pod.id), "{error}");
    assert_eq!(interfaces(), before, "the interfaces of a pod that runs");
    assert!(Path::new(&format!("/proc/{pid}/root/bin")).exists(), "the root of a container that runs");
    assert!(!place.exists(), "nothing was made");
    fs::rename(&away, &place).unwrap();
    world.reopen().await;
    assert_eq!((world.state(&id).await, world.pid(&id).await), (v1::ContainerState::ContainerRunning, pid));
    Shown::Yes
}

/// DIR-6: what is missing is found when a server opens the pods, and later without one.
async fn a_sandbox_without_network_or_files_is_not_ready_and_says_so(world: &mut World) -> Shown {
    let (whole, cut, bare) =
        (connected(world, "whole").await.0, connected(world, "cut").await.0, connected(world, "bare").await.0);
    let seen = async |world: &World, id: &str| {
        let status = world.cri().pod_sandbox_status(id).await.expect("a status");
        (status.state(), status.annotations.get(keelet_cri::LOST).cloned().unwrap_or_default())
    };
    // As an agent with another state directory does.
    let mut settings = world.settings.network.clone();
    settings.state_dir = world.dir.join("records");
    let other = keelet_net::Network::open(settings).unwrap();
    other.detach(&cut.id, None).await.expect("detached");
    world.reopen().await;
    let (state, lost) = seen(world, &cut.id).await;
    assert!(state == v1::PodSandboxState::SandboxNotready && lost.contains("interface kl"), "{state:?}: {lost:?}");
    assert_eq!(seen(world, &whole.id).await, (v1::PodSandboxState::SandboxReady, String::new()));
    fs::remove_dir_all(world.dir.join("root/sandboxes").join(&bare.id)).unwrap();
    crate::world::until("it is noticed", async || {
        let (state, lost) = seen(world, &bare.id).await;
        (state == v1::PodSandboxState::SandboxNotready && lost.contains("hostname is gone")).then_some(())
    })
    .await;
    assert_eq!(seen(world, &whole.id).await, (v1::PodSandboxState::SandboxReady, String::new()));
    fs::remove_dir_all(world.dir.join("records")).unwrap();
    Shown::Yes
}

/// What a crash, a full disk or an operator makes of a file.
type Damage = (&'static str, fn(&Path));

fn damages() -> [Damage; 3] {
    [
        ("removed", |path| fs::remove_file(path).unwrap()),
        ("cut to nothing", |path| fs::write(path, "").unwrap()),
        ("overwritten", |path| fs::write(path, "{ \"created_at\": \u{7}").unwrap()),
    ]
}

async fn sandbox_status(world: &World, id: &str) -> v1::PodSandboxStatus {
    world.cri().pod_sandbox_status(id).await.expect("a status")
}

fn lost(status: &v1::PodSandboxStatus) -> (v1::PodSandboxState, String) {
    (status.state(), status.annotations.get(keelet_cri::LOST).cloned().unwrap_or_default())
}

/// DIR-9: the records of a pod that runs are lost, of its sandbox and of its container. It keeps running, and CRI shows the same.
async fn a_lost_record_of_a_running_pod_is_recovered(world: &mut World) -> Shown {
    for (damage, harm) in damages() {
        let (pod, id) = connected(world, "web").await;
        let (pid, dir) = (world.pid(&id).await, world.sandbox_dir(&pod.id));
        let (sandbox, container) = (sandbox_status(world, &pod.id).await, world.status(&id).await);
        world.close();
        harm(&dir.join("record.json"));
        harm(&dir.join("containers").join(&id).join("record.json"));
        world.reopen().await;
        let found = sandbox_status(world, &pod.id).await;
        assert_eq!(lost(&found), (v1::PodSandboxState::SandboxReady, String::new()), "record.json {damage}");
        assert_eq!(found.network, sandbox.network, "record.json {damage}");
        assert_eq!(world.pid(&id).await, pid, "record.json {damage}");
        let found = world.status(&id).await;
        // The times at which the requests were written: a moment before the records were.
        let near = |one: i64, other: i64| (one - other).abs() < 60_000_000_000;
        assert!(
            near(found.created_at, container.created_at),
            "{} instead of {}",
            found.created_at,
            container.created_at
        );
        assert_eq!(
            v1::ContainerStatus { created_at: container.created_at, ..found },
            container,
            "record.json {damage}"
        );
        assert_eq!(world.exec(&id, "echo here").await, "here\n", "record.json {damage}");
        // Written again: the next server needs no recovery.
        assert!(fs::read_to_string(dir.join("record.json")).unwrap().contains("\"pause\""), "record.json {damage}");
        world.cri().stop_container(&id, std::time::Duration::ZERO).await.expect("stopped");
        world.cri().stop_pod_sandbox(&pod.id).await.expect("stopped");
        world.cri().remove_pod_sandbox(&pod.id).await.expect("removed");
    }
    Shown::Yes
}

/// DIR-9: what a record held cannot be found out again. The sandbox is to be replaced, and says why; until it is stopped its
/// container runs.
async fn a_sandbox_that_cannot_be_recovered_is_lost_and_runs_until_it_is_stopped(world: &mut World) -> Shown {
    for (damage, harm) in damages() {
        let (pod, id) = connected(world, "web").await;
        let (pid, dir) = (world.pid(&id).await, world.sandbox_dir(&pod.id));
        world.close();
        harm(&dir.join("record.json"));
        harm(&dir.join("pause.json"));
        world.reopen().await;
        let (state, reason) = lost(&sandbox_status(world, &pod.id).await);
        assert_eq!(state, v1::PodSandboxState::SandboxNotready, "{damage}");
        assert!(reason.starts_with("its record.json is lost") && reason.contains("pause.json"), "{damage}: {reason:?}");
        assert_eq!(
            (world.state(&id).await, world.pid(&id).await),
            (v1::ContainerState::ContainerRunning, pid),
            "{damage}"
        );
        world.cri().stop_pod_sandbox(&pod.id).await.expect("stopped");
        assert_eq!(world.state(&id).await, v1::ContainerState::ContainerExited, "{damage}");
        world.cri().remove_pod_sandbox(&pod.id).await.expect("removed");
        world.leaves_nothing().await;
    }
    Shown::Yes
}

/// DIR-9: without its request the runtime does not know which container this is. It is not removed while it runs.
async fn a_container_whose_request_is_lost_runs_until_its_sandbox_is_stopped(world: &mut World) -> Shown {
    for (damage, harm) in damages() {
        let (pod, id) = connected(world, "web").await;
        let (pid, dir) = (world.pid(&id).await, world.sandbox_dir(&pod.id).join("containers").join(&id));
        world.close();
        harm(&dir.join("container.pb"));
        world.reopen().await;
        let (state, reason) = lost(&sandbox_status(world, &pod.id).await);
        assert_eq!(state, v1::PodSandboxState::SandboxNotready, "{damage}");
        assert!(reason.contains(&format!("the request of its container {id} is lost")), "{damage}: {reason:?}");
        assert!(Path::new(&format!("/proc/{pid}/root/bin")).exists(), "{damage}: the root of a container that runs");
        world.cri().stop_pod_sandbox(&pod.id).await.expect("stopped");
        crate::world::until("it is killed", async || (!Path::new(&format!("/proc/{pid}")).exists()).then_some(()))
            .await;
        world.cri().remove_pod_sandbox(&pod.id).await.expect("removed");
        world.leaves_nothing().await;
    }
    Shown::Yes
}

/// DIR-2: without its request the runtime does not know which pod this is, and another agent would run the pod again.
async fn a_sandbox_whose_request_is_lost_is_left_alone(world: &mut World) -> Shown {
    let (pod, id) = connected(world, "web").await;
    let (pid, request) = (world.pid(&id).await, world.sandbox_dir(&pod.id).join("sandbox.pb"));
    let whole = fs::read(&request).unwrap();
    world.close();
    for (damage, harm) in damages() {
        harm(&request);
        let error = Engine::open(world.settings.clone()).await.expect_err(damage).to_string();
        assert!(
            error.contains("1 pods run whose records are gone from") && error.contains(&pod.id),
            "{damage}: {error}"
        );
        assert!(Path::new(&format!("/proc/{pid}/root/bin")).exists(), "{damage}: the root of a container that runs");
        fs::write(&request, &whole).unwrap();
    }
    world.reopen().await;
    assert_eq!((world.state(&id).await, world.pid(&id).await), (v1::ContainerState::ContainerRunning, pid));
    Shown::Yes
}
