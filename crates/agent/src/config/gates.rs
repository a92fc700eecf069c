//! The node's side of readiness gates in the configuration file: `nodeReadinessProbes` and `registerWithTaints` (KEP-5233).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1;
use keelet_lifecycle::node::NodeProbe;
use keelet_pod::{
    Effect, Taint,
    gate::{self, Meant, meant},
};
use keelet_prober::MOST_NODE_PROBES;
use serde::Deserialize;

use super::Checker;
use crate::node::{BUILT_IN_CONDITIONS, OWN_CONDITIONS};

/// A probe as it is written. Its numbers may stand beside `probe`, as the KEP has them, or inside.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawNodeProbe {
    name: Option<String>,
    condition_type: Option<String>,
    probe: Option<v1::Probe>,
    initial_delay_seconds: Option<i32>,
    period_seconds: Option<i32>,
    timeout_seconds: Option<i32>,
    success_threshold: Option<i32>,
    failure_threshold: Option<i32>,
}

const LIST: &str = "nodeReadinessProbes";

/// The built-in conditions that gates among these taints name, and no probe reports (GN-12).
pub fn built_in_conditions(taints: &[Taint], probes: &[NodeProbe]) -> Vec<String> {
    let probed = |gate: &str| meant(probes.iter(), gate, |probe| probe.condition.as_str()) != Meant::None;
    let is_named = |kind: &&str| taints.iter().any(|taint| gate::of_taint(taint) == Some(*kind)) && !probed(kind);
    BUILT_IN_CONDITIONS.into_iter().filter(is_named).map(str::to_owned).collect()
}

/// What has to be said about gates that are never opened, and probes that open none (VEC-82).
pub fn gate_warnings(taints: &[Taint], probes: &[NodeProbe]) -> Vec<String> {
    let mut warnings = Vec::new();
    let built_in = built_in_conditions(taints, probes);
    let of_agent = || OWN_CONDITIONS.iter().copied().chain(built_in.iter().map(String::as_str));
    let reported = || of_agent().chain(probes.iter().map(|probe| probe.condition.as_str()));
    let gates: Vec<&str> = taints.iter().filter_map(gate::of_taint).collect();
    for gate in &gates {
        match meant(reported(), gate, |kind| *kind) {
            Meant::One(_) => {}
            Meant::None => warnings.push(format!(
                "gate {}{gate}: no probe of this node reports the condition {gate}; unless another program does, the gate stays closed",
                gate::PREFIX
            )),
            Meant::Several(kinds) => warnings.push(format!(
                "gate {}{gate}: the conditions {} may both be meant, so the gate stays closed",
                gate::PREFIX,
                kinds.join(" and ")
            )),
        }
    }
    for probe in probes {
        let opens = |gate: &&&str| meant(reported(), gate, |kind| *kind) == Meant::One(probe.condition.as_str());
        if !gates.iter().any(|gate| opens(&gate)) {
            let (name, condition) = (&probe.name, &probe.condition);
            warnings.push(format!(
                "{LIST}: probe {name}: no taint that the node registers with is a gate for the condition {condition}; it is reported all the same"
            ));
        }
    }
    warnings
}

// === impl Checker ===

impl Checker<'_> {
    pub(super) fn node_probes(&mut self, raw: Vec<RawNodeProbe>) -> Vec<NodeProbe> {
        if raw.len() > MOST_NODE_PROBES {
            self.object.refuse(LIST, &raw.len().to_string(), format!("must have at most {MOST_NODE_PROBES} probes"));
            return Vec::new();
        }
        let (mut names, mut kinds) = (BTreeSet::new(), BTreeSet::new());
        let mut probes = Vec::new();
        for (index, raw) in raw.into_iter().enumerate() {
            let at = format!("{LIST}[{index}]");
            let name = self.node_probe_name(&format!("{at}.name"), raw.name.clone(), &mut names);
            let condition = self.condition_type(&format!("{at}.conditionType"), raw.condition_type.clone(), &mut kinds);
            let probe = self.merged(&at, raw);
            let probe = probe.and_then(|raw| self.object.node_probe(&format!("{at}.probe"), &raw));
            if let (Some(name), Some(condition), Some(probe)) = (name, condition, probe) {
                probes.push(NodeProbe { name, condition, probe });
            }
        }
        probes
    }

    fn node_probe_name(&mut self, at: &str, name: Option<String>, known: &mut BTreeSet<String>) -> Option<String> {
        let name = name.unwrap_or_default();
        let wrong = match () {
            () if !gate::is_name(&name) => {
                "must be 1 to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends"
            }
            () if !known.insert(name.clone()) => "another probe has this name",
            () => return Some(name),
        };
        self.object.refuse(at, &format!("{name:?}"), wrong);
        None
    }

    fn condition_type(&mut self, at: &str, kind: Option<String>, known: &mut BTreeSet<String>) -> Option<String> {
        let kind = kind.unwrap_or_default();
        let (domain, name) = kind.split_once('/').map_or((None, kind.as_str()), |(domain, name)| (Some(domain), name));
        // Each part of a domain is a name as well.
        let is_domain = |domain: &str| domain.len() <= 253 && domain.split('.').all(gate::is_name);
        let wrong = match () {
            () if !gate::is_name(name) || !domain.is_none_or(is_domain) => {
                "must be the type of a condition, such as NetworkReady or example.com/NetworkReady".to_owned()
            }
            () if OWN_CONDITIONS.contains(&kind.as_str()) => {
                "the agent itself reports this condition of the node".to_owned()
            }
            () if OF_OTHERS.contains(&kind.as_str()) => "this condition of the node belongs to Kubernetes".to_owned(),
            () if !known.insert(kind.clone()) => "another probe reports this condition".to_owned(),
            () => return Some(kind),
        };
        self.object.refuse(at, &format!("{kind:?}"), wrong);
        None
    }

    /// The probe with the numbers that stand beside it (CON-31).
    fn merged(&mut self, at: &str, raw: RawNodeProbe) -> Option<v1::Probe> {
        let Some(mut probe) = raw.probe else {
            self.object.refuse(&format!("{at}.probe"), "", "must be a probe with httpGet or grpc");
            return None;
        };
        let mut sound = true;
        for (field, beside, inside) in [
            ("initialDelaySeconds", raw.initial_delay_seconds, &mut probe.initial_delay_seconds),
            ("periodSeconds", raw.period_seconds, &mut probe.period_seconds),
            ("timeoutSeconds", raw.timeout_seconds, &mut probe.timeout_seconds),
            ("successThreshold", raw.success_threshold, &mut probe.success_threshold),
            ("failureThreshold", raw.failure_threshold, &mut probe.failure_threshold),
        ] {
            match (beside, *inside) {
                (Some(beside), Some(inside)) if beside != inside => {
                    let message = format!("probe.{field} is {inside}: give it once");
                    self.object.refuse(&format!("{at}.{field}"), &beside.to_string(), message);
                    sound = false;
                }
                // The field that is written is the one that an error names.
                (Some(beside), None) if beside <= 0 && field != "initialDelaySeconds" => {
                    self.object.refuse(&format!("{at}.{field}"), &beside.to_string(), "must be greater than 0");
                    sound = false;
                }
                (Some(beside), None) => *inside = Some(beside),
                _ => {}
            }
        }
        sound.then_some(probe)
    }

    pub(super) fn taints(&mut self, raw: Vec<v1::Taint>) -> Vec<Taint> {
        let mut taints = Vec::new();
        for (index, raw) in raw.into_iter().enumerate() {
            let at = format!("registerWithTaints[{index}]");
            let Some(effect) = Effect::called(&raw.effect) else {
                let shown = format!("{:?}", raw.effect);
                self.object.refuse(
                    &format!("{at}.effect"),
                    &shown,
                    "must be NoSchedule, PreferNoSchedule or NoExecute",
                );
                continue;
            };
            if raw.key.is_empty() {
                self.object.refuse(&format!("{at}.key"), "\"\"", "must not be empty");
                continue;
            }
            taints.push(Taint { key: raw.key, value: raw.value.unwrap_or_default(), effect });
        }
        taints
    }
}

/// Conditions of nodes that other parts of Kubernetes report, or that the kubelet does and keelet will.
const OF_OTHERS: [&str; 3] = ["MemoryPressure", "PIDPressure", "NetworkUnavailable"];

#[cfg(test)]
mod tests;
