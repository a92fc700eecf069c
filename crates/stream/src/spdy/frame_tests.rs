//! Frames there and back, frames of another implementation, and invalid bytes.

use proptest::prelude::*;

use super::*;

/// Takes the first frame from `bytes`, which holds all of it.
fn take(decoder: &mut Decoder, bytes: &mut &[u8]) -> Result<Frame, SpdyError> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>().expect("a head");
    match Head::parse(*head)? {
        Head::Control { kind, fin, length } => {
            let (body, rest) = rest.split_at_checked(length).ok_or(SpdyError::Short { kind, length })?;
            *bytes = rest;
            decoder.control(kind, fin, body)
        }
        Head::Data { id, fin, length } => {
            let (payload, rest) = rest.split_at_checked(length).ok_or(SpdyError::Short { kind: 0, length })?;
            *bytes = rest;
            Ok(Frame::Data { id, fin, payload: Bytes::copy_from_slice(payload) })
        }
    }
}

fn frames() -> impl Strategy<Value = Frame> {
    let id = 1u32..=ID;
    let headers = || prop::collection::btree_map("[a-z-]{1,12}", "[ -~]{0,40}", 0..5);
    prop_oneof![
        (id.clone(), any::<bool>(), headers()).prop_map(|(id, fin, headers)| Frame::SynStream { id, fin, headers }),
        (id.clone(), any::<bool>(), headers()).prop_map(|(id, fin, headers)| Frame::SynReply { id, fin, headers }),
        (id.clone(), any::<bool>(), headers()).prop_map(|(id, fin, headers)| Frame::Headers { id, fin, headers }),
        (id.clone(), any::<u32>()).prop_map(|(id, status)| Frame::RstStream { id, status }),
        any::<u32>().prop_map(Frame::Ping),
        (0..=ID, any::<u32>()).prop_map(|(last, status)| Frame::GoAway { last, status }),
        (id, any::<bool>(), prop::collection::vec(any::<u8>(), 0..200)).prop_map(|(id, fin, payload)| Frame::Data {
            id,
            fin,
            payload: payload.into()
        }),
    ]
}

#[test]
fn a_frame_of_another_implementation_is_understood() {
    let bytes =
        b"\x80\x03\x00\x01\x00\x00\x00\x29\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x78\xf9\xe3\xc6\xa7\xc2\x62\x60\
        \x60\x60\x04\xa7\xb3\x92\xa2\xd4\xc4\x5c\x68\x51\xc2\x9a\x0a\x0a\x68\x00\x00\x00\x00\xff\xff";
    let headers = Headers::from([("streamtype".to_owned(), "error".to_owned())]);
    let read = take(&mut Decoder::new(), &mut &bytes[..]).unwrap();
    assert_eq!(read, Frame::SynStream { id: 1, fin: false, headers });
}

#[test]
fn a_reset_is_written_as_the_specification_draws_it() {
    let mut buffer = BytesMut::new();
    Encoder::new().unwrap().encode(&Frame::RstStream { id: 5, status: reset::REFUSED }, &mut buffer).unwrap();
    assert_eq!(buffer[..], [0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0, 3]);
}

#[test]
fn heads_that_no_peer_may_send_are_refused() {
    let control = |kind: u8, length: [u8; 3]| [0x80, 3, 0, kind, 0, length[0], length[1], length[2]];
    let refused = Head::parse(control(1, [1, 0, 1]));
    assert!(matches!(refused, Err(SpdyError::ControlTooLarge { length: 65537, .. })), "{refused:?}");
    let refused = Head::parse([0x80, 2, 0, 1, 0, 0, 0, 0]);
    assert!(matches!(refused, Err(SpdyError::Version { found: 2 })), "{refused:?}");
    let refused = Head::parse([0, 0, 0, 0, 0, 0, 0, 1]);
    assert!(matches!(refused, Err(SpdyError::StreamZero)), "{refused:?}");
}

#[test]
fn bodies_that_are_too_short_are_refused() {
    for kind in [SYN_STREAM, SYN_REPLY, RST_STREAM, PING, GOAWAY, HEADERS] {
        let refused = Decoder::new().control(kind, false, &[0, 0, 1]);
        assert!(matches!(refused, Err(SpdyError::Short { .. })), "kind {kind}: {refused:?}");
    }
}

proptest! {
    // zlib is slow where it is not optimised.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn frames_there_and_back(frames in prop::collection::vec(frames(), 1..20)) {
        let (mut encoder, mut decoder, mut buffer) = (Encoder::new().unwrap(), Decoder::new(), BytesMut::new());
        for frame in &frames {
            encoder.encode(frame, &mut buffer).unwrap();
        }
        let mut bytes = &buffer[..];
        for frame in &frames {
            prop_assert_eq!(&take(&mut decoder, &mut bytes).unwrap(), frame);
        }
        prop_assert!(bytes.is_empty());
    }

    #[test]
    fn garbage_is_an_error_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), HEAD..300)) {
        let (mut decoder, mut rest) = (Decoder::new(), &bytes[..]);
        while rest.len() >= HEAD && take(&mut decoder, &mut rest).is_ok() {}
    }

    #[test]
    fn bodies_of_garbage_are_an_error_and_never_a_panic(
        kind in 0u16..12, fin in any::<bool>(), body in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Decoder::new().control(kind, fin, &body);
    }
}
