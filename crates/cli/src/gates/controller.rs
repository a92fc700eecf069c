//! The controller: where its lease is, and whether one leads.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use keelet_gates::api::Permission;
use serde::{Deserialize, Serialize};

use super::cluster::Cluster;
use crate::view::age;

/// Where the controller's lease is.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "As given to keelet controller")]
pub(super) struct LeasePlace {
    /// Name of the lease
    #[arg(long, value_name = "NAME", default_value = "keelet-gates")]
    leader_elect_resource_name: String,
    /// Namespace of the lease
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    leader_elect_resource_namespace: String,
}

/// Whether a controller leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Leadership {
    /// The namespace and name of the lease.
    lease: String,
    #[serde(flatten)]
    leader: Leader,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "camelCase")]
enum Leader {
    /// One does.
    Leads { holder: String, since: Option<Timestamp>, renewed: Option<Timestamp> },
    /// One did, and has not renewed its lease in time.
    Expired { holder: String, renewed: Option<Timestamp>, seconds: u64 },
    /// The last one gave the lease away when it stopped.
    Released { renewed: Option<Timestamp> },
    /// There is no lease: none ever ran with an election.
    None,
    /// The lease cannot be read.
    Unknown { why: String },
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Lease {
    spec: LeaseSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LeaseSpec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u32>,
    acquire_time: Option<Timestamp>,
    renew_time: Option<Timestamp>,
}

/// How long ago that was, as kubectl shortens it. What is in the future, by another machine's clock, is now.
pub(super) fn ago(then: Timestamp, now: Timestamp) -> String {
    age::short(Duration::try_from(now.duration_since(then)).unwrap_or_default())
}

// === impl LeasePlace ===

impl LeasePlace {
    /// Whether a controller leads.
    pub(super) async fn leadership(&self, cluster: &Cluster, now: Timestamp) -> Leadership {
        let (namespace, name) = (&self.leader_elect_resource_namespace, &self.leader_elect_resource_name);
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
        let leader = match cluster.get(&path).await {
            Err(error) if error.is_not_found() => Leader::None,
            Err(error) => {
                let may = Permission::of_cluster(&["get"], "coordination.k8s.io", "leases");
                let may = may.in_namespace(namespace).of_object(name);
                Leader::Unknown { why: cluster.explained(may, &error).to_string() }
            }
            Ok(json) => match serde_json::from_slice::<Lease>(&json) {
                Ok(lease) => Leader::of(lease.spec, now),
                Err(error) => Leader::Unknown { why: format!("it cannot be read: {error}") },
            },
        };
        Leadership { lease: format!("{namespace}/{name}"), leader }
    }
}

// === impl Leadership ===

impl Leadership {
    /// Whether one leads, as far as is known.
    pub(super) fn is_led(&self) -> bool {
        matches!(self.leader, Leader::Leads { .. })
    }

    /// In a sentence.
    pub(super) fn sentence(&self, now: Timestamp) -> String {
        let lease = &self.lease;
        let past = |time: &Option<Timestamp>| match time {
            Some(time) => format!("{time} ({} ago)", ago(*time, now)),
            None => "an unknown time".to_owned(),
        };
        match &self.leader {
            Leader::Leads { holder, since, renewed } => {
                format!("{holder} leads since {}; lease {lease} renewed at {}", past(since), past(renewed))
            }
            Leader::Expired { holder, renewed, seconds } => format!(
                "none leads: {holder} held lease {lease}, of {seconds} s, and renewed it last at {}; gates stay as they are",
                past(renewed)
            ),
            Leader::Released { renewed } => {
                format!("none leads: the last one gave lease {lease} away at {}; gates stay as they are", past(renewed))
            }
            Leader::None => format!(
                "none leads: there is no lease {lease}; gates stay as they are until keelet controller runs (docs/gates.md)"
            ),
            Leader::Unknown { why } => format!("not known whether one leads, from lease {lease}: {why}"),
        }
    }
}

// === impl Leader ===

impl Leader {
    fn of(lease: LeaseSpec, now: Timestamp) -> Self {
        let seconds = lease.lease_duration_seconds.unwrap_or_default();
        let (holder, renewed) = (lease.holder_identity.unwrap_or_default(), lease.renew_time);
        let until = renewed.and_then(|renewed| renewed.checked_add(SignedDuration::from_secs(seconds.into())).ok());
        match (holder.is_empty(), until) {
            (true, _) => Self::Released { renewed },
            (false, Some(until)) if until >= now => Self::Leads { holder, since: lease.acquire_time, renewed },
            (false, _) => Self::Expired { holder, renewed, seconds: seconds.into() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-03-01T12:00:00Z";

    fn said(spec: serde_json::Value) -> String {
        let now = NOW.parse().unwrap();
        let lease: Lease = serde_json::from_value(serde_json::json!({ "spec": spec })).unwrap();
        Leadership { lease: "kube-system/keelet-gates".to_owned(), leader: Leader::of(lease.spec, now) }.sentence(now)
    }

    #[test]
    fn a_lease_says_who_leads_and_since_when() {
        let spec = |holder: &str, renewed: &str| {
            serde_json::json!({"holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": "2026-03-01T09:00:00.000000Z",
                               "renewTime": renewed, "leaseTransitions": 3})
        };
        assert_eq!(
            said(spec("pod-1", "2026-03-01T11:59:58.000000Z")),
            "pod-1 leads since 2026-03-01T09:00:00Z (3h ago); lease kube-system/keelet-gates renewed at 2026-03-01T11:59:58Z (2s ago)"
        );
        assert_eq!(
            said(spec("pod-1", "2026-03-01T11:50:00.000000Z")),
            "none leads: pod-1 held lease kube-system/keelet-gates, of 15 s, and renewed it last at 2026-03-01T11:50:00Z (10m ago); \
             gates stay as they are"
        );
        assert!(said(spec("", "2026-03-01T11:50:00.000000Z")).starts_with("none leads: the last one gave lease"));
        assert!(said(serde_json::json!({"holderIdentity": "x"})).contains("an unknown time"));
    }
}
