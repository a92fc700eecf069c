//! `keelet timeline`: a pod's life, drawn.

use std::time::Duration;

use clap::ValueEnum;
use keelet_explain::{
    Known,
    timeline::{Look, Timeline, html, json, svg, text},
};

use crate::{lookup::Question, output, style::Style, validate::Verdict};

/// Draw what happened to a pod: conditions, containers, probes, exits, restarts, times without an agent
///
/// Read from the ledger, so it works with the agent stopped too. The ledger has the newest 200 changes of a pod, and the
/// newest 16 attempts of each probe.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 drawn, 1 no such pod or no ledger, 2 wrong usage.\n\n\
                        Examples:\n  keelet timeline web\n  keelet timeline web --since 10m\n  \
                        keelet timeline web -n shop -o html > web.html")]
pub(crate) struct Args {
    /// Pod, by name or UID
    #[arg(value_name = "POD")]
    pod: String,
    /// How to draw it
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    output: Format,
    /// Only the newest part, such as 90s, 10m or 1h30m
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    since: Option<Duration>,
    /// Columns of the text [default: $COLUMNS, else 100]
    #[arg(long, value_name = "COLUMNS")]
    width: Option<usize>,
    /// Text without characters beyond ASCII
    #[arg(long)]
    ascii: bool,
    #[command(flatten)]
    question: Question,
}

/// How a timeline is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For the terminal
    Text,
    /// A picture
    Svg,
    /// A page with the picture and every change
    Html,
    /// For machines; the shape is stable
    Json,
}

/// The usual width where nobody says another.
const WIDTH: usize = 100;

/// Draws and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<Verdict> {
    output::answer(answer(args))
}

fn answer(args: &Args) -> anyhow::Result<String> {
    let found = args.question.find(&args.pod)?;
    let timeline = Timeline::build(&Known::from_ledger(&found.pod), args.since, found.now);
    Ok(match args.output {
        Format::Text => text(&timeline, args.look()),
        Format::Svg => svg(&timeline),
        Format::Html => html(&timeline),
        Format::Json => json(&timeline),
    })
}

/// `90s`, `10m`, `1h30m`, `250ms`, `2d`.
fn parse_span(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is no span of time: expected numbers with units, such as 90s, 10m or 1h30m");
    let mut rest = text;
    let mut span = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let number: u64 = rest[..digits].parse().map_err(|_| bad())?;
        let letters = rest[digits..].find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len() - digits);
        let millis: u64 = match &rest[digits..digits + letters] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(bad()),
        };
        let part = number.checked_mul(millis).map(Duration::from_millis);
        span = part.and_then(|part| span.checked_add(part)).ok_or_else(bad)?;
        rest = &rest[digits + letters..];
    }
    if span.is_zero() { Err(bad()) } else { Ok(span) }
}

// === impl Args ===

impl Args {
    fn look(&self) -> Look {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let columns = || variable("COLUMNS")?.parse().ok();
        // The first of these that is set decides, as in the C library.
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable);
        let plain = locale.is_some_and(|locale| !locale.to_ascii_lowercase().replace('-', "").contains("utf8"));
        Look {
            width: self.width.or_else(columns).unwrap_or(WIDTH),
            colours: Style::of_stdout() == Style::Coloured,
            ascii: self.ascii || plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_time_are_numbers_with_units() {
        let cases = [("90s", 90_000), ("10m", 600_000), ("1h30m", 5_400_000), ("250ms", 250), ("2d", 172_800_000)];
        for (text, millis) in cases {
            assert_eq!(parse_span(text), Ok(Duration::from_millis(millis)));
        }
        for text in ["", "10", "m", "10x", "1h 30m", "-1s", "0s", "99999999999999999999s", "9999999999999999d"] {
            assert!(parse_span(text).is_err(), "{text}");
        }
    }
}
