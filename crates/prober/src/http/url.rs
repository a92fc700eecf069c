//! URLs of requests: built from a probe's fields, followed through redirects.
//!
//! Implements the parts of RFC 3986 that probes need: splitting a reference, resolving it against the current location,
//! and escaping characters that a request line must not contain.

use std::fmt;

use keelet_pod::Scheme;

/// An absolute URL; its path and query can be sent in a request line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: Scheme,
    /// An address or a name, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Host and port as written.
    pub(crate) authority: String,
    /// Path and query, beginning with a slash.
    pub(crate) target: String,
}

/// A `Location` that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadLocation {
    /// It is not a valid reference.
    Unreadable,
    /// Its scheme is neither http nor https.
    Scheme(String),
}

/// A reference in its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reference<'a> {
    scheme: Option<&'a str>,
    authority: Option<&'a str>,
    path: &'a str,
    query: Option<&'a str>,
}

// === impl Url ===

impl Url {
    /// Scheme, host and port of a probe with its path, which may contain a query. A path that is not a valid reference
    /// is escaped as a whole; scheme and host in it are ignored.
    pub(crate) fn new(scheme: Scheme, host: &str, port: u16, path: &str) -> Self {
        let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let target = match Reference::split(path) {
            Some(reference) if reference.scheme.is_none() || reference.authority.is_some() => {
                target(reference.path, reference.query)
            }
            _ => {
                let mut target = String::with_capacity(path.len() + 1);
                escape(&mut target, &path.replace('%', "%25"), |byte| byte == b'?' || unfit_for_path(byte));
                with_slash(target)
            }
        };
        Self { scheme, host: host.to_owned(), port, authority: authority(host, port), target }
    }

    /// Resolves a `Location` against this URL; also whether the location has its own scheme.
    pub(crate) fn follow(&self, location: &str) -> Result<(Self, bool), BadLocation> {
        let reference = Reference::split(location).ok_or(BadLocation::Unreadable)?;
        let scheme = match reference.scheme {
            None => self.scheme,
            Some(scheme) if scheme.eq_ignore_ascii_case("http") => Scheme::Http,
            Some(scheme) if scheme.eq_ignore_ascii_case("https") => Scheme::Https,
            Some(other) => return Err(BadLocation::Scheme(other.to_owned())),
        };
        let absolute = reference.scheme.is_some();
        if let Some(written) = reference.authority {
            let (host, port) = host_and_port(written).ok_or(BadLocation::Unreadable)?;
            let port = port.unwrap_or(match scheme {
                Scheme::Http => 80,
                Scheme::Https => 443,
            });
            let authority = written.rsplit_once('@').map_or(written, |(_, rest)| rest).to_owned();
            let target = target(&without_dots(reference.path), reference.query);
            return Ok((Self { scheme, host: host.to_owned(), port, authority, target }, absolute));
        }
        if absolute {
            return Err(BadLocation::Unreadable);
        }
        let (base_path, base_query) = match self.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (self.target.as_str(), None),
        };
        let target = if reference.path.is_empty() {
            target(base_path, reference.query.or(base_query))
        } else if reference.path.starts_with('/') {
            target(&without_dots(reference.path), reference.query)
        } else {
            let directory = &base_path[..=base_path.rfind('/').unwrap_or(0)];
            target(&without_dots(&format!("{directory}{}", reference.path)), reference.query)
        };
        Ok((Self { target, ..self.clone() }, false))
    }

    /// `http` or `https`.
    pub(crate) fn scheme_name(&self) -> &'static str {
        match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme_name(), self.authority, self.target)
    }
}

// === impl Reference ===

impl<'a> Reference<'a> {
    /// `None` for an invalid reference: control characters, and percent signs that escape nothing.
    fn split(text: &'a str) -> Option<Self> {
        if text.bytes().any(|byte| byte.is_ascii_control()) {
            return None;
        }
        let text = text.split_once('#').map_or(text, |(before, _)| before);
        let (text, query) = match text.split_once('?') {
            Some((before, query)) => (before, Some(query)),
            None => (text, None),
        };
        let (scheme, text) = match text.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme), rest),
            _ => (None, text),
        };
        let (authority, path) = match text.strip_prefix("//") {
            Some(rest) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                (Some(authority), path)
            }
            None => (None, text),
        };
        well_escaped(path).then_some(Self { scheme, authority, path, query })
    }
}

/// Host and port with the brackets that an IPv6 address needs.
fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Host, without brackets, and port of an authority; user information is ignored.
fn host_and_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let authority = authority.rsplit_once('@').map_or(authority, |(_, rest)| rest);
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, if port.is_empty() { "" } else { port.strip_prefix(':')? })
        }
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    let port = if port.is_empty() { None } else { Some(port.parse().ok().filter(|port| *port != 0)?) };
    (!host.is_empty()).then_some((host, port))
}

fn target(path: &str, query: Option<&str>) -> String {
    let mut target = String::with_capacity(path.len() + 1 + query.map_or(0, |query| query.len() + 1));
    escape(&mut target, path, unfit_for_path);
    target = with_slash(target);
    if let Some(query) = query {
        target.push('?');
        escape(&mut target, query, unfit_for_query);
    }
    target
}

fn with_slash(path: String) -> String {
    if path.starts_with('/') { path } else { format!("/{path}") }
}

fn escape(into: &mut String, text: &str, unfit: fn(u8) -> bool) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if unfit(byte) {
            into.push('%');
            into.push(char::from(DIGITS[usize::from(byte >> 4)]));
            into.push(char::from(DIGITS[usize::from(byte & 15)]));
        } else {
            into.push(char::from(byte));
        }
    }
}

fn unfit_for_path(byte: u8) -> bool {
    unfit_for_query(byte) || matches!(byte, b'\\' | b'^' | b'`' | b'{' | b'|' | b'}')
}

fn unfit_for_query(byte: u8) -> bool {
    !byte.is_ascii_graphic() || matches!(byte, b'"' | b'<' | b'>' | b'#')
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

fn well_escaped(path: &str) -> bool {
    path.split('%').skip(1).all(|rest| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
}

/// A path with `.` and `..` resolved.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if last {
                    kept.push("");
                }
            }
            _ => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(path: &str) -> String {
        Url::new(Scheme::Http, "10.1.2.3", 8080, path).to_string()
    }

    /// PROBE-33, SCN-U35.
    #[test]
    fn a_path_is_read_as_a_reference() {
        for (path, expected) in [
            ("/", "/"),
            ("", "/"),
            ("/path", "/path"),
            ("path", "/path"),
            ("path/", "/path/"),
            ("//path", "/"),
            ("///path", "/path"),
            ("/healthz?full=1&x=a/b", "/healthz?full=1&x=a/b"),
            ("?only=query", "/?only=query"),
            ("/a b/ü", "/a%20b/%C3%BC"),
            ("/a%20b", "/a%20b"),
            ("/x?q=a b", "/x?q=a%20b"),
            ("/page#part", "/page"),
            ("http://elsewhere:1/page?q", "/page?q"),
            ("/a:b", "/a:b"),
        ] {
            assert_eq!(built(path), format!("http://10.1.2.3:8080{expected}"), "{path:?}");
        }
    }

    /// PROBE-33, SCN-U35: a path that is not a valid reference is escaped.
    #[test]
    fn a_path_that_does_not_parse_is_escaped_as_a_whole() {
        assert_eq!(built("/100%"), "http://10.1.2.3:8080/100%25");
        assert_eq!(built("/%zz?x=1"), "http://10.1.2.3:8080/%25zz%3Fx=1");
        assert_eq!(built("/line\nbreak"), "http://10.1.2.3:8080/line%0Abreak");
        assert_eq!(built("scheme:path"), "http://10.1.2.3:8080/scheme:path");
    }

    /// PROBE-33, SCN-U35.
    #[test]
    fn an_ipv6_address_stands_in_brackets_but_is_dialled_without() {
        for host in ["fd00::7", "[fd00::7]"] {
            let url = Url::new(Scheme::Https, host, 443, "/x");
            assert_eq!((url.host.as_str(), url.to_string().as_str()), ("fd00::7", "https://[fd00::7]:443/x"));
        }
    }

    /// PROBE-35.
    #[test]
    fn redirects_resolve_against_the_current_location() {
        let base = Url::new(Scheme::Http, "h", 81, "/a/b/c?d=e");
        for (location, expected, absolute) in [
            ("/x", "http://h:81/x", false),
            ("x", "http://h:81/a/b/x", false),
            ("../x?q=1", "http://h:81/a/x?q=1", false),
            ("../../../../x/..", "http://h:81/", false),
            ("./", "http://h:81/a/b/", false),
            ("?q", "http://h:81/a/b/c?q", false),
            ("", "http://h:81/a/b/c?d=e", false),
            ("//other/x", "http://other/x", false),
            ("https://h/x#f", "https://h/x", true),
            ("HTTP://u:p@[::1]:82?q", "http://[::1]:82/?q", true),
        ] {
            let (url, is_absolute) = base.follow(location).unwrap();
            assert_eq!((url.to_string().as_str(), is_absolute), (expected, absolute), "{location:?}");
        }
        assert_eq!(base.follow("https://h/x").unwrap().0.port, 443);
        assert_eq!(base.follow("http://h/x").unwrap().0.port, 80);
        assert_eq!(base.follow("http://[::1]:82/x").unwrap().0.host, "::1");
    }

    /// PROBE-35.
    #[test]
    fn invalid_locations_are_recognised() {
        let base = Url::new(Scheme::Http, "h", 81, "/");
        for location in ["http://", "http://h:port/", "http://h:0/", "http://[::1/", "http:x", "/%zz", "/\u{1}"] {
            assert_eq!(base.follow(location), Err(BadLocation::Unreadable), "{location:?}");
        }
        assert_eq!(base.follow("ftp://h/"), Err(BadLocation::Scheme("ftp".to_owned())));
    }
}
