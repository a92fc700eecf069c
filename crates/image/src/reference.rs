//! Image references.

use std::path::{Component, Path, PathBuf};

use oci_spec::distribution::Reference;

use crate::digest::{Digest, is_hex};
use crate::error::Error;

/// A parsed reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// `rootfs:/path`
    Directory(PathBuf),
    /// an ID or the first digits of one
    Id(String),
    /// a name with a tag, a digest or both; and the digits, if it could also be the prefix of an ID
    Name(Reference, Option<String>),
}

/// Fewer digits than this are more likely a name.
const FEWEST_DIGITS: usize = 12;
const DIGITS: usize = 64;

/// Parses a reference as other tools do: `busybox` means `docker.io/library/busybox:latest`.
pub(crate) fn parse(reference: &str) -> Result<Wanted, Error> {
    if let Some(path) = reference.strip_prefix("rootfs:").filter(|path| path.starts_with('/')) {
        return directory(reference, path).map(Wanted::Directory);
    }
    let is_id = |text: &str| is_hex(text) && (FEWEST_DIGITS..=DIGITS).contains(&text.len());
    if let Some(digits) = reference.strip_prefix("sha256:") {
        return match is_id(digits) {
            true => Ok(Wanted::Id(digits.to_owned())),
            false => Err(wrong(reference, "an ID is sha256: and 12 to 64 digits 0-9a-f")),
        };
    }
    if is_id(reference) && reference.len() == DIGITS {
        return Ok(Wanted::Id(reference.to_owned()));
    }
    let name = parse_name(reference)?;
    Ok(Wanted::Name(name, is_id(reference).then(|| reference.to_owned())))
}

/// Parses a reference that must be a name.
pub(crate) fn parse_name(reference: &str) -> Result<Reference, Error> {
    let name = Reference::try_from(reference).map_err(|error| wrong(reference, &error.to_string()))?;
    if let Some(digest) = name.digest() {
        Digest::parse(digest).map_err(|error| wrong(reference, &error.to_string()))?;
    }
    Ok(name)
}

/// The full name, with a digest or else with a tag: `busybox` is `docker.io/library/busybox:latest`. None if it is not
/// a name.
pub fn full_name(reference: &str) -> Option<String> {
    let Ok(Wanted::Name(name, _)) = parse(reference) else { return None };
    match name.digest() {
        Some(digest) => Some(format!("{}@{digest}", repository_of(&name))),
        None => tag_of(&name),
    }
}

/// The full name with its tag; a digest is left out.
pub(crate) fn tag_of(name: &Reference) -> Option<String> {
    name.tag().map(|tag| format!("{}:{tag}", repository_of(name)))
}

/// Registry and repository.
pub(crate) fn repository_of(name: &Reference) -> String {
    format!("{}/{}", name.registry(), name.repository())
}

/// The repository of a stored tag or digest, which is a full name.
pub(crate) fn repository_of_text(text: &str) -> &str {
    if let Some((repository, _)) = text.split_once('@') {
        return repository;
    }
    text.rsplit_once(':').map_or(text, |(repository, _)| repository)
}

fn directory(reference: &str, path: &str) -> Result<PathBuf, Error> {
    let mut clean = PathBuf::from("/");
    for component in Path::new(path).components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(part) => clean.push(part),
            Component::ParentDir | Component::Prefix(_) => {
                return Err(wrong(reference, "the path must not contain '..'"));
            }
        }
    }
    if path.contains('\0') {
        return Err(wrong(reference, "the path must not contain a NUL byte"));
    }
    Ok(clean)
}

fn wrong(reference: &str, reason: &str) -> Error {
    Error::Reference { reference: reference.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(reference: &str) -> String {
        match parse(reference).unwrap() {
            Wanted::Name(name, _) => tag_of(&name).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn short_names_mean_what_they_mean_elsewhere() {
        for (short, full) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("busybox:1.36", "docker.io/library/busybox:1.36"),
            ("user/app", "docker.io/user/app:latest"),
            ("docker.io/busybox", "docker.io/library/busybox:latest"),
            ("index.docker.io/busybox", "docker.io/library/busybox:latest"),
            ("localhost/app", "localhost/app:latest"),
            ("localhost:5000/app:v1", "localhost:5000/app:v1"),
            ("quay.example/a/b/c", "quay.example/a/b/c:latest"),
        ] {
            assert_eq!(tag(short), full);
        }
    }

    #[test]
    fn ids_are_digits_with_or_without_the_algorithm() {
        let digits = "0123456789abcdef".repeat(4);
        assert_eq!(parse(&digits).unwrap(), Wanted::Id(digits.clone()));
        assert_eq!(parse(&format!("sha256:{digits}")).unwrap(), Wanted::Id(digits.clone()));
        assert!(matches!(parse(&digits[..12]).unwrap(), Wanted::Name(_, Some(id)) if id == digits[..12]));
        assert!(matches!(parse(&digits[..11]).unwrap(), Wanted::Name(_, None)));
        assert!(parse("sha256:0123").is_err());
    }

    #[test]
    fn directories_are_absolute_and_do_not_go_up() {
        assert_eq!(parse("rootfs:/").unwrap(), Wanted::Directory("/".into()));
        assert_eq!(parse("rootfs:/srv//x/./y/").unwrap(), Wanted::Directory("/srv/x/y".into()));
        assert!(parse("rootfs:/srv/../etc").is_err());
        assert_eq!(tag("rootfs:v1"), "docker.io/library/rootfs:v1");
    }

    #[test]
    fn an_invalid_reference_is_named_in_the_error() {
        for wrong in ["", "UPPER", "a b", "name:tag:tag", "name@sha256:12", "name@sha512:00", "../etc"] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("{wrong:?}")), "{error}");
        }
    }

    #[test]
    fn the_repository_of_a_full_name_keeps_its_port() {
        assert_eq!(repository_of_text("localhost:5000/app:v1"), "localhost:5000/app");
        assert_eq!(repository_of_text("localhost:5000/app@sha256:00"), "localhost:5000/app");
    }
}
