//! The fields about the HTTPS server of a node of a cluster.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;

use super::{Checker, Raw};

/// What a configuration file says about the HTTPS server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpsConfig {
    /// Where it listens.
    pub address: Option<IpAddr>,
    /// The port; 0 for none.
    pub port: Option<u16>,
    /// `enableServer: false` is another way to have none.
    pub disabled: bool,
    /// Its certificate.
    pub certificate: Option<PathBuf>,
    /// The key of its certificate.
    pub private_key: Option<PathBuf>,
    /// The oldest version of TLS.
    pub min_version: Option<TlsVersion>,
    /// Certificates of the authority of clients.
    pub client_ca: Option<PathBuf>,
    /// Whether clients need neither a certificate nor a token.
    pub anonymous: bool,
    /// How it is decided what clients may do, if not by the API server.
    pub authorization_mode: Option<String>,
    /// Whether tokens of clients are accepted.
    pub tokens: Option<bool>,
    /// How long it is remembered which user a token stands for.
    pub token_lasts: Option<Duration>,
    /// How long it is remembered that a user may do something.
    pub allowed_lasts: Option<Duration>,
    /// How long it is remembered that a user may not.
    pub denied_lasts: Option<Duration>,
    /// Whether logs, commands and ports are served.
    pub debugging: Option<bool>,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// 1.2
    Tls12,
    /// 1.3
    Tls13,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Authentication {
    x509: Option<X509>,
    webhook: Option<TokenWebhook>,
    anonymous: Option<Anonymous>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct X509 {
    #[serde(rename = "clientCAFile")]
    client_ca_file: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TokenWebhook {
    enabled: Option<bool>,
    #[serde(rename = "cacheTTL")]
    cache_ttl: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Anonymous {
    enabled: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Authorization {
    mode: Option<String>,
    webhook: Option<AccessWebhook>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AccessWebhook {
    #[serde(rename = "cacheAuthorizedTTL")]
    authorized: Option<String>,
    #[serde(rename = "cacheUnauthorizedTTL")]
    unauthorized: Option<String>,
}

// === impl Checker ===

impl Checker<'_> {
    pub(super) fn https(&mut self, raw: &Raw, directory: &Path) -> HttpsConfig {
        let path =
            |text: &Option<String>| text.clone().filter(|text| !text.is_empty()).map(|text| directory.join(text));
        let authentication = raw.authentication.clone().unwrap_or_default();
        let authorization = raw.authorization.clone().unwrap_or_default();
        let tokens = authentication.webhook.unwrap_or_default();
        let access = authorization.webhook.unwrap_or_default();
        let certificate = path(&raw.tls_cert_file);
        let private_key = path(&raw.tls_private_key_file);
        if certificate.is_some() != private_key.is_some() {
            let (given, missing) = match certificate {
                Some(_) => ("tlsCertFile", "tlsPrivateKeyFile"),
                None => ("tlsPrivateKeyFile", "tlsCertFile"),
            };
            let value =
                certificate.as_ref().or(private_key.as_ref()).map(|path| format!("{:?}", path.display().to_string()));
            self.object.refuse(given, &value.unwrap_or_default(), format!("needs {missing} beside it"));
        }
        HttpsConfig {
            address: self.address("address", raw.address.clone()),
            port: self.port("port", raw.port),
            disabled: raw.enable_server == Some(false),
            certificate,
            private_key,
            min_version: self.tls_version(raw.tls_min_version.as_deref()),
            client_ca: path(&authentication.x509.unwrap_or_default().client_ca_file),
            anonymous: authentication.anonymous.and_then(|anonymous| anonymous.enabled) == Some(true),
            authorization_mode: authorization.mode.filter(|mode| !mode.is_empty() && mode != "Webhook"),
            tokens: tokens.enabled,
            token_lasts: self.duration("authentication.webhook.cacheTTL", tokens.cache_ttl),
            allowed_lasts: self.duration("authorization.webhook.cacheAuthorizedTTL", access.authorized),
            denied_lasts: self.duration("authorization.webhook.cacheUnauthorizedTTL", access.unauthorized),
            debugging: raw.enable_debugging_handlers,
        }
    }

    fn tls_version(&mut self, name: Option<&str>) -> Option<TlsVersion> {
        match name {
            None | Some("") => None,
            Some("VersionTLS12") => Some(TlsVersion::Tls12),
            Some("VersionTLS13") => Some(TlsVersion::Tls13),
            Some(other) => {
                let message = "must be \"VersionTLS12\" or \"VersionTLS13\"";
                self.object.refuse("tlsMinVersion", &format!("{other:?}"), message);
                None
            }
        }
    }
}

// === impl HttpsConfig ===

impl HttpsConfig {
    /// Fields that are different in another version of the file. None of them takes effect while the agent runs; the contents of the files
    /// that they name do.
    pub(super) fn changes(&self, new: &Self) -> [(&'static str, bool); 9] {
        [
            ("address", self.address != new.address),
            ("port", self.port != new.port),
            ("enableServer", self.disabled != new.disabled),
            ("tlsCertFile", self.certificate != new.certificate),
            ("tlsPrivateKeyFile", self.private_key != new.private_key),
            ("tlsMinVersion", self.min_version != new.min_version),
            (
                "authentication",
                (&self.client_ca, self.anonymous, self.tokens, self.token_lasts)
                    != (&new.client_ca, new.anonymous, new.tokens, new.token_lasts),
            ),
            (
                "authorization",
                (&self.authorization_mode, self.allowed_lasts, self.denied_lasts)
                    != (&new.authorization_mode, new.allowed_lasts, new.denied_lasts),
            ),
            ("enableDebuggingHandlers", self.debugging != new.debugging),
        ]
    }
}
