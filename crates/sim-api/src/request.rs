//! What a request asks for: verb, resource, name and options, read from its method, path and query.

use std::borrow::Cow;

use crate::{refusal::Refusal, selector::FieldSelector};

/// The verbs of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read a collection.
    List,
    /// Follow the changes of a collection.
    Watch,
    /// Write a new object.
    Create,
    /// Write the whole object.
    Update,
    /// Write parts of the object.
    Patch,
    /// Delete one object.
    Delete,
    /// Delete a collection.
    DeleteCollection,
}

/// A request for a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) verb: Verb,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    /// Empty for resources of the whole cluster, and for lists over all namespaces.
    pub(crate) namespace: String,
    /// Empty for collections, unless a field selector names a single object.
    pub(crate) name: String,
    /// Whether the name is in the path.
    pub(crate) named: bool,
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// A resource.
    Resource(Target),
    /// Something else: `/version`, `/apis`.
    Other,
}

/// The parameters of a request, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

// === impl Verb ===

impl Verb {
    /// As access rules and messages name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Whether it can change what is stored.
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

impl std::fmt::Display for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Path ===

impl Path {
    /// Reads method, path and query. `None` for a method that the API does not have.
    pub(crate) fn parse(method: &str, path: &str, query: &Query) -> Option<Self> {
        let parts: Vec<String> =
            path.trim_matches('/').split('/').map(|part| decode(part, false).into_owned()).collect();
        let (group, rest) = match parts.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["api", _, _, ..] => (String::new(), &parts[1..]),
            ["apis", _, _, _, ..] => (parts[1].clone(), &parts[2..]),
            _ => return Some(Self::Other),
        };
        let (version, mut rest) = (rest[0].clone(), &rest[1..]);
        let mut verb = match method {
            "GET" | "HEAD" => Verb::Get,
            "POST" => Verb::Create,
            "PUT" => Verb::Update,
            "PATCH" => Verb::Patch,
            "DELETE" => Verb::Delete,
            _ => return None,
        };
        let mut namespace = String::new();
        if rest[0] == "namespaces" && rest.len() > 1 {
            namespace.clone_from(&rest[1]);
            if rest.len() > 2 && !["status", "finalize"].contains(&rest[2].as_str()) {
                rest = &rest[2..];
            }
        }
        let part = |index: usize| rest.get(index).cloned().unwrap_or_default();
        let mut name = part(1);
        let named = !name.is_empty();
        if !named && verb == Verb::Get {
            verb = if query.flag("watch") { Verb::Watch } else { Verb::List };
            let selector = query.get("fieldSelector").and_then(|text| FieldSelector::parse(text).ok());
            name = selector.and_then(|selector| selector.exact("metadata.name")).unwrap_or_default();
        }
        if !named && verb == Verb::Delete {
            verb = Verb::DeleteCollection;
        }
        let target = Target { verb, group, version, resource: part(0), subresource: part(2), namespace, name, named };
        Some(Self::Resource(target))
    }
}

// === impl Query ===

impl Query {
    /// Reads the part behind the question mark.
    pub(crate) fn parse(text: &str) -> Self {
        let pair = |part: &str| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            (decode(key, true).into_owned(), decode(value, true).into_owned())
        };
        Self(text.split('&').filter(|part| !part.is_empty()).map(pair).collect())
    }

    /// The first value, if there is one that is not empty.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let value = self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
        value.filter(|value| !value.is_empty())
    }

    /// All values.
    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// A switch as the server reads it: anything but `0` and `false` is yes.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.switch(key).unwrap_or(false)
    }

    /// A switch that may be left out.
    pub(crate) fn switch(&self, key: &str) -> Option<bool> {
        let value = self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value)?;
        Some(value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// A number.
    pub(crate) fn number(&self, key: &str) -> Result<Option<i64>, Refusal> {
        let Some(text) = self.get(key) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            let message = format!("strconv.ParseInt: parsing {text:?}: invalid syntax");
            Refusal::bad_request(message)
        })
    }

    /// Whether nothing is to be stored.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.all("dryRun").any(|value| value == "All")
    }
}

/// Decodes percent escapes, and in queries `+`.
fn decode(text: &str, in_query: bool) -> Cow<'_, str> {
    if !text.contains('%') && (!in_query || !text.contains('+')) {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = match (first, after) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match (escaped, first) {
            (Some((high, low)), _) => {
                bytes.push(high << 4 | low);
                rest = &after[2..];
            }
            (None, b'+') if in_query => {
                bytes.push(b' ');
                rest = after;
            }
            (None, _) => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, uri: &str) -> String {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        match Path::parse(method, path, &Query::parse(query)) {
            None => "none".to_owned(),
            Some(Path::Other) => "other".to_owned(),
            Some(Path::Resource(t)) => {
                format!(
                    "{} {}/{} {}/{} ns={} name={}",
                    t.verb, t.group, t.version, t.resource, t.subresource, t.namespace, t.name
                )
            }
        }
    }

    #[test]
    fn paths_are_read_as_the_server_reads_them() {
        let table = [
            ("GET", "/api/v1/nodes", "list /v1 nodes/ ns= name="),
            ("GET", "/api/v1/nodes?watch=1", "watch /v1 nodes/ ns= name="),
            ("GET", "/api/v1/nodes?watch=false", "list /v1 nodes/ ns= name="),
            ("GET", "/api/v1/nodes/n1?watch=true", "get /v1 nodes/ ns= name=n1"),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dweb", "list /v1 pods/ ns= name=web"),
            ("PATCH", "/api/v1/nodes/n1/status", "patch /v1 nodes/status ns= name=n1"),
            ("POST", "/api/v1/namespaces/a/pods", "create /v1 pods/ ns=a name="),
            ("DELETE", "/api/v1/namespaces/a/pods", "deletecollection /v1 pods/ ns=a name="),
            ("DELETE", "/api/v1/namespaces/a/pods/web", "delete /v1 pods/ ns=a name=web"),
            ("GET", "/api/v1/namespaces/a", "get /v1 namespaces/ ns=a name=a"),
            ("PUT", "/api/v1/namespaces/a/status", "update /v1 namespaces/status ns=a name=a"),
            (
                "GET",
                "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1",
                "get coordination.k8s.io/v1 leases/ ns=kube-node-lease name=n1",
            ),
            ("GET", "/apis/coordination.k8s.io/v1", "other"),
            ("GET", "/version", "other"),
            ("TRACE", "/api/v1/nodes", "none"),
        ];
        for (method, uri, expected) in table {
            assert_eq!(read(method, uri), expected, "{method} {uri}");
        }
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc&limit=5&continue=&x=1+2&watch&b=0&c=False");
        assert_eq!(query.get("labelSelector"), Some("a=b,c"));
        assert_eq!(query.number("limit").ok().flatten(), Some(5));
        assert_eq!(query.get("continue"), None);
        assert_eq!(query.get("x"), Some("1 2"));
        assert_eq!(
            (query.flag("watch"), query.flag("b"), query.flag("c"), query.switch("d")),
            (true, false, false, None)
        );
        assert!(Query::parse("limit=x").number("limit").is_err());
    }
}
