//! One 512 byte header: where its fields are, and what may be in them.

use super::sparse::Extent;
use crate::error::Fault;

/// The unit of a tar archive.
pub(super) const BLOCK: usize = 512;

/// A header whose checksum is right.
pub(super) struct Header<'a> {
    block: &'a [u8; BLOCK],
    /// the type flag
    pub(super) kind: u8,
}

/// Reads the block that goes on with a sparse map. True when one more follows.
pub(super) fn sparse_continuation(block: &[u8; BLOCK], extents: &mut Vec<Extent>) -> Result<bool, Fault> {
    read_extents(&block[..504], extents)?;
    Ok(block[504] != 0)
}

/// Octal digits, or for large numbers the high bit and two's complement, most significant byte first.
fn number(bytes: &[u8], field: &'static str) -> Result<i64, Fault> {
    let wrong = || Fault::Number { field, value: String::from_utf8_lossy(bytes).trim_matches('\0').to_owned() };
    let Some(first) = bytes.first() else { return Err(wrong()) };
    if first & 0x80 != 0 {
        let negative = first & 0x40 != 0;
        let mut value: i128 = if negative { -1 } else { 0 };
        for (index, byte) in bytes.iter().enumerate() {
            let byte = if index == 0 && !negative { byte & 0x7f } else { *byte };
            value = (value << 8) | i128::from(byte);
        }
        return i64::try_from(value).map_err(|_| wrong());
    }
    let text = std::str::from_utf8(bytes).map_err(|_| wrong())?;
    let digits = text.split('\0').next().unwrap_or_default().trim();
    if digits.is_empty() {
        return Ok(0);
    }
    i64::from_str_radix(digits, 8).ok().filter(|value| *value >= 0).ok_or_else(wrong)
}

/// The text up to the first zero.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn read_extents(bytes: &[u8], extents: &mut Vec<Extent>) -> Result<(), Fault> {
    for pair in bytes.chunks_exact(24) {
        if pair[0] == 0 || pair[12] == 0 {
            break;
        }
        let offset = unsigned(&pair[..12], "sparse offset")?;
        let length = unsigned(&pair[12..], "sparse length")?;
        extents.push(Extent { offset, length });
    }
    Ok(())
}

fn unsigned(bytes: &[u8], field: &'static str) -> Result<u64, Fault> {
    let value = number(bytes, field)?;
    u64::try_from(value).map_err(|_| Fault::Number { field, value: value.to_string() })
}

/// An owner that the system can store. The largest number means "leave as it is" there and cannot be one.
pub(super) fn owner(value: i64, field: &'static str) -> Result<u32, Fault> {
    let wrong = || Fault::Number { field, value: value.to_string() };
    u32::try_from(value).ok().filter(|id| *id != u32::MAX).ok_or_else(wrong)
}

// === impl Header ===

impl<'a> Header<'a> {
    pub(super) fn parse(block: &'a [u8; BLOCK]) -> Result<Self, Fault> {
        let expected = number(&block[148..156], "checksum")?;
        let is_field = |index: &usize| (148..156).contains(index);
        let byte_at = |index: usize| if is_field(&index) { b' ' } else { block[index] };
        let found: u32 = (0..BLOCK).map(|index| u32::from(byte_at(index))).sum();
        if i64::from(found) != expected {
            return Err(Fault::Checksum { found, expected });
        }
        Ok(Self { block, kind: block[156] })
    }

    pub(super) fn name(&self) -> Vec<u8> {
        let name = text(&self.block[..100]);
        // Only the POSIX form has a prefix; others keep times or sparse maps there.
        let prefix = if &self.block[257..263] == b"ustar\0" { text(&self.block[345..500]) } else { &[] };
        if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
    }

    pub(super) fn link(&self) -> Vec<u8> {
        text(&self.block[157..257]).to_vec()
    }

    pub(super) fn size(&self) -> Result<u64, Fault> {
        unsigned(&self.block[124..136], "size")
    }

    pub(super) fn mode(&self) -> Result<u32, Fault> {
        let mode = unsigned(&self.block[100..108], "mode")?;
        // Some writers put the file type in here too; only the permissions count.
        Ok((mode & 0o7777) as u32)
    }

    pub(super) fn uid(&self) -> Result<u32, Fault> {
        owner(number(&self.block[108..116], "uid")?, "uid")
    }

    pub(super) fn gid(&self) -> Result<u32, Fault> {
        owner(number(&self.block[116..124], "gid")?, "gid")
    }

    pub(super) fn mtime(&self) -> Result<(i64, u32), Fault> {
        Ok((number(&self.block[136..148], "mtime")?, 0))
    }

    pub(super) fn device(&self) -> Result<(u32, u32), Fault> {
        let part = |range: std::ops::Range<usize>, field| {
            let value = unsigned(&self.block[range], field)?;
            // The kernel keeps 12 and 20 bits.
            let most = if field == "major" { 0xfff } else { 0xf_ffff };
            u32::try_from(value)
                .ok()
                .filter(|value| *value <= most)
                .ok_or_else(|| Fault::Number { field, value: value.to_string() })
        };
        Ok((part(329..337, "major")?, part(337..345, "minor")?))
    }

    /// The file's size, the first extents, and whether more follow.
    pub(super) fn sparse(&self) -> Result<(u64, Vec<Extent>, bool), Fault> {
        let mut extents = Vec::new();
        read_extents(&self.block[386..482], &mut extents)?;
        Ok((unsigned(&self.block[483..495], "sparse size")?, extents, self.block[482] != 0))
    }
}
