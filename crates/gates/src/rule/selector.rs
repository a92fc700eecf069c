//! Label selectors: which nodes a rule is about, and whether two rules can be about the same node.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::node::Pairs;

/// A label selector: all of its requirements have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

/// What one label has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    need: Need,
}

/// What a label has to be. Numbers are for `Gt` and `Lt`, which rules of the other controller do not have and node affinity does.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Need {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
    Gt(i64),
    Lt(i64),
}

/// A selector as the API writes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct RawSelector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<RawRequirement>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct RawRequirement {
    key: String,
    operator: String,
    values: Vec<String>,
}

/// Why a selector cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSelector {
    /// It would select every node.
    #[error("the node selector is empty")]
    Empty,
    /// An operator that does not exist.
    #[error("the node selector has the unknown operator {0:?}")]
    Operator(String),
    /// The values do not fit the operator.
    #[error("the node selector needs {expected} for {operator} of {key:?}")]
    Values {
        /// The label.
        key: String,
        /// The operator.
        operator: String,
        /// What it needs.
        expected: &'static str,
    },
}

// === impl Selector ===

impl Selector {
    pub(super) fn new(raw: RawSelector) -> Result<Self, BadSelector> {
        let labels = raw.match_labels.into_iter();
        let labels = labels.map(|(key, value)| Ok(Requirement { key, need: Need::In(BTreeSet::from([value])) }));
        let expressions = raw.match_expressions.into_iter().map(Requirement::new);
        let requirements = labels.chain(expressions).collect::<Result<Vec<_>, _>>()?;
        if requirements.is_empty() { Err(BadSelector::Empty) } else { Ok(Self(requirements)) }
    }

    /// Whether a node with these labels is selected.
    pub fn matches(&self, labels: &Pairs) -> bool {
        self.0.iter().all(|requirement| requirement.need.fits(labels.get(&requirement.key).map(|value| &**value)))
    }

    /// The labels that it looks at.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|requirement| &*requirement.key)
    }

    /// Whether there can be a node that both select (VEC-83).
    pub fn overlaps(&self, other: &Self) -> bool {
        let mut by_key: BTreeMap<&str, Vec<&Need>> = BTreeMap::new();
        for requirement in self.0.iter().chain(&other.0) {
            by_key.entry(&requirement.key).or_default().push(&requirement.need);
        }
        by_key.values().all(|needs| can_all_hold(needs))
    }
}

/// Whether one label, present or not, can fit all of these.
fn can_all_hold(needs: &[&Need]) -> bool {
    if needs.iter().all(|need| need.fits(None)) {
        return true;
    }
    if let Some(values) = needs.iter().find_map(|need| if let Need::In(values) = need { Some(values) } else { None }) {
        return values.iter().any(|value| needs.iter().all(|need| need.fits(Some(value))));
    }
    // No label is a negative number: it would begin with a minus.
    let (mut least, mut most) = (0, i64::MAX);
    for need in needs {
        match need {
            Need::DoesNotExist => return false,
            Need::Gt(bound) => least = least.max(bound.saturating_add(1)),
            Need::Lt(bound) => most = most.min(bound.saturating_sub(1)),
            // However many values are excluded, another spelling of a number is left: 7, 07, 007.
            Need::NotIn(_) | Need::Exists | Need::In(_) => {}
        }
    }
    least <= most
}

// === impl Requirement ===

impl Requirement {
    fn new(raw: RawRequirement) -> Result<Self, BadSelector> {
        let RawRequirement { key, operator, values } = raw;
        let fault = |expected| BadSelector::Values { key: key.clone(), operator: operator.clone(), expected };
        let number = || match &values[..] {
            [value] => value.parse().map_err(|_| fault("a number")),
            _ => Err(fault("one number")),
        };
        let need = match &*operator {
            "In" | "NotIn" if values.is_empty() => return Err(fault("values")),
            "In" => Need::In(values.into_iter().collect()),
            "NotIn" => Need::NotIn(values.into_iter().collect()),
            "Exists" | "DoesNotExist" if !values.is_empty() => return Err(fault("no values")),
            "Exists" => Need::Exists,
            "DoesNotExist" => Need::DoesNotExist,
            "Gt" => Need::Gt(number()?),
            "Lt" => Need::Lt(number()?),
            _ => return Err(BadSelector::Operator(operator)),
        };
        Ok(Self { key, need })
    }
}

// === impl Need ===

impl Need {
    fn fits(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::In(values) => value.is_some_and(|value| values.contains(value)),
            Self::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::Gt(bound) => number().is_some_and(|number| number > *bound),
            Self::Lt(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::node::Text;

    fn try_new(raw: Value) -> Result<Selector, BadSelector> {
        Selector::new(serde_json::from_value(raw).unwrap())
    }

    /// `a=1`, `a In 1,2`, `a Exists`, `a Gt 5`, joined by `;`.
    fn selector(text: &str) -> Selector {
        let requirements = text.split("; ").filter(|part| !part.is_empty()).map(|part| {
            let words: Vec<&str> = part.split(' ').collect();
            if let [pair] = words[..] {
                let (key, value) = pair.split_once('=').unwrap();
                return Requirement { key: key.to_owned(), need: Need::In(BTreeSet::from([value.to_owned()])) };
            }
            let values = words.get(2).into_iter().flat_map(|values| values.split(',')).map(str::to_owned).collect();
            Requirement::new(RawRequirement { key: words[0].to_owned(), operator: words[1].to_owned(), values })
                .unwrap()
        });
        Selector(requirements.collect())
    }

    fn labels(text: &str) -> Pairs {
        let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
        pairs.map(|(key, value)| (Text::from(key), Text::from(value))).collect()
    }

    /// SCN-G5, PEER-5
    #[test]
    fn selectors_match_labels() {
        for (text, yes, no) in [
            ("a=1", &["a=1", "a=1 b=2"][..], &["", "a=2", "b=1"][..]),
            ("a=1; b=2", &["a=1 b=2"], &["a=1", "b=2", "a=1 b=3"]),
            ("a In 1,2", &["a=1", "a=2"], &["", "a=3"]),
            ("a NotIn 1", &["", "a=2", "b=1"], &["a=1"]),
            ("a Exists", &["a=", "a=1"], &["", "b=1"]),
            ("a DoesNotExist", &["", "b=1"], &["a=", "a=1"]),
            ("a Gt 5", &["a=6", "a=07"], &["", "a=5", "a=x", "a=4"]),
            ("a Lt 5", &["a=4", "a=0"], &["", "a=5", "a=x", "a=6"]),
        ] {
            for found in yes {
                assert!(selector(text).matches(&labels(found)), "{text} should select {found:?}");
            }
            for found in no {
                assert!(!selector(text).matches(&labels(found)), "{text} should not select {found:?}");
            }
        }
    }

    /// VEC-83, SCN-G14
    #[test]
    fn selectors_overlap_if_a_node_can_fit_both() {
        for (one, other, overlap) in [
            ("a=1", "a=2", false),
            ("a=1", "b=1", true),
            ("", "a=1", true),
            ("", "", true),
            ("a In 1,2", "a In 2,3", true),
            ("a In 1,2", "a In 3", false),
            ("a In 1", "a NotIn 1", false),
            ("a In 1,2", "a NotIn 1", true),
            ("a Exists", "a DoesNotExist", false),
            ("a NotIn 1", "a DoesNotExist", true),
            ("a NotIn 1", "a NotIn 2", true),
            ("a=1", "a DoesNotExist", false),
            ("a Gt 5", "a Lt 7", true),
            ("a Gt 5", "a Lt 6", false),
            ("a Gt 5", "a DoesNotExist", false),
            ("a Lt 2; a NotIn 0", "a Exists", true),
            ("a Lt 0", "b=1", false),
            ("a Gt 5", "a In 3,7", true),
            ("a Gt 5", "a In 3,x", false),
        ] {
            assert_eq!(selector(one).overlaps(&selector(other)), overlap, "{one} and {other}");
            assert_eq!(selector(other).overlaps(&selector(one)), overlap, "{other} and {one}");
        }
    }

    /// PEER-5
    #[test]
    fn selectors_that_cannot_be_used() {
        assert_eq!(try_new(json!({})), Err(BadSelector::Empty));
        assert_eq!(try_new(json!({"matchLabels": {}, "matchExpressions": []})), Err(BadSelector::Empty));
        let of = |operator: &str, values: &[&str]| {
            try_new(json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]}))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(of("Like", &["1"]), "the node selector has the unknown operator \"Like\"");
        assert_eq!(of("In", &[]), "the node selector needs values for In of \"a\"");
        assert_eq!(of("Exists", &["1"]), "the node selector needs no values for Exists of \"a\"");
        assert_eq!(of("Gt", &["x"]), "the node selector needs a number for Gt of \"a\"");
        assert_eq!(of("Lt", &["1", "2"]), "the node selector needs one number for Lt of \"a\"");
    }

    #[test]
    fn both_forms_are_read() {
        let both = json!({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]});
        let both = try_new(both).unwrap();
        assert_eq!(both, selector("a=1; b Exists"));
        assert_eq!(both.keys().collect::<Vec<_>>(), ["a", "b"]);
    }
}
