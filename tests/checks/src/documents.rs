//! Links and promises in Markdown.

/// A link from one document to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its line.
    pub line: usize,
    /// Its target file; empty for the document itself.
    pub path: String,
    /// Its target heading; empty for the top.
    pub anchor: String,
}

/// A promise and what enforces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Its line.
    pub line: usize,
    /// What enforces it.
    pub enforced: Enforced,
}

/// What enforces a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enforced {
    /// These tests, each as `crate directory::test name`.
    By(Vec<(String, String)>),
    /// Nothing yet, marked as pending.
    Pending,
    /// Nothing, and it is not marked as pending.
    Unsaid,
}

/// The links in a document to files of the project.
pub fn links(markdown: &str) -> Vec<Link> {
    let mut links = Vec::new();
    for (line, text) in prose(markdown) {
        let plain = without_code(text);
        let targets = plain.match_indices("](").filter_map(|(at, _)| plain[at + 2..].split_once(')'));
        let reference = plain.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        let targets = targets.map(|(target, _)| target).chain(reference.map(|(_, target)| target.trim()));
        for target in targets {
            let target = target.split(" \"").next().unwrap_or(target);
            if !target.contains("://") && !target.starts_with("mailto:") {
                let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
                links.push(Link { line, path: path.to_owned(), anchor: anchor.to_owned() });
            }
        }
    }
    links
}

/// The anchors of a document's headings.
pub fn anchors(markdown: &str) -> Vec<String> {
    let headings = prose(markdown).filter_map(|(_, text)| {
        let title = text.trim_start_matches('#');
        (title.len() < text.len() && title.starts_with(' ')).then(|| title.trim())
    });
    headings
        .map(|title| {
            let kept = title
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .collect::<String>();
            kept.replace(' ', "-")
        })
        .collect()
}

/// The promises of a document: the rows of every table whose last column is called "enforced by".
pub fn promises(markdown: &str) -> Vec<Promise> {
    let mut promises = Vec::new();
    let mut in_table = false;
    for (line, text) in prose(markdown) {
        let Some(row) = text.trim().strip_prefix('|').and_then(|row| row.strip_suffix('|')) else {
            in_table = false;
            continue;
        };
        let last = row.rsplit('|').next().unwrap_or("").trim();
        if last == "enforced by" {
            in_table = true;
        } else if in_table && !last.starts_with("---") {
            promises.push(Promise { line, enforced: enforced(last) });
        }
    }
    promises
}

fn enforced(cell: &str) -> Enforced {
    let quoted = cell.split('`').skip(1).step_by(2);
    let tests: Vec<(String, String)> = quoted
        .filter_map(|name| name.split_once("::"))
        .map(|(krate, name)| (krate.to_owned(), name.to_owned()))
        .collect();
    if !tests.is_empty() {
        Enforced::By(tests)
    } else if cell.starts_with("pending") {
        Enforced::Pending
    } else {
        Enforced::Unsaid
    }
}

/// Numbered lines outside of fenced code.
fn prose(markdown: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    markdown.lines().enumerate().filter_map(move |(index, text)| {
        let fence = text.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, text))
    })
}

/// The line without its code spans.
fn without_code(text: &str) -> String {
    text.split('`').step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::{Enforced, anchors, links, promises};

    fn targets(markdown: &str) -> Vec<String> {
        links(markdown).into_iter().map(|link| format!("{}:{}#{}", link.line, link.path, link.anchor)).collect()
    }

    #[test]
    fn finds_links_to_files_and_headings() {
        let text = "See [a](docs/a.md) and [b](b.md#the-end \"title\").\n[here](#up)\n[ref]: docs/c.md\n";
        assert_eq!(targets(text), ["1:docs/a.md#", "1:b.md#the-end", "2:#up", "3:docs/c.md#"]);
    }

    #[test]
    fn other_sites_and_code_are_not_followed() {
        let text = "[x](https://example.org/) `[y](no.md)` [m](mailto:a@example.org)\n```\n[z](no.md)\n```\n";
        assert_eq!(targets(text), Vec::<String>::new());
    }

    #[test]
    fn anchors_are_as_forges_make_them() {
        assert_eq!(
            anchors("# The one idea: evidence\n## `keelet why`\n#no\n"),
            ["the-one-idea-evidence", "keelet-why"]
        );
    }

    #[test]
    fn reads_promises_and_what_enforces_them() {
        let text = "| promise | enforced by |\n| --- | --- |\n| one | `lifecycle::is_kept`, `pod::too` |\n\
                    | two | pending |\n| three | hope |\n\n| a | b |\n| --- | --- |\n| x | y |\n";
        let found: Vec<Enforced> = promises(text).into_iter().map(|promise| promise.enforced).collect();
        let by = |krate: &str, name: &str| (krate.to_owned(), name.to_owned());
        assert_eq!(
            found,
            [Enforced::By(vec![by("lifecycle", "is_kept"), by("pod", "too")]), Enforced::Pending, Enforced::Unsaid]
        );
    }
}
