//! How long a pod has to be watched to see what was asked for, where no option sets it.

use std::time::Duration;

use keelet_explain::simulation::{Cause, Fit, Outlook, outlooks};
use keelet_pod::{Container, Pod, Probe, Role, duration::DAY};

use super::{
    options::{Exit, Instances},
    scenario::{Scenario, init_takes},
};

/// Of instances that all end alike, so many are shown.
const INSTANCES_SHOWN: u32 = 4;

/// The first backoff; the delays double up to the longest.
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const LONGEST_BACKOFF: Duration = Duration::from_secs(300);

/// Long enough for everything that was asked for and what follows from it, with a margin, rounded up.
pub(super) fn of(pod: &Pod, scenario: &Scenario) -> Duration {
    let outlooks = outlooks(pod);
    let up = time_to_ready(pod, scenario);
    let reaction = |name: &str| {
        let found = outlooks.iter().find(|outlook| outlook.container == name);
        found.map_or(Duration::ZERO, reaction)
    };
    let exits = scenario.exits.values().map(|exits| up + instances(exits) + up);
    let slow = scenario.slow.iter().map(|(name, takes)| up + killed_starts(&outlooks, name, *takes));
    let troubles = scenario.troubles.iter().map(|trouble| {
        // A probe that goes wrong for good is followed through two kills, one that recovers until it is ready again.
        let follows = reaction(&trouble.container);
        trouble.to.map_or(trouble.from + follows * 2 + FIRST_BACKOFF, |to| to + follows) + up
    });
    let absences = scenario.absences.iter().map(|absence| {
        let follows = if absence.cause == Cause::Reboot { up } else { Duration::from_secs(20) };
        absence.from + absence.lasts + follows
    });
    let needed = exits.chain(slow).chain(troubles).chain(absences).chain([up]).max().unwrap_or(up);
    rounded(needed + needed / 10 + Duration::from_secs(10))
}

fn time_to_ready(pod: &Pod, scenario: &Scenario) -> Duration {
    let pull = scenario.pull.unwrap_or_default();
    let first_success = |probe: &Option<Probe>| {
        probe.as_ref().map_or(Duration::ZERO, |probe| probe.initial_delay + probe.period * probe.success_threshold)
    };
    let slow = |container: &Container| scenario.slow.get(&container.name).copied().unwrap_or_default();
    let ready = |container: &Container| {
        slow(container) + first_success(&container.startup) + first_success(&container.readiness)
    };
    let init = pod.init_containers.iter().map(|container| match container.role {
        Role::Init => init_takes(container, scenario),
        Role::Sidecar | Role::Regular | Role::Ephemeral => slow(container) + first_success(&container.startup),
    });
    let images = u32::try_from(pod.all_containers().count()).unwrap_or(u32::MAX);
    let regular = pod.containers.iter().map(ready).max().unwrap_or_default();
    pull.saturating_mul(images) + init.sum::<Duration>() + regular
}

/// Until the last of its probes has noticed a hang and the container is stopped.
fn reaction(outlook: &Outlook) -> Duration {
    let found = [&outlook.liveness, &outlook.readiness].into_iter().flatten();
    found.map(|detection| detection.hang + detection.stop.unwrap_or_default()).max().unwrap_or_default()
}

/// How long instances that end one after another take, with the backoffs between them.
fn instances(exits: &[Exit]) -> Duration {
    let (mut total, mut ended) = (Duration::ZERO, 0);
    for exit in exits {
        let times = match exit.instances {
            Instances::Next(times) => times,
            Instances::Every => INSTANCES_SHOWN,
        };
        for _ in 0..times {
            total += exit.after + backoff(ended);
            ended += 1;
            if total > DAY {
                return DAY;
            }
        }
    }
    total
}

/// The delay after so many ends before; the first restart is immediate.
fn backoff(before: u32) -> Duration {
    match before {
        0 => Duration::ZERO,
        _ => FIRST_BACKOFF.saturating_mul(1 << (before - 1).min(5)).min(LONGEST_BACKOFF),
    }
}

/// Two starts that are killed, if they take too long.
fn killed_starts(outlooks: &[Outlook], name: &str, takes: Duration) -> Duration {
    let budget = outlooks.iter().find(|outlook| outlook.container == name).and_then(|outlook| outlook.start.as_ref());
    match budget.map(|budget| (budget.judge(takes), budget.longest)) {
        Some((Fit::Killed { .. }, longest)) => longest * 2 + FIRST_BACKOFF,
        Some((Fit::Fits, _)) | None => Duration::ZERO,
    }
}

fn rounded(span: Duration) -> Duration {
    let step = match span.as_secs() {
        0..120 => 10,
        120..600 => 30,
        _ => 60,
    };
    Duration::from_secs(span.as_secs().div_ceil(step) * step).clamp(Duration::from_secs(30), DAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoffs_double_from_the_second_end_on() {
        let seconds: Vec<u64> = (0..8).map(|before| backoff(before).as_secs()).collect();
        assert_eq!(seconds, [0, 10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn spans_are_round() {
        for (seconds, expected) in
            [(0, 30), (31, 40), (119, 120), (121, 150), (599, 600), (601, 660), (100_000, 86_400)]
        {
            assert_eq!(rounded(Duration::from_secs(seconds)).as_secs(), expected);
        }
    }
}
