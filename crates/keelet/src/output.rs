//! The only place that writes to the terminal.

use std::io::{self, Write};

/// Writes to standard output. A reader that went away (`keelet validate ... | head -1`) is no failure.
pub(crate) fn out(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes one line to standard error. If that fails there is nobody left to tell.
pub(crate) fn error(text: &str) {
    let _ = writeln!(io::stderr().lock(), "keelet: {text}");
}
