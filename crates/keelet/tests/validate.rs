//! `keelet validate` from the outside: what it prints, and how it ends.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

const GOOD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  initContainers:\n  - {name: setup, image: a}\n  \
                    - {name: side, image: a, restartPolicy: Always, readinessProbe: {tcpSocket: {port: 1}}}\n  \
                    containers:\n  - {name: a, image: b, livenessProbe: {tcpSocket: {port: 1}}}\n  - {name: c, image: d}\n";

fn keelet() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keelet"));
    command.env_remove("NO_COLOR");
    command
}

#[expect(clippy::disallowed_methods, reason = "a test waits for the process it tests")]
fn run(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("keelet runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("no signal"), text(stdout), text(stderr))
}

#[expect(clippy::disallowed_methods, reason = "a test waits for the process it tests")]
fn run_with_stdin(command: &mut Command, stdin: &[u8]) -> (i32, String) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("keelet runs");
    // The reader may stop early: that is one of the tests.
    let _ = child.stdin.take().expect("stdin").write_all(stdin);
    let output = child.wait_with_output().expect("output");
    (output.status.code().expect("no signal"), String::from_utf8(output.stdout).expect("UTF-8"))
}

fn write(directory: &TempDir, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = directory.path().join(name);
    fs::write(&path, content).expect("write");
    path.display().to_string()
}

fn validate(path: impl AsRef<Path>) -> (i32, String, String) {
    run(keelet().arg("validate").arg(path.as_ref()))
}

#[test]
fn good_pods_are_ok_in_one_line_each() {
    let directory = TempDir::new().unwrap();
    let file = write(&directory, "pod.yaml", GOOD);
    let (code, out, err) = validate(&file);
    let expected =
        "pod default/web: ok (1 init, 1 sidecar, 2 containers, 2 probes)\n1 file: 1 valid pod, 0 errors, 0 warnings\n";
    assert_eq!((code, out.as_str(), err.as_str()), (0, expected, ""));
    let file = write(
        &directory,
        "two.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: b, namespace: team}\nspec: {containers: [{name: a, image: b}], ephemeralContainers: [{name: d, image: e}]}\n",
    );
    assert!(validate(&file).1.starts_with("pod team/b: ok (1 container, 1 ephemeral, 0 probes)\n"));
}

#[test]
fn every_problem_has_its_line() {
    let directory = TempDir::new().unwrap();
    let file = write(
        &directory,
        "pod.yaml",
        GOOD.replace("name: setup", "name: Setup").replace("kind: Pod", "kind: Pod\nspecs: 1"),
    );
    let (code, out, _) = validate(&file);
    assert_eq!(code, 1, "{out}");
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.len(), 3, "{out}");
    assert_eq!(lines[0], format!("error: {file}:3:1: specs: Unknown field: did you mean \"spec\"?"));
    assert!(
        lines[1].starts_with(&format!("error: {file}:7:12: spec.initContainers[0].name: Invalid value: \"Setup\""))
    );
    assert_eq!(lines[2], "1 file: 0 valid pods, 2 errors, 0 warnings");
}

#[test]
fn lenient_turns_unknown_fields_into_warnings() {
    let directory = TempDir::new().unwrap();
    let file = write(&directory, "pod.yaml", format!("specs: 1\n{GOOD}"));
    let (code, out, _) = run(keelet().args(["validate", "--lenient", &file]));
    assert_eq!(code, 0, "{out}");
    assert!(out.contains(&format!("warning: {file}:1:1: specs: Unknown field")), "{out}");
    assert!(out.ends_with("1 file: 1 valid pod, 0 errors, 1 warning\n"), "{out}");
}

#[test]
fn json_has_a_stable_shape() {
    let directory = TempDir::new().unwrap();
    let good = write(&directory, "good.yaml", GOOD);
    let bad = write(&directory, "bad.yaml", GOOD.replace("image: b", "imag: b"));
    let missing = directory.path().join("missing.yaml").display().to_string();
    let (code, out, _) = run(keelet().args(["validate", "-o", "json", &good, &bad, &missing]));
    assert_eq!(code, 2);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["format"], "keelet.dev/validate/v1");
    assert_eq!(json["valid"], false);
    let summary = serde_json::json!({"files": 3, "unreadable": 1, "pods": 1, "errors": 2, "warnings": 0});
    assert_eq!(json["summary"], summary);
    let mut pod = json["files"][0]["pods"][0].clone();
    assert_eq!(pod["uid"].take().as_str().map(str::len), Some(32));
    let expected = serde_json::json!({
        "namespace": "default", "name": "web", "uid": null, "initContainers": 1, "sidecars": 1, "containers": 2,
        "ephemeralContainers": 0, "probes": 2
    });
    assert_eq!(pod, expected);
    let expected = serde_json::json!({
        "file": bad, "document": 1, "pod": "default/web", "line": 9, "column": 15, "path": "spec.containers[0].imag",
        "value": null, "kind": "UnknownField", "severity": "error", "message": "did you mean \"image\"?"
    });
    assert_eq!(json["files"][1]["errors"][1], expected);
    assert_eq!(json["files"][1]["omitted"], 0);
    let expected = serde_json::json!({
        "file": missing, "unreadable": "no such file or directory", "pods": [], "errors": [], "warnings": [], "omitted": 0
    });
    assert_eq!(json["files"][2], expected);
    let (code, out, _) = run(keelet().args(["validate", "-o", "json", &good]));
    assert_eq!((code, out.contains("\"valid\": true")), (0, true));
}

#[test]
fn feature_gates_are_those_of_the_node() {
    let directory = TempDir::new().unwrap();
    let rule = "restartPolicy: Always, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]";
    let file = write(&directory, "pod.yaml", GOOD.replace("restartPolicy: Always", rule));
    assert_eq!(validate(&file).0, 0);
    let gates = |gates: &str| run(keelet().args(["validate", &format!("--feature-gates={gates}"), &file]));
    let (code, out, _) = gates("RestartAllContainersOnContainerExits=false");
    assert!(code == 1 && out.contains("rules are not allowed for init containers with restartPolicy=Always"), "{out}");
    let (code, _, err) = gates("Whatever=true");
    assert_eq!((code, err.as_str()), (0, "warning: unknown feature gate Whatever: ignored\n"));
    let (code, out, err) = gates("Whatever");
    assert_eq!((code, out.as_str()), (2, ""));
    assert_eq!(err, "error: --feature-gates: feature gate \"Whatever\": must be Name=true or Name=false\n");
}

#[test]
fn standard_input_is_a_dash() {
    let (code, out) = run_with_stdin(keelet().args(["validate", "-"]), GOOD.as_bytes());
    assert_eq!((code, out.lines().count()), (0, 2));
    let (code, out) = run_with_stdin(keelet().args(["validate", "-"]), b"kind: Pod\n");
    assert!(code == 1 && out.starts_with("error: <stdin>:1:1: apiVersion: Required value"), "{out}");
    let (code, out) = run_with_stdin(keelet().args(["validate", "-"]), &vec![b'\n'; 10_000_000]);
    assert!(code == 1 && out.contains("<stdin>: Unreadable: larger than 3 MiB"), "{out}");
}

#[test]
fn directories_are_their_manifests() {
    let directory = TempDir::new().unwrap();
    for name in ["b.yml", "a.yaml", "c.json", "d.txt", "e"] {
        let pod = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {}}}\nspec: {{containers: [{{name: a, image: b}}]}}\n",
            &name[..1]
        );
        let pod = if name == "c.json" {
            "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"c\"},\"spec\":{\"containers\":[{\"name\":\"a\",\"image\":\"b\"}]}}".to_owned()
        } else {
            pod
        };
        write(&directory, name, pod);
    }
    fs::create_dir(directory.path().join("nested.yaml")).unwrap();
    let (code, out, _) = validate(directory.path());
    let pods: Vec<_> = out.lines().filter_map(|line| line.strip_prefix("pod default/")).collect();
    assert_eq!(pods.iter().map(|line| &line[..1]).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(code, 0);
    let (code, out, _) = validate(directory.path().join("nested.yaml"));
    assert!(code == 2 && out.contains("the directory has no *.yaml, *.yml or *.json file"), "{out}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test waits for mkfifo")]
fn what_is_not_a_file_is_not_opened() {
    let directory = TempDir::new().unwrap();
    let fifo = directory.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let (code, out, _) = validate(&fifo);
    let fifo = fifo.display();
    assert_eq!(code, 2);
    assert!(
        out.starts_with(&format!(
            "error: {fifo}: is a FIFO, not a file; to read it, use `keelet validate - < {fifo}`\n"
        )),
        "{out}"
    );
    assert!(out.ends_with("1 file: 0 valid pods, 0 errors, 0 warnings, 1 file unreadable\n"), "{out}");
    let (code, out, _) = validate("/dev/zero");
    assert!(code == 2 && out.contains("/dev/zero: is a device, not a file; for standard input use -"), "{out}");
    let socket = directory.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let (code, out, _) = validate(&socket);
    assert!(code == 2 && out.contains("is a socket, not a file"), "{out}");
    // In a directory too.
    let directory = TempDir::new().unwrap();
    assert!(Command::new("mkfifo").arg(directory.path().join("pod.yaml")).status().unwrap().success());
    let (code, out, _) = validate(directory.path());
    assert!(code == 2 && out.contains("is a FIFO"), "{out}");
}

#[test]
fn missing_and_unreadable_files_are_said_so() {
    let directory = TempDir::new().unwrap();
    let missing = directory.path().join("missing.yaml");
    let (code, out, _) = validate(&missing);
    assert!(
        code == 2 && out.starts_with(&format!("error: {}: no such file or directory\n", missing.display())),
        "{out}"
    );
    let secret = write(&directory, "secret.yaml", GOOD);
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o0)).unwrap();
    let (code, out, _) = validate(&secret);
    // root reads everything.
    assert!(code == 0 || out.contains("secret.yaml: permission denied"), "{out}");
    let dangling = directory.path().join("dangling.yaml");
    std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
    assert!(validate(directory.path()).1.contains("dangling.yaml: no such file or directory"));
}

#[test]
fn hostile_manifests_are_answered_precisely() {
    let directory = TempDir::new().unwrap();
    let laughs: String = std::iter::once("a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned())
        .chain(
            (1..30).map(|level| format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 9].join(","))),
        )
        .collect();
    let utf16: Vec<u8> = std::iter::once(0xfeff).chain(GOOD.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    let cases: [(&str, Vec<u8>, &str); 8] = [
        ("big.yaml", vec![b'a'; 10_000_000], "Unreadable: larger than 3 MiB, the limit for a manifest"),
        ("deep.json", vec![b'['; 1_000_000], ":1:65: Unreadable: nested more than 64 levels deep"),
        ("map.json", b"{\"a\":".repeat(100_000), "Unreadable: nested more than 64 levels deep"),
        ("laughs.yaml", laughs.into_bytes(), "Unreadable: more than 500000 values once aliases are expanded"),
        ("junk.yaml", vec![b'a', b'\n', 0xff, 0xfe], ":2:1: Unreadable: not UTF-8: invalid byte 0xff at offset 2"),
        ("nul.yaml", b"a: \0".to_vec(), ":1:4: Unreadable: NUL byte at offset 3"),
        ("utf16.yaml", utf16, "Unreadable: is UTF-16 by its byte order mark; save it as UTF-8"),
        ("empty.yaml", vec![], "Unreadable: holds no pod"),
    ];
    for (name, bytes, words) in cases {
        let file = write(&directory, name, bytes);
        let (code, out, err) = validate(&file);
        assert_eq!((code, err.as_str()), (1, ""), "{out}");
        assert_eq!(out.lines().count(), 2, "{out}");
        assert!(out.starts_with(&format!("error: {file}")) && out.contains(words), "{out}");
    }
    let many: String = (0..200).map(|index| format!("k{index}: 1\n")).collect();
    let file = write(&directory, "many.yaml", format!("{GOOD}{many}"));
    assert!(validate(&file).1.contains(&format!("{file}: 100 more problems not shown\n")));
}

#[test]
fn usage_is_explained() {
    let (code, out, _) = run(keelet().arg("--version"));
    assert_eq!((code, out.as_str()), (0, concat!("keelet ", env!("CARGO_PKG_VERSION"), "\n")));
    let (code, out, _) = run(keelet().args(["validate", "--help"]));
    assert_eq!(code, 0);
    for words in [
        "Check pod manifests without running them",
        "- for standard input",
        "--lenient",
        "--feature-gates",
        "Exit status",
    ] {
        assert!(out.contains(words), "{words}: {out}");
    }
    for arguments in [vec![], vec!["validate"], vec!["validate", "-o", "xml", "-"], vec!["nonsense"]] {
        let (code, out, err) = run(keelet().args(&arguments));
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}");
        assert!(err.contains("Usage: keelet") || err.contains("possible values: text, json"), "{err}");
    }
}

#[test]
fn pipes_get_no_colours() {
    let (_, out) = run_with_stdin(keelet().args(["validate", "-"]).env("TERM", "xterm"), GOOD.as_bytes());
    assert!(!out.contains('\u{1b}'), "{out}");
}
