//! Clients that write raw bytes: for the protocols that keelet's client does not use.

use keelet_stream::{Config, Streams};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::backend::{CLOSED_PORT, GREETING_PORT, STREAMS, Server, in_time, start};

/// The head of a response, and the connection behind it.
pub(crate) async fn request(server: &Server, url: &str, headers: &[&str]) -> (String, TcpStream) {
    let mut socket = TcpStream::connect(server.address).await.expect("the server listens");
    let path = url.splitn(4, '/').nth(3).expect("a path");
    let lines: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n{lines}\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.expect("an answer"));
    }
    (String::from_utf8(head).unwrap().to_ascii_lowercase(), socket)
}

/// A WebSocket connection with a protocol, or with none.
pub(crate) async fn websocket(server: &Server, url: &str, protocol: Option<&str>) -> TcpStream {
    let mut headers = vec![
        "Upgrade: websocket".to_owned(),
        "Sec-WebSocket-Version: 13".to_owned(),
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==".to_owned(),
    ];
    headers.extend(protocol.map(|protocol| format!("Sec-WebSocket-Protocol: {protocol}")));
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let (head, socket) = request(server, url, &headers).await;
    // Clients accept nothing else as an upgrade.
    assert!(head.starts_with("http/1.1 101 ") && head.contains("\r\nconnection: upgrade\r\n"), "{head}");
    if let Some(protocol) = protocol {
        assert!(head.contains(&format!("sec-websocket-protocol: {}", protocol.to_ascii_lowercase())), "{head}");
    }
    socket
}

/// A frame from a client, with a mask that changes nothing.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).ok().filter(|length| *length < 126).expect("a short frame");
    [&[first, 0x80 | length, 0, 0, 0, 0], payload].concat()
}

/// The next frame of the server: its first byte and its payload. `None` if there are no more.
pub(crate) async fn next(socket: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    in_time("a frame, or an end", read_frame(socket)).await
}

async fn read_frame(socket: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let first = socket.read_u8().await.ok()?;
    let length = match socket.read_u8().await.ok()? {
        126 => usize::from(socket.read_u16().await.ok()?),
        short => usize::from(short),
    };
    let mut payload = vec![0; length];
    socket.read_exact(&mut payload).await.ok()?;
    Some((first, payload))
}

const BINARY: u8 = 0x82;
const TEXT: u8 = 0x81;
const CLOSE: u8 = 0x88;
const NORMAL: &[u8] = &[0x03, 0xe8];

#[tokio::test]
async fn a_session_of_version_5_frame_by_frame() {
    let server = start(Config::default()).await;
    let mut socket = websocket(&server, &server.exec(&["cat"], STREAMS), Some("v5.channel.k8s.io")).await;
    assert_eq!(next(&mut socket).await, Some((BINARY, vec![1])), "the session announces itself");
    // In two pieces, with a ping between them.
    socket.write_all(&frame(0x02, b"\0he")).await.unwrap();
    assert_eq!(next(&mut socket).await, Some((BINARY, b"\x01he".to_vec())));
    socket.write_all(&frame(0x89, b"are you there")).await.unwrap();
    assert_eq!(next(&mut socket).await, Some((0x8a, b"are you there".to_vec())));
    socket.write_all(&frame(0x80, b"llo")).await.unwrap();
    assert_eq!(next(&mut socket).await, Some((BINARY, b"\x01llo".to_vec())));
    socket.write_all(&frame(BINARY, &[255, 0])).await.unwrap();
    let status = br#"{"metadata":{},"status":"Success"}"#;
    assert_eq!(next(&mut socket).await, Some((BINARY, [&[3], &status[..]].concat())));
    assert_eq!(next(&mut socket).await, Some((CLOSE, NORMAL.to_vec())));
    assert_eq!(next(&mut socket).await, None);
}

#[tokio::test]
async fn version_4_has_no_close_signal() {
    let server = start(Config::default()).await;
    let mut socket = websocket(&server, &server.exec(&["cat"], STREAMS), Some("v4.channel.k8s.io")).await;
    next(&mut socket).await.unwrap();
    // To a server of version 4 this is a message for an unknown channel.
    socket.write_all(&frame(BINARY, &[255, 0])).await.unwrap();
    socket.write_all(&frame(BINARY, b"\0still open")).await.unwrap();
    assert_eq!(next(&mut socket).await, Some((BINARY, b"\x01still open".to_vec())));
    // The end of the connection closes stdin.
    socket.write_all(&frame(CLOSE, NORMAL)).await.unwrap();
    while let Some((first, _)) = next(&mut socket).await {
        assert!([BINARY, CLOSE].contains(&first));
    }
}

#[tokio::test]
async fn base64_is_decoded_and_encoded() {
    let server = start(Config::default()).await;
    let mut socket = websocket(&server, &server.exec(&["cat"], STREAMS), Some("v4.base64.channel.k8s.io")).await;
    assert_eq!(next(&mut socket).await, Some((TEXT, b"1".to_vec())));
    // "foo\n" in two pieces that are not groups of four.
    socket.write_all(&frame(0x01, b"0Zm9v")).await.unwrap();
    assert_eq!(next(&mut socket).await, Some((TEXT, b"1Zm9v".to_vec())));
    socket.write_all(&frame(0x00, b"C")).await.unwrap();
    socket.write_all(&frame(0x80, b"g==")).await.unwrap();
    assert_eq!(next(&mut socket).await, Some((TEXT, b"1Cg==".to_vec())));
    socket.write_all(&frame(TEXT, b"0!!!!")).await.unwrap();
    assert_eq!(next(&mut socket).await, Some((CLOSE, vec![0x03, 0xea])), "invalid base64 is a protocol error");
}

#[tokio::test]
async fn a_client_without_a_protocol_gets_errors_as_text() {
    let server = start(Config::default()).await;
    let mut socket = websocket(&server, &server.exec(&["nonsense"], STREAMS), None).await;
    assert_eq!(next(&mut socket).await, Some((BINARY, vec![1])));
    let text = b"\x03error executing command in container: nonsense: no such file";
    assert_eq!(next(&mut socket).await, Some((BINARY, text.to_vec())));
    assert_eq!(next(&mut socket).await, Some((CLOSE, NORMAL.to_vec())));
}

#[tokio::test]
async fn ports_over_websocket_have_two_channels_each() {
    let server = start(Config::default()).await;
    let url = server.port_forward(&[GREETING_PORT, CLOSED_PORT]);
    let mut socket = websocket(&server, &url, Some("v4.channel.k8s.io")).await;
    let mut channels = vec![Vec::new(); 4];
    loop {
        match next(&mut socket).await.expect("a close frame comes first") {
            (CLOSE, code) => break assert_eq!(code, NORMAL),
            (_, payload) => channels[usize::from(payload[0])].extend_from_slice(&payload[1..]),
        }
    }
    assert_eq!(channels[0], b"\x0d\0hello from s1");
    assert_eq!(channels[1], b"\x0d\0");
    assert_eq!(channels[2], b"\x09\0");
    assert_eq!(channels[3], b"\x09\0error forwarding port 9 to sandbox s1: connection refused on port 9");
}

#[tokio::test]
async fn ports_may_be_in_the_query() {
    let server = start(Config::default()).await;
    let url = format!("{}?port={GREETING_PORT}", server.port_forward(&[]));
    let mut socket = websocket(&server, &url, Some("v4.channel.k8s.io")).await;
    assert_eq!(next(&mut socket).await.unwrap().1[1..], GREETING_PORT.to_le_bytes());
    let headers = ["Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA=="];
    let (head, _) = request(&server, &server.port_forward(&[]), &headers).await;
    assert!(head.starts_with("http/1.1 400 "), "{head}");
}

#[tokio::test]
async fn a_session_without_stdout_announces_itself_on_another_channel() {
    let server = start(Config::default()).await;
    let streams = Streams { stdin: true, ..Streams::default() };
    let mut socket = websocket(&server, &server.exec(&["exit", "7"], streams), Some("v5.channel.k8s.io")).await;
    assert_eq!(next(&mut socket).await, Some((BINARY, vec![3])));
}
