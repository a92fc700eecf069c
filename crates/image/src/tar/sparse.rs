//! Maps of sparse files: which parts of a file have content in the archive.

use std::io::Read;

use super::Reader;
use super::header::BLOCK;
use crate::error::Fault;

/// One part of a file that has content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// Bounds the memory of a map to some megabytes.
pub(super) const MOST_EXTENTS: usize = 100_000;

/// The parts must follow each other, lie in the file and use the content exactly.
pub(super) fn check(extents: &[Extent], size: u64, content: u64) -> Result<(), Fault> {
    let mut end = 0u64;
    let mut total = 0u64;
    for extent in extents {
        if extent.offset < end {
            return Err(Fault::Sparse("parts overlap or are out of order"));
        }
        end = extent.offset.checked_add(extent.length).ok_or(Fault::Sparse("a part ends nowhere"))?;
        total += extent.length;
    }
    if end > size || size > i64::MAX as u64 {
        return Err(Fault::Sparse("a part lies behind the end of the file"));
    }
    if total != content {
        return Err(Fault::Sparse("the parts are not as long as the content"));
    }
    Ok(())
}

/// `OFFSET,LENGTH,OFFSET,LENGTH...`, the map of version 0.1.
pub(super) fn parse_list(map: &[u8]) -> Result<Vec<Extent>, Fault> {
    let wrong = Fault::Sparse("the map is not a list of numbers");
    let numbers: Option<Vec<u64>> = std::str::from_utf8(map)
        .ok()
        .filter(|text| !text.is_empty())
        .map(|text| text.split(',').map(|number| number.parse().ok()).collect())
        .unwrap_or(Some(Vec::new()));
    match numbers {
        Some(numbers) if numbers.len() % 2 == 0 => Ok(pairs(&numbers)),
        _ => Err(wrong),
    }
}

/// The map of version 1.0: decimal numbers in lines before the content, filled up to a whole block.
pub(super) fn read_leading_map<R: Read>(reader: &mut Reader<R>) -> Result<Vec<Extent>, Fault> {
    let mut lines = Lines { reader, block: [0; BLOCK], next: BLOCK };
    let count = lines.number()?;
    if count > MOST_EXTENTS as u64 {
        return Err(Fault::Sparse("too many parts"));
    }
    let numbers: Result<Vec<u64>, Fault> = (0..count * 2).map(|_| lines.number()).collect();
    Ok(pairs(&numbers?))
}

struct Lines<'a, R> {
    reader: &'a mut Reader<R>,
    block: [u8; BLOCK],
    next: usize,
}

fn pairs(numbers: &[u64]) -> Vec<Extent> {
    numbers.chunks_exact(2).map(|pair| Extent { offset: pair[0], length: pair[1] }).collect()
}

// === impl Lines ===

impl<R: Read> Lines<'_, R> {
    fn byte(&mut self) -> Result<u8, Fault> {
        if self.next == BLOCK {
            self.reader.read_exact(&mut self.block).map_err(|_| Fault::Sparse("the map is cut off"))?;
            self.next = 0;
        }
        let byte = self.block[self.next];
        self.next += 1;
        Ok(byte)
    }

    fn number(&mut self) -> Result<u64, Fault> {
        const WRONG: Fault = Fault::Sparse("the map is not a list of numbers");
        let mut value: Option<u64> = None;
        loop {
            match self.byte()? {
                b'\n' => return value.ok_or(WRONG),
                digit @ b'0'..=b'9' => {
                    let grown = value.unwrap_or(0).checked_mul(10).and_then(|v| v.checked_add(u64::from(digit - b'0')));
                    value = Some(grown.ok_or(WRONG)?);
                }
                _ => return Err(WRONG),
            }
        }
    }
}
