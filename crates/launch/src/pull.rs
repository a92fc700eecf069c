//! Credentials for pulls, from the pull secrets of a pod.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use keelet_cri::v1::AuthConfig;
use keelet_pod::{Pod, Trust};
use serde::Deserialize;
use serde_json::Value;

use super::objects::{Data, ObjectKind, Reference};

/// The keys of a secret of the type `kubernetes.io/dockerconfigjson`, and of the older `kubernetes.io/dockercfg`.
const CONFIG: &str = ".dockerconfigjson";
const OLD_CONFIG: &str = ".dockercfg";

#[derive(Default, Deserialize)]
#[serde(default)]
struct DockerConfig {
    auths: BTreeMap<String, Entry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    username: String,
    password: String,
    auth: String,
    identitytoken: String,
    registrytoken: String,
}

/// What an entry is for: a registry, whose name may have a `*`, and the first parts of a repository.
struct Scope<'a> {
    host: &'a str,
    path: &'a str,
}

/// The pull secrets of a pod of an API server. Pods of manifests use the credentials of the node.
pub fn pull_secrets(pod: &Pod) -> Vec<Reference> {
    let secrets = pod.source.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    let secrets = secrets.filter(|secret| pod.trust == Trust::Cluster && !secret.name.is_empty());
    secrets.map(|secret| Reference { kind: ObjectKind::Secret, name: secret.name.clone(), key: None }).collect()
}

/// The credentials that these secrets have for an image, the most specific first. What cannot be read has none.
pub fn pull_credentials<'a>(image: &str, secrets: impl IntoIterator<Item = &'a Data>) -> Vec<AuthConfig> {
    let (host, repository) = repository(image);
    let mut found = Vec::new();
    for secret in secrets {
        for (key, entry) in entries(secret) {
            let scope = Scope::of(&key);
            if scope.covers(host, &repository)
                && let Some(auth) = entry.auth_for(host)
            {
                found.push(((scope.path.len(), !scope.host.contains('*')), auth));
            }
        }
    }
    // Of entries that are as specific, the one of the first secret comes first.
    found.sort_by(|(one, _), (other, _)| other.cmp(one));
    found.into_iter().map(|(_, auth)| auth).collect()
}

fn entries(secret: &Data) -> BTreeMap<String, Entry> {
    let new = secret.get(CONFIG).and_then(|text| serde_json::from_slice::<DockerConfig>(text).ok());
    let old = || secret.get(OLD_CONFIG).and_then(|text| serde_json::from_slice(text).ok());
    new.map(|config| config.auths).or_else(old).unwrap_or_default()
}

/// The registry and the repository of an image, without tag and digest.
fn repository(image: &str) -> (&str, String) {
    let image = image.split('@').next().unwrap_or(image);
    let name = image;
    let (above, last) = name.rsplit_once('/').map_or(("", name), |(above, last)| (above, last));
    let last = last.split(':').next().unwrap_or(last);
    let name = if above.is_empty() { last.to_owned() } else { format!("{above}/{last}") };
    match image.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => {
            (docker_host(host), name[host.len() + 1..].to_owned())
        }
        Some(_) => ("docker.io", name),
        None => ("docker.io", format!("library/{name}")),
    }
}

/// Docker's own registry has several names.
fn docker_host(host: &str) -> &str {
    match host {
        "index.docker.io" | "registry-1.docker.io" => "docker.io",
        host => host,
    }
}

/// Whether a text is what a pattern describes, in which `*` stands for any letters.
///
/// Between the first and the last `*` each part is looked for where the one before it ended: a user writes the pattern, and trying all
/// combinations takes longer than any node runs.
fn is_like(text: &str, pattern: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return text == pattern };
    let (between, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let inner = text.strip_prefix(first).and_then(|text| text.strip_suffix(last));
    let find = |text: &str, part: &str| text.find(part).map(|at| at + part.len());
    let mut left = inner;
    for part in between.split('*') {
        left = left.and_then(|text| find(text, part).map(|end| &text[end..]));
    }
    left.is_some()
}

// === impl Scope ===

impl<'a> Scope<'a> {
    /// Keys come as hosts, as addresses and with paths.
    fn of(key: &'a str) -> Self {
        let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
        let key = key.trim_end_matches('/');
        let (host, path) = key.split_once('/').unwrap_or((key, ""));
        let version = |path: &'a str, version: &str| {
            path.strip_prefix(version).filter(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let path = version(path, "v1").or_else(|| version(path, "v2")).unwrap_or(path).trim_start_matches('/');
        Self { host: docker_host(host), path }
    }

    /// The `*` of a name stands for letters of one part of it, never for a dot or a port.
    fn covers(&self, host: &str, repository: &str) -> bool {
        let (own, theirs) = (self.host.split(['.', ':']), host.split(['.', ':']));
        let same_shape = self.host.matches(['.', ':']).eq(host.matches(['.', ':']));
        let in_path = repository.strip_prefix(self.path);
        same_shape
            && own.zip(theirs).all(|(pattern, part)| is_like(part, pattern))
            && (self.path.is_empty() || in_path.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    }
}

// === impl Entry ===

impl Entry {
    /// As a runtime takes it; `None` if it says nothing that can be used.
    fn auth_for(self, host: &str) -> Option<AuthConfig> {
        let (username, password) = match self.auth.is_empty() {
            true => (self.username, self.password),
            false => {
                let text = serde_json::from_value::<ByteString>(Value::String(self.auth.trim().to_owned())).ok()?;
                let text = String::from_utf8(text.0).ok()?;
                let (username, password) = text.split_once(':')?;
                // Some versions of docker end the text with zeros.
                (username.to_owned(), password.trim_end_matches('\0').to_owned())
            }
        };
        let says_nothing = username.is_empty() && self.identitytoken.is_empty() && self.registrytoken.is_empty();
        (!says_nothing).then(|| AuthConfig {
            username,
            password,
            identity_token: self.identitytoken,
            registry_token: self.registrytoken,
            server_address: host.to_owned(),
            ..AuthConfig::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(key: &str, text: &str) -> Data {
        Data::from([(key.to_owned(), text.as_bytes().to_vec())])
    }

    fn users(image: &str, secrets: &[Data]) -> Vec<String> {
        pull_credentials(image, secrets)
            .into_iter()
            .map(|auth| format!("{}:{}", auth.username, auth.password))
            .collect()
    }

    /// CLU-33: credentials go to the registry and repository that they are for, and to no other.
    #[test]
    fn credentials_are_those_of_the_registry_and_repository() {
        let secrets = [
            secret(
                CONFIG,
                r#"{"auths": {"https://index.docker.io/v1/": {"auth": "aHViOng="}, "reg.example": {"username": "host", "password": "a"},
                    "reg.example/team": {"username": "team", "password": "b"}, "*.cloud.example": {"username": "any", "password": "c"},
                    "local:5000": {"username": "port", "password": "d"}, "empty.example": {}, "bad.example": {"auth": "?"}}}"#,
            ),
            secret(OLD_CONFIG, r#"{"https://reg.example/v2/": {"username": "old", "password": "e"}}"#),
            secret(CONFIG, "{"),
            secret("other", "{}"),
        ];
        let cases: [(&str, &[&str]); 17] = [
            ("nginx", &["hub:x"]),
            ("team/app:1", &["hub:x"]),
            ("docker.io/library/nginx@sha256:00", &["hub:x"]),
            ("reg.example/app", &["host:a", "old:e"]),
            ("reg.example/team/app:1", &["team:b", "host:a", "old:e"]),
            ("reg.example/team:1", &["team:b", "host:a", "old:e"]),
            ("reg.example/team-mates/app", &["host:a", "old:e"]),
            ("reg.example:443/team/app", &[]),
            ("sub.reg.example/team/app", &[]),
            ("eu.cloud.example/app", &["any:c"]),
            ("a.b.cloud.example/app", &[]),
            ("cloud.example/app", &[]),
            ("local:5000/app@sha256:00", &["port:d"]),
            ("local:5001/app", &[]),
            ("empty.example/app", &[]),
            ("bad.example/app", &[]),
            ("reg.example.evil/team/app", &[]),
        ];
        for (image, expected) in cases {
            assert_eq!(users(image, &secrets), expected, "{image}");
        }
    }

    /// CLU-33: a pattern takes no longer than its length, whatever is in it.
    #[test]
    fn a_star_stands_for_any_letters_and_many_of_them_cost_no_more() {
        for (text, pattern, expected) in [
            ("", "", true),
            ("", "*", true),
            ("a", "", false),
            ("abc", "abc", true),
            ("abc", "a*c", true),
            ("abc", "*", true),
            ("abc", "a*b*c", true),
            ("abc", "*b*", true),
            ("abc", "*c*b*", false),
            ("abcabc", "*bc", true),
            ("aba", "ab*ba", false),
            ("ab", "a*b*b", false),
            ("äö", "*ö", true),
        ] {
            assert_eq!(is_like(text, pattern), expected, "{text} {pattern}");
        }
        assert!(!is_like(&"a".repeat(63), &format!("{}b", "*a".repeat(30))));
    }

    /// CLU-33: an image that is no name has no credentials, and does no harm.
    #[test]
    fn any_text_may_be_the_name_of_an_image() {
        let any = secret(CONFIG, r#"{"auths": {"*": {"username": "u", "password": ""}}}"#);
        for image in
            ["a@b.c/x", "a.@/x", "x:1@y/z", "", "/", "@", ":", "a.b/", "ä.b/ö:ü@ß", "a.b:", "localhost", "a:/b"]
        {
            let _ = users(image, std::slice::from_ref(&any));
        }
    }

    /// CLU-33: the same host by name goes before one by a pattern.
    #[test]
    fn the_most_specific_credentials_come_first() {
        let config = r#"{"auths": {"*.io": {"username": "p", "password": ""}, "a.io": {"username": "n", "password": ""},
            "*.io/team": {"username": "t", "password": ""}}}"#;
        assert_eq!(users("a.io/team/x", &[secret(CONFIG, config)]), ["t:", "n:", "p:"]);
        let token = r#"{"auths": {"a.io": {"identitytoken": "i"}}}"#;
        let found = pull_credentials("a.io/x", &[secret(CONFIG, token)]);
        assert_eq!((found.len(), found[0].identity_token.as_str(), found[0].server_address.as_str()), (1, "i", "a.io"));
    }
}
