//! JSON for people with `cat`: the outer levels one item per line, the inner ones on one line each.

use std::io::{self, Write};

use serde_json::ser::Formatter;

/// Breaks lines down to some level and writes the rest compactly.
pub(crate) struct Lines {
    limit: usize,
    depth: usize,
    has_value: bool,
}

// === impl Lines ===

impl Lines {
    /// Levels up to this one get lines of their own.
    pub(crate) fn down_to(limit: usize) -> Self {
        Self { limit, depth: 0, has_value: false }
    }

    fn open<W: Write + ?Sized>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.has_value = false;
        writer.write_all(bracket)
    }

    fn close<W: Write + ?Sized>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.has_value && self.depth < self.limit {
            self.line(writer)?;
        }
        self.has_value = true;
        writer.write_all(bracket)
    }

    fn item<W: Write + ?Sized>(&self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(b",")?;
        }
        if self.depth <= self.limit {
            self.line(writer)
        } else if first {
            Ok(())
        } else {
            writer.write_all(b" ")
        }
    }

    fn line<W: Write + ?Sized>(&self, writer: &mut W) -> io::Result<()> {
        // The deepest file has 16 levels with lines of their own.
        const BREAK: &[u8; 33] = b"\n                                ";
        if let Some(indented) = BREAK.get(..=2 * self.depth) {
            return writer.write_all(indented);
        }
        writer.write_all(BREAK)?;
        (16..self.depth).try_for_each(|_| writer.write_all(b"  "))
    }
}

impl Formatter for Lines {
    fn begin_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"[")
    }

    fn end_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"]")
    }

    fn begin_array_value<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.item(writer, first)
    }

    fn end_array_value<W: Write + ?Sized>(&mut self, _writer: &mut W) -> io::Result<()> {
        self.has_value = true;
        Ok(())
    }

    fn begin_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"{")
    }

    fn end_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"}")
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.item(writer, first)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn end_object_value<W: Write + ?Sized>(&mut self, _writer: &mut W) -> io::Result<()> {
        self.has_value = true;
        Ok(())
    }
}
