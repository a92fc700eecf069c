//! Spans of time: as options give them, and as sentences tell them.

use std::time::Duration;

/// `90s`, `1m30s`, `250ms`, `2h`, `3d`, `0s`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let bad =
        || format!("{text:?} is no span of time: expected numbers with units (ms, s, m, h, d), such as 45s or 1h30m");
    let mut rest = text;
    let mut span = Duration::ZERO;
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let letters = rest[digits..].find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len() - digits);
        let millis: u64 = match &rest[digits..digits + letters] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(bad()),
        };
        let number: u64 = match rest[..digits].parse() {
            Ok(number) => number,
            Err(_) if digits == 0 => return Err(bad()),
            Err(_) => return Err(too_long(text)),
        };
        let part = number.checked_mul(millis).map(Duration::from_millis);
        span = part.and_then(|part| span.checked_add(part)).ok_or_else(|| too_long(text))?;
        rest = &rest[digits + letters..];
    }
    if span > LONGEST { Err(too_long(text)) } else { Ok(span) }
}

/// One that is not nothing.
pub(crate) fn parse_some(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err(format!("{text:?} is no time at all: expected more than nothing, such as 45s or 1h30m")),
        span => Ok(span),
    }
}

/// One that can be simulated.
pub(crate) fn parse_day(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        span if span > DAY => Err(format!("{text:?} is too long: at most 24h")),
        span => Ok(span),
    }
}

fn too_long(text: &str) -> String {
    format!("{text:?} is too long: at most {}d", LONGEST.as_secs() / DAY.as_secs())
}

/// Nobody simulates more than a day, and a picture of one has to stay drawable.
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// Ten years. No ledger is older.
const LONGEST: Duration = Duration::from_secs(86_400 * 3650);

/// Exactly, to the millisecond: `0 s`, `250 ms`, `12.5 s`, `4 min 50 s`, `1 h`.
pub(crate) fn words(span: Duration) -> String {
    let (hours, minutes) = (span.as_secs() / 3600, span.as_secs() / 60 % 60);
    let millis = span.as_millis() % 60_000;
    let mut parts = Vec::new();
    if hours > 0 {
        parts.push(format!("{hours} h"));
    }
    if minutes > 0 {
        parts.push(format!("{minutes} min"));
    }
    match millis {
        0 if parts.is_empty() => parts.push("0 s".to_owned()),
        0 => {}
        1..1000 if parts.is_empty() => parts.push(format!("{millis} ms")),
        _ => parts.push(format!("{} s", seconds(millis))),
    }
    parts.join(" ")
}

fn seconds(millis: u128) -> String {
    let text = format!("{}.{:03}", millis / 1000, millis % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// To a tenth of a second, for what was measured.
pub(crate) fn about(span: Duration) -> String {
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
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(&format!("{text:?} is no span of time: expected numbers with units")), "{error}");
        }
        for text in ["99999999999999999999s", "9999999999999999d", "3651d"] {
            assert_eq!(parse(text), Err(format!("{text:?} is too long: at most 3650d")));
        }
    }

    #[test]
    fn some_are_more_than_nothing_and_some_no_more_than_a_day() {
        assert_eq!((parse_some("1ms"), parse_day("0s")), (Ok(Duration::from_millis(1)), Ok(Duration::ZERO)));
        assert!(parse_some("0s").unwrap_err().contains("no time at all"));
        assert_eq!(parse_day("1d"), Ok(DAY));
        assert_eq!(parse_day("25h"), Err("\"25h\" is too long: at most 24h".to_owned()));
    }

    #[test]
    fn sentences_tell_them_exactly_or_about() {
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
