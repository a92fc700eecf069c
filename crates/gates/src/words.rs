//! Sentences about gates. The one place that makes them: events, logs and commands all say the same.

use std::fmt;

use jiff::Timestamp;

use crate::{
    decide::{Budget, Evidence, Gate, Held, How, Left, Origin, Pass, State, Unmet, Verdict},
    node::{Status, Text},
};

/// An event on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Report {
    /// Whether something is wrong.
    pub tone: Tone,
    /// A word for searching: `ReadinessGatePassed`.
    pub reason: &'static str,
    /// The key of the taint that it is about.
    pub key: Text,
    /// A sentence.
    pub message: String,
}

/// Whether something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tone {
    /// Nothing is.
    Normal,
    /// A person should look at it.
    Warning,
}

/// What a decision reports when its patch has been made (EVT-9, EVT-10). None if it changes no taint.
pub fn change(verdict: &Verdict) -> Option<Report> {
    let Verdict { gate, state } = verdict;
    let of_rule = matches!(gate.origin, Origin::Rules(_));
    let (tone, reason) = match state {
        State::Passes(_) if of_rule => (Tone::Normal, "TaintRemoved"),
        State::Passes(Pass { how: How::Repaired, .. }) => (Tone::Warning, "ReadinessGateRepaired"),
        State::Passes(_) => (Tone::Normal, "ReadinessGatePassed"),
        State::Returns { .. } if of_rule => (Tone::Normal, "TaintAdded"),
        State::Returns { .. } => (Tone::Warning, "ReadinessGateReturned"),
        _ => return None,
    };
    Some(Report { tone, reason, key: Text::clone(&gate.key), message: sentence(verdict) })
}

/// What a decision reports without changing anything; once for as long as it is so.
pub fn notice(verdict: &Verdict) -> Option<Report> {
    let Verdict { gate, state } = verdict;
    let of_rule = matches!(gate.origin, Origin::Rules(_));
    let (tone, reason) = match state {
        State::SetByHand { .. } => (Tone::Warning, "ReadinessGateSetByHand"),
        State::Left(Left::Effect | Left::Name | Left::RuleUnknown) => (Tone::Warning, "ReadinessGateIgnored"),
        State::Refused { .. } => (Tone::Warning, "ReadinessGateMaxHeld"),
        State::Waits { unmet, .. } if unmet.iter().any(|unmet| matches!(unmet.found, Evidence::Ambiguous { .. })) => {
            (Tone::Warning, "ReadinessGateAmbiguous")
        }
        State::Waits { added: None, .. } if of_rule => (Tone::Normal, "TaintAdopted"),
        _ => return None,
    };
    let message = match reason {
        "TaintAdopted" => format!("Taint {} is now managed by {}", Shown(gate), rules(&gate.origin)),
        _ => sentence(verdict),
    };
    Some(Report { tone, reason, key: Text::clone(&gate.key), message })
}

/// What is reported when the API server does not take a patch.
pub fn refused(verdict: &Verdict, why: &str) -> Report {
    let message = format!("Taint {} not changed: the API server refuses the patch: {why}", Shown(&verdict.gate));
    Report { tone: Tone::Warning, reason: "ReadinessGatePatchRefused", key: Text::clone(&verdict.gate.key), message }
}

/// What is true of a gate, in a sentence.
pub fn sentence(verdict: &Verdict) -> String {
    let Verdict { gate, state } = verdict;
    let taint = Shown(gate);
    let by = match &gate.origin {
        Origin::Taint => String::new(),
        origin => format!(" by {}", rules(origin)),
    };
    match state {
        State::Passes(pass) => format!("Taint {taint} removed{by}: {}", ground(pass)),
        State::Completes => format!("Gate {taint} is complete{by}: its conditions hold, and the node has no taint"),
        State::Open => format!("Gate {taint} is open"),
        State::Waits { unmet, .. } => format!("Taint {taint} stays: {}", all(unmet)),
        State::Returns { unmet, budget } => {
            let new = if *budget == Budget::Free { " to a new node" } else { "" };
            format!("Taint {taint} added{new}{by}: {}", all(unmet))
        }
        State::Refused { unmet, held: Held { nodes, allowed } } => {
            let nodes = format!("{nodes} of at most {allowed}");
            format!("Taint {taint} not added{by}: {}, but {nodes} nodes are held already (--max-held)", all(unmet))
        }
        State::Counting { unmet } => {
            format!("Taint {taint} not added yet{by}: {}, and a new leader counts the held nodes first", all(unmet))
        }
        State::SetByHand { passed } => {
            format!(
                "Taint {taint} left alone: the gate passed at {passed}, so the taint was added by someone else since"
            )
        }
        State::Left(left) => format!("Taint {taint} left alone: {}", why_left(*left)),
    }
}

/// What a gate waits for.
pub fn all(unmet: &[Unmet]) -> String {
    unmet.iter().map(missing).collect::<Vec<_>>().join("; ")
}

/// A state in a word, for tables and metrics.
pub fn word(state: &State) -> &'static str {
    match state {
        State::Passes(_) => "passes",
        State::Completes => "completes",
        State::Open => "open",
        State::Waits { unmet, .. } => unmet.first().map_or("waits", |unmet| match unmet.found {
            Evidence::Absent { .. } => "condition-absent",
            Evidence::Is { status: Status::False, .. } => "condition-false",
            Evidence::Is { status: Status::Unknown, .. } => "condition-unknown",
            Evidence::Is { status: Status::True, .. } => "condition-true",
            Evidence::Stale { .. } => "condition-stale",
            Evidence::Ambiguous { .. } => "condition-ambiguous",
        }),
        State::Returns { .. } => "returns",
        State::Refused { .. } => "max-held",
        State::Counting { .. } => "counting",
        State::SetByHand { .. } => "set-by-hand",
        State::Left(Left::Effect) => "wrong-effect",
        State::Left(Left::Name) => "wrong-name",
        State::Left(Left::RulesOff) => "rules-off",
        State::Left(Left::DryRun) => "dry-run",
        State::Left(Left::Claimed) => "rule-not-enforced",
        State::Left(Left::RuleUnknown) => "rule-unknown",
        State::Left(Left::RuleMissing) => "rule-missing",
    }
}

fn missing(unmet: &Unmet) -> String {
    let Unmet { wanted, required, found } = unmet;
    let but = if *required == Status::True { String::new() } else { format!(", not {required}") };
    match found {
        Evidence::Absent { assumed: Status::Unknown } => format!("the node has no condition {wanted}"),
        Evidence::Absent { assumed } => format!("the node has no condition {wanted}, which counts as {assumed}{but}"),
        Evidence::Is { kind, status, reason, since } => {
            let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
            format!("condition {kind} is {status}{reason}{}{but}", ago(" since", *since))
        }
        Evidence::Stale { kind, status, heartbeat: Some(heartbeat) } => {
            format!("condition {kind} was last reported at {heartbeat}, as {status}: too long ago")
        }
        Evidence::Stale { kind, heartbeat: None, .. } => format!("condition {kind} has no heartbeat time"),
        Evidence::Ambiguous { kinds } => {
            format!("condition {wanted} is ambiguous, the node has {}", kinds.join(" and "))
        }
    }
}

fn ground(pass: &Pass) -> String {
    let Pass { how, since, conditions } = pass;
    let hold = match conditions.len() {
        0 => "its conditions hold".to_owned(),
        1 => format!("condition {} holds{}", conditions[0], ago(" since", *since)),
        _ => format!("conditions {} hold{}", conditions.join(", "), ago(" since", *since)),
    };
    match how {
        How::Met => hold,
        How::Released => format!("{hold} again"),
        How::Repaired => format!("{hold}, and the annotation said passed while the taint was still there"),
        How::RuleDeleted => "the rule is being deleted".to_owned(),
        How::RuleGone => "the rule that added it does not exist any more".to_owned(),
        How::NotSelected => "the rule that added it does not select the node any more".to_owned(),
    }
}

fn why_left(left: Left) -> &'static str {
    match left {
        Left::Effect => "a gate has the effect NoSchedule",
        Left::Name => "its key has no valid name after the prefix",
        Left::RulesOff => "it was added for a rule, and rules are switched off",
        Left::DryRun => "it was added for a rule that is not enforced now",
        Left::Claimed => "it is the taint of a rule that is only tried, or cannot be enforced",
        Left::RuleUnknown => {
            "a record says that it was added for a rule, which was not seen to select this node: a person removes it, by \
             keelet gates repair"
        }
        Left::RuleMissing => {
            "it was added for a rule that is not listed any more, and the API server has not confirmed that the rule is gone"
        }
    }
}

fn rules(origin: &Origin) -> String {
    let Origin::Rules(rules) = origin else { return String::new() };
    let names: Vec<_> = rules.iter().map(|rule| &*rule.name).collect();
    format!("{} {}", if names.len() == 1 { "rule" } else { "rules" }, names.join(", "))
}

fn ago(word: &str, since: Option<Timestamp>) -> String {
    since.map(|since| format!("{word} {since}")).unwrap_or_default()
}

/// A taint as people write it: `key:effect`.
struct Shown<'a>(&'a Gate);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.key, self.0.effect)
    }
}

// === impl Gate ===

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown(self).fmt(f)
    }
}

// === impl Tone ===

impl Tone {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}
