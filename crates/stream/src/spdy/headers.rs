//! Header blocks of SPDY/3: names and values with their lengths, compressed by one zlib stream per direction that lasts
//! as long as the connection.
//!
//! A peer can make a few bytes inflate to megabytes, so the output is bounded while it grows, not afterwards.

use std::collections::BTreeMap;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

use super::SpdyError;
use super::dictionary::dictionary;

/// Lower-case names with their values. Several values of one name are separated by a NUL on the wire and here.
pub(crate) type Headers = BTreeMap<String, String>;

/// A stream's headers are its type, a port and a request id: tens of bytes. Proxies add a few of their own.
pub(crate) const MAX_INFLATED: usize = 64 * 1024;

/// More headers than any client sends, few enough to cost nothing.
const MAX_HEADERS: u32 = 256;

/// How far the output grows at once. Compressed headers rarely need a second step.
const STEP: usize = 4 * 1024;

/// The sending side of one direction.
pub(crate) struct Deflater {
    zlib: Compress,
}

/// The receiving side of one direction.
pub(crate) struct Inflater {
    zlib: Decompress,
}

fn encode(headers: &Headers) -> Vec<u8> {
    let mut block = Vec::new();
    let number = |block: &mut Vec<u8>, value: usize| {
        block.extend_from_slice(&u32::try_from(value).unwrap_or(u32::MAX).to_be_bytes());
    };
    number(&mut block, headers.len());
    for (name, value) in headers {
        for text in [name, value] {
            number(&mut block, text.len());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

fn decode(mut block: &[u8]) -> Result<Headers, SpdyError> {
    let count = take_number(&mut block)?;
    if count > MAX_HEADERS {
        return Err(SpdyError::TooManyHeaders { count, allowed: MAX_HEADERS });
    }
    let mut headers = Headers::new();
    for _ in 0..count {
        let name = take_text(&mut block)?.to_ascii_lowercase();
        let value = take_text(&mut block)?;
        if headers.insert(name.clone(), value).is_some() {
            return Err(SpdyError::DuplicateHeader { name });
        }
    }
    if block.is_empty() { Ok(headers) } else { Err(SpdyError::HeaderBlock("bytes are left after the last header")) }
}

fn take_number(block: &mut &[u8]) -> Result<u32, SpdyError> {
    let (number, rest) = block.split_first_chunk::<4>().ok_or(SpdyError::HeaderBlock("it ends within a length"))?;
    *block = rest;
    Ok(u32::from_be_bytes(*number))
}

fn take_text(block: &mut &[u8]) -> Result<String, SpdyError> {
    let length = take_number(block)? as usize;
    let (text, rest) = block.split_at_checked(length).ok_or(SpdyError::HeaderBlock("it ends within a header"))?;
    *block = rest;
    String::from_utf8(text.to_vec()).map_err(|_| SpdyError::HeaderBlock("a header is not UTF-8"))
}

// === impl Deflater ===

impl Deflater {
    pub(crate) fn new() -> Result<Self, SpdyError> {
        let mut zlib = Compress::new(Compression::default(), true);
        zlib.set_dictionary(&dictionary()).map_err(|_| SpdyError::Zlib("zlib refused the dictionary"))?;
        Ok(Self { zlib })
    }

    /// The block of `headers`, complete up to its last byte.
    pub(crate) fn deflate(&mut self, headers: &Headers) -> Result<Vec<u8>, SpdyError> {
        let block = encode(headers);
        let mut input = block.as_slice();
        let mut output = Vec::with_capacity(STEP);
        loop {
            output.reserve(STEP);
            let before = self.zlib.total_in();
            self.zlib
                .compress_vec(input, &mut output, FlushCompress::Sync)
                .map_err(|_| SpdyError::Zlib("headers could not be compressed"))?;
            input = &input[consumed(before, self.zlib.total_in(), input.len())..];
            // Space that is left says that zlib had nothing more to write.
            if input.is_empty() && output.len() < output.capacity() {
                return Ok(output);
            }
        }
    }
}

// === impl Inflater ===

impl Inflater {
    pub(crate) fn new() -> Self {
        Self { zlib: Decompress::new(true) }
    }

    /// The headers in one compressed block.
    pub(crate) fn inflate(&mut self, block: &[u8]) -> Result<Headers, SpdyError> {
        decode(&self.inflate_bytes(block)?)
    }

    fn inflate_bytes(&mut self, mut input: &[u8]) -> Result<Vec<u8>, SpdyError> {
        let mut output = Vec::with_capacity(STEP);
        loop {
            output.reserve(STEP);
            let before = self.zlib.total_in();
            let result = self.zlib.decompress_vec(input, &mut output, FlushDecompress::Sync);
            input = &input[consumed(before, self.zlib.total_in(), input.len())..];
            match result {
                Ok(_) => {}
                // The first block of a connection names the dictionary before it goes on.
                Err(error) if error.needs_dictionary().is_some() => {
                    self.zlib
                        .set_dictionary(&dictionary())
                        .map_err(|_| SpdyError::Zlib("the peer uses another dictionary"))?;
                    continue;
                }
                Err(_) => return Err(SpdyError::Zlib("invalid zlib data")),
            }
            if output.len() > MAX_INFLATED {
                return Err(SpdyError::HeadersTooLarge { allowed: MAX_INFLATED });
            }
            if output.len() < output.capacity() {
                // zlib stopped although it had space: it wants more input, or refuses what there is.
                return if input.is_empty() {
                    Ok(output)
                } else {
                    Err(SpdyError::Zlib("data after the end of the zlib stream"))
                };
            }
        }
    }
}

/// How much of an input of `length` bytes was taken while a counter went from `before` to `after`.
fn consumed(before: u64, after: u64, length: usize) -> usize {
    usize::try_from(after.saturating_sub(before)).unwrap_or(length).min(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// Made by Go's `compress/zlib` at its best compression with the same dictionary, as client-go does it: the headers
    /// of an error stream, then those of a stdin stream in the same zlib stream.
    const FIRST: &str = "78f9e3c6a7c26260606004a7b392a2d4c45c6851c29a0a0a6800000000ffff";
    const SECOND: &str = "c22e555c92929907000000ffff";

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn blocks_of_another_implementation_are_read_in_order() {
        let mut inflater = Inflater::new();
        assert_eq!(inflater.inflate(&bytes(FIRST)).unwrap(), headers(&[("streamtype", "error")]));
        assert_eq!(inflater.inflate(&bytes(SECOND)).unwrap(), headers(&[("streamtype", "stdin")]));
    }

    #[test]
    fn a_first_block_names_the_dictionary() {
        let block = Deflater::new().unwrap().deflate(&Headers::new()).unwrap();
        assert_eq!(block[2..6], [0xe3, 0xc6, 0xa7, 0xc2], "{block:02x?}");
    }

    #[test]
    fn a_bomb_is_refused_before_it_is_large() {
        let bomb = headers(&[("a", &"x".repeat(MAX_INFLATED))]);
        let block = Deflater::new().unwrap().deflate(&bomb).unwrap();
        assert!(block.len() < 1024, "{} bytes", block.len());
        let refused = Inflater::new().inflate(&block);
        assert!(matches!(refused, Err(SpdyError::HeadersTooLarge { .. })), "{refused:?}");
    }

    #[test]
    fn a_block_that_lies_about_its_lengths_is_refused() {
        for (block, what) in [
            (&[0, 0, 0][..], "half a count"),
            (&[0, 0, 0, 1], "no header"),
            (&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, b'a'], "a name of four gigabytes"),
            (&[0, 0, 0, 1, 0, 0, 0, 1, b'a', 0, 0, 0, 2, b'b'], "half a value"),
            (&[0xff, 0xff, 0xff, 0xff], "four thousand million headers"),
            (&[0, 0, 0, 0, 0], "a byte after the end"),
            (&[0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0, 0, 0, 0], "a name that is not text"),
            (&[0, 0, 0, 2, 0, 0, 0, 1, b'a', 0, 0, 0, 0, 0, 0, 0, 1, b'A', 0, 0, 0, 0], "a name twice"),
        ] {
            assert!(decode(block).is_err(), "{what} was taken");
        }
    }

    proptest! {
        // zlib is slow where it is not optimised.
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn what_one_side_sends_the_other_reads(blocks in prop::collection::vec(
            prop::collection::btree_map("[a-z-]{1,20}", ".{0,200}", 0..20), 1..10)) {
            let (mut deflater, mut inflater) = (Deflater::new().unwrap(), Inflater::new());
            for block in blocks {
                prop_assert_eq!(&inflater.inflate(&deflater.deflate(&block).unwrap()).unwrap(), &block);
            }
        }

        #[test]
        fn garbage_is_an_error_and_never_a_panic(blocks in prop::collection::vec(
            prop::collection::vec(any::<u8>(), 0..600), 1..5)) {
            let mut inflater = Inflater::new();
            for block in blocks {
                let _ = inflater.inflate(&block);
            }
        }

        #[test]
        fn damage_is_an_error_and_never_a_panic(at in 0usize..200, with in any::<u8>()) {
            let mut block = Deflater::new().unwrap().deflate(&headers(&[("streamtype", "data"), ("port", "80")])).unwrap();
            if let Some(byte) = block.get_mut(at) {
                *byte = with;
            }
            let _ = Inflater::new().inflate(&block);
        }
    }
}
