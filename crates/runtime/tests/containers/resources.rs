//! How much a container may use, and uses.

use std::{fs, path::Path};

use keelet_cri::v1::{self, runtime_service_server::RuntimeService};
use keelet_linux::cgroup::Mounts;
use keelet_runtime::PidsLimit;

use crate::{
    Shown, cases,
    world::{Pod, World, until},
};

cases![
    limits_are_in_its_cgroup_and_can_be_changed,
    limits_are_in_its_cgroup_of_the_second_generation,
    huge_pages_are_limited_where_they_can_be,
    a_pod_has_so_many_processes_at_most,
    a_pod_has_shares_and_limits_as_a_whole,
    a_container_killed_for_its_memory_says_so,
    a_container_dies_as_a_whole_where_that_is_asked_for,
    a_container_sees_its_cgroup_and_cannot_change_it,
    commands_join_a_container_that_has_cgroups_of_its_own,
    usage_is_counted,
];

fn unified() -> bool {
    matches!(Mounts::find(), Ok(Mounts::V2(_)))
}

fn needs_unified() -> Option<Shown> {
    (!unified()).then(|| Shown::Skipped("this machine has cgroups of the first generation".to_owned()))
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
    let mounts = Mounts::find().unwrap();
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

/// Kubelets always ask for limits of huge pages. Where the node cannot limit them, containers run without; where it can,
/// they hold.
async fn huge_pages_are_limited_where_they_can_be(world: &mut World) -> Shown {
    let place = Path::new("/sys/fs/cgroup/hugetlb");
    if unified() || place.exists() {
        return Shown::Skipped("this machine always has a controller of huge pages".to_owned());
    }
    let limits = |bytes| v1::LinuxContainerResources {
        hugepage_limits: vec![v1::HugepageLimit { page_size: "2MB".to_owned(), limit: bytes }],
        ..Default::default()
    };
    let config = |world: &World| {
        let mut config = world.container("main", "sleep 1000");
        config.linux.as_mut().unwrap().resources = Some(limits(2 << 20));
        config
    };
    let pod = world.pod("without").await;
    let id = world.start(&pod, config(world)).await;
    world.cri().update_container_resources(&id, limits(0)).await.expect("nothing to change");

    // The directory is the machine's; what is mounted there is this case's.
    fs::create_dir(place).expect("a directory");
    let mounted =
        rustix::mount::mount("hugetlb", place, "cgroup", rustix::mount::MountFlags::empty(), Some(c"hugetlb"));
    if mounted.is_ok() {
        world.reopen().await;
        let pod = world.pod("with").await;
        let id = world.start(&pod, config(world)).await;
        let limit = || world.limit(&pod, &id, "hugetlb", "hugetlb.2MB.limit_in_bytes");
        let first = limit();
        world.cri().update_container_resources(&id, limits(0)).await.expect("changed");
        let second = limit();
        world.cri().remove_pod_sandbox(&pod.id).await.expect("removed");
        let _ = fs::remove_dir(place.join(world.cgroup.trim_start_matches('/')));
        rustix::mount::unmount(place, rustix::mount::UnmountFlags::DETACH).expect("unmounted");
        world.reopen().await;
        assert_eq!((first, second), ((2 << 20).to_string(), "0".to_owned()));
    }
    fs::remove_dir(place).expect("removed");
    match mounted {
        Ok(()) => Shown::Yes,
        Err(error) => Shown::Skipped(format!("huge pages cannot be limited on this machine: {error}")),
    }
}

/// Pods compete by what they ask for, and a pod's limit is that of all its containers together. A cgroup that the
/// caller named is left to the caller.
async fn a_pod_has_shares_and_limits_as_a_whole(world: &mut World) -> Shown {
    // On a node that swaps, the kernel would kill no process.
    let counts_swap = unified() || Path::new("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes").exists();
    let asked = v1::LinuxContainerResources {
        cpu_shares: 512,
        cpu_period: 100_000,
        cpu_quota: 50_000,
        memory_limit_in_bytes: 64 << 20,
        memory_swap_limit_in_bytes: if counts_swap { 64 << 20 } else { 0 },
        ..Default::default()
    };
    let with = |name: &str, parent: &str| {
        let mut config = world.pod_config(name);
        let linux = config.linux.as_mut().unwrap();
        (linux.resources, linux.cgroup_parent) = (Some(asked.clone()), parent.to_owned());
        config
    };
    let pod = world.run_pod(with("limited", "")).await.expect("a sandbox");
    let (names, texts) = match unified() {
        true => (["cpu.weight", "cpu.max", "memory.max"], ["59", "50000 100000", "67108864"]),
        false => (["cpu.shares", "cpu.cfs_quota_us", "memory.limit_in_bytes"], ["512", "50000", "67108864"]),
    };
    let mounts = Mounts::find().unwrap();
    let found = |cgroup: &str| {
        [("cpu", names[0]), ("cpu", names[1]), ("memory", names[2])].map(|(controller, name)| {
            let file = mounts.directory(controller, cgroup).unwrap().join(name);
            fs::read_to_string(file).unwrap_or_default().trim().to_owned()
        })
    };
    let cgroup = format!("{}/{}", world.cgroup, pod.id);
    assert_eq!(found(&cgroup), texts);
    let change = async |asked| {
        let request = v1::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: pod.id.clone(),
            resources: Some(asked),
            ..Default::default()
        };
        world.engine().update_pod_sandbox_resources(tonic::Request::new(request)).await.expect("changed");
    };
    change(v1::LinuxContainerResources { memory_limit_in_bytes: 60 << 20, ..Default::default() }).await;
    assert_eq!(found(&cgroup), [texts[0], texts[1], "62914560"], "what is not named stays");
    for bytes in [96 << 20, 60 << 20] {
        let swap = if counts_swap { bytes } else { 0 };
        change(v1::LinuxContainerResources {
            memory_limit_in_bytes: bytes,
            memory_swap_limit_in_bytes: swap,
            ..Default::default()
        })
        .await;
        assert_eq!(found(&cgroup)[2], bytes.to_string(), "more and less");
    }

    // Two that are small enough each, and too large together.
    let hoard = "exec perl -e 'vec(my $x, 40 << 20, 8) = 1; sleep 1000'";
    let both = [
        world.start(&pod, world.container("first", hoard)).await,
        world.start(&pod, world.container("second", hoard)).await,
    ];
    let killed = until("one is killed", async || {
        let states = [world.status(&both[0]).await, world.status(&both[1]).await];
        states.into_iter().find(|status| status.state() == v1::ContainerState::ContainerExited)
    });
    let killed = killed.await;
    assert_eq!(killed.reason, "OOMKilled", "why the container ended that was over the limit of its pod: {killed:?}");

    // A cgroup that is named belongs to the caller that named it.
    let named = format!("{}/named", world.cgroup);
    let pod = world.run_pod(with("named", &named)).await.expect("a sandbox");
    assert_eq!(found(&named), [""; 3]);
    world.cri().remove_pod_sandbox(&pod.id).await.expect("removed");
    Shown::Yes
}

/// The limit is the pod's: what one container has, the others do not get.
async fn a_pod_has_so_many_processes_at_most(world: &mut World) -> Shown {
    world.settings.pids_limit = PidsLimit::AtMost(20);
    world.reopen().await;
    let (pod, other) = (world.pod("bomb").await, world.pod("other").await);
    let many = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do sleep 1000 & done; echo all; wait";
    let said = async |pod: &Pod, name: &str, words: &str| {
        until(words, async || world.said(pod, name).contains(words).then_some(())).await;
    };
    world.start(&pod, world.container("first", many)).await;
    said(&pod, "first", "all").await;
    let refused = world.start(&pod, world.container("second", many)).await;
    assert_eq!(world.ended(&refused).await.exit_code, 2, "{}", world.said(&pod, "second"));
    said(&pod, "second", "Cannot fork").await;
    // A pod beside it has its own.
    world.start(&other, world.container("main", many)).await;
    said(&other, "main", "all").await;
    // Without a word about it there is a limit too, and without any limit there is none.
    for (limit, is_limited) in [(PidsLimit::Usual, true), (PidsLimit::Unlimited, false)] {
        world.settings.pids_limit = limit;
        world.reopen().await;
        let pod = world.pod(if is_limited { "usual" } else { "unlimited" }).await;
        let mounts = Mounts::find().expect("cgroups");
        let dir = mounts.directory("pids", &format!("{}/{}", world.cgroup, pod.id)).expect("a controller");
        // A cgroup that limits nothing need not be there.
        let most = fs::read_to_string(dir.join("pids.max")).unwrap_or_else(|_| "max".to_owned());
        assert_eq!(most.trim().parse::<u32>().is_ok(), is_limited, "{limit:?}: pids.max is {}", most.trim());
    }
    Shown::Yes
}

async fn limits_are_in_its_cgroup_of_the_second_generation(world: &mut World) -> Shown {
    if let Some(skipped) = needs_unified() {
        return skipped;
    }
    let pod = world.pod("unified").await;
    let mut config = world.container("main", "sleep 1000");
    let asked = v1::LinuxContainerResources {
        cpu_shares: 512,
        cpu_period: 50_000,
        cpu_quota: 25_000,
        memory_limit_in_bytes: 64 << 20,
        memory_swap_limit_in_bytes: 64 << 20,
        cpuset_cpus: "0".to_owned(),
        cpuset_mems: "0".to_owned(),
        hugepage_limits: vec![v1::HugepageLimit { page_size: "2MB".to_owned(), limit: 2 << 20 }],
        unified: [("memory.oom.group", "1"), ("pids.max", "77")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        ..Default::default()
    };
    config.linux.as_mut().unwrap().resources = Some(asked.clone());
    let id = world.start(&pod, config).await;
    let limit = |file: &str| world.limit(&pod, &id, "", file);
    assert_eq!(limit("cpu.weight"), "59");
    assert_eq!(limit("cpu.max"), "25000 50000");
    assert_eq!(limit("memory.max"), (64 << 20).to_string());
    assert_eq!(limit("memory.swap.max"), "0", "no more with swap than without is none");
    assert_eq!(limit("cpuset.cpus"), "0");
    assert_eq!(limit("hugetlb.2MB.max"), (2 << 20).to_string());
    assert_eq!((limit("memory.oom.group"), limit("pids.max")), ("1".to_owned(), "77".to_owned()));
    assert_eq!(world.status(&id).await.resources.unwrap().linux.unwrap(), asked);

    let change = async |more: v1::LinuxContainerResources| world.cri().update_container_resources(&id, more).await;
    let more = v1::LinuxContainerResources {
        cpu_shares: 1024,
        cpu_quota: -1,
        memory_limit_in_bytes: 128 << 20,
        memory_swap_limit_in_bytes: 130 << 20,
        unified: [("pids.max".to_owned(), "88".to_owned())].into(),
        ..Default::default()
    };
    change(more).await.expect("changed");
    assert_eq!((limit("cpu.weight"), limit("cpu.max")), ("100".to_owned(), "max 50000".to_owned()));
    assert_eq!(limit("memory.max"), (128 << 20).to_string());
    assert_eq!(limit("memory.swap.max"), (2 << 20).to_string());
    assert_eq!((limit("cpuset.cpus"), limit("pids.max")), ("0".to_owned(), "88".to_owned()));
    // Each alone, where the other is in the same file or decides what it means.
    change(v1::LinuxContainerResources { cpu_quota: 7_000, ..Default::default() }).await.expect("changed");
    assert_eq!(limit("cpu.max"), "7000 50000");
    change(v1::LinuxContainerResources { cpu_period: 20_000, ..Default::default() }).await.expect("changed");
    assert_eq!(limit("cpu.max"), "7000 20000");
    let swap = |bytes: i64| v1::LinuxContainerResources { memory_swap_limit_in_bytes: bytes, ..Default::default() };
    change(swap(129 << 20)).await.expect("changed");
    assert_eq!(limit("memory.swap.max"), (1 << 20).to_string());
    change(swap(-1)).await.expect("changed");
    assert_eq!(limit("memory.swap.max"), "max");
    let error = change(swap(1 << 20)).await.expect_err("less than memory alone");
    assert!(error.message.contains("is below that of memory"), "{error}");
    let wrong = v1::LinuxContainerResources { cpuset_cpus: "4095".to_owned(), ..Default::default() };
    let error = change(wrong).await.expect_err("no such processor");
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

/// What the agent asks for on cgroup v2: no child is killed alone, so that nothing keeps running in a half.
async fn a_container_dies_as_a_whole_where_that_is_asked_for(world: &mut World) -> Shown {
    if let Some(skipped) = needs_unified() {
        return skipped;
    }
    let pod = world.pod("whole").await;
    let mut config = world.container("main", "tail /dev/zero || exit 5");
    config.linux.as_mut().unwrap().resources = Some(v1::LinuxContainerResources {
        memory_limit_in_bytes: 24 << 20,
        memory_swap_limit_in_bytes: 24 << 20,
        unified: [("memory.oom.group".to_owned(), "1".to_owned())].into(),
        ..Default::default()
    });
    let (status, said) = world.run(&pod, config).await;
    assert_eq!((status.reason.as_str(), status.exit_code), ("OOMKilled", 137), "{status:?} {said}");
    Shown::Yes
}

async fn a_container_sees_its_cgroup_and_cannot_change_it(world: &mut World) -> Shown {
    if let Some(skipped) = needs_unified() {
        return skipped;
    }
    let pod = world.pod("seen").await;
    let script = "exec 2>/dev/null; cat /proc/self/cgroup; cat /sys/fs/cgroup/pids.max; grep ' /sys/fs/cgroup ' /proc/mounts; \
        mkdir /sys/fs/cgroup/below && echo made; \
        echo max > /sys/fs/cgroup/pids.max && echo changed; true";
    let mut config = world.container("main", script);
    config.linux.as_mut().unwrap().resources = Some(v1::LinuxContainerResources {
        unified: [("pids.max".to_owned(), "77".to_owned())].into(),
        ..Default::default()
    });
    let said = world.output(&pod, config).await;
    let lines: Vec<_> = said.lines().collect();
    assert_eq!((lines.len(), &lines[..2]), (3, &["0::/", "77"][..]), "{said}");
    assert!(lines[2].contains(" cgroup2 ro,nosuid,nodev,noexec"), "{said}");
    Shown::Yes
}

/// As a service manager in a container does: its processes move down, and controllers are handed to them.
async fn commands_join_a_container_that_has_cgroups_of_its_own(world: &mut World) -> Shown {
    if let Some(skipped) = needs_unified() {
        return skipped;
    }
    let pod = world.pod("manager").await;
    let script = "cd $(grep -o '/keelet.*' /proc/self/cgroup | sed 's|^|/sys/fs/cgroup|') && mkdir inner && \
        echo $$ > inner/cgroup.procs && echo +pids > cgroup.subtree_control && echo ready; sleep 1000";
    let mut config = world.container("main", script);
    crate::world::security(&mut config).privileged = true;
    let id = world.start(&pod, config).await;
    until("it has cgroups of its own", async || world.said(&pod, "main").contains("ready").then_some(())).await;
    assert_eq!(world.limit(&pod, &id, "", "cgroup.subtree_control"), "pids");
    let said = world.exec(&id, "cat /proc/self/cgroup").await;
    assert!(said.contains(&format!("/{id}/exec-")), "{said}");
    let timed_out = world.try_exec(&id, "sleep 1000 & sleep 1000", 1).await;
    assert!(timed_out.is_err(), "{timed_out:?}");
    until("what a command leaves is gone", async || {
        let mounts = Mounts::find().unwrap();
        let dir = mounts.directory("", &format!("{}/{}/{id}", world.cgroup, pod.id)).unwrap();
        (!crate::world::names(&dir).iter().any(|name| name.starts_with("exec-"))).then_some(())
    })
    .await;
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
    let memory = stats.memory.unwrap();
    assert!(memory.working_set_bytes.unwrap().value > 50_000);
    assert!(memory.usage_bytes.unwrap().value >= memory.working_set_bytes.unwrap().value);
    assert!(memory.rss_bytes.unwrap().value > 0 && memory.page_faults.unwrap().value > 0);
    let layer = stats.writable_layer.unwrap();
    assert!(layer.used_bytes.unwrap().value >= 3_000_000, "{layer:?}");
    assert!(layer.inodes_used.unwrap().value >= 1);
    let pods = world.cri().list_pod_sandbox_stats(None).await.expect("usage");
    let linux = pods[0].linux.as_ref().unwrap();
    assert_eq!(linux.containers.len(), 1);
    assert!(linux.process.as_ref().unwrap().process_count.unwrap().value >= 1);
    Shown::Yes
}
