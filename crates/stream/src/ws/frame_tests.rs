//! Frames there and back, and heads that no peer may send.

use proptest::prelude::*;

use super::*;
use crate::ws::reader::{Event, WsReader};

fn encode(role: Role, codec: Codec, frame: &WsFrame) -> BytesMut {
    let mut buffer = BytesMut::new();
    WsEncoder { role, codec }.encode(frame, &mut buffer).unwrap();
    buffer
}

async fn read_all(from: Role, bytes: &[u8]) -> Result<Vec<Event>, StreamError> {
    let mut reader = WsReader::new(bytes, from);
    let mut events = Vec::new();
    loop {
        match reader.next().await? {
            Event::Gone => return Ok(events),
            event => events.push(event),
        }
    }
}

fn payload(events: &[Event]) -> Vec<u8> {
    let pieces = events.iter().map(|event| match event {
        Event::Payload { piece, .. } => &piece[..],
        other => panic!("{other:?}"),
    });
    pieces.collect::<Vec<_>>().concat()
}

/// The examples of RFC 6455, section 5.7.
#[tokio::test]
async fn frames_of_the_specification_are_read() {
    let hello = |events: Result<Vec<Event>, StreamError>| assert_eq!(payload(&events.unwrap()), b"Hello");
    hello(read_all(Role::Server, b"\x81\x05Hello").await);
    hello(read_all(Role::Client, b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58").await);
    hello(read_all(Role::Server, b"\x01\x03Hel\x80\x02lo").await);
    let ping = read_all(Role::Server, b"\x89\x05Hello").await.unwrap();
    assert_eq!(ping, [Event::Ping(Bytes::from_static(b"Hello"))]);
}

#[tokio::test]
async fn a_ping_may_come_between_the_pieces_of_a_message() {
    let events = read_all(Role::Server, b"\x01\x03Hel\x89\x00\x80\x02lo").await.unwrap();
    let piece = |start, end, piece: &'static [u8]| Event::Payload { start, end, piece: Bytes::from_static(piece) };
    assert_eq!(events, [piece(true, false, b"Hel"), Event::Ping(Bytes::new()), piece(false, true, b"lo")]);
}

#[tokio::test]
async fn invalid_frames_are_refused() {
    for (from, bytes, what) in [
        (Role::Server, &b"\xc1\x00"[..], "a reserved bit"),
        (Role::Server, b"\x83\x00", "an unknown opcode"),
        (Role::Server, b"\x8b\x00", "an unknown control opcode"),
        (Role::Server, b"\x09\x00", "a fragmented ping"),
        (Role::Server, b"\x89\x7e\x00\x7e", "a ping of 126 bytes"),
        (Role::Server, b"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff", "a length beyond the maximum"),
        (Role::Server, b"\x82\x80\x00\x00\x00\x00", "a server that masks"),
        (Role::Client, b"\x82\x00", "a client that does not mask"),
        (Role::Server, b"\x80\x00", "a continuation without a beginning"),
        (Role::Server, b"\x02\x00\x82\x00", "a message within a message"),
        (Role::Server, b"\x82\x05abc", "an end within a frame"),
        (Role::Server, b"\x82", "an end within a head"),
    ] {
        assert!(read_all(from, bytes).await.is_err(), "{what} was taken");
    }
}

#[test]
fn base64_channels_are_digits() {
    let frame = WsFrame::Message { channel: Some(1), payload: Bytes::from_static(b"\n") };
    assert_eq!(encode(Role::Server, Codec::Base64, &frame)[..], *b"\x81\x051Cg==");
}

proptest! {
    // The long ones take their time.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn messages_there_and_back(role in prop_oneof![Just(Role::Client), Just(Role::Server)], length in prop_oneof![
        0usize..200, 65_000usize..66_000, Just(200_000usize)], channel in any::<u8>()) {
        let sent = Bytes::from((0..length).map(|n| n as u8).collect::<Vec<_>>());
        let bytes = encode(role, Codec::Binary, &WsFrame::Message { channel: Some(channel), payload: sent.clone() });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let events = runtime.block_on(read_all(role, &bytes)).unwrap();
        let received = payload(&events);
        prop_assert_eq!(received[0], channel);
        prop_assert!(received[1..] == sent[..]);
        let last = matches!(events.last(), Some(Event::Payload { end: true, .. }));
        prop_assert!(last);
    }

    #[test]
    fn garbage_is_an_error_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for from in [Role::Client, Role::Server] {
            let _ = runtime.block_on(read_all(from, &bytes));
        }
    }
}
