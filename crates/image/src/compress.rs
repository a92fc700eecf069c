//! Compressed streams, recognised by their first bytes and not by their media type.

use std::io::{self, BufReader, Chain, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

/// A stream with its first bytes put back.
type Rewound<R> = BufReader<Chain<Cursor<Vec<u8>>, R>>;

/// A stream, decompressed where it was compressed.
pub(crate) enum Decompressed<R: Read> {
    Plain(Rewound<R>),
    Gzip(Box<MultiGzDecoder<Rewound<R>>>),
    /// all its frames, one after the other
    Zstd(Box<zstd::Decoder<'static, Rewound<R>>>),
}

/// The largest window of a Zstandard stream, as a power of two: 32 MiB, half of what a layer may cost. Builders use no
/// more; the levels 21 and 22 of `zstd --ultra` need more.
const ZSTD_WINDOW: u32 = 25;
/// Long enough for every magic number below.
const MAGIC_LENGTH: usize = 6;

/// Detects the compression by the first bytes and adds the decoder.
pub(crate) fn decompress<R: Read>(mut stream: R) -> io::Result<Decompressed<R>> {
    let mut magic = Vec::with_capacity(MAGIC_LENGTH);
    stream.by_ref().take(MAGIC_LENGTH as u64).read_to_end(&mut magic)?;
    let unsupported = |name| {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("compressed with {name}, which is not supported; supported are gzip and zstd"),
        ))
    };
    let rewound = |magic: Vec<u8>| BufReader::with_capacity(128 * 1024, Cursor::new(magic).chain(stream));
    Ok(match magic.as_slice() {
        [0x1f, 0x8b, ..] => Decompressed::Gzip(Box::new(MultiGzDecoder::new(rewound(magic)))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            let mut decoder = zstd::Decoder::with_buffer(rewound(magic))?;
            decoder.window_log_max(ZSTD_WINDOW)?;
            Decompressed::Zstd(Box::new(decoder))
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0] => return unsupported("xz"),
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41] => return unsupported("bzip2"),
        _ => Decompressed::Plain(rewound(magic)),
    })
}

// === impl Decompressed ===

impl<R: Read> Read for Decompressed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Gzip(stream) => stream.read(buffer),
            Self::Zstd(stream) => stream.read(buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(content: &[u8]) -> Vec<u8> {
        zstd::stream::encode_all(content, 1).unwrap()
    }

    fn read(stream: &[u8]) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        decompress(stream)?.read_to_end(&mut content)?;
        Ok(content)
    }

    #[test]
    fn every_compression_gives_the_same_content() {
        let content = b"layers ".repeat(100_000);
        for compressed in [content.clone(), gzip(&content), zstd(&content)] {
            assert!(read(&compressed).unwrap() == content);
        }
    }

    #[test]
    fn several_members_and_frames_are_one_stream() {
        assert_eq!(read(&[gzip(b"one "), gzip(b"two")].concat()).unwrap(), b"one two");
        let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"xyz"].concat();
        assert_eq!(read(&[skipped, zstd(b"one "), zstd(b"two")].concat()).unwrap(), b"one two");
    }

    #[test]
    fn a_stream_that_is_cut_off_or_goes_on_with_garbage_is_an_error() {
        let content: Vec<u8> = (0..100_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        for compressed in [gzip(&content), zstd(&content)] {
            assert!(read(&compressed[..compressed.len() / 2]).is_err());
            assert!(read(&[&compressed[..], b"garbage"].concat()).is_err());
        }
    }

    #[test]
    fn a_zstd_window_of_gigabytes_is_refused_before_memory_is_taken() {
        let huge_window = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xc8, 0x01, 0x00, 0x00];
        let error = read(&huge_window).unwrap_err().to_string();
        assert!(error.contains("requires too much memory"), "{error}");
    }

    #[test]
    fn compressions_without_a_decoder_are_named() {
        assert!(read(b"\xfd7zXZ\0rest").unwrap_err().to_string().contains("xz"));
        assert!(read(b"BZh91AYrest").unwrap_err().to_string().contains("bzip2"));
        assert_eq!(read(b"").unwrap(), b"");
    }
}
