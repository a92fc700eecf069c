//! Durations as the kubelet's configuration writes them: `1m30s`, `500ms`, `1.5h`.
//!
//! This is the syntax of Go, which a file for a kubelet may use in full: microseconds and nanoseconds, fractions everywhere, no days.
//! Options of commands have keelet's own ([`keelet_pod::duration`]), which has days and refuses what it cannot keep exactly.

use std::time::Duration;

/// What is allowed, for messages.
pub(super) const SYNTAX: &str = "must be a duration such as 20s, 1m30s or 500ms";

const UNITS: [(&str, f64); 7] =
    [("ns", 1e-9), ("us", 1e-6), ("\u{b5}s", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// A duration that is not negative; `None` for anything else.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
        seconds += number.parse::<f64>().ok()? * factor;
        rest = after;
    }
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, millis) in [
            ("20s", Some(20_000)),
            ("1m30s", Some(90_000)),
            ("1h0m0s", Some(3_600_000)),
            ("1.5h", Some(5_400_000)),
            ("500ms", Some(500)),
            ("0s", Some(0)),
            ("0", Some(0)),
            ("", None),
            ("20", None),
            ("20 s", None),
            ("-1s", None),
            ("s", None),
            ("1d", None),
            ("1s2", None),
            ("..s", None),
            ("99999999999999999999999h", None),
        ] {
            assert_eq!(parse(text), millis.map(Duration::from_millis), "{text:?}");
        }
    }
}
