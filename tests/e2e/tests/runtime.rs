//! The CRI client with a real containerd.

use std::{collections::BTreeMap, time::Duration};

use keelet_cri::{Error, ErrorKind, TaskEvent, v1};
use keelet_e2e::{Bed, eventually};

fn sandbox(bed: &Bed, name: &str) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: name.into(),
            uid: format!("uid-{name}"),
            namespace: "default".into(),
            attempt: 0,
        }),
        hostname: name.into(),
        log_directory: bed.directory.join("logs").to_string_lossy().into_owned(),
        labels: BTreeMap::from([("test".into(), name.into())]),
        linux: Some(v1::LinuxPodSandboxConfig::default()),
        ..Default::default()
    }
}

async fn exited(bed: &Bed, container: &str) -> v1::ContainerStatus {
    eventually("the container to end", async || {
        let (status, _) = bed.runtime.container_status(container, false).await.map_err(|error| error.to_string())?;
        match status.state() {
            v1::ContainerState::ContainerExited => Ok(status),
            other => Err(format!("it is {other:?}")),
        }
    })
    .await
}

/// An exit event may arrive before containerd's own status of the container is updated, so the status has to be read
/// again.
#[tokio::test]
#[ignore = "needs containerd: make e2e"]
async fn a_container_is_created_started_and_stopped() -> Result<(), Error> {
    let bed = Bed::here();
    let runtime = &bed.runtime;
    assert_eq!(runtime.version().await?.runtime_name, "containerd");
    let ready = eventually("the runtime to be ready", async || {
        let conditions = runtime.status().await.map_err(|error| error.to_string())?.conditions;
        if conditions.iter().all(|condition| condition.status) {
            Ok(conditions)
        } else {
            Err(format!("{conditions:?}"))
        }
    });
    assert_eq!(ready.await.len(), 2);

    let config = sandbox(&bed, "runs");
    let pod = runtime.run_pod_sandbox(config.clone(), "").await?;
    let status = runtime.pod_sandbox_status(&pod).await?;
    assert_eq!(status.state(), v1::PodSandboxState::SandboxReady);
    let address = status.network.expect("a network").ip;
    assert!(address.starts_with("10.211.0."), "{address}");

    // It exits once the command that asked for it has exited, because a running command would be killed with it.
    let script = "until [ -e /end ] && [ ! -e /proc/$(cat /end) ]; do sleep 0.05; done; exit 3";
    let container = runtime.create_container(&pod, bed.script("main", script), config).await?;
    let mut exits = runtime.containerd_exits().await?.expect("containerd has events of its own");
    runtime.start_container(&container).await?;
    let (status, info) = runtime.container_status(&container, true).await?;
    assert_eq!(status.state(), v1::ContainerState::ContainerRunning);
    assert!(status.started_at > 0 && status.finished_at == 0, "{status:?}");
    let pid = info.get("info").expect("containerd reports the PID");
    assert!(pid.contains("\"pid\":"), "{pid}");

    let command = ["sh", "-c", "echo out; echo err >&2; echo $$ > /end; exit 7"].map(String::from);
    let answer = runtime.exec_sync(&container, &command, Duration::from_secs(30)).await?;
    assert_eq!(answer.exit_code, 7);
    assert_eq!((answer.stdout.as_slice(), answer.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));

    // The exit of the command comes first, with its own exec ID.
    let own = loop {
        match exits.next().await?.expect("the stream stays open") {
            TaskEvent::Exited { container_id, exec_id, exit_status, .. } if container_id == container => {
                if exec_id == container {
                    break exit_status;
                }
                assert_eq!(exit_status, 7);
            }
            _ => {}
        }
    };
    assert_eq!(own, 3);
    let status = exited(&bed, &container).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (3, "Error"));
    assert!(status.finished_at >= status.started_at, "{status:?}");

    runtime.remove_container(&container).await?;
    let gone = runtime.container_status(&container, false).await.expect_err("it was removed");
    assert_eq!(gone.kind, ErrorKind::NotFound);
    runtime.remove_container(&container).await?;
    runtime.stop_pod_sandbox(&pod).await?;
    runtime.remove_pod_sandbox(&pod).await?;
    assert_eq!(runtime.list_pod_sandbox(None).await?, []);
    Ok(())
}

#[tokio::test]
#[ignore = "needs containerd: make e2e"]
async fn a_stop_waits_for_its_grace_and_then_kills() -> Result<(), Error> {
    let bed = Bed::here();
    let runtime = &bed.runtime;
    let config = sandbox(&bed, "stops");
    let pod = runtime.run_pod_sandbox(config.clone(), "").await?;
    let obeys = bed.script("obeys", "trap 'exit 5' TERM; touch /up; while :; do sleep 0.05; done");
    let deaf = bed.script("deaf", "trap '' TERM; touch /up; while :; do sleep 0.05; done");
    for (container, grace, code) in [(obeys, 60_000, 5), (deaf, 900, 137)] {
        let container = runtime.create_container(&pod, container, config.clone()).await?;
        runtime.start_container(&container).await?;
        let up = ["test", "-e", "/up"].map(String::from);
        eventually("the trap to be set", async || {
            let answer = runtime.exec_sync(&container, &up, Duration::from_secs(10)).await;
            answer.map(|answer| answer.exit_code).map_or_else(
                |error| Err(error.to_string()),
                |code| match code {
                    0 => Ok(()),
                    _ => Err("not yet".to_owned()),
                },
            )
        })
        .await;
        for _ in 0..2 {
            runtime.stop_container(&container, Duration::from_millis(grace)).await?;
        }
        assert_eq!(exited(&bed, &container).await.exit_code, code);
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs containerd: make e2e"]
async fn a_command_that_takes_too_long_is_a_deadline() -> Result<(), Error> {
    let bed = Bed::here();
    let runtime = &bed.runtime;
    let config = sandbox(&bed, "slow");
    let pod = runtime.run_pod_sandbox(config.clone(), "").await?;
    let container = runtime.create_container(&pod, bed.script("main", "sleep 3600"), config).await?;
    runtime.start_container(&container).await?;
    let sleep = ["sleep", "3600"].map(String::from);
    let error = runtime.exec_sync(&container, &sleep, Duration::from_secs(1)).await.expect_err("it takes an hour");
    assert_eq!(error.kind, ErrorKind::Deadline, "{error}");
    let missing = ["no-such-command".to_owned()];
    let error = runtime.exec_sync(&container, &missing, Duration::from_secs(10)).await.expect_err("it is not there");
    assert_eq!(error.kind, ErrorKind::Rejected, "{error}");
    Ok(())
}

/// Debian's containerd is 1.6 and has neither; a newer one has both.
#[tokio::test]
#[ignore = "needs containerd: make e2e"]
async fn calls_that_an_old_containerd_lacks_return_none() -> Result<(), Error> {
    let bed = Bed::here();
    let version = bed.runtime.version().await?.runtime_version;
    let old = version.trim_start_matches('v').starts_with("1.6.");
    assert_eq!(bed.runtime.container_events().await?.is_none(), old, "{version}");
    assert_eq!(bed.runtime.runtime_config().await?.is_none(), old, "{version}");
    Ok(())
}

#[tokio::test]
#[ignore = "needs containerd: make e2e"]
async fn images_are_found_by_name() -> Result<(), Error> {
    let bed = Bed::here();
    let image = bed.runtime.image_status(&bed.image).await?.expect("the image was imported");
    assert!(image.repo_tags.contains(&bed.image), "{image:?}");
    assert_eq!(bed.runtime.image_status("keelet.test/absent:1").await?, None);
    assert!(bed.runtime.list_images().await?.iter().any(|listed| listed.id == image.id));
    let pull = bed.runtime.pull_image("keelet.test/absent:1", None, None).await.expect_err("there is no registry");
    assert_eq!(pull.kind, ErrorKind::Rejected, "{pull}");
    Ok(())
}
