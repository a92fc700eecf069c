//! Deletion: at once, after a grace period, or when the last finalizer has gone.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Answer, Call, Result, Server, list::Selection};
use crate::{
    clock::printed,
    field::FieldError,
    json::{at, list, number, object as object_at, text},
    refusal::{Qualified, Refusal},
    request::{Query, Target, Verb},
    resources::Resource,
};

/// What a client says about a deletion.
#[derive(Clone, Debug, Default)]
struct Options {
    grace: Option<i64>,
    uid: Option<String>,
    version: Option<String>,
    propagation: Option<String>,
    orphan: Option<bool>,
    dry_run: bool,
}

/// What is to be done with an object.
enum Deletion {
    /// It goes now.
    Now,
    /// It is marked and stays.
    Marked(Box<Value>),
    /// It is being deleted already, and nothing changes.
    UnderWay,
}

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

// === impl Options ===

impl Options {
    fn parse(body: &[u8], query: &Query) -> Result<Self> {
        let options = if body.iter().all(u8::is_ascii_whitespace) {
            Self {
                grace: query.number("gracePeriodSeconds")?,
                propagation: query.get("propagationPolicy").map(str::to_owned),
                orphan: query.switch("orphanDependents"),
                dry_run: query.is_dry_run(),
                ..Self::default()
            }
        } else {
            let body: Value = serde_json::from_slice(body).map_err(|error| Refusal::bad_request(error.to_string()))?;
            let condition = |key: &str| at(&body, &["preconditions", key]).and_then(Value::as_str).map(str::to_owned);
            Self {
                grace: number(&body, &["gracePeriodSeconds"]),
                uid: condition("uid"),
                version: condition("resourceVersion"),
                propagation: at(&body, &["propagationPolicy"]).and_then(Value::as_str).map(str::to_owned),
                orphan: at(&body, &["orphanDependents"]).and_then(Value::as_bool),
                dry_run: list(&body, &["dryRun"]).iter().any(|value| value == "All"),
            }
        };
        let known = ["Foreground", "Background", "Orphan"];
        let mut errors = Vec::new();
        if let Some(policy) = &options.propagation {
            let value = policy.as_str().into();
            if options.orphan.is_some() {
                let detail = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid("propagationPolicy", &value, detail));
            }
            if !known.contains(&policy.as_str()) {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported("propagationPolicy", &value, &supported));
            }
        }
        if !errors.is_empty() {
            return Err(Refusal::invalid(Qualified { group: "meta.k8s.io", name: "DeleteOptions" }, "", &errors));
        }
        Ok(options)
    }

    /// The finalizers that an object is to have once it is being deleted.
    fn finalizers(&self, resource: &Resource, object: &Value) -> Vec<Value> {
        let mut finalizers: Vec<Value> = list(object, &["metadata", "finalizers"]).to_vec();
        if resource.plural == "events" {
            return finalizers;
        }
        let has = |name: &str| list(object, &["metadata", "finalizers"]).iter().any(|finalizer| finalizer == name);
        let policy = match (self.orphan, self.propagation.as_deref()) {
            (Some(orphan), _) => Some(if orphan { "Orphan" } else { "Background" }),
            (None, policy) => policy,
        };
        let orphan = policy.map_or(has(ORPHAN), |policy| policy == "Orphan");
        let foreground = policy.map_or(has(FOREGROUND) && !has(ORPHAN), |policy| policy == "Foreground");
        finalizers.retain(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND);
        finalizers.extend(orphan.then(|| ORPHAN.into()));
        finalizers.extend(foreground.then(|| FOREGROUND.into()));
        finalizers
    }
}

// === impl Server ===

impl Server {
    pub(super) fn delete(&mut self, call: &Call<'_>, target: &Target, resource: &Arc<Resource>) -> Result<Answer> {
        let options = Options::parse(call.body, &call.query)?;
        let (deleted, gone) =
            self.delete_one(call, Verb::Delete, resource, &target.namespace, &target.name, &options)?;
        let answers_with_object = resource.strategy.answers_with_deleted() || !gone && !is_status(&deleted);
        let code = if !gone && options.orphan == Some(false) { 202 } else { 200 };
        if answers_with_object && !is_status(&deleted) {
            return Ok(Answer::json(code, resource.printed(&deleted)));
        }
        let mut details = json!({ "name": target.name, "kind": resource.plural, "uid": deleted["metadata"]["uid"] });
        if !resource.group.is_empty() {
            details["group"] = resource.group.as_str().into();
        }
        Ok(Answer::json(
            code,
            json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details }),
        ))
    }

    pub(super) fn delete_collection(
        &mut self,
        call: &Call<'_>,
        target: &Target,
        resource: &Arc<Resource>,
    ) -> Result<Answer> {
        let selection = Selection::parse(target, &call.query, resource)?;
        let options = Options::parse(call.body, &call.query)?;
        let names: Vec<(String, String)> = self
            .store
            .list(&resource.stored, &target.namespace)
            .filter(|(_, object)| selection.matches(resource, object))
            .map(|(_, object)| {
                let meta = |key: &str| text(object, &["metadata", key]).to_owned();
                (meta("namespace"), meta("name"))
            })
            .collect();
        let mut items = Vec::new();
        for (namespace, name) in names {
            let (object, _) = self.delete_one(call, Verb::DeleteCollection, resource, &namespace, &name, &options)?;
            items.push(resource.printed_in_list(&object));
        }
        Ok(Answer::json(
            200,
            json!({
                "kind": format!("{}List", resource.kind),
                "apiVersion": resource.api_version(),
                "metadata": { "resourceVersion": self.store.revision().to_string() },
                "items": items,
            }),
        ))
    }

    /// Deletes one object; what is left of it, and whether it is gone.
    fn delete_one(
        &mut self,
        call: &Call<'_>,
        verb: Verb,
        resource: &Arc<Resource>,
        namespace: &str,
        name: &str,
        options: &Options,
    ) -> Result<(Arc<Value>, bool)> {
        let key = resource.key(namespace, name);
        let Some(old) = self.store.get(&key).cloned() else {
            return Err(Refusal::not_found(resource.qualified(), name));
        };
        check_preconditions(resource, &old, name, options)?;
        let deletion = deletion_of(resource, &old, options, call.now);
        if matches!(deletion, Deletion::UnderWay) {
            return Ok((old, false));
        }
        let mut nothing = Value::Null;
        self.admit(call, resource, "", verb, &mut nothing, Some(&old))?;
        match deletion {
            Deletion::UnderWay => Ok((old, false)),
            Deletion::Marked(object) if options.dry_run => Ok((Arc::new(*object), false)),
            Deletion::Marked(object) => Ok((self.commit(call, verb, key, Some(*object)), false)),
            Deletion::Now if options.dry_run => Ok((old, true)),
            Deletion::Now => {
                self.commit(call, verb, key, None);
                let mut last = (*old).clone();
                last["metadata"]["resourceVersion"] = self.store.revision().to_string().into();
                if resource.strategy.grace(&old, None).is_some()
                    && at(&old, &["metadata", "deletionTimestamp"]).is_none()
                {
                    mark(&mut last, 0, call.now);
                }
                Ok((Arc::new(last), true))
            }
        }
    }
}

fn is_status(value: &Value) -> bool {
    value["kind"] == "Status"
}

fn check_preconditions(resource: &Resource, object: &Value, name: &str, options: &Options) -> Result<()> {
    let kind = resource.qualified_kind();
    let uid = text(object, &["metadata", "uid"]);
    if let Some(asked) = options.uid.as_deref().filter(|asked| *asked != uid) {
        let why = format!(
            "the UID in the precondition ({asked}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        );
        return Err(Refusal::conflict(kind, name, &why));
    }
    let version = text(object, &["metadata", "resourceVersion"]);
    if let Some(asked) = options.version.as_deref().filter(|asked| *asked != version) {
        let why = format!(
            "the ResourceVersion in the precondition ({asked}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        );
        return Err(Refusal::conflict(kind, name, &why));
    }
    Ok(())
}

fn deletion_of(resource: &Resource, old: &Value, options: &Options, now: Timestamp) -> Deletion {
    let asked = options.grace.map(|grace| if grace < 0 { 1 } else { grace });
    let graceful = resource.strategy.grace(old, asked);
    let deleting = at(old, &["metadata", "deletionTimestamp"]).is_some();
    let left = number(old, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0);
    let finalizers = options.finalizers(resource, old);
    let mut object = old.clone();
    let mut graceful_mark = false;
    if let Some(grace) = graceful {
        if deleting && left > 0 {
            match asked {
                Some(asked) if asked < left => {
                    shorten(&mut object, asked, left, now);
                    graceful_mark = true;
                }
                _ => return Deletion::UnderWay,
            }
        } else if !deleting && (grace > 0 || !finalizers.is_empty()) {
            mark(&mut object, grace, now);
            graceful_mark = true;
        }
    }
    if !graceful_mark && !finalizers.is_empty() {
        // No grace period: the object waits for its finalizers alone.
        if !deleting {
            mark(&mut object, 0, now);
        } else {
            object["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        }
        graceful_mark = true;
    }
    let waits = number(&object, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0) > 0;
    if !graceful_mark || (finalizers.is_empty() && !waits) {
        return Deletion::Now;
    }
    let had = list(old, &["metadata", "finalizers"]);
    if !finalizers.is_empty() || !had.is_empty() {
        object_at(&mut object, "metadata").insert("finalizers".to_owned(), finalizers.into());
    }
    if object == *old {
        return Deletion::UnderWay;
    }
    Deletion::Marked(Box::new(object))
}

/// From now on the object is being deleted.
fn mark(object: &mut Value, grace: i64, now: Timestamp) {
    let end = now.saturating_add(SignedDuration::from_secs(grace)).unwrap_or(now);
    let meta = &mut object["metadata"];
    meta["deletionTimestamp"] = printed(end).into();
    meta["deletionGracePeriodSeconds"] = grace.into();
    if let Some(generation @ 1..) = meta.get("generation").and_then(Value::as_i64) {
        meta["generation"] = (generation + 1).into();
    }
}

/// A second deletion may only shorten the grace period, and never moves the end into the past.
fn shorten(object: &mut Value, asked: i64, left: i64, now: Timestamp) {
    let meta = &mut object["metadata"];
    let end: Timestamp = text(meta, &["deletionTimestamp"]).parse().unwrap_or(now);
    let wanted = end.saturating_sub(SignedDuration::from_secs(left - asked)).unwrap_or(now);
    let (end, grace) = if wanted < now { (now, asked.min(1)) } else { (wanted, asked) };
    meta["deletionTimestamp"] = printed(end).into();
    meta["deletionGracePeriodSeconds"] = grace.into();
}
