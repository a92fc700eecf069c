//! What a drawing says about itself.

use std::time::Duration;

use keelet_lifecycle::Wall;

use super::{Timeline, Tone};
use crate::words::{clock, date};

/// Where a drawing comes from, how its times count, and what a page says beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caption {
    /// The command that draws, for the title of a page.
    pub command: &'static str,
    /// What it draws from, for the foot of a page.
    pub origin: &'static str,
    /// How times count.
    pub times: Times,
    /// What a page says before the changes.
    pub sections: Vec<Section>,
}

/// How times count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Times {
    /// By the clock of the world.
    Utc,
    /// From the beginning of the window, which is midnight on some day that means nothing.
    FromZero {
        /// What stands for the date, such as `simulated with seed 1`.
        told: String,
    },
}

/// A part of a page: a heading, sentences, and a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its heading.
    pub heading: &'static str,
    /// What comes before the table.
    pub sentences: Vec<String>,
    /// The table.
    pub rows: Vec<Row>,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Whether it is good or bad news.
    pub tone: Tone,
    /// What it is about, in a word or two.
    pub topic: String,
    /// The container it is about; the pod if there is none.
    pub container: Option<String>,
    /// What it says.
    pub text: String,
}

// === impl Caption ===

/// From a ledger, by the clock of the world.
impl Default for Caption {
    fn default() -> Self {
        Self { command: "keelet timeline", origin: "the pod's ledger", times: Times::Utc, sections: Vec::new() }
    }
}

// === impl Times ===

impl Times {
    /// The window, in a few words.
    pub(super) fn window(&self, timeline: &Timeline, dash: &str) -> String {
        match self {
            Self::Utc => {
                format!("{} {} {dash} {} UTC", date(timeline.from), clock(timeline.from), clock(timeline.to))
            }
            Self::FromZero { told } => told.clone(),
        }
    }

    /// How they count, in a sentence without its full stop.
    pub(super) fn sentence(&self) -> &'static str {
        match self {
            Self::Utc => "Times are UTC",
            Self::FromZero { .. } => "Times count from its beginning",
        }
    }

    /// What the axis says at a time: the time of day, the date at midnight, fractions where there are some.
    pub(super) fn label(&self, at: Wall, from: Wall) -> String {
        let millis = at.as_millis();
        let whole = match self {
            Self::Utc if millis.rem_euclid(86_400_000) == 0 => return date(at),
            Self::Utc => clock(at),
            Self::FromZero { .. } => elapsed(at.since(from)),
        };
        match millis.rem_euclid(1000) {
            0 => whole,
            fraction => format!("{whole}.{}", fraction / 100),
        }
    }
}

/// `00:01:30`; a day is `24:00:00`.
fn elapsed(span: Duration) -> String {
    let seconds = span.as_secs();
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
