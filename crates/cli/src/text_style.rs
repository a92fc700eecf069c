//! How text is drawn: `--width` and `--ascii`, and what the surroundings say where these do not.

use clap::Args;
use keelet_explain::timeline::TextStyle;

use crate::{style::Style, terminal};

/// What a person says about the style of text.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct TextStyleArgs {
    /// Columns of the text [default: $COLUMNS, else those of the terminal, else 80]
    #[arg(long, value_name = "COLUMNS", allow_hyphen_values = true, value_parser = parse_width)]
    width: Option<usize>,
    /// Text without characters beyond ASCII
    #[arg(long)]
    ascii: bool,
}

/// The width where neither an option nor the environment nor a terminal says another.
const WIDTH: usize = 80;

/// Nothing can be drawn narrower, and a wider drawing has no use.
const NARROWEST: usize = 40;
const WIDEST: usize = 1000;

/// Text that is not a width.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid width {0:?}: expected a number from {NARROWEST} to {WIDEST}")]
struct InvalidWidth(String);

fn parse_width(text: &str) -> Result<usize, InvalidWidth> {
    let width = text.parse().ok().filter(|width| (NARROWEST..=WIDEST).contains(width));
    width.ok_or_else(|| InvalidWidth(text.to_owned()))
}

/// Whether text in this locale is plain. The first of its variables that is set decides, as in the C library.
fn is_plain(variable: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable);
    locale.is_some_and(|locale| !locale.to_ascii_lowercase().replace('-', "").contains("utf8"))
}

// === impl TextStyleArgs ===

impl TextStyleArgs {
    /// What suits standard output.
    pub(crate) fn style(self) -> TextStyle {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let columns = || Some(variable("COLUMNS")?.parse::<usize>().ok()?.clamp(NARROWEST, WIDEST));
        let terminal = || Some(terminal::size()?.0.clamp(NARROWEST, WIDEST));
        TextStyle {
            width: self.width.or_else(columns).or_else(terminal).unwrap_or(WIDTH),
            colours: Style::of_stdout() == Style::Coloured,
            ascii: self.ascii || is_plain(variable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_drawable() {
        assert_eq!((parse_width("40"), parse_width("1000")), (Ok(40), Ok(1000)));
        for text in ["39", "1001", "-1", "wide", "", "99999999999999999999"] {
            assert_eq!(parse_width(text), Err(InvalidWidth(text.to_owned())));
        }
    }

    #[test]
    fn the_first_variable_of_the_locale_decides() {
        let plain = |set: &[(&str, &str)]| {
            is_plain(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(!plain(&[]), "no variable says so");
        assert!(plain(&[("LANG", "C")]) && plain(&[("LC_ALL", "POSIX"), ("LANG", "en_GB.UTF-8")]));
        assert!(!plain(&[("LC_ALL", "C.UTF-8"), ("LANG", "C")]) && !plain(&[("LC_CTYPE", "de_DE.utf8")]));
    }
}
