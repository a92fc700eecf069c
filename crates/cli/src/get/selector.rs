//! `-l`: which pods are wanted, by their labels, in kubectl's words. Pure.

use serde_json::Value;

/// All of these have to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selector(Vec<Demand>);

/// What a label has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Demand {
    /// `a`
    There(String),
    /// `!a`
    NotThere(String),
    /// `a=x`, `a==x`, `a in (x, y)`
    OneOf(String, Vec<String>),
    /// `a!=x`, `a notin (x, y)`; a label that is not there is none of them.
    NoneOf(String, Vec<String>),
}

/// Text that is not a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid selector {text:?}: {source}; expected such as app=web,tier!=test or 'app in (web, db),!old'")]
pub(crate) struct InvalidSelector {
    text: String,
    source: InvalidDemand,
}

/// What is wrong with one part of a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum InvalidDemand {
    #[error("invalid label {0:?}")]
    Label(String),
    #[error("invalid label value {0:?}")]
    Value(String),
    #[error("expected in or notin, found {0:?}")]
    Operator(String),
    #[error("expected a list in parentheses, found {0:?}")]
    List(String),
}

// === impl Selector ===

impl Selector {
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidSelector> {
        let demands: Result<Vec<Demand>, InvalidDemand> = parts(text).into_iter().map(Demand::parse).collect();
        demands.map(Self).map_err(|source| InvalidSelector { text: text.to_owned(), source })
    }

    /// Whether an object of the Kubernetes API has such labels.
    pub(super) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.0.iter().all(|demand| match demand {
            Demand::There(key) => labels[key].is_string(),
            Demand::NotThere(key) => !labels[key].is_string(),
            Demand::OneOf(key, values) => labels[key].as_str().is_some_and(|own| values.iter().any(|one| one == own)),
            Demand::NoneOf(key, values) => labels[key].as_str().is_none_or(|own| values.iter().all(|one| one != own)),
        })
    }
}

/// Cut at commas that are not in parentheses.
fn parts(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    text.split(|letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    })
    .collect()
}

// === impl Demand ===

impl Demand {
    fn parse(text: &str) -> Result<Self, InvalidDemand> {
        let text = text.trim();
        if let Some(key) = text.strip_prefix('!') {
            return Ok(Self::NotThere(label(key)?));
        }
        // The longer sign first: `=` is in both others.
        for (sign, is) in [("!=", false), ("==", true), ("=", true)] {
            if let Some((key, value)) = text.split_once(sign) {
                let (key, values) = (label(key)?, vec![value_of(value)?]);
                return Ok(if is { Self::OneOf(key, values) } else { Self::NoneOf(key, values) });
            }
        }
        let Some((key, rest)) = text.split_once(char::is_whitespace) else { return Ok(Self::There(label(text)?)) };
        let rest = rest.trim_start();
        let (is, rest) = match (rest.strip_prefix("in"), rest.strip_prefix("notin")) {
            (_, Some(rest)) => (false, rest),
            (Some(rest), None) => (true, rest),
            (None, None) => return Err(InvalidDemand::Operator(rest.to_owned())),
        };
        let list = rest.trim().strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let list = list.ok_or_else(|| InvalidDemand::List(rest.trim().to_owned()))?;
        let (key, values) = (label(key)?, list.split(',').map(value_of).collect::<Result<_, _>>()?);
        Ok(if is { Self::OneOf(key, values) } else { Self::NoneOf(key, values) })
    }
}

fn label(text: &str) -> Result<String, InvalidDemand> {
    let text = text.trim();
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
    match !text.is_empty() && text.chars().all(fits) {
        true => Ok(text.to_owned()),
        false => Err(InvalidDemand::Label(text.to_owned())),
    }
}

/// An empty one is one.
fn value_of(text: &str) -> Result<String, InvalidDemand> {
    let text = text.trim();
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    match text.chars().all(fits) {
        true => Ok(text.to_owned()),
        false => Err(InvalidDemand::Value(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_are_chosen_by_their_labels_as_kubectl_does() {
        let web = json!({ "metadata": { "labels": { "app": "web", "k8s.io/tier": "front", "empty": "" } } });
        let bare = json!({ "metadata": {} });
        for (selector, has_web, has_bare) in [
            ("app=web", true, false),
            ("app==web", true, false),
            ("app=db", false, false),
            ("app!=db", true, true),
            ("app!=web", false, true),
            ("app", true, false),
            ("!app", false, true),
            ("app in (db, web)", true, false),
            ("app in(web)", true, false),
            ("app notin (db,web)", false, true),
            ("app=web,k8s.io/tier in (front,back)", true, false),
            (" app = web , !old ", true, false),
            ("app=web,k8s.io/tier=back", false, false),
            ("empty=", true, false),
            ("internal", false, false),
        ] {
            let parsed = Selector::parse(selector).unwrap();
            assert_eq!((parsed.matches(&web), parsed.matches(&bare)), (has_web, has_bare), "{selector}");
        }
    }

    #[test]
    fn what_is_no_selector_is_said() {
        for (text, why) in [
            ("", "invalid label \"\""),
            ("app=web,", "invalid label \"\""),
            ("=web", "invalid label \"\""),
            ("app=a=b", "invalid label value \"a=b\""),
            ("app in web", "expected a list in parentheses, found \"web\""),
            ("app in (web", "expected a list in parentheses, found \"(web\""),
            ("app of (web)", "expected in or notin, found \"of (web)\""),
            ("a b!", "found \"b!\""),
            ("!", "invalid label \"\""),
        ] {
            let error = Selector::parse(text).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("invalid selector"), "{text}: {error}");
        }
    }
}
