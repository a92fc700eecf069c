//! What the probes of a pod amount to, whatever its containers do: computed from the spec alone, exactly as the agent
//! schedules attempts while it is there (PROBE-4, START-5).
//!
//! - Attempts lie on a grid of one period. One that takes longer than that is not overtaken: the next one follows at
//!   the first point of the grid after it.
//! - The first attempt of an instance is made after the initial delay. Liveness without one leaves a period first, ten
//!   seconds at most.
//! - A verdict falls with the attempt that completes the threshold: at once if it is answered, else after its timeout.

use std::time::Duration;

use keelet_pod::{Container, Pod, Probe, ProbeKind};
use serde::{Serialize, Serializer};

/// What the probes of one container amount to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outlook {
    /// Whose.
    pub container: String,
    /// How long a start may take; nothing limits it if there is none.
    pub start: Option<Budget>,
    /// How soon liveness has a container killed that went bad.
    pub liveness: Option<Detection>,
    /// How soon readiness takes it out of traffic.
    pub readiness: Option<Detection>,
}

/// How long a start may take before a probe ends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// The probe that would: startup if there is one, else liveness.
    pub probe: ProbeKind,
    /// The failures in a row that it takes.
    pub failures: u32,
    /// The first attempt, counted from the start.
    #[serde(rename = "firstMs", serialize_with = "millis")]
    pub first: Duration,
    /// From one attempt to the next.
    #[serde(rename = "periodMs", serialize_with = "millis")]
    pub period: Duration,
    /// The last attempt that can still save it: a container that answers by then is not killed.
    #[serde(rename = "longestMs", serialize_with = "millis")]
    pub longest: Duration,
}

/// How soon a probe notices that a container went bad, at the latest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Detection {
    /// The failures in a row that it takes.
    pub failures: u32,
    /// From one attempt to the next.
    #[serde(rename = "periodMs", serialize_with = "millis")]
    pub period: Duration,
    /// How long an attempt waits for an answer.
    #[serde(rename = "timeoutMs", serialize_with = "millis")]
    pub timeout: Duration,
    /// Of a container that answers nothing any more.
    #[serde(rename = "hangMs", serialize_with = "millis")]
    pub hang: Duration,
    /// Of a container that gives bad answers at once.
    #[serde(rename = "badAnswersMs", serialize_with = "millis")]
    pub bad_answers: Duration,
    /// Of a container that hangs from its very start, where that takes longer: its first attempt is late.
    #[serde(rename = "hangFromStartMs", serialize_with = "some_millis", skip_serializing_if = "Option::is_none")]
    pub hang_from_start: Option<Duration>,
    /// Of a kill: how long the container may take to stop before it is killed the hard way.
    #[serde(rename = "stopMs", serialize_with = "some_millis", skip_serializing_if = "Option::is_none")]
    pub stop: Option<Duration>,
}

/// What becomes of a start that takes that long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It keeps running.
    Fits,
    /// It is killed; so many failures would have to be allowed.
    Killed {
        /// `failureThreshold`, at least.
        needed: u32,
    },
}

/// Liveness without an initial delay is tried no later than this after the start.
const LONGEST_HEAD_START: Duration = Duration::from_secs(10);

/// However little grace is left, a container has this long to react to SIGTERM.
const SHORTEST_STOP: Duration = Duration::from_secs(2);

/// What the probes of every container amount to, in the order of the spec. Containers without probes are left out.
pub fn outlooks(pod: &Pod) -> Vec<Outlook> {
    let has_probes = |container: &&Container| ProbeKind::ALL.iter().any(|kind| container.probe(*kind).is_some());
    pod.all_containers().filter(has_probes).map(|container| of_container(pod, container)).collect()
}

fn of_container(pod: &Pod, container: &Container) -> Outlook {
    let has_startup = container.startup.is_some();
    let stop = |probe: &Probe| {
        let grace = probe.termination_grace.unwrap_or(pod.termination_grace);
        // A hook may use up the grace period, and the signal comes after it.
        if container.pre_stop.is_some() { grace + SHORTEST_STOP } else { grace.max(SHORTEST_STOP) }
    };
    Outlook {
        container: container.name.clone(),
        start: budget(container),
        liveness: container.liveness.as_ref().map(|probe| Detection {
            stop: Some(stop(probe)),
            ..detection(probe, first(ProbeKind::Liveness, probe), has_startup)
        }),
        readiness: container
            .readiness
            .as_ref()
            .map(|probe| detection(probe, first(ProbeKind::Readiness, probe), has_startup)),
    }
}

fn budget(container: &Container) -> Option<Budget> {
    let (kind, probe) = match (&container.startup, &container.liveness) {
        (Some(startup), _) => (ProbeKind::Startup, startup),
        (None, Some(liveness)) => (ProbeKind::Liveness, liveness),
        (None, None) => return None,
    };
    let first = first(kind, probe);
    let longest = first + probe.period * (probe.failure_threshold.max(1) - 1);
    Some(Budget { probe: kind, failures: probe.failure_threshold, first, period: probe.period, longest })
}

/// When the first attempt of an instance is made, where no startup probe is in the way.
fn first(kind: ProbeKind, probe: &Probe) -> Duration {
    match kind {
        ProbeKind::Liveness if probe.initial_delay.is_zero() => probe.period.min(LONGEST_HEAD_START),
        ProbeKind::Startup | ProbeKind::Readiness | ProbeKind::Liveness => probe.initial_delay,
    }
}

fn detection(probe: &Probe, first: Duration, has_startup: bool) -> Detection {
    let more = probe.failure_threshold.max(1) - 1;
    // At worst the container goes bad right after an attempt that passed.
    let after = |gap: Duration| gap + hanging_step(probe) * more + probe.timeout;
    Detection {
        failures: probe.failure_threshold,
        period: probe.period,
        timeout: probe.timeout,
        hang: after(probe.period),
        bad_answers: probe.period * probe.failure_threshold.max(1),
        // With a startup probe that one is the first to notice.
        hang_from_start: (!has_startup && first > probe.period).then(|| after(first)),
        stop: None,
    }
}

/// From one attempt to the next, if none is answered.
fn hanging_step(probe: &Probe) -> Duration {
    let period = probe.period.as_millis().max(1);
    let periods = probe.timeout.as_millis() / period + 1;
    probe.period * u32::try_from(periods).unwrap_or(u32::MAX)
}

/// Failures that have to be allowed so that a start of that length fits.
pub(super) fn failures_needed(first: Duration, period: Duration, takes: Duration) -> u32 {
    let later = takes.saturating_sub(first).as_millis();
    u32::try_from(later.div_ceil(period.as_millis().max(1)) + 1).unwrap_or(u32::MAX)
}

// === impl Budget ===

impl Budget {
    /// What becomes of a start that takes that long.
    pub fn judge(&self, takes: Duration) -> Fit {
        match takes <= self.longest {
            true => Fit::Fits,
            false => Fit::Killed { needed: failures_needed(self.first, self.period, takes) },
        }
    }
}

fn millis<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

fn some_millis<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    millis(&span.unwrap_or_default(), serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outlook(probes: &str) -> Outlook {
        let manifest = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec:\n  terminationGracePeriodSeconds: 30\n  \
             containers:\n  - name: main\n    image: app\n{probes}"
        );
        let pod = keelet_pod::parse_one(&manifest).unwrap_or_else(|report| panic!("{report:#?}"));
        outlooks(&pod).pop().unwrap()
    }

    fn probe(kind: &str, numbers: &str) -> String {
        format!("    {kind}Probe: {{tcpSocket: {{port: 80}}, {numbers}}}\n")
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// START-5, START-11, PROBE-4.
    #[test]
    fn a_start_may_take_until_the_last_attempt_that_can_save_it() {
        let cases = [
            // The worked example of startup probes: 30 tries, ten seconds apart, the first one at once.
            ("startup", "periodSeconds: 10, failureThreshold: 30", 0, 290),
            ("startup", "periodSeconds: 10, failureThreshold: 1", 0, 0),
            ("startup", "initialDelaySeconds: 5, periodSeconds: 2, failureThreshold: 4", 5, 11),
            // Liveness leaves a period first, ten seconds at most, or its initial delay.
            ("liveness", "periodSeconds: 5, failureThreshold: 3", 5, 15),
            ("liveness", "periodSeconds: 10, failureThreshold: 1", 10, 10),
            ("liveness", "periodSeconds: 60, failureThreshold: 2", 10, 70),
            ("liveness", "initialDelaySeconds: 3, periodSeconds: 5, failureThreshold: 3", 3, 13),
        ];
        for (kind, numbers, first, longest) in cases {
            let budget = outlook(&probe(kind, numbers)).start.unwrap();
            assert_eq!(
                (budget.probe.as_str(), budget.first, budget.longest),
                (kind, secs(first), secs(longest)),
                "{numbers}"
            );
        }
    }

    /// START-1.
    #[test]
    fn startup_holds_liveness_off() {
        let both = probe("startup", "periodSeconds: 10, failureThreshold: 30")
            + &probe("liveness", "periodSeconds: 1, failureThreshold: 1");
        let budget = outlook(&both).start.unwrap();
        assert_eq!((budget.probe, budget.longest), (ProbeKind::Startup, secs(290)));
        assert_eq!(outlook(&probe("readiness", "periodSeconds: 1")).start, None);
    }

    #[test]
    fn a_slow_start_fits_or_needs_more_failures() {
        let budget = outlook(&probe("startup", "periodSeconds: 10, failureThreshold: 3")).start.unwrap();
        let cases = [
            (0, Fit::Fits),
            (20, Fit::Fits),
            (21, Fit::Killed { needed: 4 }),
            (30, Fit::Killed { needed: 4 }),
            (31, Fit::Killed { needed: 5 }),
        ];
        for (takes, expected) in cases {
            assert_eq!(budget.judge(secs(takes)), expected, "{takes}");
        }
        // What is needed is enough, and one less is not.
        for takes in 0..100 {
            let needed = failures_needed(secs(5), secs(7), secs(takes));
            let longest = |failures: u32| secs(5) + secs(7) * (failures - 1);
            assert!(longest(needed) >= secs(takes));
            assert!(needed == 1 || longest(needed - 1) < secs(takes));
        }
    }

    /// PROBE-4: by hand, from the grid of attempts.
    #[test]
    fn a_hang_is_noticed_with_the_last_timeout() {
        let cases = [
            // Right after a pass at 0: attempts at 10, 20, 30, the last one gives up at 31.
            ("periodSeconds: 10, failureThreshold: 3, timeoutSeconds: 1", 31, 30),
            ("periodSeconds: 10, failureThreshold: 1, timeoutSeconds: 1", 11, 10),
            // A timeout of 7 s on a grid of 5 s: attempts at 5, 15, 25, the last one gives up at 32.
            ("periodSeconds: 5, failureThreshold: 3, timeoutSeconds: 7", 32, 15),
            // An attempt that ends on the grid is followed by the next point: at 5 and 15, up to 20.
            ("periodSeconds: 5, failureThreshold: 2, timeoutSeconds: 5", 20, 10),
        ];
        for (numbers, hang, bad_answers) in cases {
            for kind in ["liveness", "readiness"] {
                let outlook = outlook(&probe(kind, numbers));
                let found = outlook.liveness.or(outlook.readiness).unwrap();
                assert_eq!((found.hang, found.bad_answers), (secs(hang), secs(bad_answers)), "{kind} {numbers}");
            }
        }
    }

    #[test]
    fn a_late_first_attempt_is_distinguished() {
        let late = probe("liveness", "initialDelaySeconds: 60, periodSeconds: 10, failureThreshold: 3");
        assert_eq!(outlook(&late).liveness.unwrap().hang_from_start, Some(secs(60 + 20 + 1)));
        let startup = probe("startup", "periodSeconds: 1");
        assert_eq!(outlook(&(startup + &late)).liveness.unwrap().hang_from_start, None);
        let soon = probe("liveness", "periodSeconds: 10, failureThreshold: 3");
        assert_eq!(outlook(&soon).liveness.unwrap().hang_from_start, None);
    }

    /// TERM-3.
    #[test]
    fn a_stop_takes_the_grace_period_of_the_probe_or_of_the_pod() {
        let stop = |probes: &str| outlook(probes).liveness.unwrap().stop;
        let hook = "    lifecycle: {preStop: {exec: {command: [drain]}}}\n";
        assert_eq!(stop(&probe("liveness", "periodSeconds: 1")), Some(secs(30)));
        assert_eq!(stop(&probe("liveness", "terminationGracePeriodSeconds: 5")), Some(secs(5)));
        assert_eq!(stop(&probe("liveness", "terminationGracePeriodSeconds: 1")), Some(secs(2)));
        assert_eq!(stop(&(probe("liveness", "terminationGracePeriodSeconds: 5") + hook)), Some(secs(7)));
        assert_eq!(outlook(&probe("readiness", "periodSeconds: 1")).readiness.unwrap().stop, None);
    }

    #[test]
    fn machines_get_milliseconds() {
        let found = outlook(&probe("startup", "periodSeconds: 10, failureThreshold: 30"));
        let json = serde_json::to_value(found).unwrap();
        assert_eq!(json["start"]["longestMs"], 290_000);
        assert_eq!(json["start"]["probe"], "startup");
        assert_eq!(json["liveness"], serde_json::Value::Null);
    }
}
