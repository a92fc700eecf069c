//! Images from archives.

use std::{fs, io::Write};

use keelet_cri::v1;
use keelet_linux::cgroup::Mounts;
use sha2::{Digest, Sha256};

use crate::{
    Shown, cases,
    survival::{kill, shims},
    world::{Pod, World, names},
};

cases![
    an_image_says_what_runs_and_as_which_user,
    an_image_can_be_a_volume,
    a_directory_of_the_node_is_no_image_unless_callers_may_name_one,
    an_image_volume_is_removed_with_an_unfinished_container,
    after_a_restart_of_the_machine_image_volumes_hold_nothing,
];

/// An archive as `docker save` writes it, with one layer: a shell, two users, a few files.
pub(crate) fn archive(name: &str) -> Vec<u8> {
    let file = |builder: &mut tar::Builder<Vec<u8>>, path: &str, mode: u32, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(mode);
        builder.append_data(&mut header, path, content).unwrap();
    };
    let mut layer = tar::Builder::new(Vec::new());
    for (place, program) in keelet_fixtures::files(&["sh", "cat", "id", "sleep", "stat"]) {
        file(&mut layer, &place, 0o755, &fs::read(program).unwrap());
    }
    file(&mut layer, "etc/passwd", 0o644, b"root:x:0:0::/root:/bin/sh\nweb:x:501:502::/srv:/bin/sh\n");
    file(&mut layer, "etc/group", 0o644, b"root:x:0:\nweb:x:502:\nextra:x:503:web\n");
    file(&mut layer, "data/inner/file", 0o644, b"from the image\n");
    let layer = layer.into_inner().unwrap();
    let hash: String = Sha256::digest(&layer).iter().map(|byte| format!("{byte:02x}")).collect();
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let config = serde_json::json!({
        "architecture": machine, "os": "linux",
        "config": {
            "User": "web", "Env": ["COLOUR=red"], "WorkingDir": "/data",
            "Entrypoint": ["/bin/sh", "-c"], "Cmd": ["id; pwd; echo $COLOUR $HOME"], "StopSignal": "SIGINT",
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{hash}")] },
    });
    let manifest = serde_json::json!([{ "Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"] }]);
    let mut outer = tar::Builder::new(Vec::new());
    file(&mut outer, "config.json", 0o644, config.to_string().as_bytes());
    file(&mut outer, "layer.tar", 0o644, &layer);
    file(&mut outer, "manifest.json", 0o644, manifest.to_string().as_bytes());
    let mut bytes = outer.into_inner().unwrap();
    bytes.flush().unwrap();
    bytes
}

async fn an_image_says_what_runs_and_as_which_user(world: &mut World) -> Shown {
    world.engine().images().import(archive("example.org/web:1").as_slice(), None).expect("imported");
    let pod = world.pod("image").await;
    let image = v1::ImageSpec { image: "example.org/web:1".to_owned(), ..Default::default() };
    let mut config = world.container("plain", "");
    (config.command, config.image) = (Vec::new(), Some(image.clone()));
    let (status, said) = world.run(&pod, config).await;
    assert_eq!(said, "uid=501(web) gid=502(web) groups=502(web),503(extra)\n/data\nred /srv\n");
    let user = status.user.unwrap().linux.unwrap();
    assert_eq!((user.uid, user.gid, user.supplemental_groups), (501, 502, vec![502, 503]));
    let mut config = world.container("args", "");
    (config.command, config.args, config.image) = (Vec::new(), vec!["echo mine".to_owned()], Some(image));
    assert_eq!(world.output(&pod, config).await, "mine\n");
    let mut config = world.container("none", "true");
    config.image.as_mut().unwrap().image = "example.org/none:1".to_owned();
    let error = world.create(&pod, config).await.expect_err("not there");
    assert!(error.message.contains("example.org/none:1"), "{error}");
    Shown::Yes
}

fn mount(path: &str, sub: &str) -> v1::Mount {
    v1::Mount {
        container_path: path.to_owned(),
        image: Some(v1::ImageSpec { image: "example.org/data:1".to_owned(), ..Default::default() }),
        image_sub_path: sub.to_owned(),
        readonly: true,
        ..Default::default()
    }
}

/// IMG-6: neither as an image nor as a volume, whichever call names it. What runs already goes on.
async fn a_directory_of_the_node_is_no_image_unless_callers_may_name_one(world: &mut World) -> Shown {
    world.engine().images().import(archive("example.org/web:1").as_slice(), None).expect("imported");
    let pod = world.pod("trust").await;
    let earlier = world.start(&pod, world.container("earlier", "sleep 1000")).await;
    world.settings.rootfs_images = keelet_runtime::RootfsImages::Refused;
    world.reopen().await;
    assert_eq!(world.state(&earlier).await, v1::ContainerState::ContainerRunning);
    let refused = |what: &str, error: keelet_cri::Error| {
        assert!(error.message.contains("is a directory of the node"), "{what}: {error}");
    };
    refused("status", world.cri().image_status("rootfs:/").await.expect_err("the status was given"));
    refused("pull", world.cri().pull_image("rootfs:/etc", None, None).await.expect_err("it was pulled"));
    let as_image = world.create(&pod, world.container("image", "true")).await;
    refused("image", as_image.expect_err("the container was created"));
    let mut config = world.container("volume", "");
    (config.command, config.image) = (Vec::new(), Some(named("example.org/web:1")));
    config.mounts = vec![v1::Mount { image: Some(named("rootfs:/etc")), ..mount("/vol", "") }];
    refused("volume", world.create(&pod, config).await.expect_err("the volume was mounted"));
    Shown::Yes
}

fn named(image: &str) -> v1::ImageSpec {
    v1::ImageSpec { image: image.to_owned(), ..Default::default() }
}

/// A container with a volume, which is made and not started.
async fn with_volume(world: &World, pod: &Pod) -> String {
    world.engine().images().import(archive("example.org/data:1").as_slice(), None).expect("imported");
    let mut config = world.container("main", "true");
    config.mounts = vec![mount("/vol", "")];
    world.create(pod, config).await.expect("created")
}

/// As if the server had been killed before it was done, with a container or with its whole pod: there is no record.
async fn an_image_volume_is_removed_with_an_unfinished_container(world: &mut World) -> Shown {
    let pod = world.pod("container").await;
    let id = with_volume(world, &pod).await;
    let dir = world.sandbox_dir(&pod.id).join("containers").join(&id);
    world.close();
    fs::remove_file(dir.join("record.json")).unwrap();
    world.reopen().await;
    assert!(!dir.exists(), "{:?}", names(&dir));
    assert!(names(&world.dir.join("root/images/mounts")).is_empty());

    with_volume(world, &pod).await;
    world.close();
    fs::remove_file(world.sandbox_dir(&pod.id).join("record.json")).unwrap();
    world.reopen().await;
    assert!(!world.sandbox_dir(&pod.id).exists());
    Shown::Yes
}

async fn after_a_restart_of_the_machine_image_volumes_hold_nothing(world: &mut World) -> Shown {
    let pod = world.pod("rebooted").await;
    let id = with_volume(world, &pod).await;
    let dir = world.sandbox_dir(&pod.id);
    world.close();
    shims().into_iter().for_each(kill);
    let record: serde_json::Value = serde_json::from_slice(&fs::read(dir.join("record.json")).unwrap()).unwrap();
    kill(u32::try_from(record["pause"]["pid"].as_u64().unwrap()).unwrap());
    // What does not outlive a restart: mounts, and the directory of what runs.
    let root = world.dir.join("root/images/roots").join(&id);
    for place in [
        &dir.join("containers").join(&id).join("image-0"),
        &root.join("rootfs"),
        &root.join("memory"),
        &dir.join("shm"),
    ] {
        crate::world::run("umount", &[&place.display().to_string()]);
    }
    Mounts::find().unwrap().clear(&format!("{}/{}", world.cgroup, pod.id)).unwrap();
    fs::remove_dir_all(world.dir.join("state")).unwrap();
    world.reopen().await;
    assert!(names(&world.dir.join("root/images/mounts")).is_empty());
    world.engine().images().remove("example.org/data:1").expect("removed");
    assert!(names(&world.dir.join("root/images/layers")).is_empty(), "no layer stays");
    Shown::Yes
}

async fn an_image_can_be_a_volume(world: &mut World) -> Shown {
    world.engine().images().import(archive("example.org/data:1").as_slice(), None).expect("imported");
    let pod = world.pod("volume").await;
    let mut config = world.container("main", "cat /vol/data/inner/file /sub/file; touch /vol/x 2>&1; true");
    config.mounts = vec![mount("/vol", ""), mount("/sub", "data/inner")];
    let said = world.output(&pod, config).await;
    assert!(said.starts_with("from the image\nfrom the image\n") && said.contains("Read-only"), "{said}");
    let mut config = world.container("out", "true");
    config.mounts = vec![mount("/sub", "../../..")];
    world.create(&pod, config).await.expect_err("leads out");
    Shown::Yes
}
