//! Hostile and broken clients: they get an error where possible, are closed, and do not affect other sessions.

use std::time::Duration;

use keelet_stream::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::backend::{STREAMS, Server, in_time, start};
use crate::wire::{frame, next, request, websocket};

async fn spdy(server: &Server, url: &str) -> TcpStream {
    let (head, socket) =
        request(server, url, &["Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io"]).await;
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(head.contains("x-stream-protocol-version: v4.channel.k8s.io"), "{head}");
    socket
}

/// Everything the server sends until it closes.
async fn until_closed(mut socket: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // How it is closed does not matter.
    let _ = in_time("the server to close the connection", socket.read_to_end(&mut bytes)).await;
    bytes
}

#[tokio::test]
async fn broken_websocket_frames_get_an_error_and_are_closed() {
    let server = start(Config::default()).await;
    for (bytes, what) in [
        (&b"\x82\x00"[..], "no mask"),
        (&frame(0xf2, b"x"), "reserved bits"),
        (&frame(0x83, b"x"), "an unknown opcode"),
        (&frame(0x80, b"x"), "a continuation without a beginning"),
        (&[&frame(0x02, b"\0x")[..], &frame(0x02, b"\0y")].concat(), "a message within a message"),
        (b"\x89\xfe\xff\xff\0\0\0\0", "a ping of 64 KiB"),
        (b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", "2^64 bytes"),
        (&frame(0x82, &[255]), "a close signal for no channel"),
        (&frame(0x82, &[255, 0, 0]), "a close signal for two channels"),
    ] {
        let mut socket = websocket(&server, &server.exec(&["cat"], STREAMS), Some("v5.channel.k8s.io")).await;
        assert_eq!(next(&mut socket).await, Some((0x82, vec![1])));
        // A client that violated the protocol may still be sending.
        socket.write_all(bytes).await.unwrap();
        let mut frames = Vec::new();
        while let Some(frame) = next(&mut socket).await {
            frames.push(frame);
        }
        assert!(frames.contains(&(0x88, vec![0x03, 0xea])), "{what}: {frames:02x?}");
    }
}

#[tokio::test]
async fn garbage_after_an_upgrade_closes_the_connection() {
    let server = start(Config::default()).await;
    for garbage in [&[0xff; 4096][..], &[0x80; 4096], b"\x80\x03\x00\x01\x00\xff\xff\xff"] {
        let mut socket = spdy(&server, &server.exec(&["cat"], STREAMS)).await;
        // The server may close while this is written.
        let _ = socket.write_all(garbage).await;
        until_closed(socket).await;
    }
}

#[tokio::test]
async fn a_client_that_opens_no_streams_is_closed() {
    let config = Config { stream_creation: Duration::from_millis(50), ..Config::default() };
    let server = start(config).await;
    let socket = spdy(&server, &server.exec(&["cat"], STREAMS)).await;
    let said = in_time("a goodbye", async {
        let mut socket = socket;
        let mut said = [0; 16];
        socket.read_exact(&mut said).await.unwrap();
        said
    });
    let goodbye = [0x80, 3, 0, 7, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(said.await, goodbye);
}

#[tokio::test]
async fn an_idle_session_is_closed() {
    // Longer than a busy machine takes from the server's response to the client's first read.
    let config = Config { idle: Duration::from_secs(2), ..Config::default() };
    let server = start(config).await;
    let socket = websocket(&server, &server.exec(&["cat"], STREAMS), Some("v5.channel.k8s.io")).await;
    until_closed(socket).await;
}

#[tokio::test]
async fn a_message_of_a_gigabyte_goes_through_without_being_kept() {
    let server = start(Config::default()).await;
    let mut socket = websocket(&server, &server.exec(&["cat"], STREAMS), Some("v5.channel.k8s.io")).await;
    next(&mut socket).await.unwrap();
    // Its beginning comes back long before its end is sent.
    socket.write_all(b"\x82\xff\0\0\0\0\x40\0\0\0\0\0\0\0\0begin").await.unwrap();
    assert_eq!(next(&mut socket).await, Some((0x82, b"\x01begin".to_vec())));
}

#[tokio::test]
async fn requests_other_than_upgrades_get_a_response() {
    let server = start(Config::default()).await;
    for (url, headers, status) in [
        (server.exec(&["cat"], STREAMS), &["Upgrade: h2c"][..], "400"),
        (server.exec(&["cat"], STREAMS), &["Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v9"], "403"),
        (format!("http://{}/exec/0123", server.address), &["Upgrade: SPDY/3.1"], "404"),
        (format!("http://{}/", server.address), &["Upgrade: SPDY/3.1"], "404"),
        (server.port_forward(&[]).replace("portforward", "exec"), &["Upgrade: SPDY/3.1"], "404"),
    ] {
        let (head, _) = request(&server, &url, headers).await;
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{head}");
    }
}

/// Any user of the machine can connect.
#[tokio::test]
async fn silent_connections_do_not_block_other_clients() {
    let server = start(Config::default()).await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    assert_eq!(until_closed(silent.swap_remove(0)).await, b"", "the oldest goes");
    let (head, _) = request(&server, &format!("http://{}/", server.address), &[]).await;
    assert!(head.starts_with("http/1.1 404 ") && head.contains("connection: close"), "{head}");
}

#[tokio::test]
async fn a_client_that_disconnects_does_not_affect_others() {
    let server = start(Config::default()).await;
    for _ in 0..20 {
        let mut socket = websocket(&server, &server.exec(&["flood", "100000000"], STREAMS), None).await;
        next(&mut socket).await.unwrap();
        drop(socket);
    }
    let mut socket = websocket(&server, &server.exec(&["both"], STREAMS), None).await;
    let mut frames = Vec::new();
    while let Some(frame) = next(&mut socket).await {
        frames.push(frame);
    }
    assert!(frames.contains(&(0x82, b"\x01for stdout".to_vec())), "{frames:?}");
}
