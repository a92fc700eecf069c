//! Where the last lines of a log begin.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    os::unix::fs::FileExt,
};

use flate2::read::MultiGzDecoder;

use super::line::{End, HEAD, parse};

/// Read at once from the end of a file.
const BLOCK: u64 = 64 << 10;

/// What a file has to skip so that the last lines are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Skip {
    /// All before this offset.
    Bytes(u64),
    /// So many lines.
    Lines(u64),
}

/// Which part of an instance's log a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A line without an end at its end is a line.
    LastPart,
    /// A line without an end at its end goes on in the next part, and was counted there.
    EarlierPart,
}

/// What to skip of a file to have its last `wanted` lines, and how many there are then.
pub(super) fn find(file: &File, wanted: u64, what: What) -> io::Result<(Skip, u64)> {
    let length = file.metadata()?.len();
    let (offset, lines) = last_lines(file, length, wanted, what)?;
    Ok((Skip::Bytes(offset), lines))
}

/// The same of a compressed one, which has to be read from its front.
pub(super) fn find_compressed(file: &File, wanted: u64, what: What) -> io::Result<(Skip, u64)> {
    let all = count(MultiGzDecoder::new(file), what)?;
    Ok((Skip::Lines(all.saturating_sub(wanted)), all.min(wanted)))
}

fn count(log: impl Read, what: What) -> io::Result<u64> {
    let mut log = BufReader::new(log);
    let (mut lines, mut line, mut open) = (0, Vec::new(), false);
    loop {
        line.clear();
        // A line of rubbish must not fill the memory; what is behind it counts as one more.
        if log.by_ref().take(1 << 20).read_until(b'\n', &mut line)? == 0 {
            return Ok(lines + u64::from(open && what == What::LastPart));
        }
        open = !ends(line.strip_suffix(b"\n").unwrap_or(&line));
        lines += u64::from(!open);
    }
}

/// Whether a line of the file is the end of a line of the container.
fn ends(line: &[u8]) -> bool {
    parse(line).is_none_or(|entry| entry.end == End::Full)
}

/// Looks from the end of the file, block by block, for the line before the last `wanted` ones.
fn last_lines(file: &File, length: u64, wanted: u64, what: What) -> io::Result<(u64, u64)> {
    if wanted == 0 && what == What::LastPart {
        return Ok((length, 0));
    }
    let mut found = 0;
    // Where the line that is read ends: at its line break, or at the end of the file.
    let mut end = length;
    let mut upper = length;
    let mut open_counts = what == What::LastPart;
    while upper > 0 {
        let lower = upper.saturating_sub(BLOCK);
        // With the head of a line that begins at the end of the block.
        let mut block =
            vec![0; usize::try_from((upper - lower).saturating_add(HEAD as u64).min(length - lower)).unwrap_or(0)];
        file.read_exact_at(&mut block, lower)?;
        let inside = usize::try_from(upper - lower).unwrap_or(0);
        for at in (0..inside).rev().filter(|at| block[*at] == b'\n') {
            let start = lower + at as u64 + 1;
            // The last line break of the file has nothing behind it.
            if start < end || (start == end && end != length) {
                let head = &block[at + 1..];
                let head = &head[..usize::try_from(end - start).unwrap_or(usize::MAX).min(head.len()).min(HEAD)];
                if ends(head) || open_counts {
                    if found == wanted {
                        return Ok((length.min(end + 1), found));
                    }
                    found += 1;
                }
                open_counts = false;
            }
            end = start - 1;
        }
        upper = lower;
    }
    // The first line of the file.
    let mut head = vec![0; HEAD.min(usize::try_from(end).unwrap_or(HEAD))];
    file.read_exact_at(&mut head, 0)?;
    if length > 0 && (ends(&head) || open_counts) {
        if found == wanted {
            return Ok((length.min(end + 1), found));
        }
        found += 1;
    }
    Ok((0, found))
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn line(number: usize) -> String {
        // Lengths of all kinds, over the border of a block too.
        format!("2026-01-01T00:00:00Z stdout F {number} {}\n", "x".repeat(number * 7919 % 3000))
    }

    #[test]
    fn the_last_lines_are_found_in_files_of_any_length() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        for count in [0, 1, 2, 50, 300] {
            let lines: Vec<String> = (0..count).map(line).collect();
            fs::write(&path, lines.concat()).unwrap();
            for wanted in [0, 1, 2, 49, 50, 51, 299, 300, 1000] {
                let expected = lines.len().min(wanted);
                let offset: usize = lines[..lines.len() - expected].iter().map(String::len).sum();
                let found = find(&File::open(&path).unwrap(), wanted as u64, What::LastPart).unwrap();
                assert_eq!(found, (Skip::Bytes(offset as u64), expected as u64), "{wanted} of {count}");
            }
        }
    }

    #[test]
    fn parts_count_with_the_end_of_their_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        let log = "t stdout F a\nt stdout P b\nt stdout P c\nt stdout F d\nt stdout F e\n";
        fs::write(&path, log).unwrap();
        assert_eq!(
            find(&File::open(&path).unwrap(), 1, What::LastPart).unwrap(),
            (Skip::Bytes(log.find("t stdout F e").unwrap() as u64), 1)
        );
        assert_eq!(
            find(&File::open(&path).unwrap(), 2, What::LastPart).unwrap(),
            (Skip::Bytes(log.find("t stdout P b").unwrap() as u64), 2)
        );
        assert_eq!(find(&File::open(&path).unwrap(), 9, What::LastPart).unwrap(), (Skip::Bytes(0), 3));
        fs::write(&path, "t stdout F a\nt stdout P b").unwrap();
        assert_eq!(
            find(&File::open(&path).unwrap(), 1, What::LastPart).unwrap(),
            (Skip::Bytes(13), 1),
            "a line that is being written is one"
        );
    }

    #[test]
    fn compressed_parts_are_counted_from_the_front() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log.20260101-000000.gz");
        let mut file = GzEncoder::new(File::create(&path).unwrap(), Compression::fast());
        file.write_all((0..10).map(line).collect::<String>().as_bytes()).unwrap();
        file.finish().unwrap();
        let open = || File::open(&path).unwrap();
        assert_eq!(find_compressed(&open(), 3, What::LastPart).unwrap(), (Skip::Lines(7), 3));
        assert_eq!(find_compressed(&open(), 30, What::LastPart).unwrap(), (Skip::Lines(0), 10));
    }
}
