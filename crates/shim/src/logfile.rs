//! A container's log file in the format of CRI: lines of `time stream tag text`.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// The longest text of one line, as in containerd. A longer one is written in parts, tagged P, the last part F.
const LONGEST: usize = 16 * 1024;

/// The log of one container.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: Option<File>,
    /// The beginning of an incomplete line, for each stream.
    open_lines: [Vec<u8>; 2],
    buffer: Vec<u8>,
    stamp: Stamp,
}

/// Standard output or standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// Formats timestamps; keeps the text of the last second.
#[derive(Debug, Default)]
struct Stamp {
    second: i64,
    text: String,
}

// === impl LogFile ===

impl LogFile {
    /// Opens the file, and creates it if it is missing.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        let file = Some(open(&path)?);
        Ok(Self { path, file, open_lines: Default::default(), buffer: Vec::new(), stamp: Stamp::default() })
    }

    /// Continues in a new file with the same name.
    pub(crate) fn reopen(&mut self) -> io::Result<()> {
        self.file = Some(open(&self.path)?);
        Ok(())
    }

    /// Writes output of a container. Output that cannot be written is lost: a full disk must not stop the container.
    pub(crate) fn write(&mut self, stream: Stream, mut text: &[u8], now: i64) {
        let mut open = std::mem::take(&mut self.open_lines[stream as usize]);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            open.extend_from_slice(&text[..end]);
            self.lines(stream, &open, now);
            open.clear();
            text = &text[end + 1..];
        }
        open.extend_from_slice(text);
        while open.len() >= LONGEST {
            let rest = open.split_off(LONGEST);
            self.line(stream, b'P', &open, now);
            open = rest;
        }
        self.open_lines[stream as usize] = open;
        self.flush();
    }

    /// Writes incomplete lines after the container has exited.
    pub(crate) fn finish(&mut self, now: i64) {
        for stream in [Stream::Out, Stream::Err] {
            let open = std::mem::take(&mut self.open_lines[stream as usize]);
            if !open.is_empty() {
                self.lines(stream, &open, now);
            }
        }
        self.flush();
    }

    /// Writes a complete line, in parts if it is long.
    fn lines(&mut self, stream: Stream, mut text: &[u8], now: i64) {
        while text.len() > LONGEST {
            let (part, rest) = text.split_at(LONGEST);
            self.line(stream, b'P', part, now);
            text = rest;
        }
        self.line(stream, b'F', text, now);
    }

    fn line(&mut self, stream: Stream, tag: u8, text: &[u8], now: i64) {
        self.stamp.write(now, &mut self.buffer);
        self.buffer.extend_from_slice(match stream {
            Stream::Out => b" stdout ",
            Stream::Err => b" stderr ",
        });
        self.buffer.extend_from_slice(&[tag, b' ']);
        self.buffer.extend_from_slice(text);
        self.buffer.push(b'\n');
    }

    fn flush(&mut self) {
        if let Some(file) = &mut self.file {
            // Lost on error, see `write`.
            let _ = file.write_all(&self.buffer);
        }
        self.buffer.clear();
    }
}

/// Pods may be able to write to the directory.
fn open(path: &Path) -> io::Result<File> {
    keelet_linux::beneath::append(path, 0o640)
}

// === impl Stamp ===

impl Stamp {
    fn write(&mut self, now: i64, to: &mut Vec<u8>) {
        let (second, nanosecond) = (now.div_euclid(1_000_000_000), now.rem_euclid(1_000_000_000));
        if self.text.is_empty() || self.second != second {
            self.second = second;
            self.text = date_time(second);
        }
        to.extend_from_slice(self.text.as_bytes());
        // Always nine digits, so that lines sort as text.
        let _ = write!(to, ".{nanosecond:09}Z");
    }
}

/// A second since the Unix epoch as `2026-11-16T08:00:00`.
fn date_time(second: i64) -> String {
    let (day, within) = (second.div_euclid(86_400), second.rem_euclid(86_400));
    // Days are counted from 1 March of the year 0, in eras of 400 years.
    let day = day + 719_468;
    let (era, day_of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (within / 3_600, within / 60 % 60, within % 60);
    format!("{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{LONGEST, LogFile, Stream, date_time};

    #[test]
    fn timestamps_are_rfc_3339() {
        assert_eq!(date_time(0), "1970-01-01T00:00:00");
        assert_eq!(date_time(951_782_399), "2000-02-28T23:59:59");
        assert_eq!(date_time(951_782_400), "2000-02-29T00:00:00");
        assert_eq!(date_time(1_794_816_000), "2026-11-16T08:00:00");
        assert_eq!(date_time(4_107_542_400), "2100-03-01T00:00:00");
    }

    fn written(pieces: &[(Stream, &[u8])]) -> String {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("pod/main/0.log");
        let mut log = LogFile::open(path.clone()).expect("made with the directories above it");
        for (stream, text) in pieces {
            log.write(*stream, text, 1_000_000_001);
        }
        log.finish(1_000_000_001);
        fs::read_to_string(path).expect("text").replace("1970-01-01T00:00:01.000000001Z ", "")
    }

    /// LOG-1: a pod that can write to the directory of logs replaces its own log with a link.
    #[test]
    fn a_log_is_not_written_through_a_link() {
        let place = tempfile::tempdir().expect("a directory");
        let (node, path) = (place.path().join("node"), place.path().join("pod/main/0.log"));
        fs::write(&node, "of the node").unwrap();
        let mut log = LogFile::open(path.clone()).expect("opened");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&node, &path).unwrap();
        log.reopen().expect_err("a link");
        log.write(Stream::Out, b"hello\n", 0);
        assert_eq!(fs::read_to_string(&node).unwrap(), "of the node");
    }

    #[test]
    fn lines_are_complete_whatever_the_chunks() {
        let text =
            written(&[(Stream::Out, b"a"), (Stream::Err, b"x\ny"), (Stream::Out, b"b\n\nc\n"), (Stream::Out, b"d")]);
        assert_eq!(text, "stderr F x\nstdout F ab\nstdout F \nstdout F c\nstdout F d\nstderr F y\n");
    }

    #[test]
    fn long_lines_are_written_in_parts() {
        let long = vec![b'a'; 2 * LONGEST + 5];
        let text = written(&[(Stream::Out, &long), (Stream::Out, b"b\nc\n")]);
        let lines: Vec<_> = text.lines().collect();
        let (part, end) = ("a".repeat(LONGEST), "a".repeat(5));
        assert_eq!(
            lines,
            [
                format!("stdout P {part}"),
                format!("stdout P {part}"),
                format!("stdout F {end}b"),
                "stdout F c".to_owned()
            ]
        );
        // A line that fits exactly is not cut.
        let exact = [&part.as_bytes()[..LONGEST - 1], b"\n"].concat();
        assert_eq!(written(&[(Stream::Out, &exact)]).lines().count(), 1);
    }

    #[test]
    fn after_reopen_output_goes_to_a_new_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("0.log");
        let mut log = LogFile::open(path.clone()).expect("made");
        log.write(Stream::Out, b"old\nhal", 0);
        fs::rename(&path, directory.path().join("0.log.1")).expect("moved");
        log.reopen().expect("made again");
        log.write(Stream::Out, b"f\n", 0);
        assert!(fs::read_to_string(&path).expect("text").ends_with(" stdout F half\n"));
    }
}
