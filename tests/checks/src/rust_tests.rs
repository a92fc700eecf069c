//! Test functions in Rust source, with their doc comments.
//!
//! Line by line and without a parser: rustfmt guarantees that an attribute, a doc comment and a `fn` each begin a line.
//! A `#[test]` inside `proptest!` looks like any other. A macro whose name ends in `tests` or `cases` is read as a
//! table of tests: each of its entries with a doc comment counts as one. In a binary without the standard harness a test is
//! a function that returns whether it was [shown](CASE); the compiler warns if no table names it. Ignored tests are
//! marked, with the command that runs them if they name one: `make test` does not run them.

/// A test function, or an entry of a table of tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// Its name.
    pub name: String,
    /// The line of its name.
    pub line: usize,
    /// Its doc comment.
    pub doc: String,
    /// When it is run.
    pub runs: Runs,
}

/// When a test is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Runs {
    /// With every other test.
    #[default]
    Always,
    /// Ignored; `make soak` runs it, according to the reason of its `ignore`.
    InSoak,
    /// Ignored; `make e2e` runs it, likewise.
    InE2e,
    /// Ignored, and no command is named.
    Never,
}

/// The end of the signature of a test that the standard harness does not run.
const CASE: &str = "-> Shown {";

/// The attributes and doc comment directly before an item.
#[derive(Default)]
struct Preamble {
    doc: String,
    is_test: bool,
    runs: Runs,
    /// Open brackets of an attribute over several lines.
    open: i32,
}

/// The tests in this source file.
pub fn find(source: &str) -> Vec<Test> {
    let mut tests = Vec::new();
    let mut before = Preamble::default();
    let mut table_indent = None;
    for (index, text) in source.lines().enumerate() {
        let indent = text.len() - text.trim_start().len();
        let code = text.trim();
        if before.open > 0 {
            before.open += brackets(code);
        } else if let Some(doc) = code.strip_prefix("///") {
            before.doc.push_str(doc);
            before.doc.push('\n');
        } else if code.starts_with("#[") {
            before.attribute(code);
        } else if !code.starts_with("//") {
            let entry = if before.is_test || code.ends_with(CASE) {
                function_name(code)
            } else if table_indent.is_some() && !before.doc.is_empty() {
                Some(leading_name(code)).filter(|name| !name.is_empty())
            } else {
                None
            };
            if let Some(name) = entry {
                let runs = before.runs;
                tests.push(Test { name: name.to_owned(), line: index + 1, doc: before.doc, runs });
            }
            before = Preamble::default();
            if opens_table(code) {
                table_indent = Some(indent);
            } else if table_indent == Some(indent) && code.starts_with(['}', ')', ']']) {
                table_indent = None;
            }
        }
    }
    tests
}

fn brackets(code: &str) -> i32 {
    code.chars().fold(0, |open, c| match c {
        '[' => open + 1,
        ']' => open - 1,
        _ => open,
    })
}

fn opens_table(code: &str) -> bool {
    let name = leading_name(code);
    (name.ends_with("tests") || name.ends_with("cases"))
        && code[name.len()..].starts_with('!')
        && code.ends_with(['{', '(', '['])
}

fn function_name(code: &str) -> Option<&str> {
    let (_, after) = code.split_once("fn ")?;
    Some(leading_name(after)).filter(|name| !name.is_empty())
}

fn leading_name(code: &str) -> &str {
    &code[..code.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(code.len())]
}

// === impl Runs ===

impl Runs {
    /// When a test with this attribute runs. The reason ends with the command.
    fn of_ignored(attribute: &str) -> Self {
        let reason = attribute.split('"').nth(1).unwrap_or_default();
        match reason {
            reason if reason.ends_with("make soak") => Self::InSoak,
            reason if reason.ends_with("make e2e") => Self::InE2e,
            _ => Self::Never,
        }
    }
}

// === impl Preamble ===

impl Preamble {
    fn attribute(&mut self, code: &str) {
        let path = code[2..].split(['(', ']', ' ', '=']).next().unwrap_or("");
        match path.rsplit("::").next().unwrap_or(path) {
            "test" | "rstest" | "test_case" => self.is_test = true,
            "ignore" => self.runs = Runs::of_ignored(code),
            _ => {}
        }
        self.open = brackets(code);
    }
}

#[cfg(test)]
mod tests {
    use super::{Runs, find};

    fn found(source: &str) -> Vec<(String, String)> {
        find(source).into_iter().map(|test| (test.name, test.doc.trim().to_owned())).collect()
    }

    fn pair(name: &str, doc: &str) -> (String, String) {
        (name.to_owned(), doc.to_owned())
    }

    #[test]
    fn reads_a_test_with_its_doc_comment() {
        let source = "    /// VEC-1\n    /// and more\n    #[test]\n    fn first() {\n    }\n\n    #[test]\n    fn second() {}\n";
        assert_eq!(found(source), [pair("first", "VEC-1\n and more"), pair("second", "")]);
        assert_eq!(find(source)[0].line, 4);
    }

    #[test]
    fn other_attributes_may_stand_in_between() {
        let source = "/// VEC-1\n#[expect(\n    clippy::all,\n    reason = \"x\"\n)]\n#[tokio::test(start_paused = true)]\nasync fn waits() {}\n";
        assert_eq!(found(source), [pair("waits", "VEC-1")]);
    }

    #[test]
    fn reads_tests_inside_proptest() {
        let source = "proptest! {\n    /// VEC-2\n    #[test]\n    fn holds(x in 0..3) {\n    }\n}\n";
        assert_eq!(found(source), [pair("holds", "VEC-2")]);
    }

    #[test]
    fn reads_the_entries_of_a_table() {
        let source = "phase_cases! {\n    /// VEC-35\n    nothing_yet: [] => Pending,\n    no_doc: [] => Running,\n    /// VEC-36\n    one_missing => {}\n}\n/// VEC-9\nstruct Plain {\n}\n";
        assert_eq!(found(source), [pair("nothing_yet", "VEC-35"), pair("one_missing", "VEC-36")]);
    }

    #[test]
    fn reads_cases_of_other_harnesses() {
        let source =
            "/// VEC-1\nasync fn shown_so(world: &mut World) -> Shown {\n}\n\nfn other() -> Option<Shown> {\n}\n";
        assert_eq!(found(source), [pair("shown_so", "VEC-1")]);
    }

    #[test]
    fn what_is_no_test_names_nothing() {
        let helper = "/// VEC-1\nfn helper() {}\n\n/// VEC-2\n\n#[test]\nfn after_a_blank_line() {}\n";
        assert_eq!(found(helper), [pair("after_a_blank_line", "")]);
        assert_eq!(found("/// VEC-1\n// #[test]\nfn commented_out() {}\n"), []);
        assert_eq!(found("//! VEC-1\n#[test]\nfn plain() {}\n"), [pair("plain", "")]);
    }

    #[test]
    fn ignored_tests_are_marked_with_what_runs_them() {
        for (attribute, expected) in [
            ("#[ignore = \"takes minutes; make soak\"]", Runs::InSoak),
            ("#[ignore = \"needs containerd: make e2e\"]", Runs::InE2e),
            ("#[ignore = \"make soak would run it if it worked\"]", Runs::Never),
            ("#[ignore = \"slow\"]", Runs::Never),
            ("#[ignore]", Runs::Never),
        ] {
            let tests = find(&format!("/// VEC-1\n#[test]\n{attribute}\nfn later() {{}}\n\n#[test]\nfn now() {{}}\n"));
            let runs: Vec<_> = tests.iter().map(|test| (test.name.as_str(), test.runs)).collect();
            assert_eq!(runs, [("later", expected), ("now", Runs::Always)], "{attribute}");
        }
    }
}
