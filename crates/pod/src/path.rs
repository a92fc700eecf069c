//! Field paths as the API server prints them: `spec.containers[1].livenessProbe.httpGet.port`.

use std::{borrow::Cow, fmt};

/// Where in an object something is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldPath(Vec<Segment>);

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// A field of an object: `.name`.
    Field(Cow<'static, str>),
    /// An entry of a list: `[3]`.
    Index(usize),
    /// An entry of a free-form map: `[keelet.dev/x]`.
    Key(String),
}

// === impl FieldPath ===

impl FieldPath {
    /// The path of the object itself.
    pub(crate) fn root() -> Self {
        Self::default()
    }

    /// The path of a field of this object.
    pub(crate) fn field(&self, name: impl Into<Cow<'static, str>>) -> Self {
        self.with(Segment::Field(name.into()))
    }

    /// The path of an entry of this list.
    pub(crate) fn index(&self, index: usize) -> Self {
        self.with(Segment::Index(index))
    }

    /// The path of an entry of this free-form map.
    pub(crate) fn key(&self, key: &str) -> Self {
        self.with(Segment::Key(key.to_owned()))
    }

    /// This path below another one.
    pub(crate) fn below(&self, prefix: &Self) -> Self {
        Self(prefix.0.iter().chain(&self.0).cloned().collect())
    }

    /// The steps, outermost first.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// One step further down.
    pub(crate) fn with(&self, segment: Segment) -> Self {
        let mut segments = Vec::with_capacity(self.0.len() + 1);
        segments.extend_from_slice(&self.0);
        segments.push(segment);
        Self(segments)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Field(name) => {
                    if position > 0 {
                        f.write_str(".")?;
                    }
                    printable(f, name)?;
                }
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) => {
                    f.write_str("[")?;
                    printable(f, key)?;
                    f.write_str("]")?;
                }
            }
        }
        Ok(())
    }
}

/// Names come from the document and end up on terminals: control characters are escaped, endless names cut.
fn printable(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    const LONGEST: usize = 80;
    for (position, character) in name.chars().enumerate() {
        if position == LONGEST {
            return f.write_str("...");
        }
        if character.is_control() {
            write!(f, "{}", character.escape_debug())?;
        } else {
            write!(f, "{character}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::FieldPath;

    #[test]
    fn reads_as_the_api_server_prints_it() {
        let path = FieldPath::root().field("spec").field("containers").index(1).field("livenessProbe");
        assert_eq!(path.to_string(), "spec.containers[1].livenessProbe");
        let key = FieldPath::root().field("metadata").field("annotations").key("keelet.dev/x");
        assert_eq!(key.to_string(), "metadata.annotations[keelet.dev/x]");
        let item = path.below(&FieldPath::root().field("items").index(3));
        assert_eq!(item.to_string(), "items[3].spec.containers[1].livenessProbe");
    }

    #[test]
    fn control_characters_are_escaped_and_long_names_cut() {
        assert_eq!(FieldPath::root().field("a\u{1b}[31mb").to_string(), "a\\u{1b}[31mb");
        assert_eq!(FieldPath::root().field("é").to_string(), "é");
        let exactly = "x".repeat(80);
        assert_eq!(FieldPath::root().field(exactly.clone()).to_string(), exactly);
        assert_eq!(FieldPath::root().field("x".repeat(81)).to_string(), format!("{exactly}..."));
    }
}
