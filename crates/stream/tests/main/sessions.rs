//! Sessions with keelet's client.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use keelet_stream::client::{self, Forwarder, Terminal};
use keelet_stream::{Attach, Config, ExitStatus, Output, Size, StreamError, Streams};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::backend::{
    CLOSED_PORT, ECHO_PORT, ENDLESS_PORT, GREETING_PORT, LISTENING_PORT, STREAMS, STUBBORN_PORT, Server, in_time, start,
};

/// Keeps what is written to it.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    fn output(&self) -> Option<Output> {
        Some(Box::new(self.clone()))
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl AsyncWrite for Kept {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

async fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.address).await.expect("the server listens")
}

async fn exec(server: &Server, cmd: &[&str], terminal: Terminal) -> Result<ExitStatus, StreamError> {
    client::run(connect(server).await, &server.exec(cmd, STREAMS), terminal).await
}

#[tokio::test]
async fn ten_megabytes_come_back_as_they_were_sent() {
    let server = start(Config::default()).await;
    let sent: Vec<u8> = (0..10_000_000u32).flat_map(|n| (n % 251).to_le_bytes().into_iter().take(1)).collect();
    let stdout = Kept::default();
    let stdin = Some(Box::new(io::Cursor::new(sent.clone())) as _);
    let ended = exec(&server, &["cat"], Terminal { stdin, stdout: stdout.output(), ..Terminal::default() }).await;
    assert_eq!(ended.unwrap(), ExitStatus(0));
    assert!(stdout.bytes() == sent, "{} bytes came back, or not the same ones", stdout.bytes().len());
}

#[tokio::test]
async fn an_exit_code_comes_back() {
    let server = start(Config::default()).await;
    assert_eq!(exec(&server, &["exit", "7"], Terminal::default()).await.unwrap(), ExitStatus(7));
}

#[tokio::test]
async fn a_command_that_reads_nothing_does_not_stop_a_client_that_writes() {
    let server = start(Config::default()).await;
    let stdin = Some(Box::new(tokio::io::repeat(b'y').take(50_000_000)) as _);
    let ended = exec(&server, &["exit", "3"], Terminal { stdin, ..Terminal::default() }).await;
    assert_eq!(ended.unwrap(), ExitStatus(3));
}

#[tokio::test]
async fn all_output_comes_before_the_end() {
    let server = start(Config::default()).await;
    let stdout = Kept::default();
    let ended = exec(&server, &["flood", "5000000"], Terminal { stdout: stdout.output(), ..Terminal::default() }).await;
    assert_eq!(ended.unwrap(), ExitStatus(0));
    assert_eq!(stdout.bytes().len(), 5_000_000);
}

#[tokio::test]
async fn errors_have_a_stream_of_their_own() {
    let server = start(Config::default()).await;
    let (stdout, stderr) = (Kept::default(), Kept::default());
    let terminal = Terminal { stdout: stdout.output(), stderr: stderr.output(), ..Terminal::default() };
    exec(&server, &["both"], terminal).await.unwrap();
    assert_eq!((&stdout.bytes()[..], &stderr.bytes()[..]), (&b"for stdout"[..], &b"for stderr"[..]));
}

#[tokio::test]
async fn a_terminal_changes_its_size() {
    let server = start(Config::default()).await;
    let (sizes, resize) = mpsc::channel(4);
    let stdout = Kept::default();
    let streams = Streams { stdin: true, stdout: true, stderr: false, tty: true };
    let url = server.exec(&["sizes"], streams);
    let socket = connect(&server).await;
    let terminal = Terminal { stdout: stdout.output(), resize: Some(resize), ..Terminal::default() };
    sizes.send(Size { width: 80, height: 24 }).await.unwrap();
    sizes.send(Size { width: 132, height: 50 }).await.unwrap();
    assert_eq!(client::run(socket, &url, terminal).await.unwrap(), ExitStatus(0));
    // The first size may be skipped, the last must not be.
    assert!(stdout.bytes().ends_with(b"132x50\n"), "{:?}", String::from_utf8(stdout.bytes()));
}

#[tokio::test]
async fn the_client_gets_the_error_message() {
    let server = start(Config::default()).await;
    let failed = exec(&server, &["nonsense"], Terminal::default()).await.unwrap_err();
    assert_eq!(failed.to_string(), "error executing command in container: nonsense: no such file");
}

#[tokio::test]
async fn a_url_is_valid_once() {
    let server = start(Config::default()).await;
    let url = server.exec(&["exit", "0"], STREAMS);
    client::run(connect(&server).await, &url, Terminal::default()).await.unwrap();
    let again = client::run(connect(&server).await, &url, Terminal::default()).await;
    assert!(matches!(&again, Err(StreamError::NotUpgraded { status, .. }) if status.as_u16() == 404), "{again:?}");
}

#[tokio::test]
async fn a_backend_notices_that_its_client_disconnected() {
    let server = start(Config::default()).await;
    let url = server.exec(&["hang"], STREAMS);
    let socket = connect(&server).await;
    let client = tokio::spawn(async move { client::run(socket, &url, Terminal::default()).await });
    in_time("the command to begin", server.words.started.notified()).await;
    client.abort();
    let _ = client.await;
    in_time("the command to notice that its client disconnected", server.words.hung_up.notified()).await;
}

#[tokio::test]
async fn attaching_ends_with_its_output() {
    let server = start(Config::default()).await;
    let url = server.sessions.attach(Attach { container: "c9".into(), streams: STREAMS }).unwrap();
    let stdout = Kept::default();
    let terminal = Terminal { stdout: stdout.output(), ..Terminal::default() };
    assert_eq!(client::run(connect(&server).await, &url, terminal).await.unwrap(), ExitStatus(0));
    assert_eq!(stdout.bytes(), b"attached to c9");
}

#[tokio::test]
async fn connections_are_carried_side_by_side_and_half_closed() {
    let server = start(Config::default()).await;
    let url = server.port_forward(&[]);
    let forwarder = Arc::new(Forwarder::connect(connect(&server).await, &url).await.unwrap());
    let mut connections = tokio::task::JoinSet::new();
    for number in 0..20u8 {
        let forwarder = forwarder.clone();
        connections.spawn(async move {
            let (mut near, far) = tokio::io::duplex(1024);
            let carried = tokio::spawn(async move { forwarder.forward(far, ECHO_PORT).await });
            let (mut from, mut to) = tokio::io::split(&mut near);
            let sent = vec![number; 300_000];
            let write = async {
                to.write_all(&sent).await.unwrap();
                to.shutdown().await.unwrap();
            };
            let mut received = Vec::new();
            let (_, read) = tokio::join!(write, from.read_to_end(&mut received));
            read.unwrap();
            carried.await.unwrap().unwrap();
            assert!(received.starts_with(&sent), "{} bytes came back", received.len());
            assert_eq!(received[sent.len()..], *b"300000 bytes");
        });
    }
    while let Some(connection) = connections.join_next().await {
        connection.unwrap();
    }
}

#[tokio::test]
async fn a_connection_that_fails_reports_why_and_does_not_affect_others() {
    let server = start(Config::default()).await;
    let url = server.port_forward(&[]);
    let forwarder = Forwarder::connect(connect(&server).await, &url).await.unwrap();
    let (_near, far) = tokio::io::duplex(1024);
    let failed = forwarder.forward(far, CLOSED_PORT).await.unwrap_err();
    assert_eq!(failed.to_string(), "error forwarding port 9 to sandbox s1: connection refused on port 9");
    let (mut near, far) = tokio::io::duplex(1024);
    forwarder.forward(far, GREETING_PORT).await.unwrap();
    let mut greeting = String::new();
    near.read_to_string(&mut greeting).await.unwrap();
    assert_eq!(greeting, "hello from s1");
}

/// A browser closes a tab in the middle of a response.
#[tokio::test]
async fn a_connection_that_the_client_resets_is_not_an_error_and_does_not_affect_others() {
    let server = start(Config::default()).await;
    let url = server.port_forward(&[]);
    let forwarder = Arc::new(Forwarder::connect(connect(&server).await, &url).await.unwrap());
    let (mut near, far) = tokio::io::duplex(1024);
    let carried = tokio::spawn({
        let forwarder = forwarder.clone();
        async move { forwarder.forward(far, ENDLESS_PORT).await }
    });
    near.read_exact(&mut [0; 100_000]).await.unwrap();
    drop(near);
    carried.await.unwrap().unwrap();
    let (mut near, far) = tokio::io::duplex(1024);
    forwarder.forward(far, GREETING_PORT).await.unwrap();
    let mut greeting = String::new();
    near.read_to_string(&mut greeting).await.unwrap();
    assert_eq!(greeting, "hello from s1");
}

/// The pod keeps its end open; a client that resets one connection after the other must not fill the node with what is left of them.
#[tokio::test]
async fn a_connection_that_the_client_resets_ends_although_the_pod_keeps_it_open() {
    let server = start(Config::default()).await;
    let url = server.port_forward(&[]);
    let forwarder = Arc::new(Forwarder::connect(connect(&server).await, &url).await.unwrap());
    // More than a session may have at once.
    for _ in 0..300 {
        let (mut near, far) = tokio::io::duplex(1024);
        let carried = tokio::spawn({
            let forwarder = forwarder.clone();
            async move { forwarder.forward(far, STUBBORN_PORT).await }
        });
        in_time("the greeting", near.read_exact(&mut [0; 5])).await.unwrap();
        drop(near);
        in_time("the end of the connection", carried).await.unwrap().unwrap();
    }
}

/// A pod may end its side of a connection before its client does, and go on reading.
#[tokio::test]
async fn a_pod_that_ends_its_side_first_does_no_harm() {
    let server = start(Config::default()).await;
    let url = server.port_forward(&[]);
    let forwarder = Forwarder::connect(connect(&server).await, &url).await.unwrap();
    let (mut near, far) = tokio::io::duplex(1024);
    let carried = tokio::spawn(async move {
        forwarder.forward(far, LISTENING_PORT).await.unwrap();
        forwarder
    });
    let mut nothing = Vec::new();
    in_time("the end of the pod's side", near.read_to_end(&mut nothing)).await.unwrap();
    assert_eq!(nothing, b"");
    drop(near);
    let forwarder = in_time("the end of the connection", carried).await.unwrap();
    let (mut near, far) = tokio::io::duplex(1024);
    forwarder.forward(far, GREETING_PORT).await.unwrap();
    let mut greeting = String::new();
    near.read_to_string(&mut greeting).await.unwrap();
    assert_eq!(greeting, "hello from s1", "the session goes on");
}
