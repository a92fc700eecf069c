//! Pictures in Markdown that name code: the crates and how they depend on each other, and the way of one event through
//! files and functions.
//!
//! Both are fenced blocks that stay readable as text:
//!
//! ````text
//! ```mermaid
//! graph TD
//!     keelet --> cli & serve
//! ```
//!
//! ```text flow: a container exits and is restarted
//! crates/agent/src/watch.rs  follow   the runtime reports the exit
//! ```
//! ````

use std::collections::{BTreeMap, BTreeSet};

/// A dependency graph: each crate with the crates that it uses.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

/// The way of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The event.
    pub title: String,
    /// The line the block begins in.
    pub line: usize,
    /// The functions that the event passes, in order.
    pub hops: Vec<Hop>,
}

/// One function on the way of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The line of the document.
    pub line: usize,
    /// The source file, seen from the project's root.
    pub file: String,
    /// The function, without its type.
    pub function: String,
}

/// A fenced block.
struct Block<'a> {
    /// The line it begins in.
    line: usize,
    /// What stands behind the opening fence.
    info: &'a str,
    /// Its lines with their numbers.
    lines: Vec<(usize, &'a str)>,
}

/// The edges in every mermaid graph of a document.
pub fn crates(markdown: &str) -> Graph {
    let mut graph = Graph::new();
    for block in blocks(markdown).into_iter().filter(|block| block.info == "mermaid") {
        for (_, text) in block.lines {
            let Some((from, to)) = text.split_once("-->") else { continue };
            let used = to.split('&').map(|name| name.split_whitespace().next().unwrap_or("").to_owned());
            graph.entry(from.trim().to_owned()).or_default().extend(used.filter(|name| !name.is_empty()));
        }
    }
    graph
}

/// Every block `flow` of a document.
pub fn flows(markdown: &str) -> Vec<Flow> {
    let named = blocks(markdown).into_iter().filter_map(|Block { line, info, lines }| {
        let title = info.strip_prefix("text flow:")?.trim().to_owned();
        Some(Flow { title, line, hops: lines.into_iter().filter_map(hop).collect() })
    });
    named.collect()
}

/// The workspace crates that a manifest (`Cargo.toml`) lists under `[dependencies]`, by the end of their names:
/// `keelet-pod` is `pod`.
pub fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut section = "";
    let mut found = BTreeSet::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if section == "[dependencies]" {
            let name = line.split(['.', ' ', '=']).next().unwrap_or("");
            found.extend(name.strip_prefix("keelet-").map(str::to_owned));
        }
    }
    found
}

/// The graph without the edges that follow from others: what a picture shows.
pub fn reduced(graph: &Graph) -> Graph {
    let direct = |name: &str| graph.get(name).cloned().unwrap_or_default();
    let keep = |name: &str| -> BTreeSet<String> {
        let used = direct(name);
        let implied: BTreeSet<String> = used.iter().flat_map(|other| reachable(graph, other)).collect();
        used.difference(&implied).cloned().collect()
    };
    graph.keys().map(|name| (name.clone(), keep(name))).filter(|(_, used)| !used.is_empty()).collect()
}

/// Whether a source file defines a function of that name.
pub fn defines(source: &str, function: &str) -> bool {
    let head = format!("fn {function}");
    source.match_indices(&head).any(|(at, _)| source[at + head.len()..].starts_with(['(', '<']))
}

/// The crates that a crate uses, directly or through others. Cargo allows no cycle, so the recursion ends.
fn reachable(graph: &Graph, from: &str) -> BTreeSet<String> {
    let direct = graph.get(from).cloned().unwrap_or_default();
    direct.iter().flat_map(|name| reachable(graph, name)).chain(direct.clone()).collect()
}

fn hop((line, text): (usize, &str)) -> Option<Hop> {
    let mut words = text.split_whitespace();
    let file = words.find(|word| word.ends_with(".rs"))?;
    let function = words.next().unwrap_or("");
    Some(Hop { line, file: file.to_owned(), function: function.to_owned() })
}

fn blocks(markdown: &str) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    let mut open: Option<Block<'_>> = None;
    for (line, text) in markdown.lines().enumerate().map(|(index, text)| (index + 1, text)) {
        match (text.strip_prefix("```"), open.take()) {
            (Some(info), None) => open = Some(Block { line, info, lines: Vec::new() }),
            (Some(_), Some(block)) => found.push(block),
            (None, Some(mut block)) => {
                block.lines.push((line, text));
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Graph, Hop, crates, defines, dependencies, flows, reduced};

    fn graph(edges: &[(&str, &[&str])]) -> Graph {
        let used = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        edges.iter().map(|(name, names)| ((*name).to_owned(), used(names))).collect()
    }

    #[test]
    fn reads_edges_of_the_picture_of_crates() {
        let text =
            "# A\n```mermaid\ngraph TD\nagent --> lifecycle & ledger\n  keelet --> agent\n```\n```\nx --> y\n```\n";
        assert_eq!(crates(text), graph(&[("agent", &["ledger", "lifecycle"]), ("keelet", &["agent"])]));
    }

    #[test]
    fn reads_the_hops_of_a_flow() {
        let text = "```text flow: an exit\nthe container exits\n -> crates/a/src/watch.rs  follow  an event\n```\n";
        let [flow] = flows(text).try_into().expect("one flow");
        assert_eq!((flow.title.as_str(), flow.line), ("an exit", 1));
        let hop = Hop { line: 3, file: "crates/a/src/watch.rs".to_owned(), function: "follow".to_owned() };
        assert_eq!(flow.hops, [hop]);
    }

    #[test]
    fn dependencies_of_tests_are_not_in_the_picture() {
        let manifest = "[package]\nname = \"keelet-x\"\n[dependencies]\nkeelet-pod.workspace = true\nserde = \"1\"\n\
                        keelet-cri = { path = \"../cri\" }\n[dev-dependencies]\nkeelet-sim.workspace = true\n";
        assert_eq!(dependencies(manifest).into_iter().collect::<Vec<_>>(), ["cri", "pod"]);
    }

    #[test]
    fn an_edge_that_follows_from_others_is_left_out() {
        let all = graph(&[("keelet", &["agent", "pod"]), ("agent", &["lifecycle", "pod"]), ("lifecycle", &["pod"])]);
        let shown = graph(&[("agent", &["lifecycle"]), ("keelet", &["agent"]), ("lifecycle", &["pod"])]);
        assert_eq!(reduced(&all), shown);
    }

    #[test]
    fn a_function_is_found_by_its_whole_name() {
        let source = "impl A {\n    pub async fn follow<T>(self) {}\n    fn look_at(&self) {}\n}\n";
        assert!(defines(source, "follow") && defines(source, "look_at"));
        assert!(!defines(source, "look") && !defines(source, "A"));
    }
}
