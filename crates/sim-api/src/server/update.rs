//! Writing objects that are there: whole ones, and patches.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Answer, Call, Result, Server,
    create::{decode, decode_body, match_namespace},
};
use crate::{
    field::FieldError,
    json::{at, copy, list, text},
    kinds::Part,
    meta,
    patch::{PatchKind, undecodable},
    refusal::{MODIFIED, Refusal},
    request::{Target, Verb},
    resources::Resource,
};

impl Server {
    pub(super) fn update(&mut self, call: &Call<'_>, target: &Target, resource: &Arc<Resource>) -> Result<Answer> {
        let part = resource.part(&target.subresource).ok_or_else(Refusal::no_such_method)?;
        let mut object = decode_body(resource, call.body)?;
        match_namespace(&mut object, resource, &target.namespace)?;
        match_name(&object, &target.name)?;
        let key = resource.key(&target.namespace, &target.name);
        let old = self.store.get(&key).cloned();
        let asked_uid = text(&object, &["metadata", "uid"]);
        let creates = resource.strategy.updates().create;
        if old.is_none() && !creates {
            return Err(Refusal::not_found(resource.qualified(), &target.name));
        }
        let uid = old.as_ref().map_or("", |old| text(old, &["metadata", "uid"]));
        if !asked_uid.is_empty() && asked_uid != uid {
            // A dry run does not get as far as etcd.
            let prefix = if call.query.is_dry_run() { "" } else { "/registry" };
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: {prefix}{}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {asked_uid}, UID in object meta: {uid}",
                resource.prefix,
                key.path()
            );
            return Err(Refusal::conflict(resource.qualified(), &target.name, &why));
        }
        match old {
            Some(old) => self.replace(call, Verb::Update, target, resource, part, object, &old),
            None => {
                object.get_mut("metadata").and_then(Value::as_object_mut).map(|meta| meta.remove("resourceVersion"));
                let object = self.insert(call, Verb::Update, resource, part, object)?;
                Ok(Answer::json(201, resource.printed(&object)))
            }
        }
    }

    pub(super) fn patch(&mut self, call: &Call<'_>, target: &Target, resource: &Arc<Resource>) -> Result<Answer> {
        let schema = resource.strategy.schema();
        let kind = PatchKind::parse(call.content_type, schema.is_some())?;
        let part = resource.part(&target.subresource).ok_or_else(Refusal::no_such_method)?;
        let patch = PatchKind::read(call.body)?;
        let key = resource.key(&target.namespace, &target.name);
        let Some(old) = self.store.get(&key).cloned() else {
            return Err(Refusal::not_found(resource.qualified(), &target.name));
        };
        let patched = kind.apply(&resource.printed(&old), patch, schema)?;
        let mut object = match decode(resource, patched) {
            Err(refusal) if refusal.reason == "BadRequest" => return Err(undecodable(call.body, &refusal.message)),
            decoded => decoded?,
        };
        match_namespace(&mut object, resource, &target.namespace)?;
        match_name(&object, &target.name)?;
        self.replace(call, Verb::Patch, target, resource, part, object, &old)
    }

    /// Stores a changed object, if it may be changed so.
    #[expect(clippy::too_many_arguments, reason = "one step of two requests")]
    fn replace(
        &mut self,
        call: &Call<'_>,
        verb: Verb,
        target: &Target,
        resource: &Arc<Resource>,
        part: Part,
        mut object: Value,
        old: &Arc<Value>,
    ) -> Result<Answer> {
        self.admit(call, resource, &target.subresource, verb, &mut object, Some(old))?;
        self.check_version(resource, target, &mut object, old)?;
        keep_identity(&mut object, old);
        resource.strategy.prepare_update(part, &mut object, old);
        let mut errors = meta::validate(&object, resource.namespaced, &*resource.strategy);
        errors.extend(meta::validate_update(&object, old));
        errors.extend(resource.strategy.validate_update(part, &object, old));
        if !errors.is_empty() {
            errors.extend(resource.strategy.remark(&errors));
            return Err(Refusal::invalid(resource.qualified_kind(), &target.name, &errors));
        }
        if object == **old {
            return Ok(Answer::json(200, resource.printed(old)));
        }
        if call.query.is_dry_run() {
            return Ok(Answer::json(200, resource.printed(&object)));
        }
        let key = resource.key(&target.namespace, &target.name);
        if is_finished(&object, old) {
            self.commit(call, verb, key, None);
            return Ok(Answer::json(200, resource.printed(&object)));
        }
        let stored = self.commit(call, verb, key, Some(object));
        Ok(Answer::json(200, resource.printed(&stored)))
    }

    fn check_version(&self, resource: &Resource, target: &Target, object: &mut Value, old: &Value) -> Result<()> {
        let asked = text(object, &["metadata", "resourceVersion"]);
        let stored = text(old, &["metadata", "resourceVersion"]);
        let invalid = |value: Value, detail: &str| {
            let error = FieldError::invalid("metadata.resourceVersion", &value, detail);
            Err(Refusal::invalid(resource.qualified(), &target.name, &[error]))
        };
        match asked.parse::<u64>() {
            _ if asked.is_empty() && resource.strategy.updates().unconditional => {
                copy(&mut object["metadata"], &old["metadata"], "resourceVersion");
                Ok(())
            }
            _ if asked.is_empty() => invalid(0.into(), "must be specified for an update"),
            Ok(_) if asked == stored => Ok(()),
            Ok(_) => Err(Refusal::conflict(resource.qualified(), &target.name, MODIFIED)),
            Err(_) => invalid(asked.into(), &format!("strconv.ParseUint: parsing {asked:?}: invalid syntax")),
        }
    }
}

/// The name in the object is that in the path.
fn match_name(object: &Value, name: &str) -> Result<()> {
    let own = text(object, &["metadata", "name"]);
    if own == name {
        return Ok(());
    }
    let message = if own.is_empty() {
        format!("the name of the object ({name} based on URL) was undeterminable: name must be provided")
    } else {
        format!("the name of the object ({own}) does not match the name on the URL ({name})")
    };
    Err(Refusal::bad_request(message))
}

/// What no request can change, or only by leaving it out.
fn keep_identity(object: &mut Value, old: &Value) {
    let (meta, old) = (&mut object["metadata"], &old["metadata"]);
    copy(meta, old, "generation");
    copy(meta, old, "creationTimestamp");
    if text(meta, &["uid"]).is_empty() {
        copy(meta, old, "uid");
    }
    if at(old, &["deletionTimestamp"]).is_some() {
        copy(meta, old, "deletionTimestamp");
    }
    if at(meta, &["deletionGracePeriodSeconds"]).is_none() {
        copy(meta, old, "deletionGracePeriodSeconds");
    }
}

/// Whether an object goes with this update: its deletion waited for finalizers only, and none is left.
fn is_finished(object: &Value, old: &Value) -> bool {
    let grace = old["metadata"].get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    list(object, &["metadata", "finalizers"]).is_empty()
        && at(old, &["metadata", "deletionTimestamp"]).is_some()
        && grace == 0
}
