//! Leases.

use k8s_openapi::api::coordination::v1::Lease;
use serde_json::Value;

use super::{Kind, Part, Updates, untyped};
use crate::{
    field::FieldError,
    json::{number, object as object_at},
    patch::{PLAIN, Schema},
    typed::{DecodeError, check_micro_times, round_trip},
};

/// The kind `Lease`.
#[derive(Debug)]
pub(crate) struct Leases;

impl Kind for Leases {
    fn decode(&self, object: Value) -> Result<Value, DecodeError> {
        check_micro_times(&object, &[&["spec", "renewTime"], &["spec", "acquireTime"]])?;
        let mut lease = untyped(round_trip::<Lease>(object)?);
        object_at(&mut lease, "spec");
        Ok(lease)
    }

    fn prepare_update(&self, _: Part, _: &mut Value, _: &Value) {}

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Some(seconds) = number(object, &["spec", "leaseDurationSeconds"]).filter(|seconds| *seconds <= 0) {
            errors.push(FieldError::invalid("spec.leaseDurationSeconds", &seconds.into(), "must be greater than 0"));
        }
        if let Some(transitions) = number(object, &["spec", "leaseTransitions"]).filter(|count| *count < 0) {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid("spec.leaseTransitions", &transitions.into(), detail));
        }
        errors
    }

    fn is_core(&self) -> bool {
        false
    }

    fn updates(&self) -> Updates {
        Updates { create: true, unconditional: false }
    }

    fn schema(&self) -> Option<&'static Schema> {
        Some(&PLAIN)
    }
}
