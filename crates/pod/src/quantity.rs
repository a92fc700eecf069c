//! Amounts of a resource: `500m`, `2`, `1.5Gi`, `1e3`.
//!
//! This is the only parser of quantities in keelet: limits, volumes and logs use exactly what validation accepted. A
//! quantity is exact to a billionth and rounded up there, as in the API; larger values than the type can hold saturate.

use std::{iter::Sum, ops::Add};

/// An amount in billionths, rounded up, saturating.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(i128);

/// Billionths in one.
const ONE: i128 = 1_000_000_000;
/// Billionths in a thousandth.
const THOUSANDTH: i128 = 1_000_000;

/// Numbers with more digits than this do not fit.
const MOST_DIGITS: i64 = 39;

/// Suffix, power of ten, power of two.
const SUFFIXES: [(&str, i64, u32); 16] = [
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

/// The power of ten and the power of two that a suffix stands for.
fn scale(suffix: &str) -> Option<(i64, u32)> {
    if let Some((_, ten, two)) = SUFFIXES.iter().find(|(name, ..)| *name == suffix) {
        return Some((*ten, *two));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // An exponent that does not fit is as good as any other of a billion digits.
    let bound = if exponent.starts_with('-') { i32::MIN } else { i32::MAX };
    all_digits.then(|| (exponent.parse::<i32>().unwrap_or(bound).into(), 0))
}

/// `digits` times ten to the `shift`, times two to the `two`, rounded up.
fn scaled(digits: &str, shift: i64, two: u32) -> i128 {
    let digits = digits.trim_start_matches('0');
    let length = i64::try_from(digits.len()).unwrap_or(i64::MAX);
    if digits.is_empty() {
        return 0;
    }
    // The number of digits before the point.
    let before = length.saturating_add(shift);
    if before > MOST_DIGITS {
        return i128::MAX;
    }
    if shift >= 0 {
        let zeros = "0".repeat(usize::try_from(shift).unwrap_or_default());
        return format!("{digits}{zeros}").parse::<i128>().map_or(i128::MAX, |whole| whole.saturating_mul(1 << two));
    }
    let (whole, fraction) = digits.split_at(usize::try_from(before).unwrap_or_default());
    let whole = if whole.is_empty() { Ok(0) } else { whole.parse::<i128>() };
    let Ok(whole) = whole else { return i128::MAX };
    let mut fraction: Vec<u8> = fraction.bytes().map(|digit| digit - b'0').collect();
    let mut doubled = 0;
    if two > 0 {
        // The fraction begins with zeros that are not written. There are no more than the text has digits after its point.
        let missing = usize::try_from(before.saturating_neg()).unwrap_or_default();
        fraction.splice(..0, std::iter::repeat_n(0, missing));
        for _ in 0..two {
            doubled = doubled * 2 + i128::from(double(&mut fraction));
        }
    }
    let rest = fraction.iter().any(|digit| *digit != 0);
    whole.saturating_mul(1 << two).saturating_add(doubled).saturating_add(rest.into())
}

/// Doubles a decimal fraction and returns what is carried over its point.
fn double(fraction: &mut [u8]) -> u8 {
    let mut carry = 0;
    for digit in fraction.iter_mut().rev() {
        let value = *digit * 2 + carry;
        (*digit, carry) = (value % 10, value / 10);
    }
    carry
}

fn ceiling(number: i128, by: i128) -> i128 {
    number.div_euclid(by) + i128::from(number.rem_euclid(by) != 0)
}

fn saturated(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

// === impl Quantity ===

impl Quantity {
    /// What is allowed, in one sentence.
    pub const SYNTAX: &str = "must be a number with an optional suffix (n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or e3), such as \
                              500m, 2 or 1.5Gi";

    /// Parses a quantity; `None` if the text is not one.
    pub fn parse(text: &str) -> Option<Self> {
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
        let shift = ten + 9 - i64::try_from(fraction.len()).ok()?;
        let value = scaled(&format!("{whole}{fraction}"), shift, two);
        Some(Self(if negative { -value } else { value }))
    }

    /// A whole number.
    pub fn whole(number: i64) -> Self {
        Self(i128::from(number) * ONE)
    }

    /// A number of thousandths.
    pub fn thousandths(number: i64) -> Self {
        Self(i128::from(number) * THOUSANDTH)
    }

    /// In whole units, rounded up.
    pub fn units(self) -> i64 {
        saturated(ceiling(self.0, ONE))
    }

    /// In thousandths, rounded up.
    pub fn millis(self) -> i64 {
        saturated(ceiling(self.0, THOUSANDTH))
    }

    /// Whether the quantity is zero.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whether the quantity is below zero.
    pub fn is_negative(self) -> bool {
        self.0 < 0
    }
}

impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), |sum, amount| sum + amount)
    }
}

#[cfg(test)]
mod tests;
