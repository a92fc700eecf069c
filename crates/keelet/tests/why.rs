//! `keelet why` and `keelet timeline` from the outside, on ledgers that the rules have filled.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    sync::Arc,
    time::Duration,
};

use keelet_agent::{clock::OsClock, doors::Clock};
use keelet_ledger::{Ledger, PodCommit, PodRef, Settings};
use keelet_lifecycle::{
    Evidence, Moment, Observed, Rules,
    observed::{AgentRun, Before, Instance, InstanceState, Sandbox},
    operation::{OpReport, OpResult, OpState, Operation, Outcome, ProbeReport, Step},
};
use tempfile::TempDir;

const SPEC: &str = "spec:
  containers:
  - name: main
    image: app
    readinessProbe: {httpGet: {port: 80}, periodSeconds: 1, failureThreshold: 3}
  - {name: side, image: proxy}
";

/// A node with a ledger that no agent works with.
struct Node {
    directory: TempDir,
    now: Moment,
}

impl Node {
    fn new() -> Self {
        Self { directory: TempDir::new().unwrap(), now: OsClock::new().unwrap().now() }
    }

    fn settings(&self) -> Settings {
        let root = self.directory.path();
        Settings::new(root.join("lib/ledger"), root.join("run/ledger"), self.now.boot_id)
    }

    /// Lets a pod live for the last minute: ready at first, then its readiness probe fails.
    fn run(&self, namespace: &str, name: &str) -> &Self {
        let manifest = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}, uid: {namespace}-{name}}}\n{SPEC}"
        );
        let pod = keelet_pod::parse_one(&manifest).unwrap();
        let reference = PodRef { uid: pod.uid.clone(), namespace: namespace.to_owned(), name: name.to_owned() };
        let mut ledger = Ledger::open(self.settings()).unwrap().ledger;
        let copy = serde_json::to_value(&*pod.source).unwrap();
        assert!(ledger.keep_pod(&reference, &copy, self.now).unwrap().is_written());
        let start = self.now.minus(Duration::from_secs(60));
        let mut observed =
            Observed::nothing(AgentRun { started: start, before: Before::Standalone(None), missed: None });
        let mut evidence = Evidence::default();
        for tick in 0..120 {
            let now = start.plus(Duration::from_millis(tick * 500));
            let plan = Rules::default().plan(&pod, &observed, &evidence, now);
            let why = Some((plan.version, &plan.why[..]));
            let entry =
                PodCommit { pod: &reference, evidence: &Arc::new(plan.evidence.clone()), results: &plan.results, why };
            let committed = ledger.commit(&entry, now).unwrap();
            assert!(committed.durable.error().is_none() && committed.journal.error().is_none());
            evidence = plan.evidence;
            observed.operations.clear();
            for step in plan.operations {
                let Step::Start { id, operation } = step else { continue };
                let result = act(&mut observed, &operation, now, tick < 90);
                observed.operations.push(OpReport { id, state: OpState::Finished { at: now, result } });
            }
        }
        assert!(ledger.stop(self.now).is_empty());
        self
    }

    fn keelet(&self, arguments: &[&str]) -> (i32, String, String) {
        let root = self.directory.path();
        run(&[arguments, &["--root-dir", &path(&root.join("lib")), "--state-dir", &path(&root.join("run"))]].concat())
    }
}

fn act(observed: &mut Observed, operation: &Operation, now: Moment, ready: bool) -> OpResult {
    match operation {
        Operation::CreateSandbox { attempt } => observed.sandboxes.push(Sandbox {
            id: "sandbox-1".to_owned(),
            ready: true,
            attempt: *attempt,
            created_at: now.wall,
            ips: vec!["10.0.0.2".to_owned()],
            host_network: false,
            lost: None,
        }),
        Operation::Launch { container, attempt, sandbox } => observed.containers.push(Instance {
            id: format!("containerd://{container}-{attempt}"),
            name: container.clone(),
            sandbox: sandbox.clone(),
            attempt: *attempt,
            hash: None,
            image: "app".to_owned(),
            image_id: "sha256:1".to_owned(),
            created_at: now.wall,
            state: InstanceState::Running { started_at: now.wall },
        }),
        Operation::Probe { .. } => {
            let (outcome, output) = match ready {
                true => (Outcome::Success, "200 OK"),
                false => (Outcome::Failure, "HTTP probe failed with statuscode: 503"),
            };
            let latency = Duration::from_millis(7);
            return OpResult::Probed(ProbeReport { outcome, latency, output: output.to_owned() });
        }
        _ => {}
    }
    OpResult::Done
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

fn run(arguments: &[&str]) -> (i32, String, String) {
    run_with(arguments, &[])
}

#[expect(clippy::disallowed_methods, reason = "a test waits for the process it tests")]
fn run_with(arguments: &[&str], environment: &[(&str, &str)]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keelet"));
    command.args(arguments).env_remove("COLUMNS").env_remove("KEELET_SOCKET").env("LC_ALL", "C.UTF-8");
    command.envs(environment.iter().copied());
    let Output { status, stdout, stderr } = command.output().expect("keelet runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("no signal"), text(stdout), text(stderr))
}

/// PROBE-22, KEEP-20: from the ledger alone, while no agent runs.
#[test]
fn why_follows_a_status_to_its_probe_attempts() {
    let node = Node::new();
    let (code, out, err) = node.run("shop", "web").keelet(&["why", "web"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("pod shop/web   Ready=False since "), "{out}");
    assert!(
        out.contains("  because container \"main\" is not ready\n    because its readiness probe failed 3 times in a row (failureThreshold 3), last at "),
        "{out}"
    );
    assert!(out.contains(" after 7 ms: \"HTTP probe failed with statuscode: 503\"\n"), "{out}");
    assert!(out.contains("failed        7 ms  HTTP probe failed with statuscode: 503  (also at "), "{out}");
    let (_, full, _) = node.keelet(&["why", "web", "--full"]);
    assert!(full.contains("failed        7 ms  HTTP probe failed with statuscode: 503\n"), "{full}");
}

#[test]
fn why_of_one_container_says_nothing_of_the_others() {
    let node = Node::new();
    let (code, out, _) = node.run("shop", "web").keelet(&["why", "web/side", "-n", "shop"]);
    assert_eq!(code, 0);
    assert!(out.contains("container \"side\"   ready=True") && !out.contains("main"), "{out}");
    let (code, _, err) = node.keelet(&["why", "web/nobody"]);
    assert_eq!(
        (code, err.as_str()),
        (1, "error: container \"nobody\" not found in pod shop/web; containers: main, side\n")
    );
}

#[test]
fn why_for_machines_is_one_document() {
    let node = Node::new();
    let (code, out, _) = node.run("shop", "web").keelet(&["why", "web", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, json["format"].as_str()), (0, Some("keelet.dev/why/v1")));
    assert_eq!(json["answers"][0]["value"], "Ready=False");
}

#[test]
fn an_unknown_pod_is_answered_with_the_known_ones() {
    let node = Node::new();
    node.run("shop", "web").run("shop", "db");
    let (code, out, err) = node.keelet(&["why", "wbe"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert_eq!(err, "error: pod \"wbe\" not found; pods on this node: db -n shop, web -n shop\n");
    let (_, _, err) = node.keelet(&["timeline", "webs"]);
    assert!(err.contains("error: pod \"webs\" not found; did you mean web -n shop?"), "{err}");
    let (_, _, err) = node.keelet(&["why", "web", "-n", "other"]);
    assert!(err.contains("pod \"web\" not found in namespace \"other\"; did you mean web -n shop?"), "{err}");
    for command in ["why", "timeline"] {
        let (_, _, err) = node.keelet(&[command, "shop/web"]);
        assert!(err.contains("; \"shop\" is a namespace: use the name of the pod and -n shop; "), "{err}");
    }
}

#[test]
fn one_name_in_two_namespaces_is_ambiguous() {
    let node = Node::new();
    node.run("shop", "web").run("test", "web");
    let (code, _, err) = node.keelet(&["why", "web"]);
    assert_eq!((code, err.as_str()), (1, "error: pod \"web\" exists in 2 namespaces: use -n shop or -n test\n"));
    let (code, out, _) = node.keelet(&["why", "web", "-n", "test"]);
    assert!(code == 0 && out.starts_with("pod test/web"), "{out}");
    let (code, out, _) = node.keelet(&["why", "shop-web"]);
    assert!(code == 0 && out.starts_with("pod shop/web"), "a UID will do: {out}");
}

/// The directories of an agent are in `owner.json` beside its socket, also after it has stopped.
#[test]
fn the_socket_of_an_agent_names_its_ledger() {
    let node = Node::new();
    node.run("shop", "web");
    let (root, state) = (node.directory.path().join("lib"), node.directory.path().join("run"));
    let socket = path(&state.join("keelet.sock"));
    let owner = serde_json::json!({ "rootDir": root, "stateDir": state });
    for command in ["why", "timeline"] {
        let (code, _, err) = run(&[command, "web", "--socket", &socket]);
        assert!(code == 1 && err.contains("owner.json"), "{err}");
    }
    fs::write(state.join("owner.json"), owner.to_string()).unwrap();
    for command in ["why", "timeline"] {
        let (code, out, err) = run(&[command, "pod/web", "--socket", &socket]);
        assert!(code == 0 && out.starts_with("pod shop/web "), "{out}{err}");
        let (code, out, err) = run_with(&[command, "web"], &[("KEELET_SOCKET", &socket)]);
        assert!(code == 0 && out.starts_with("pod shop/web "), "{out}{err}");
        let wrong = ("KEELET_SOCKET", "/nowhere/keelet.sock");
        let directories = ["--root-dir", &path(&root), "--state-dir", &path(&state)];
        let (code, _, err) = run_with(&[&[command, "web"], &directories[..]].concat(), &[wrong]);
        assert_eq!(code, 0, "directories that are named win: {err}");
    }
}

#[test]
fn lines_are_as_wide_as_columns_says_and_80_without_it() {
    let node = Node::new();
    node.run("shop", "web");
    let (root, state) = (path(&node.directory.path().join("lib")), path(&node.directory.path().join("run")));
    let widest = |columns: Option<&str>| {
        let set: Vec<_> = columns.map(|columns| ("COLUMNS", columns)).into_iter().collect();
        let (_, out, _) = run_with(&["timeline", "web", "--root-dir", &root, "--state-dir", &state], &set);
        out.lines().map(|line| line.chars().count()).max()
    };
    assert_eq!((widest(None), widest(Some("120"))), (Some(80), Some(120)));
}

#[test]
fn a_ledger_that_is_not_there_or_not_readable_is_named() {
    let node = Node::new();
    let (code, _, err) = node.keelet(&["why", "web"]);
    assert_eq!(code, 1);
    assert!(err.contains("error: no ledger in ") && err.contains("/lib/ledger: no agent has run here"), "{err}");
    fs::create_dir_all(node.settings().durable_root).unwrap();
    let (_, _, err) = node.keelet(&["why", "web"]);
    assert!(err.starts_with("error: no pods in the ledger "), "{err}");
    fs::write(node.settings().durable_root.join("pods"), "").unwrap();
    let (code, _, err) = node.keelet(&["why", "web"]);
    assert!(
        code == 1 && err.contains("cannot read the ledger in ") && err.contains("/lib/ledger/pods: cannot be read"),
        "{err}"
    );
}

#[test]
fn what_is_lost_is_said_and_the_rest_is_answered() {
    let node = Node::new();
    node.run("shop", "web");
    let directory = node.settings().volatile_root.join("pods/shop-web");
    let evidence = directory.join("evidence.json");
    fs::write(&evidence, "{").unwrap();
    let (code, out, err) = node.keelet(&["why", "web"]);
    assert_eq!(code, 0);
    assert!(err.starts_with("warning: ") && err.contains("evidence.json (") && err.contains("): truncated"), "{err}");
    assert!(out.contains("the reasons of the newest status are lost; these are the ones in the journal"), "{out}");
    assert!(out.contains("because its readiness probe failed 3 times in a row"), "{out}");
    assert!(evidence.exists(), "looking moves nothing");
}

#[test]
fn a_pod_whose_name_is_lost_goes_by_its_uid() {
    let node = Node::new();
    node.run("shop", "web");
    let settings = node.settings();
    for root in [settings.durable_root, settings.volatile_root] {
        for file in fs::read_dir(root.join("pods/shop-web")).unwrap() {
            fs::write(file.unwrap().path(), "garbage").unwrap();
        }
    }
    let (code, _, err) = node.keelet(&["why", "web"]);
    assert_eq!(code, 1);
    assert_eq!(err, "error: pod \"web\" not found; pods on this node: shop-web (its name is lost)\n");
    let (code, out, _) = node.keelet(&["why", "shop-web"]);
    assert!(code == 0 && out.starts_with("pod shop-web as of "), "{out}");
    assert!(out.contains("\nits name is lost; it is shown by its UID\n"), "{out}");
    assert!(out.ends_with("no status yet\n") && !out.contains("no agent has observed"), "{out}");
    let (code, out, _) = node.keelet(&["timeline", "shop-web"]);
    assert!(code == 0 && out.starts_with("pod shop-web   "), "{out}");
    assert!(out.ends_with("\n\nnothing is known of this pod in this time\n"), "{out}");
}

#[test]
fn a_timeline_is_drawn_in_four_ways() {
    let node = Node::new();
    node.run("shop", "web");
    let (code, text, err) = node.keelet(&["timeline", "web", "--ascii", "--width", "80"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(text.is_ascii() && text.contains("\nmain ") && text.contains("\n  readiness "), "{text}");
    assert!(
        text.contains("container \"main\" is not ready\n          because readiness probe failed 3 times in a row"),
        "{text}"
    );
    let (_, svg, _) = node.keelet(&["timeline", "web", "-o", "svg"]);
    assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"));
    let (_, html, _) = node.keelet(&["timeline", "web", "-o", "html"]);
    assert!(html.starts_with("<!doctype html>") && html.contains("<title>shop/web · keelet timeline</title>"));
    let (_, json, _) = node.keelet(&["timeline", "web", "-o", "json"]);
    let all: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(all["format"], "keelet.dev/timeline/v1");
    let (_, json, _) = node.keelet(&["timeline", "web", "-o", "json", "--since", "20s"]);
    let newest: serde_json::Value = serde_json::from_str(&json).unwrap();
    let notes = |value: &serde_json::Value| value["notes"].as_array().unwrap().len();
    assert!(0 < notes(&newest) && notes(&newest) < notes(&all), "{} {}", notes(&newest), notes(&all));
}

#[test]
fn wrong_usage_is_distinguished_from_a_missing_pod() {
    let (code, _, err) = run(&["timeline", "web", "--since", "soon"]);
    assert!(code == 2 && err.contains("invalid duration \"soon\""), "{err}");
    assert_eq!(run(&["why"]).0, 2);
}
