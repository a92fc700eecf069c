//! From made to removed.

use std::{collections::BTreeSet, time::Duration};

use keelet_cri::{ErrorKind, v1};

use crate::{
    Shown, cases,
    world::{World, until},
};

cases![
    a_container_goes_through_its_states,
    codes_and_signals_are_distinguished,
    a_stop_asks_first_and_kills_after_the_grace,
    a_stop_uses_the_signal_that_was_asked_for,
    everything_may_be_repeated,
    events_report_every_state,
    many_pods_are_made_at_once,
    lists_are_filtered,
    that_a_pod_was_stopped_is_written_down_first,
    a_record_that_cannot_be_read_removes_nothing,
];

async fn a_container_goes_through_its_states(world: &mut World) -> Shown {
    let pod = world.pod("states").await;
    let id = world.create(&pod, world.container("main", "echo up; sleep 1000")).await.expect("created");
    let status = world.status(&id).await;
    assert_eq!(status.state(), v1::ContainerState::ContainerCreated);
    assert_eq!((status.started_at, status.finished_at, status.exit_code), (0, 0, 0));
    world.cri().start_container(&id).await.expect("started");
    let status = world.status(&id).await;
    assert_eq!(status.state(), v1::ContainerState::ContainerRunning);
    assert!(status.started_at >= status.created_at && status.finished_at == 0, "{status:?}");
    let again = world.cri().start_container(&id).await.expect_err("runs already");
    assert!(again.message.contains("is already running"), "{again}");
    world.cri().stop_container(&id, Duration::ZERO).await.expect("killed");
    let status = world.status(&id).await;
    assert_eq!((status.state(), status.exit_code), (v1::ContainerState::ContainerExited, 137));
    assert_eq!(status.reason, "Error");
    assert!(status.finished_at >= status.started_at, "{status:?}");
    world.cri().start_container(&id).await.expect_err("has ended");
    world.cri().remove_container(&id).await.expect("removed");
    let gone = world.cri().container_status(&id, false).await.expect_err("gone");
    assert_eq!(gone.kind, ErrorKind::NotFound);
    Shown::Yes
}

async fn codes_and_signals_are_distinguished(world: &mut World) -> Shown {
    let pod = world.pod("codes").await;
    for (name, script, code, reason) in [
        ("zero", "exit 0", 0, "Completed"),
        ("seven", "exit 7", 7, "Error"),
        ("most", "exit 255", 255, "Error"),
        ("killed", "kill -KILL $$; sleep 100", 137, "Error"),
        // A child's end by a signal is the shell's code.
        ("child", "sh -c 'kill -SEGV $$'", 139, "Error"),
    ] {
        // The first process of a tree is not killed by itself, so these run with the pod's processes.
        let mut config = world.container(name, script);
        if name == "killed" {
            crate::world::security(&mut config).namespace_options.as_mut().unwrap().pid =
                v1::NamespaceMode::Node.into();
        }
        let (status, _) = world.run(&pod, config).await;
        assert_eq!((status.exit_code, status.reason.as_str()), (code, reason), "{name}");
    }
    Shown::Yes
}

async fn a_stop_asks_first_and_kills_after_the_grace(world: &mut World) -> Shown {
    let pod = world.pod("stop").await;
    let script = "trap 'echo asked; exit 3' TERM; echo up; while :; do sleep 0.05; done";
    let polite = world.start(&pod, world.container("polite", script)).await;
    until("it listens", async || world.said(&pod, "polite").contains("up").then_some(())).await;
    world.cri().stop_container(&polite, Duration::from_secs(60)).await.expect("stopped");
    assert_eq!(world.status(&polite).await.exit_code, 3);
    assert_eq!(world.said(&pod, "polite"), "up\nasked\n");

    let script = "trap 'echo no' TERM; echo up; while :; do sleep 0.05; done";
    let deaf = world.start(&pod, world.container("deaf", script)).await;
    until("it listens", async || world.said(&pod, "deaf").contains("up").then_some(())).await;
    let begun = std::time::Instant::now();
    // Long enough for a busy machine to let it say that it was asked.
    let grace = Duration::from_secs(8);
    world.cri().stop_container(&deaf, grace).await.expect("stopped");
    assert!(begun.elapsed() >= grace, "the grace is kept");
    assert_eq!(world.status(&deaf).await.exit_code, 137);
    assert_eq!(world.said(&pod, "deaf"), "up\nno\n");
    Shown::Yes
}

async fn a_stop_uses_the_signal_that_was_asked_for(world: &mut World) -> Shown {
    let pod = world.pod("signal").await;
    for (name, signal, number) in
        [("usr1", v1::Signal::Sigusr1, 10), ("quit", v1::Signal::Sigquit, 3), ("rt", v1::Signal::Sigrtminplus3, 37)]
    {
        let script = format!("trap 'exit 42' {number}; echo up; while :; do sleep 0.05; done");
        let mut config = world.container(name, &script);
        // bash knows traps of real-time signals.
        config.command[0] = "/bin/bash".to_owned();
        config.stop_signal = signal.into();
        let id = world.start(&pod, config).await;
        until("it listens", async || world.said(&pod, name).contains("up").then_some(())).await;
        world.cri().stop_container(&id, Duration::from_secs(20)).await.expect("stopped");
        let status = world.status(&id).await;
        assert_eq!((status.exit_code, status.stop_signal()), (42, signal), "{name}");
    }
    Shown::Yes
}

async fn everything_may_be_repeated(world: &mut World) -> Shown {
    let pod = world.pod("again").await;
    let id = world.start(&pod, world.container("main", "sleep 1000")).await;
    for _ in 0..2 {
        world.cri().stop_container(&id, Duration::ZERO).await.expect("stopped");
    }
    for _ in 0..2 {
        world.cri().remove_container(&id).await.expect("removed");
    }
    world.cri().stop_container(&id, Duration::ZERO).await.expect("gone is stopped");
    let same = world.run_pod(pod.config.clone()).await.err().expect("it is there already");
    assert_eq!(same.kind, ErrorKind::AlreadyExists, "{same}");
    let one = world.create(&pod, world.container("twice", "true")).await.expect("created");
    let same = world.create(&pod, world.container("twice", "true")).await.expect_err("it is there already");
    assert_eq!(same.kind, ErrorKind::AlreadyExists, "{same}");
    world.cri().remove_container(&one).await.expect("removed, never started");
    for _ in 0..2 {
        world.cri().stop_pod_sandbox(&pod.id).await.expect("stopped");
    }
    let late = world.create(&pod, world.container("late", "true")).await.expect_err("not ready");
    assert!(late.message.contains("is not ready"), "{late}");
    for _ in 0..2 {
        world.cri().remove_pod_sandbox(&pod.id).await.expect("removed");
    }
    let gone = world.cri().pod_sandbox_status(&pod.id).await.expect_err("gone");
    assert_eq!(gone.kind, ErrorKind::NotFound);
    Shown::Yes
}

async fn events_report_every_state(world: &mut World) -> Shown {
    let mut events = world.cri().container_events().await.expect("events").expect("some");
    let pod = world.pod("events").await;
    let (_, _) = world.run(&pod, world.container("main", "exit 4")).await;
    let id = world.cri().list_containers(None).await.expect("containers")[0].id.clone();
    world.cri().remove_container(&id).await.expect("removed");
    world.cri().stop_pod_sandbox(&pod.id).await.expect("stopped");
    world.cri().remove_pod_sandbox(&pod.id).await.expect("removed");
    use v1::ContainerEventType as Type;
    let expected = [
        (&pod.id, Type::ContainerCreatedEvent),
        (&pod.id, Type::ContainerStartedEvent),
        (&id, Type::ContainerCreatedEvent),
        (&id, Type::ContainerStartedEvent),
        (&id, Type::ContainerStoppedEvent),
        (&id, Type::ContainerDeletedEvent),
        (&pod.id, Type::ContainerStoppedEvent),
        (&pod.id, Type::ContainerDeletedEvent),
    ];
    let mut received = Vec::new();
    while received.len() < expected.len() {
        let next = tokio::time::timeout(Duration::from_secs(20), events.next()).await;
        let Ok(Ok(Some(event))) = next else { break };
        if event.container_id == id && event.container_event_type() == Type::ContainerStoppedEvent {
            let status = event.containers_statuses.iter().find(|status| status.id == id).expect("its own status");
            assert_eq!(status.exit_code, 4);
        }
        received.push((event.container_id.clone(), event.container_event_type()));
    }
    let expected: Vec<_> = expected.into_iter().map(|(id, kind)| (id.clone(), kind)).collect();
    assert_eq!(received, expected);
    Shown::Yes
}

/// Twenty at once, each with a network of its own.
async fn many_pods_are_made_at_once(world: &mut World) -> Shown {
    let options = v1::NamespaceOption { network: v1::NamespaceMode::Pod.into(), ..world.options() };
    let one = async |number: usize| {
        let name = format!("many-{number}");
        let config = crate::world::pod_config(&name, &world.dir.join("logs").join(&name), options.clone());
        let pod = world.run_pod(config).await.expect("a sandbox");
        let mut container = world.container("main", &format!("hostname; exit {number}"));
        crate::world::security(&mut container).namespace_options = Some(options.clone());
        let (status, said) = world.run(&pod, container).await;
        assert_eq!((status.exit_code, said), (i32::try_from(number).unwrap(), format!("{name}\n")));
        let address = world.cri().pod_sandbox_status(&pod.id).await.expect("a status").network.unwrap().ip;
        world.cri().stop_pod_sandbox(&pod.id).await.expect("stopped");
        world.cri().remove_pod_sandbox(&pod.id).await.expect("removed");
        address
    };
    let addresses = futures::future::join_all((0..20).map(one)).await;
    assert!(addresses.iter().all(|address| !address.is_empty()), "{addresses:?}");
    Shown::Yes
}

async fn lists_are_filtered(world: &mut World) -> Shown {
    let (one, other) = (world.pod("one").await, world.pod("other").await);
    let labelled = v1::ContainerConfig {
        labels: [("app".to_owned(), "web".to_owned())].into(),
        ..world.container("a", "sleep 1000")
    };
    let runs = world.start(&one, labelled).await;
    let made = world.create(&one, world.container("b", "true")).await.expect("created");
    let elsewhere = world.start(&other, world.container("c", "sleep 1000")).await;
    let state = |state: v1::ContainerState| Some(v1::ContainerStateValue { state: state.into() });
    let empty = v1::ContainerFilter::default;
    for (what, filter, expected) in [
        ("no filter", empty(), vec![&runs, &made, &elsewhere]),
        (
            "running",
            v1::ContainerFilter { state: state(v1::ContainerState::ContainerRunning), ..empty() },
            vec![&runs, &elsewhere],
        ),
        ("created", v1::ContainerFilter { state: state(v1::ContainerState::ContainerCreated), ..empty() }, vec![&made]),
        ("exited", v1::ContainerFilter { state: state(v1::ContainerState::ContainerExited), ..empty() }, vec![]),
        ("sandbox", v1::ContainerFilter { pod_sandbox_id: one.id.clone(), ..empty() }, vec![&runs, &made]),
        ("ID", v1::ContainerFilter { id: made.clone(), ..empty() }, vec![&made]),
        (
            "label",
            v1::ContainerFilter { label_selector: [("app".to_owned(), "web".to_owned())].into(), ..empty() },
            vec![&runs],
        ),
        (
            "other value",
            v1::ContainerFilter { label_selector: [("app".to_owned(), "db".to_owned())].into(), ..empty() },
            vec![],
        ),
    ] {
        let found = world.cri().list_containers(Some(filter)).await.expect("a list");
        let found: BTreeSet<_> = found.iter().map(|container| &container.id).collect();
        assert_eq!(found, expected.into_iter().collect(), "{what}");
    }
    world.cri().stop_pod_sandbox(&other.id).await.expect("stopped");
    let ready = v1::PodSandboxStateValue { state: v1::PodSandboxState::SandboxReady.into() };
    let filter = v1::PodSandboxFilter { state: Some(ready), ..Default::default() };
    let found = world.cri().list_pod_sandbox(Some(filter)).await.expect("a list");
    assert_eq!(found.iter().map(|sandbox| &sandbox.id).collect::<Vec<_>>(), [&one.id], "ready");
    Shown::Yes
}

/// A server that is killed while it stops a pod is followed by one that goes on stopping it: its network may be gone already.
async fn that_a_pod_was_stopped_is_written_down_first(world: &mut World) -> Shown {
    let pod = world.pod("stopped").await;
    let stubborn = world.start(&pod, world.container("main", "trap '' TERM; while :; do sleep 1; done")).await;
    world.cri().stop_pod_sandbox(&pod.id).await.expect("stopped");
    assert_eq!(world.state(&stubborn).await, v1::ContainerState::ContainerExited);
    let text = std::fs::read_to_string(world.sandbox_dir(&pod.id).join("record.json")).expect("a record");
    let record: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(record["stopped"], true, "the next server would take it for a pod that is to run: {text}");
    world.reopen().await;
    let status = world.cri().pod_sandbox_status(&pod.id).await.expect("a status");
    assert_eq!(status.state(), v1::PodSandboxState::SandboxNotready);
    Shown::Yes
}

/// What cannot be read just now says nothing about the pod: the server does not start, and the pod keeps running.
async fn a_record_that_cannot_be_read_removes_nothing(world: &mut World) -> Shown {
    let pod = world.pod("unread").await;
    let runs = world.start(&pod, world.container("main", "sleep 1000")).await;
    let (record, aside) = (world.sandbox_dir(&pod.id).join("record.json"), world.dir.join("aside.json"));
    world.close();
    std::fs::rename(&record, &aside).expect("moved");
    // A directory cannot be read, and is not missing.
    std::fs::create_dir(&record).expect("made");
    let opened = keelet_runtime::Engine::open(world.settings.clone()).await;
    assert!(opened.is_err(), "a server started on a record that it could not read");
    drop(opened);
    std::fs::remove_dir(&record).expect("removed: the sandbox has its directory");
    std::fs::rename(&aside, &record).expect("moved back");
    world.reopen().await;
    assert_eq!(world.state(&runs).await, v1::ContainerState::ContainerRunning);
    Shown::Yes
}
