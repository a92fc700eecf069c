//! A part of the terminal that is drawn again and again, in place.
//!
//! Each drawing is one write: back to the first line, every line with the rest of it cleared, the rest of the screen
//! cleared. Nothing is cleared before it is written over, so nothing flickers. What is to stay, such as a log line, is
//! written in its place, and the frame moves down. After a change of size the positions of lines are unknown, so the
//! visible screen is cleared once.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use crate::terminal;

/// The usual size where the terminal does not report its own.
const USUAL: (usize, usize) = (80, 24);

/// The frame on the terminal. Dropped, it leaves the cursor below.
#[derive(Debug)]
pub(super) struct Screen {
    /// Lines of the frame that is there.
    drawn: usize,
    size: (usize, usize),
}

// === impl Screen ===

impl Screen {
    pub(super) fn new() -> Self {
        Self { drawn: 0, size: size() }
    }

    /// Columns and rows. To be asked before each frame.
    pub(super) fn size(&mut self) -> (usize, usize) {
        size()
    }

    /// Writes what stays above the frame, and the frame.
    pub(super) fn draw(&mut self, above: &str, frame: &[String]) -> io::Result<()> {
        let size = size();
        let resized = size != self.size;
        self.size = size;
        let text = drawing(self.drawn, resized, above, frame);
        self.drawn = frame.len();
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = io::stdout().lock();
        let _ = out.write_all(b"\x1b[?25h\n").and_then(|()| out.flush());
    }
}

fn size() -> (usize, usize) {
    terminal::size().unwrap_or(USUAL)
}

/// The bytes that turn one frame into the next. The cursor stays at the end of its last line, hidden.
fn drawing(drawn: usize, resized: bool, above: &str, frame: &[String]) -> String {
    // Begin and end of an update that the terminal shows in one go, if it can.
    let mut text = "\x1b[?2026h\x1b[?25l\r".to_owned();
    if resized {
        text.push_str("\x1b[2J\x1b[H");
    } else if drawn > 1 {
        let _ = write!(text, "\x1b[{}A", drawn - 1);
    }
    if !above.is_empty() {
        text.push_str("\x1b[J");
        text.push_str(above);
    }
    for (index, line) in frame.iter().enumerate() {
        if index > 0 {
            text.push_str("\r\n");
        }
        text.push_str(line);
        text.push_str("\x1b[K");
    }
    text.push_str("\x1b[J\x1b[?2026l");
    text
}

#[cfg(test)]
mod tests {
    use super::drawing;

    #[test]
    fn a_frame_takes_the_place_of_the_one_before() {
        let frame = ["a".to_owned(), "b".to_owned()];
        let first = drawing(0, false, "", &frame);
        assert_eq!(first, "\x1b[?2026h\x1b[?25l\ra\x1b[K\r\nb\x1b[K\x1b[J\x1b[?2026l");
        assert!(drawing(2, false, "", &frame).contains("\r\x1b[1Aa"), "back to its first line");
        assert!(drawing(2, false, "log\n", &frame).contains("\x1b[1A\x1b[Jlog\na\x1b[K"), "what stays comes first");
        assert!(drawing(7, true, "", &frame).contains("\r\x1b[2J\x1b[Ha"), "after a change of size all is new");
    }
}
