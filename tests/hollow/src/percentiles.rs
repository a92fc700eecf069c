//! How long things took.

use std::{fmt, time::Duration};

use serde_json::{Value, json};

/// Durations, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Percentiles(Vec<Duration>);

// === impl Percentiles ===

impl Percentiles {
    /// Of these durations.
    pub fn of(durations: impl IntoIterator<Item = Duration>) -> Self {
        let mut sorted: Vec<_> = durations.into_iter().collect();
        sorted.sort();
        Self(sorted)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The smallest duration that so many percent of all do not exceed; zero if there are none.
    pub fn at(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }

    /// For programs, in milliseconds.
    pub fn json(&self) -> Value {
        let at = |percent| self.at(percent).as_secs_f64() * 1e3;
        json!({ "count": self.count(), "p50_ms": at(50), "p90_ms": at(90), "p99_ms": at(99), "max_ms": at(100) })
    }
}

impl fmt::Display for Percentiles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |percent| self.at(percent).as_secs_f64() * 1e3;
        write!(out, "p50 {:.1} ms, p90 {:.1} ms, p99 {:.1} ms, max {:.1} ms", at(50), at(90), at(99), at(100))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Percentiles;

    #[test]
    fn a_percentile_is_a_duration_that_was_measured() {
        let hundred = Percentiles::of((1..=100).rev().map(Duration::from_millis));
        for percent in [1, 50, 90, 99, 100] {
            assert_eq!(hundred.at(percent), Duration::from_millis(percent as u64), "p{percent}");
        }
        let two = Percentiles::of([Duration::from_millis(7), Duration::from_millis(5)]);
        assert_eq!([two.at(50), two.at(51)], [Duration::from_millis(5), Duration::from_millis(7)]);
        assert_eq!(Percentiles::default().at(99), Duration::ZERO);
    }
}
