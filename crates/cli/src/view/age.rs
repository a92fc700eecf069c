//! Spans of time the way kubectl shortens them.

use std::time::Duration;

use keelet_lifecycle::Wall;

/// What stands for an unknown age, as in kubectl.
const UNKNOWN: &str = "<unknown>";

/// At most two units, and only one where that is exact enough: `45s`, `2m5s`, `12m`, `3h5m`, `2d4h`, `30d`, `2y10d`.
pub(crate) fn short(span: Duration) -> String {
    let seconds = span.as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, "d", hours % 24, "h"),
        () if days < 730 => format!("{days}d"),
        () if days < 2920 => two(days / 365, "y", days % 365, "d"),
        () => format!("{}y", days / 365),
    }
}

fn two(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    match small {
        0 => format!("{large}{large_unit}"),
        _ => format!("{large}{large_unit}{small}{small_unit}"),
    }
}

/// How long ago that was.
pub(crate) fn since(then: Option<Wall>, now: Wall) -> String {
    then.map_or_else(|| UNKNOWN.to_owned(), |then| short(now.since(then)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of kubectl's own rounding.
    #[test]
    fn spans_are_shortened_as_kubectl_does() {
        const MINUTE: u64 = 60;
        const HOUR: u64 = 3600;
        const DAY: u64 = 86_400;
        for (seconds, expected) in [
            (0, "0s"),
            (70, "70s"),
            (119, "119s"),
            (120, "2m"),
            (2 * MINUTE + 5, "2m5s"),
            (10 * MINUTE + 59, "10m"),
            (179 * MINUTE, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 5 * MINUTE, "3h5m"),
            (8 * HOUR + 5 * MINUTE, "8h"),
            (47 * HOUR, "47h"),
            (2 * DAY, "2d"),
            (2 * DAY + 4 * HOUR, "2d4h"),
            (8 * DAY + 4 * HOUR, "8d"),
            (729 * DAY, "729d"),
            (2 * 365 * DAY, "2y"),
            (2 * 365 * DAY + 10 * DAY, "2y10d"),
            (8 * 365 * DAY + 10 * DAY, "8y"),
        ] {
            assert_eq!(short(Duration::from_secs(seconds)), expected, "{seconds}");
        }
        assert_eq!(since(None, Wall::from_millis(0)), "<unknown>");
    }
}
