//! Where the times of the axis stand.

use keelet_lifecycle::Wall;

/// Steps that people count in, in milliseconds.
const STEPS: [i64; 21] = [
    100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000,
    3_600_000, 7_200_000, 10_800_000, 21_600_000, 43_200_000, 86_400_000,
];

/// The times to name between two, at most so many.
pub(super) fn times(from: Wall, to: Wall, most: usize) -> Vec<Wall> {
    let (from, to) = (from.as_millis(), to.as_millis());
    let most = i64::try_from(most).unwrap_or(i64::MAX).max(1);
    let fits = |step: &&i64| (to - from) / **step < most;
    let day = STEPS[STEPS.len() - 1];
    let step = STEPS.iter().find(fits).copied().unwrap_or_else(|| ((to - from) / most / day + 1) * day);
    let first = from.div_euclid(step) * step;
    let all = (0..=most + 1).map(|n| first + n * step);
    all.filter(|at| (from..=to).contains(at)).map(Wall::from_millis).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Times;

    fn at(ms: i64) -> Wall {
        Wall::from_millis(1_800_000_000_000 + ms)
    }

    #[test]
    fn times_are_round_and_few() {
        let labels = |from, to, most| {
            times(at(from), at(to), most).into_iter().map(|time| Times::Utc.label(time, at(from))).collect::<Vec<_>>()
        };
        assert_eq!(labels(0, 60_000, 5), ["08:00:00", "08:00:15", "08:00:30", "08:00:45", "08:01:00"]);
        assert_eq!(labels(1, 400, 3), ["08:00:00.2", "08:00:00.4"]);
        assert_eq!(labels(500, 200_000, 4), ["08:01:00", "08:02:00", "08:03:00"]);
        assert_eq!(labels(0, 5 * 86_400_000, 3), ["2027-01-16", "2027-01-18", "2027-01-20"]);
        assert_eq!(labels(0, 0, 4), ["08:00:00"]);
    }
}
