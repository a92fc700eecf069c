//! CRC-32 as in zip and gzip, eight bytes at a time.

const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut row = 1;
    while row < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[row - 1][byte];
            tables[row][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        row += 1;
    }
    tables
}

/// The CRC-32 of some bytes.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut crc = u32::MAX;
    for [a, b, c, d, e, f, g, h] in words {
        let low = crc ^ u32::from_le_bytes([*a, *b, *c, *d]);
        crc = TABLES[7][(low & 0xff) as usize]
            ^ TABLES[6][(low >> 8 & 0xff) as usize]
            ^ TABLES[5][(low >> 16 & 0xff) as usize]
            ^ TABLES[4][(low >> 24) as usize]
            ^ TABLES[3][usize::from(*e)]
            ^ TABLES[2][usize::from(*f)]
            ^ TABLES[1][usize::from(*g)]
            ^ TABLES[0][usize::from(*h)];
    }
    for byte in rest {
        crc = (crc >> 8) ^ TABLES[0][((crc ^ u32::from(*byte)) & 0xff) as usize];
    }
    !crc
}

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
