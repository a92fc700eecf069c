//! Clients of exec, attach and port-forward: any bytes after an upgrade, in SPDY, in WebSocket, and in one within the other.
//!
//! The first byte says what was asked for and agreed upon. A session ends when its client is gone, whatever it sent, and
//! what the server answers until then is bounded.

#![no_main]

use std::{convert::Infallible, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use keelet_stream::{
    Attach, Backend, BoxFuture, Config, Duplex, Exec, ExitStatus, Failure, Io, PortForward, Request, Streams, upgrade,
};
use libfuzzer_sys::fuzz_target;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    runtime::Builder,
};

const SPDY: &str = "Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: ";
const WEBSOCKET: &str = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: ";

/// The upgrade, the protocol, and whether it is for a port-forward, an attach or an exec.
const SESSIONS: [(&str, &str, Kind); 9] = [
    (SPDY, "v4.channel.k8s.io", Kind::Exec),
    (SPDY, "channel.k8s.io", Kind::Attach),
    (SPDY, "portforward.k8s.io", Kind::Forward),
    (WEBSOCKET, "v5.channel.k8s.io", Kind::Exec),
    (WEBSOCKET, "v4.channel.k8s.io", Kind::Attach),
    (WEBSOCKET, "v4.base64.channel.k8s.io", Kind::Exec),
    (WEBSOCKET, "v4.channel.k8s.io", Kind::Forward),
    (WEBSOCKET, "v4.base64.channel.k8s.io", Kind::Forward),
    (WEBSOCKET, "SPDY/3.1+portforward.k8s.io", Kind::Forward),
];

/// A server answers with what it was sent, with a few words, and with goodbyes; in base64, and a frame for each byte.
fn most_answered(sent: usize) -> usize {
    64 * 1024 + 64 * sent
}

#[derive(Clone, Copy)]
enum Kind {
    Exec,
    Attach,
    Forward,
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, sent)) = input.split_first() else { return };
    let (head, protocol, kind) = SESSIONS[usize::from(*choice & 0x0f) % SESSIONS.len()];
    let streams = Streams { stdin: true, stdout: true, stderr: choice & 0x10 == 0, tty: choice & 0x10 != 0 };
    let what = match kind {
        Kind::Exec => Request::Exec(Exec { container: "c".to_owned(), cmd: vec!["cat".to_owned()], streams }),
        Kind::Attach => Request::Attach(Attach { container: "c".to_owned(), streams }),
        Kind::Forward => Request::PortForward(PortForward { sandbox: "s".to_owned(), ports: vec![80, 443] }),
    };
    let request = format!("POST / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n{head}{protocol}\r\n\r\n");
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let answered = runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(64 * 1024);
        let service = service_fn(move |request| {
            let response = upgrade(request, what.clone(), Arc::new(Echo), &Config::default());
            async { Ok::<_, Infallible>(response) }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(server), service).with_upgrades();
        tokio::spawn(async move {
            let _ = connection.await;
        });
        client.write_all(request.as_bytes()).await.expect("there is room");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await.expect("an answer"));
        }
        assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
        let (mut from, mut to) = tokio::io::split(client);
        let write = async {
            // A server that has heard enough may close before all is written.
            let _ = to.write_all(sent).await;
            let _ = to.shutdown().await;
        };
        let mut answer = Vec::new();
        let read = async { from.read_to_end(&mut answer).await };
        let both = async { tokio::join!(write, read) };
        let done = tokio::time::timeout(Duration::from_secs(3600), both).await;
        assert!(done.is_ok(), "the session goes on although its client is gone");
        answer.len()
    });
    assert!(answered <= most_answered(sent.len()), "{answered} bytes for {}", sent.len());
});

/// Sends back what it gets.
struct Echo;

impl Backend for Echo {
    fn exec(&self, _: Exec, mut io: Io) -> BoxFuture<'_, Result<ExitStatus, Failure>> {
        Box::pin(async move {
            if let (Some(mut stdin), Some(mut stdout)) = (io.stdin.take(), io.stdout.take()) {
                tokio::io::copy(&mut stdin, &mut stdout).await?;
            }
            Ok(ExitStatus(3))
        })
    }

    fn attach(&self, _: Attach, mut io: Io) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move {
            // A terminal is as large as it was last said to be.
            while io.resize.next().await.is_some() {}
            io.hangup.wait().await;
            Ok(())
        })
    }

    fn port_forward(&self, _: String, port: u16, stream: Box<dyn Duplex>) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move {
            if port == 443 {
                return Err("no listener".into());
            }
            let (mut from, mut to) = tokio::io::split(stream);
            tokio::io::copy(&mut from, &mut to).await?;
            Ok(to.shutdown().await?)
        })
    }
}
