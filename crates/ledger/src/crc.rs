//! The checksum of the ledger's files: CRC-32 as in zip and Ethernet (polynomial 0x04C11DB7, reflected).

pub(crate) use crc32fast::hash as crc32;

#[cfg(test)]
mod tests {
    use super::crc32;

    #[test]
    fn agrees_with_the_published_check_value() {
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b"The quick brown fox jumps over the lazy dog"), 0x414f_a339);
    }
}
