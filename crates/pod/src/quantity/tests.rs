//! Quantities by table, and against arithmetic on strings of digits, which has no upper limit.

use proptest::prelude::*;

use super::{ONE, Quantity, SUFFIXES};

fn nano(text: &str) -> Option<i128> {
    Quantity::parse(text).map(|quantity| quantity.0)
}

#[test]
fn suffixes_scale_by_ten_and_by_two() {
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
        ("-0", 0),
        ("-0.1n", -1),
    ];
    for (text, value) in cases {
        assert_eq!(nano(text), Some(value), "{text}");
    }
}

#[test]
fn everything_else_is_refused() {
    for text in [
        "", "-", "+", ".", "m", "1.2.3", "1 Gi", "1gi", "1K", "1kb", "e3", "1e", "1e+", "1e3m", "0x1", "--1", "1mi",
        "é", "NaN", "inf", "infinity", "1_000", "+-1", "1e+-3", "1e0x3",
    ] {
        assert_eq!(nano(text), None, "{text}");
    }
}

#[test]
fn huge_amounts_saturate() {
    assert_eq!(nano(&"9".repeat(50)), Some(i128::MAX));
    assert_eq!(nano("1e999999999999"), Some(i128::MAX));
    assert_eq!(nano("0e999999999999"), Some(0));
    assert_eq!(nano("-1e99"), Some(-i128::MAX));
    assert!(Quantity::parse("2").unwrap() > Quantity::parse("1999m").unwrap());
    assert!(Quantity::parse("-1n").unwrap().is_negative());
    assert!(!Quantity::parse("0").unwrap().is_negative());
    for text in ["8Ei", "1e99", &"9".repeat(50)] {
        let quantity = Quantity::parse(text).unwrap();
        assert_eq!((quantity.units(), quantity.millis()), (i64::MAX, i64::MAX), "{text}");
    }
}

/// The value of a number does not depend on how many digits it is written with.
#[test]
fn digits_do_not_change_the_value() {
    let zeros = "0".repeat(60);
    for (text, value) in [
        (format!("1.{zeros}"), ONE),
        (format!("{zeros}1"), ONE),
        (format!("{zeros}1.{zeros}Gi"), (1 << 30) * ONE),
        (format!("{}e-49", "9".repeat(50)), 10 * ONE),
        (format!("0.{}", "3".repeat(60)), 333_333_334),
        (format!("0.{}Ki", "3".repeat(60)), 341_333_333_334),
        (format!("0.{zeros}1Ei"), 1),
        ("1e-999999999999".to_owned(), 1),
        ("1e-2147483649".to_owned(), 1),
    ] {
        assert_eq!(nano(&text), Some(value), "{text}");
    }
}

#[test]
fn amounts_are_rounded_up() {
    let cases = [
        ("0", 0, 0),
        ("2", 2, 2000),
        ("0.5", 1, 500),
        ("100m", 1, 100),
        ("1500m", 2, 1500),
        ("100u", 1, 1),
        ("1n", 1, 1),
        ("0.1n", 1, 1),
        ("1e-60", 1, 1),
        ("1Ki", 1024, 1_024_000),
        ("1.5Gi", 3 << 29, (3 << 29) * 1000),
        ("2G", 2_000_000_000, 2_000_000_000_000),
        ("12E2", 1200, 1_200_000),
        ("5E", 5_000_000_000_000_000_000, i64::MAX),
    ];
    for (text, units, millis) in cases {
        let quantity = Quantity::parse(text).unwrap();
        assert_eq!((quantity.units(), quantity.millis()), (units, millis), "{text}");
    }
    assert_eq!(Quantity::whole(2) + Quantity::thousandths(500), Quantity::parse("2.5").unwrap());
    let all = ["1", "1e99", "1e99"].map(|text| Quantity::parse(text).unwrap());
    assert_eq!(all.into_iter().sum::<Quantity>().units(), i64::MAX);
}

/// The amount in billionths by schoolbook arithmetic on decimal digits, the lowest first.
fn by_hand(whole: &str, fraction: &str, ten: i32, two: u32) -> i128 {
    let mut digits: Vec<u32> =
        format!("{whole}{fraction}").bytes().rev().map(|digit| u32::from(digit - b'0')).collect();
    for _ in 0..two {
        let mut carry = 0;
        for digit in &mut digits {
            let value = *digit * 2 + carry;
            (*digit, carry) = (value % 10, value / 10);
        }
        digits.push(carry);
    }
    let mut shift = ten + 9 - i32::try_from(fraction.len()).unwrap();
    while shift > 0 {
        digits.insert(0, 0);
        shift -= 1;
    }
    let mut lost = false;
    while shift < 0 {
        lost |= !digits.is_empty() && digits.remove(0) != 0;
        shift += 1;
    }
    let mut value = i128::from(lost);
    let mut place = Some(1i128);
    for digit in digits {
        let part = if digit == 0 { Some(0) } else { place.and_then(|place| place.checked_mul(digit.into())) };
        value = part.and_then(|part| value.checked_add(part)).unwrap_or(i128::MAX);
        place = place.and_then(|place| place.checked_mul(10));
    }
    value
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn an_amount_is_what_its_digits_say(
        whole in "[0-9]{0,45}",
        fraction in "[0-9]{0,45}",
        (suffix, ten, two) in prop_oneof![
            (0..SUFFIXES.len()).prop_map(|index| {
                let (suffix, ten, two) = SUFFIXES[index];
                (suffix.to_owned(), i32::try_from(ten).unwrap(), two)
            }),
            (-80..80i32).prop_map(|ten| (format!("e{ten}"), ten, 0)),
        ],
        negative in any::<bool>(),
    ) {
        prop_assume!(!(whole.is_empty() && fraction.is_empty()));
        let sign = if negative { "-" } else { "" };
        let text = format!("{sign}{whole}.{fraction}{suffix}");
        let expected = by_hand(&whole, &fraction, ten, two);
        prop_assert_eq!(nano(&text), Some(if negative { -expected } else { expected }), "{}", text);
    }

    /// No text makes the parser panic.
    #[test]
    fn any_text_parses_or_is_refused(text in "[-+.0-9a-zA-Zé ]{0,12}") {
        if let Some(quantity) = Quantity::parse(&text) {
            prop_assert!(quantity.units() >= 0 || quantity.is_negative());
            prop_assert_eq!(quantity.is_zero(), quantity == Quantity::default());
        }
    }
}
