//! Names in a layer: made harmless, taken apart, and read for whiteouts.

use crate::error::Fault;

/// A name relative to the layer's root, without `.`, `..`, empty parts or zeros. The root itself has no parts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name(Vec<Vec<u8>>);

/// A name that says that something below is to be hidden.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Whiteout {
    /// everything that the layers below have in this directory
    Opaque,
    /// one name
    Of(Name),
    /// marks of another file system that mean nothing here
    Ignored,
}

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
const FOREIGN: &[u8] = b".wh..wh.";

// === impl Name ===

impl Name {
    pub(super) fn root() -> Self {
        Self(Vec::new())
    }

    /// Takes absolute names as relative to the root, as every other reader of layers does. `..` is refused, even where it would
    /// stay inside: no builder writes it.
    pub(super) fn parse(name: &[u8]) -> Result<Self, Fault> {
        if name.is_empty() || name.contains(&0) {
            return Err(Fault::Name);
        }
        let mut parts = Vec::new();
        for part in name.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => return Err(Fault::Escapes),
                part => parts.push(part.to_vec()),
            }
        }
        Ok(Self(parts))
    }

    pub(super) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn parts(&self) -> &[Vec<u8>] {
        &self.0
    }

    /// The last part; empty for the root.
    pub(super) fn last(&self) -> &[u8] {
        self.0.last().map_or(&[], Vec::as_slice)
    }

    pub(super) fn parent(&self) -> Self {
        Self(self.0[..self.0.len().saturating_sub(1)].to_vec())
    }

    /// The directories above it, the root left out, from the top.
    pub(super) fn ancestors(&self) -> impl Iterator<Item = Self> + '_ {
        (1..self.0.len()).map(|length| Self(self.0[..length].to_vec()))
    }

    pub(super) fn path(&self) -> Vec<u8> {
        if self.is_root() { b".".to_vec() } else { self.0.join(&b'/') }
    }

    pub(super) fn whiteout(&self) -> Result<Option<Whiteout>, Fault> {
        let last = self.last();
        if last == OPAQUE {
            return Ok(Some(Whiteout::Opaque));
        }
        if last.starts_with(FOREIGN) {
            return Ok(Some(Whiteout::Ignored));
        }
        match last.strip_prefix(WHITEOUT) {
            None => Ok(None),
            Some(b"" | b"." | b"..") => Err(Fault::Whiteout(String::from_utf8_lossy(last).into_owned())),
            Some(hidden) => {
                let mut name = self.parent();
                name.0.push(hidden.to_vec());
                Ok(Some(Whiteout::Of(name)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &[u8]) -> Option<String> {
        Name::parse(name).ok().map(|name| String::from_utf8(name.path()).unwrap())
    }

    #[test]
    fn names_are_relative_and_never_go_up() {
        assert_eq!(path(b"a/b").as_deref(), Some("a/b"));
        assert_eq!(path(b"./a//b/").as_deref(), Some("a/b"));
        assert_eq!(path(b"/etc/passwd").as_deref(), Some("etc/passwd"));
        assert_eq!(path(b"./").as_deref(), Some("."));
        for wrong in [&b""[..], b"..", b"../x", b"a/../b", b"a/..", b"/..", b"a\0b"] {
            assert_eq!(path(wrong), None, "{}", String::from_utf8_lossy(wrong));
        }
        assert_eq!(path(b"...").as_deref(), Some("..."));
    }

    #[test]
    fn whiteouts_name_what_they_hide() {
        let whiteout = |name: &[u8]| Name::parse(name).unwrap().whiteout();
        assert_eq!(whiteout(b"a/b").unwrap(), None);
        assert_eq!(whiteout(b"a/.wh.b").unwrap(), Some(Whiteout::Of(Name::parse(b"a/b").unwrap())));
        assert_eq!(whiteout(b"a/.wh..wh..opq").unwrap(), Some(Whiteout::Opaque));
        assert_eq!(whiteout(b".wh..wh.plnk").unwrap(), Some(Whiteout::Ignored));
        assert_eq!(whiteout(b".wh..hidden").unwrap(), Some(Whiteout::Of(Name::parse(b".hidden").unwrap())));
        for wrong in [&b".wh."[..], b".wh..", b"a/.wh..."] {
            assert!(matches!(whiteout(wrong), Err(Fault::Whiteout(_))), "{}", String::from_utf8_lossy(wrong));
        }
    }

    #[test]
    fn ancestors_come_from_the_top() {
        let name = Name::parse(b"a/b/c").unwrap();
        let paths: Vec<_> = name.ancestors().map(|name| String::from_utf8(name.path()).unwrap()).collect();
        assert_eq!(paths, ["a", "a/b"]);
    }
}
