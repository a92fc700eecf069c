//! What hollow nodes look like, and how often they report.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::Taint;

/// What the nodes of a fleet look like.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The names are `PREFIX-0`, `PREFIX-1` and so on; the prefix is also the value of their label `keelet.dev/hollow`.
    pub prefix: String,
    /// How many there are.
    pub nodes: usize,
    /// Their taints when they are created.
    pub taints: Vec<Taint>,
    /// Labels beside the usual ones.
    pub labels: BTreeMap<String, String>,
    /// Conditions beside those of a kubelet, with their first status.
    pub conditions: BTreeMap<String, String>,
}

/// How often the nodes report.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Between two renewals of a lease. A kubelet takes 10 s; the controller manager believes a node for 50 s.
    pub lease: Duration,
    /// Between two statuses of a node. A kubelet takes 5 minutes if nothing changes.
    pub heartbeat: Duration,
    /// Requests at once: each has a connection of its own.
    pub in_flight: usize,
}

/// Reads `KEY[=VALUE]:EFFECT`, as kubectl writes taints.
pub fn parse_taint(text: &str) -> Result<Taint, String> {
    let (name, effect) = text.rsplit_once(':').ok_or_else(|| format!("taint \"{text}\" has no effect"))?;
    if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        return Err(format!("taint \"{text}\": effect \"{effect}\" not found"));
    }
    let (key, value) = name.split_once('=').map_or((name, None), |(key, value)| (key, Some(value.to_owned())));
    if key.is_empty() {
        return Err(format!("taint \"{text}\" has no key"));
    }
    Ok(Taint { key: key.to_owned(), value, effect: effect.to_owned(), time_added: None })
}

// === impl Shape ===

impl Shape {
    /// So many nodes with these names, without taints.
    pub fn new(prefix: &str, nodes: usize) -> Self {
        let (taints, labels, conditions) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        Self { prefix: prefix.to_owned(), nodes, taints, labels, conditions }
    }

    /// The name of a node.
    pub fn name(&self, index: usize) -> String {
        format!("{}-{index}", self.prefix)
    }

    /// Selects the nodes of this fleet.
    pub fn selector(&self) -> String {
        format!("{}={}", crate::objects::LABEL, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::parse_taint;

    #[test]
    fn taints_are_read_as_kubectl_writes_them() {
        for (text, expected) in [
            ("readiness.k8s.io/NetworkReady:NoSchedule", Ok(("readiness.k8s.io/NetworkReady", None, "NoSchedule"))),
            ("a/b=c:NoExecute", Ok(("a/b", Some("c"), "NoExecute"))),
            ("a/b", Err("taint \"a/b\" has no effect")),
            ("a/b:Never", Err("taint \"a/b:Never\": effect \"Never\" not found")),
            ("=c:NoExecute", Err("taint \"=c:NoExecute\" has no key")),
        ] {
            let read = parse_taint(text);
            let seen = read.as_ref().map(|taint| (taint.key.as_str(), taint.value.as_deref(), taint.effect.as_str()));
            assert_eq!(seen.map_err(String::as_str), expected, "{text}");
        }
    }
}
