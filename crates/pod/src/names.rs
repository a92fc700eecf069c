//! The syntaxes of names, each with the sentence that says what is allowed.

/// Why a name is not well formed: what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidName {
    #[error("must be no more than {0} characters")]
    TooLong(usize),
    #[error(
        "must consist of lower case letters, digits or '-', and start and end with a letter or digit (e.g. \"my-name\")"
    )]
    Label,
    #[error(
        "must consist of lower case letters, digits, '-' or '.', and start and end with a letter or digit (e.g. \"example.com\")"
    )]
    Subdomain,
    #[error("the part before '/' {0}")]
    Prefix(Box<InvalidName>),
    #[error("the name (behind an optional \"example.com/\") must have 1 to 63 characters")]
    LocalLength,
    #[error(
        "the name (behind an optional \"example.com/\") must consist of letters, digits, '-', '_' or '.', and start and end \
         with a letter or digit"
    )]
    Local,
    #[error("must have no more than 63 letters, digits, '-', '_' or '.', and start and end with a letter or digit")]
    LabelValue,
    #[error("must have 1 to 15 characters")]
    PortLength,
    #[error("must consist of lower case letters, digits and '-'")]
    PortCharacters,
    #[error("must contain at least one letter (for a number, remove the quotes)")]
    PortWithoutLetter,
    #[error("must not begin or end with '-'")]
    PortEdge,
    #[error("must not contain '--'")]
    PortDashes,
    #[error("must consist of letters, digits and '-' (e.g. \"X-Header-Name\")")]
    Header,
    #[error("must consist of printable ASCII characters other than '='")]
    Variable,
}

/// RFC 1123 label: container and volume names, namespaces.
pub(crate) fn dns_label(name: &str) -> Result<(), InvalidName> {
    if name.len() > 63 {
        return Err(InvalidName::TooLong(63));
    }
    if is_label(name) {
        return Ok(());
    }
    Err(InvalidName::Label)
}

/// RFC 1123 subdomain: pod names.
pub(crate) fn dns_subdomain(name: &str) -> Result<(), InvalidName> {
    if name.len() > 253 {
        return Err(InvalidName::TooLong(253));
    }
    if name.split('.').all(is_label) {
        return Ok(());
    }
    Err(InvalidName::Subdomain)
}

/// `[prefix/]name`: labels, annotations, condition types.
pub(crate) fn qualified(name: &str) -> Result<(), InvalidName> {
    let local = match name.split_once('/') {
        None => name,
        Some((prefix, local)) => {
            dns_subdomain(prefix).map_err(|why| InvalidName::Prefix(Box::new(why)))?;
            local
        }
    };
    if local.is_empty() || local.len() > 63 {
        return Err(InvalidName::LocalLength);
    }
    if is_word(local) {
        return Ok(());
    }
    Err(InvalidName::Local)
}

/// The value of a label.
pub(crate) fn label_value(value: &str) -> Result<(), InvalidName> {
    if value.is_empty() || value.len() <= 63 && is_word(value) {
        return Ok(());
    }
    Err(InvalidName::LabelValue)
}

/// API-7: an IANA service name.
pub(crate) fn port_name(name: &str) -> Result<(), InvalidName> {
    let bytes = name.as_bytes();
    Err(if name.is_empty() || name.len() > 15 {
        InvalidName::PortLength
    } else if !bytes.iter().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')) {
        InvalidName::PortCharacters
    } else if !bytes.iter().any(u8::is_ascii_lowercase) {
        InvalidName::PortWithoutLetter
    } else if name.starts_with('-') || name.ends_with('-') {
        InvalidName::PortEdge
    } else if name.contains("--") {
        InvalidName::PortDashes
    } else {
        return Ok(());
    })
}

/// API-6: an HTTP header name as the API server has it.
pub(crate) fn header(name: &str) -> Result<(), InvalidName> {
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Ok(());
    }
    Err(InvalidName::Header)
}

/// The name of an environment variable.
pub(crate) fn env(name: &str) -> Result<(), InvalidName> {
    if !name.is_empty() && name.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=') {
        return Ok(());
    }
    Err(InvalidName::Variable)
}

fn is_label(name: &str) -> bool {
    let bytes = name.as_bytes();
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9'));
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

fn is_word(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

// === impl InvalidName ===

/// The message of a problem is a text.
impl From<InvalidName> for String {
    fn from(why: InvalidName) -> Self {
        why.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(check: fn(&str) -> Result<(), InvalidName>, good: &[&str], bad: &[&str]) {
        for name in good {
            assert_eq!(check(name), Ok(()), "{name:?}");
        }
        for name in bad {
            assert!(check(name).is_err(), "{name:?}");
        }
    }

    fn text(length: usize) -> &'static str {
        "x".repeat(length).leak()
    }

    /// API-23
    #[test]
    fn labels() {
        table(
            dns_label,
            &["a", "0", "a-b", "my-name", "9-z", text(63)],
            &["", "-a", "a-", "A", "a.b", "a_b", "é", "a b", text(64)],
        );
    }

    #[test]
    fn subdomains() {
        let longest: &str = format!("{}.{}.{}.{}", text(63), text(63), text(63), text(61)).leak();
        assert_eq!(longest.len(), 253);
        let too_long: &str = format!("{longest}x").leak();
        table(
            dns_subdomain,
            &["a", "a.b", "web-0.svc", longest],
            &["", ".", "a.", ".a", "a..b", "A.b", "a/b", too_long],
        );
    }

    /// API-11
    #[test]
    fn qualified_names() {
        table(
            qualified,
            &["a", "Ready", "example.com/Ready", "www.example.com/feature-1", "a_b.c-d", text(63)],
            &["", "/", "/a", "a/", "a/b/c", "-a", "a-", "_a", "a b", "Example.com/a", text(64)],
        );
    }

    #[test]
    fn label_values() {
        table(label_value, &["", "a", "A.b-c_d", text(63)], &["-", "a ", "a/b", "é", "-a", "a-", text(64)]);
    }

    /// API-7
    #[test]
    fn port_names() {
        table(
            port_name,
            &["a", "http", "liveness-port", "1a", "a1", "a-b-c", text(15)],
            &["", "8080", "-a", "a-", "a--b", "Http", "a_b", "a.b", "1-2", text(16)],
        );
    }

    /// API-6
    #[test]
    fn header_names() {
        table(header, &["Host", "X-Forwarded-For", "x1", "-"], &["", "Host:", "X_Forwarded_For", "a b", "é"]);
    }

    #[test]
    fn environment_names() {
        table(env, &["A", "a.b", "1", "A B", "~", "-"], &["", "A=B", "=", "é", "a\tb", "\u{7f}"]);
    }
}
