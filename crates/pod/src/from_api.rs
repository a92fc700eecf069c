//! Pods that are typed already: those of an API server.

use k8s_openapi::api::core::v1;

use crate::{Features, Origin, Pod, Problem, Report, Strictness, path::FieldPath, review::Review, validate};

// === impl Pod ===

impl Pod {
    /// A pod of an API server, which has validated it already. It is refused only where no sensible reading is left,
    /// such as a probe without any handler known here.
    pub fn from_api(pod: v1::Pod, features: &Features) -> Result<Self, Vec<Problem>> {
        let mut report = review_api_pod(pod, features, Strictness::ApiServer);
        report.pods.pop().ok_or(report.errors)
    }
}

/// Looks over a typed pod as strictly as asked, and tells the warnings too.
pub fn review_api_pod(pod: v1::Pod, features: &Features, strictness: Strictness) -> Report {
    let origin = Origin::api_server();
    let mut review = Review::new(&origin, None, FieldPath::root(), strictness);
    let namespace = pod.metadata.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or("default");
    review.pod = pod.metadata.name.as_ref().map(|name| format!("{namespace}/{name}"));
    let pod = validate::pod(pod, features, &mut review);
    let mut report = review.report;
    report.pods.extend(pod);
    report
}
