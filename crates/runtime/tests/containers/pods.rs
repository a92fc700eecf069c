//! What containers of a pod share.

use keelet_cri::v1::{self, NamespaceMode};

use crate::{
    Shown, cases,
    world::{Pod, World, pod_config, security, until},
};

cases![
    a_pod_has_its_own_network_names_and_memory,
    the_nodes_namespaces_are_shared_when_asked,
    shared_processes_are_reaped_and_lead_nowhere,
    a_container_sees_the_processes_of_another,
    a_number_that_came_again_is_not_the_container_that_had_it,
    a_pod_without_its_holder_is_not_ready,
    children_of_a_pod_cgroup_stay_where_the_agent_says,
    what_a_pod_writes_to_its_files_is_on_disk,
];

async fn pod(world: &World, name: &str, options: &v1::NamespaceOption) -> Pod {
    let config = pod_config(name, &world.dir.join("logs").join(name), options.clone());
    world.run_pod(config).await.expect("a sandbox")
}

fn container(world: &World, name: &str, script: &str, options: &v1::NamespaceOption) -> v1::ContainerConfig {
    let mut config = world.container(name, script);
    security(&mut config).namespace_options = Some(options.clone());
    config
}

/// The last PID that was given, in the PID namespace of the reader.
const LAST_NUMBER: &str = "/proc/sys/kernel/ns_last_pid";

const LINKS: &str = "for ns in net ipc uts pid; do readlink /proc/self/ns/$ns; done";

async fn a_pod_has_its_own_network_names_and_memory(world: &mut World) -> Shown {
    let options = v1::NamespaceOption { pid: NamespaceMode::Container.into(), ..Default::default() };
    let one = pod(world, "own", &options).await;
    // At the same time: numbers of namespaces are used again.
    let script = format!("{LINKS}; sleep 1000");
    for name in ["a", "b"] {
        world.start(&one, container(world, name, &script, &options)).await;
    }
    let printed = async |name: &str| {
        until("it has printed all", async || Some(world.said(&one, name)).filter(|said| said.lines().count() == 4))
            .await
    };
    let (a, b) = (printed("a").await, printed("b").await);
    let node: Vec<_> = ["net", "ipc", "uts", "pid"]
        .map(|name| std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap().display().to_string())
        .to_vec();
    let (a, b): (Vec<_>, Vec<_>) = (a.lines().collect(), b.lines().collect());
    assert_eq!(a[..3], b[..3], "containers of a pod share these");
    assert_ne!(a[3], b[3], "but have their own processes");
    assert!(a.iter().zip(&node).all(|(inside, outside)| inside != outside), "the pod has {a:?}, the node {node:?}");
    // What is written to shared memory in one is read in the other.
    world
        .output(
            &one,
            container(world, "w", "echo shared > /dev/shm/x; df -k /dev/shm | tail -1 | grep -q 65536", &options),
        )
        .await;
    assert_eq!(world.output(&one, container(world, "r", "cat /dev/shm/x", &options)).await, "shared\n");
    let ip = world.cri().pod_sandbox_status(&one.id).await.expect("a status").network.unwrap().ip;
    let said = world
        .output(&one, container(world, "ip", "hostname -I; cat /etc/resolv.conf >/dev/null && echo ok", &options))
        .await;
    assert!(said.contains(&ip), "{ip}: {said}");
    Shown::Yes
}

async fn the_nodes_namespaces_are_shared_when_asked(world: &mut World) -> Shown {
    let node = NamespaceMode::Node.into();
    let options = v1::NamespaceOption { network: node, pid: node, ipc: node, ..Default::default() };
    let one = pod(world, "node", &options).await;
    let said = world.output(&one, container(world, "a", LINKS, &options)).await;
    for (line, name) in said.lines().zip(["net", "ipc", "uts", "pid"]) {
        assert_eq!(line, std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap().display().to_string());
    }
    // All of the container ends with its first process, although it has no tree of its own.
    let script = "setsid sleep 7781 & sleep 7782 & echo up; sleep 7783";
    let id = world.start(&one, container(world, "b", script, &options)).await;
    until("it runs", async || world.said(&one, "b").contains("up").then_some(())).await;
    world.cri().stop_container(&id, std::time::Duration::ZERO).await.expect("killed");
    let left = || {
        let command = |pid: &String| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let names = crate::world::names(std::path::Path::new("/proc"));
        names.iter().filter(|pid| command(pid).contains("sleep\x00778")).count()
    };
    until("all are gone", async || (left() == 0).then_some(())).await;
    Shown::Yes
}

async fn shared_processes_are_reaped_and_lead_nowhere(world: &mut World) -> Shown {
    let options = v1::NamespaceOption { network: NamespaceMode::Node.into(), ..Default::default() };
    let one = pod(world, "shared", &options).await;
    let a = world.start(&one, container(world, "a", "sleep 1000", &options)).await;
    let b = world.start(&one, container(world, "b", "sleep 1001", &options)).await;
    let seen = world.exec(&a, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").await;
    assert!(seen.contains("sleep 1000") && seen.contains("sleep 1001"), "{seen}");
    assert_eq!(world.exec(&a, "cat /proc/1/comm").await, "pause\n");
    // Orphans are reaped by the first process.
    world.exec(&a, "for i in 1 2 3 4 5; do (setsid sh -c 'sleep 0.1 &' &); done; sleep 1").await;
    until("no process is left to be reaped", async || {
        let zombies = world.exec(&a, "grep -l '^State:.*Z' /proc/[0-9]*/status 2>/dev/null | wc -l").await;
        (zombies == "0\n").then_some(())
    })
    .await;
    // It shows nothing: no file, no variable, no program.
    let privileged = {
        let mut config = container(world, "root", "sleep 1002", &options);
        security(&mut config).privileged = true;
        world.start(&one, config).await
    };
    let view = world
        .exec(&privileged, "ls -A /proc/1/root/ | wc -l; ls -A /proc/1/cwd/ | wc -l; ls /proc/1/fd | wc -l; touch /proc/1/root/x 2>&1 | grep -c 'Read-only'; tr '\\0' '\\n' < /proc/1/environ | wc -l; echo x > /proc/1/exe 2>&1 || true")
        .await;
    assert!(view.starts_with("0\n0\n0\n1\n0\n"), "{view}");
    // It cannot be killed from inside, and takes all with it when it goes.
    world.exec(&a, "kill -KILL 1; kill -TERM 1; true").await;
    assert_eq!(world.state(&b).await, v1::ContainerState::ContainerRunning);
    world.cri().stop_container(&a, std::time::Duration::ZERO).await.expect("stopped");
    assert_eq!(world.state(&b).await, v1::ContainerState::ContainerRunning);
    Shown::Yes
}

/// Debugging containers ask for that.
async fn a_container_sees_the_processes_of_another(world: &mut World) -> Shown {
    let options = v1::NamespaceOption {
        network: NamespaceMode::Node.into(),
        pid: NamespaceMode::Container.into(),
        ..Default::default()
    };
    let one = pod(world, "target", &options).await;
    let a = world.start(&one, container(world, "a", "sleep 1234", &options)).await;
    let target = v1::NamespaceOption { pid: NamespaceMode::Target.into(), target_id: a.clone(), ..options.clone() };
    let said = world.output(&one, container(world, "b", "tr '\\0' ' ' < /proc/1/cmdline", &target)).await;
    assert!(said.contains("sleep 1234"), "{said}");
    let wrong = v1::NamespaceOption { target_id: "none".to_owned(), ..target };
    world.create(&one, container(world, "c", "true", &wrong)).await.expect_err("no such container");
    Shown::Yes
}

async fn a_number_that_came_again_is_not_the_container_that_had_it(world: &mut World) -> Shown {
    let options = v1::NamespaceOption {
        network: NamespaceMode::Node.into(),
        pid: NamespaceMode::Container.into(),
        ..Default::default()
    };
    let one = pod(world, "again", &options).await;
    let a = world.start(&one, container(world, "a", "sleep 1234", &options)).await;
    let target = v1::NamespaceOption { pid: NamespaceMode::Target.into(), target_id: a.clone(), ..options.clone() };
    let b = world.create(&one, container(world, "b", "cat /proc/1/cmdline", &target)).await.expect("created");
    let number = world.pid(&a).await;
    world.cri().stop_container(&a, std::time::Duration::ZERO).await.expect("stopped");
    if std::fs::write(LAST_NUMBER, (number - 1).to_string()).is_err() {
        return Shown::Skipped("the next PID cannot be set here".to_owned());
    }
    let mut other = until("its PID is reused", async || {
        std::fs::write(LAST_NUMBER, (number - 1).to_string()).unwrap();
        let mut other = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        if other.id() == number {
            return Some(other);
        }
        other.kill().and_then(|()| other.wait()).unwrap();
        None
    })
    .await;
    let error = world.cri().start_container(&b).await.expect_err("it would be among the node's processes");
    assert!(error.message.contains("a container that has exited"), "{error}");
    other.kill().and_then(|()| other.wait()).unwrap();
    Shown::Yes
}

async fn a_pod_without_its_holder_is_not_ready(world: &mut World) -> Shown {
    let one = world.pod("holder").await;
    let made = world.create(&one, world.container("made", "true")).await.expect("created");
    let mut events = world.cri().container_events().await.expect("events").expect("some");
    let text = std::fs::read_to_string(world.sandbox_dir(&one.id).join("record.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&text).unwrap();
    let pid = record["pause"]["pid"].as_u64().unwrap();
    crate::world::run("kill", &["-KILL", &pid.to_string()]);
    until("it is not ready", async || {
        let status = world.cri().pod_sandbox_status(&one.id).await.expect("a status");
        (status.state() == v1::PodSandboxState::SandboxNotready).then_some(())
    })
    .await;
    let event = tokio::time::timeout(std::time::Duration::from_secs(20), events.next()).await.expect("in time");
    let event = event.expect("an event").expect("an event");
    assert_eq!(event.container_event_type(), v1::ContainerEventType::ContainerStoppedEvent);
    world.create(&one, world.container("late", "true")).await.expect_err("not ready");
    // Its namespaces are known by a PID, which another process of the node may have by now.
    let refused = world.cri().start_container(&made).await.expect_err("not ready");
    assert!(refused.message.contains("is in a sandbox that is not ready"), "{refused}");
    assert_eq!(world.state(&made).await, v1::ContainerState::ContainerCreated, "it was not even tried");
    world.reopen().await;
    let status = world.cri().pod_sandbox_status(&one.id).await.expect("a status");
    assert_eq!(status.state(), v1::PodSandboxState::SandboxNotready);
    Shown::Yes
}

async fn children_of_a_pod_cgroup_stay_where_the_agent_says(world: &mut World) -> Shown {
    let mounts = keelet_linux::cgroup::Mounts::find().unwrap();
    let parent = format!("{}/pods/burstable", world.cgroup);
    for dir in mounts.directories(&parent) {
        // One below cpuset needs its processors before anything can join.
        let _ = std::fs::create_dir_all(dir);
    }
    let mut config = world.pod_config("parent");
    config.linux.as_mut().unwrap().cgroup_parent = parent.clone();
    let one = world.run_pod(config).await.expect("a sandbox");
    let id = world.start(&one, world.container("main", "sleep 1000")).await;
    // From outside: it need not know itself where it is.
    assert!(mounts.processes(&format!("{parent}/{id}")).contains(&world.pid(&id).await));
    world.cri().remove_pod_sandbox(&one.id).await.expect("removed");
    let memory = mounts.directory("memory", &parent).unwrap();
    assert!(memory.is_dir(), "the agent's own cgroup is not ours to remove");
    assert!(!memory.join(&id).exists());
    mounts.remove(&format!("{}/pods", world.cgroup)).unwrap();
    Shown::Yes
}

/// How much is below a directory, without what is mounted or linked there.
fn size(dir: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(about) = dir.symlink_metadata() else { return 0 };
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let paths = paths.filter(|path| path.symlink_metadata().is_ok_and(|found| found.dev() == about.dev()));
    paths
        .map(|path| match path.symlink_metadata() {
            Ok(found) if found.is_dir() => size(&path),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}

/// The directory of a sandbox is in the node's memory, which no pod may fill.
async fn what_a_pod_writes_to_its_files_is_on_disk(world: &mut World) -> Shown {
    let pod = world.pod("writes").await;
    let script = "for file in hosts hostname resolv.conf; do head -c 1000000 /dev/zero >> /etc/$file; done";
    world.output(&pod, world.container("main", script)).await;
    let written = world.output(&pod, world.container("next", "cat /etc/hosts /etc/hostname | wc -c")).await;
    assert!(written.trim().parse::<usize>().unwrap() > 2_000_000, "the pod's containers share them: {written}");
    let size = size(&world.sandbox_dir(&pod.id));
    assert!(size < 1_000_000, "{size} bytes");
    // What was left by a pod that went with its boot goes too.
    let old = world.dir.join("root/sandboxes/old");
    std::fs::create_dir_all(&old).unwrap();
    world.reopen().await;
    assert!(!old.exists());
    world.output(&pod, world.container("last", "test -s /etc/hosts")).await;
    Shown::Yes
}
