//! Taints of nodes, and which pods tolerate them.

use std::{fmt, str::FromStr};

use k8s_openapi::api::core::v1;

use crate::Pod;

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value; may be empty.
    pub value: String,
    /// What it does to pods that do not tolerate it.
    pub effect: Effect,
}

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// They are not scheduled to the node.
    NoSchedule,
    /// They are scheduled to another node if there is one.
    PreferNoSchedule,
    /// They are not scheduled to the node, and those that run there have to leave.
    NoExecute,
}

/// A taint as people write it that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid taint {0:?}: expected KEY=VALUE:EFFECT or KEY:EFFECT, with the effect NoSchedule, PreferNoSchedule or NoExecute"
)]
pub struct BadTaint(pub String);

fn tolerates(toleration: &v1::Toleration, taint: &Taint) -> bool {
    let empty_or = |text: &Option<String>, wanted: &str| match text.as_deref() {
        None | Some("") => None,
        Some(text) => Some(text == wanted),
    };
    let same_value = toleration.value.as_deref().unwrap_or_default() == taint.value;
    let by_operator = match toleration.operator.as_deref() {
        None | Some("" | "Equal") => same_value,
        Some("Exists") => true,
        // Comparisons of numbers are not known here; a toleration that is not understood tolerates nothing.
        Some(_) => false,
    };
    by_operator
        && empty_or(&toleration.effect, taint.effect.as_str()).unwrap_or(true)
        && empty_or(&toleration.key, &taint.key).unwrap_or(true)
}

// === impl Pod ===

impl Pod {
    /// Whether the pod tolerates a taint.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let tolerations = self.source.spec.as_ref().and_then(|spec| spec.tolerations.as_ref());
        tolerations.into_iter().flatten().any(|toleration| tolerates(toleration, taint))
    }
}

// === impl Taint ===

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, effect } = self;
        match value.is_empty() {
            true => write!(f, "{key}:{}", effect.as_str()),
            false => write!(f, "{key}={value}:{}", effect.as_str()),
        }
    }
}

impl FromStr for Taint {
    type Err = BadTaint;

    fn from_str(text: &str) -> Result<Self, BadTaint> {
        let bad = || BadTaint(text.to_owned());
        let (taint, effect) = text.rsplit_once(':').ok_or_else(bad)?;
        let effect = Effect::called(effect).ok_or_else(bad)?;
        let (key, value) = taint.split_once('=').unwrap_or((taint, ""));
        if key.is_empty() || value.contains('=') {
            return Err(bad());
        }
        Ok(Self { key: key.to_owned(), value: value.to_owned(), effect })
    }
}

// === impl Effect ===

impl Effect {
    const ALL: [Self; 3] = [Self::NoSchedule, Self::PreferNoSchedule, Self::NoExecute];

    /// The API's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }

    /// The effect of that name.
    pub fn called(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|effect| effect.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_one;

    #[test]
    fn taints_are_read_as_people_write_them() {
        let taint = |text: &str| text.parse::<Taint>().map(|taint| (taint.key, taint.value, taint.effect));
        let parts = |key: &str, value: &str, effect| Ok((key.to_owned(), value.to_owned(), effect));
        assert_eq!(taint("a/b=c:NoSchedule"), parts("a/b", "c", Effect::NoSchedule));
        assert_eq!(taint("a:NoExecute"), parts("a", "", Effect::NoExecute));
        assert_eq!(taint("a=:PreferNoSchedule"), parts("a", "", Effect::PreferNoSchedule));
        for text in ["", "a", "a:", "a:Never", "=b:NoSchedule", ":NoSchedule", "a=b=c:NoSchedule"] {
            assert_eq!(taint(text), Err(BadTaint(text.to_owned())));
        }
    }

    /// GATE-23: as the scheduler has it: key, value and effect, each of which a toleration may leave open.
    #[test]
    fn tolerations_match_as_the_scheduler_matches_them() {
        let taint: Taint = "a/b=c:NoSchedule".parse().unwrap();
        for (toleration, expected) in [
            ("{operator: Exists}", true),
            ("{key: a/b, operator: Exists}", true),
            ("{key: a/b, operator: Exists, effect: NoSchedule}", true),
            ("{key: a/b, operator: Exists, effect: NoExecute}", false),
            ("{key: a/b, operator: Equal, value: c}", true),
            ("{key: a/b, value: c}", true),
            ("{key: a/b, value: d}", false),
            ("{key: a/b}", false),
            ("{key: other, operator: Exists}", false),
        ] {
            let manifest = format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{tolerations: [{toleration}], containers: [{{name: m, image: i}}]}}"
            );
            assert_eq!(parse_one(&manifest).unwrap().tolerates(&taint), expected, "{toleration}");
        }
        let none =
            parse_one("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: m, image: i}]}");
        assert!(!none.unwrap().tolerates(&taint));
    }
}
