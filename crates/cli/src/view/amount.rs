//! Sizes and shares.

/// As registries and crictl print sizes, in powers of 1000: `4.26MB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut number = bytes as f64;
    let mut unit = 0;
    while number >= 999.5 && unit + 1 < UNITS.len() {
        number /= 1000.0;
        unit += 1;
    }
    let digits = match number {
        _ if unit == 0 => 0,
        n if n >= 99.95 => 0,
        n if n >= 9.995 => 1,
        _ => 2,
    };
    format!("{number:.digits$}{}", UNITS[unit])
}

/// As `kubectl top` prints memory, in whole mebibytes: `34Mi`.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{}Mi", bytes >> 20)
}

/// As `kubectl top` prints CPU usage, in millicores: `12m`. Rounded up: what is little is not nothing.
pub(crate) fn millicores(nano_cores: u64) -> String {
    format!("{}m", nano_cores.div_ceil(1_000_000))
}

/// `42%`.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    let share = u128::from(part) * 100;
    share.checked_div(u128::from(whole)).map_or_else(|| "<unknown>".to_owned(), |share| format!("{share}%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        for (bytes, expected) in [
            (0, "0B"),
            (999, "999B"),
            (1000, "1.00kB"),
            (4_261_550, "4.26MB"),
            (42_615_500, "42.6MB"),
            (999_999, "1.00MB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
        assert_eq!(size(187_000_000), "187MB");
        assert_eq!(size(2_300_000_000), "2.30GB");
    }

    #[test]
    fn usage_is_shown_as_kubectl_top_does() {
        assert_eq!((mebibytes(34 << 20), mebibytes(1)), ("34Mi".to_owned(), "0Mi".to_owned()));
        assert_eq!((millicores(12_000_000), millicores(1), millicores(0)), ("12m".into(), "1m".into(), "0m".into()));
        assert_eq!((percent(1, 3), percent(1, 0)), ("33%".to_owned(), "<unknown>".to_owned()));
    }
}
