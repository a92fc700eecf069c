//! The one source of chance: everything that is not decided by a script is drawn from here, so a seed replays a run.

use std::{ops::Range, time::Duration};

/// SplitMix64: small, fast, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// One in this many.
const PER_MILLE: u64 = 1000;

// === impl Random ===

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A source of its own, so that draws there do not shift the draws here.
    pub fn fork(&mut self) -> Self {
        Self::new(self.draw())
    }

    /// A number in that range; its start if the range is empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        let width = range.end.saturating_sub(range.start);
        if width == 0 { range.start } else { range.start + self.draw() % width }
    }

    /// True in so many of a thousand cases.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        self.draw() % PER_MILLE < u64::from(per_mille)
    }

    /// One of these. The list must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let index = usize::try_from(self.within(0..choices.len() as u64)).unwrap_or(0);
        &choices[index]
    }

    /// A duration of whole milliseconds up to, and without, `most`.
    pub fn millis(&mut self, most: Duration) -> Duration {
        Duration::from_millis(self.within(0..u64::try_from(most.as_millis()).unwrap_or(u64::MAX)))
    }
}
