//! Questions to the server that store nothing: the user of a token, and what a user may do; and tokens of service accounts.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Answer, Call, Result, Server};
use crate::{
    access::{Attributes, Decision, Identity},
    clock::printed,
    field::FieldError,
    json::{at, list, number, text},
    refusal::{Qualified, Refusal},
    request::{Target, Verb},
    store::Key,
};

/// A token that was given out.
#[derive(Clone, Debug)]
pub(super) struct Token {
    identity: Identity,
    uid: String,
    audiences: Vec<Value>,
    expires: Timestamp,
}

const TOKEN_SECONDS: i64 = 3600;
const LEAST_TOKEN_SECONDS: i64 = 600;
/// The audience of the server itself.
const AUDIENCE: &str = "https://kubernetes.default.svc.cluster.local";

/// Reads an object of no particular kind, with a spec.
fn read(body: &[u8]) -> Result<Value> {
    let object: Value = serde_json::from_slice(body).map_err(|error| Refusal::bad_request(error.to_string()))?;
    if !object.is_object() || object.get("spec").is_some_and(|spec| !spec.is_object()) {
        return Err(Refusal::bad_request("the object provided is unrecognized"));
    }
    Ok(object)
}

impl Server {
    /// Answers a review; `None` if the request is not one.
    pub(super) fn review(&self, call: &Call<'_>, target: &Target) -> Option<Result<Answer>> {
        let known = [
            ("authentication.k8s.io", "tokenreviews"),
            ("authorization.k8s.io", "subjectaccessreviews"),
            ("authorization.k8s.io", "localsubjectaccessreviews"),
            ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ];
        if !known.contains(&(target.group.as_str(), target.resource.as_str())) || target.version != "v1" {
            return None;
        }
        if target.verb != Verb::Create {
            return Some(Err(Refusal::no_such_method()));
        }
        let mut review = match read(call.body) {
            Ok(review) => review,
            Err(refusal) => return Some(Err(refusal)),
        };
        review["metadata"] = json!({});
        review["status"] = match target.resource.as_str() {
            "tokenreviews" => self.token_status(&review, call.now),
            "selfsubjectaccessreviews" => self.access_status(&review["spec"], call.identity),
            _ => {
                let spec = &review["spec"];
                let groups: Vec<&str> = list(spec, &["groups"]).iter().filter_map(Value::as_str).collect();
                let mut identity = Identity::user(text(spec, &["user"]), &[]);
                // Exactly the groups that are asked about.
                identity.groups = groups.into_iter().map(str::to_owned).collect();
                self.access_status(spec, &identity)
            }
        };
        Some(Ok(Answer::json(201, review)))
    }

    fn access_status(&self, spec: &Value, identity: &Identity) -> Value {
        let asked = &spec["resourceAttributes"];
        let of = |key: &str| text(asked, &[key]);
        let attributes = Attributes {
            verb: of("verb"),
            group: of("group"),
            resource: of("resource"),
            subresource: of("subresource"),
            namespace: of("namespace"),
            name: of("name"),
            field_selector: "",
        };
        match self.access.decide(identity, &attributes, &self.store) {
            Decision::Allowed => json!({ "allowed": true }),
            Decision::Denied(why) if why.is_empty() => json!({ "allowed": false }),
            Decision::Denied(why) => json!({ "allowed": false, "reason": why }),
        }
    }

    fn token_status(&self, review: &Value, now: Timestamp) -> Value {
        let token = self.tokens.get(text(review, &["spec", "token"])).filter(|token| token.expires > now);
        let Some(token) = token else {
            return json!({ "user": {}, "error": "invalid bearer token" });
        };
        let asked = list(review, &["spec", "audiences"]);
        let own = [AUDIENCE.into()];
        let asked = if asked.is_empty() { &own[..] } else { asked };
        let shared: Vec<&Value> = token.audiences.iter().filter(|audience| asked.contains(audience)).collect();
        if shared.is_empty() {
            return json!({ "user": {}, "error": "token audiences do not match" });
        }
        let user = json!({ "username": token.identity.user, "uid": token.uid, "groups": token.identity.groups });
        json!({ "authenticated": true, "user": user, "audiences": shared })
    }

    /// A token for a service account, bound to a pod if the client asks for that.
    pub(super) fn request_token(&mut self, call: &Call<'_>, target: &Target) -> Result<Answer> {
        let mut request = read(call.body)?;
        let accounts = Qualified { group: "", name: "serviceaccounts" };
        let key = |resource: &str, name: &str| Key {
            resource: resource.into(),
            namespace: target.namespace.clone(),
            name: name.to_owned(),
        };
        let Some(account) = self.store.get(&key("serviceaccounts", &target.name)) else {
            return Err(Refusal::not_found(accounts, &target.name));
        };
        let uid = text(account, &["metadata", "uid"]).to_owned();
        if let Some(bound) = at(&request, &["spec", "boundObjectRef"]) {
            let name = text(bound, &["name"]);
            let Some(pod) = self.store.get(&key("pods", name)) else {
                return Err(Refusal::not_found(Qualified { group: "", name: "pods" }, name));
            };
            let (asked, own) = (text(bound, &["uid"]), text(pod, &["metadata", "uid"]));
            if !asked.is_empty() && asked != own {
                let why = format!(
                    "the UID in the bound object reference ({asked}) does not match the UID in record. The object might have been deleted and then recreated"
                );
                return Err(Refusal::conflict(Qualified { group: "", name: "Pod" }, name, &why));
            }
            if call.identity.node_name().is_some_and(|node| text(pod, &["spec", "nodeName"]) != node) {
                let why = "node requested token bound to a pod scheduled on a different node";
                return Err(Refusal::forbidden(accounts, &target.name, why));
            }
        } else if call.identity.node_name().is_some() {
            return Err(Refusal::forbidden(accounts, &target.name, "node requested token not bound to a pod"));
        }
        let seconds = number(&request, &["spec", "expirationSeconds"]).unwrap_or(TOKEN_SECONDS);
        if seconds < LEAST_TOKEN_SECONDS {
            let detail = "may not specify a duration less than 10 minutes";
            let error = FieldError::invalid("spec.expirationSeconds", &seconds.into(), detail);
            let kind = Qualified { group: "authentication.k8s.io", name: "TokenRequest" };
            return Err(Refusal::invalid(kind, "", &[error]));
        }
        let mut audiences = list(&request, &["spec", "audiences"]).to_vec();
        if audiences.is_empty() {
            audiences.push(AUDIENCE.into());
        }
        let expires = call.now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(call.now);
        // Opaque to clients, which is all that they may assume of a token.
        let token = format!("simulated.{}", self.uid());
        let identity = Identity::service_account(&target.namespace, &target.name);
        self.tokens.insert(token.clone(), Token { identity, uid, audiences: audiences.clone(), expires });
        request["kind"] = "TokenRequest".into();
        request["apiVersion"] = "authentication.k8s.io/v1".into();
        request["spec"]["expirationSeconds"] = seconds.into();
        request["spec"]["audiences"] = audiences.into();
        request["metadata"] =
            json!({ "name": target.name, "namespace": target.namespace, "creationTimestamp": printed(call.now) });
        request["status"] = json!({ "token": token, "expirationTimestamp": printed(expires) });
        Ok(Answer::json(201, request))
    }
}
