//! Debug output of messages that contain secrets.

use std::fmt;

use crate::v1::{AuthConfig, KeyValue};

// === impl AuthConfig ===

impl fmt::Debug for AuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = |secret: &str| if secret.is_empty() { "" } else { "(hidden)" };
        f.debug_struct("AuthConfig")
            .field("username", &self.username)
            .field("password", &hidden(&self.password))
            .field("auth", &hidden(&self.auth))
            .field("server_address", &self.server_address)
            .field("identity_token", &hidden(&self.identity_token))
            .field("registry_token", &hidden(&self.registry_token))
            .finish()
    }
}

// === impl KeyValue ===

/// A variable of a container, whose value may come from a secret.
impl fmt::Debug for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.key, self.value.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{ContainerConfig, CreateContainerRequest};

    /// CLU-31: a variable may have its value from a secret.
    #[test]
    fn values_of_variables_are_not_shown() {
        let envs = vec![KeyValue { key: "PASSWORD".to_owned(), value: "hush".into() }];
        let config = ContainerConfig { envs, ..ContainerConfig::default() };
        let request = CreateContainerRequest { config: Some(config), ..CreateContainerRequest::default() };
        let shown = format!("{request:?}");
        assert!(shown.contains("PASSWORD (4 bytes)") && !shown.contains("104, 117"), "{shown}");
    }

    #[test]
    fn secrets_are_not_shown() {
        let auth = AuthConfig {
            username: "me".into(),
            password: "hush".into(),
            auth: "hush".into(),
            identity_token: "hush".into(),
            registry_token: "hush".into(),
            ..AuthConfig::default()
        };
        let shown = format!("{auth:?}");
        assert!(shown.contains("me") && !shown.contains("hush"), "{shown}");
    }
}
