//! Credentials for registries.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::error::{At, CredentialsFault, Error};

/// Credentials for a registry.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Auth {
    /// none
    #[default]
    Anonymous,
    /// a name and a password
    Basic {
        /// the name
        username: String,
        /// the password
        password: String,
    },
    /// a token that is sent as it is
    Token(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DockerConfig {
    #[serde(default)]
    auths: Option<BTreeMap<String, DockerEntry>>,
    #[serde(default)]
    cred_helpers: Option<BTreeMap<String, String>>,
    #[serde(default)]
    creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DockerEntry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

/// Where docker keeps its configuration: below `$DOCKER_CONFIG`, else below the home directory.
pub fn docker_config_path() -> Option<PathBuf> {
    let directory = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".docker"));
    Some(directory.or_else(home)?.join("config.json"))
}

/// The credentials in a docker configuration for a registry and repository. A missing file has none.
pub fn docker_auth(path: &Path, registry: &str, repository: &str) -> Result<Auth, Error> {
    let content = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Auth::Anonymous),
        content => content.at("read", path)?,
    };
    docker_auth_in(&content, registry, repository).map_err(|reason| Error::Credentials { path: path.into(), reason })
}

/// The same for a configuration in memory.
pub fn docker_auth_in(content: &[u8], registry: &str, repository: &str) -> Result<Auth, CredentialsFault> {
    let config: DockerConfig =
        serde_json::from_slice(content).map_err(|error| CredentialsFault::Syntax(error.to_string()))?;
    let full = format!("{}/{repository}", host_of(registry));
    let helper = config.cred_helpers.iter().flatten().find(|(key, _)| covers(key, &full));
    if let Some((key, helper)) = helper {
        return Err(CredentialsFault::Helper { key: key.clone(), helper: helper.clone() });
    }
    // The most specific entry wins: `host/team` before `host`.
    let entries = config.auths.iter().flatten().filter(|(key, _)| covers(key, &full));
    let Some((key, entry)) = entries.max_by_key(|(key, _)| plain(key).len()) else { return Ok(Auth::Anonymous) };
    match (read_entry(key, entry)?, &config.creds_store) {
        (Some(auth), _) => Ok(auth),
        (None, Some(store)) => Err(CredentialsFault::Helper { key: key.clone(), helper: store.clone() }),
        (None, None) => Ok(Auth::Anonymous),
    }
}

fn read_entry(key: &str, entry: &DockerEntry) -> Result<Option<Auth>, CredentialsFault> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if let Some(token) = given(&entry.registrytoken) {
        return Ok(Some(Auth::Token(token)));
    }
    if given(&entry.identitytoken).is_some() {
        return Err(CredentialsFault::IdentityToken { key: key.to_owned() });
    }
    if let Some(auth) = given(&entry.auth) {
        let wrong = || CredentialsFault::Basic { key: Some(key.to_owned()) };
        return decode_basic(&auth).map(Some).ok_or_else(wrong);
    }
    Ok(match (given(&entry.username), given(&entry.password)) {
        (Some(username), Some(password)) => Some(Auth::Basic { username, password }),
        _ => None,
    })
}

/// Name and password in base64; `None` if the text is something else.
fn decode_basic(auth: &str) -> Option<Auth> {
    let bytes = STANDARD.decode(auth.trim()).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (username, password) = text.split_once(':')?;
    // Some versions of docker end the text with zeros.
    Some(Auth::Basic { username: username.to_owned(), password: password.trim_end_matches('\0').to_owned() })
}

/// Keys come as hosts, as addresses and with paths.
fn plain(key: &str) -> &str {
    let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let key = key.trim_end_matches('/');
    key.strip_suffix("/v1").or_else(|| key.strip_suffix("/v2")).unwrap_or(key)
}

/// Docker's own registry has several names.
fn host_of(registry: &str) -> &str {
    match registry {
        "index.docker.io" | "registry-1.docker.io" => "docker.io",
        host => host,
    }
}

/// Whether a key is the registry, or the registry with the first parts of the repository.
fn covers(key: &str, full: &str) -> bool {
    let key = plain(key);
    let (host, path) = key.split_once('/').unwrap_or((key, ""));
    let key = if path.is_empty() { host_of(host).to_owned() } else { format!("{}/{path}", host_of(host)) };
    full.strip_prefix(key.as_str()).is_some_and(|rest| rest.starts_with('/') || rest.is_empty())
}

// === impl Auth ===

impl Auth {
    /// From the base64 text `NAME:PASSWORD` that pull secrets have.
    pub fn from_base64(text: &str) -> Result<Self, Error> {
        let reason = CredentialsFault::Basic { key: None };
        decode_basic(text).ok_or_else(|| Error::Credentials { path: PathBuf::from("credentials"), reason })
    }
}

/// Secrets must not appear in logs.
impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anonymous => write!(f, "Anonymous"),
            Self::Basic { username, .. } => write!(f, "Basic({username}, ...)"),
            Self::Token(_) => write!(f, "Token(...)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basic(username: &str, password: &str) -> Auth {
        Auth::Basic { username: username.into(), password: password.into() }
    }

    #[test]
    fn the_most_specific_entry_is_chosen() {
        let config = br#"{"auths":{
            "https://index.docker.io/v1/":{"auth":"aHViOnNlY3JldA=="},
            "registry.example:5000":{"auth":"aG9zdDpwYQ=="},
            "registry.example:5000/team":{"username":"team","password":"x:y"},
            "http://plain.example/":{"auth":"cDpxOnI="},
            "token.example":{"registrytoken":"t"},
            "empty.example":{}}}"#;
        for (registry, repository, expected) in [
            ("docker.io", "library/busybox", basic("hub", "secret")),
            ("registry.example:5000", "app", basic("host", "pa")),
            ("registry.example:5000", "team/app", basic("team", "x:y")),
            ("registry.example:5000", "teamwork/app", basic("host", "pa")),
            ("registry.example", "app", Auth::Anonymous),
            ("plain.example", "app", basic("p", "q:r")),
            ("token.example", "app", Auth::Token("t".into())),
            ("empty.example", "app", Auth::Anonymous),
            ("other.example", "app", Auth::Anonymous),
        ] {
            assert_eq!(docker_auth_in(config, registry, repository).unwrap(), expected, "{registry}/{repository}");
        }
    }

    #[test]
    fn helpers_and_unusable_entries_are_named() {
        for (config, part) in [
            (r#"{"credHelpers":{"r.example":"ecr-login"}}"#, "docker-credential-ecr-login"),
            (r#"{"credsStore":"desktop","auths":{"r.example":{}}}"#, "docker-credential-desktop"),
            (r#"{"auths":{"r.example":{"identitytoken":"x"}}}"#, "identity token"),
            (r#"{"auths":{"r.example":{"auth":"%%%"}}}"#, "base64"),
            (r#"{"auths":{"r.example":{"auth":"bm9jb2xvbg=="}}}"#, "NAME:PASSWORD"),
            ("nonsense", "not a docker configuration"),
        ] {
            let error = docker_auth_in(config.as_bytes(), "r.example", "app").unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
        assert_eq!(docker_auth_in(br#"{"credsStore":"desktop"}"#, "r.example", "app"), Ok(Auth::Anonymous));
    }

    #[test]
    fn secrets_are_not_printed() {
        let printed = format!("{:?} {:?}", basic("name", "hush"), Auth::Token("hush".into()));
        assert!(printed.contains("name") && !printed.contains("hush"));
    }

    #[test]
    fn a_missing_file_has_no_credentials() {
        assert_eq!(docker_auth(Path::new("/nonexistent/config.json"), "r", "a").unwrap(), Auth::Anonymous);
    }
}
