//! One line of a log in the format of CRI: `<time> <stream> <tags> <text>`.

use std::str::FromStr;

use jiff::Timestamp;

/// A line as a runtime wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogLine<'a> {
    pub(super) time: &'a str,
    pub(super) stream: Stream,
    /// Whether the line ends here, or goes on with the next entry of its stream.
    pub(super) end: End,
    pub(super) text: &'a [u8],
}

/// Where a container wrote it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Tag `F`.
    Full,
    /// Tag `P`.
    Partial,
}

/// What stands before the text is shorter: a time has 35 bytes at most, and tags are letters.
pub(super) const HEAD: usize = 128;

/// The entry of a line without its line break; `None` if it is not in that format.
pub(super) fn parse(line: &[u8]) -> Option<LogLine<'_>> {
    let (time, rest) = cut(line)?;
    let (stream, rest) = cut(rest)?;
    // A runtime may leave out the space before a text that is empty.
    let (tags, text) = cut(rest).unwrap_or((rest, b""));
    if line.len() - text.len() >= HEAD {
        return None;
    }
    let stream = match stream {
        b"stdout" => Stream::Out,
        b"stderr" => Stream::Err,
        _ => return None,
    };
    let end = match tags.split(|byte| *byte == b':').next()? {
        b"F" => End::Full,
        b"P" => End::Partial,
        _ => return None,
    };
    let time = std::str::from_utf8(time).ok().filter(|time| !time.is_empty())?;
    Some(LogLine { time, stream, end, text })
}

fn cut(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == b' ')?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

// === impl LogLine ===

impl LogLine<'_> {
    /// Whether it was written before that time. One whose time cannot be read was not.
    pub(super) fn is_before(&self, time: Timestamp) -> bool {
        Timestamp::from_str(self.time).is_ok_and(|own| own < time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_time_stream_tags_and_text() {
        let entry = parse(b"2026-01-02T03:04:05.000000006Z stderr P:x a b ").unwrap();
        assert_eq!(entry.time, "2026-01-02T03:04:05.000000006Z");
        assert_eq!((entry.stream, entry.end, entry.text), (Stream::Err, End::Partial, &b"a b "[..]));
        let empty = parse(b"2026-01-02T03:04:05Z stdout F").unwrap();
        assert_eq!((empty.stream, empty.end, empty.text), (Stream::Out, End::Full, &b""[..]));
        for bad in ["", "x", "t stdout", "t stdin F a", "t stdout X a", " stdout F a", "{\"log\":\"a\"}"] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn times_compare_across_offsets_and_what_is_no_time_stays() {
        let since = "2026-01-01T12:00:00Z".parse().unwrap();
        let before = |time: &str| parse(format!("{time} stdout F x").as_bytes()).unwrap().is_before(since);
        assert!(before("2026-01-01T11:59:59.999999999Z") && before("2026-01-01T13:59:59+02:00"));
        assert!(!before("2026-01-01T12:00:00Z") && !before("noon"));
    }
}
