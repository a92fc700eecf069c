//! What a plain scalar means: the rules of go-yaml v2, which kubectl and the API server read manifests with.
//!
//! `yes`, `on`, `y` and their kin are booleans, `0644` is octal, `1_000` is a thousand. `0o644` and `0b1` are
//! numbers too, dates are strings.

/// The type and value of a plain scalar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Resolved {
    /// Nothing.
    Null,
    /// true or false.
    Bool(bool),
    /// A whole number, within the ranges of i64 and u64 taken together.
    Int(i128),
    /// Any other number.
    Float(f64),
    /// A string.
    Text,
}

/// The meaning of a plain scalar.
pub(crate) fn resolve(text: &str) -> Resolved {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Resolved::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Resolved::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Resolved::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Resolved::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Resolved::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Resolved::Float(f64::NEG_INFINITY),
        _ => {}
    }
    if !text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '+' | '-' | '.')) {
        return Resolved::Text;
    }
    let digits = text.replace('_', "");
    if let Some(value) = integer(&digits) {
        return Resolved::Int(value);
    }
    if looks_like_float(&digits)
        && let Ok(value) = digits.parse::<f64>()
        && value.is_finite()
    {
        return Resolved::Float(value);
    }
    Resolved::Text
}

/// A whole number with the prefixes of C and of YAML 1.2.
fn integer(text: &str) -> Option<i128> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match rest.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &rest[2..]),
        [b'0', b'o' | b'O', ..] => (8, &rest[2..]),
        [b'0', b'b' | b'B', ..] => (2, &rest[2..]),
        [b'0', _, ..] => (8, &rest[1..]),
        _ => (10, rest),
    };
    // from_str_radix would take a second sign.
    if !digits.starts_with(|first: char| first.is_ascii_hexdigit()) {
        return None;
    }
    let value = i128::from_str_radix(digits, radix).ok()?;
    let value = if negative { -value } else { value };
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value).then_some(value)
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn looks_like_float(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (text, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    all_digits(whole)
        && all_digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && all_digits(exponent))
}

#[cfg(test)]
mod tests {
    use super::{Resolved, resolve};

    #[test]
    fn booleans_are_those_of_yaml_1_1() {
        for text in ["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"] {
            assert_eq!(resolve(text), Resolved::Bool(true), "{text}");
        }
        for text in ["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"] {
            assert_eq!(resolve(text), Resolved::Bool(false), "{text}");
        }
        for text in ["yEs", "tRue", "oN", "yess", "nope", "offf", "t"] {
            assert_eq!(resolve(text), Resolved::Text, "{text}");
        }
    }

    #[test]
    fn nothing_has_five_spellings() {
        for text in ["", "~", "null", "Null", "NULL"] {
            assert_eq!(resolve(text), Resolved::Null, "{text}");
        }
        for text in ["nULL", "nil", "none", "~~"] {
            assert_eq!(resolve(text), Resolved::Text, "{text}");
        }
    }

    #[test]
    fn integers_have_the_prefixes_of_c_and_yaml() {
        let cases: [(&str, i128); 18] = [
            ("0", 0),
            ("-0", 0),
            ("8080", 8080),
            ("+5", 5),
            ("-5", -5),
            ("0644", 0o644),
            ("-0644", -0o644),
            ("0o644", 0o644),
            ("0O17", 0o17),
            ("0x1F", 31),
            ("0X1f", 31),
            ("0b101", 5),
            ("0B11", 3),
            ("1_000", 1000),
            ("0_644", 0o644),
            ("9223372036854775807", i64::MAX as i128),
            ("-9223372036854775808", i64::MIN as i128),
            ("18446744073709551615", u64::MAX as i128),
        ];
        for (text, value) in cases {
            assert_eq!(resolve(text), Resolved::Int(value), "{text}");
        }
    }

    #[test]
    fn other_numbers_are_floats() {
        let cases = [
            ("0.5", 0.5),
            (".5", 0.5),
            ("5.", 5.0),
            ("-1.5", -1.5),
            ("+1.5", 1.5),
            ("1e3", 1000.0),
            ("1E+3", 1000.0),
            ("1e-3", 0.001),
            ("08", 8.0),
            ("18446744073709551616", 18446744073709551616.0),
            ("-9223372036854775809", -9223372036854775809.0),
            (".inf", f64::INFINITY),
            ("+.Inf", f64::INFINITY),
            ("-.INF", f64::NEG_INFINITY),
        ];
        for (text, value) in cases {
            assert_eq!(resolve(text), Resolved::Float(value), "{text}");
        }
        assert!(matches!(resolve(".NaN"), Resolved::Float(value) if value.is_nan()));
    }

    #[test]
    fn everything_else_is_a_string() {
        for text in [
            "a",
            "1.2.3",
            "2001-01-01",
            "10m",
            "1Gi",
            "-",
            "+",
            ".",
            "--1",
            "+-1",
            "0x",
            "0o",
            "0x-1",
            "0b2",
            "1e",
            "1e+",
            "e5",
            "1.5e5x",
            "12:30",
            "_1",
            "1e999",
            ".a",
            "<<",
            "0xg",
            "1a",
            "-.",
            "+.5.",
        ] {
            assert_eq!(resolve(text), Resolved::Text, "{text}");
        }
    }
}
