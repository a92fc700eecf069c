//! Volumes.

use std::{fs, os::unix::fs::MetadataExt};

use keelet_cri::v1::{self, MountPropagation};

use crate::{
    Shown, cases,
    world::{World, mounts, run, security, until},
};

cases![
    volumes_are_bound_and_can_be_read_only,
    read_only_reaches_all_that_is_below,
    a_missing_directory_is_made,
    mounts_travel_as_far_as_asked,
    the_nodes_devices_can_be_mounted_whole,
];

fn volume(inside: &str, outside: &std::path::Path) -> v1::Mount {
    v1::Mount { container_path: inside.to_owned(), host_path: outside.display().to_string(), ..v1::Mount::default() }
}

async fn volumes_are_bound_and_can_be_read_only(world: &mut World) -> Shown {
    let pod = world.pod("volumes").await;
    let dir = world.dir.join("data");
    fs::create_dir_all(dir.join("inner")).unwrap();
    fs::write(dir.join("file"), "words\n").unwrap();
    let mut config = world.container(
        "main",
        "cat /data/file; echo more > /data/new; touch /ro/x 2>&1; cat /deep/er/path; cat /one; true",
    );
    config.mounts = vec![
        volume("/data", &dir),
        v1::Mount { readonly: true, ..volume("/ro", &dir) },
        volume("/deep/er/path", &dir.join("file")),
        volume("/one", &dir.join("file")),
    ];
    let said = world.output(&pod, config).await;
    assert!(said.starts_with("words\ntouch: ") && said.contains("Read-only file system"), "{said}");
    assert!(said.ends_with("words\nwords\n"), "{said}");
    assert_eq!(fs::read_to_string(dir.join("new")).unwrap(), "more\n");
    Shown::Yes
}

async fn read_only_reaches_all_that_is_below(world: &mut World) -> Shown {
    let pod = world.pod("rro").await;
    let dir = world.dir.join("tree");
    fs::create_dir_all(dir.join("below")).unwrap();
    run("mount", &["-t", "tmpfs", "none", dir.join("below").to_str().unwrap()]);
    let script = "touch /data/x 2>&1; touch /data/below/x 2>&1; true";
    let mut config = world.container("plain", script);
    config.mounts = vec![v1::Mount { readonly: true, ..volume("/data", &dir) }];
    let said = world.output(&pod, config).await;
    assert_eq!(said.matches("Read-only file system").count(), 1, "{said}");
    let mut config = world.container("deep", script);
    config.mounts = vec![v1::Mount { readonly: true, recursive_read_only: true, ..volume("/data", &dir) }];
    let said = world.output(&pod, config).await;
    assert_eq!(said.matches("Read-only file system").count(), 2, "{said}");
    run("umount", &[dir.join("below").to_str().unwrap()]);
    Shown::Yes
}

async fn a_missing_directory_is_made(world: &mut World) -> Shown {
    let pod = world.pod("missing").await;
    let dir = world.dir.join("not/yet/there");
    let mut config = world.container("main", "touch /data/x");
    config.mounts = vec![volume("/data", &dir)];
    world.output(&pod, config).await;
    assert!(dir.join("x").is_file());
    Shown::Yes
}

async fn mounts_travel_as_far_as_asked(world: &mut World) -> Shown {
    // As on most machines.
    run("mount", &["--make-rshared", "/"]);
    let dir = world.dir.join("shared");
    fs::create_dir_all(&dir).unwrap();
    let place = dir.to_str().unwrap().to_owned();
    run("mount", &["-t", "tmpfs", "none", &place]);
    run("mount", &["--make-shared", &place]);
    for name in ["before", "later", "inside-private", "inside-slave", "inside-shared"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    let pod = world.pod("propagation").await;
    let mut ids = Vec::new();
    for (name, propagation) in [
        ("private", MountPropagation::PropagationPrivate),
        ("slave", MountPropagation::PropagationHostToContainer),
        ("shared", MountPropagation::PropagationBidirectional),
    ] {
        let mut config = world.container(name, "sleep 1000");
        security(&mut config).privileged = true;
        config.mounts = vec![v1::Mount { propagation: propagation.into(), ..volume("/data", &dir) }];
        let before = mounts();
        let id = world.start(&pod, config).await;
        let new: Vec<_> =
            mounts().difference(&before).filter(|line| !line.contains("/root/images/")).cloned().collect();
        assert!(new.is_empty(), "{name} shows on the node: {new:?}");
        ids.push((name, id));
    }
    run("mount", &["-t", "tmpfs", "none", dir.join("later").to_str().unwrap()]);
    fs::write(dir.join("later/seen"), "").unwrap();
    for (name, id) in &ids {
        let seen = world.exec(id, "test -e /data/later/seen && echo seen || echo hidden").await;
        assert_eq!(seen == "seen\n", *name != "private", "{name}");
        world.exec(id, &format!("mount -t tmpfs none /data/inside-{name} && touch /data/inside-{name}/seen")).await;
        let seen = dir.join(format!("inside-{name}/seen")).exists();
        assert_eq!(seen, *name == "shared", "{name}");
    }
    world.cri().stop_pod_sandbox(&pod.id).await.expect("stopped");
    world.cri().remove_pod_sandbox(&pod.id).await.expect("removed");
    run("umount", &[dir.join("later").to_str().unwrap()]);
    let inside = dir.join("inside-shared");
    if inside.join("seen").exists() {
        run("umount", &[inside.to_str().unwrap()]);
    }
    until("nothing holds it", async || {
        std::process::Command::new("umount").arg(&place).status().unwrap().success().then_some(())
    })
    .await;
    Shown::Yes
}

/// Drivers and node agents do so; the node's own files must not change.
async fn the_nodes_devices_can_be_mounted_whole(world: &mut World) -> Shown {
    let pod = world.pod("dev").await;
    let listing = || {
        let mut entries: Vec<_> = fs::read_dir("/dev")
            .unwrap()
            .flatten()
            .map(|entry| {
                let found = entry.path().symlink_metadata().unwrap();
                (entry.file_name(), found.ino(), found.mode(), fs::read_link(entry.path()).ok())
            })
            .collect();
        entries.sort();
        entries
    };
    let before = listing();
    let mut config =
        world.container("main", "test -c /dev/kmsg && echo kmsg; ls /dev | wc -l; echo x > /dev/null; ls -d /dev/shm");
    security(&mut config).privileged = true;
    config.mounts = vec![volume("/dev", std::path::Path::new("/dev"))];
    let said = world.output(&pod, config).await;
    assert_eq!(said, format!("kmsg\n{}\n/dev/shm\n", before.len()));
    assert_eq!(before, listing(), "the node's devices changed");
    Shown::Yes
}
