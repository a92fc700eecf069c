//! Amounts of a resource: `500m`, `2`, `1.5Gi`, `1e3`.

/// An amount in billionths, rounded up, saturating.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quantity(i128);

/// What is allowed, in one sentence.
pub(crate) const SYNTAX: &str =
    "must be a number with an optional suffix (n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or e3), such as 500m, 2 or 1.5Gi";

/// Suffix, power of ten, power of two.
const SUFFIXES: [(&str, i32, u32); 16] = [
    ("", 0, 0),
    ("n", -9, 0),
    ("u", -6, 0),
    ("m", -3, 0),
    ("k", 3, 0),
    ("M", 6, 0),
    ("G", 9, 0),
    ("T", 12, 0),
    ("P", 15, 0),
    ("E", 18, 0),
    ("Ki", 0, 10),
    ("Mi", 0, 20),
    ("Gi", 0, 30),
    ("Ti", 0, 40),
    ("Pi", 0, 50),
    ("Ei", 0, 60),
];

// === impl Quantity ===

impl Quantity {
    /// Reads an amount.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|next: char| !next.is_ascii_digit() && next != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let (ten, two) = scale(suffix)?;
        let digits = format!("{whole}{fraction}");
        // Digits that do not fit are more than anything there is.
        let mantissa = digits.parse::<i128>().unwrap_or(i128::MAX);
        let shift = ten.saturating_add(9).saturating_sub(i32::try_from(fraction.len()).ok()?);
        let mut value = mantissa.saturating_mul(1 << two);
        for _ in 0..shift.clamp(0, 60) {
            value = value.saturating_mul(10);
        }
        for _ in 0..shift.saturating_neg().clamp(0, 60) {
            value = value / 10 + i128::from(value % 10 != 0);
        }
        Some(Self(if negative { -value } else { value }))
    }

    /// Whether it is less than nothing.
    pub(crate) fn is_negative(self) -> bool {
        self.0 < 0
    }
}

fn scale(suffix: &str) -> Option<(i32, u32)> {
    if let Some((_, ten, two)) = SUFFIXES.iter().find(|(name, ..)| *name == suffix) {
        return Some((*ten, *two));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| (exponent.parse().unwrap_or(i32::MAX), 0))
}

#[cfg(test)]
mod tests {
    use super::Quantity;

    fn nano(text: &str) -> Option<i128> {
        Quantity::parse(text).map(|quantity| quantity.0)
    }

    #[test]
    fn suffixes_scale_by_ten_and_by_two() {
        const ONE: i128 = 1_000_000_000;
        let cases = [
            ("0", 0),
            ("2", 2 * ONE),
            ("+2", 2 * ONE),
            ("-2", -2 * ONE),
            ("0.5", ONE / 2),
            (".5", ONE / 2),
            ("5.", 5 * ONE),
            ("500m", ONE / 2),
            ("3u", 3000),
            ("7n", 7),
            ("1k", 1000 * ONE),
            ("1M", 1_000_000 * ONE),
            ("1G", 1_000_000_000 * ONE),
            ("1T", 10i128.pow(12) * ONE),
            ("1P", 10i128.pow(15) * ONE),
            ("1E", 10i128.pow(18) * ONE),
            ("1Ki", 1024 * ONE),
            ("1Mi", (1 << 20) * ONE),
            ("1.5Gi", 3 * (1 << 29) * ONE),
            ("1Ti", (1 << 40) * ONE),
            ("1Pi", (1 << 50) * ONE),
            ("1Ei", (1 << 60) * ONE),
            ("1e3", 1000 * ONE),
            ("1E3", 1000 * ONE),
            ("1e+3", 1000 * ONE),
            ("1000e-3", ONE),
            ("0.1n", 1),
            ("1.1n", 2),
            ("2.0n", 2),
            ("1e-60", 1),
        ];
        for (text, value) in cases {
            assert_eq!(nano(text), Some(value), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "", "-", "+", ".", "m", "1.2.3", "1 Gi", "1gi", "1K", "1kb", "e3", "1e", "1e+", "1e3m", "0x1", "--1",
            "1mi", "é",
        ] {
            assert_eq!(nano(text), None, "{text}");
        }
    }

    #[test]
    fn huge_amounts_saturate() {
        assert_eq!(nano(&"9".repeat(50)), Some(i128::MAX));
        assert_eq!(nano("1e999999999999"), Some(i128::MAX));
        assert_eq!(nano("-1e99"), Some(-i128::MAX));
        assert!(Quantity::parse("2").unwrap() > Quantity::parse("1999m").unwrap());
        assert!(Quantity::parse("-1n").unwrap().is_negative());
        assert!(!Quantity::parse("0").unwrap().is_negative());
    }
}
