//! Amounts of a resource, as a pod's containers ask for them.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::ResourceRequirements, apimachinery::pkg::api::resource::Quantity as Text};
use keelet_pod::Quantity;

/// One side of a container's resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// What is set aside.
    Requests,
    /// What is not exceeded.
    Limits,
}

/// The amount of that resource, zero if nothing is said of it.
pub(super) fn of(amounts: Option<&BTreeMap<String, Text>>, resource: &str) -> Quantity {
    amounts.and_then(|amounts| amounts.get(resource)).map(read).unwrap_or_default()
}

/// The same on one side of the resources of a pod or container.
pub(super) fn on(side: Side, resources: Option<&ResourceRequirements>, resource: &str) -> Quantity {
    let amounts = resources.and_then(|resources| match side {
        Side::Requests => resources.requests.as_ref(),
        Side::Limits => resources.limits.as_ref(),
    });
    of(amounts, resource)
}

/// An amount as validation has read it. What it did not let pass does not get here, and would be zero.
pub(super) fn read(text: &Text) -> Quantity {
    Quantity::parse(&text.0).unwrap_or_default()
}
