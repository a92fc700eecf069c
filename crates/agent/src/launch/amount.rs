//! Amounts of a resource as numbers: `500m`, `1.5Gi`, `1e3`.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::ResourceRequirements, apimachinery::pkg::api::resource::Quantity};

/// Amounts by resource name.
pub(super) type Amounts = BTreeMap<String, Quantity>;

/// Billionths in one.
const ONE: i128 = 1_000_000_000;
/// Billionths in a thousandth.
const THOUSANDTH: i128 = 1_000_000;

/// An amount in billionths, rounded up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Amount(i128);

/// One side of a container's resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// What is set aside.
    Requests,
    /// What is not exceeded.
    Limits,
}

// === impl Amount ===

impl Amount {
    /// The amount of that resource, zero if nothing is said of it.
    pub(super) fn of(amounts: Option<&Amounts>, resource: &str) -> Self {
        amounts.and_then(|amounts| amounts.get(resource)).map(Self::read).unwrap_or_default()
    }

    /// The same on one side of the resources of a pod or container.
    pub(super) fn on(side: Side, resources: Option<&ResourceRequirements>, resource: &str) -> Self {
        let amounts = resources.and_then(|resources| match side {
            Side::Requests => resources.requests.as_ref(),
            Side::Limits => resources.limits.as_ref(),
        });
        Self::of(amounts, resource)
    }

    /// Reads an amount that validation has let pass; anything else is zero.
    pub(super) fn read(quantity: &Quantity) -> Self {
        Self(billionths(&quantity.0).unwrap_or_default())
    }

    /// A whole number.
    pub(super) fn whole(number: i64) -> Self {
        Self(i128::from(number) * ONE)
    }

    /// A number of thousandths.
    pub(super) fn thousandths(number: i64) -> Self {
        Self(i128::from(number) * THOUSANDTH)
    }

    /// In whole units, rounded up.
    pub(super) fn units(self) -> i64 {
        saturated(ceiling(self.0, ONE))
    }

    /// In thousandths, rounded up.
    pub(super) fn millis(self) -> i64 {
        saturated(ceiling(self.0, THOUSANDTH))
    }

    /// Whether there is nothing.
    pub(super) fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl std::ops::Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl std::iter::Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), |sum, amount| sum + amount)
    }
}

fn billionths(text: &str) -> Option<i128> {
    let end = text.find(|next: char| !matches!(next, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let (ten, two) = scale(suffix)?;
    let places = i32::try_from(fraction.len()).ok()?;
    let digits = format!("{whole}{fraction}").parse::<i128>().ok()?.checked_mul(1 << two)?;
    let shift = ten.checked_add(9)?.checked_sub(places)?;
    let factor = 10i128.checked_pow(shift.unsigned_abs());
    // What is smaller than a billionth is a billionth; what is larger than any machine is as large as it gets.
    Some(match (shift >= 0, factor) {
        (true, Some(factor)) => digits.saturating_mul(factor),
        (true, None) => digits.signum().saturating_mul(i128::MAX),
        (false, Some(factor)) => ceiling(digits, factor),
        (false, None) => digits.signum().max(0),
    })
}

/// The power of ten and the power of two that a suffix stands for.
fn scale(suffix: &str) -> Option<(i32, u32)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        exponent => (exponent.strip_prefix(['e', 'E'])?.parse().ok()?, 0),
    })
}

fn ceiling(number: i128, by: i128) -> i128 {
    number.div_euclid(by) + i128::from(number.rem_euclid(by) != 0)
}

fn saturated(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_rounded_up() {
        let cases = [
            ("0", 0, 0),
            ("2", 2, 2000),
            ("0.5", 1, 500),
            (".5", 1, 500),
            ("5.", 5, 5000),
            ("100m", 1, 100),
            ("1500m", 2, 1500),
            ("100u", 1, 1),
            ("1n", 1, 1),
            ("0.1n", 1, 1),
            ("1e-60", 1, 1),
            ("1Ki", 1024, 1_024_000),
            ("1.5Gi", 3 << 29, (3 << 29) * 1000),
            ("2G", 2_000_000_000, 2_000_000_000_000),
            ("1e3", 1000, 1_000_000),
            ("12E2", 1200, 1_200_000),
            ("8Ei", i64::MAX, i64::MAX),
            ("1e99", i64::MAX, i64::MAX),
            ("nonsense", 0, 0),
        ];
        for (text, units, millis) in cases {
            let amount = Amount::read(&Quantity(text.to_owned()));
            assert_eq!((amount.units(), amount.millis()), (units, millis), "{text}");
        }
    }
}
