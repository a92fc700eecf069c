//! What a person chooses, and how many nodes may be held.

use std::str::FromStr;

use jiff::SignedDuration;

use crate::gate::Prefixes;

/// What a person chooses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whether a gate that has passed is looked at again.
    pub enforcement: Enforcement,
    /// Which taints are gates.
    pub prefixes: Prefixes,
    /// A condition whose heartbeat is older counts as Unknown (GN-4).
    pub condition_max_age: Option<SignedDuration>,
    /// How many nodes may be held at once by taints that the controller added to nodes in use.
    pub max_held: MaxHeld,
}

/// Whether a gate that has passed is looked at again (CON-19).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Enforcement {
    /// It is not.
    #[default]
    Bootstrap,
    /// Its taint returns when its condition leaves True.
    Continuous,
}

/// How many nodes may be held at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxHeld {
    /// A part of the nodes that there are, and at least one.
    Percent(u8),
    /// So many.
    Nodes(usize),
}

/// What is no [`MaxHeld`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid limit {0:?}: expected a number of nodes, or a percentage such as 10%")]
pub struct BadMaxHeld(String);

/// Whether one more node may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It may.
    Free,
    /// It is not known yet: a new leader counts the held nodes first.
    Unknown,
    /// The limit is reached.
    Full {
        /// How many nodes are held.
        held: usize,
        /// How many may be.
        allowed: usize,
    },
}

// === impl MaxHeld ===

impl MaxHeld {
    /// How many of this many nodes may be held.
    pub fn of(self, nodes: usize) -> usize {
        match self {
            Self::Percent(percent) => (nodes.saturating_mul(percent.into()) / 100).max(1),
            Self::Nodes(number) => number,
        }
    }

    /// Whether one more node may be held while so many of this many nodes are.
    pub fn room(self, held: usize, nodes: usize) -> Room {
        let allowed = self.of(nodes);
        if held < allowed { Room::Free } else { Room::Full { held, allowed } }
    }
}

impl Default for MaxHeld {
    fn default() -> Self {
        Self::Percent(10)
    }
}

impl FromStr for MaxHeld {
    type Err = BadMaxHeld;

    fn from_str(text: &str) -> Result<Self, BadMaxHeld> {
        let bad = || BadMaxHeld(text.to_owned());
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.strip_suffix('%') {
            Some(percent) if digits(percent) => {
                let percent = percent.parse().ok().filter(|percent| *percent <= 100).ok_or_else(bad)?;
                Ok(Self::Percent(percent))
            }
            None if digits(text) => Ok(Self::Nodes(text.parse().map_err(|_| bad())?)),
            _ => Err(bad()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_a_tenth_and_at_least_one() {
        let default = MaxHeld::default();
        assert_eq!([0, 1, 9, 10, 19, 20, 5000].map(|nodes| default.of(nodes)), [1, 1, 1, 1, 1, 2, 500]);
        assert_eq!(default.room(0, 5), Room::Free);
        assert_eq!(default.room(1, 5), Room::Full { held: 1, allowed: 1 });
        assert_eq!(MaxHeld::Nodes(0).room(0, 5), Room::Full { held: 0, allowed: 0 }, "0 holds none");
    }

    #[test]
    fn limits_are_numbers_or_percentages() {
        assert_eq!(("3".parse(), "10%".parse()), (Ok(MaxHeld::Nodes(3)), Ok(MaxHeld::Percent(10))));
        assert_eq!(("0".parse(), "100%".parse()), (Ok(MaxHeld::Nodes(0)), Ok(MaxHeld::Percent(100))));
        for text in ["", "%", "-1", "+1", "101%", "1.5", "10 %", "ten", "99999999999999999999"] {
            assert_eq!(text.parse::<MaxHeld>(), Err(BadMaxHeld(text.to_owned())));
        }
    }
}
