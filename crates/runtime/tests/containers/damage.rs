//! What other programs and wrong directories do to pods that run.

use std::{collections::BTreeSet, fs, path::Path};

use keelet_cri::v1;
use keelet_runtime::Engine;

use crate::{Shown, cases, world::World};

cases! {
    a_server_with_other_directories_removes_nothing,
    pods_whose_records_are_gone_are_left_alone,
    a_sandbox_without_network_or_files_is_not_ready_and_says_so,
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
    // As an agent does that has other books.
    let mut settings = world.settings.network.clone();
    settings.state_dir = world.dir.join("books");
    let other = keelet_net::Network::open(settings).unwrap();
    other.detach(&cut.id, None).await.expect("detached");
    world.reopen().await;
    let (state, lost) = seen(world, &cut.id).await;
    assert!(state == v1::PodSandboxState::SandboxNotready && lost.contains("its interface kl"), "{state:?}: {lost:?}");
    assert_eq!(seen(world, &whole.id).await, (v1::PodSandboxState::SandboxReady, String::new()));
    fs::remove_dir_all(world.dir.join("root/sandboxes").join(&bare.id)).unwrap();
    crate::world::until("it is noticed", async || {
        let (state, lost) = seen(world, &bare.id).await;
        (state == v1::PodSandboxState::SandboxNotready && lost.contains("hostname is gone")).then_some(())
    })
    .await;
    assert_eq!(seen(world, &whole.id).await, (v1::PodSandboxState::SandboxReady, String::new()));
    fs::remove_dir_all(world.dir.join("books")).unwrap();
    Shown::Yes
}
