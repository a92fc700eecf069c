//! Reading: one object, or a list of them, in pages, as they are now or as they were.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{Answer, Call, Result, Server};
use crate::{
    field::FieldError,
    kinds::selectable_fields,
    refusal::{Qualified, Refusal},
    request::{Query, Target},
    resources::Resource,
    selector::{FieldSelector, LabelSelector},
    store::Unknown,
};

/// Which objects of a collection are meant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
}

/// Which state of a collection is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// The newest.
    Now,
    /// Any, but not one before this revision.
    NotBefore(u64),
    /// Exactly that of this revision.
    Exactly(u64),
}

/// Where a list goes on.
struct Continue {
    /// None for a token that was given out after the first one had expired.
    revision: Option<u64>,
    start: String,
}

const EXPIRED: &str = "The resourceVersion for the provided list is too old.";

// === impl Selection ===

impl Selection {
    pub(super) fn parse(target: &Target, query: &Query, resource: &Resource) -> Result<Self> {
        let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or(""))
            .map_err(|why| Refusal::bad_request(format!("unable to parse requirement: {why}")))?;
        let fields = FieldSelector::parse(query.get("fieldSelector").unwrap_or(""))
            .map_err(|error| Refusal::bad_request(error.to_string()))?;
        let of_meta: &[&str] = match resource.plural.as_str() {
            "nodes" | "namespaces" => &["metadata.name"],
            _ => &["metadata.name", "metadata.namespace"],
        };
        let known = resource.strategy.selectable();
        for requirement in &fields.0 {
            let field = requirement.field.as_str();
            if !known.contains(&field) && !of_meta.contains(&field) {
                return Err(Refusal::bad_request(if known.is_empty() {
                    format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
                } else {
                    format!("field label not supported: {field}")
                }));
            }
        }
        debug_assert!(!target.named, "a collection has no name in its path");
        Ok(Self { labels, fields })
    }

    pub(super) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, resource: &Resource, object: &Value) -> bool {
        self.labels.matches(object["metadata"].get("labels"))
            && (self.fields.is_empty() || self.fields.matches(&selectable_fields(&*resource.strategy, object)))
    }
}

// === impl When ===

impl When {
    /// Reads `resourceVersion` and `resourceVersionMatch`.
    fn parse(query: &Query, paged: bool) -> Result<Self> {
        let version = version(query)?;
        let matched = query.get("resourceVersionMatch");
        let mut errors = Vec::new();
        let field = "resourceVersionMatch";
        if let Some(matched) = matched {
            if query.get("resourceVersion").is_none() {
                let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                errors.push(FieldError::forbidden(field, detail));
            }
            if query.get("continue").is_some() {
                let detail = "resourceVersionMatch is forbidden when continue is provided";
                errors.push(FieldError::forbidden(field, detail));
            }
            if !["Exact", "NotOlderThan"].contains(&matched) {
                errors.push(FieldError::not_supported(field, &matched.into(), &["Exact", "NotOlderThan", ""]));
            }
            if matched == "Exact" && version == Some(0) {
                let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                errors.push(FieldError::forbidden(field, detail));
            }
        }
        if query.switch("sendInitialEvents").is_some() {
            let detail = "sendInitialEvents is forbidden for list";
            errors.push(FieldError::forbidden("sendInitialEvents", detail));
        }
        invalid_options(&errors)?;
        Ok(match (version, matched) {
            (None, _) => Self::Now,
            (Some(version), Some("Exact")) => Self::Exactly(version),
            (Some(version), None) if paged && version > 0 => Self::Exactly(version),
            (Some(version), _) => Self::NotBefore(version),
        })
    }
}

/// Refuses options of a list or watch.
pub(super) fn invalid_options(errors: &[FieldError]) -> Result<()> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(Refusal::invalid(Qualified { group: "meta.k8s.io", name: "ListOptions" }, "", errors))
}

/// The resourceVersion of a query.
pub(super) fn version(query: &Query) -> Result<Option<u64>> {
    let Some(text) = query.get("resourceVersion") else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        let detail = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
        let error = FieldError::invalid("resourceVersion", &text.into(), &detail);
        Refusal::bad_request(format!("resourceVersion: {}", error.body()))
    })
}

// === impl Continue ===

impl Continue {
    fn parse(token: &str) -> Result<Self> {
        let invalid = |why: &str| Refusal::bad_request(format!("continue key is not valid: {why}"));
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).map_err(|error| invalid(&error.to_string()))?;
        let token: Value = serde_json::from_slice(&bytes).map_err(|error| invalid(&error.to_string()))?;
        if token["v"] != "meta.k8s.io/v1" {
            return Err(invalid("server does not recognize this encoded version"));
        }
        let start = token["start"].as_str().unwrap_or("").to_owned();
        match token["rv"].as_i64() {
            _ if start.is_empty() => Err(invalid("encoded start key empty (version meta.k8s.io/v1)")),
            Some(-1) => Ok(Self { revision: None, start }),
            Some(revision @ 1..) => Ok(Self { revision: u64::try_from(revision).ok(), start }),
            _ => Err(invalid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")),
        }
    }

    fn token(revision: i64, start: &str) -> String {
        let token = json!({ "v": "meta.k8s.io/v1", "rv": revision, "start": start });
        BASE64_URL_SAFE_NO_PAD.encode(token.to_string())
    }
}

// === impl Server ===

impl Server {
    pub(super) fn get(&self, call: &Call<'_>, target: &Target, resource: &Resource) -> Result<Answer> {
        let key = resource.key(&target.namespace, &target.name);
        // With a resourceVersion the object may be an older one, but not older than that.
        let newest = self.store.revision();
        let wanted = version(&call.query)?;
        let least = wanted.unwrap_or(if call.breaks_promise { 0 } else { newest });
        if least > newest {
            return Err(Refusal::too_large_version(least, newest));
        }
        let revision = call.shown.max(least);
        let found = if revision < newest {
            let objects = self.store.list_at(&resource.stored, &key.namespace, revision);
            objects.ok().and_then(|objects| objects.get(&key.path()).cloned())
        } else {
            self.store.get(&key).cloned()
        };
        let Some(object) = found else { return Err(Refusal::not_found(resource.qualified(), &target.name)) };
        if call.wants_metadata() {
            return Ok(Answer::json(200, Resource::printed_metadata(&object)));
        }
        Ok(Answer::json(200, resource.printed(&object)))
    }

    pub(super) fn list(&self, call: &Call<'_>, target: &Target, resource: &Resource) -> Result<Answer> {
        let selection = Selection::parse(target, &call.query, resource)?;
        let limit =
            call.query.number("limit")?.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
        let when = When::parse(&call.query, limit.is_some())?;
        let token = call.query.get("continue").map(Continue::parse).transpose()?;
        if token.is_some() && !matches!(when, When::Now | When::NotBefore(0)) {
            return Err(Refusal::bad_request("specifying resource version is not allowed when using continue"));
        }
        let (revision, mut objects) = self.objects(call, target, resource, when, token.as_ref())?;
        if let Some(token) = &token {
            objects = objects.split_off(&token.start);
        }
        let mut items = Vec::new();
        let mut next = None;
        let mut seen = 0;
        let mut last = "";
        let all = objects.len();
        for (path, object) in &objects {
            if limit.is_some_and(|limit| items.len() == limit) {
                next = Some(Continue::token(i64::try_from(revision).unwrap_or(i64::MAX), &format!("{last}\0")));
                break;
            }
            seen += 1;
            last = path;
            if selection.matches(resource, object) {
                items.push(if call.wants_metadata() {
                    Resource::printed_metadata(object)
                } else {
                    resource.printed_in_list(object)
                });
            }
        }
        let mut meta = json!({ "resourceVersion": revision.to_string() });
        if let Some(next) = next {
            meta["continue"] = next.into();
            if selection.is_everything() {
                meta["remainingItemCount"] = (all - seen).into();
            }
        }
        let (kind, version) = if call.wants_metadata() {
            ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned())
        } else {
            (format!("{}List", resource.kind), resource.api_version())
        };
        Ok(Answer::json(200, json!({ "kind": kind, "apiVersion": version, "metadata": meta, "items": items })))
    }

    /// The objects of a collection at the revision that is meant.
    fn objects(
        &self,
        call: &Call<'_>,
        target: &Target,
        resource: &Resource,
        when: When,
        token: Option<&Continue>,
    ) -> Result<(u64, BTreeMap<String, Arc<Value>>)> {
        let newest = self.store.revision();
        let shown = call.shown.min(newest);
        let revision = match (when, token) {
            (_, Some(token)) => token.revision.unwrap_or(newest),
            (When::Now, None) if call.breaks_promise => shown,
            (When::Now, None) => newest,
            (When::NotBefore(least), None) if least > newest => return Err(Refusal::too_large_version(least, newest)),
            (When::NotBefore(least), None) => shown.max(least),
            (When::Exactly(revision), None) => revision,
        };
        let namespace = if resource.namespaced { target.namespace.as_str() } else { "" };
        match self.store.list_at(&resource.stored, namespace, revision) {
            Ok(objects) => Ok((revision, objects)),
            Err(Unknown::Future) => Err(Refusal::too_large_version(revision, newest)),
            Err(Unknown::Compacted) => Err(match token {
                Some(token) => Refusal::expired_continue(Continue::token(-1, &token.start)),
                None => Refusal::expired(EXPIRED),
            }),
        }
    }
}
