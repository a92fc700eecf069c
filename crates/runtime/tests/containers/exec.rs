//! Commands in containers that run.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt, time::Duration};

use keelet_cri::{ErrorKind, v1};

use crate::{
    Shown, cases, survival,
    world::{World, run, security, until},
};

cases![
    a_command_answers_with_its_output_and_code,
    what_cannot_be_run_says_why,
    a_timeout_kills_the_whole_tree,
    a_dropped_call_kills_the_whole_tree,
    a_child_that_keeps_the_output_does_not_hold_the_answer,
    a_command_has_all_that_the_container_has,
    a_command_has_a_null_device_of_its_own,
    a_shim_without_descriptors_begins_no_command,
];

async fn a_command_answers_with_its_output_and_code(world: &mut World) -> Shown {
    let pod = world.pod("exec").await;
    let mut config = world.container("main", "sleep 1000");
    config.envs.push(v1::KeyValue { key: "COLOUR".to_owned(), value: "blue".into() });
    config.working_dir = "/usr".to_owned();
    let id = world.start(&pod, config).await;
    let answer = world.try_exec(&id, "echo out; echo err >&2; echo $COLOUR; pwd; exit 9", 60).await.expect("it ran");
    assert_eq!(answer.exit_code, 9);
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "out\nblue\n/usr\n");
    assert_eq!(String::from_utf8_lossy(&answer.stderr), "err\n");
    assert_eq!(world.try_exec(&id, "kill -KILL $$", 60).await.expect("it ran").exit_code, 137);
    let much = world.try_exec(&id, "seq 1 100000", 60).await.expect("it ran");
    assert!(much.stdout.ends_with(b"99999\n100000\n"));
    assert_eq!(world.exec(&id, "cat").await, "", "there is nothing to read");
    assert_eq!(world.log(&pod, "main"), "", "a command's output is not the container's");
    // Many at once.
    let many = futures::future::join_all((0..20).map(|number| {
        let world = &*world;
        let id = id.clone();
        async move { world.try_exec(&id, &format!("exit {number}"), 60).await.expect("it ran").exit_code }
    }));
    assert_eq!(many.await, (0..20).collect::<Vec<_>>());
    Shown::Yes
}

async fn what_cannot_be_run_says_why(world: &mut World) -> Shown {
    let pod = world.pod("errors").await;
    let id = world.start(&pod, world.container("main", "sleep 1000")).await;
    let error = world.cri().exec_sync(&id, &["no-such".to_owned()], Duration::from_secs(9)).await.expect_err("no");
    assert!(error.message.contains("exec: \"no-such\": executable file not found in $PATH"), "{error}");
    let error = world.cri().exec_sync(&id, &[], Duration::from_secs(9)).await.expect_err("no");
    assert!(error.message.contains("no command"), "{error}");
    let zero = ["/bin/echo".to_owned(), "a\0b".to_owned()];
    world.cri().exec_sync(&id, &zero, Duration::from_secs(9)).await.expect_err("a zero byte");
    world.cri().stop_container(&id, Duration::ZERO).await.expect("stopped");
    let error = world.try_exec(&id, "true", 9).await.expect_err("it has ended");
    assert!(error.message.contains("is not running"), "{error}");
    Shown::Yes
}

/// A tree with a child that left the session, and one whose parent has ended.
const TREE: &str = "sleep 7771 & setsid sleep 7772 & (setsid sh -c 'sleep 7773 & sleep 7774 & exit' &) ; sleep 7775";

fn sleepers() -> usize {
    let count = |name: &String| {
        let text = fs::read_to_string(format!("/proc/{name}/cmdline")).unwrap_or_default();
        text.contains("sleep\x00777")
    };
    crate::world::names(std::path::Path::new("/proc")).iter().filter(|name| count(name)).count()
}

async fn a_timeout_kills_the_whole_tree(world: &mut World) -> Shown {
    let pod = world.pod("timeout").await;
    let id = world.start(&pod, world.container("main", "sleep 1000")).await;
    // On a busy machine the tree may not be complete when the time is over: then with more time.
    let mut seconds = 2;
    loop {
        let mut most = 0;
        let call = world.try_exec(&id, TREE, seconds);
        tokio::pin!(call);
        let error = loop {
            tokio::select! {
                done = &mut call => break done.expect_err("too long"),
                () = tokio::time::sleep(Duration::from_millis(20)) => most = most.max(sleepers()),
            }
        };
        assert_eq!(error.kind, ErrorKind::Deadline, "{error}");
        until("all are gone", async || (sleepers() == 0).then_some(())).await;
        if most == 5 {
            break;
        }
        seconds *= 2;
        assert!(seconds <= 64, "of five processes no more than {most} ran within {} s", seconds / 2);
    }
    assert_eq!(world.state(&id).await, v1::ContainerState::ContainerRunning);
    // However short the time is: the command may not even have been started then.
    for _ in 0..10 {
        let command = ["/bin/sh".to_owned(), "-c".to_owned(), TREE.to_owned()];
        let call = world.cri().exec_sync(&id, &command, Duration::from_secs(1));
        let _ = tokio::time::timeout(Duration::from_millis(5), call).await;
    }
    // The shim does one thing after the other: whatever it will ever start of those is started when this one has ended.
    assert_eq!(world.exec(&id, "echo after").await, "after\n");
    until("all are gone", async || (sleepers() == 0).then_some(())).await;
    Shown::Yes
}

async fn a_dropped_call_kills_the_whole_tree(world: &mut World) -> Shown {
    let pod = world.pod("dropped").await;
    let id = world.start(&pod, world.container("main", "sleep 1000")).await;
    {
        let call = world.try_exec(&id, TREE, 100);
        tokio::pin!(call);
        until("they run", async || {
            tokio::select! {
                _ = &mut call => panic!("it does not end"),
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
            (sleepers() == 5).then_some(())
        })
        .await;
    }
    until("all are gone", async || (sleepers() == 0).then_some(())).await;
    assert_eq!(world.state(&id).await, v1::ContainerState::ContainerRunning);
    Shown::Yes
}

async fn a_child_that_keeps_the_output_does_not_hold_the_answer(world: &mut World) -> Shown {
    let pod = world.pod("held").await;
    let id = world.start(&pod, world.container("main", "sleep 1000")).await;
    let begun = std::time::Instant::now();
    let answer = world.try_exec(&id, "sleep 7771 & echo started; exit 3", 60).await.expect("it ran");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!((answer.exit_code, answer.stdout.as_slice()), (3, b"started\n".as_slice()));
    // The child that the command left keeps running, as everywhere, and may yet have to become the `sleep` that is counted.
    until("what it left runs", async || (sleepers() == 1).then_some(())).await;
    world.cri().stop_container(&id, Duration::ZERO).await.expect("stopped");
    until("it went with the container", async || (sleepers() == 0).then_some(())).await;
    Shown::Yes
}

/// Says all of itself that a process can say.
const ABOUT: &str = r#"
grep -E '^(Uid|Gid|Groups|CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp|Seccomp_filters|SigBlk|SigIgn|Umask|Cpus_allowed|Mems_allowed):' /proc/self/status
sed 's/^/cgroup /; s#:/exec-[0-9]*-[0-9]*$#:/#; s#/exec-[0-9]*-[0-9]*$##' /proc/self/cgroup
for ns in mnt pid net ipc uts user cgroup; do echo "ns $ns $(readlink /proc/self/ns/$ns)"; done
echo "oom $(cat /proc/self/oom_score_adj)"
echo "cwd $(pwd) root $(stat -c %d:%i /)"
echo "limits $(ulimit -a | md5sum)"
env | grep -v -E '^(_|SHLVL|OLDPWD)=' | sort | sed 's/^/env /'
"#;

fn facts(text: &str) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    for line in text.lines() {
        let end = line.find([':', '\t']).filter(|_| !line.starts_with("env ") && !line.starts_with("ns "));
        let key = match end {
            Some(end) if !line.starts_with("cgroup ") => line[..end].to_owned(),
            _ => line.rsplit_once(' ').map_or(line, |(key, _)| key).to_owned(),
        };
        facts.insert(format!("{key} #{}", facts.len()), line.to_owned());
    }
    facts
}

async fn a_command_has_all_that_the_container_has(world: &mut World) -> Shown {
    let pod = world.pod("same").await;
    let runtime_default = v1::SecurityProfile {
        profile_type: v1::security_profile::ProfileType::RuntimeDefault.into(),
        ..Default::default()
    };
    for (name, uid, no_new_privs, filtered, privileged) in [
        ("root", 0, false, false, false),
        ("user", 1000, true, true, false),
        ("user-privs", 1001, false, true, false),
        ("root-filtered", 0, false, true, false),
        ("privileged", 0, false, false, true),
    ] {
        let mut config = world.container(name, &format!("{ABOUT}\necho complete; sleep 1000"));
        config.envs.push(v1::KeyValue { key: "COLOUR".to_owned(), value: "blue green".into() });
        config.working_dir = "/usr/share".to_owned();
        config.linux.as_mut().unwrap().resources =
            Some(v1::LinuxContainerResources { oom_score_adj: 321, cpu_shares: 100, ..Default::default() });
        let context = security(&mut config);
        context.run_as_user = Some(v1::Int64Value { value: uid });
        context.run_as_group = Some(v1::Int64Value { value: uid + 1 });
        context.supplemental_groups = vec![77, 78];
        context.no_new_privs = no_new_privs;
        context.privileged = privileged;
        context.seccomp = filtered.then(|| runtime_default.clone());
        context.capabilities = Some(v1::Capability {
            add_capabilities: vec!["SYS_TIME".to_owned()],
            drop_capabilities: vec!["CHOWN".to_owned()],
            ..Default::default()
        });
        let id = world.start(&pod, config).await;
        until("all is printed", async || world.said(&pod, name).contains("complete").then_some(())).await;
        let init = world.said(&pod, name);
        let init = init.split("complete").next().unwrap();
        let command = world.exec(&id, ABOUT).await;
        assert_eq!(facts(init), facts(&command), "{name}");
        assert!(init.contains("oom 321"), "{init}");
        assert!(init.contains("SigIgn:\t0000000000000000"), "nothing is ignored from the start: {init}");
        assert!(init.contains(&format!("Uid:\t{uid}")), "{init}");
        assert!(init.contains(&format!("Groups:\t77 78 {}", uid + 1)) || init.contains("77 78"), "{init}");
        assert_eq!(init.contains("NoNewPrivs:\t1"), no_new_privs, "{init}");
        assert_eq!(init.contains("Seccomp:\t2"), filtered, "{init}");
    }
    Shown::Yes
}

/// A command without input reads from a null device. What a container does to that one it does to no other: neither to its mode, which root
/// in there may change, nor to its owner, which the runtime sets and must not, whatever the container has for `/dev/null`.
async fn a_command_has_a_null_device_of_its_own(world: &mut World) -> Shown {
    // The node's in here is another one than this machine's, which no test may change.
    let null = world.dir.join("null");
    run("mknod", &["-m", "666", null.to_str().unwrap(), "c", "1", "3"]);
    run("mount", &["--bind", null.to_str().unwrap(), "/dev/null"]);
    let nodes = || {
        let found = fs::metadata("/dev/null").unwrap();
        format!("mode {:o}, owner {}:{}", found.mode(), found.uid(), found.gid())
    };
    let (before, inode) = (nodes(), fs::metadata("/dev/null").unwrap().ino());
    let pod = world.pod("null").await;
    let root = world.start(&pod, world.container("root", "sleep 1000")).await;
    let script = "stat -L -c '%i %t:%T %F' /proc/self/fd/0; cat; echo words > /dev/stdin; chmod 600 /proc/self/fd/0";
    let said = world.exec(&root, script).await;
    let (its, what) = said.trim().split_once(' ').unwrap();
    assert_eq!(what, "1:3 character special file", "standard input of a command");
    assert_ne!(its, inode.to_string(), "a command got the node's null device");
    assert_eq!(nodes(), before, "the node's null device after a container changed its own");
    assert_eq!(world.exec(&root, "cat; stat -L -c %a /proc/self/fd/0").await, "666\n", "the next command's");
    // One that has no /dev/null, so that no path in it says which device that is.
    let empty = world.dir.join("empty");
    fs::create_dir_all(&empty).unwrap();
    let mut config = world.container("user", "sleep 1000");
    security(&mut config).run_as_user = Some(v1::Int64Value { value: 1234 });
    config.mounts = vec![v1::Mount {
        container_path: "/dev".to_owned(),
        host_path: empty.display().to_string(),
        ..Default::default()
    }];
    let user = world.start(&pod, config).await;
    assert_eq!(world.exec(&user, "id -u; test -e /dev/null || echo none").await, "1234\nnone\n");
    assert_eq!(nodes(), before, "the node's null device after a command of a container without one");
    // Shims have it open.
    run("umount", &["--lazy", "/dev/null"]);
    Shown::Yes
}

/// PROBE-47: wherever a shim runs out of descriptors, the command was not begun and the answer says so. Nothing is said about the
/// command, which would count as a failure of the container, and the call does not wait until its time is over.
async fn a_shim_without_descriptors_begins_no_command(world: &mut World) -> Shown {
    use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
    let pod = world.pod("scarce").await;
    let id = world.start(&pod, world.container("main", "sleep 1000")).await;
    let [shim] = survival::shims()[..] else { panic!("one shim, not {:?}", survival::shims()) };
    let pid = Pid::from_raw(shim.cast_signed()).expect("a PID");
    // The first command makes what later ones use.
    assert_eq!(world.try_exec(&id, "exit 7", 60).await.expect("it ran").exit_code, 7);
    let open = fs::read_dir(format!("/proc/{shim}/fd")).expect("its descriptors").flatten();
    let open = open.count() as u64;
    let usual = getrlimit(Resource::Nofile);
    let (mut begun, mut refused) = (0, 0);
    // Descriptors have the lowest numbers that are free, so this is from none to more than a command needs.
    for free in 0..32 {
        prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(open + free), ..usual }).expect("set");
        match world.try_exec(&id, "exit 7", 60).await {
            Ok(answer) => {
                assert_eq!(answer.exit_code, 7, "with {free} free descriptors");
                begun += 1;
            }
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Exhausted, "with {free} free descriptors: {error}");
                refused += 1;
            }
        }
    }
    assert!(begun > 0 && refused > 0, "{begun} commands were begun, {refused} refused");
    prlimit(Some(pid), Resource::Nofile, usual).expect("set");
    assert_eq!(world.exec(&id, "echo here").await, "here\n");
    assert_eq!(survival::shims(), [shim], "the shim was not replaced");
    Shown::Yes
}
