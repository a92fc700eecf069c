//! The kinds of things that can be shown, and their names on the command line.

use std::ffi::OsStr;

use clap::{
    Arg, Command,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
    error::ErrorKind,
};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Pods,
    Containers,
    Images,
    Node,
    Events,
}

/// A kind, or one thing of it: `pods`, `pod/web`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) kind: Kind,
    pub(super) name: Option<String>,
}

/// Parses it, and lists the possible values for shells and `--help`.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedParser;

/// Each kind with its names, the usual one first.
const KINDS: [(Kind, &str, &[&str]); 5] = [
    (Kind::Pods, "pods", &["pod", "po"]),
    (Kind::Containers, "containers", &["container"]),
    (Kind::Images, "images", &["image"]),
    (Kind::Node, "node", &["nodes", "no"]),
    (Kind::Events, "events", &["event", "ev"]),
];

// === impl AskedParser ===

impl TypedValueParser for AskedParser {
    type Value = Asked;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<Asked, clap::Error> {
        let text = value.to_str().ok_or_else(|| clap::Error::new(ErrorKind::InvalidUtf8).with_cmd(command))?;
        let (word, name) = match text.split_once('/') {
            Some((kind, name)) => (kind, Some(name.to_owned())),
            None => (text, None),
        };
        match Kind::called(word) {
            Some(kind) => Ok(Asked { kind, name }),
            // The usual words for what is not among the possible values, with what is near to it.
            None => Err(PossibleValuesParser::new(values())
                .parse_ref(command, argument, OsStr::new(word))
                .err()
                .unwrap_or_else(|| clap::Error::new(ErrorKind::InvalidValue).with_cmd(command))),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(values()))
    }
}

fn values() -> impl Iterator<Item = PossibleValue> {
    KINDS.into_iter().map(|(_, name, others)| PossibleValue::new(name).aliases(others))
}

// === impl Kind ===

impl Kind {
    pub(super) fn called(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        let found = KINDS.iter().find(|(_, name, others)| *name == word || others.contains(&word.as_str()));
        found.map(|(kind, ..)| *kind)
    }

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Pods => "/v1/pods",
            Self::Containers => "/v1/containers",
            Self::Images => "/v1/images",
            Self::Node => "/v1/node",
            Self::Events => "/v1/events",
        }
    }

    /// One of them, in words.
    pub(super) fn one(self) -> &'static str {
        match self {
            Self::Pods => "pod",
            Self::Containers => "container",
            Self::Images => "image",
            Self::Node => "node",
            Self::Events => "event",
        }
    }

    /// All of them, in words.
    pub(super) fn all(self) -> &'static str {
        KINDS.iter().find(|(kind, ..)| *kind == self).map_or("things", |(_, name, _)| name)
    }

    pub(super) fn is_namespaced(self) -> bool {
        matches!(self, Self::Pods | Self::Containers | Self::Events)
    }

    /// Whether the agent streams changes of this kind.
    pub(super) fn tells_changes(self) -> bool {
        matches!(self, Self::Pods | Self::Events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Asked, clap::Error> {
        AskedParser.parse_ref(&Command::new("get"), None, OsStr::new(text))
    }

    #[test]
    fn kinds_have_kubectls_names_and_one_thing_may_follow() {
        for (text, kind, name) in [
            ("pods", Kind::Pods, None),
            ("Po", Kind::Pods, None),
            ("pod/web", Kind::Pods, Some("web")),
            ("image/reg:5000/a:1", Kind::Images, Some("reg:5000/a:1")),
            ("no", Kind::Node, None),
            ("ev", Kind::Events, None),
            ("container", Kind::Containers, None),
        ] {
            assert_eq!(parse(text).unwrap(), Asked { kind, name: name.map(str::to_owned) }, "{text}");
        }
        let error = parse("services").unwrap_err().to_string();
        assert!(error.contains("services") && error.contains("pods, containers, images, node, events"), "{error}");
        assert!(parse("/web").is_err() && parse("").is_err());
    }

    #[test]
    fn shell_completion_offers_what_there_is() {
        let names: Vec<String> =
            AskedParser.possible_values().unwrap().map(|value| value.get_name().to_owned()).collect();
        assert_eq!(names, ["pods", "containers", "images", "node", "events"]);
    }
}
