//! What cannot be: refused with precise words, and nothing runs.

use keelet_cri::{ErrorKind, v1};

use crate::{
    Shown, cases,
    world::{World, security},
};

cases![
    what_cannot_be_started_says_why,
    a_missing_working_directory_is_made,
    a_working_directory_does_not_lead_out,
    a_filter_that_cannot_be_made_refuses_the_start,
    hostile_requests_are_refused,
    requests_that_are_not_implemented_are_refused,
];

async fn what_cannot_be_started_says_why(world: &mut World) -> Shown {
    let pod = world.pod("errors").await;
    std::fs::write(world.dir.join("script"), "#!/bin/sh\n").unwrap();
    std::fs::write(world.dir.join("garbage"), "garbage").unwrap();
    std::fs::set_permissions(world.dir.join("garbage"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let script = world.dir.join("script").display().to_string();
    for (name, command, words) in [
        ("missing", vec!["no-such-program"], "exec: \"no-such-program\": executable file not found in $PATH"),
        ("absent", vec!["/no/such/program"], "exec: \"/no/such/program\": no such file or directory"),
        ("directory", vec!["/usr"], "exec: \"/usr\": "),
        ("garbage", vec!["/mnt/garbage"], "exec: \"/mnt/garbage\": exec format error"),
        ("forbidden", vec!["/mnt/script"], "exec: \"/mnt/script\": permission denied"),
    ] {
        let mut config = world.container(name, "");
        config.command = command.into_iter().map(str::to_owned).collect();
        config.mounts.push(v1::Mount {
            container_path: "/mnt/script".to_owned(),
            host_path: script.clone(),
            ..Default::default()
        });
        config.mounts.push(v1::Mount {
            container_path: "/mnt/garbage".to_owned(),
            host_path: world.dir.join("garbage").display().to_string(),
            ..Default::default()
        });
        let id = world.create(&pod, config).await.expect("created");
        let error = world.cri().start_container(&id).await.expect_err("must not start");
        assert!(error.message.to_lowercase().contains(&words.to_lowercase()), "{name}: {error}");
        let status = world.status(&id).await;
        assert_eq!(
            (status.state(), status.exit_code, status.reason.as_str()),
            (v1::ContainerState::ContainerExited, 128, "StartError")
        );
        assert!(status.message.to_lowercase().contains(&words.to_lowercase()), "{}", status.message);
        assert!(status.started_at == 0 && status.finished_at > 0, "{status:?}");
        assert_eq!(world.log(&pod, name), "", "nothing of it is the container's to say");
        world.cri().remove_container(&id).await.expect("removed");
    }
    Shown::Yes
}

/// As with runc: an image need not have the directory that a pod names.
async fn a_missing_working_directory_is_made(world: &mut World) -> Shown {
    let pod = world.pod("workdir").await;
    let mut config = world.container("root", "pwd; stat -c '%u:%g %a' .");
    config.working_dir = "/somewhere/new".to_owned();
    assert_eq!(world.output(&pod, config).await, "/somewhere/new\n0:0 755\n");
    let mut config = world.container("user", "pwd; stat -c '%u:%g %a' .; id -u");
    config.working_dir = "/somewhere/else".to_owned();
    security(&mut config).run_as_user = Some(v1::Int64Value { value: 1234 });
    assert_eq!(world.output(&pod, config).await, "/somewhere/else\n0:0 755\n1234\n");
    // One that only its user may enter.
    let mut config = world.container("file", "pwd");
    config.working_dir = "/etc/passwd".to_owned();
    let id = world.create(&pod, config).await.expect("created");
    let error = world.cri().start_container(&id).await.expect_err("a file is no directory");
    assert!(error.message.contains("/etc/passwd"), "{error}");
    Shown::Yes
}

/// A descriptor that is open while a container is made must not be a way to the node.
async fn a_working_directory_does_not_lead_out(world: &mut World) -> Shown {
    let pod = world.pod("leak").await;
    let outside = std::fs::metadata("/").map(|root| std::os::unix::fs::MetadataExt::ino(&root)).unwrap();
    for number in 3..24 {
        let name = format!("fd{number}");
        let mut config = world.container(&name, "pwd; ls -id ../../../../../../../../..");
        config.working_dir = format!("/proc/self/fd/{number}");
        let id = world.create(&pod, config).await.expect("created");
        if world.cri().start_container(&id).await.is_ok() {
            world.ended(&id).await;
            let said = world.said(&pod, &name);
            panic!("started in /proc/self/fd/{number} and sees {said}; the node's root is {outside}");
        }
        world.cri().remove_container(&id).await.expect("removed");
    }
    let id = world.start(&pod, world.container("main", "sleep 1000")).await;
    // The same way into a command: its directory is the container's.
    let spec = world.sandbox_dir(&pod.id).join("containers").join(&id).join("config.json");
    let text = std::fs::read_to_string(&spec).unwrap();
    for number in 3..40 {
        std::fs::write(&spec, text.replace("\"cwd\":\"/\"", &format!("\"cwd\":\"/proc/self/fd/{number}\""))).unwrap();
        let answer = world.try_exec(&id, "pwd", 20).await;
        assert!(answer.is_err(), "a command got /proc/self/fd/{number}: {answer:?}");
    }
    std::fs::write(&spec, &text).unwrap();
    assert_eq!(world.exec(&id, "pwd").await, "/\n");
    Shown::Yes
}

async fn a_filter_that_cannot_be_made_refuses_the_start(world: &mut World) -> Shown {
    let pod = world.pod("closed").await;
    let profile = world.dir.join("profile.json");
    let trace = world.dir.join("ran");
    for (name, text) in [
        ("garbage", "not JSON"),
        ("unknown", r#"{"defaultAction":"SCMP_ACT_NONSENSE"}"#),
        ("arch", r#"{"defaultAction":"SCMP_ACT_ALLOW","architectures":["SCMP_ARCH_NONSENSE"]}"#),
        ("absent", ""),
    ] {
        if !text.is_empty() {
            std::fs::write(&profile, text).unwrap();
        }
        let mut config = world.container(name, "touch /mnt/ran");
        config.mounts.push(v1::Mount {
            container_path: "/mnt".to_owned(),
            host_path: world.dir.display().to_string(),
            ..Default::default()
        });
        let path = if name == "absent" { "/no/such/profile".to_owned() } else { profile.display().to_string() };
        security(&mut config).seccomp = Some(v1::SecurityProfile {
            profile_type: v1::security_profile::ProfileType::Localhost.into(),
            localhost_ref: path.clone(),
        });
        let error = world.create(&pod, config).await.expect_err("refused");
        assert!(error.message.contains(&path), "{name}: {error}");
    }
    // One that turned bad after the container was made.
    let id = world.create(&pod, world.container("late", "touch /mnt/ran")).await.expect("created");
    let spec = world.sandbox_dir(&pod.id).join("containers").join(&id).join("config.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&spec).unwrap()).unwrap();
    json["linux"]["seccomp"] = serde_json::json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": ["mount"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 9, "value": 1, "op": "SCMP_CMP_EQ"}]}],
    });
    std::fs::write(&spec, json.to_string()).unwrap();
    let error = world.cri().start_container(&id).await.expect_err("refused");
    assert!(error.message.contains("seccomp"), "{error}");
    assert!(!trace.exists(), "something ran");
    Shown::Yes
}

/// What the runtime does not do, and a client would rely on, is no container at all.
async fn requests_that_are_not_implemented_are_refused(world: &mut World) -> Shown {
    let pod = world.pod("promises").await;
    let mut confined = world.container("confined", "true");
    security(&mut confined).apparmor = Some(v1::SecurityProfile {
        profile_type: v1::security_profile::ProfileType::Localhost.into(),
        localhost_ref: "strict".to_owned(),
    });
    let mut equipped = world.container("equipped", "true");
    equipped.cdi_devices.push(v1::CdiDevice { name: "vendor.com/gpu=0".to_owned() });
    for (config, words) in [(confined, "AppArmor profile \"strict\""), (equipped, "device \"vendor.com/gpu=0\"")] {
        let error = world.create(&pod, config).await.expect_err("refused");
        assert!(error.message.contains(words), "{error}");
    }
    Shown::Yes
}

async fn hostile_requests_are_refused(world: &mut World) -> Shown {
    let cri = world.cri();
    for id in ["", ".", "..", "../../etc", "a/b", "\0", "%", "-", &"f".repeat(100_000)] {
        assert_eq!(cri.container_status(id, true).await.expect_err("none").kind, ErrorKind::NotFound, "{id:.9}");
        assert_eq!(cri.pod_sandbox_status(id).await.expect_err("none").kind, ErrorKind::NotFound);
        cri.start_container(id).await.expect_err("none");
        cri.remove_container(id).await.expect("gone is removed");
        cri.remove_pod_sandbox(id).await.expect("gone is removed");
        world.try_exec(id, "true", 1).await.expect_err("none");
    }
    let mut config = world.pod_config("parent");
    config.linux.as_mut().unwrap().cgroup_parent = "/../../../tmp/escape".to_owned();
    let error = world.run_pod(config).await.err().expect("a cgroup has no way up");
    assert!(error.message.contains("cgroup_parent"), "{error}");

    let mut config = world.pod_config("../../../evil\nname");
    config.hostname = "fine".to_owned();
    config.log_directory = world.dir.join("logs/evil").display().to_string();
    // A UID is an argument of CNI plugins; a name is only reported.
    let error = world.run_pod(config.clone()).await.err().expect("a UID is letters, digits and dashes");
    assert!(error.message.contains("uid") && error.message.contains("letters, digits and '-'"), "{error}");
    config.metadata.as_mut().unwrap().uid = "evil".to_owned();
    let pod = world.run_pod(config).await.expect("names are only told");
    let mut container = world.container("../../c\0\n", "exit 0");
    container.log_path = "main.log".to_owned();
    let id = world.start(&pod, container).await;
    assert_eq!(world.ended(&id).await.exit_code, 0);
    for path in ["../../escape.log", "/escape.log", "a/../../escape.log"] {
        let mut container = world.container("log", "true");
        container.log_path = path.to_owned();
        let error = world.create(&pod, container).await.expect_err("a log stays in its directory");
        assert!(error.message.contains("log_path"), "{error}");
    }
    for (name, value) in [("A\0B", "x"), ("A", "x\0y"), ("", "x"), ("A=B", "x")] {
        let mut container = world.container("env", "env | wc -l");
        container.envs.push(v1::KeyValue { key: name.to_owned(), value: value.into() });
        let answer = world.create(&pod, container).await;
        assert!(answer.is_err(), "the variable {name:?}={value:?} was taken");
    }
    let mut container = world.container("arg", "");
    container.command = vec!["/bin/echo".to_owned(), "a\0b".to_owned()];
    assert!(world.create(&pod, container).await.is_err(), "an argument with a zero byte was taken");
    for path in ["relative", "", "/../../../up"] {
        let mut container = world.container("mount", "ls /up");
        container.mounts.push(v1::Mount {
            container_path: path.to_owned(),
            host_path: world.dir.display().to_string(),
            ..Default::default()
        });
        match world.create(&pod, container).await {
            Err(_) => {}
            Ok(id) => {
                // It may be taken for a path in the container, and no more.
                let _ = world.cri().start_container(&id).await;
                assert!(!std::path::Path::new("/up").exists(), "{path:?} led out");
                world.cri().remove_container(&id).await.expect("removed");
            }
        }
    }
    Shown::Yes
}
