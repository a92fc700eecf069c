//! WebSocket frames: their heads in, whole frames out. Pure, except for the random masks of a client.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};

use super::WsError;
use crate::StreamError;
use crate::link::{Encode, Role};

/// The longest head: two bytes, eight of length, four of mask.
pub(crate) const MAX_HEAD: usize = 14;

/// Pings, pongs and closes are never longer.
pub(crate) const MAX_CONTROL: u64 = 125;

/// Normal closure.
pub(crate) const CLOSE_NORMAL: u16 = 1000;

/// Protocol error.
pub(crate) const CLOSE_PROTOCOL_ERROR: u16 = 1002;

/// The message that closes a channel begins with this byte.
pub(crate) const CLOSE_SIGNAL: u8 = 255;

const FIN: u8 = 0x80;
const MASKED: u8 = 0x80;

/// Kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

/// What a frame says before its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) fin: bool,
    pub(crate) opcode: Opcode,
    pub(crate) mask: Option<[u8; 4]>,
    pub(crate) length: u64,
}

/// What is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WsFrame {
    /// A message, whole; on a channel, or raw.
    Message {
        channel: Option<u8>,
        payload: Bytes,
    },
    Pong(Bytes),
    Close(u16),
}

/// How payload is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    Binary,
    Base64,
}

/// Writes frames.
pub(crate) struct WsEncoder {
    pub(crate) role: Role,
    pub(crate) codec: Codec,
}

/// How many bytes the head has whose first two are given.
pub(crate) fn head_length(start: [u8; 2]) -> usize {
    let length = match start[1] & !MASKED {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    2 + length + if start[1] & MASKED == 0 { 0 } else { 4 }
}

/// Reads a complete head; `from` is its sender.
pub(crate) fn parse(head: &[u8], from: Role) -> Result<FrameHead, WsError> {
    let [first, second, rest @ ..] = head else { return Err(WsError::Order) };
    if first & 0x70 != 0 {
        return Err(WsError::Reserved);
    }
    let (opcode, fin) = (Opcode::parse(first & 0x0f)?, first & FIN != 0);
    let (length, rest) = match (second & !MASKED, rest) {
        (126, [a, b, rest @ ..]) => (u64::from(u16::from_be_bytes([*a, *b])), rest),
        (127, [a, b, c, d, e, f, g, h, rest @ ..]) => (u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]), rest),
        (126 | 127, _) => return Err(WsError::Order),
        (length, rest) => (u64::from(length), rest),
    };
    if length > u64::MAX >> 1 {
        return Err(WsError::Length(length));
    }
    if opcode.is_control() && (!fin || length > MAX_CONTROL) {
        return Err(WsError::Control { length });
    }
    let mask = match (second & MASKED != 0, from, rest) {
        (true, Role::Client, [a, b, c, d]) => Some([*a, *b, *c, *d]),
        (false, Role::Server, []) => None,
        _ => return Err(WsError::Mask),
    };
    Ok(FrameHead { fin, opcode, mask, length })
}

/// Masks or unmasks `payload`, whose first byte is the `offset`th of its frame.
pub(crate) fn apply_mask(payload: &mut [u8], mask: [u8; 4], offset: u64) {
    for (byte, index) in payload.iter_mut().zip(offset..) {
        *byte ^= mask[(index % 4) as usize];
    }
}

fn write(buffer: &mut BytesMut, opcode: Opcode, parts: [&[u8]; 2], mask: Option<[u8; 4]>) {
    let length = parts[0].len() + parts[1].len();
    let masked = if mask.is_some() { MASKED } else { 0 };
    buffer.reserve(MAX_HEAD + length);
    buffer.put_u8(FIN | opcode.code());
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ 0..=125), _) => buffer.put_u8(masked | short),
        (_, Ok(middle)) => {
            buffer.put_u8(masked | 126);
            buffer.put_u16(middle);
        }
        _ => {
            buffer.put_u8(masked | 127);
            buffer.put_u64(length as u64);
        }
    }
    if let Some(mask) = mask {
        buffer.put_slice(&mask);
    }
    let start = buffer.len();
    buffer.put_slice(parts[0]);
    buffer.put_slice(parts[1]);
    if let Some(mask) = mask {
        apply_mask(&mut buffer[start..], mask, 0);
    }
}

// === impl Opcode ===

impl Opcode {
    fn parse(code: u8) -> Result<Self, WsError> {
        Ok(match code {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            code => return Err(WsError::Opcode(code)),
        })
    }

    fn code(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Text => 1,
            Self::Binary => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }

    pub(crate) fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

// === impl WsEncoder ===

impl Encode for WsEncoder {
    type Frame = WsFrame;

    fn encode(&mut self, frame: &WsFrame, buffer: &mut BytesMut) -> Result<(), StreamError> {
        let mask = match self.role {
            Role::Server => None,
            Role::Client => {
                let mut mask = [0; 4];
                getrandom::fill(&mut mask).map_err(StreamError::Random)?;
                Some(mask)
            }
        };
        match (frame, self.codec) {
            (WsFrame::Message { channel, payload }, Codec::Binary) => {
                write(buffer, Opcode::Binary, [channel.as_slice(), payload], mask);
            }
            (WsFrame::Message { channel, payload }, Codec::Base64) => {
                let digit = channel.map(|channel| channel.wrapping_add(b'0'));
                write(buffer, Opcode::Text, [digit.as_slice(), STANDARD.encode(payload).as_bytes()], mask);
            }
            (WsFrame::Pong(payload), _) => write(buffer, Opcode::Pong, [payload, &[]], mask),
            (WsFrame::Close(code), _) => write(buffer, Opcode::Close, [&code.to_be_bytes(), &[]], mask),
        }
        Ok(())
    }

    fn is_last(frame: &WsFrame) -> bool {
        matches!(frame, WsFrame::Close(_))
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
