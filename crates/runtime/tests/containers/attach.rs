//! Attaching to containers that run.

use keelet_cri::v1;
use keelet_stream::client::{self, Terminal};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    net::TcpStream,
    task::JoinHandle,
};

use crate::{
    Shown, cases,
    world::{World, until},
};

cases![an_attached_client_gets_all_output, a_slow_attached_client_is_disconnected];

/// The caller's ends of a session.
struct Session {
    stdin: DuplexStream,
    stdout: DuplexStream,
    ended: JoinHandle<()>,
}

async fn attach(world: &World, id: &str) -> Session {
    let request = v1::AttachRequest {
        container_id: id.to_owned(),
        stdin: true,
        stdout: true,
        stderr: true,
        ..v1::AttachRequest::default()
    };
    let url = world.cri().attach(request).await.expect("an address");
    let host = url.trim_start_matches("http://").split('/').next().expect("a host").to_owned();
    let socket = TcpStream::connect(host).await.expect("a connection");
    let ((stdin, theirs_in), (stdout, theirs_out)) = (duplex(4096), duplex(4096));
    let ended = tokio::spawn(async move {
        let terminal =
            Terminal { stdin: Some(Box::new(theirs_in)), stdout: Some(Box::new(theirs_out)), ..Terminal::default() };
        // How it ends is seen by what was said.
        let _ = client::run(socket, &url, terminal).await;
    });
    Session { stdin, stdout, ended }
}

fn reader(world: &World, script: &str) -> v1::ContainerConfig {
    let mut config = world.container("main", script);
    config.stdin = true;
    config
}

/// More than any buffer on the way holds.
const LINES: usize = 1_000_000;

async fn an_attached_client_gets_all_output(world: &mut World) -> Shown {
    let pod = world.pod("attached").await;
    let script = format!("read x; seq 1 {LINES}; read y; echo $x $y");
    let id = world.start(&pod, reader(world, &script)).await;
    let Session { mut stdin, mut stdout, ended } = attach(world, &id).await;
    stdin.write_all(b"a\n").await.expect("written");
    // A burst comes faster than any client reads.
    until("much has been said", async || (world.log(&pod, "main").len() > 1_000_000).then_some(())).await;
    stdin.write_all(b"b\n").await.expect("written");
    let mut received = String::new();
    stdout.read_to_string(&mut received).await.expect("text");
    ended.await.expect("the session ends with the container");
    let expected: String = (1..=LINES).map(|line| format!("{line}\n")).chain(["a b\n".to_owned()]).collect();
    assert!(received == expected, "{} of {} bytes were received", received.len(), expected.len());
    assert_eq!(world.ended(&id).await.exit_code, 0);
    Shown::Yes
}

async fn a_slow_attached_client_is_disconnected(world: &mut World) -> Shown {
    let pod = world.pod("deaf").await;
    let id = world.start(&pod, reader(world, &format!("read x; seq 1 {LINES}; exit 4"))).await;
    let mut deaf = attach(world, &id).await;
    deaf.stdin.write_all(b"a\n").await.expect("written");
    assert_eq!(world.ended(&id).await.exit_code, 4, "the container goes on");
    assert!(world.said(&pod, "main").ends_with(&format!("\n{LINES}\n")), "and all is in its log");
    drop(deaf.stdout);
    drop(deaf.stdin);
    deaf.ended.abort();
    Shown::Yes
}
