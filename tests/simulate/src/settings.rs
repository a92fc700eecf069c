//! What the environment says about what to run.

use std::{
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
};

use crate::subject::Subject;

/// How long to run if nothing is said.
const DEFAULT_SECONDS: u64 = 60;

/// What to run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) play: Play,
    /// What is run; both if not said.
    pub(crate) subject: Option<Subject>,
    /// How many threads run seeds; as many as there are cores if not said.
    pub(crate) threads: Option<usize>,
}

/// Which seeds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Play {
    /// This one.
    One(u64),
    /// Many, from this one on; from any if not said.
    Many { first: Option<u64>, limits: Limits },
}

/// When to stop; at the first limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) runs: Option<u64>,
    pub(crate) seconds: Option<u64>,
}

/// A variable of the environment with a value that it cannot have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidVariable {
    #[error("{name}={value:?}: expected a whole number above zero")]
    Number { name: &'static str, value: String },
    #[error("SIM_SUBJECT={value:?}: expected agent or controller")]
    Subject { value: String },
}

/// A number that no other call had, of so many bits.
pub(crate) fn random_bits(bits: u32) -> u64 {
    // The standard library's hash maps get new keys in every process.
    RandomState::new().build_hasher().finish() >> (u64::BITS - bits)
}

// === impl Settings ===

impl Settings {
    pub(crate) fn from_env(get: impl Fn(&str) -> Option<String>) -> Result<Self, InvalidVariable> {
        let number = |name: &'static str| {
            let Some(value) = get(name).filter(|value| !value.is_empty()) else { return Ok(None) };
            let number = value.parse().ok().filter(|number| *number > 0);
            number.map(Some).ok_or(InvalidVariable::Number { name, value })
        };
        let (runs, seconds) = (number("SIM_RUNS")?, number("SIM_SECONDS")?);
        let seconds = seconds.or(runs.is_none().then_some(DEFAULT_SECONDS));
        let first = number("SIM_FIRST")?;
        let play = match number("SIM_SEED")? {
            Some(seed) => Play::One(seed),
            None => Play::Many { first, limits: Limits { runs, seconds } },
        };
        let threads = number("SIM_THREADS")?.map(|threads| usize::try_from(threads).unwrap_or(usize::MAX));
        let subject = get("SIM_SUBJECT").filter(|value| !value.is_empty());
        let subject = subject.map(|value| {
            let named = Subject::ALL.into_iter().find(|subject| subject.name() == value);
            named.ok_or(InvalidVariable::Subject { value })
        });
        Ok(Self { play, subject: subject.transpose()?, threads })
    }
}

// === impl Limits ===

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.runs, self.seconds) {
            (Some(runs), Some(seconds)) => write!(f, "{runs} runs or {seconds} s"),
            (Some(runs), None) => write!(f, "{runs} runs"),
            (None, Some(seconds)) => write!(f, "{seconds} s"),
            (None, None) => f.write_str("without an end"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<Settings, InvalidVariable> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Settings::from_env(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    fn many(first: Option<u64>, runs: Option<u64>, seconds: Option<u64>) -> Play {
        Play::Many { first, limits: Limits { runs, seconds } }
    }

    #[test]
    fn the_environment_says_what_to_run() {
        let cases: [(&[(&str, &str)], Play); 6] = [
            (&[], many(None, None, Some(60))),
            (&[("SIM_RUNS", "5")], many(None, Some(5), None)),
            (&[("SIM_SECONDS", "7")], many(None, None, Some(7))),
            (&[("SIM_RUNS", "5"), ("SIM_SECONDS", "7")], many(None, Some(5), Some(7))),
            (&[("SIM_FIRST", "9"), ("SIM_RUNS", "")], many(Some(9), None, Some(60))),
            (&[("SIM_SEED", "3"), ("SIM_RUNS", "5")], Play::One(3)),
        ];
        for (variables, play) in cases {
            assert_eq!(settings(variables), Ok(Settings { play, subject: None, threads: None }), "{variables:?}");
        }
        assert_eq!(settings(&[("SIM_THREADS", "2")]).map(|settings| settings.threads), Ok(Some(2)));
        for (name, subject) in [("agent", Subject::Agent), ("controller", Subject::Controller)] {
            assert_eq!(settings(&[("SIM_SUBJECT", name)]).map(|settings| settings.subject), Ok(Some(subject)));
        }
    }

    #[test]
    fn a_variable_that_cannot_have_its_value_is_named() {
        let error = settings(&[("SIM_SUBJECT", "kubelet")]).unwrap_err().to_string();
        assert_eq!(error, "SIM_SUBJECT=\"kubelet\": expected agent or controller");
        for value in ["many", "-1", "0", "1.5"] {
            let error = settings(&[("SIM_RUNS", value)]).unwrap_err().to_string();
            assert_eq!(error, format!("SIM_RUNS={value:?}: expected a whole number above zero"));
        }
    }
}
