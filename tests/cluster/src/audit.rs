//! The API server's audit log: requests of node agents, and of service accounts that are not the controller manager's.

use std::{fs, path::Path};

use serde::Deserialize;
use serde_json::Value;

/// A request and how it was answered. Writes come with their body.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditRecord {
    /// `ResponseStarted` of a watch that has begun, `ResponseComplete` of a request that has ended.
    #[serde(default)]
    pub stage: String,
    /// The verb.
    pub verb: String,
    /// The user of the request.
    pub user: User,
    /// For what.
    #[serde(default)]
    pub object_ref: Object,
    /// The answer.
    #[serde(default)]
    pub response_status: Status,
    /// The body of a write.
    #[serde(default)]
    pub request_object: Value,
}

/// The user of the request.
#[derive(Clone, Debug, Deserialize)]
pub struct User {
    /// The user's name.
    pub username: String,
}

/// What was asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Object {
    /// The kind, in plural.
    pub resource: String,
    /// A part of it, such as `status`; empty for the whole.
    pub subresource: String,
    /// The namespace; empty if there is none.
    pub namespace: String,
    /// The name; empty for lists.
    pub name: String,
}

/// How a request was answered.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The HTTP status.
    pub code: u16,
}

/// The requests of a user so far. The API server writes an entry after its answer: a test that looks for one waits for it with
/// `keelet_harness::eventually`.
pub fn entries(log: &Path, user: &str) -> Vec<AuditRecord> {
    let text = fs::read_to_string(log).unwrap_or_default();
    // The last line may still be written.
    let whole = text.lines().filter_map(|line| serde_json::from_str::<AuditRecord>(line).ok());
    whole.filter(|entry| entry.user.username == user).collect()
}

// === impl AuditRecord ===

impl AuditRecord {
    /// Whether the request asked for a change.
    pub fn is_write(&self) -> bool {
        ["create", "update", "patch", "delete", "deletecollection"].contains(&self.verb.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::AuditRecord;

    #[test]
    fn an_entry_is_read_as_the_api_server_writes_it() {
        let line = r#"{"kind":"Event","level":"Request","stage":"ResponseComplete","verb":"patch","user":{"username":"system:node:a",
            "groups":["system:nodes"]},"objectRef":{"resource":"nodes","name":"a","apiVersion":"v1","subresource":"status"},
            "responseStatus":{"metadata":{},"code":200},"requestObject":{"status":{}}}"#;
        let entry: AuditRecord = serde_json::from_str(line).expect("an entry");
        assert!(entry.is_write());
        assert_eq!((entry.object_ref.resource.as_str(), entry.object_ref.subresource.as_str()), ("nodes", "status"));
        assert_eq!((entry.response_status.code, entry.object_ref.namespace.as_str()), (200, ""));
    }
}
