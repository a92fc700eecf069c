//! How much a container may use, and uses.

use keelet_cri::v1;

use crate::{
    Shown, cases,
    world::{World, until},
};

cases![limits_are_in_its_cgroup_and_can_be_changed, a_container_killed_for_its_memory_says_so, usage_is_counted];

fn unified() -> bool {
    matches!(keelet_shim::cgroup::Mounts::find(), Ok(keelet_shim::cgroup::Mounts::V2(_)))
}

async fn limits_are_in_its_cgroup_and_can_be_changed(world: &mut World) -> Shown {
    if unified() {
        return Shown::Skipped("this machine has cgroups of the second generation".to_owned());
    }
    let pod = world.pod("limits").await;
    let mut config = world.container("main", "sleep 1000");
    let asked = v1::LinuxContainerResources {
        cpu_shares: 512,
        cpu_period: 100_000,
        cpu_quota: 50_000,
        memory_limit_in_bytes: 64 << 20,
        cpuset_cpus: "0".to_owned(),
        cpuset_mems: "0".to_owned(),
        ..Default::default()
    };
    config.linux.as_mut().unwrap().resources = Some(asked.clone());
    let id = world.start(&pod, config).await;
    let limit = |controller: &str, file: &str| world.limit(&pod, &id, controller, file);
    assert_eq!(limit("cpu", "cpu.shares"), "512");
    assert_eq!(limit("cpu", "cpu.cfs_quota_us"), "50000");
    assert_eq!(limit("cpu", "cpu.cfs_period_us"), "100000");
    assert_eq!(limit("memory", "memory.limit_in_bytes"), (64 << 20).to_string());
    assert_eq!(limit("cpuset", "cpuset.cpus"), "0");
    assert_eq!(world.status(&id).await.resources.unwrap().linux.unwrap(), asked);

    let more = v1::LinuxContainerResources {
        cpu_shares: 1024,
        cpu_quota: -1,
        memory_limit_in_bytes: 128 << 20,
        ..Default::default()
    };
    world.cri().update_container_resources(&id, more).await.expect("changed");
    assert_eq!(limit("cpu", "cpu.shares"), "1024");
    assert_eq!(limit("cpu", "cpu.cfs_quota_us"), "-1");
    assert_eq!(limit("memory", "memory.limit_in_bytes"), (128 << 20).to_string());
    assert_eq!(limit("cpuset", "cpuset.cpus"), "0", "what is not named stays");
    let now = world.status(&id).await.resources.unwrap().linux.unwrap();
    assert_eq!((now.cpu_shares, now.memory_limit_in_bytes), (1024, 128 << 20), "the status tells what holds");
    assert_eq!(now.cpuset_cpus, "0");
    world.reopen().await;
    let now = world.status(&id).await.resources.unwrap().linux.unwrap();
    assert_eq!((now.cpu_shares, now.memory_limit_in_bytes), (1024, 128 << 20), "and so does the next server");

    // With a limit that includes swap, both ways: the kernel wants them in order.
    let with_swap = |bytes: i64| v1::LinuxContainerResources {
        memory_limit_in_bytes: bytes,
        memory_swap_limit_in_bytes: bytes,
        ..Default::default()
    };
    let mounts = keelet_shim::cgroup::Mounts::find().unwrap();
    let dir = mounts.directory("memory", &format!("{}/{}/{id}", world.cgroup, pod.id)).unwrap();
    if dir.join("memory.memsw.limit_in_bytes").exists() {
        for bytes in [96 << 20, 256 << 20, 48 << 20] {
            world.cri().update_container_resources(&id, with_swap(bytes)).await.expect("changed");
            assert_eq!(world.limit(&pod, &id, "memory", "memory.limit_in_bytes"), bytes.to_string());
        }
    }
    let wrong = v1::LinuxContainerResources { cpuset_cpus: "4095".to_owned(), ..Default::default() };
    let error = world.cri().update_container_resources(&id, wrong).await.expect_err("no such processor");
    assert!(error.message.contains("cpuset.cpus = 4095"), "{error}");
    Shown::Yes
}

async fn a_container_killed_for_its_memory_says_so(world: &mut World) -> Shown {
    let pod = world.pod("memory").await;
    for (name, script) in [
        ("itself", "exec tail /dev/zero"),
        // A child is killed; the first process sees that, and fails.
        ("child", "tail /dev/zero || exit 5"),
    ] {
        let mut config = world.container(name, script);
        config.linux.as_mut().unwrap().resources = Some(v1::LinuxContainerResources {
            memory_limit_in_bytes: 24 << 20,
            memory_swap_limit_in_bytes: 24 << 20,
            ..Default::default()
        });
        let (status, said) = world.run(&pod, config).await;
        assert_eq!(status.reason, "OOMKilled", "{name}: {status:?} {said}");
        assert_eq!(status.exit_code, if name == "itself" { 137 } else { 5 });
    }
    Shown::Yes
}

async fn usage_is_counted(world: &mut World) -> Shown {
    let pod = world.pod("stats").await;
    let script =
        "head -c 3000000 /dev/urandom > /file; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done; sleep 1000";
    let id = world.start(&pod, world.container("main", script)).await;
    until("it has worked", async || world.said(&pod, "main").contains("done").then_some(())).await;
    let stats = world.cri().container_stats(&id).await.expect("usage");
    assert!(stats.cpu.unwrap().usage_core_nano_seconds.unwrap().value > 1_000_000);
    assert!(stats.memory.unwrap().working_set_bytes.unwrap().value > 50_000);
    let layer = stats.writable_layer.unwrap();
    assert!(layer.used_bytes.unwrap().value >= 3_000_000, "{layer:?}");
    assert!(layer.inodes_used.unwrap().value >= 1);
    let pods = world.cri().list_pod_sandbox_stats(None).await.expect("usage");
    let linux = pods[0].linux.as_ref().unwrap();
    assert_eq!(linux.containers.len(), 1);
    assert!(linux.process.as_ref().unwrap().process_count.unwrap().value >= 1);
    Shown::Yes
}
