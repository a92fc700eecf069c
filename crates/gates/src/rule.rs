//! `NodeReadinessRule` objects of the node-readiness-controller (`readiness.node.x-k8s.io/v1alpha1`), as one more source of gates
//! (GN-8): a cluster that has them switches over without rewriting anything.
//!
//! A rule is read once, and checked: one that cannot be enforced is reported and has no effect, however the cluster admitted it.

mod selector;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Deserialize;

pub use self::selector::{BadSelector, Selector};
use crate::{
    gate,
    node::{Effect, Pairs, Status, Taint, Text, Version},
};

/// The group of rules.
pub const GROUP: &str = "readiness.node.x-k8s.io";

/// The finalizer that keeps a deleted rule until its taints are removed (PEER-17).
pub const FINALIZER: &str = "readiness.node.x-k8s.io/cleanup-taints";

/// The beginning of the key of an annotation which says that a node has passed a `bootstrap-only` rule. The UID of the rule follows, or
/// in older versions its name (PEER-11).
pub const COMPLETED: &str = "readiness.k8s.io/bootstrap-completed-";

/// All rules that there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Whether rules are looked at.
    pub source: Source,
    /// By name.
    pub list: BTreeMap<Text, Rule>,
    /// UIDs of rules that were in the list and do not exist any more: an answer of the API server confirmed it.
    pub gone: BTreeSet<Text>,
}

/// A rule that this process saw select a node, and the taint that it enforced there. Nothing but this makes a record count that says a
/// taint was added for a rule: the node can write the record itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The UID of the rule.
    pub rule: Text,
    /// The key of its taint.
    pub key: Text,
    /// The effect of its taint.
    pub effect: Effect,
}

/// Whether rules are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The list is what the API server has; empty where rules are not installed.
    #[default]
    Known,
    /// Rules are not looked at, by a flag or because they cannot be read: their taints are left alone.
    Off,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub name: Text,
    /// Its UID.
    pub uid: Text,
    /// The version of the object.
    pub version: Version,
    /// Counts changes of the specification.
    pub generation: i64,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// What it asks for, or why that cannot be done.
    pub spec: Result<Spec, RuleFault>,
    /// The taint that it is about, where it is not enforced and that much can be read.
    claim: Option<Claim>,
}

/// A taint that a rule is about which is not enforced.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    key: Text,
    effect: Effect,
    /// The nodes that it is about; all of them where that cannot be read.
    selector: Option<Selector>,
}

/// What a rule asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The nodes it is about.
    pub selector: Selector,
    /// The conditions it needs, 1 to 32.
    pub conditions: Vec<Requirement>,
    /// Whether it needs all of them or one.
    pub policy: Policy,
    /// Whether a node is left alone once it has passed.
    pub mode: Mode,
    /// The key of its taint.
    pub key: Text,
    /// The effect of its taint.
    pub effect: Effect,
    /// The value of its taint.
    pub value: Text,
    /// Whether it is evaluated only.
    pub dry_run: bool,
}

/// A condition that a rule needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The type of the condition, exactly.
    pub kind: Text,
    /// The status that it has to have.
    pub required: Status,
    /// The status to assume where the node has no such condition.
    pub default: Status,
}

/// How many of its conditions a rule needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Every one.
    AllOf,
    /// One of them.
    AnyOf,
}

/// How long a rule looks at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Until the conditions have been met once.
    BootstrapOnly,
    /// Always.
    Continuous,
}

/// Why a rule has no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    /// It does not have the shape of a rule.
    #[error("cannot be read: {0}")]
    Shape(String),
    /// Its selector cannot be used.
    #[error(transparent)]
    Selector(#[from] BadSelector),
    /// It has no conditions, or too many.
    #[error("expected 1 to 32 conditions, found {0}")]
    Conditions(usize),
    /// A type of a condition that cannot be.
    #[error("invalid condition type {0:?}: expected 1 to 316 characters, each type once")]
    ConditionType(String),
    /// A word that its field does not know.
    #[error("{field} has the unknown value {value:?}")]
    Word {
        /// The field.
        field: &'static str,
        /// What is in it.
        value: String,
    },
    /// `anyOf` or a default status together with `bootstrap-only`.
    #[error("{0} cannot be combined with bootstrap-only")]
    WithBootstrap(&'static str),
    /// A taint that rules cannot have.
    #[error("invalid taint key {0:?}: expected readiness.k8s.io/ and a name")]
    TaintKey(String),
    /// A taint effect that does not exist.
    #[error("invalid taint effect {0:?}")]
    TaintEffect(String),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRule {
    metadata: RawMeta,
    #[serde(default)]
    spec: serde_json::Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawMeta {
    name: String,
    uid: String,
    resource_version: String,
    generation: i64,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Timestamp>,
    finalizers: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSpec {
    conditions: Vec<RawRequirement>,
    enforcement_mode: String,
    taint: RawTaint,
    node_selector: selector::RawSelector,
    #[serde(default)]
    condition_policy: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRequirement {
    #[serde(rename = "type")]
    kind: String,
    required_status: String,
    default_status: Option<String>,
}

#[derive(Debug, Deserialize)]
struct RawTaint {
    key: String,
    effect: String,
    #[serde(default)]
    value: String,
}

// === impl Rules ===

impl Rules {
    /// Rules, by their names.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        let list = rules.into_iter().map(|rule| (Text::clone(&rule.name), rule)).collect();
        Self { source: Source::Known, list, gone: BTreeSet::new() }
    }

    /// Rules are not looked at.
    pub fn off() -> Self {
        Self { source: Source::Off, ..Self::default() }
    }

    /// The labels that selectors look at.
    pub fn labels(&self) -> BTreeSet<String> {
        let claims = self.list.values().filter_map(|rule| rule.claim.as_ref()?.selector.as_ref());
        let selectors = self.specs().map(|(_, spec)| &spec.selector).chain(claims);
        selectors.flat_map(Selector::keys).map(str::to_owned).collect()
    }

    /// Those that can be enforced or tried, with what they ask for.
    pub fn specs(&self) -> impl Iterator<Item = (&Rule, &Spec)> {
        self.list.values().filter_map(|rule| Some((rule, rule.spec.as_ref().ok()?)))
    }

    /// Those that are enforced on a node with these labels.
    pub fn enforced(&self, labels: &Pairs) -> impl Iterator<Item = (&Rule, &Spec)> {
        self.specs().filter(|(rule, spec)| !rule.deleting && rule.is_enforced() && spec.selector.matches(labels))
    }

    /// Whether a rule that is not enforced, because it is only tried or cannot be, is about this taint of a node with these labels.
    pub fn claim(&self, labels: &Pairs, taint: &Taint) -> bool {
        let claims = self.list.values().filter(|rule| !rule.deleting).filter_map(|rule| rule.claim.as_ref());
        let selects = |claim: &Claim| claim.selector.as_ref().is_none_or(|selector| selector.matches(labels));
        claims.filter(|claim| taint.is(&claim.key, &claim.effect)).any(selects)
    }

    /// The rule of this UID.
    pub fn of_uid(&self, uid: &str) -> Option<&Rule> {
        self.list.values().find(|rule| &*rule.uid == uid)
    }

    /// Pairs of rules that share a taint and can select the same node: on such a node the taint stays until both are met.
    pub fn conflicts(&self) -> Vec<(Text, Text)> {
        let enforced: Vec<_> = self.specs().filter(|(rule, spec)| !rule.deleting && !spec.dry_run).collect();
        let mut conflicts = Vec::new();
        for (index, (rule, spec)) in enforced.iter().enumerate() {
            for (other, of_other) in &enforced[index + 1..] {
                let same_taint = (&spec.key, &spec.effect) == (&of_other.key, &of_other.effect);
                if same_taint && spec.selector.overlaps(&of_other.selector) {
                    conflicts.push((Text::clone(&rule.name), Text::clone(&other.name)));
                }
            }
        }
        conflicts
    }
}

// === impl Rule ===

impl Rule {
    /// Reads a rule from the API. Whatever is wrong with its specification is kept with it.
    pub fn read(json: serde_json::Value) -> Result<Self, serde_json::Error> {
        let raw: RawRule = serde_json::from_value(json)?;
        let RawMeta { name, uid, resource_version, generation, creation_timestamp, deletion_timestamp, finalizers } =
            raw.metadata;
        let claim = Claim::read(&raw.spec);
        let spec = serde_json::from_value::<RawSpec>(raw.spec)
            .map_err(|error| RuleFault::Shape(error.to_string()))
            .and_then(Spec::new);
        let is_enforced = spec.as_ref().is_ok_and(|spec| !spec.dry_run);
        Ok(Self {
            name: name.into(),
            uid: uid.into(),
            version: Version::new(&resource_version),
            generation,
            created: creation_timestamp,
            deleting: deletion_timestamp.is_some(),
            finalizers,
            spec,
            claim: claim.filter(|_| !is_enforced),
        })
    }

    /// Whether its specification can be enforced, and is not only tried.
    pub fn is_enforced(&self) -> bool {
        self.spec.as_ref().is_ok_and(|spec| !spec.dry_run)
    }

    /// The key of the annotation that says a node has passed it.
    pub fn completed_key(&self) -> String {
        format!("{COMPLETED}{}", self.uid)
    }

    /// The value of that annotation.
    pub fn completed_value(&self) -> String {
        serde_json::json!({ "rule-name": &*self.name }).to_string()
    }

    /// Whether a node with these annotations has passed it (PEER-11).
    pub fn is_completed(&self, annotations: &Pairs) -> bool {
        annotations.has(&self.completed_key()) || annotations.has(&format!("{COMPLETED}{}", self.name))
    }
}

// === impl Claim ===

impl Claim {
    fn read(spec: &serde_json::Value) -> Option<Self> {
        let taint = |field: &str| spec["taint"][field].as_str();
        let selector = serde_json::from_value(spec["nodeSelector"].clone()).ok();
        Some(Self {
            key: taint("key")?.into(),
            effect: taint("effect")?.into(),
            selector: selector.and_then(|raw| Selector::new(raw).ok()),
        })
    }
}

// === impl Spec ===

impl Spec {
    fn new(raw: RawSpec) -> Result<Self, RuleFault> {
        let word = |field, value: &str| RuleFault::Word { field, value: value.to_owned() };
        let mode = match &*raw.enforcement_mode {
            "bootstrap-only" => Mode::BootstrapOnly,
            "continuous" => Mode::Continuous,
            other => return Err(word("enforcementMode", other)),
        };
        let policy = match raw.condition_policy.as_deref() {
            None | Some("allOf") => Policy::AllOf,
            Some("anyOf") if mode == Mode::BootstrapOnly => return Err(RuleFault::WithBootstrap("anyOf")),
            Some("anyOf") => Policy::AnyOf,
            Some(other) => return Err(word("conditionPolicy", other)),
        };
        let name = raw.taint.key.strip_prefix(gate::PREFIX);
        if !name.is_some_and(gate::is_name) {
            return Err(RuleFault::TaintKey(raw.taint.key));
        }
        let effect = match Effect::from(&*raw.taint.effect) {
            Effect::Other(_) => return Err(RuleFault::TaintEffect(raw.taint.effect)),
            effect => effect,
        };
        if !(1..=32).contains(&raw.conditions.len()) {
            return Err(RuleFault::Conditions(raw.conditions.len()));
        }
        let mut seen = BTreeSet::new();
        let mut conditions = Vec::new();
        for RawRequirement { kind, required_status, default_status } in raw.conditions {
            if !(1..=316).contains(&kind.chars().count()) || !seen.insert(kind.clone()) {
                return Err(RuleFault::ConditionType(kind));
            }
            if default_status.is_some() && mode == Mode::BootstrapOnly {
                return Err(RuleFault::WithBootstrap("a default status"));
            }
            let status = |field, text: &str| match text {
                "True" | "False" | "Unknown" => Ok(Status::from(text)),
                other => Err(word(field, other)),
            };
            conditions.push(Requirement {
                kind: kind.into(),
                required: status("requiredStatus", &required_status)?,
                default: default_status.map_or(Ok(Status::Unknown), |text| status("defaultStatus", &text))?,
            });
        }
        Ok(Self {
            selector: Selector::new(raw.node_selector)?,
            conditions,
            policy,
            mode,
            key: raw.taint.key.into(),
            effect,
            value: raw.taint.value.into(),
            dry_run: raw.dry_run,
        })
    }
}

#[cfg(test)]
mod tests;
