//! Pods with users of their own: root in there, an unprivileged user on the node.

use std::{
    fs::{self, File},
    io::Read,
    os::{
        fd::AsRawFd,
        unix::{
            fs::{MetadataExt, PermissionsExt, chown},
            net::UnixStream,
        },
    },
    path::Path,
};

use keelet_cri::v1::{self, NamespaceMode};
use keelet_runtime::OciRuntime;
use keelet_shim::{
    protocol::{Request, SOCKET},
    wire,
};

use crate::{
    Shown, cases,
    survival::{kill, shims},
    world::{Pod, World, pod_config, run, security, until},
};

cases![
    root_in_the_pod_is_unprivileged_on_the_node,
    files_keep_their_owners_on_disk,
    commands_join_the_pods_users,
    root_administers_what_is_the_pods_and_nothing_else,
    users_share_processes_and_memory,
    users_outlive_the_server_and_the_shim,
    a_pods_users_get_its_images_and_devices,
    no_container_has_a_usual_device_of_the_node,
    what_has_no_place_among_a_pods_users_is_refused,
    where_another_program_makes_containers_there_are_none,
];

const LENGTH: u32 = 65_536;

/// The range of the pod with this number.
fn mapping(number: u32) -> v1::IdMapping {
    v1::IdMapping { container_id: 0, host_id: LENGTH * (number + 1), length: LENGTH }
}

pub(crate) fn options(number: u32) -> v1::NamespaceOption {
    let users =
        v1::UserNamespace { mode: NamespaceMode::Pod.into(), uids: vec![mapping(number)], gids: vec![mapping(number)] };
    v1::NamespaceOption {
        pid: NamespaceMode::Container.into(),
        userns_options: Some(users),
        ..v1::NamespaceOption::default()
    }
}

async fn pod_with(world: &World, name: &str, options: v1::NamespaceOption) -> Pod {
    let config = pod_config(name, &world.dir.join("logs").join(name), options);
    world.run_pod(config).await.expect("a sandbox")
}

pub(crate) async fn pod(world: &World, name: &str, number: u32) -> Pod {
    pod_with(world, name, options(number)).await
}

fn container(world: &World, name: &str, script: &str) -> v1::ContainerConfig {
    let mut config = world.container(name, script);
    security(&mut config).namespace_options = Some(options(0));
    config
}

fn volume(inside: &str, outside: &Path, number: Option<u32>) -> v1::Mount {
    let mappings: Vec<_> = number.map(mapping).into_iter().collect();
    v1::Mount {
        container_path: inside.to_owned(),
        host_path: outside.display().to_string(),
        uid_mappings: mappings.clone(),
        gid_mappings: mappings,
        ..v1::Mount::default()
    }
}

/// A line of `/proc/PID/status`: real, effective, saved and file system ID.
fn ids(pid: u32, what: &str) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix(what)).expect(what);
    line.split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

/// Nothing if this kernel can.
pub(crate) fn cannot() -> Option<Shown> {
    keelet_linux::userns::unsupported().map(Shown::Skipped)
}

async fn root_in_the_pod_is_unprivileged_on_the_node(world: &mut World) -> Shown {
    if let Some(skipped) = cannot() {
        return skipped;
    }
    for number in [0, 1] {
        let name = format!("own{number}");
        let pod = pod(world, &name, number).await;
        let said = world
            .output(&pod, container(world, "a", "cat /proc/self/uid_map /proc/self/gid_map; id -u; id -g; id -G"))
            .await;
        let words: Vec<_> = said.split_whitespace().collect();
        let first = mapping(number).host_id.to_string();
        let map = ["0", first.as_str(), "65536"];
        assert_eq!(words, [&map[..], &map[..], &["0"; 3]].concat(), "{said}");
        let id = world.start(&pod, container(world, "b", "sleep 1000")).await;
        let pid = world.pid(&id).await;
        let root = mapping(number).host_id;
        assert_eq!((ids(pid, "Uid:"), ids(pid, "Gid:")), (vec![root; 4], vec![root; 4]));
        assert_eq!(ids(pid, "Groups:"), [root]);
        let mut other = container(world, "c", "sleep 1000");
        security(&mut other).run_as_user = Some(v1::Int64Value { value: 1000 });
        security(&mut other).run_as_group = Some(v1::Int64Value { value: 2000 });
        let id = world.start(&pod, other).await;
        let pid = world.pid(&id).await;
        assert_eq!((ids(pid, "Uid:"), ids(pid, "Gid:")), (vec![root + 1000; 4], vec![root + 2000; 4]));
        // What holds the namespaces has no rights either, and cannot be looked into by the pod's root.
        let status = world.cri().pod_sandbox_status(&pod.id).await.expect("a status");
        assert_eq!(status.linux.unwrap().namespaces.unwrap().options.unwrap(), options(number));
    }
    Shown::Yes
}

async fn files_keep_their_owners_on_disk(world: &mut World) -> Shown {
    if let Some(skipped) = cannot() {
        return skipped;
    }
    let one = pod(world, "files", 0).await;
    let dir = world.dir.join("data");
    fs::create_dir_all(dir.join("of-1000")).unwrap();
    fs::write(dir.join("of-root"), "words\n").unwrap();
    fs::set_permissions(dir.join("of-root"), fs::Permissions::from_mode(0o600)).unwrap();
    chown(dir.join("of-1000"), Some(1000), Some(2000)).unwrap();
    let script = "set -e
        stat -c '%u %g' / /etc /etc/passwd /etc/hosts /etc/resolv.conf /dev/shm /data /data/of-root /data/of-1000 /one /plain
        cat /data/of-root; echo more >>/data/of-root
        touch /data/new; chown 3:4 /data/new; touch /data/of-1000/inner
        echo host >>/etc/hosts; echo shared >/dev/shm/x; echo out >/dev/stdout
        echo changed >>/etc/passwd; touch /made; stat -c '%u %g' /made /etc/passwd
        if touch /plain/x 2>/dev/null; then echo 'wrote as nobody'; fi
        if touch /ro/x 2>/dev/null; then echo 'wrote what is read-only'; fi
        rm /made";
    let mut config = container(world, "main", script);
    config.mounts = vec![
        volume("/data", &dir, Some(0)),
        volume("/one", &dir.join("of-root"), Some(0)),
        v1::Mount { readonly: true, ..volume("/ro", &dir, Some(0)) },
        volume("/plain", &dir, None),
    ];
    let said = world.output(&one, config).await;
    let root = "0 0\n";
    let expected = [root.repeat(8).as_str(), "1000 2000\n", root, "65534 65534\n", "words\nout\n", root, root].concat();
    assert_eq!(said, expected);
    let owner = |name: &str| {
        let found = fs::metadata(dir.join(name)).unwrap();
        (found.uid(), found.gid())
    };
    assert_eq!((owner("of-root"), owner("new"), owner("of-1000/inner")), ((0, 0), (3, 4), (0, 0)));
    assert_eq!(fs::read_to_string(dir.join("of-root")).unwrap(), "words\nmore\n");
    // Another pod has another range, and the same files.
    let other = pod(world, "other", 1).await;
    let mut config = container(world, "main", "stat -c '%u %g' /data/new; cat /data/of-root");
    config.mounts = vec![volume("/data", &dir, Some(1))];
    assert_eq!(world.output(&other, config).await, "3 4\nwords\nmore\n");
    Shown::Yes
}

/// What a command says on a terminal of its own, asked of the shim itself.
fn on_a_terminal(world: &World, pod: &Pod, id: &str, script: &str) -> String {
    // The path of a socket must be short.
    let dir = File::open(world.sandbox_dir(&pod.id)).expect("the sandbox's directory");
    let place = format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd());
    let socket = UnixStream::connect(place).expect("a shim");
    let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let request = Request::Exec { id: id.to_owned(), command, terminal: true, cgroup: None };
    let line = serde_json::to_string(&request).expect("JSON") + "\n";
    let sent = wire::send_some(&socket, line.as_bytes(), &[]).expect("asked");
    assert_eq!(sent, line.len());
    let (mut answer, mut fds) = ([0; 4096], Vec::new());
    let length = wire::receive(&socket, &mut answer, &mut fds).expect("an answer");
    let terminal = fds.pop().unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&answer[..length])));
    let mut said = Vec::new();
    // A terminal that no process has open any more is an error to read from.
    let _ = File::from(terminal).read_to_end(&mut said);
    String::from_utf8_lossy(&said).into_owned()
}

async fn commands_join_the_pods_users(world: &mut World) -> Shown {
    if let Some(skipped) = cannot() {
        return skipped;
    }
    let pod = pod(world, "exec", 0).await;
    let id = world.start(&pod, container(world, "main", "sleep 1000")).await;
    let script =
        "id -u; id -G; cut -c1-80 /proc/self/uid_map | tr -s ' '; echo out >/dev/stdout; echo err >/dev/stderr";
    assert_eq!(world.exec(&id, script).await, "0\n0\n 0 65536 65536\nout\n");
    let mut other = container(world, "other", "sleep 1000");
    security(&mut other).run_as_user = Some(v1::Int64Value { value: 1000 });
    security(&mut other).run_as_group = Some(v1::Int64Value { value: 2000 });
    security(&mut other).supplemental_groups = vec![7];
    security(&mut other).supplemental_groups_policy = v1::SupplementalGroupsPolicy::Strict.into();
    let id = world.start(&pod, other).await;
    assert_eq!(world.exec(&id, "id -u; id -G; echo out >/dev/stdout").await, "1000\n2000 7\nout\n");
    let said = on_a_terminal(world, &pod, &id, "stat -c %u $(tty); echo x >/dev/tty; id -u");
    assert_eq!(said.replace('\r', ""), "1000\nx\n1000\n");
    // A terminal belongs to the user that the container runs as.
    let mut terminal = container(world, "terminal", "stat -c %u $(tty); echo x >/dev/tty && echo could");
    terminal.tty = true;
    security(&mut terminal).run_as_user = Some(v1::Int64Value { value: 1000 });
    let said = world.output(&pod, terminal).await.replace('\r', "");
    assert_eq!(said, "1000\nx\ncould\n");
    Shown::Yes
}

async fn root_administers_what_is_the_pods_and_nothing_else(world: &mut World) -> Shown {
    if let Some(skipped) = cannot() {
        return skipped;
    }
    let mut config = pod_config("admin", &world.dir.join("logs/admin"), options(0));
    let linux = config.linux.get_or_insert_default();
    linux.sysctls.insert("net.ipv4.ip_unprivileged_port_start".to_owned(), "81".to_owned());
    linux.sysctls.insert("kernel.shm_rmid_forced".to_owned(), "1".to_owned());
    let pod = world.run_pod(config).await.expect("a sandbox");
    let ip = world.cri().pod_sandbox_status(&pod.id).await.expect("a status").network.unwrap().ip;
    // Nothing of /proc is masked, as with procMount: Unmasked.
    let script = "cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shm_rmid_forced
        hostname; hostname -I
        echo 82 >/proc/sys/net/ipv4/ip_unprivileged_port_start && cat /proc/sys/net/ipv4/ip_unprivileged_port_start
        for node in /proc/sys/kernel/panic /proc/sys/vm/swappiness /proc/sysrq-trigger /proc/sys/kernel/core_pattern; do
            if (echo 0 >$node) 2>/dev/null; then echo \"wrote $node\"; fi
        done
        mount -t tmpfs none /mnt && echo mounted
        mknod /dev/mine b 1 1 2>/dev/null && echo 'made a device'
        true";
    let mut config = container(world, "main", script);
    let add = ["NET_ADMIN", "SYS_ADMIN"].map(str::to_owned).to_vec();
    security(&mut config).capabilities = Some(v1::Capability { add_capabilities: add, ..Default::default() });
    let said = world.output(&pod, config).await;
    assert_eq!(said, format!("81\n1\nadmin\n{ip} \n82\nmounted\n"));
    Shown::Yes
}

async fn users_share_processes_and_memory(world: &mut World) -> Shown {
    if let Some(skipped) = cannot() {
        return skipped;
    }
    let shared = v1::NamespaceOption { pid: NamespaceMode::Pod.into(), ..options(0) };
    let pod = pod_with(world, "shared", shared.clone()).await;
    let mut first = container(world, "first", "echo here >/dev/shm/x; sleep 7761");
    security(&mut first).namespace_options = Some(shared.clone());
    let id = world.start(&pod, first).await;
    assert_eq!(world.exec(&id, "cat /proc/1/comm").await, "pause\n");
    until("it has written", async || (world.exec(&id, "cat /dev/shm/x || true").await == "here\n").then_some(())).await;
    let mut second = container(
        world,
        "second",
        "cat /dev/shm/x; pgrep -f 'sleep 7761' >/dev/null && echo seen
        ls /proc/1/root/ 2>/dev/null; cat /proc/1/environ 2>/dev/null; readlink /proc/1/exe
        if (echo >/proc/1/mem) 2>/dev/null; then echo 'wrote to the holder'; fi
        true",
    );
    security(&mut second).namespace_options = Some(shared);
    let add = ["SYS_PTRACE", "SYS_ADMIN"].map(str::to_owned).to_vec();
    security(&mut second).capabilities = Some(v1::Capability { add_capabilities: add, ..Default::default() });
    assert_eq!(world.output(&pod, second).await, "here\nseen\n", "the holder of the namespaces leads nowhere");
    Shown::Yes
}

async fn users_outlive_the_server_and_the_shim(world: &mut World) -> Shown {
    if let Some(skipped) = cannot() {
        return skipped;
    }
    let pod = pod(world, "survivor", 3).await;
    let id = world.start(&pod, container(world, "main", "sleep 1000")).await;
    let map = "0 262144 65536";
    let script = "tr -s ' ' </proc/self/uid_map";
    assert_eq!(world.exec(&id, script).await.trim(), map);
    world.reopen().await;
    assert_eq!(world.exec(&id, script).await.trim(), map);
    let old = shims();
    old.iter().copied().for_each(kill);
    until("another shim runs", async || shims().iter().any(|pid| !old.contains(pid)).then_some(())).await;
    until("it answers", async || world.try_exec(&id, "true", 60).await.ok()).await;
    assert_eq!(world.exec(&id, script).await.trim(), map);
    let again = world.output(&pod, container(world, "again", script)).await;
    assert_eq!(again.trim(), map, "a container that is made later joins the same");
    Shown::Yes
}

async fn a_pods_users_get_its_images_and_devices(world: &mut World) -> Shown {
    if let Some(skipped) = cannot() {
        return skipped;
    }
    let name = "example.org/web:1";
    let archive = crate::images::archive(name);
    world.engine().images().import(archive.as_slice(), None).expect("imported");
    let image = v1::ImageSpec { image: name.to_owned(), ..Default::default() };
    let pod = pod(world, "image", 0).await;
    let mut config = container(world, "main", "stat -c '%u %g' / /bin/stat /vol/data; cat /vol/data/inner/file; id");
    config.image = Some(image.clone());
    config.mounts = vec![v1::Mount { image: Some(image), ..volume("/vol", Path::new(""), Some(0)) }];
    let said = world.output(&pod, config).await;
    assert_eq!(said, "0 0\n0 0\n0 0\nfrom the image\nuid=501(web) gid=502(web) groups=502(web),503(extra)\n");
    let mut config =
        container(world, "devices", "echo x >/dev/nothing; head -c 3 /dev/zero | wc -c; test ! -s /dev/nothing");
    config.devices = vec![v1::Device {
        host_path: "/dev/null".to_owned(),
        container_path: "/dev/nothing".to_owned(),
        permissions: "rw".to_owned(),
    }];
    assert_eq!(world.output(&pod, config).await, "3\n");
    // All devices are there for a privileged one, with the permissions that every user has.
    let script = "test -c /dev/full && mount -t tmpfs none /mnt && echo mounted
        for device in /dev/*; do
            if [ -b $device ] && head -c 1 $device >/dev/null 2>&1; then echo \"read $device\"; fi
        done";
    let mut config = container(world, "privileged", script);
    security(&mut config).privileged = true;
    assert_eq!(world.output(&pod, config).await, "mounted\n");
    Shown::Yes
}

async fn what_has_no_place_among_a_pods_users_is_refused(world: &mut World) -> Shown {
    if let Some(skipped) = cannot() {
        return skipped;
    }
    let refused = async |options: v1::NamespaceOption, why: &str| {
        let config = pod_config("refused", &world.dir.join("logs/refused"), options);
        let error = world.cri().run_pod_sandbox(config, "").await.expect_err(why);
        assert!(error.message.contains(why), "{error}");
    };
    refused(v1::NamespaceOption { network: NamespaceMode::Node.into(), ..options(0) }, "network").await;
    let mut twice = options(0);
    twice.userns_options.as_mut().unwrap().uids.push(mapping(7));
    refused(twice, "2 mappings").await;
    let pod = pod(world, "places", 0).await;
    let mut config = container(world, "user", "true");
    security(&mut config).run_as_user = Some(v1::Int64Value { value: 70_000 });
    let error = world.create(&pod, config).await.expect_err("no such user");
    assert!(error.message.contains("user ID 70000 is not mapped"), "{error}");
    // A file system that cannot translate.
    let dir = world.dir.join("ramfs");
    fs::create_dir_all(&dir).unwrap();
    run("mount", &["-t", "ramfs", "none", dir.to_str().unwrap()]);
    let mut config = container(world, "ramfs", "true");
    config.mounts = vec![volume("/data", &dir, Some(0))];
    let id = world.create(&pod, config).await.expect("created");
    let error = world.cri().start_container(&id).await.expect_err("it cannot be translated");
    assert!(error.message.contains("\"/data\"") && error.message.contains("user namespace"), "{error}");
    run("umount", &[dir.to_str().unwrap()]);
    Shown::Yes
}

async fn where_another_program_makes_containers_there_are_none(world: &mut World) -> Shown {
    if let Some(skipped) = cannot() {
        return skipped;
    }
    assert!(world.cri().handler_features("").await.expect("a status").user_namespaces);
    let before = pod(world, "before", 0).await;
    world.settings.oci_runtime = OciRuntime::Program("/bin/true".into());
    world.reopen().await;
    for handler in ["", "keelet", "unknown"] {
        assert!(!world.cri().handler_features(handler).await.expect("a status").user_namespaces, "{handler:?}");
    }
    let config = pod_config("refused", &world.dir.join("logs/refused"), options(0));
    let error = world.cri().run_pod_sandbox(config, "").await.expect_err("refused");
    assert!(error.message.contains("hostUsers") && error.message.contains("/bin/true"), "{error}");
    let error =
        world.create(&before, container(world, "late", "true")).await.expect_err("in a pod of an earlier server");
    assert!(error.message.contains("hostUsers") && error.message.contains("/bin/true"), "{error}");
    Shown::Yes
}

/// Devices that every container has are its own: a process that has one open for writing may set its times and lock it,
/// also without any rights on the node; root without a user namespace may change its mode and owner.
async fn no_container_has_a_usual_device_of_the_node(world: &mut World) -> Shown {
    // The node's in here is another one than this machine's, which no test may change.
    let null = world.dir.join("null");
    run("mknod", &["-m", "666", null.to_str().unwrap(), "c", "1", "3"]);
    run("mount", &["--bind", null.to_str().unwrap(), "/dev/null"]);
    let nodes = || {
        let found = fs::metadata("/dev/null").unwrap();
        let (mode, uid, gid) = (found.mode(), found.uid(), found.gid());
        format!("mode {mode:o}, owner {uid}:{gid}, changed {}.{:09}", found.ctime(), found.ctime_nsec())
    };
    let change = "for file in /dev/null /proc/self/fd/0; do \
                  chmod 600 $file; chown 5:5 $file; touch $file; touch -d 2001-01-01 $file; done 2>/tmp/refused; true";
    let devices = ["/dev/null", "/proc/self/fd/0", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
    let look = format!("stat -L -c '%t:%T %d:%i %n' {}", devices.join(" "));
    let mut pods = vec![("the node's users", world.pod("nodes").await, world.container("main", &look))];
    if cannot().is_none() {
        pods.push(("users of its own", pod(world, "own", 0).await, container(world, "main", &look)));
    }
    let before = nodes();
    for (users, pod, mut config) in pods {
        let said = world.output(&pod, config.clone()).await;
        assert_eq!(said.lines().count(), devices.len(), "{users}: {said}");
        for line in said.lines() {
            let [number, inode, name] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let node = fs::metadata(if name.starts_with("/proc") { "/dev/null" } else { name }).unwrap();
            let rdev = format!("{:x}:{:x}", rustix::fs::major(node.rdev()), rustix::fs::minor(node.rdev()));
            assert_eq!(number, rdev, "{users}: {name}");
            assert_ne!(inode, format!("{}:{}", node.dev(), node.ino()), "{users}: {name} is the node's");
        }
        config.metadata.as_mut().unwrap().attempt = 1;
        config.command[2] = change.to_owned();
        world.run(&pod, config).await;
        assert_eq!(nodes(), before, "{users}: the node's null device");
    }
    // Shims have it open.
    run("umount", &["--lazy", "/dev/null"]);
    Shown::Yes
}
