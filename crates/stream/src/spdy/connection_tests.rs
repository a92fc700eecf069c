//! A server and a peer that writes raw frames.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::timeout;

use super::super::headers::MAX_INFLATED;
use super::*;

const IDLE: Duration = Duration::from_secs(4 * 60 * 60);

struct Peer {
    socket: DuplexStream,
    encoder: Encoder,
    decoder: Decoder,
}

impl Peer {
    async fn send(&mut self, frame: Frame) {
        let mut buffer = BytesMut::new();
        self.encoder.encode(&frame, &mut buffer).unwrap();
        self.socket.write_all(&buffer).await.unwrap();
    }

    async fn open(&mut self, id: u32) {
        self.send(Frame::SynStream { id, fin: false, headers: Headers::new() }).await;
    }

    async fn data(&mut self, id: u32, fin: bool, payload: &'static [u8]) {
        self.send(Frame::Data { id, fin, payload: bytes::Bytes::from_static(payload) }).await;
    }

    /// What comes next, long before the connection would be idle.
    async fn next(&mut self) -> Option<Frame> {
        timeout(Duration::from_secs(60), self.read()).await.expect("a frame, or an end, in time")
    }

    async fn read(&mut self) -> Option<Frame> {
        let mut head = [0; HEAD];
        self.socket.read_exact(&mut head).await.ok()?;
        let head = Head::parse(head).unwrap();
        let (Head::Control { length, .. } | Head::Data { length, .. }) = head;
        let mut body = vec![0; length];
        self.socket.read_exact(&mut body).await.ok()?;
        Some(match head {
            Head::Control { kind, fin, .. } => self.decoder.control(kind, fin, &body).unwrap(),
            Head::Data { id, fin, .. } => Frame::Data { id, fin, payload: body.into() },
        })
    }
}

fn start() -> (Spdy, Peer) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let peer = Peer { socket: far, encoder: Encoder::new().unwrap(), decoder: Decoder::new() };
    (Spdy::start(near, Role::Server, IDLE).unwrap(), peer)
}

const PROTOCOL_ERROR: Option<Frame> = Some(Frame::GoAway { last: 0, status: goaway::PROTOCOL_ERROR });

#[tokio::test(start_paused = true)]
async fn a_reply_comes_before_what_is_sent_and_an_end_after_it() {
    let (mut spdy, mut peer) = start();
    peer.open(1).await;
    let mut channel = spdy.accept().await.unwrap().accept().await.unwrap();
    channel.outbound.write_all(b"hello").await.unwrap();
    drop(channel.outbound);
    let data = |fin, payload: &'static [u8]| Some(Frame::Data { id: 1, fin, payload: payload.into() });
    assert_eq!(peer.next().await, Some(Frame::SynReply { id: 1, fin: false, headers: Headers::new() }));
    assert_eq!(peer.next().await, data(false, b"hello"));
    assert_eq!(peer.next().await, data(true, b""));
}

#[tokio::test(start_paused = true)]
async fn one_direction_ends_without_the_other() {
    let (mut spdy, mut peer) = start();
    peer.open(1).await;
    let mut channel = spdy.accept().await.unwrap().accept().await.unwrap();
    peer.data(1, false, b"all of ").await;
    peer.data(1, true, b"it").await;
    let mut text = String::new();
    channel.inbound.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "all of it");
    channel.outbound.write_all(b"still here").await.unwrap();
    peer.next().await.unwrap();
    assert!(matches!(peer.next().await, Some(Frame::Data { fin: false, .. })));
}

#[tokio::test(start_paused = true)]
async fn a_reset_ends_both_directions() {
    let (mut spdy, mut peer) = start();
    peer.open(1).await;
    let mut channel = spdy.accept().await.unwrap().accept().await.unwrap();
    peer.send(Frame::RstStream { id: 1, status: reset::CANCEL }).await;
    assert_eq!(channel.inbound.read(&mut [0; 1]).await.unwrap(), 0);
    channel.outbound.write_all(b"x").await.unwrap_err();
    channel.sent.await.unwrap_err();
    assert!(spdy.table.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn streams_that_ended_are_forgotten() {
    let (mut spdy, mut peer) = start();
    for id in (1..4 * MAX_STREAMS as u32).step_by(2) {
        peer.open(id).await;
        let channel = spdy.accept().await.unwrap().accept().await.unwrap();
        drop(channel.outbound);
        peer.data(id, true, b"bye").await;
        while peer.next().await.unwrap() != (Frame::Data { id, fin: true, payload: bytes::Bytes::new() }) {}
        channel.sent.await.unwrap();
    }
    peer.open(0x7fff_ffff).await;
    spdy.accept().await.unwrap();
    assert!(spdy.table.lock().len() <= 2, "{} streams are left", spdy.table.lock().len());
}

#[tokio::test(start_paused = true)]
async fn streams_beyond_the_limit_are_refused_and_the_others_continue() {
    let (mut spdy, mut peer) = start();
    let opened = tokio::spawn(async move {
        let mut channels = Vec::new();
        for _ in 0..MAX_STREAMS {
            channels.push(spdy.accept().await.unwrap().accept().await.unwrap());
        }
        (spdy, channels)
    });
    let last = 2 * MAX_STREAMS as u32 + 1;
    for id in (1..last).step_by(2) {
        peer.open(id).await;
        assert!(matches!(peer.next().await, Some(Frame::SynReply { .. })));
    }
    let (_spdy, _channels) = opened.await.unwrap();
    peer.open(last).await;
    assert_eq!(peer.next().await, Some(Frame::RstStream { id: last, status: reset::REFUSED }));
    peer.send(Frame::Ping(1)).await;
    assert_eq!(peer.next().await, Some(Frame::Ping(1)));
}

#[tokio::test(start_paused = true)]
async fn an_unread_stream_blocks_its_peer_and_fills_no_memory() {
    let (mut spdy, mut peer) = start();
    peer.open(1).await;
    let channel = spdy.accept().await.unwrap().accept().await.unwrap();
    let flood = async {
        loop {
            peer.data(1, false, &[0; 1024]).await;
        }
    };
    timeout(Duration::from_secs(60), flood).await.expect_err("the peer was stopped");
    drop(channel);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_stream_does_not_block_its_peer() {
    let (mut spdy, mut peer) = start();
    peer.open(1).await;
    drop(spdy.accept().await.unwrap().accept().await.unwrap());
    for _ in 0..1000 {
        peer.data(1, false, &[0; 1024]).await;
    }
    peer.send(Frame::Ping(3)).await;
    while peer.next().await.unwrap() != Frame::Ping(3) {}
}

#[tokio::test(start_paused = true)]
async fn invalid_stream_ids_end_the_connection() {
    for ids in [&[2][..], &[3, 1], &[1, 1]] {
        let (mut spdy, mut peer) = start();
        for id in ids {
            peer.open(*id).await;
        }
        assert_eq!(peer.next().await, PROTOCOL_ERROR, "{ids:?}");
        spdy.hangup().wait().await;
        while spdy.accept().await.is_some() {}
    }
}

#[tokio::test(start_paused = true)]
async fn bombs_and_garbage_end_the_connection_and_its_streams() {
    let bomb = Headers::from([("a".to_owned(), "x".repeat(MAX_INFLATED))]);
    let mut bombed = BytesMut::new();
    let mut encoder = Encoder::new().unwrap();
    encoder.encode(&Frame::SynStream { id: 3, fin: false, headers: bomb }, &mut bombed).unwrap();
    for (bytes, what) in [
        (&bombed[..], "a bomb"),
        (b"\x80\x03\x00\x01\x00\xff\xff\xff", "a control frame of 16 MiB"),
        (b"\x80\x02\x00\x01\x00\x00\x00\x00", "another version"),
        (b"\x80\x03\x00\x01\x00\x00\x00\x04\x00\x00\x00\x03", "a stream without headers"),
        (b"\x00\x00\x00\x00\x00\x00\x00\x00", "stream 0"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff", "HTTP"),
    ] {
        let (mut spdy, mut peer) = start();
        // Its zlib stream is at the same place as that of the bomb.
        peer.socket.write_all(bytes).await.unwrap();
        if what == "HTTP" {
            // It reads as a long data frame of a stream that does not exist, and is thrown away up to its end.
            drop(peer);
        } else {
            assert_eq!(peer.next().await, PROTOCOL_ERROR, "{what}");
            assert_eq!(peer.next().await, None, "{what}");
        }
        spdy.hangup().wait().await;
        assert!(spdy.accept().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_and_its_streams_end() {
    let (mut spdy, mut peer) = start();
    peer.open(1).await;
    let mut channel = spdy.accept().await.unwrap().accept().await.unwrap();
    let nearly = IDLE - Duration::from_secs(1);
    tokio::time::sleep(nearly).await;
    // A window update, which needs no answer.
    peer.socket.write_all(b"\x80\x03\0\x09\0\0\0\x08\0\0\0\x01\0\0\0\x01").await.unwrap();
    tokio::time::sleep(nearly).await;
    assert!(!spdy.link.frames.is_closed(), "what is read keeps it alive");
    channel.outbound.write_all(b"x").await.unwrap();
    tokio::time::sleep(nearly).await;
    assert!(!spdy.link.frames.is_closed(), "what is written keeps it alive");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(spdy.link.frames.is_closed());
    spdy.hangup().wait().await;
    assert_eq!(channel.inbound.read(&mut [0; 1]).await.unwrap(), 0);
    channel.outbound.write_all(b"x").await.unwrap_err();
}

/// Closing at once would make the kernel reset the connection of a client that still writes.
#[tokio::test(start_paused = true)]
async fn after_a_goodbye_the_peer_may_write_until_it_closes() {
    let (spdy, mut peer) = start();
    let ended = tokio::spawn(spdy.into_link().end(SpdyEnd::goodbye()));
    assert_eq!(peer.next().await, Some(Frame::GoAway { last: 0, status: goaway::OK }));
    for _ in 0..1000 {
        peer.data(1, false, &[0; 1024]).await;
    }
    assert!(!ended.is_finished());
    drop(peer);
    timeout(Duration::from_secs(1), ended).await.expect("at once").unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_closes_is_disconnected_after_a_while() {
    let (spdy, _peer) = start();
    timeout(Duration::from_secs(60), spdy.into_link().end(SpdyEnd::goodbye())).await.expect("it ends");
}

#[tokio::test(start_paused = true)]
async fn a_user_that_panics_closes_the_connection() {
    let (spdy, mut peer) = start();
    let panics = tokio::spawn(async move {
        let _kept = spdy;
        panic!("on purpose");
    });
    panics.await.unwrap_err();
    assert_eq!(peer.next().await, None);
}
