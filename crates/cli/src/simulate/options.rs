//! The values of the options, as they are written. Whether the pod has such containers is not known here.

use std::{fmt, str::FromStr, time::Duration};

use keelet_pod::{
    ProbeKind,
    duration::{self, InvalidDuration},
};

/// `--exit main=88@10s*3`: how instances of a container exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) container: String,
    pub(crate) code: u8,
    /// Counted from the container's start.
    pub(crate) after: Duration,
    pub(crate) instances: Instances,
}

/// How many instances exit so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instances {
    /// The next ones.
    Next(u32),
    /// All that are left.
    Every,
}

/// `--slow-start 45s` or `--slow-start main=45s`: probes fail for so long after each start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlowStart {
    pub(crate) container: Option<String>,
    pub(crate) takes: Duration,
}

/// `--probe-fails main/liveness@30s+20s`: a probe of some containers goes wrong for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeTrouble {
    pub(crate) container: Option<String>,
    pub(crate) probe: ProbeKind,
    pub(crate) when: While,
}

/// `@30s` or `@30s+20s`, counted from the beginning of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct While {
    pub(crate) from: Duration,
    /// How long; to the end, or as long as is usual, if the option does not say.
    pub(crate) lasts: Option<Duration>,
}

/// The largest number of instances: more than a day of the shortest backoff.
const MOST_INSTANCES: u32 = 10_000;

/// Why the value of an option cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OptionError {
    #[error("expected CONTAINER=CODE@DURATION, such as main=1@10s")]
    ExitForm,
    #[error("invalid number of instances {0:?}: expected 1 to {MOST_INSTANCES}, or * alone for all")]
    Instances(String),
    #[error("invalid exit code {0:?}: expected 0 to 255")]
    ExitCode(String),
    #[error("expected DURATION or CONTAINER=DURATION, such as main=45s")]
    SlowStartForm,
    #[error("expected [CONTAINER/]PROBE@DURATION[+DURATION], such as main/liveness@30s+20s")]
    ProbeForm,
    #[error("unknown probe {0:?}: expected startup, readiness or liveness")]
    Probe(String),
    #[error(transparent)]
    Duration(#[from] InvalidDuration),
}

// === impl Exit ===

impl FromStr for Exit {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let (container, rest) =
            text.split_once('=').filter(|(container, _)| !container.is_empty()).ok_or(OptionError::ExitForm)?;
        let (rest, instances) = match rest.split_once('*') {
            None => (rest, Instances::Next(1)),
            Some((rest, "")) => (rest, Instances::Every),
            Some((rest, times)) => match times.parse() {
                Ok(times @ 1..=MOST_INSTANCES) => (rest, Instances::Next(times)),
                _ => return Err(OptionError::Instances(times.to_owned())),
            },
        };
        let (code, after) = match rest.split_once('@') {
            None => (rest, Duration::ZERO),
            Some((code, after)) => (code, duration::parse_day(after)?),
        };
        let code = code.parse().map_err(|_| OptionError::ExitCode(code.to_owned()))?;
        Ok(Self { container: container.to_owned(), code, after, instances })
    }
}

// === impl SlowStart ===

impl FromStr for SlowStart {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let (container, takes) = match text.split_once('=') {
            None => (None, text),
            Some(("", _)) => return Err(OptionError::SlowStartForm),
            Some((container, takes)) => (Some(container.to_owned()), takes),
        };
        Ok(Self { container, takes: duration::parse_day(takes)? })
    }
}

// === impl ProbeTrouble ===

impl FromStr for ProbeTrouble {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let (which, when) = text.split_once('@').ok_or(OptionError::ProbeForm)?;
        let (container, probe) = match which.split_once('/') {
            None => (None, which),
            Some(("", _)) => return Err(OptionError::ProbeForm),
            Some((container, probe)) => (Some(container.to_owned()), probe),
        };
        let named = ProbeKind::ALL.into_iter().find(|kind| kind.as_str() == probe);
        let probe = named.ok_or_else(|| OptionError::Probe(probe.to_owned()))?;
        Ok(Self { container, probe, when: when.parse()? })
    }
}

// === impl While ===

impl FromStr for While {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let text = text.strip_prefix('@').unwrap_or(text);
        match text.split_once('+') {
            None => Ok(Self { from: duration::parse_day(text)?, lasts: None }),
            Some((from, lasts)) => {
                Ok(Self { from: duration::parse_day(from)?, lasts: Some(duration::parse_day(lasts)?) })
            }
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let which = match self.instances {
            Instances::Next(1) => "once".to_owned(),
            Instances::Next(times) => format!("{times} times"),
            Instances::Every => "after every start".to_owned(),
        };
        let when = match self.after {
            Duration::ZERO => "at once".to_owned(),
            after => format!("{} after its start", duration::words(after)),
        };
        write!(f, "exits with code {}, {when}, {which}", self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn exits_have_a_container_a_code_a_time_and_instances() {
        let exit = |code, after, instances| Ok(Exit { container: "main".to_owned(), code, after, instances });
        assert_eq!("main=88@10s".parse(), exit(88, secs(10), Instances::Next(1)));
        assert_eq!("main=0".parse(), exit(0, secs(0), Instances::Next(1)));
        assert_eq!("main=1@5s*3".parse(), exit(1, secs(5), Instances::Next(3)));
        assert_eq!("main=1@5s*".parse(), exit(1, secs(5), Instances::Every));
        for (text, part) in [
            ("main", "expected CONTAINER=CODE@DURATION"),
            ("=1@5s", "expected CONTAINER=CODE@DURATION"),
            ("main=256", r#"invalid exit code "256": expected 0 to 255"#),
            ("main=-1@5s", "invalid exit code"),
            ("main=1@5", r#"invalid duration "5""#),
            ("main=1@5s*0", r#"invalid number of instances "0""#),
            ("main=1@5s*many", r#"invalid number of instances "many""#),
        ] {
            let error = text.parse::<Exit>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn slow_starts_are_of_one_container_or_of_all() {
        assert_eq!("45s".parse(), Ok(SlowStart { container: None, takes: secs(45) }));
        assert_eq!("a=1m".parse(), Ok(SlowStart { container: Some("a".to_owned()), takes: secs(60) }));
        assert!(
            "=1m".parse::<SlowStart>().unwrap_err().to_string().contains("expected DURATION or CONTAINER=DURATION")
        );
        assert!("a=soon".parse::<SlowStart>().unwrap_err().to_string().contains(r#"invalid duration "soon""#));
    }

    #[test]
    fn probes_go_wrong_for_a_while_or_for_good() {
        let when = |from, lasts: Option<u64>| While { from: secs(from), lasts: lasts.map(secs) };
        let parsed = |container: Option<&str>, probe, when| {
            Ok(ProbeTrouble { container: container.map(str::to_owned), probe, when })
        };
        assert_eq!("readiness@30s+20s".parse(), parsed(None, ProbeKind::Readiness, when(30, Some(20))));
        assert_eq!("main/liveness@1m".parse(), parsed(Some("main"), ProbeKind::Liveness, when(60, None)));
        for (text, part) in [
            ("readiness", "expected [CONTAINER/]PROBE@DURATION"),
            ("/readiness@1s", "expected [CONTAINER/]PROBE@DURATION"),
            ("ready@1s", r#"unknown probe "ready": expected startup, readiness or liveness"#),
            ("readiness@1s+", r#"invalid duration """#),
        ] {
            let error = text.parse::<ProbeTrouble>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!("@60s+90s".parse(), Ok(when(60, Some(90))));
        assert_eq!("60s".parse(), Ok(when(60, None)));
    }
}
