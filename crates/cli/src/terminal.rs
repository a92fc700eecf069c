//! The terminal on standard output.

use std::io;

use rustix::termios::tcgetwinsize;

/// Columns and rows, where standard output is a terminal that has them.
pub(crate) fn size() -> Option<(usize, usize)> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    Some((usize::from(size.ws_col), usize::from(size.ws_row))).filter(|(columns, rows)| *columns > 0 && *rows > 0)
}
