//! The syntax of names, labels and annotations. Each check gives what is wrong, in short; the real server's sentences
//! also quote the regular expressions.

/// A name made of labels that are joined by dots.
pub(crate) fn subdomain(name: &str) -> Vec<String> {
    let mut faults = at_most(name, 253);
    if !is_subdomain(name) {
        faults.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
                .to_owned(),
        );
    }
    faults
}

/// A single label.
pub(crate) fn label(name: &str) -> Vec<String> {
    let mut faults = at_most(name, 63);
    if !is_label(name) {
        let fault = if is_subdomain(name) {
            "must not contain dots"
        } else {
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character"
        };
        faults.push(fault.to_owned());
    }
    faults
}

/// A label that begins with a letter, as names of services.
pub(crate) fn label_1035(name: &str) -> Vec<String> {
    let mut faults = at_most(name, 63);
    if !is_label(name) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        faults.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character"
                .to_owned(),
        );
    }
    faults
}

/// A key of a label, annotation, taint or finalizer: a name behind an optional prefix.
pub(crate) fn qualified(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let parts: Vec<&str> = key.split('/').collect();
    let name = match parts[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                faults.extend(subdomain(prefix).into_iter().map(|fault| format!("prefix part {fault}")));
            }
            name
        }
        _ => {
            return vec![
                "a valid label key must consist of a name with an optional DNS subdomain prefix and '/'".to_owned(),
            ];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    }
    faults.extend(at_most(name, 63).into_iter().map(|fault| format!("name part {fault}")));
    if !is_name(name) {
        faults.push(
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
                .to_owned(),
        );
    }
    faults
}

/// The value of a label or taint.
pub(crate) fn label_value(value: &str) -> Vec<String> {
    let mut faults = at_most(value, 63);
    if !value.is_empty() && !is_name(value) {
        faults.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
                .to_owned(),
        );
    }
    faults
}

/// A key of a config map or secret.
pub(crate) fn data_key(key: &str) -> Vec<String> {
    let mut faults = at_most(key, 253);
    if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        faults.push("a valid config key must consist of alphanumeric characters, '-', '_' or '.'".to_owned());
    }
    match key {
        "." => faults.push("must not be '.'".to_owned()),
        ".." => faults.push("must not be '..'".to_owned()),
        _ if key.starts_with("..") => faults.push("must not start with '..'".to_owned()),
        _ => {}
    }
    faults
}

/// What can be a part of a path.
pub(crate) fn path_segment(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"].iter().filter(|part| name.contains(**part)).map(|part| format!("may not contain '{part}'")).collect()
}

fn at_most(text: &str, bytes: usize) -> Vec<String> {
    if text.len() > bytes { vec![format!("must be no more than {bytes} bytes")] } else { Vec::new() }
}

fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.chars().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_name(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.starts_with(edge) && text.ends_with(edge) && text.chars().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_servers_syntax() {
        for good in ["a", "a.b", "n-1", "1"] {
            assert_eq!(subdomain(good), Vec::<String>::new(), "{good}");
        }
        for bad in ["", "A", "a_b", "-a", "a-", "a..b", &"a".repeat(254)] {
            assert!(!subdomain(bad).is_empty(), "{bad}");
        }
        assert_eq!(label("a.b"), ["must not contain dots"]);
        assert!(label_1035("1a").len() == 1 && label_1035("a1").is_empty());
        for good in ["a", "A", "example.com/a_b.c", "readiness.k8s.io/NetworkReady"] {
            assert_eq!(qualified(good), Vec::<String>::new(), "{good}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "A.com/", "-a", "a b", &"a".repeat(64)] {
            assert!(!qualified(bad).is_empty(), "{bad}");
        }
        assert!(label_value("").is_empty() && label_value("a b").len() == 1 && label_value(&"a".repeat(64)).len() == 1);
        assert!(data_key("a.b").is_empty() && data_key("..").len() == 1 && data_key("a/b").len() == 1);
        assert!(path_segment("a").is_empty() && !path_segment("..").is_empty() && !path_segment("a/b").is_empty());
    }
}
