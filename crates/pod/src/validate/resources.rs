//! `resources`: amounts that parse, requests that fit below limits.

use k8s_openapi::{api::core::v1, apimachinery::pkg::api::resource};

use crate::{
    names,
    path::FieldPath,
    problem::{forbidden, ignored, invalid, quoted, unsupported},
    quantity::Quantity,
    review::Review,
};

/// The resources whose names need no domain.
const STANDARD: [&str; 3] = ["cpu", "memory", STORAGE];
const STORAGE: &str = "ephemeral-storage";
const HUGE_PAGES: &str = "hugepages-";
/// The units in which processors are counted.
const CPU_DIVISORS: [&str; 2] = ["1m", "1"];
/// The units in which everything else is counted.
const DIVISORS: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
/// Why resource claims are refused.
pub(super) const NO_CLAIMS: &str = "keelet does not allocate devices";

/// Checks the resources of a container or a pod.
pub(super) fn check(requirements: &v1::ResourceRequirements, path: &FieldPath, review: &mut Review<'_>) {
    for (field, amounts) in [("limits", &requirements.limits), ("requests", &requirements.requests)] {
        for (resource, quantity) in amounts.iter().flatten() {
            // A request equal to the limit was filled in from it; the limit's problems are reported once.
            let limit = requirements.limits.as_ref().and_then(|limits| limits.get(resource));
            if field == "requests" && limit == Some(quantity) {
                continue;
            }
            let path = path.field(field).key(resource);
            if let Err(why) = names::qualified(resource) {
                review.object(&path, invalid(quoted(resource), why));
            } else if !resource.contains('/') {
                if !STANDARD.contains(&resource.as_str()) && !resource.starts_with(HUGE_PAGES) {
                    let known = format!("must be {} or {HUGE_PAGES}<size>", STANDARD.join(", "));
                    review.object(&path, invalid(quoted(resource), known));
                } else if resource.strip_prefix(HUGE_PAGES).is_some_and(|size| !is_page_size(size)) {
                    let known = format!("must be {HUGE_PAGES}<size>, such as {HUGE_PAGES}2Mi");
                    review.object(&path, invalid(quoted(resource), known));
                } else if resource == STORAGE {
                    review.warn(&path, ignored("keelet does not evict pods for disk usage"));
                }
            } else if field == "limits" {
                review.warn(&path, ignored("keelet does not allocate devices: the container runs without it"));
            }
            amount(quantity, &path, review);
        }
    }
    if requirements.claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
        review.object(&path.field("claims"), forbidden(NO_CLAIMS));
    }
    let limits = requirements.limits.iter().flatten();
    for (resource, limit) in limits {
        let Some(request) = requirements.requests.as_ref().and_then(|requests| requests.get(resource)) else {
            continue;
        };
        if let (Some(least), Some(most)) = (Quantity::parse(&request.0), Quantity::parse(&limit.0))
            && least > most
        {
            let message = format!("must be less than or equal to the {resource} limit of {}", limit.0);
            review.object(&path.field("requests").key(resource), invalid(quoted(&request.0), message));
        }
    }
}

fn is_page_size(size: &str) -> bool {
    Quantity::parse(size).is_some_and(|size| size > Quantity::default())
}

/// Checks the overhead of the sandbox.
pub(super) fn overhead(spec: &v1::PodSpec, path: &FieldPath, review: &mut Review<'_>) {
    for (resource, quantity) in spec.overhead.iter().flatten() {
        amount(quantity, &path.field("overhead").key(resource), review);
    }
}

/// Checks the divisor of a resource reference; zero stands for one.
pub(super) fn divisor(reference: &v1::ResourceFieldSelector, path: &FieldPath, review: &mut Review<'_>) {
    let Some(divisor) = &reference.divisor else { return };
    let is_cpu = matches!(reference.resource.as_str(), "limits.cpu" | "requests.cpu");
    let allowed: &[&str] = if is_cpu { &CPU_DIVISORS } else { &DIVISORS };
    let value = Quantity::parse(&divisor.0);
    if !value.is_some_and(|value| value.is_zero() || allowed.iter().any(|one| Quantity::parse(one) == Some(value))) {
        review.object(&path.field("divisor"), unsupported(&divisor.0, allowed));
    }
}

/// A quantity of at least zero.
pub(super) fn amount(quantity: &resource::Quantity, path: &FieldPath, review: &mut Review<'_>) {
    match Quantity::parse(&quantity.0) {
        None => review.object(path, invalid(quoted(&quantity.0), Quantity::SYNTAX)),
        Some(amount) if amount.is_negative() => {
            review.object(path, invalid(quoted(&quantity.0), "must be greater than or equal to 0"));
        }
        Some(_) => {}
    }
}
