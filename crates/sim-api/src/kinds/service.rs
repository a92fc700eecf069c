//! Services.

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use super::{Kind, Part, Updates, split_status, untyped};
use crate::{
    field::{FieldError, IMMUTABLE},
    json::{at, copy, default, list, object as object_at, text},
    names,
    patch::{SERVICE, Schema},
    typed::{DecodeError, round_trip},
};

/// The kind `Service`.
#[derive(Debug)]
pub(crate) struct Services;

impl Kind for Services {
    fn decode(&self, object: Value) -> Result<Value, DecodeError> {
        let mut service = untyped(round_trip::<Service>(object)?);
        let spec = object_at(&mut service, "spec");
        default(spec, "sessionAffinity", "None");
        default(spec, "type", "ClusterIP");
        let kind = spec["type"].as_str().unwrap_or("").to_owned();
        if kind != "ExternalName" {
            default(spec, "internalTrafficPolicy", "Cluster");
        }
        if let (None, Some(address)) = (spec.get("clusterIPs"), spec.get("clusterIP").cloned()) {
            spec.insert("clusterIPs".to_owned(), json!([address]));
        }
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let number = port["port"].clone();
            if let Some(port) = port.as_object_mut() {
                default(port, "protocol", "TCP");
                default(port, "targetPort", number);
            }
        }
        object_at(object_at(&mut service, "status").entry("loadBalancer").or_insert_with(|| json!({})), "");
        service["status"]["loadBalancer"].as_object_mut().map(|map| map.remove(""));
        Ok(service)
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({ "loadBalancer": {} });
    }

    fn prepare_update(&self, part: Part, object: &mut Value, old: &Value) {
        split_status(part, object, old);
        if part == Part::Main {
            for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if at(&object["spec"], &[key]).is_none() {
                    copy(&mut object["spec"], &old["spec"], key);
                }
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let headless = text(object, &["spec", "clusterIP"]) == "None";
        let external = text(object, &["spec", "type"]) == "ExternalName";
        let ports = list(object, &["spec", "ports"]);
        if ports.is_empty() && !headless && !external {
            errors.push(FieldError::required("spec.ports", ""));
        }
        for (index, port) in ports.iter().enumerate() {
            if port["port"].as_i64().is_none_or(|number| !(1..=65535).contains(&number)) {
                let field = format!("spec.ports[{index}].port");
                errors.push(FieldError::invalid(&field, &port["port"], "must be between 1 and 65535, inclusive"));
            }
            if port["targetPort"].as_i64().is_some_and(|number| !(1..=65535).contains(&number)) {
                let field = format!("spec.ports[{index}].targetPort");
                errors.push(FieldError::invalid(&field, &port["targetPort"], "must be between 1 and 65535, inclusive"));
            }
            if ports.len() > 1 && text(port, &["name"]).is_empty() {
                errors.push(FieldError::required(&format!("spec.ports[{index}].name"), ""));
            }
        }
        errors
    }

    fn validate_update(&self, _: Part, object: &Value, old: &Value) -> Vec<FieldError> {
        let is_open = text(object, &["spec", "clusterIP"]) == "None" && at(object, &["spec", "selector"]).is_none();
        if list(object, &["spec", "ipFamilies"]).len() > 1 && !is_open {
            // The cluster has a single family, and says so before it looks at anything else.
            let policy = &object["spec"]["ipFamilyPolicy"];
            let detail = "this cluster is not configured for dual-stack services";
            return vec![
                FieldError::invalid("spec.ipFamilyPolicy", policy, detail),
                FieldError::invalid("spec.ipFamilies[1]", &"IPv6".into(), "not configured on this cluster"),
            ];
        }
        let mut errors = self.validate(object);
        if object["spec"].get("clusterIP") != old["spec"].get("clusterIP") {
            errors.push(FieldError::invalid("spec.clusterIPs[0]", &object["spec"]["clusterIPs"], IMMUTABLE));
        }
        errors
    }

    fn name_faults(&self) -> fn(&str) -> Vec<String> {
        names::label_1035
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["spec.clusterIP", "spec.type"]
    }

    fn field(&self, object: &Value, name: &str) -> String {
        text(object, &name.split('.').collect::<Vec<_>>()).to_owned()
    }

    fn updates(&self) -> Updates {
        Updates { create: true, unconditional: true }
    }

    fn answers_with_deleted(&self) -> bool {
        true
    }

    fn schema(&self) -> Option<&'static Schema> {
        Some(&SERVICE)
    }
}
