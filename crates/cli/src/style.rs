//! Colours: on a terminal only, and not with `NO_COLOR` or `TERM=dumb`.

use std::{ffi::OsStr, io::IsTerminal};

/// Whether text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// With ANSI escape sequences.
    Coloured,
    /// As it is.
    Plain,
}

/// Whether colours are refused by `NO_COLOR`, which is <https://no-color.org>: any value but the empty one counts.
pub fn is_refused(no_color: Option<&OsStr>) -> bool {
    no_color.is_some_and(|value| !value.is_empty())
}

// === impl Style ===

impl Style {
    /// What suits standard output.
    pub(crate) fn of_stdout() -> Self {
        let refused = is_refused(std::env::var_os("NO_COLOR").as_deref());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        match std::io::stdout().is_terminal() && !refused && !dumb {
            true => Self::Coloured,
            false => Self::Plain,
        }
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.paint("31;1", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.paint("33;1", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.paint("32;1", text)
    }

    /// One of several colours, for telling things apart.
    pub(crate) fn one_of_many(self, index: usize, text: &str) -> String {
        // Those that are readable on dark and light alike, and say neither good nor bad.
        const CODES: [&str; 6] = ["36", "35", "34", "36;1", "35;1", "34;1"];
        self.paint(CODES[index % CODES.len()], text)
    }

    /// Less important.
    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// More important.
    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        match self {
            Self::Coloured => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            Self::Plain => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_word_refuses_nothing() {
        assert!(!is_refused(None) && !is_refused(Some(OsStr::new(""))) && is_refused(Some(OsStr::new("0"))));
    }

    #[test]
    fn colours_wrap_the_text_and_plain_leaves_it() {
        assert_eq!(Style::Coloured.red("x"), "\u{1b}[31;1mx\u{1b}[0m");
        assert_eq!(Style::Coloured.yellow("x"), "\u{1b}[33;1mx\u{1b}[0m");
        assert_eq!(Style::Coloured.green("x"), "\u{1b}[32;1mx\u{1b}[0m");
        assert_eq!(Style::Plain.red("x"), "x");
    }
}
