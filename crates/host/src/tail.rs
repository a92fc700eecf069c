//! Last words of a container: the end of a file, as text.

use std::{
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

/// Bytes of a termination message.
pub(super) const MESSAGE_BYTES: usize = 4096;

/// Bytes and lines of a log that stand in for a termination message.
const LOG_BYTES: usize = 2048;
const LOG_LINES: usize = 80;

/// Bytes at the end of a log that hold these. A runtime cuts lines at 16 KiB, and puts some 50 bytes before each.
pub(super) const LOG_WINDOW: usize = 64 << 10;

/// The end of a file.
#[derive(Debug)]
pub(super) struct End {
    bytes: Vec<u8>,
    /// Whether there is more before it.
    cut: bool,
}

/// Reads at most so many bytes from the end of a regular file.
pub(super) fn read_end(path: &Path, most: usize) -> io::Result<End> {
    // A container may have put anything there.
    let mut file = keelet_linux::beneath::read(path)?;
    let metadata = file.metadata()?;
    let start = metadata.len().saturating_sub(most as u64);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    file.take(most as u64).read_to_end(&mut bytes)?;
    Ok(End { bytes, cut: start > 0 })
}

/// A termination message.
pub(super) fn message(end: &End) -> String {
    let mut bytes = end.bytes.as_slice();
    if end.cut {
        // What is left of a character that was cut through.
        let rest = bytes.iter().take(3).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count();
        bytes = &bytes[rest..];
    }
    last(&String::from_utf8_lossy(bytes), MESSAGE_BYTES).to_owned()
}

/// The end of a log in the format of CRI, as its container wrote it: `<time> <stream> <P or F> <text>`, where P says
/// that the line goes on.
pub(super) fn log_message(end: &End) -> String {
    let text = String::from_utf8_lossy(&end.bytes);
    let lines: Vec<_> = text.lines().skip(usize::from(end.cut)).collect();
    let mut message = String::new();
    for line in &lines[lines.len().saturating_sub(LOG_LINES)..] {
        let mut parts = line.splitn(4, ' ').skip(2);
        let (Some(tags), text) = (parts.next(), parts.next().unwrap_or_default()) else { continue };
        message.push_str(text);
        if tags.split(':').next() != Some("P") {
            message.push('\n');
        }
    }
    last(&message, LOG_BYTES).to_owned()
}

/// The end of a text, at most so many bytes.
fn last(text: &str, most: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(most))..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(bytes: impl AsRef<[u8]>, cut: bool) -> End {
        End { bytes: bytes.as_ref().to_vec(), cut }
    }

    /// STAT-11.
    #[test]
    fn a_message_is_text_and_not_longer_than_allowed() {
        assert_eq!(message(&end("gone\n", false)), "gone\n");
        assert_eq!(message(&end(&"é".as_bytes()[1..], true)), "");
        assert_eq!(message(&end([&"é".as_bytes()[1..], b"x"].concat(), true)), "x");
        assert_eq!(message(&end([b"a", &[0xff][..]].concat(), false)), "a\u{fffd}");
        let noise = message(&end([0xff; MESSAGE_BYTES], true));
        assert!(noise.len() <= MESSAGE_BYTES && !noise.is_empty(), "{}", noise.len());
    }

    /// STAT-11.
    #[test]
    fn a_message_is_the_end_of_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0");
        std::fs::write(&path, format!("{}{}", "a".repeat(9000), "z".repeat(4096))).unwrap();
        assert_eq!(message(&read_end(&path, MESSAGE_BYTES).unwrap()), "z".repeat(4096));
        assert!(read_end(directory.path(), 1).is_err(), "a directory");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(read_end(&link, 1).is_err(), "a link");
    }

    /// STAT-11.
    #[test]
    fn a_log_is_reported_as_its_container_wrote_it() {
        let log = "2026-01-01T00:00:00.000000001Z stdout F one
2026-01-01T00:00:00.000000002Z stderr P two and
2026-01-01T00:00:00.000000003Z stderr F  a half
2026-01-01T00:00:00.000000004Z stdout F
2026-01-01T00:00:00.000000005Z stdout F end
";
        assert_eq!(log_message(&end(log, false)), "one\ntwo and a half\n\nend\n");
        assert_eq!(log_message(&end(log, true)), "two and a half\n\nend\n", "half a line says nothing");
        assert_eq!(log_message(&end("rubbish\n", false)), "");
    }

    /// STAT-11.
    #[test]
    fn a_long_log_is_cut_to_80_lines_and_2048_bytes() {
        let short: String = (0..100).map(|n| format!("t stdout F {n}\n")).collect();
        let told = log_message(&end(short, true));
        assert!(told.starts_with("20\n") && told.ends_with("99\n"), "{told}");
        let long: String = (0..100).map(|n| format!("t stdout F {n:0100}\n")).collect();
        let told = log_message(&end(long, true));
        assert!(told.len() == LOG_BYTES && told.ends_with("99\n"), "{told}");
    }
}
