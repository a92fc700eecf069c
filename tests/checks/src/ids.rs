//! Behaviour ids in prose: `PROBE-13`, `SCN-U1, U2`, `VEC-16..20`, `CON-18d`.

use std::{collections::BTreeSet, fmt};

/// The id of one behaviour.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// What it belongs to: `PROBE`, or `SCN-U` where a family is divided.
    pub family: String,
    /// Its number there.
    pub number: u32,
    /// A letter behind the number, as in `CON-18d`; empty nearly always.
    pub suffix: String,
}

/// Every id in the text, in any of the forms that people write.
///
/// A full id opens a list. What follows a comma, `and`, `/` or `..` may leave the family out (`SCN-U1, U2`,
/// `VEC-16..20`, `PROBE-2, 42`). In a list a bare number counts only if no word follows it, so that "PROBE-13, 3
/// attempts" names one id.
pub fn find(text: &str) -> BTreeSet<Id> {
    let mut found = BTreeSet::new();
    let mut rest = text;
    let mut boundary = true;
    while let Some(first) = rest.chars().next() {
        if boundary && let Some((id, after)) = full_id(rest) {
            rest = list(id, after, &mut found);
            boundary = true;
            continue;
        }
        boundary = !(first.is_ascii_alphanumeric() || first == '-' || first == '_');
        rest = &rest[first.len_utf8()..];
    }
    found
}

/// Takes the list that `first` opens, and returns what is behind it.
fn list<'a>(first: Id, mut rest: &'a str, found: &mut BTreeSet<Id>) -> &'a str {
    let mut last = first;
    loop {
        found.insert(last.clone());
        if let Some((end, after)) = range_mark(rest).and_then(|after| next_id(after, &last, |_| true)) {
            if end.family == last.family {
                found.extend((last.number..=end.number).map(|number| Id { number, ..last.clone() }));
            }
            (last, rest) = (end, after);
        } else if let Some((next, after)) = separator(rest).and_then(|after| next_id(after, &last, stands_alone)) {
            (last, rest) = (next, after);
        } else {
            return rest;
        }
    }
}

fn range_mark(text: &str) -> Option<&str> {
    let text = text.trim_start_matches('`');
    ["..=", "..", "–"].iter().find_map(|mark| text.strip_prefix(mark)).map(|after| after.trim_start_matches('`'))
}

fn separator(text: &str) -> Option<&str> {
    let text = text.trim_start_matches('`');
    let after = [", and ", ", ", ",", " and ", "/", " / "].iter().find_map(|mark| text.strip_prefix(mark))?;
    Some(after.trim_start().trim_start_matches('`'))
}

/// An id in full, or one that leaves out what it has in common with the one before. A bare number is one if what
/// follows it is as `counts` wants.
fn next_id<'a>(text: &'a str, before: &Id, counts: fn(&str) -> bool) -> Option<(Id, &'a str)> {
    if let Some(full) = full_id(text) {
        return Some(full);
    }
    let (head, part) = before.family.split_once('-').unwrap_or((&before.family, ""));
    let letter = text.chars().next().filter(|c| c.is_ascii_uppercase() && !part.is_empty());
    let (number, suffix, after) = number(&text[letter.map_or(0, char::len_utf8)..])?;
    let family = match letter {
        Some(letter) => format!("{head}-{letter}"),
        None if counts(after) => before.family.clone(),
        None => return None,
    };
    Some((Id { family, number, suffix }, after))
}

/// Whether a bare number ends here, rather than counting what the next word says.
fn stands_alone(after: &str) -> bool {
    let mut chars = after.chars();
    match chars.next() {
        None | Some(',' | ';' | ':' | ')' | '`' | '\n' | '|') => true,
        Some('.') => chars.next().is_none_or(|c| c == '.' || c.is_whitespace()),
        Some(' ') => after.trim_start().starts_with("and ") || after.trim_start().starts_with('('),
        Some(_) => false,
    }
}

/// `FAMILY-12`, `SCN-U12`, `CON-18d`.
fn full_id(text: &str) -> Option<(Id, &str)> {
    let length = text.find(|c: char| !c.is_ascii_uppercase()).unwrap_or(text.len());
    if length < 3 {
        return None;
    }
    let (head, rest) = text.split_at(length);
    let rest = rest.strip_prefix('-')?;
    let letter = rest.chars().next().filter(char::is_ascii_uppercase);
    let (number, suffix, after) = number(&rest[letter.map_or(0, char::len_utf8)..])?;
    let family = letter.map_or_else(|| head.to_owned(), |letter| format!("{head}-{letter}"));
    Some((Id { family, number, suffix }, after))
}

fn number(text: &str) -> Option<(u32, String, &str)> {
    let length = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, after) = text.split_at(length);
    let number = digits.parse().ok()?;
    let mut chars = after.chars();
    match (chars.next(), chars.next()) {
        (Some('a'..='z'), Some(c)) if c.is_ascii_alphanumeric() => None,
        (Some(letter @ 'a'..='z'), _) => Some((number, letter.to_string(), &after[1..])),
        (Some(c), _) if c.is_ascii_alphanumeric() => None,
        _ => Some((number, String::new(), after)),
    }
}

// === impl Id ===

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dash = if self.family.contains('-') { "" } else { "-" };
        write!(f, "{}{dash}{}{}", self.family, self.number, self.suffix)
    }
}

#[cfg(test)]
mod tests {
    use super::find;

    fn found(text: &str) -> Vec<String> {
        find(text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn finds_single_ids_in_prose() {
        assert_eq!(found("PROBE-13: streaks belong to a container (see `SCN-U12`)."), ["PROBE-13", "SCN-U12"]);
        assert_eq!(found("DEF-9's pure part"), ["DEF-9"]);
        assert_eq!(found("allowed by CON-18d."), ["CON-18d"]);
    }

    #[test]
    fn takes_lists_that_leave_the_family_out() {
        assert_eq!(found("SCN-U1, U2 and U5"), ["SCN-U1", "SCN-U2", "SCN-U5"]);
        assert_eq!(found("`SCN-U1`, `U2`"), ["SCN-U1", "SCN-U2"]);
        assert_eq!(found("PROBE-2, 42"), ["PROBE-2", "PROBE-42"]);
        assert_eq!(found("PROBE-2, 42, STAT-3."), ["PROBE-2", "PROBE-42", "STAT-3"]);
        assert_eq!(found("SCN-R7, A13"), ["SCN-A13", "SCN-R7"]);
        assert_eq!(found("PROBE-2/PROBE-3"), ["PROBE-2", "PROBE-3"]);
    }

    #[test]
    fn takes_ranges() {
        assert_eq!(found("VEC-16..VEC-18"), ["VEC-16", "VEC-17", "VEC-18"]);
        assert_eq!(found("VEC-16..18"), ["VEC-16", "VEC-17", "VEC-18"]);
        assert_eq!(found("VEC-16..=18, VEC-20"), ["VEC-16", "VEC-17", "VEC-18", "VEC-20"]);
        assert_eq!(found("SCN-U1..U3, U5"), ["SCN-U1", "SCN-U2", "SCN-U3", "SCN-U5"]);
        assert_eq!(found("VEC-1..3 are shown"), ["VEC-1", "VEC-2", "VEC-3"]);
    }

    #[test]
    fn a_number_that_counts_something_is_no_id() {
        assert_eq!(found("PROBE-13, 3 attempts"), ["PROBE-13"]);
        assert_eq!(found("BACK-1, 10 s"), ["BACK-1"]);
        assert_eq!(found("BACK-1, 2.5"), ["BACK-1"]);
    }

    #[test]
    fn what_only_looks_like_an_id_is_none() {
        assert_eq!(found("see xPROBE-1, A-PROBE-2, PROBE-*, PROBE-, SCN-U"), Vec::<String>::new());
        assert_eq!(found("probe-1 VEC-1abc VEC-2X"), Vec::<String>::new());
    }
}
