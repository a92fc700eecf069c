//! Names in a layer: sanitised, split, and checked for whiteouts.

use std::borrow::Cow;

use crate::error::Fault;

/// A name relative to the layer's root, without `.`, `..`, empty parts or zeros, its parts joined by single slashes. The root's is
/// empty. It is one text, however many parts it has, and the names of directories above it are parts of that text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name<'a>(Cow<'a, [u8]>);

/// A name that says that something below is to be hidden.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Whiteout {
    /// everything that the layers below have in this directory
    Opaque,
    /// one name in the same directory
    Of(Vec<u8>),
    /// marks of another file system that mean nothing here
    Ignored,
}

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
const FOREIGN: &[u8] = b".wh..wh.";

// === impl Name ===

impl Name<'_> {
    pub(super) fn root() -> Self {
        Self(Cow::Borrowed(&[]))
    }

    /// Takes absolute names as relative to the root, as every other reader of layers does. `..` is refused, even where it would
    /// stay inside: no builder writes it.
    pub(super) fn parse(name: &[u8]) -> Result<Self, Fault> {
        if name.is_empty() || name.contains(&0) {
            return Err(Fault::Name);
        }
        let mut clean = Vec::with_capacity(name.len());
        for part in name.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => return Err(Fault::Escapes),
                part => {
                    if !clean.is_empty() {
                        clean.push(b'/');
                    }
                    clean.extend_from_slice(part);
                }
            }
        }
        Ok(Self(Cow::Owned(clean)))
    }

    pub(super) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/').filter(|part| !part.is_empty())
    }

    /// The last part; empty for the root.
    pub(super) fn last(&self) -> &[u8] {
        self.0.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    pub(super) fn parent(&self) -> Name<'_> {
        let end = self.0.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        Name(Cow::Borrowed(&self.0[..end]))
    }

    /// The directories above it, the root left out, from the top.
    pub(super) fn ancestors(&self) -> Vec<Name<'_>> {
        let ends = self.0.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        ends.map(|(end, _)| Name(Cow::Borrowed(&self.0[..end]))).collect()
    }

    pub(super) fn path(&self) -> &[u8] {
        if self.is_root() { b"." } else { &self.0 }
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
            Some(hidden) => Ok(Some(Whiteout::Of(hidden.to_vec()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &[u8]) -> Option<String> {
        Name::parse(name).ok().map(|name| String::from_utf8(name.path().to_vec()).unwrap())
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
        assert_eq!(whiteout(b"a/.wh.b").unwrap(), Some(Whiteout::Of(b"b".to_vec())));
        assert_eq!(whiteout(b"a/.wh..wh..opq").unwrap(), Some(Whiteout::Opaque));
        assert_eq!(whiteout(b".wh..wh.plnk").unwrap(), Some(Whiteout::Ignored));
        assert_eq!(whiteout(b".wh..hidden").unwrap(), Some(Whiteout::Of(b".hidden".to_vec())));
        for wrong in [&b".wh."[..], b".wh..", b"a/.wh..."] {
            assert!(matches!(whiteout(wrong), Err(Fault::Whiteout(_))), "{}", String::from_utf8_lossy(wrong));
        }
    }

    #[test]
    fn ancestors_come_from_the_top() {
        let name = Name::parse(b"a/b/c").unwrap();
        let paths: Vec<_> =
            name.ancestors().iter().map(|name| String::from_utf8(name.path().to_vec()).unwrap()).collect();
        assert_eq!(paths, ["a", "a/b"]);
        assert_eq!((name.parent().path(), name.last(), name.parts().count()), (&b"a/b"[..], &b"c"[..], 3));
        let top = Name::parse(b"a").unwrap();
        assert_eq!((top.ancestors().len(), top.parent(), top.last()), (0, Name::root(), &b"a"[..]));
        assert_eq!((Name::root().parts().count(), Name::root().last()), (0, &b""[..]));
    }
}
