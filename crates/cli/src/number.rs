//! Whole numbers, as options give them.

use std::{fmt::Display, num::NonZeroUsize, str::FromStr};

/// A whole number that an option takes.
pub trait Whole: Clone + Display + FromStr + Send + Sync + 'static {
    /// The range of it.
    const RANGE: (Self, Self);
}

impl Whole for u16 {
    const RANGE: (Self, Self) = (Self::MIN, Self::MAX);
}

impl Whole for u64 {
    const RANGE: (Self, Self) = (Self::MIN, Self::MAX);
}

impl Whole for NonZeroUsize {
    const RANGE: (Self, Self) = (Self::MIN, Self::MAX);
}

/// The number, or what would be one.
pub fn parse<N: Whole>(text: &str) -> Result<N, String> {
    let (least, most) = N::RANGE;
    text.parse().map_err(|_| format!("invalid number {text:?}: expected a whole number from {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_of_that_kind_is_told_the_range() {
        assert_eq!((parse::<u64>("0"), parse::<NonZeroUsize>("7")), (Ok(0), Ok(NonZeroUsize::MIN.saturating_add(6))));
        for text in ["", "x", "-1", "1.5", "99999999999999999999"] {
            let error = parse::<u64>(text).unwrap_err();
            assert_eq!(error, format!("invalid number {text:?}: expected a whole number from 0 to {}", u64::MAX));
        }
        assert!(parse::<NonZeroUsize>("0").unwrap_err().contains("from 1 to"));
    }
}
