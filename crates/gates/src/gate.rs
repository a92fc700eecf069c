//! What a gate is: a taint whose key is a known prefix and a name.
//!
//! The taint `readiness.k8s.io/CNIReady:NoSchedule` is the gate `CNIReady`. Its label and its annotation have the key of the taint
//! (API-26, CON-30).

use std::sync::Arc;

pub use keelet_pod::gate::{LABEL, PREFIX, is_name};

use crate::node::Text;

/// The value of the annotation of a gate that has passed.
pub const PASSED: &str = "passed";

/// Prefixes of taint keys that make a taint a gate; [`PREFIX`] is always one of them (GN-7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefixes(Vec<Text>);

/// A prefix that gates cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPrefix {
    /// It is not a domain with a slash.
    #[error(
        "invalid taint prefix {0:?}: expected a domain and a slash, such as startup-taint.cluster-autoscaler.kubernetes.io/"
    )]
    Shape(String),
    /// Taints below it belong to Kubernetes.
    #[error("invalid taint prefix {0:?}: Kubernetes itself adds and removes these taints")]
    Kubernetes(String),
}

/// Taints below these belong to the node lifecycle controller, to cloud providers and to kubeadm.
const OF_KUBERNETES: [&str; 4] =
    ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "node-role.kubernetes.io/", "kubernetes.io/"];

/// Whether a text is a DNS subdomain.
pub(crate) fn is_domain(text: &str) -> bool {
    let label = |label: &str| {
        let inner = label.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        !label.is_empty() && label.len() <= 63 && inner && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

// === impl Prefixes ===

impl Prefixes {
    /// These, and [`PREFIX`].
    pub fn new<'a>(more: impl IntoIterator<Item = &'a str>) -> Result<Self, BadPrefix> {
        let mut prefixes = vec![Text::from(PREFIX)];
        for prefix in more {
            if !prefix.strip_suffix('/').is_some_and(is_domain) {
                return Err(BadPrefix::Shape(prefix.to_owned()));
            }
            if OF_KUBERNETES.contains(&prefix) {
                return Err(BadPrefix::Kubernetes(prefix.to_owned()));
            }
            if !prefixes.iter().any(|known| &**known == prefix) {
                prefixes.push(Arc::from(prefix));
            }
        }
        Ok(Self(prefixes))
    }

    /// The prefix and the name of a key, if it has one of these prefixes. The name may be anything, even empty.
    pub fn split<'k>(&self, key: &'k str) -> Option<(&str, &'k str)> {
        // No prefix is the beginning of another: each ends with its only slash.
        self.0.iter().find_map(|prefix| Some((&**prefix, key.strip_prefix(&**prefix)?)))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|prefix| &**prefix)
    }
}

impl Default for Prefixes {
    fn default() -> Self {
        Self(vec![Arc::from(PREFIX)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GN-7, CTRL-2
    #[test]
    fn keys_are_split_by_known_prefixes() {
        let more = "startup-taint.cluster-autoscaler.kubernetes.io/";
        let prefixes = Prefixes::new([more, more, PREFIX]).unwrap();
        assert_eq!(prefixes.iter().collect::<Vec<_>>(), [PREFIX, more], "each once, ours always");
        assert_eq!(prefixes.split("readiness.k8s.io/CNIReady"), Some((PREFIX, "CNIReady")));
        assert_eq!(prefixes.split(&format!("{more}GPU")), Some((more, "GPU")));
        assert_eq!(prefixes.split("readiness.k8s.io/"), Some((PREFIX, "")));
        for key in ["node.kubernetes.io/not-ready", "readiness.k8s.io", "xreadiness.k8s.io/A", "CNIReady"] {
            assert_eq!(prefixes.split(key), None, "{key}");
        }
        assert_eq!(Prefixes::default(), Prefixes::new([]).unwrap());
    }

    /// GN-7
    #[test]
    fn prefixes_of_others_are_refused() {
        for prefix in ["", "/", "a", "a/b", "a/b/", "A.io/", "-a.io/", "a..io/", "readiness.k8s.io"] {
            assert_eq!(Prefixes::new([prefix]), Err(BadPrefix::Shape(prefix.to_owned())));
        }
        for prefix in OF_KUBERNETES {
            assert_eq!(Prefixes::new([prefix]), Err(BadPrefix::Kubernetes(prefix.to_owned())));
        }
    }
}
