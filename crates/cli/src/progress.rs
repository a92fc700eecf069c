//! How far something has come: on a terminal one line that is drawn again and again, elsewhere a line now and then.

use std::{io, time::Duration};

use keelet_serve::api::Pulling;
use rustix::termios::tcgetwinsize;
use tokio::time::Instant;

use crate::{
    output,
    view::amount::{percent, size},
};

/// Where nothing can be drawn again, more lines than this would bury what else is said.
pub(crate) const EVERY: Duration = Duration::from_secs(5);

/// Columns of a bar.
const BAR: u64 = 24;

/// The usual width where the terminal does not report its own.
const WIDTH: usize = 80;

/// The progress of one thing on standard error. Dropped, it leaves nothing on a terminal.
#[derive(Debug)]
pub(crate) struct Meter {
    what: String,
    live: bool,
    told: Instant,
}

/// So much of so much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) done: u64,
    pub(crate) all: u64,
}

/// How far a pull has come, in words and in bytes, if it is known.
pub(crate) fn of_pull(pulling: &Pulling) -> (String, Option<Part>) {
    let Pulling { layers, unpacked_layers, bytes, fetched_bytes, .. } = pulling;
    let part = Part { done: *fetched_bytes, all: *bytes };
    match part {
        Part { all: 0, .. } => ("asking the registry".to_owned(), None),
        Part { done, all } if done < all => (part.words(), Some(part)),
        _ => (
            format!("{}, unpacking layer {} of {layers}", size(*bytes), (unpacked_layers + 1).min(*layers)),
            Some(part),
        ),
    }
}

fn bar(Part { done, all }: Part) -> String {
    let filled = u128::from(BAR) * u128::from(done.min(all));
    let filled = filled.checked_div(u128::from(all)).and_then(|filled| usize::try_from(filled).ok()).unwrap_or(0);
    format!("[{:-<1$}]", "#".repeat(filled), usize::try_from(BAR).unwrap_or(0))
}

// === impl Part ===

impl Part {
    pub(crate) fn words(self) -> String {
        format!("{} of {} ({})", size(self.done), size(self.all), percent(self.done, self.all))
    }
}

// === impl Meter ===

impl Meter {
    /// Begins with that it is being done.
    pub(crate) fn begin(what: String) -> Self {
        let meter = Self { what, live: output::stderr_is_live(), told: Instant::now() };
        match meter.live {
            true => meter.draw(&meter.what),
            false => output::note(&meter.what),
        }
        meter
    }

    pub(crate) fn show(&mut self, words: &str, part: Option<Part>) {
        if self.live {
            let bar = part.map(|part| format!("{}  ", bar(part))).unwrap_or_default();
            self.draw(&format!("{}  {bar}{words}", self.what));
        } else if self.told.elapsed() >= EVERY {
            self.told = Instant::now();
            output::note(&format!("{}: {words}", self.what));
        }
    }

    fn draw(&self, line: &str) {
        let width = tcgetwinsize(io::stderr()).map(|size| usize::from(size.ws_col)).ok().filter(|width| *width > 0);
        // One column less: a full line would move the cursor on.
        let line: String = line.chars().take(width.unwrap_or(WIDTH) - 1).collect();
        output::text_to_stderr(&format!("\r{line}\u{1b}[K"));
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if self.live {
            output::text_to_stderr("\r\u{1b}[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_is_shown_from_the_first_request_to_the_last_layer() {
        let pulling = |fetched_bytes, unpacked_layers| Pulling {
            image: "app:1".to_owned(),
            layers: 3,
            unpacked_layers,
            bytes: 40_000_000,
            fetched_bytes,
        };
        assert_eq!(of_pull(&Pulling::default()), ("asking the registry".to_owned(), None));
        let (words, part) = of_pull(&pulling(10_000_000, 1));
        assert_eq!(words, "10.0MB of 40.0MB (25%)");
        assert_eq!(part.map(bar).as_deref(), Some("[######------------------]"));
        assert_eq!(of_pull(&pulling(40_000_000, 1)).0, "40.0MB, unpacking layer 2 of 3");
        assert_eq!(of_pull(&pulling(40_000_000, 3)).0, "40.0MB, unpacking layer 3 of 3");
        assert_eq!(bar(Part { done: 9, all: 0 }), "[------------------------]");
        assert_eq!(bar(Part { done: 9, all: 9 }), "[########################]");
    }
}
