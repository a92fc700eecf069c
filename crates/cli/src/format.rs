//! The values of `-o`.

use clap::ValueEnum;

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For machines; the shape is stable
    Json,
}

/// How an answer with a timeline is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Drawn {
    /// For the terminal
    Text,
    /// A picture
    Svg,
    /// A page with the picture and everything around it
    Html,
    /// For machines; the shape is stable
    Json,
}
