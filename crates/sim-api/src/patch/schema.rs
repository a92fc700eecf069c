//! How strategic merge patches treat the lists of each kind: facts of the API's types of Kubernetes 1.37.
//!
//! What is not listed is merged if it is an object and replaced if it is a list. Among those that are replaced are a node's
//! `spec.taints` and a pod's `status.containerStatuses`. `make e2e` compares these tables with the OpenAPI document of a
//! real server.

/// The fields of an object that need to be said.
#[derive(Debug)]
pub(crate) struct Schema(pub(super) &'static [(&'static str, Field)]);

/// A field.
#[derive(Debug)]
pub(crate) enum Field {
    /// An object with lists in it.
    Struct(&'static Schema),
    /// A list of objects that are merged by a key.
    List(&'static str, &'static Schema),
    /// A list of plain values that are united.
    Set,
}

use Field::{List, Set, Struct};

const EMPTY: Schema = Schema(&[]);

const META: Schema = Schema(&[("finalizers", Set), ("ownerReferences", List("uid", &EMPTY))]);

/// Kinds of which only the metadata has such lists.
pub(crate) const PLAIN: Schema = Schema(&[("metadata", Struct(&META))]);

/// `v1.Namespace`.
pub(crate) const NAMESPACE: Schema = Schema(&[("metadata", Struct(&META)), ("status", Struct(&CONDITIONS))]);

const CONDITIONS: Schema = Schema(&[("conditions", List("type", &EMPTY))]);

/// `v1.Node`.
pub(crate) const NODE: Schema = Schema(&[
    ("metadata", Struct(&META)),
    ("spec", Struct(&Schema(&[("podCIDRs", Set)]))),
    ("status", Struct(&Schema(&[("addresses", List("type", &EMPTY)), ("conditions", List("type", &EMPTY))]))),
]);

/// `v1.Service`.
pub(crate) const SERVICE: Schema = Schema(&[
    ("metadata", Struct(&META)),
    ("spec", Struct(&Schema(&[("ports", List("port", &EMPTY))]))),
    ("status", Struct(&CONDITIONS)),
]);

/// `v1.ServiceAccount`.
pub(crate) const SERVICE_ACCOUNT: Schema = Schema(&[("metadata", Struct(&META)), ("secrets", List("name", &EMPTY))]);

const CONTAINER: Schema = Schema(&[
    ("env", List("name", &EMPTY)),
    ("ports", List("containerPort", &EMPTY)),
    ("volumeDevices", List("devicePath", &EMPTY)),
    ("volumeMounts", List("mountPath", &EMPTY)),
]);

const POD_SPEC: Schema = Schema(&[
    ("containers", List("name", &CONTAINER)),
    ("ephemeralContainers", List("name", &CONTAINER)),
    ("evictionResponders", List("name", &EMPTY)),
    ("hostAliases", List("ip", &EMPTY)),
    ("imagePullSecrets", List("name", &EMPTY)),
    ("initContainers", List("name", &CONTAINER)),
    ("resourceClaims", List("name", &EMPTY)),
    ("schedulingGates", List("name", &EMPTY)),
    ("topologySpreadConstraints", List("topologyKey", &EMPTY)),
    ("volumes", List("name", &VOLUME)),
]);

const VOLUME: Schema = Schema(&[("ephemeral", Struct(&Schema(&[("volumeClaimTemplate", Struct(&CLAIM_TEMPLATE))])))]);
const CLAIM_TEMPLATE: Schema = Schema(&[("metadata", Struct(&META))]);

const CLAIM_STATUS: Schema = Schema(&[("mapping", List("name", &EMPTY)), ("overhead", List("name", &EMPTY))]);

const POD_STATUS: Schema = Schema(&[
    ("conditions", List("type", &EMPTY)),
    ("hostIPs", List("ip", &EMPTY)),
    ("nodeAllocatableResourceClaimStatuses", List("resourceClaimName", &CLAIM_STATUS)),
    ("podIPs", List("ip", &EMPTY)),
    ("resourceClaimStatuses", List("name", &EMPTY)),
]);

/// `v1.Pod`.
pub(crate) const POD: Schema =
    Schema(&[("metadata", Struct(&META)), ("spec", Struct(&POD_SPEC)), ("status", Struct(&POD_STATUS))]);

// === impl Schema ===

impl Schema {
    /// All lists that are merged, by path, with their keys; lists of plain values have none.
    pub(crate) fn lists(&self) -> Vec<(String, Option<&'static str>)> {
        let mut lists = Vec::new();
        for (name, field) in self.0 {
            let (key, inner) = match field {
                Struct(inner) => (None, Some(inner)),
                List(key, inner) => (Some(*key), Some(inner)),
                Set => (None, None),
            };
            if !matches!(field, Struct(_)) {
                lists.push(((*name).to_owned(), key));
            }
            let below = inner.into_iter().flat_map(|inner| inner.lists());
            lists.extend(below.map(|(path, key)| (format!("{name}.{path}"), key)));
        }
        lists.sort();
        lists
    }

    /// How a field is treated, if that is said.
    pub(super) fn field(&self, name: &str) -> Option<&Field> {
        self.0.iter().find(|(field, _)| *field == name).map(|(_, field)| field)
    }
}
