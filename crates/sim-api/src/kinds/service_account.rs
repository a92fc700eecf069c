//! Service accounts.

use k8s_openapi::api::core::v1::ServiceAccount;
use serde_json::Value;

use super::{Kind, Part, untyped};
use crate::{
    patch::{SERVICE_ACCOUNT, Schema},
    typed::{DecodeError, round_trip},
};

/// The kind `ServiceAccount`.
#[derive(Debug)]
pub(crate) struct ServiceAccounts;

impl Kind for ServiceAccounts {
    fn decode(&self, object: Value) -> Result<Value, DecodeError> {
        Ok(untyped(round_trip::<ServiceAccount>(object)?))
    }

    fn prepare_update(&self, _: Part, _: &mut Value, _: &Value) {}

    fn answers_with_deleted(&self) -> bool {
        true
    }

    fn schema(&self) -> Option<&'static Schema> {
        Some(&SERVICE_ACCOUNT)
    }
}
