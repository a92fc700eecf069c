//! Node readiness gates (KEP-5233): the keys of their taints, and which condition opens which gate.
//!
//! The taint `readiness.k8s.io/CNIReady:NoSchedule` is the gate `CNIReady`. The controller of a cluster, the agent that registers its node, and
//! the agent of a node of its own all go by what is here.

use crate::{Effect, Taint};

/// The prefix that is always a gate's.
pub const PREFIX: &str = "readiness.k8s.io/";

/// The value of the label of a gate.
pub const LABEL: &str = "true";

/// Which conditions of a node a gate may mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meant<T> {
    /// The node has no condition of that name.
    None,
    /// This one.
    One(T),
    /// Several, so that it is not known which.
    Several(Vec<T>),
}

/// Whether a name can follow the slash of a taint key: 1 to 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
pub fn is_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let ends = [name.chars().next(), name.chars().next_back()];
    name.len() <= 63 && name.chars().all(inner) && ends.iter().all(|end| end.is_some_and(|c| c.is_ascii_alphanumeric()))
}

/// The name of the gate that a taint is; none if it is no gate.
pub fn of_taint(taint: &Taint) -> Option<&str> {
    let name = taint.key.strip_prefix(PREFIX).filter(|name| is_name(name))?;
    (taint.effect == Effect::NoSchedule).then_some(name)
}

/// The condition of a gate: the one of its name, else the only one that ends in a slash and its name (GATE-22).
pub fn meant<T>(conditions: impl Iterator<Item = T> + Clone, gate: &str, kind: impl Fn(&T) -> &str) -> Meant<T> {
    if let Some(exact) = conditions.clone().find(|condition| kind(condition) == gate) {
        return Meant::One(exact);
    }
    let ends_so = |condition: &T| kind(condition).strip_suffix(gate).is_some_and(|domain| domain.ends_with('/'));
    let mut qualified: Vec<T> = conditions.filter(ends_so).collect();
    match qualified.len() {
        0 => Meant::None,
        1 => Meant::One(qualified.remove(0)),
        _ => Meant::Several(qualified),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SCN-G11, CTRL-9, PEER-4
    #[test]
    fn names_of_gates() {
        let longest = "a".repeat(63);
        for name in ["CNIReady", "a", "network-pending", "a_b.c", "1", &longest] {
            assert!(is_name(name), "{name}");
        }
        let too_long = "a".repeat(64);
        for name in ["", "-a", "a-", ".a", "a.", "_a", "a/b", "a b", "ä", "a*", &too_long] {
            assert!(!is_name(name), "{name}");
        }
    }

    /// GATE-1: the prefix, a name and the effect NoSchedule make a gate.
    #[test]
    fn a_gate_is_a_taint_with_the_prefix_and_the_effect_no_schedule() {
        for (text, gate) in [
            ("readiness.k8s.io/CNIReady:NoSchedule", Some("CNIReady")),
            ("readiness.k8s.io/CNIReady=x:NoSchedule", Some("CNIReady")),
            ("readiness.k8s.io/CNIReady:NoExecute", None),
            ("readiness.k8s.io/-x:NoSchedule", None),
            ("example.com/CNIReady:NoSchedule", None),
        ] {
            assert_eq!(of_taint(&text.parse().unwrap()), gate, "{text}");
        }
    }

    /// GATE-22
    #[test]
    fn a_gate_means_the_condition_of_its_name_or_the_only_one_that_ends_so() {
        let of = |kinds: &[&'static str]| meant(kinds.iter().copied(), "Net", |kind| *kind);
        assert_eq!(of(&["Ready", "Net", "a.io/Net", "b.io/Net"]), Meant::One("Net"));
        assert_eq!(of(&["Ready", "a.io/Net"]), Meant::One("a.io/Net"));
        assert_eq!(of(&["a.io/Net", "b.io/Net"]), Meant::Several(vec!["a.io/Net", "b.io/Net"]));
        assert_eq!(of(&["MyNet", "a.io/MyNet", "Net/a"]), Meant::None);
    }
}
