//! Pods that arrive as the API's type: those of an API server, and copies kept on disk.

use k8s_openapi::api::core::v1;
use serde_json::Value;

use crate::{Features, Origin, Pod, Problem, Report, Strictness, Trust, path::FieldPath, review::Review, validate};

/// The field of a kept copy that names the author of the pod. Without it the author is root of the node.
pub const TRUST: &str = "keelet.dev/trust";
const CLUSTER: &str = "Cluster";

/// Why the kept copy of a pod cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidCopy {
    /// The copy does not have the shape of a pod.
    #[error("the copy does not parse as a pod: {0}")]
    Shape(#[from] serde_json::Error),
    /// Validation refuses the pod.
    #[error("validation refuses the copy: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Refused(Vec<Problem>),
}

// === impl Pod ===

impl Pod {
    /// A pod of an API server, which has validated it already. It is refused only where no sensible reading is left,
    /// such as a probe without any handler known here.
    pub fn from_api(pod: v1::Pod, features: &Features) -> Result<Self, Vec<Problem>> {
        let mut report = review_api_pod(pod, features, Strictness::ApiServer);
        report.pods.pop().ok_or(report.errors)
    }

    /// The pod as its author changed it.
    pub fn changed(&self, source: v1::Pod, features: &Features) -> Result<Self, Vec<Problem>> {
        let mut report = review(source, &Origin::copy(self.trust), features, Strictness::ApiServer);
        report.pods.pop().ok_or(report.errors)
    }

    /// The whole pod as JSON, to be kept and read back by [`Pod::from_json`]. A pod of an API server says so in [`TRUST`], which no
    /// pod can say of itself: the API has no such field.
    ///
    /// Both functions are here and not beside their callers, because the code that serialises the API's types is large
    /// and every crate that uses it would compile it again.
    pub fn to_json(&self) -> Result<Value, serde_json::Error> {
        let mut json = serde_json::to_value(&*self.source)?;
        if let (Trust::Cluster, Some(fields)) = (self.trust, json.as_object_mut()) {
            fields.insert(TRUST.to_owned(), CLUSTER.into());
        }
        Ok(json)
    }

    /// The pod that [`Pod::to_json`] wrote.
    pub fn from_json(json: Value, features: &Features) -> Result<Self, InvalidCopy> {
        let trust = match json.get(TRUST) {
            None => Trust::Node,
            // A word of a later version must not raise the trust.
            Some(_) => Trust::Cluster,
        };
        let pod: v1::Pod = serde_json::from_value(json)?;
        let mut report = review(pod, &Origin::copy(trust), features, Strictness::ApiServer);
        report.pods.pop().ok_or(InvalidCopy::Refused(report.errors))
    }
}

/// Validates a typed pod with the given strictness; the report has the warnings too.
pub fn review_api_pod(pod: v1::Pod, features: &Features, strictness: Strictness) -> Report {
    review(pod, &Origin::api_server(), features, strictness)
}

fn review(pod: v1::Pod, origin: &Origin, features: &Features, strictness: Strictness) -> Report {
    let mut review = Review::new(origin, None, FieldPath::root(), strictness);
    let namespace = pod.metadata.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or("default");
    review.pod = pod.metadata.name.as_ref().map(|name| format!("{namespace}/{name}"));
    let pod = validate::pod(pod, features, &mut review);
    let mut report = review.report;
    report.pods.extend(pod);
    report
}
