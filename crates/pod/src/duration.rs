//! Durations: parsed from options and configuration, printed in sentences.

use std::time::Duration;

/// Why a text is not accepted as a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDuration {
    /// The text is not a sequence of numbers with units.
    #[error("invalid duration {0:?}: expected numbers with units (ms, s, m, h, d), such as 45s or 1h30m")]
    Syntax(String),
    /// The duration is zero where it must not be.
    #[error("invalid duration {0:?}: must be greater than zero, such as 45s or 1h30m")]
    Zero(String),
    /// The duration exceeds the limit.
    #[error("duration {text:?} is too long: at most {limit}")]
    TooLong {
        /// The text.
        text: String,
        /// The limit, with its unit.
        limit: String,
    },
}

/// Arguments of commands are refused with texts.
impl From<InvalidDuration> for String {
    fn from(error: InvalidDuration) -> Self {
        error.to_string()
    }
}

/// `90s`, `1m30s`, `250ms`, `2h`, `3d`, `0s`.
pub fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    read(text, whole)
}

/// The same, and `1.5h` as kubectl takes it.
pub fn parse_with_fractions(text: &str) -> Result<Duration, InvalidDuration> {
    read(text, fractional)
}

/// A number of units of so many milliseconds, in milliseconds.
type Number = fn(&str, u64) -> Result<u64, Wrong>;

enum Wrong {
    NoNumber,
    TooLong,
}

fn read(text: &str, number: Number) -> Result<Duration, InvalidDuration> {
    let bad = || InvalidDuration::Syntax(text.to_owned());
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut rest = text;
    let mut span = Duration::ZERO;
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !is_number(c)).ok_or_else(bad)?;
        let letters = rest[digits..].find(is_number).unwrap_or(rest.len() - digits);
        let unit: u64 = match &rest[digits..digits + letters] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(bad()),
        };
        let millis = number(&rest[..digits], unit).map_err(|wrong| match wrong {
            Wrong::NoNumber => bad(),
            Wrong::TooLong => too_long(text),
        })?;
        span = span.checked_add(Duration::from_millis(millis)).ok_or_else(|| too_long(text))?;
        rest = &rest[digits + letters..];
    }
    if span > LONGEST { Err(too_long(text)) } else { Ok(span) }
}

fn whole(digits: &str, unit: u64) -> Result<u64, Wrong> {
    if digits.is_empty() || digits.contains('.') {
        return Err(Wrong::NoNumber);
    }
    digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).ok_or(Wrong::TooLong)
}

/// To the millisecond; what is less is left out.
fn fractional(digits: &str, unit: u64) -> Result<u64, Wrong> {
    let Some((before, after)) = digits.split_once('.') else { return whole(digits, unit) };
    // More digits than this are less than a millisecond of a day.
    let after = after.get(..after.len().min(9)).unwrap_or_default();
    if before.is_empty() || after.is_empty() {
        return Err(Wrong::NoNumber);
    }
    let scale = 10_u64.pow(u32::try_from(after.len()).unwrap_or(0));
    // The second point of `1.2.3` makes this fail.
    let fraction: u64 = after.parse().map_err(|_| Wrong::NoNumber)?;
    whole(before, unit)?.checked_add(fraction * unit / scale).ok_or(Wrong::TooLong)
}

/// A duration greater than zero.
pub fn parse_some(text: &str) -> Result<Duration, InvalidDuration> {
    match parse(text)? {
        Duration::ZERO => Err(InvalidDuration::Zero(text.to_owned())),
        span => Ok(span),
    }
}

/// A duration that can be simulated.
pub fn parse_day(text: &str) -> Result<Duration, InvalidDuration> {
    match parse(text)? {
        span if span > DAY => Err(InvalidDuration::TooLong { text: text.to_owned(), limit: "24h".to_owned() }),
        span => Ok(span),
    }
}

fn too_long(text: &str) -> InvalidDuration {
    let limit = format!("{}d", LONGEST.as_secs() / DAY.as_secs());
    InvalidDuration::TooLong { text: text.to_owned(), limit }
}

/// The limit of a simulation: a picture of it has to stay drawable.
pub const DAY: Duration = Duration::from_secs(86_400);

/// Ten years. No ledger is older.
const LONGEST: Duration = Duration::from_secs(86_400 * 3650);

/// Exactly, to the millisecond: `0 s`, `250 ms`, `12.5 s`, `4 min 50 s`, `1 h`.
pub fn words(span: Duration) -> String {
    parts(span).into_iter().map(|(number, unit)| format!("{number} {unit}")).collect::<Vec<_>>().join(" ")
}

/// The same as options have it: `0s`, `250ms`, `12.5s`, `4m50s`, `1h`.
pub fn compact(span: Duration) -> String {
    let unit = |unit| if unit == MINUTES { "m" } else { unit };
    parts(span).into_iter().map(|(number, of)| format!("{number}{}", unit(of))).collect()
}

const MINUTES: &str = "min";

/// Numbers with their units, the largest first.
fn parts(span: Duration) -> Vec<(String, &'static str)> {
    let (hours, minutes) = (span.as_secs() / 3600, span.as_secs() / 60 % 60);
    let millis = span.as_millis() % 60_000;
    let mut parts = Vec::new();
    if hours > 0 {
        parts.push((hours.to_string(), "h"));
    }
    if minutes > 0 {
        parts.push((minutes.to_string(), MINUTES));
    }
    match millis {
        0 if parts.is_empty() => parts.push(("0".to_owned(), "s")),
        0 => {}
        1..1000 if parts.is_empty() => parts.push((millis.to_string(), "ms")),
        _ => parts.push((seconds(millis), "s")),
    }
    parts
}

fn seconds(millis: u128) -> String {
    let text = format!("{}.{:03}", millis / 1000, millis % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// To a tenth of a second, for what was measured.
pub fn about(span: Duration) -> String {
    let tenths = u64::try_from((span.as_millis() + 50) / 100).unwrap_or(u64::MAX);
    words(Duration::from_millis(tenths.saturating_mul(100)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_give_numbers_with_units() {
        let cases = [
            ("45s", 45_000),
            ("1m30s", 90_000),
            ("1h30m", 5_400_000),
            ("250ms", 250),
            ("0s", 0),
            ("24h", 86_400_000),
            ("2d", 172_800_000),
        ];
        for (text, millis) in cases {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)));
        }
        for text in ["", "10", "s", "10x", "1m 30s", "-1s", "+1s", "1.5s", "1S"] {
            let error = parse(text).unwrap_err().to_string();
            let expected = format!("invalid duration {text:?}: expected numbers with units");
            assert!(error.starts_with(&expected), "{error}");
        }
        for text in ["99999999999999999999s", "9999999999999999d", "3651d"] {
            let error = parse(text).unwrap_err().to_string();
            assert_eq!(error, format!("duration {text:?} is too long: at most 3650d"));
        }
    }

    #[test]
    fn some_options_take_fractions_too() {
        let cases = [("1.5h", 5_400_000), ("0.25s", 250), ("1.0015s", 1_001), ("1h0.5m", 3_630_000), ("45s", 45_000)];
        for (text, millis) in cases {
            assert_eq!(parse_with_fractions(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "1.5", ".5s", "1.s", "1.2.3s", "1.x", "-1.5s", "1.5é"] {
            assert_eq!(parse_with_fractions(text), Err(InvalidDuration::Syntax(text.to_owned())), "{text}");
        }
        let error = parse_with_fractions("99999999999999999999.5s").unwrap_err();
        assert!(matches!(error, InvalidDuration::TooLong { .. }), "{error}");
        assert!(parse_with_fractions("1.99999999999999999999999d").is_ok());
    }

    #[test]
    fn some_must_exceed_zero_and_some_are_limited_to_a_day() {
        assert_eq!((parse_some("1ms"), parse_day("0s")), (Ok(Duration::from_millis(1)), Ok(Duration::ZERO)));
        assert_eq!(parse_some("0s"), Err(InvalidDuration::Zero("0s".to_owned())));
        assert_eq!(parse_day("1d"), Ok(DAY));
        assert_eq!(parse_day("25h").unwrap_err().to_string(), "duration \"25h\" is too long: at most 24h");
    }

    #[test]
    fn what_options_have_is_read_back() {
        let cases = [
            (0, "0s"),
            (250, "250ms"),
            (12_500, "12.5s"),
            (90_000, "1m30s"),
            (3_600_000, "1h"),
            (3_660_001, "1h1m0.001s"),
        ];
        for (millis, text) in cases {
            let span = Duration::from_millis(millis);
            assert_eq!((compact(span).as_str(), parse_with_fractions(text)), (text, Ok(span)));
        }
    }

    #[test]
    fn sentences_have_them_exactly_or_rounded() {
        let cases = [
            (0, "0 s"),
            (250, "250 ms"),
            (12_500, "12.5 s"),
            (12_003, "12.003 s"),
            (60_000, "1 min"),
            (290_000, "4 min 50 s"),
            (3_600_250, "1 h 0.25 s"),
        ];
        for (millis, expected) in cases {
            assert_eq!(words(Duration::from_millis(millis)), expected);
        }
        assert_eq!(about(Duration::from_millis(30_012)), "30 s");
        assert_eq!(about(Duration::from_millis(1_960)), "2 s");
        assert_eq!(about(Duration::from_millis(17)), "0 s");
    }
}
