//! Text for people: errors with their causes, outputs of bounded length.

use std::{error::Error, io, time::Duration};

/// How much of a body or a command's output is kept.
pub const LONGEST_OUTPUT: usize = 10 * 1024;

/// A target's output, as text of at most [`LONGEST_OUTPUT`] bytes.
pub(crate) fn output(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST_OUTPUT)]).into_owned();
    shorten(&mut text, LONGEST_OUTPUT);
    text
}

/// Cuts a text to at most that many bytes.
pub(crate) fn shorten(text: &mut String, limit: usize) {
    text.truncate(text.floor_char_boundary(limit));
}

/// An error and what caused it, without repetitions.
pub(crate) fn causes(error: &(dyn Error + 'static)) -> String {
    let mut text = plain(error);
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = plain(cause);
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

/// An error of the operating system without its errno: `connection refused`.
pub(crate) fn io_error(error: &io::Error) -> String {
    match (error.raw_os_error(), error.kind()) {
        (Some(_), io::ErrorKind::ConnectionRefused)
        | (Some(_), io::ErrorKind::ConnectionReset)
        | (Some(_), io::ErrorKind::HostUnreachable)
        | (Some(_), io::ErrorKind::NetworkUnreachable) => error.kind().to_string(),
        _ => error.to_string(),
    }
}

/// A time limit in the unit that suits it.
pub(crate) fn limit(timeout: Duration) -> String {
    if timeout.subsec_millis() == 0 {
        format!("{} s", timeout.as_secs())
    } else {
        format!("{} ms", timeout.as_millis())
    }
}

fn plain(error: &(dyn Error + 'static)) -> String {
    error.downcast_ref::<io::Error>().map_or_else(|| error.to_string(), io_error)
}
