//! What a container may not do.

use std::{env, fs, process::ExitCode};

use keelet_cri::v1;

use crate::{
    Shown, cases,
    world::{World, security, until},
};

cases![
    the_root_can_be_read_only,
    paths_are_masked_and_read_only,
    devices_are_the_usual_ones_and_those_asked_for,
    the_default_filter_bites,
    capabilities_are_what_was_asked_for,
    a_privileged_container_may_do_all,
    the_runtimes_own_program_cannot_be_written,
    kernel_parameters_are_set_in_the_pod_alone,
    what_the_runtime_keeps_is_for_root_alone,
    what_the_server_was_started_with_stays_outside,
];

async fn the_root_can_be_read_only(world: &mut World) -> Shown {
    let pod = world.pod("ro").await;
    let script = "touch /x 2>&1; touch /usr/x 2>&1; touch /dev/shm/y && echo shm; touch /etc/hosts 2>&1; true";
    let mut config = world.container("ro", script);
    security(&mut config).readonly_rootfs = true;
    let said = world.output(&pod, config).await;
    assert_eq!(said.matches("Read-only file system").count(), 3, "{said}");
    assert!(said.contains("shm\n"), "{said}");
    let said = world.output(&pod, world.container("rw", "touch /x /usr/x && echo written")).await;
    assert_eq!(said, "written\n");
    assert!(!std::path::Path::new("/x").exists(), "not on the node");
    Shown::Yes
}

async fn paths_are_masked_and_read_only(world: &mut World) -> Shown {
    let pod = world.pod("masked").await;
    let script = "wc -c < /proc/timer_list; ls /sys/firmware | wc -l; cat /proc/kcore 2>/dev/null | wc -c;
        echo 1 > /proc/sys/kernel/printk 2>&1; echo 1 > /proc/irq/default_smp_affinity 2>&1; ls /no/such/path 2>&1; true";
    let mut config = world.container("main", script);
    let words = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
    let context = security(&mut config);
    context.masked_paths = words(&["/proc/timer_list", "/sys/firmware", "/proc/kcore", "/no/such/path"]);
    context.readonly_paths = words(&["/proc/sys", "/proc/irq", "/no/such/path"]);
    let said = world.output(&pod, config).await;
    assert!(said.starts_with("0\n0\n0\n"), "{said}");
    assert_eq!(said.matches("Read-only file system").count(), 2, "{said}");
    Shown::Yes
}

async fn devices_are_the_usual_ones_and_those_asked_for(world: &mut World) -> Shown {
    let pod = world.pod("devices").await;
    let script = "
        for device in null zero full random urandom tty; do test -c /dev/$device && echo -n \"$device \"; done; echo
        head -c 4 /dev/zero | wc -c; head -c 4 /dev/urandom | wc -c; echo x > /dev/null && echo null
        readlink /dev/fd /dev/stdin /dev/stdout /dev/stderr /dev/ptmx
        mknod /tmp/kmsg c 1 11 && head -c 1 /tmp/kmsg 2>&1 | head -c 200
        mknod /tmp/fuse c 10 229 && dd if=/tmp/fuse count=0 2>&1 | grep -o 'Operation not permitted'
        test -e /dev/kmsg || echo no kmsg";
    let said = world.output(&pod, world.container("usual", script)).await;
    assert!(said.starts_with("null zero full random urandom tty \n4\n4\nnull\n/proc/self/fd\n"), "{said}");
    assert_eq!(said.matches("Operation not permitted").count(), 2, "{said}");
    assert!(said.ends_with("no kmsg\n"), "{said}");

    let mut config = world.container(
        "asked",
        "stat -c '%t:%T' /dev/mine; dd if=/dev/mine count=0 2>/dev/null && echo read;
        dd of=/dev/mine count=0 if=/dev/null 2>&1 | grep -o 'Operation not permitted'",
    );
    config.devices.push(v1::Device {
        host_path: "/dev/fuse".to_owned(),
        container_path: "/dev/mine".to_owned(),
        permissions: "r".to_owned(),
    });
    let (_, said) = world.run(&pod, config).await;
    assert_eq!(said, "a:e5\nread\nOperation not permitted\n");
    let mut config = world.container("none", "true");
    config.devices.push(v1::Device { host_path: "/dev/no-such".to_owned(), ..Default::default() });
    let error = world.create(&pod, config).await.expect_err("there is none");
    assert!(error.message.contains("/dev/no-such"), "{error}");
    Shown::Yes
}

async fn the_default_filter_bites(world: &mut World) -> Shown {
    let pod = world.pod("seccomp").await;
    let script = "grep Seccomp: /proc/self/status; mount -t tmpfs none /mnt 2>&1; unshare -m true 2>&1; unshare -U true 2>&1; true";
    let with = |name: &str, kind: v1::security_profile::ProfileType| {
        let mut config = world.container(name, script);
        // With the capability it is the filter's word that counts.
        let context = security(&mut config);
        context.seccomp = Some(v1::SecurityProfile { profile_type: kind.into(), ..Default::default() });
        config
    };
    use v1::security_profile::ProfileType::{RuntimeDefault, Unconfined};
    let said = world.output(&pod, with("default", RuntimeDefault)).await;
    assert!(said.starts_with("Seccomp:\t2\n"), "{said}");
    assert!(
        said.to_lowercase().matches("operation not permitted").count() + said.matches("ermission denied").count() >= 3,
        "{said}"
    );
    let said = world.output(&pod, with("none", Unconfined)).await;
    assert!(said.starts_with("Seccomp:\t0\n"), "{said}");

    // A system call the 32-bit way, which the filter has no rules for on this kind of machine.
    let Some(compiler) = crate::program("cc") else { return Shown::Skipped("no C compiler for int 0x80".to_owned()) };
    let source = world.dir.join("old.c");
    fs::write(&source, "int main(void) { long r; __asm__ volatile(\"int $0x80\" : \"=a\"(r) : \"a\"(20) : \"memory\"); return r > 0 ? 0 : 9; }").unwrap();
    let binary = world.dir.join("old");
    crate::world::run(compiler.to_str().unwrap(), &["-o", binary.to_str().unwrap(), source.to_str().unwrap()]);
    for (name, kind) in [("old-default", RuntimeDefault), ("old-none", Unconfined)] {
        let mut config = with(name, kind);
        config.command = vec!["/mnt/old".to_owned()];
        config.mounts.push(v1::Mount {
            container_path: "/mnt/old".to_owned(),
            host_path: binary.display().to_string(),
            ..Default::default()
        });
        let (status, _) = world.run(&pod, config).await;
        match kind {
            RuntimeDefault => assert_eq!(status.exit_code, 128 + 31, "SIGSYS"),
            _ => assert_eq!(status.exit_code, 0),
        }
    }
    Shown::Yes
}

async fn capabilities_are_what_was_asked_for(world: &mut World) -> Shown {
    let pod = world.pod("caps").await;
    let script = "grep ^Cap /proc/self/status";
    let mask = |said: &str, name: &str| {
        let line = said.lines().find(|line| line.starts_with(name)).expect("a line");
        u64::from_str_radix(line.rsplit('\t').next().unwrap(), 16).expect("a mask")
    };
    let usual: u64 = 0xa804_25fb;
    for (name, uid, add, drop, ambient, bounding, effective) in [
        ("usual", 0, vec![], vec![], vec![], usual, usual),
        ("none", 0, vec![], vec!["ALL"], vec![], 0, 0),
        ("one", 0, vec!["NET_ADMIN"], vec!["ALL"], vec![], 1 << 12, 1 << 12),
        ("user", 1000, vec!["NET_ADMIN"], vec!["ALL"], vec![], 1 << 12, 0),
        ("ambient", 1000, vec!["NET_BIND_SERVICE"], vec!["ALL"], vec!["NET_BIND_SERVICE"], 1 << 10, 1 << 10),
    ] {
        let words = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
        let mut config = world.container(name, script);
        let context = security(&mut config);
        context.run_as_user = Some(v1::Int64Value { value: uid });
        context.capabilities = Some(v1::Capability {
            add_capabilities: words(&add),
            drop_capabilities: words(&drop),
            add_ambient_capabilities: words(&ambient),
        });
        let said = world.output(&pod, config).await;
        assert_eq!((mask(&said, "CapBnd"), mask(&said, "CapEff")), (bounding, effective), "{name}: {said}");
    }
    let mut config = world.container("wrong", script);
    security(&mut config).capabilities =
        Some(v1::Capability { add_capabilities: vec!["FLY".to_owned()], ..Default::default() });
    let error = world.create(&pod, config).await.expect_err("unknown");
    assert!(error.message.contains("FLY"), "{error}");
    Shown::Yes
}

async fn a_privileged_container_may_do_all(world: &mut World) -> Shown {
    let pod = world.pod("privileged").await;
    let script = "mount -t tmpfs none /mnt && echo mounted; test -c /dev/kmsg && echo kmsg; ls -l /dev/stdin | grep -o '/proc/self/fd/0';
        mknod /tmp/kmsg c 1 11 && dd if=/tmp/kmsg count=0 2>/dev/null && echo used;
        cd /sys/fs/cgroup && if test -d pids; then cd pids; fi && mkdir probe-$HOSTNAME && rmdir probe-$HOSTNAME && echo cgroups";
    let mut config = world.container("main", script);
    security(&mut config).privileged = true;
    let said = world.output(&pod, config).await;
    assert_eq!(said, "mounted\nkmsg\n/proc/self/fd/0\nused\ncgroups\n");
    Shown::Yes
}

/// CVE-2019-5736: a container has the runtime's program executed inside it, and writes to that.
async fn the_runtimes_own_program_cannot_be_written(world: &mut World) -> Shown {
    let exe = env::current_exe().unwrap();
    let before = (fs::read(&exe).unwrap().len(), fs::metadata(&exe).unwrap().modified().unwrap());
    let pod = world.pod("overwrite").await;
    // In a copy of this machine, as the command itself.
    let mut config = world.container("direct", "");
    config.command = vec!["/proc/self/exe".to_owned(), "overwrite".to_owned()];
    let (status, said) = world.run(&pod, config).await;
    assert_eq!(status.exit_code, 0, "{said}");
    assert!(said.contains("running") && !said.contains("OPENED"), "{said}");
    // Not only because it happens to be running: that ends some time, and a descriptor can wait for it.
    assert_eq!(said.matches("cut: Read-only file system").count(), 2, "{said}");

    // In an image of the attacker's own, through a link and through a script.
    let root = world.dir.join("evil");
    fs::create_dir_all(&root).unwrap();
    std::os::unix::fs::symlink("/proc/self/exe", root.join("entry")).unwrap();
    fs::write(root.join("script"), "#!/proc/self/exe overwrite\n").unwrap();
    fs::set_permissions(root.join("script"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let id = {
        let mut config = world.container("victim", "sleep 1000");
        let attack = |name: &str, command: Vec<&str>| {
            let mut config = world.container(name, "");
            config.image.as_mut().unwrap().image = format!("rootfs:{}", root.display());
            config.command = command.into_iter().map(str::to_owned).collect();
            for dir in ["/lib", "/lib64", "/usr", "/bin"] {
                let mount = v1::Mount {
                    container_path: dir.to_owned(),
                    host_path: dir.to_owned(),
                    readonly: true,
                    ..Default::default()
                };
                config.mounts.push(mount);
            }
            security(&mut config).capabilities =
                Some(v1::Capability { add_capabilities: vec!["ALL".to_owned()], ..Default::default() });
            config
        };
        for (name, command) in [("link", vec!["/entry", "overwrite"]), ("script", vec!["/script"])] {
            let (status, said) = world.run(&pod, attack(name, command)).await;
            // The interpreter of a script gets the script's path as well, which no role of this program takes.
            assert!(!said.contains("OPENED"), "{name}: {said}");
            assert!(name == "script" || (status.exit_code == 0 && said.contains("running")), "{name}: {said}");
        }
        config.command = vec!["/bin/sleep".to_owned(), "1000".to_owned()];
        world.start(&pod, config).await
    };
    // And by a command.
    let command = ["/proc/self/exe".to_owned(), "overwrite".to_owned()];
    let answer = world.cri().exec_sync(&id, &command, std::time::Duration::from_secs(60)).await.expect("it ran");
    let said = String::from_utf8_lossy(&answer.stdout);
    assert!(answer.exit_code == 0 && said.contains("running") && !said.contains("OPENED"), "{said}");
    assert_eq!(before, (fs::read(&exe).unwrap().len(), fs::metadata(&exe).unwrap().modified().unwrap()));
    Shown::Yes
}

/// The attack itself, inside the container.
pub(crate) fn overwrite() -> ExitCode {
    use fs::OpenOptions;
    println!("running from {:?}", fs::read_link("/proc/self/exe"));
    let mut ways: Vec<(&str, OpenOptions)> = Vec::new();
    let options = || OpenOptions::new();
    ways.push(("write", options().write(true).clone()));
    ways.push(("append", options().append(true).clone()));
    ways.push(("both", options().read(true).write(true).clone()));
    ways.push(("cut", options().write(true).truncate(true).clone()));
    let held = fs::File::open("/proc/self/exe").expect("readable");
    let through = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&held));
    for path in ["/proc/self/exe", through.as_str()] {
        for (name, way) in &ways {
            match way.open(path) {
                Ok(_) => println!("OPENED {path} to {name}"),
                Err(error) => println!("{path} {name}: {error}"),
            }
        }
    }
    ExitCode::SUCCESS
}

/// Variables of containers are secrets, and an image may hold programs that run as root.
async fn what_the_runtime_keeps_is_for_root_alone(world: &mut World) -> Shown {
    let pod = world.pod("private").await;
    let mut config = world.container("main", "sleep 1000");
    config.envs.push(v1::KeyValue { key: "PASSWORD".to_owned(), value: "secret".into() });
    security(&mut config).run_as_user = Some(v1::Int64Value { value: 1234 });
    let id = world.start(&pod, config).await;
    // Also where every user may read the directory above.
    fs::set_permissions(&world.dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for path in
        [world.sandbox_dir(&pod.id).join("containers").join(&id).join("config.json"), world.dir.join("root/images")]
    {
        let readable = std::process::Command::new("setpriv")
            .args(["--reuid", "1234", "--regid", "1234", "--clear-groups", "ls"])
            .arg(&path)
            .output()
            .unwrap();
        assert!(path.exists() && !readable.status.success(), "{} is readable for every user", path.display());
    }
    assert_eq!(world.exec(&id, "echo said > /dev/stdout").await, "said\n");
    Shown::Yes
}

async fn kernel_parameters_are_set_in_the_pod_alone(world: &mut World) -> Shown {
    let options = v1::NamespaceOption { network: v1::NamespaceMode::Pod.into(), ..world.options() };
    let mut config = crate::world::pod_config("sysctl", &world.dir.join("logs/sysctl"), options.clone());
    config.linux.as_mut().unwrap().sysctls = [
        ("net.ipv4.ip_unprivileged_port_start".to_owned(), "81".to_owned()),
        ("kernel.msgmax".to_owned(), "9001".to_owned()),
    ]
    .into();
    let pod = world.run_pod(config).await.expect("a sandbox");
    let mut config = world.container(
        "main",
        "cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/msgmax; hostname; cat /etc/hostname",
    );
    security(&mut config).namespace_options = Some(options);
    assert_eq!(world.output(&pod, config).await, "81\n9001\nsysctl\nsysctl\n");
    assert_ne!(fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap().trim(), "81");
    let mut bad = world.pod_config("bad");
    bad.linux.as_mut().unwrap().sysctls = [("kernel.core_pattern".to_owned(), "|/evil".to_owned())].into();
    let error = world.run_pod(bad).await.err().expect("refused");
    assert!(error.message.contains("kernel.core_pattern"), "{error}");
    Shown::Yes
}

/// The umask of the server's parent, and how a shim is spared when memory runs short, are not for containers.
async fn what_the_server_was_started_with_stays_outside(world: &mut World) -> Shown {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    // Where a shim cannot be spared it has this one.
    fs::write("/proc/self/oom_score_adj", "300").unwrap();
    let pod = world.pod("outside").await;
    let about = "umask; cat /proc/self/oom_score_adj; cat /etc/hosts /etc/hostname /etc/resolv.conf > /dev/null";
    for uid in [0, 1000] {
        let name = format!("user-{uid}");
        let mut config = world.container(&name, &format!("{about} && echo complete; sleep 1000"));
        security(&mut config).run_as_user = Some(v1::Int64Value { value: uid });
        let id = world.start(&pod, config).await;
        until("all is printed", async || world.said(&pod, &name).contains("complete").then_some(())).await;
        assert_eq!(world.said(&pod, &name), "0022\n0\ncomplete\n");
        assert_eq!(world.exec(&id, about).await, "0022\n0\n");
    }
    Shown::Yes
}
