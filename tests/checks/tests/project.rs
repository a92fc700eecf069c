//! Does the project do what its documents say?

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use keelet_checks::{
    behaviours::{self, Behaviour, Tested},
    documents::{self, Enforced},
    ids::{self, Id},
    pictures,
    rust_tests::{self, Runs},
};

const LIST: &str = "docs/behaviours.md";
const ARCHITECTURE: &str = "ARCHITECTURE.md";
const PROMISES: [&str; 2] = ["SPECIFICATION.md", "SECURITY.md"];

/// Lines of a source file at most. Past 400, look for the two ideas in it.
const LONGEST_FILE: usize = 600;
/// Lines of half of the source files at most.
const LONGEST_MEDIAN: usize = 200;

/// Packages whose tests need real peers: a control plane, a runtime.
const PEERS: [&str; 2] = ["tests/cluster/", "tests/e2e/"];

/// Tests that run the agent on the embedded runtime, with real containers. `make soak` runs
/// those that are ignored there.
const NODE: &str = "crates/keelet/tests/node/";

/// Tests that run the whole controller on a simulated API server.
const CONTROLLER: &str = "crates/gates/tests/simulated/";

/// A test of the project and its location.
struct Found {
    /// The package's directory under `crates/` or `tests/`.
    krate: String,
    /// The file, relative to the root.
    file: String,
    test: rust_tests::Test,
}

#[test]
fn the_list_of_behaviours_is_sound() {
    let (list, faults) = read_list();
    assert!(!list.is_empty(), "{LIST} has no behaviours");
    complain(&faults, &format!("{LIST} is invalid"));
}

#[test]
fn every_behaviour_that_should_have_a_test_has_one() {
    let (list, _) = read_list();
    let mut named: BTreeMap<Tested, BTreeSet<Id>> = BTreeMap::new();
    for found in tests() {
        let ids = ids::find(&found.test.doc);
        for kind in found.shows() {
            named.entry(*kind).or_default().extend(ids.clone());
        }
    }
    let mut faults = Vec::new();
    for Behaviour { id, line, tested } in list.values() {
        let missing = tested.iter().filter(|kind| !named.get(kind).is_some_and(|ids| ids.contains(id)));
        faults.extend(missing.map(|kind| format!("{id}: {kind:?} ({LIST}:{line})")));
    }
    let advice = "no test names these behaviours. Put the id into the doc comment of the test that shows it \
                  (`/// PROBE-13`), or mark the behaviour as pending in the list";
    complain(&faults, advice);
}

#[test]
fn a_behaviour_that_is_shown_with_real_peers_says_so() {
    let (list, _) = read_list();
    let all = tests();
    for (kind, word) in [(Tested::Peers, "e2e"), (Tested::Soak, "soak")] {
        let says_so = |id: &Id| list.get(id).is_none_or(|behaviour| behaviour.tested.contains(&kind));
        let mut faults = Vec::new();
        for found in all.iter().filter(|found| found.shows().contains(&kind)) {
            let silent = ids::find(&found.test.doc).into_iter().filter(|id| !says_so(id));
            faults.extend(silent.map(|id| format!("{id} in {} ({}:{})", found.test.name, found.file, found.test.line)));
        }
        complain(&faults, &format!("these ids need the kind {word} in {LIST}"));
    }
}

/// Law 5.
#[test]
fn an_ignored_test_names_what_runs_it_or_shows_nothing() {
    let mut faults = Vec::new();
    for found in tests().iter().filter(|found| found.shows().is_empty()) {
        let ids: Vec<_> = ids::find(&found.test.doc).iter().map(ToString::to_string).collect();
        if !ids.is_empty() {
            faults.push(format!("{} ({}:{}): {}", found.test.name, found.file, found.test.line, ids.join(", ")));
        }
    }
    let advice = "these tests name behaviours, but are ignored and run by no command. Let them run, or end the reason with the \
                  command that runs them (`; make soak`, `: make e2e`) and put them where it looks";
    complain(&faults, advice);
}

#[test]
fn every_id_in_a_test_is_in_the_list() {
    let (list, _) = read_list();
    let families: BTreeSet<&str> = list.keys().map(|id| id.family.split('-').next().unwrap_or("")).collect();
    let mut faults = Vec::new();
    for Found { file, test, .. } in tests() {
        for id in ids::find(&test.doc) {
            let family = id.family.split('-').next().unwrap_or("");
            if families.contains(family) && !list.contains_key(&id) {
                faults.push(format!("{id} in {} ({file}:{})", test.name, test.line));
            }
        }
    }
    complain(&faults, &format!("these ids are not in {LIST}"));
}

#[test]
fn every_promise_names_a_test_that_exists() {
    let counts = |found: &Found| !found.shows().is_empty();
    let known: BTreeSet<(String, String)> =
        tests().into_iter().filter(counts).map(|found| (found.krate, found.test.name)).collect();
    let mut faults = Vec::new();
    for document in PROMISES {
        let promises = documents::promises(&read(document));
        assert!(!promises.is_empty(), "{document} promises nothing: no table has a column called \"enforced by\"");
        for promise in promises {
            let place = format!("{document}:{}", promise.line);
            match promise.enforced {
                Enforced::Pending => {}
                Enforced::Unsaid => faults.push(format!("{place} names no test and is not marked as pending")),
                Enforced::By(tests) => {
                    let gone = tests.into_iter().filter(|test| !known.contains(test));
                    faults.extend(gone.map(|(krate, name)| format!("{place}: test {name} not found in {krate}")));
                }
            }
        }
    }
    complain(&faults, "promises that no test enforces");
}

#[test]
fn every_link_leads_somewhere() {
    let root = root();
    let mut documents: BTreeMap<PathBuf, String> = BTreeMap::new();
    for path in files(&root, "md") {
        let text = fs::read_to_string(&path).expect("a document can be read");
        documents.insert(path, text);
    }
    let mut faults = Vec::new();
    for (document, text) in &documents {
        for link in documents::links(text) {
            let place = format!("{}:{}", shown(document), link.line);
            let beside = document.parent().expect("a document is in a directory");
            let target = if link.path.is_empty() { document.clone() } else { normal(&beside.join(&link.path)) };
            if !target.starts_with(&root) || !target.exists() {
                faults.push(format!("{place}: {} not found", link.path));
            } else if !link.anchor.is_empty() {
                let found = documents.get(&target).is_some_and(|text| documents::anchors(text).contains(&link.anchor));
                if !found {
                    faults.push(format!("{place}: {} has no heading #{}", shown(&target), link.anchor));
                }
            }
        }
    }
    complain(&faults, "broken links");
}

/// The picture of crates in ARCHITECTURE.md is the one that Cargo has: every edge that does not follow from others.
#[test]
fn the_picture_of_crates_is_what_cargo_builds() {
    let drawn = pictures::crates(&read(ARCHITECTURE));
    assert!(!drawn.is_empty(), "{ARCHITECTURE} has no mermaid graph of the crates");
    let manifests = files(&root().join("crates"), "toml").into_iter().filter(|path| path.ends_with("Cargo.toml"));
    let graph = manifests.map(|path| {
        let name = path.parent().and_then(Path::file_name).expect("a manifest is in a crate").to_string_lossy();
        (name.into_owned(), pictures::dependencies(&fs::read_to_string(&path).expect("a manifest can be read")))
    });
    let built = pictures::reduced(&graph.collect());
    let edges = |graph: &pictures::Graph| -> BTreeSet<String> {
        graph.iter().flat_map(|(from, to)| to.iter().map(move |to| format!("{from} -> {to}"))).collect()
    };
    let (drawn, built) = (edges(&drawn), edges(&built));
    let missing = built.difference(&drawn).map(|edge| format!("not drawn: {edge}"));
    let wrong = drawn.difference(&built).map(|edge| format!("drawn, but not so: {edge}"));
    complain(
        &missing.chain(wrong).collect::<Vec<_>>(),
        &format!("{ARCHITECTURE} draws other crates than Cargo builds"),
    );
}

/// Each hop of a flow in ARCHITECTURE.md is a file with a function of that name.
#[test]
fn every_hop_of_a_flow_is_a_function() {
    let flows = pictures::flows(&read(ARCHITECTURE));
    assert!(flows.len() >= 3, "{ARCHITECTURE} has {} flows", flows.len());
    let mut faults = Vec::new();
    for flow in flows {
        if flow.hops.len() < 4 {
            faults.push(format!("{ARCHITECTURE}:{}: {:?} has {} hops", flow.line, flow.title, flow.hops.len()));
        }
        for pictures::Hop { line, file, function } in flow.hops {
            let found = fs::read_to_string(root().join(&file)).is_ok_and(|text| pictures::defines(&text, &function));
            if !found {
                faults.push(format!("{ARCHITECTURE}:{line}: there is no function {function:?} in {file}"));
            }
        }
    }
    complain(&faults, "flows through code that does not exist");
}

/// Law 6: a skip that a macro prints is captured, so that the test would count as passed. Benches and the reporter itself print for people.
#[test]
fn tests_skip_through_the_reporter_only() {
    let mut faults = Vec::new();
    for path in ["crates", "tests"].into_iter().flat_map(|name| files(&root().join(name), "rs")) {
        let shown = shown(&path);
        if ["/benches/", "tests/report/", "tests/checks/"].iter().any(|place| shown.contains(place)) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source file");
        let prints = |line: &str| line.contains("print") && line.contains("!(\"skipped");
        for (number, _) in text.lines().enumerate().filter(|(_, line)| prints(line)) {
            faults.push(format!("{shown}:{}: a skip that is printed by a macro", number + 1));
        }
    }
    complain(&faults, "use `keelet_report::skipped`, which `make test` counts (CONTRIBUTING.md, law 6)");
}

#[test]
fn source_files_are_small() {
    let sources = ["crates", "tests"].into_iter().flat_map(|name| files(&root().join(name), "rs"));
    let mut lengths: Vec<(usize, String)> = sources
        .map(|path| (fs::read_to_string(&path).expect("a source file can be read").lines().count(), shown(&path)))
        .collect();
    lengths.sort();
    let median = lengths[lengths.len() / 2].0;
    assert!(median <= LONGEST_MEDIAN, "half of the source files have more than {median} lines");
    let long = lengths.iter().filter(|(lines, _)| *lines > LONGEST_FILE);
    let faults: Vec<String> = long.map(|(lines, path)| format!("{path}: {lines} lines")).collect();
    complain(&faults, &format!("source files with more than {LONGEST_FILE} lines"));
}

// === impl Found ===

impl Found {
    /// The kinds of test it is. An ignored test has no kind (law 5), unless it names the command that runs it and is in the
    /// package that the command runs: then it has that kind only.
    fn shows(&self) -> &'static [Tested] {
        let (in_e2e, in_node) = (PEERS.iter().any(|peers| self.file.starts_with(peers)), self.file.starts_with(NODE));
        match self.test.runs {
            Runs::InSoak if in_node => &[Tested::Soak],
            Runs::InE2e if in_e2e => &[Tested::Peers],
            Runs::InSoak | Runs::InE2e | Runs::Never => &[],
            Runs::Always if in_e2e || in_node => &[Tested::Peers],
            Runs::Always if self.krate == "sim" || self.file.starts_with(CONTROLLER) => {
                &[Tested::Unit, Tested::Simulation]
            }
            Runs::Always => &[Tested::Unit],
        }
    }
}

fn complain(faults: &[String], what: &str) {
    assert!(faults.is_empty(), "{what} ({}):\n  {}\n", faults.len(), faults.join("\n  "));
}

fn read_list() -> (BTreeMap<Id, Behaviour>, Vec<String>) {
    behaviours::read(&read(LIST))
}

/// Every test of the workspace except those of this crate, whose sources quote tests as examples.
fn tests() -> Vec<Found> {
    let mut found = Vec::new();
    for packages in ["crates", "tests"].map(|name| root().join(name)) {
        for path in files(&packages, "rs") {
            let inside = path.strip_prefix(&packages).expect("found below it");
            let krate = inside.iter().next().expect("a file is in a package").to_string_lossy().into_owned();
            if krate != "checks" {
                let source = fs::read_to_string(&path).expect("a source file can be read");
                let file = shown(&path);
                let tests = rust_tests::find(&source).into_iter();
                found.extend(tests.map(|test| Found { krate: krate.clone(), file: file.clone(), test }));
            }
        }
    }
    found
}

/// Files with that extension, without build output and hidden directories, in a fixed order.
fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.expect("an entry can be read").path())
        .collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && name != "target" && !name.starts_with("mutants.out") {
            found.extend(files(&path, extension));
        } else if path.is_file() && path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found
}

fn root() -> PathBuf {
    normal(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The path relative to the root, for messages.
fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// The path without `.` and `..`, whether or not it exists.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                normal.pop();
            }
            std::path::Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}
