//! The only place that writes to the terminal.

use std::io::{self, Write};

use anyhow::Context;

use crate::validate::Verdict;

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

/// Prints an answer, or says why there is none; the exit status tells which.
pub(crate) fn answer(answer: anyhow::Result<String>) -> anyhow::Result<Verdict> {
    match answer {
        Ok(text) => {
            out(&text).context("cannot write the answer")?;
            Ok(Verdict::Valid)
        }
        Err(why) => {
            error(&format!("{why:#}"));
            Ok(Verdict::Invalid)
        }
    }
}
