//! What happens to a pod: what the options ask for, fitted to the containers and probes that it has.

use std::{collections::BTreeMap, time::Duration};

use keelet_explain::simulation::{Absence, Cause};
use keelet_pod::{
    Container, Handler, Pod, ProbeKind, Role,
    duration::{compact, words},
};

use super::options::{Exit, Instances, ProbeTrouble, SlowStart, While};

/// Everything the options ask for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requested {
    pub(crate) exits: Vec<Exit>,
    pub(crate) slow_starts: Vec<SlowStart>,
    pub(crate) failing: Vec<ProbeTrouble>,
    pub(crate) hanging: Vec<ProbeTrouble>,
    pub(crate) agent_restarts: Vec<While>,
    pub(crate) reboots: Vec<While>,
    pub(crate) pull: Option<Duration>,
    pub(crate) span: Option<Duration>,
}

/// What happens to a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scenario {
    /// By container, in the order in which instances use them up.
    pub(crate) exits: BTreeMap<String, Vec<Exit>>,
    /// By container: how long its probes fail after each start.
    pub(crate) slow: BTreeMap<String, Duration>,
    /// Probes that go wrong, in the order of the options.
    pub(crate) troubles: Vec<Trouble>,
    /// Times without an agent, in order and apart from each other.
    pub(crate) absences: Vec<Absence>,
    /// How long images take to be pulled; they are there already if no option sets it.
    pub(crate) pull: Option<Duration>,
    /// How long it is watched.
    pub(crate) span: Duration,
}

/// Probes of a container that go wrong for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) container: String,
    /// The one that was asked for, and those that ask the same.
    pub(crate) probes: Vec<ProbeKind>,
    pub(crate) how: Wrong,
    pub(crate) from: Duration,
    /// To the end if there is none.
    pub(crate) to: Option<Duration>,
}

/// How a probe goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// It gets a bad answer.
    Fails,
    /// It gets no answer.
    Hangs,
}

/// Options that cannot all be true.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ScenarioError {
    #[error("{option}: {problem}")]
    Option { option: String, problem: Unfit },
    #[error(
        "{option} @{}: the agent is already down then, because of {other} @{}, until {}",
        compact(*from), compact(*other_from), words(*until)
    )]
    Overlap { option: &'static str, from: Duration, other: &'static str, other_from: Duration, until: Duration },
    #[error("{option} {what}@{}: the simulation is over after {}; see --for", compact(*from), words(*span))]
    AfterEnd { option: &'static str, what: &'static str, from: Duration, span: Duration },
    #[error("--for: invalid duration: must be greater than zero")]
    NoTime,
}

/// Why an option does not fit the pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    #[error("container {name:?} not found in the pod; containers: {}", containers.join(", "))]
    NoContainer { name: String, containers: Vec<String> },
    #[error("an --exit before it applies to all instances already")]
    AfterEvery,
    #[error("container {0:?} has no probes, so nothing could notice a slow start")]
    ContainerWithoutProbes(String),
    #[error("the pod has no probes, so nothing could notice a slow start")]
    PodWithoutProbes,
    #[error("container {container:?} has no {kind} probe; it has {}", listed(has))]
    ContainerWithoutProbe { container: String, kind: ProbeKind, has: Vec<ProbeKind> },
    #[error("no container of the pod has a {0} probe")]
    PodWithoutProbe(ProbeKind),
}

/// An init container is done after this long, unless an option says otherwise.
pub(crate) const INIT_TAKES: Duration = Duration::from_secs(1);

/// A service manager has a killed agent back after this long.
const AGENT_BACK_AFTER: Duration = Duration::from_secs(1);

/// A node is back after this long.
const NODE_BACK_AFTER: Duration = Duration::from_secs(20);

// === impl Scenario ===

impl Scenario {
    /// Fits the options to a pod, or says which of them cannot come true.
    pub(crate) fn new(pod: &Pod, requested: &Requested) -> Result<Self, ScenarioError> {
        let mut scenario = Self { pull: requested.pull, ..Self::default() };
        for exit in &requested.exits {
            let option = || format!("--exit {}=...", exit.container);
            container(pod, &exit.container).map_err(|problem| ScenarioError::Option { option: option(), problem })?;
            let exits = scenario.exits.entry(exit.container.clone()).or_default();
            if exits.iter().any(|earlier| earlier.instances == Instances::Every) {
                return Err(ScenarioError::Option { option: option(), problem: Unfit::AfterEvery });
            }
            exits.push(exit.clone());
        }
        for slow in &requested.slow_starts {
            let option = "--slow-start".to_owned();
            scenario.slow_start(pod, slow).map_err(|problem| ScenarioError::Option { option, problem })?;
        }
        for (how, troubles) in [(Wrong::Fails, &requested.failing), (Wrong::Hangs, &requested.hanging)] {
            for trouble in troubles {
                let option = how.option().to_owned();
                scenario.trouble(pod, trouble, how).map_err(|problem| ScenarioError::Option { option, problem })?;
            }
        }
        let absence =
            |cause, usual| move |when: &While| Absence { from: when.from, lasts: when.lasts.unwrap_or(usual), cause };
        scenario.absences.extend(requested.agent_restarts.iter().map(absence(Cause::Killed, AGENT_BACK_AFTER)));
        scenario.absences.extend(requested.reboots.iter().map(absence(Cause::Reboot, NODE_BACK_AFTER)));
        scenario.absences.sort_by_key(|absence| absence.from);
        scenario.check_absences()?;
        scenario.span = requested.span.unwrap_or_else(|| super::horizon::of(pod, &scenario));
        scenario.check_end()?;
        Ok(scenario)
    }

    fn slow_start(&mut self, pod: &Pod, asked: &SlowStart) -> Result<(), Unfit> {
        let has_probes = |container: &&Container| ProbeKind::ALL.iter().any(|kind| container.probe(*kind).is_some());
        let slow: Vec<&Container> = match &asked.container {
            Some(name) => vec![container(pod, name)?],
            None => pod.all_containers().collect(),
        };
        let slow: Vec<&Container> = slow.into_iter().filter(has_probes).collect();
        if slow.is_empty() {
            return Err(match &asked.container {
                Some(container) => Unfit::ContainerWithoutProbes(container.clone()),
                None => Unfit::PodWithoutProbes,
            });
        }
        for container in slow {
            // One by name outdoes one for all, whatever their order.
            if asked.container.is_some() || !self.slow.contains_key(&container.name) {
                self.slow.insert(container.name.clone(), asked.takes);
            }
        }
        Ok(())
    }

    fn trouble(&mut self, pod: &Pod, asked: &ProbeTrouble, how: Wrong) -> Result<(), Unfit> {
        let kind = asked.probe;
        let probed: Vec<&Container> = match &asked.container {
            None => pod.all_containers().filter(|container| container.probe(kind).is_some()).collect(),
            Some(name) => Some(container(pod, name)?).into_iter().filter(|found| found.probe(kind).is_some()).collect(),
        };
        if probed.is_empty() {
            return Err(no_probe(pod, asked));
        }
        for container in probed {
            let probes =
                ProbeKind::ALL.into_iter().filter(|other| *other == kind || ask_alike(container, kind, *other));
            self.troubles.push(Trouble {
                container: container.name.clone(),
                probes: probes.collect(),
                how,
                from: asked.when.from,
                to: asked.when.lasts.map(|lasts| asked.when.from + lasts),
            });
        }
        Ok(())
    }

    fn check_absences(&self) -> Result<(), ScenarioError> {
        for pair in self.absences.windows(2) {
            let [before, next] = pair else { continue };
            if next.from <= before.from + before.lasts {
                return Err(ScenarioError::Overlap {
                    option: option(next.cause),
                    from: next.from,
                    other: option(before.cause),
                    other_from: before.from,
                    until: before.from + before.lasts,
                });
            }
        }
        Ok(())
    }

    fn check_end(&self) -> Result<(), ScenarioError> {
        let absences = self.absences.iter().map(|absence| (option(absence.cause), "", absence.from));
        let troubles = self.troubles.iter().map(|trouble| (trouble.how.option(), "...", trouble.from));
        match absences.chain(troubles).find(|(_, _, from)| *from >= self.span) {
            Some((option, what, from)) => Err(ScenarioError::AfterEnd { option, what, from, span: self.span }),
            None if self.span.is_zero() => Err(ScenarioError::NoTime),
            None => Ok(()),
        }
    }

    /// What happens, one sentence for each thing.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let mut told = Vec::new();
        if let Some(pull) = self.pull {
            told.push(format!("images take {} to be pulled", words(pull)));
        }
        for (container, takes) in &self.slow {
            told.push(format!("{container}: probes fail for {} after each start", words(*takes)));
        }
        for (container, exits) in &self.exits {
            told.extend(exits.iter().map(|exit| format!("{container}: {exit}")));
        }
        for trouble in &self.troubles {
            let until = trouble.to.map_or("to the end".to_owned(), |to| format!("until {}", words(to)));
            let names: Vec<&str> = trouble.probes.iter().map(|probe| probe.as_str()).collect();
            let alike = if names.len() > 1 { ", which ask the same," } else { "" };
            let verb = match (trouble.how, names.len()) {
                (Wrong::Fails, 1) => "fails",
                (Wrong::Fails, _) => "fail",
                (Wrong::Hangs, 1) => "hangs",
                (Wrong::Hangs, _) => "hang",
            };
            let from = words(trouble.from);
            told.push(format!("{}: {}{alike} {verb} from {from} {until}", trouble.container, names.join(" and ")));
        }
        for absence in &self.absences {
            let what = match absence.cause {
                Cause::Killed => "the agent is killed",
                Cause::Reboot => "the node loses power",
            };
            told.push(format!("{what} at {}, back after {}", words(absence.from), words(absence.lasts)));
        }
        told
    }
}

/// A container of the pod, or which ones it has.
fn container<'p>(pod: &'p Pod, name: &str) -> Result<&'p Container, Unfit> {
    pod.container(name).ok_or_else(|| Unfit::NoContainer {
        name: name.to_owned(),
        containers: pod.all_containers().map(|container| container.name.clone()).collect(),
    })
}

fn no_probe(pod: &Pod, asked: &ProbeTrouble) -> Unfit {
    let kind = asked.probe;
    let Some(name) = &asked.container else { return Unfit::PodWithoutProbe(kind) };
    let probes =
        |container: &Container| ProbeKind::ALL.into_iter().filter(|kind| container.probe(*kind).is_some()).collect();
    let has = pod.container(name).map(probes).unwrap_or_default();
    Unfit::ContainerWithoutProbe { container: name.clone(), kind, has }
}

fn listed(probes: &[ProbeKind]) -> String {
    match probes {
        [] => "no probes".to_owned(),
        probes => probes.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(" and "),
    }
}

/// Whether two probes of a container ask the same thing, so that one cannot fail without the other.
fn ask_alike(container: &Container, one: ProbeKind, other: ProbeKind) -> bool {
    let (Some(one), Some(other)) = (container.probe(one), container.probe(other)) else { return false };
    match (&one.handler, &other.handler) {
        (Handler::Exec { command: one }, Handler::Exec { command: other }) => one == other,
        (Handler::HttpGet(one), Handler::HttpGet(other)) => {
            container.resolve_port(&one.port) == container.resolve_port(&other.port) && one.path == other.path
        }
        (Handler::TcpSocket(one), Handler::TcpSocket(other)) => {
            container.resolve_port(&one.port) == container.resolve_port(&other.port)
        }
        (Handler::Grpc(one), Handler::Grpc(other)) => one.port == other.port,
        _ => false,
    }
}

/// How long an init container takes in its first instance.
pub(crate) fn init_takes(container: &Container, scenario: &Scenario) -> Duration {
    debug_assert!(container.role == Role::Init);
    scenario.exits.get(&container.name).and_then(|exits| exits.first()).map_or(INIT_TAKES, |exit| exit.after)
}

/// The option that asks for it.
fn option(cause: Cause) -> &'static str {
    match cause {
        Cause::Killed => "--agent-restart",
        Cause::Reboot => "--reboot",
    }
}

// === impl Wrong ===

impl Wrong {
    fn option(self) -> &'static str {
        match self {
            Self::Fails => "--probe-fails",
            Self::Hangs => "--probe-hangs",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        let manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  \
                        - name: main\n    image: app\n    ports: [{name: http, containerPort: 80}]\n    \
                        readinessProbe: {httpGet: {path: /up, port: http}}\n    \
                        livenessProbe: {httpGet: {path: /up, port: 80}, periodSeconds: 5}\n  \
                        - {name: side, image: app}\n";
        keelet_pod::parse_one(manifest).unwrap_or_else(|report| panic!("{report:#?}"))
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn options_that_do_not_fit_the_pod_are_errors() {
        let usual = Requested::default;
        let cases = [
            (
                Requested { exits: vec!["man=1@5s".parse().unwrap()], ..usual() },
                r#"--exit man=...: container "man" not found in the pod; containers: main, side"#,
            ),
            (
                Requested { exits: vec!["side=1*".parse().unwrap(), "side=2".parse().unwrap()], ..usual() },
                "--exit side=...: an --exit before it applies to all instances already",
            ),
            (
                Requested { slow_starts: vec!["side=5s".parse().unwrap()], ..usual() },
                r#"--slow-start: container "side" has no probes, so nothing could notice a slow start"#,
            ),
            (
                Requested { slow_starts: vec!["x=5s".parse().unwrap()], ..usual() },
                r#"--slow-start: container "x" not found in the pod; containers: main, side"#,
            ),
            (
                Requested { failing: vec!["startup@5s".parse().unwrap()], ..usual() },
                "--probe-fails: no container of the pod has a startup probe",
            ),
            (
                Requested { hanging: vec!["main/startup@5s".parse().unwrap()], ..usual() },
                r#"--probe-hangs: container "main" has no startup probe; it has readiness and liveness"#,
            ),
            (
                Requested { failing: vec!["side/liveness@5s".parse().unwrap()], ..usual() },
                r#"--probe-fails: container "side" has no liveness probe; it has no probes"#,
            ),
            (
                Requested {
                    agent_restarts: vec!["@10s+1m".parse().unwrap()],
                    reboots: vec!["@70s".parse().unwrap()],
                    ..usual()
                },
                "--reboot @1m10s: the agent is already down then, because of --agent-restart @10s, until 1 min 10 s",
            ),
            (
                Requested { agent_restarts: vec!["@10s".parse().unwrap()], span: Some(secs(10)), ..usual() },
                "--agent-restart @10s: the simulation is over after 10 s; see --for",
            ),
            (Requested { span: Some(secs(0)), ..usual() }, "--for: invalid duration: must be greater than zero"),
        ];
        for (requested, expected) in cases {
            assert_eq!(Scenario::new(&pod(), &requested).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_slow_start_by_name_outdoes_one_for_all() {
        for order in [["main=5s", "9s"], ["9s", "main=5s"]] {
            let slow_starts = order.map(|text| text.parse().unwrap()).to_vec();
            let scenario = Scenario::new(&pod(), &Requested { slow_starts, ..Requested::default() }).unwrap();
            assert_eq!(scenario.slow, BTreeMap::from([("main".to_owned(), secs(5))]), "{order:?}");
        }
    }

    #[test]
    fn probes_that_ask_the_same_go_wrong_together() {
        let requested = Requested { failing: vec!["liveness@5s+10s".parse().unwrap()], ..Requested::default() };
        let scenario = Scenario::new(&pod(), &requested).unwrap();
        assert_eq!(scenario.troubles[0].probes, [ProbeKind::Readiness, ProbeKind::Liveness]);
        let expected = "main: readiness and liveness, which ask the same, fail from 5 s until 15 s";
        assert_eq!(scenario.sentences(), [expected]);
    }

    #[test]
    fn it_is_watched_until_everything_asked_for_is_seen() {
        let span = |requested: Requested| Scenario::new(&pod(), &requested).unwrap().span;
        assert_eq!(span(Requested::default()), secs(30));
        assert!(
            span(Requested { exits: vec!["side=1@1m*3".parse().unwrap()], ..Requested::default() }) > secs(180 + 30)
        );
        assert!(
            span(Requested { failing: vec!["liveness@2m+1m".parse().unwrap()], ..Requested::default() }) > secs(180)
        );
        assert!(span(Requested { reboots: vec!["@5m+1m".parse().unwrap()], ..Requested::default() }) > secs(360));
        assert!(span(Requested { slow_starts: vec!["40s".parse().unwrap()], ..Requested::default() }) > secs(60));
    }
}
