//! Debug output of messages that contain secrets.

use std::fmt;

use crate::v1::AuthConfig;

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

#[cfg(test)]
mod tests {
    use super::*;

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
