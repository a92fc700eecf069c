//! Frames of SPDY/3.1: bytes in, frames out, and back. Pure.
//!
//! Data frames are not read whole: their payload may be 16 MiB and goes to its stream piece by piece. So [`Head`] is
//! read first, and only control frames have a body here.

use bytes::{BufMut, Bytes, BytesMut};

use super::SpdyError;
use super::headers::{Deflater, Headers, Inflater};

/// Every frame starts with this many bytes.
pub(crate) const HEAD: usize = 8;

/// Compressed headers are hundreds of bytes; settings are tens. Larger control frames have no use here.
pub(crate) const MAX_CONTROL: usize = 64 * 1024;

const VERSION: u16 = 3;
const CONTROL: u32 = 0x8000_0000;
const FLAG_FIN: u8 = 1;
const LENGTH: u32 = 0x00ff_ffff;
const ID: u32 = 0x7fff_ffff;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const SETTINGS: u16 = 4;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
const WINDOW_UPDATE: u16 = 9;

/// What the first eight bytes of a frame say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// A control frame whose body of `length` bytes follows.
    Control { kind: u16, fin: bool, length: usize },
    /// Payload of a stream, `length` bytes of it.
    Data { id: u32, fin: bool, length: usize },
}

/// A frame. Those without use for keelet are known by name and carry nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    SynStream {
        id: u32,
        fin: bool,
        headers: Headers,
    },
    SynReply {
        id: u32,
        fin: bool,
        headers: Headers,
    },
    RstStream {
        id: u32,
        status: u32,
    },
    Ping(u32),
    GoAway {
        last: u32,
        status: u32,
    },
    /// Later headers of a stream. They mean nothing here, but are part of the zlib stream and have to be inflated.
    Headers {
        id: u32,
        fin: bool,
        headers: Headers,
    },
    Data {
        id: u32,
        fin: bool,
        payload: Bytes,
    },
    /// Settings, window updates and unknown kinds of frames.
    Ignored,
}

/// Why a stream is reset.
pub(crate) mod reset {
    /// The stream was refused.
    pub(crate) const REFUSED: u32 = 3;
    /// The stream is no longer read.
    pub(crate) const CANCEL: u32 = 5;
}

/// Why a connection ends.
pub(crate) mod goaway {
    /// Everything was done.
    pub(crate) const OK: u32 = 0;
    /// The peer violated the protocol.
    pub(crate) const PROTOCOL_ERROR: u32 = 1;
}

/// Writes frames. It owns the zlib stream of its direction, so frames have to leave in the order they were encoded.
pub(crate) struct Encoder {
    deflater: Deflater,
}

/// Reads the bodies of control frames, in the order they came.
pub(crate) struct Decoder {
    inflater: Inflater,
}

// === impl Head ===

impl Head {
    pub(crate) fn parse(bytes: [u8; HEAD]) -> Result<Self, SpdyError> {
        let [a, b, c, d, flags, e, f, g] = bytes;
        let word = u32::from_be_bytes([a, b, c, d]);
        let length = u32::from_be_bytes([0, e, f, g]) as usize;
        let fin = flags & FLAG_FIN != 0;
        if word & CONTROL == 0 {
            return match word {
                0 => Err(SpdyError::StreamZero),
                id => Ok(Self::Data { id, fin, length }),
            };
        }
        let version = u16::from_be_bytes([a & 0x7f, b]);
        if version != VERSION {
            return Err(SpdyError::Version { found: version });
        }
        if length > MAX_CONTROL {
            return Err(SpdyError::ControlTooLarge { length, allowed: MAX_CONTROL });
        }
        Ok(Self::Control { kind: u16::from_be_bytes([c, d]), fin, length })
    }
}

// === impl Decoder ===

impl Decoder {
    pub(crate) fn new() -> Self {
        Self { inflater: Inflater::new() }
    }

    /// The control frame of `kind` with `body`.
    pub(crate) fn control(&mut self, kind: u16, fin: bool, body: &[u8]) -> Result<Frame, SpdyError> {
        let mut rest = body;
        let mut number = || {
            let (number, after) = rest.split_first_chunk::<4>().ok_or(SpdyError::Short { kind, length: body.len() })?;
            rest = after;
            Ok::<u32, SpdyError>(u32::from_be_bytes(*number))
        };
        let frame = match kind {
            SYN_STREAM => {
                let id = stream_id(number()?)?;
                let _associated = number()?;
                // Priority and credential slot.
                let block = rest.get(2..).ok_or(SpdyError::Short { kind, length: body.len() })?;
                Frame::SynStream { id, fin, headers: self.inflater.inflate(block)? }
            }
            SYN_REPLY => {
                let id = stream_id(number()?)?;
                Frame::SynReply { id, fin, headers: self.inflater.inflate(rest)? }
            }
            HEADERS => {
                let id = stream_id(number()?)?;
                Frame::Headers { id, fin, headers: self.inflater.inflate(rest)? }
            }
            RST_STREAM => Frame::RstStream { id: stream_id(number()?)?, status: number()? },
            PING => Frame::Ping(number()?),
            GOAWAY => Frame::GoAway { last: number()? & ID, status: number()? },
            SETTINGS | WINDOW_UPDATE => Frame::Ignored,
            // SPDY wants unknown frames to be skipped, so that it can be extended.
            _ => Frame::Ignored,
        };
        Ok(frame)
    }
}

fn stream_id(word: u32) -> Result<u32, SpdyError> {
    match word & ID {
        0 => Err(SpdyError::StreamZero),
        id => Ok(id),
    }
}

// === impl Encoder ===

impl Encoder {
    pub(crate) fn new() -> Result<Self, SpdyError> {
        Ok(Self { deflater: Deflater::new()? })
    }

    /// Appends `frame` to `buffer`. Nothing is appended if it cannot be written.
    pub(crate) fn encode(&mut self, frame: &Frame, buffer: &mut BytesMut) -> Result<(), SpdyError> {
        match frame {
            Frame::SynStream { id, fin, headers } => {
                let block = self.deflater.deflate(headers)?;
                control(buffer, SYN_STREAM, *fin, 10 + block.len())?;
                buffer.put_u32(*id);
                buffer.put_u32(0);
                buffer.put_u16(0);
                buffer.put_slice(&block);
            }
            Frame::SynReply { id, fin, headers } => {
                let block = self.deflater.deflate(headers)?;
                control(buffer, SYN_REPLY, *fin, 4 + block.len())?;
                buffer.put_u32(*id);
                buffer.put_slice(&block);
            }
            Frame::Headers { id, fin, headers } => {
                let block = self.deflater.deflate(headers)?;
                control(buffer, HEADERS, *fin, 4 + block.len())?;
                buffer.put_u32(*id);
                buffer.put_slice(&block);
            }
            Frame::RstStream { id, status } => {
                control(buffer, RST_STREAM, false, 8)?;
                buffer.put_u32(*id);
                buffer.put_u32(*status);
            }
            Frame::Ping(id) => {
                control(buffer, PING, false, 4)?;
                buffer.put_u32(*id);
            }
            Frame::GoAway { last, status } => {
                control(buffer, GOAWAY, false, 8)?;
                buffer.put_u32(*last);
                buffer.put_u32(*status);
            }
            Frame::Data { id, fin, payload } => {
                let length = frame_length(payload.len())?;
                buffer.reserve(HEAD + payload.len());
                buffer.put_u32(*id & ID);
                buffer.put_u32(flags(*fin) | length);
                buffer.put_slice(payload);
            }
            Frame::Ignored => {}
        }
        Ok(())
    }
}

fn control(buffer: &mut BytesMut, kind: u16, fin: bool, length: usize) -> Result<(), SpdyError> {
    let length = frame_length(length)?;
    buffer.reserve(HEAD + length as usize);
    buffer.put_u32(CONTROL | u32::from(VERSION) << 16 | u32::from(kind));
    buffer.put_u32(flags(fin) | length);
    Ok(())
}

fn flags(fin: bool) -> u32 {
    if fin { u32::from(FLAG_FIN) << 24 } else { 0 }
}

fn frame_length(length: usize) -> Result<u32, SpdyError> {
    u32::try_from(length)
        .ok()
        .filter(|length| *length <= LENGTH)
        .ok_or(SpdyError::ControlTooLarge { length, allowed: LENGTH as usize })
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
