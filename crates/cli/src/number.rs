//! Whole numbers, as options give them.

use std::{
    fmt::{Debug, Display},
    num::NonZeroUsize,
    str::FromStr,
};

/// A whole number that an option takes.
pub trait Whole: Clone + Debug + Display + FromStr + Send + Sync + 'static {
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

/// Text that is not a number of the range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid number {text:?}: expected a whole number from {least} to {most}")]
pub struct InvalidNumber<N: Whole> {
    text: String,
    least: N,
    most: N,
}

/// The number, or what would be one.
pub fn parse<N: Whole>(text: &str) -> Result<N, InvalidNumber<N>> {
    let (least, most) = N::RANGE;
    text.parse().map_err(|_| InvalidNumber { text: text.to_owned(), least, most })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_number_is_answered_with_the_range() {
        assert_eq!((parse::<u64>("0"), parse::<NonZeroUsize>("7")), (Ok(0), Ok(NonZeroUsize::MIN.saturating_add(6))));
        for text in ["", "x", "-1", "1.5", "99999999999999999999"] {
            let error = parse::<u64>(text).unwrap_err().to_string();
            assert_eq!(error, format!("invalid number {text:?}: expected a whole number from 0 to {}", u64::MAX));
        }
        assert!(parse::<NonZeroUsize>("0").unwrap_err().to_string().contains("from 1 to"));
    }
}
