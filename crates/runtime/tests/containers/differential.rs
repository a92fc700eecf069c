//! The same containers made by libcontainer and by runc: what they see of themselves must be the same.
//!
//! What differs and may is taken out in [`told`], each with its reason, and listed in `docs/runtime.md`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use keelet_cri::v1;
use keelet_runtime::OciRuntime;

use crate::{
    Shown, cases,
    world::{World, pod_config, security, until},
};

cases![both_make_the_same_containers, runc_starts_and_ends_as_libcontainer_does, a_missing_program_is_named];

/// Says all that a container can say of itself.
const ABOUT: &str = r#"
grep -E '^(Uid|Gid|Groups|CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp|SigBlk|SigIgn|SigCgt|Umask|Cpus_allowed|Mems_allowed):' /proc/self/status | sed 's/^/status /'
sed 's/^/cgroup /' /proc/self/cgroup
[ "$(cut -d' ' -f6 /proc/$$/stat)" = $$ ] && echo "session own" || echo "session other"
echo "oom $(cat /proc/self/oom_score_adj)"
echo "cwd $(pwd)"
echo "id $(id)"
echo "hostname $(hostname)"
ulimit -a | sed 's/^/limit /'
env | grep -v -E '^(_|SHLVL|OLDPWD)=' | sort | sed 's/^/env /'
awk '{ opts=$6; prop=""; for (i=7; $i != "-"; i++) { sub(/:.*/, "", $i); prop=prop " " $i }; print "mount " $5 " " opts " [" prop " ] " $(i+1) }' /proc/self/mountinfo | sort
(cd /dev; stat -c 'dev %A %U:%G %t:%T %N' * | sort)
for d in null zero full random urandom tty ptmx kmsg fuse mem; do
  for a in r w; do
    [ $a = r ] && f='<' || f='>'
    if sh -c "exec 9$f /dev/$d" 2>/dev/null; then echo "open $d $a yes"; else echo "open $d $a no"; fi
  done
done
mknod /tmp/tun c 10 200 2>/dev/null && { sh -c 'exec 9<>/tmp/tun' 2>/dev/null && echo "node tun used" || echo "node tun refused"; } || echo "node tun not made"
touch /written 2>/dev/null && echo "root writable" || echo "root read-only"
for p in /proc/kcore /proc/timer_list /proc/keys /sys/firmware; do echo "path $p $(ls -ld $p 2>&1 | cut -c1-10) $(cat $p 2>/dev/null | head -c 1 | wc -c)"; done
for p in /proc/sys/kernel/printk /proc/irq/default_smp_affinity; do sh -c "echo 1 > $p" 2>/dev/null && echo "path $p written" || echo "path $p refused"; done
mount -t tmpfs none /mnt 2>/dev/null && { echo "mounting works"; umount /mnt; } || echo "mounting refused"
unshare -U true 2>/dev/null && echo "users own" || echo "users refused"
for s in net.ipv4.ip_unprivileged_port_start kernel.msgmax; do echo "sysctl $s $(cat /proc/sys/$(echo $s | tr . /))"; done
ls /proc/self/fd | tr '\n' ' ' | sed 's/^/fds /'; echo
test -t 0 && echo "stdin terminal" || echo "stdin none"
cat /etc/hostname | sed 's/^/file /'
for f in cpu/cpu.shares cpu/cpu.cfs_quota_us memory/memory.limit_in_bytes cpuset/cpuset.cpus pids/pids.max \
    cpu.max memory.max memory.swap.max memory.oom.group cpuset.cpus pids.max hugetlb.2MB.max cgroup.subtree_control; do echo "limit $f $(cat /sys/fs/cgroup/$f 2>/dev/null)"; done
echo complete
"#;

/// What a container printed, without what may differ.
fn normalised(said: &str, ids: &[(&str, &str)]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in said.replace('\r', "").lines() {
        let mut line = line.to_owned();
        for (id, name) in ids {
            line = line.replace(id, name);
        }
        lines.push(line);
    }
    lines
}

/// Containers to compare, by what is special about them.
fn matrix(world: &World) -> Vec<(&'static str, v1::ContainerConfig)> {
    let words = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
    let mut all = Vec::new();
    let mut add = |name: &'static str, change: &dyn Fn(&mut v1::ContainerConfig)| {
        let mut config = world.container(name, ABOUT);
        change(&mut config);
        all.push((name, config));
    };
    add("plain", &|_| {});
    add("user", &|config| {
        let context = security(config);
        context.run_as_user = Some(v1::Int64Value { value: 1000 });
        context.run_as_group = Some(v1::Int64Value { value: 1001 });
        context.supplemental_groups = vec![5000, 5001];
    });
    add("hardened", &|config| {
        let context = security(config);
        context.run_as_user = Some(v1::Int64Value { value: 65534 });
        context.no_new_privs = true;
        context.readonly_rootfs = true;
        context.capabilities = Some(v1::Capability { drop_capabilities: words(&["ALL"]), ..Default::default() });
        context.seccomp = Some(v1::SecurityProfile {
            profile_type: v1::security_profile::ProfileType::RuntimeDefault.into(),
            ..Default::default()
        });
        context.masked_paths = words(&["/proc/kcore", "/proc/timer_list", "/proc/keys", "/sys/firmware", "/proc/none"]);
        context.readonly_paths = words(&["/proc/sys", "/proc/irq", "/proc/none"]);
    });
    add("filtered", &|config| {
        security(config).seccomp = Some(v1::SecurityProfile {
            profile_type: v1::security_profile::ProfileType::RuntimeDefault.into(),
            ..Default::default()
        });
    });
    add("capabilities", &|config| {
        let context = security(config);
        context.run_as_user = Some(v1::Int64Value { value: 7 });
        context.capabilities = Some(v1::Capability {
            add_capabilities: words(&["NET_ADMIN", "SYS_TIME"]),
            drop_capabilities: words(&["CHOWN"]),
            add_ambient_capabilities: words(&["NET_ADMIN"]),
        });
    });
    add("device", &|config| {
        config.devices.push(v1::Device {
            host_path: "/dev/fuse".to_owned(),
            permissions: "rw".to_owned(),
            ..Default::default()
        });
    });
    add("volumes", &|config| {
        let volume = |inside: &str| v1::Mount {
            container_path: inside.to_owned(),
            host_path: world.dir.join("logs").display().to_string(),
            ..v1::Mount::default()
        };
        config.mounts = vec![
            volume("/vol"),
            v1::Mount { readonly: true, ..volume("/vol-ro") },
            v1::Mount { propagation: v1::MountPropagation::PropagationHostToContainer.into(), ..volume("/vol-slave") },
        ];
    });
    add("place", &|config| {
        config.working_dir = "/usr/share/new".to_owned();
        config.envs = vec![v1::KeyValue { key: "COLOUR".to_owned(), value: "blue  green".into() }];
    });
    add("terminal", &|config| config.tty = true);
    add("limits", &|config| {
        config.linux.as_mut().unwrap().resources = Some(v1::LinuxContainerResources {
            cpu_shares: 300,
            cpu_period: 100_000,
            cpu_quota: 30_000,
            memory_limit_in_bytes: 64 << 20,
            cpuset_cpus: "0".to_owned(),
            oom_score_adj: 500,
            ..Default::default()
        });
    });
    add("node", &|config| {
        let options = security(config).namespace_options.as_mut().unwrap();
        options.pid = v1::NamespaceMode::Node.into();
    });
    add("shared", &|config| {
        let options = security(config).namespace_options.as_mut().unwrap();
        options.pid = v1::NamespaceMode::Pod.into();
    });
    add("privileged", &|config| security(config).privileged = true);
    all
}

async fn both_make_the_same_containers(world: &mut World) -> Shown {
    if crate::program("runc").is_none() {
        return Shown::Skipped("runc is not installed (apt-get install runc)".to_owned());
    }
    std::fs::create_dir_all(world.dir.join("logs")).unwrap();
    // A pod with all namespaces of its own, and processes to share.
    let options = v1::NamespaceOption { pid: v1::NamespaceMode::Pod.into(), ..Default::default() };
    let mut results: BTreeMap<&str, Vec<Vec<String>>> = BTreeMap::new();
    for maker in [OciRuntime::Libcontainer, OciRuntime::Runc] {
        world.close();
        world.settings.oci_runtime = maker;
        world.reopen().await;
        let mut config = pod_config("same", &world.dir.join("logs/same"), options.clone());
        config.linux.as_mut().unwrap().sysctls =
            [("net.ipv4.ip_unprivileged_port_start".to_owned(), "81".to_owned())].into();
        let pod = world.run_pod(config).await.expect("a sandbox");
        for (name, mut config) in matrix(world) {
            security(&mut config).namespace_options.as_mut().unwrap().network = v1::NamespaceMode::Pod.into();
            let id = world.start(&pod, config).await;
            until("all is printed", async || world.said(&pod, name).contains("complete").then_some(())).await;
            let status = world.ended(&id).await;
            assert_eq!(status.exit_code, 0, "{name}");
            let said = world.said(&pod, name);
            results.entry(name).or_default().push(normalised(&said, &[(&id, "CONTAINER"), (&pod.id, "SANDBOX")]));
        }
        world.cri().stop_pod_sandbox(&pod.id).await.expect("stopped");
        world.cri().remove_pod_sandbox(&pod.id).await.expect("removed");
        let _ = std::fs::remove_dir_all(world.dir.join("logs/same"));
    }
    let mut differences = Vec::new();
    for (name, pair) in &results {
        let [ours, theirs] = pair.as_slice() else { panic!("two results") };
        differences.extend(
            ours.iter().filter(|line| !theirs.contains(line)).map(|line| format!("{name} libcontainer: {line}")),
        );
        differences.extend(
            theirs.iter().filter(|line| !ours.contains(line)).map(|line| format!("{name} runc:         {line}")),
        );
    }
    differences.retain(|line| !may_differ(line));
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    Shown::Yes
}

/// Differences that are known; `docs/runtime.md` lists them with their reasons.
fn may_differ(line: &str) -> bool {
    // Go leaves one of the C library's own signals ignored.
    let signals = line.contains("status SigIgn:");
    // runc before 1.2 lets every container use /dev/net/tun.
    signals || line.contains(" node tun ")
}

async fn runc_starts_and_ends_as_libcontainer_does(world: &mut World) -> Shown {
    if crate::program("runc").is_none() {
        return Shown::Skipped("runc is not installed (apt-get install runc)".to_owned());
    }
    world.close();
    world.settings.oci_runtime = OciRuntime::Runc;
    world.reopen().await;
    let pod = world.pod("runc").await;
    assert_eq!(world.run(&pod, world.container("seven", "echo out; echo err >&2; exit 7")).await.0.exit_code, 7);
    // Two pipes have no order between them.
    let said = world.said(&pod, "seven");
    assert_eq!(BTreeSet::from_iter(said.lines()), BTreeSet::from(["err", "out"]));
    let mut config = world.container("missing", "");
    config.command = vec!["no-such-program".to_owned()];
    let id = world.create(&pod, config).await.expect("created");
    let error = world.cri().start_container(&id).await.expect_err("there is none");
    assert!(error.message.contains("exec: \"no-such-program\": executable file not found in $PATH"), "{error}");
    let status = world.status(&id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (128, "StartError"));
    assert_eq!(world.log(&pod, "missing"), "", "what runc prints is not the container's");
    // Found and not executable: that shows only after the start.
    std::fs::write(world.dir.join("garbage"), "garbage").unwrap();
    std::fs::set_permissions(world.dir.join("garbage"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut config = world.container("garbage", "");
    config.command = vec!["/mnt/garbage".to_owned()];
    config.mounts.push(v1::Mount {
        container_path: "/mnt/garbage".to_owned(),
        host_path: world.dir.join("garbage").display().to_string(),
        ..Default::default()
    });
    assert_eq!(world.run(&pod, config).await.0.exit_code, 1);
    let id =
        world.start(&pod, world.container("main", "trap 'exit 21' TERM; echo up; while :; do sleep 0.05; done")).await;
    until("it runs", async || world.said(&pod, "main").contains("up").then_some(())).await;
    assert_eq!(world.exec(&id, "id -u; cat /proc/1/comm").await, "0\nsh\n");
    world.reopen().await;
    assert_eq!(world.state(&id).await, v1::ContainerState::ContainerRunning);
    world.cri().stop_container(&id, Duration::from_secs(30)).await.expect("stopped");
    assert_eq!(world.status(&id).await.exit_code, 21);
    Shown::Yes
}

async fn a_missing_program_is_named(world: &mut World) -> Shown {
    let mut settings = world.settings.clone();
    settings.oci_runtime = OciRuntime::Program("/no/such/runc".into());
    let error = keelet_runtime::Engine::open(settings).await.expect_err("it is not there");
    assert_eq!(error.to_string(), "the OCI runtime cannot be used: /no/such/runc is not a program that can be run");
    Shown::Yes
}
