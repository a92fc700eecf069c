//! What a container says, and nothing else, is in its log.

use std::{os::unix::fs::OpenOptionsExt, time::Duration};

use keelet_cri::v1;
use rustix::fs::OFlags;

use crate::{
    Shown, cases,
    world::{World, until},
};

cases![
    lines_have_a_time_a_stream_and_a_tag,
    long_lines_come_in_parts,
    a_short_run_loses_no_output,
    a_moved_log_goes_on_in_a_new_file,
    a_terminal_is_one_stream,
    every_user_of_a_container_may_open_its_output_again,
    input_is_read_to_its_end,
];

async fn lines_have_a_time_a_stream_and_a_tag(world: &mut World) -> Shown {
    let pod = world.pod("format").await;
    let script = "echo one; echo two >&2; echo; printf 'no end'";
    world.run(&pod, world.container("main", script)).await;
    let log = world.log(&pod, "main");
    let rest: Vec<_> = log.lines().map(|line| line.split_once(' ').expect("a time").1).collect();
    // Each stream is in order; between two pipes there is none.
    let of = |stream: &str| rest.iter().filter(|line| line.starts_with(stream)).copied().collect::<Vec<_>>();
    assert_eq!(of("stdout"), ["stdout F one", "stdout F ", "stdout F no end"]);
    assert_eq!(of("stderr"), ["stderr F two"]);
    assert_eq!(rest.len(), 4);
    for line in log.lines() {
        let time = line.split(' ').next().unwrap();
        assert!(time.len() == 30 && time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
    }
    Shown::Yes
}

async fn long_lines_come_in_parts(world: &mut World) -> Shown {
    let pod = world.pod("long").await;
    let script = "head -c 40000 /dev/zero | tr '\\0' x; echo; echo after";
    let (_, said) = world.run(&pod, world.container("main", script)).await;
    assert_eq!(said, format!("{}\nafter\n", "x".repeat(40_000)));
    let log = world.log(&pod, "main");
    let tags: Vec<_> = log.lines().map(|line| line.split(' ').nth(2).unwrap()).collect();
    assert_eq!(tags, ["P", "P", "F", "F"]);
    assert!(log.lines().all(|line| line.len() < 16 * 1024 + 64));
    Shown::Yes
}

async fn a_short_run_loses_no_output(world: &mut World) -> Shown {
    let pod = world.pod("short").await;
    for round in 0..10 {
        let name = format!("c{round}");
        let mut config = world.container(&name, "");
        config.command = vec!["/bin/echo".to_owned(), format!("round {round}")];
        let (status, said) = world.run(&pod, config).await;
        assert_eq!((status.exit_code, said), (0, format!("round {round}\n")));
    }
    // More than a pipe holds, at once before the end.
    let (_, said) = world.run(&pod, world.container("much", "seq 1 200000")).await;
    assert_eq!(said.lines().count(), 200_000);
    assert!(said.ends_with("199999\n200000\n"));
    Shown::Yes
}

async fn a_moved_log_goes_on_in_a_new_file(world: &mut World) -> Shown {
    let pod = world.pod("rotate").await;
    let script = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done";
    let id = world.start(&pod, world.container("main", script)).await;
    until("it speaks", async || world.said(&pod, "main").contains('3').then_some(())).await;
    let path = std::path::Path::new(&pod.config.log_directory).join("main.log");
    let moved = path.with_extension("log.1");
    std::fs::rename(&path, &moved).unwrap();
    world.cri().reopen_container_log(&id).await.expect("reopened");
    until("it speaks again", async || world.said(&pod, "main").lines().nth(3).map(|_| ())).await;
    world.cri().stop_container(&id, Duration::ZERO).await.expect("stopped");
    let text = std::fs::read_to_string(&moved).unwrap() + &std::fs::read_to_string(&path).unwrap();
    let numbers: Vec<u32> = text.lines().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "nothing is lost or doubled: {numbers:?}");
    world.cri().reopen_container_log(&id).await.expect_err("it has ended");
    Shown::Yes
}

/// Many images log to `/dev/stdout` by its name, and run as any user.
async fn every_user_of_a_container_may_open_its_output_again(world: &mut World) -> Shown {
    let pod = world.pod("reopened").await;
    let mut config =
        world.container("main", "echo one > /dev/stdout; echo two > /dev/stderr; echo three >> /proc/self/fd/1");
    crate::world::security(&mut config).run_as_user = Some(v1::Int64Value { value: 1234 });
    let mut said: Vec<_> = world.output(&pod, config).await.lines().map(str::to_owned).collect();
    said.sort();
    assert_eq!(said, ["one", "three", "two"]);
    let mut config = world.container("tty", "echo one > /dev/stdout; echo two > $(tty)");
    crate::world::security(&mut config).run_as_user = Some(v1::Int64Value { value: 1234 });
    config.tty = true;
    assert_eq!(world.output(&pod, config).await.replace('\r', ""), "one\ntwo\n");
    Shown::Yes
}

async fn a_terminal_is_one_stream(world: &mut World) -> Shown {
    let pod = world.pod("tty").await;
    let mut config = world.container("main", "test -t 0 && test -t 1 && test -t 2 && tty; echo err >&2; echo $TERM");
    config.tty = true;
    let said = world.output(&pod, config).await.replace('\r', "");
    assert_eq!(said, "/dev/pts/0\nerr\nxterm\n");
    assert!(world.log(&pod, "main").lines().all(|line| line.contains(" stdout ")));
    Shown::Yes
}

async fn input_is_read_to_its_end(world: &mut World) -> Shown {
    let pod = world.pod("stdin").await;
    let mut config = world.container("none", "cat; echo end");
    assert_eq!(world.output(&pod, config.clone()).await, "end\n", "without input there is nothing to read");
    config.metadata = Some(v1::ContainerMetadata { name: "open".to_owned(), attempt: 0 });
    (config.stdin, config.log_path) = (true, "open.log".to_owned());
    config.command = ["/bin/sh", "-c", "echo asking; read line; echo got $line; exit 5"].map(str::to_owned).to_vec();
    let id = world.start(&pod, config).await;
    until("it asks", async || (world.said(&pod, "open") == "asking\n").then_some(())).await;
    let pipe = world.sandbox_dir(&pod.id).join("containers").join(&id).join("in");
    // Without a reader this is an error, and not a test that hangs.
    std::fs::OpenOptions::new()
        .write(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(pipe)
        .and_then(|mut pipe| std::io::Write::write_all(&mut pipe, b"words\n"))
        .unwrap();
    assert_eq!(world.ended(&id).await.exit_code, 5);
    assert_eq!(world.said(&pod, "open"), "asking\ngot words\n", "it has to wait for its input");
    Shown::Yes
}
