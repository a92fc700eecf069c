//! Label and field selectors, as clients write them in queries.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Requirements on labels; all of them have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector(Vec<LabelRequirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct LabelRequirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    Missing,
    Above(i64),
    Below(i64),
}

/// Requirements on fields; all of them have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector(pub(crate) Vec<FieldRequirement>);

/// A field that has to have a value, or must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldRequirement {
    pub(crate) field: String,
    pub(crate) equal: bool,
    pub(crate) value: String,
}

/// Reads one requirement after the other.
struct Reader<'a> {
    rest: &'a str,
}

/// Text that is not a selector, in the words of the real server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SelectorError {
    #[error("unable to parse requirement: {0}")]
    Requirement(#[source] RequirementError),
    #[error("found '{0}', expected: ',' or 'end of string'")]
    NoEnd(char),
    #[error("invalid selector: '{text}'; can't understand '{term}'")]
    Term { text: String, term: String },
}

/// What is wrong with one requirement on labels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequirementError {
    #[error("found '{0}', expected: identifier")]
    NoKey(String),
    #[error("found '{0}', expected: in, notin, =, ==, !=, gt, lt")]
    Operator(String),
    #[error("for 'Gt', 'Lt' operators, the value must be an integer")]
    Bound,
    #[error("expected: '('")]
    NoList,
    #[error("expected: ',' or ')'")]
    OpenList,
}

// === impl LabelSelector ===

impl LabelSelector {
    pub(crate) fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut reader = Reader { rest: text };
        let mut requirements = Vec::new();
        if reader.peek().is_none() {
            return Ok(Self::default());
        }
        loop {
            let requirement = reader.requirement().map_err(SelectorError::Requirement)?;
            requirements.push(requirement);
            match reader.peek() {
                None => return Ok(Self(requirements)),
                Some(',') => reader.skip(),
                Some(other) => return Err(SelectorError::NoEnd(other)),
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object with these labels is selected.
    pub(crate) fn matches(&self, labels: Option<&Value>) -> bool {
        self.0.iter().all(|requirement| {
            let value = labels.and_then(|labels| labels.get(&requirement.key)).and_then(Value::as_str);
            let number = || value.and_then(|value| value.parse::<i64>().ok());
            match &requirement.operator {
                Operator::In(values) => value.is_some_and(|value| values.contains(value)),
                Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Operator::Exists => value.is_some(),
                Operator::Missing => value.is_none(),
                Operator::Above(bound) => number().is_some_and(|number| number > *bound),
                Operator::Below(bound) => number().is_some_and(|number| number < *bound),
            }
        })
    }
}

// === impl Reader ===

impl Reader<'_> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn skip(&mut self) {
        let mut chars = self.rest.chars();
        chars.next();
        self.rest = chars.as_str();
    }

    fn word(&mut self) -> String {
        self.peek();
        let special = |c: char| c.is_whitespace() || "=!(),<>".contains(c);
        let end = self.rest.find(special).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word.to_owned()
    }

    fn requirement(&mut self) -> Result<LabelRequirement, RequirementError> {
        let missing = self.peek() == Some('!');
        if missing {
            self.skip();
        }
        let key = self.word();
        if key.is_empty() {
            return Err(RequirementError::NoKey(self.peek().map_or(String::new(), String::from)));
        }
        if missing {
            return Ok(LabelRequirement { key, operator: Operator::Missing });
        }
        let operator = match self.peek() {
            None | Some(',') => Operator::Exists,
            Some('=') => {
                self.skip();
                if self.rest.starts_with('=') {
                    self.skip();
                }
                Operator::In(BTreeSet::from([self.word()]))
            }
            Some('!') => {
                self.skip();
                if !self.rest.starts_with('=') {
                    return Err(RequirementError::Operator("!".to_owned()));
                }
                self.skip();
                Operator::NotIn(BTreeSet::from([self.word()]))
            }
            Some(sign @ ('<' | '>')) => {
                self.skip();
                let bound: i64 = self.word().parse().map_err(|_| RequirementError::Bound)?;
                if sign == '>' { Operator::Above(bound) } else { Operator::Below(bound) }
            }
            Some(_) => match self.word().as_str() {
                "in" => Operator::In(self.values()?),
                "notin" => Operator::NotIn(self.values()?),
                word => return Err(RequirementError::Operator(word.to_owned())),
            },
        };
        Ok(LabelRequirement { key, operator })
    }

    fn values(&mut self) -> Result<BTreeSet<String>, RequirementError> {
        if self.peek() != Some('(') {
            return Err(RequirementError::NoList);
        }
        let mut values = BTreeSet::new();
        loop {
            self.skip();
            values.insert(self.word());
            match self.peek() {
                Some(',') => {}
                Some(')') => {
                    self.skip();
                    return Ok(values);
                }
                _ => return Err(RequirementError::OpenList),
            }
        }
    }
}

// === impl FieldSelector ===

impl FieldSelector {
    pub(crate) fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut terms = vec![String::new()];
        let mut escaped = false;
        for c in text.chars() {
            let last = terms.len() - 1;
            match c {
                ',' if !escaped => terms.push(String::new()),
                _ => terms[last].push(c),
            }
            escaped = c == '\\' && !escaped;
        }
        let mut requirements = Vec::new();
        for term in terms.iter().filter(|term| !term.is_empty()) {
            let invalid = || SelectorError::Term { text: text.to_owned(), term: term.clone() };
            let at = term.find(['=', '!']).ok_or_else(invalid)?;
            let (field, rest) = term.split_at(at);
            let (equal, value) = if let Some(value) = rest.strip_prefix("!=") {
                (false, value)
            } else {
                let value = rest.strip_prefix("==").or_else(|| rest.strip_prefix('='));
                (true, value.ok_or_else(invalid)?)
            };
            let value = value.replace("\\,", ",").replace("\\=", "=").replace("\\\\", "\\");
            requirements.push(FieldRequirement { field: field.to_owned(), equal, value });
        }
        Ok(Self(requirements))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value that a field has to have, if the selector says so.
    pub(crate) fn exact(&self, field: &str) -> Option<String> {
        let found = self.0.iter().find(|requirement| requirement.equal && requirement.field == field);
        found.map(|requirement| requirement.value.clone())
    }

    /// Whether an object with these fields is selected; a field that is not there is empty.
    pub(crate) fn matches(&self, fields: &BTreeMap<&'static str, String>) -> bool {
        self.0.iter().all(|requirement| {
            let value = fields.get(requirement.field.as_str()).map_or("", String::as_str);
            (value == requirement.value) == requirement.equal
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_selectors_select_as_the_server_does() {
        let labels = json!({ "a": "b", "n": "5", "empty": "" });
        let table = [
            ("", true),
            ("a", true),
            ("z", false),
            ("!z", true),
            ("!a", false),
            ("a=b", true),
            ("a==b", true),
            ("a = c", false),
            ("a!=b", false),
            ("z!=b", true),
            ("a in (b, c)", true),
            ("a in (c)", false),
            ("z in (c)", false),
            ("a notin (b)", false),
            ("z notin (b)", true),
            ("n>4", true),
            ("n<5", false),
            ("a>4", false),
            ("empty=", true),
            ("a=b,n=5", true),
            ("a=b,n=6", false),
        ];
        for (text, selected) in table {
            let selector = LabelSelector::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(selector.matches(Some(&labels)), selected, "{text}");
        }
        for bad in ["a b", "a in b", "a in (b", "=b", "a!b", ",", "a,", "a>x"] {
            assert!(LabelSelector::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn field_selectors_select_as_the_server_does() {
        let fields = BTreeMap::from([("metadata.name", "a,b".to_owned()), ("spec.nodeName", "n1".to_owned())]);
        let table = [
            ("", true),
            ("spec.nodeName=n1", true),
            ("spec.nodeName==n1", true),
            ("spec.nodeName!=n1", false),
            ("spec.nodeName=n1,metadata.name=a\\,b", true),
            ("spec.nodeName=", false),
            ("status.phase=", true),
        ];
        for (text, selected) in table {
            let selector = FieldSelector::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(selector.matches(&fields), selected, "{text}");
        }
        assert!(FieldSelector::parse("nodeName").is_err());
        assert_eq!(FieldSelector::parse("a=b").ok().and_then(|s| s.exact("a")), Some("b".to_owned()));
    }
}
