//! From bytes of a log file to lines as the container wrote them: parts of a line joined, each stream by itself.

use jiff::Timestamp;

use super::{
    LogStream,
    line::{End, LogLine, Stream, parse},
};

/// The most that is held back of a line whose end has not come. Longer ones are passed on in pieces.
const LONGEST: usize = 1 << 20;

/// What becomes of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    /// The time of each line before it.
    pub(super) timestamps: bool,
    /// Only what was written from then on.
    pub(super) since: Option<Timestamp>,
    /// Only what was written to this stream.
    pub(super) stream: Option<LogStream>,
}

/// Takes bytes as they are read and gives lines.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    selection: Selection,
    /// Bytes of a line of the file whose end was not read yet.
    raw: Vec<u8>,
    /// What is known of an unfinished line of each stream.
    open: [Option<Vec<u8>>; 2],
    out: Vec<u8>,
    /// Lines that are not wanted, from here on.
    skip: u64,
}

// === impl Assembler ===

impl Assembler {
    pub(super) fn new(selection: Selection) -> Self {
        Self { selection, ..Self::default() }
    }

    /// The next so many lines are not wanted.
    pub(super) fn skip(&mut self, lines: u64) {
        self.skip = lines;
    }

    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        while let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
            if self.raw.is_empty() {
                self.line(&bytes[..at]);
            } else {
                let mut line = std::mem::take(&mut self.raw);
                line.extend_from_slice(&bytes[..at]);
                self.line(&line);
            }
            bytes = &bytes[at + 1..];
        }
        self.raw.extend_from_slice(bytes);
        if self.raw.len() > LONGEST {
            let line = std::mem::take(&mut self.raw);
            self.line(&line);
        }
    }

    /// The file ends here. What was cut off at its end does not go on in the next one.
    pub(super) fn end_of_file(&mut self) {
        if !self.raw.is_empty() {
            let line = std::mem::take(&mut self.raw);
            self.line(&line);
        }
    }

    /// Nothing follows on what was fed so far.
    pub(super) fn finish(&mut self) {
        self.end_of_file();
        for line in self.open.iter_mut().filter_map(Option::take) {
            // A last line without an end is passed on without one.
            self.out.extend_from_slice(&line);
        }
    }

    /// The lines that are complete.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    fn line(&mut self, line: &[u8]) {
        let Some(entry) = parse(line) else {
            // Not the runtime's: shown as it is rather than hidden.
            if self.skip > 0 {
                self.skip -= 1;
            } else {
                self.out.extend_from_slice(line);
                self.out.push(b'\n');
            }
            return;
        };
        if self.skip > 0 {
            self.skip -= u64::from(entry.end == End::Full);
            return;
        }
        if self.selection.stream.is_some_and(|wanted| Stream::from(wanted) != entry.stream) {
            return;
        }
        let open = &mut self.open[entry.stream as usize];
        if open.is_none() && self.selection.since.is_some_and(|since| entry.is_before(since)) {
            return;
        }
        let text = open.get_or_insert_with(|| begin(&entry, self.selection));
        text.extend_from_slice(entry.text);
        match entry.end {
            End::Full => {
                text.push(b'\n');
                self.out.append(text);
                *open = None;
            }
            End::Partial if text.len() > LONGEST => self.out.append(text),
            End::Partial => {}
        }
    }
}

fn begin(entry: &LogLine<'_>, selection: Selection) -> Vec<u8> {
    match selection.timestamps {
        true => format!("{} ", entry.time).into_bytes(),
        false => Vec::new(),
    }
}

impl From<LogStream> for Stream {
    fn from(stream: LogStream) -> Self {
        match stream {
            LogStream::Stdout => Self::Out,
            LogStream::Stderr => Self::Err,
        }
    }
}

impl From<Stream> for usize {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Out => 0,
            Stream::Err => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2026-01-01T00:00:01Z stdout F one
2026-01-01T00:00:02Z stdout P two
2026-01-01T00:00:03Z stderr F between
2026-01-01T00:00:04Z stdout F  halves
2026-01-01T00:00:05Z stdout F
";

    fn assembled(selection: Selection, log: &str, piece: usize) -> String {
        let mut assembler = Assembler::new(selection);
        log.as_bytes().chunks(piece).for_each(|bytes| assembler.feed(bytes));
        assembler.finish();
        String::from_utf8(assembler.take()).unwrap()
    }

    #[test]
    fn parts_of_a_line_are_joined_by_stream_however_the_bytes_come() {
        for piece in [1, 7, 64, 4096] {
            assert_eq!(assembled(Selection::default(), LOG, piece), "one\nbetween\ntwo halves\n\n", "{piece}");
        }
    }

    #[test]
    fn times_are_those_of_the_first_part() {
        let selection = Selection { timestamps: true, ..Selection::default() };
        let told = assembled(selection, LOG, 4096);
        assert!(told.contains("2026-01-01T00:00:02Z two halves\n"), "{told}");
        assert!(told.ends_with("2026-01-01T00:00:05Z \n"), "{told}");
    }

    /// CLU-40
    #[test]
    fn one_stream_alone_can_be_read() {
        let of = |stream| assembled(Selection { stream: Some(stream), ..Selection::default() }, LOG, 7);
        assert_eq!(of(LogStream::Stdout), "one\ntwo halves\n\n");
        assert_eq!(of(LogStream::Stderr), "between\n");
    }

    #[test]
    fn older_lines_are_left_out() {
        let selection = Selection { since: Some("2026-01-01T00:00:03Z".parse().unwrap()), ..Selection::default() };
        assert_eq!(
            assembled(selection, LOG, 4096),
            "between\n halves\n\n",
            "a line that began earlier is cut, not lost"
        );
    }

    #[test]
    fn a_last_line_without_end_has_none_and_foreign_lines_are_shown() {
        assert_eq!(assembled(Selection::default(), "t stdout P a", 4096), "a");
        assert_eq!(assembled(Selection::default(), "t stdout F a\nplain\nt stdout F b", 4096), "a\nplain\nb\n");
    }

    #[test]
    fn a_line_without_end_is_passed_on_in_pieces() {
        let mut assembler = Assembler::new(Selection::default());
        let part = format!("t stdout P {}\n", "x".repeat(16 << 10));
        for _ in 0..100 {
            assembler.feed(part.as_bytes());
        }
        let held: usize = assembler.open.iter().flatten().map(Vec::len).sum();
        assert!(held <= LONGEST && assembler.take().len() >= LONGEST, "{held}");
        assembler.feed("y".repeat(3 << 20).as_bytes());
        assert!(assembler.raw.len() <= LONGEST);
    }

    #[test]
    fn lines_to_skip_are_whole_lines() {
        let mut assembler = Assembler::new(Selection::default());
        assembler.skip(2);
        assembler.feed(LOG.as_bytes());
        // The second line to end is the one between.
        assert_eq!(assembler.take(), b" halves\n\n");
    }
}
