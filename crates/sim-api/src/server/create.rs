//! Writing new objects.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Answer, Call, Result, Server};
use crate::{
    access::Identity,
    clock::printed,
    json::{at, list, object as object_at, set, text},
    kinds::Part,
    meta,
    refusal::{Qualified, Refusal},
    request::{Query, Target, Verb},
    resources::Resource,
};

impl Server {
    pub(super) fn create(&mut self, call: &Call<'_>, target: &Target, resource: &Arc<Resource>) -> Result<Answer> {
        let mut object = decode_body(resource, call.body)?;
        match_namespace(&mut object, resource, &target.namespace)?;
        let object = self.insert(call, Verb::Create, resource, Part::Main, object)?;
        if resource.plural == "namespaces" && !call.query.is_dry_run() {
            self.furnish(call, text(&object, &["metadata", "name"]));
        }
        Ok(Answer::json(201, resource.printed(&object)))
    }

    /// Stores a decoded object that is not there yet.
    pub(super) fn insert(
        &mut self,
        call: &Call<'_>,
        verb: Verb,
        resource: &Arc<Resource>,
        part: Part,
        mut object: Value,
    ) -> Result<Arc<Value>> {
        let had_version = !text(&object, &["metadata", "resourceVersion"]).is_empty();
        let uid = self.uid();
        let meta = object_at(&mut object, "metadata");
        for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"] {
            meta.remove(key);
        }
        meta.insert("uid".to_owned(), uid.into());
        meta.insert("creationTimestamp".to_owned(), printed(call.now).into());
        self.admit(call, resource, "", verb, &mut object, None)?;
        if text(&object, &["metadata", "name"]).is_empty() && at(&object, &["metadata", "generateName"]).is_some() {
            let base: String = text(&object, &["metadata", "generateName"]).chars().take(58).collect();
            let name = format!("{base}{}", self.suffix());
            object["metadata"]["name"] = name.into();
        }
        resource.strategy.prepare_create(&mut object);
        let mut errors = resource.strategy.validate(&object);
        if errors.is_empty() || resource.strategy.checks_metadata() {
            errors.splice(0..0, meta::validate(&object, resource.namespaced, &*resource.strategy));
        }
        let name = text(&object, &["metadata", "name"]).to_owned();
        if !errors.is_empty() {
            errors.extend(resource.strategy.remark(&errors));
            return Err(Refusal::invalid(resource.qualified_kind(), &name, &errors));
        }
        let key = resource.key(text(&object, &["metadata", "namespace"]), &name);
        if had_version && !call.query.is_dry_run() {
            return Err(Refusal::plain(500, "resourceVersion should not be set on objects to be created"));
        }
        if let Some(found) = self.store.get(&key) {
            let generated = at(&object, &["metadata", "generateName"]).is_some();
            let deleting = at(found, &["metadata", "deletionTimestamp"]).is_some();
            return Err(Refusal::already_exists(resource.qualified(), &name, generated, deleting));
        }
        // A service that is created by way of its status stays without an address.
        if resource.plural == "services" && part == Part::Main {
            self.give_address(&mut object);
        }
        if call.query.is_dry_run() {
            return Ok(Arc::new(object));
        }
        Ok(self.commit(call, verb, key, Some(object)))
    }

    /// Gives a pod to a node, as the scheduler does.
    pub(super) fn bind(&mut self, call: &Call<'_>, target: &Target, resource: &Arc<Resource>) -> Result<Answer> {
        let binding: Value =
            serde_json::from_slice(call.body).map_err(|error| Refusal::bad_request(error.to_string()))?;
        let node = text(&binding, &["target", "name"]);
        if node.is_empty() {
            let errors = [crate::field::FieldError::required("target.name", "")];
            return Err(Refusal::invalid(Qualified { group: "", name: "Binding" }, &target.name, &errors));
        }
        let key = resource.key(&target.namespace, &target.name);
        let Some(stored) = self.store.get(&key) else {
            return Err(Refusal::not_found(resource.qualified(), &target.name));
        };
        let mut pod = (**stored).clone();
        let binding_of = Qualified { group: "", name: "pods/binding" };
        if !text(&pod, &["metadata", "deletionTimestamp"]).is_empty() {
            let why = format!("pod {} is being deleted, cannot be assigned to a host", target.name);
            return Err(Refusal::conflict(binding_of, &target.name, &why));
        }
        let bound = text(&pod, &["spec", "nodeName"]).to_owned();
        if !bound.is_empty() {
            let why = format!("pod {} is already assigned to node {bound:?}", target.name);
            return Err(Refusal::conflict(binding_of, &target.name, &why));
        }
        object_at(&mut pod, "spec").insert("nodeName".to_owned(), node.into());
        let scheduled = json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": printed(call.now),
        });
        let mut conditions: Vec<Value> = list(&pod, &["status", "conditions"]).to_vec();
        conditions.retain(|condition| condition["type"] != "PodScheduled");
        conditions.push(scheduled);
        set(object_at(&mut pod, "status"), "conditions", Some(conditions.into()));
        let generation = pod["metadata"]["generation"].as_i64().unwrap_or(0);
        pod["metadata"]["generation"] = (generation + 1).into();
        self.commit(call, Verb::Create, key, Some(pod));
        let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 });
        Ok(Answer::json(201, status))
    }

    /// The next address of a service.
    fn give_address(&mut self, service: &mut Value) {
        let spec = object_at(service, "spec");
        let kind = spec.get("type").and_then(Value::as_str).unwrap_or("").to_owned();
        if kind == "ExternalName" {
            return;
        }
        if spec.get("clusterIP").is_none() {
            self.addresses += 1;
            let address = format!("10.96.{}.{}", self.addresses >> 8 & 0xff, self.addresses & 0xff);
            spec.insert("clusterIP".to_owned(), address.as_str().into());
            spec.insert("clusterIPs".to_owned(), json!([address]));
        }
        // Without an address and a selector, the server leaves open what the endpoints will have.
        let open = spec["clusterIP"] == "None" && !spec.contains_key("selector");
        let (families, policy) =
            if open { (json!(["IPv4", "IPv6"]), "RequireDualStack") } else { (json!(["IPv4"]), "SingleStack") };
        crate::json::default(spec, "ipFamilies", families);
        crate::json::default(spec, "ipFamilyPolicy", policy);
    }

    /// What controllers put into every namespace.
    fn furnish(&mut self, call: &Call<'_>, namespace: &str) {
        let find = |server: &Self, plural: &str| server.registry.find("", "v1", plural).cloned();
        let plain = Call { query: Query::default(), ..call.clone() };
        for (plural, name, object) in [
            ("serviceaccounts", "default", json!({})),
            ("configmaps", "kube-root-ca.crt", json!({ "data": { "ca.crt": "" } })),
        ] {
            let Some(resource) = find(self, plural) else { continue };
            let mut object = object;
            object["metadata"] = json!({ "name": name, "namespace": namespace });
            // Both are valid, and neither is there yet unless the namespace was.
            drop(self.insert(&plain, Verb::Create, &resource, Part::Main, object));
        }
    }

    /// A namespace that was there before the simulation began.
    pub(super) fn make_namespace(&mut self, name: &str, at: Duration, now: Timestamp) {
        let Some(resource) = self.registry.find("", "v1", "namespaces").cloned() else { return };
        let identity = Identity::admin();
        let call = Call::internal(&identity, at, now);
        let object = resource.strategy.decode(json!({ "metadata": { "name": name } })).unwrap_or_default();
        if self.insert(&call, Verb::Create, &resource, Part::Main, object).is_ok() {
            self.furnish(&call, name);
        }
    }
}

/// Reads the object of a request.
pub(super) fn decode_body(resource: &Resource, body: &[u8]) -> Result<Value> {
    let object: Value = serde_json::from_slice(body).map_err(|error| {
        Refusal::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: {error}",
            resource.kind
        ))
    })?;
    decode(resource, object)
}

/// Gives an object the form of its kind.
pub(super) fn decode(resource: &Resource, object: Value) -> Result<Value> {
    let (kind, version) = (text(&object, &["kind"]).to_owned(), text(&object, &["apiVersion"]).to_owned());
    if resource.strategy.keeps_type() && kind.is_empty() {
        let message = format!(
            "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing",
            resource.kind
        );
        return Err(Refusal::bad_request(message));
    }
    if !kind.is_empty() && kind != resource.kind {
        let message = format!("{kind} in version {version:?} cannot be handled as a {}", resource.kind);
        return Err(Refusal::bad_request(message));
    }
    let expected = resource.api_version();
    if version != expected && (!version.is_empty() || resource.strategy.keeps_type()) {
        return Err(Refusal::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    resource.strategy.decode(object).map_err(|why| {
        let (kind, version) = (&resource.kind, &resource.version);
        Refusal::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
    })
}

/// An object is in the namespace of the request.
pub(super) fn match_namespace(object: &mut Value, resource: &Resource, namespace: &str) -> Result<()> {
    let namespace = if resource.namespaced { namespace } else { "" };
    let meta = object_at(object, "metadata");
    let own = meta.get("namespace").and_then(Value::as_str).unwrap_or("");
    if own != namespace && !own.is_empty() && !namespace.is_empty() {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Refusal::bad_request(message));
    }
    set(meta, "namespace", (!namespace.is_empty()).then(|| namespace.into()));
    Ok(())
}
