//! Manifests as people write them: YAML and JSON, documents and lists, types, unknown fields, repeated keys.

use keelet_pod::{Features, Kind, Origin, Problem, Report, Severity, Strictness, read_manifest};

use crate::common::{accepted, clean, paths, pod, read, refused, strict};

fn minimal(name: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: a, image: b}}]}}\n")
}

fn item(name: &str) -> String {
    format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: a, image: b}}]}}}}")
}

fn names(report: &Report) -> Vec<&str> {
    report.pods.iter().map(|pod| pod.name.as_str()).collect()
}

#[test]
fn documents_are_read_one_by_one_and_empty_ones_skipped() {
    let report = strict(&format!("---\n# nothing\n---\n{}---\n---\n{}...\n", minimal("a"), minimal("b")));
    assert!(report.is_ok(), "{report}");
    assert_eq!(names(&report), ["a", "b"]);
}

#[test]
fn a_broken_document_does_not_hide_the_others() {
    let report = strict(&format!("{}---\na: [\n---\n{}---\n{}", minimal("a"), minimal("B"), minimal("c")));
    assert_eq!(names(&report), ["a", "c"]);
    assert_eq!(report.errors.len(), 2, "{report}");
    let found: Vec<_> = report.errors.iter().map(|problem| (problem.document, problem.kind, problem.line)).collect();
    assert_eq!(found[0].0, Some(2));
    assert_eq!(found[0].1, Kind::Syntax);
    assert_eq!((found[1].0, found[1].1), (Some(3), Kind::Invalid));
}

#[test]
fn json_is_read_too() {
    let json = "{\n\t\"apiVersion\": \"v1\",\r\n\t\"kind\": \"Pod\",\n\t\"metadata\": {\"name\": \"web\", \"annotations\": \
                {\"a\": \"\\u00e9\\ud83d\\ude00\\/\\n\"}},\n\t\"spec\": {\"containers\": [{\"name\":\"a\",\"image\":\"b\",\
                \"stdin\":true,\"args\":[\"1\"]}]}}";
    let pod = clean(json);
    assert_eq!(pod.source.metadata.annotations.as_ref().unwrap()["a"], "é😀/\n");
    let long = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{{\"name\":\"a\",\"annotations\":{{\"a\":\"{}\"}}}},\"spec\":{{\"containers\":[{{\"name\":\"a\",\"image\":\"b\"}}]}}}}",
        "x".repeat(5000)
    );
    clean(&long);
}

#[test]
fn lists_are_unpacked() {
    let list = |kind: &str, items: &str| format!("apiVersion: v1\nkind: {kind}\nmetadata: {{}}\nitems:{items}\n");
    let report = strict(&list("List", &format!("\n- {}\n- {}", item("a"), item("b"))));
    assert!(report.is_ok(), "{report}");
    assert_eq!(names(&report), ["a", "b"]);
    assert_eq!(names(&strict(&list("PodList", &format!("\n- {}", item("a"))))), ["a"]);
    // A PodList's items need not say what they are; a List's do.
    let bare = "\n- {metadata: {name: a}, spec: {containers: [{name: a, image: b}]}}";
    assert_eq!(names(&strict(&list("PodList", bare))), ["a"]);
    assert_eq!(paths(&strict(&list("List", bare))), ["items[0].kind"]);
    assert!(strict(&list("List", " []")).is_ok());
    assert!(strict(&list("List", "")).is_ok());
    assert_eq!(paths(&strict(&list("List", " 5"))), ["items"]);
    let report = strict(&list(
        "List",
        &format!("\n- {}\n- {{apiVersion: v1, kind: Pod, metadata: {{name: b}}, spec: {{}}}}", item("a")),
    ));
    assert_eq!(paths(&report), ["items[1].spec.containers"]);
    assert_eq!(names(&report), ["a"]);
    assert_eq!(report.errors[0].line, Some(6));
}

#[test]
fn lists_are_checked_themselves() {
    let report = strict(&format!("apiVersion: v2\nkind: List\nitem: 1\nitems: [{}]\n", item("a")));
    assert_eq!(paths(&report), ["apiVersion", "item"]);
    assert!(report.errors[1].message.contains("did you mean \"items\"?"), "{report}");
    let report = strict("apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: List, items: []}\n");
    assert_eq!(paths(&report), ["items[0].kind"]);
    let report = strict("apiVersion: v1\nkind: List\nitems: [5, ~]\n");
    assert_eq!(paths(&report), ["items[0]", "items[1]"]);
}

#[test]
fn other_kinds_are_named() {
    let manifest = minimal("a").replace("kind: Pod", "kind: Deployment");
    let problem = refused(
        &manifest,
        "kind",
        "Unsupported value: \"Deployment\": supported values: \"Pod\", \"List\", \"PodList\"",
    );
    assert_eq!(problem.line, Some(2));
    refused(&minimal("a").replace("kind: Pod\n", ""), "kind", "Required value: must be \"Pod\"");
    refused(&minimal("a").replace("kind: Pod", "kind: 5"), "kind", "Invalid type: a number: must be a string");
    refused(&minimal("a").replace("apiVersion: v1\n", ""), "apiVersion", "Required value: must be \"v1\"");
    refused(
        &minimal("a").replace("v1", "apps/v1"),
        "apiVersion",
        "Unsupported value: \"apps/v1\": supported values: \"v1\"",
    );
    refused(&minimal("a").replace("v1", "1"), "apiVersion", "must be the string \"v1\"");
}

#[test]
fn documents_other_than_objects_are_refused() {
    for (text, words) in [("5", "is a number"), ("[1]", "is a list"), ("hello", "is a string"), ("yes", "is a boolean")]
    {
        refused(text, "", words);
    }
}

#[test]
fn pods_of_one_name_are_duplicates() {
    let report = strict(&format!("{}---\n{}", minimal("a"), minimal("a")));
    assert_eq!(names(&report), ["a"]);
    assert_eq!(paths(&report), ["metadata.name"]);
    assert!(report.errors[0].to_string().contains("Duplicate value: \"default/a\""), "{report}");
    let other = minimal("a").replace("name: a}\ns", "name: a, namespace: other}\ns");
    assert_eq!(names(&strict(&format!("{}---\n{other}", minimal("a")))), ["a", "a"]);
}

/// What a plain scalar is, is decided by the rules that kubectl reads with.
#[test]
fn booleans_may_be_yes_and_on() {
    for (text, value) in
        [("yes", true), ("on", true), ("True", true), ("y", true), ("no", false), ("OFF", false), ("n", false)]
    {
        let source = clean(&pod("", &format!("stdin: {text}"))).source.spec.clone().unwrap().containers.remove(0);
        assert_eq!(source.stdin, Some(value), "{text}");
    }
    let path = "spec.containers[0].stdin";
    refused(
        &pod("", "stdin: \"yes\""),
        path,
        "Invalid type: \"yes\": must be true or false, is a string; remove the quotes",
    );
    refused(&pod("", "stdin: 1"), path, "must be true or false, is a number");
    refused(&pod("", "stdin: {}"), path, "Invalid type: must be true or false, is a map");
}

#[test]
fn strings_have_to_be_strings() {
    let path = "spec.containers[0].env[0].value";
    for (value, words) in [
        ("123", "Invalid type: 123: must be a string, is a number; put it in quotes: \"123\""),
        ("yes", "Invalid type: yes: must be a string, is a boolean; put it in quotes: \"yes\""),
        ("1.5", "is a number; put it in quotes: \"1.5\""),
        ("[a]", "Invalid type: must be a string, is a list"),
        ("{a: b}", "Invalid type: must be a string, is a map"),
    ] {
        refused(&pod("", &format!("env: [{{name: A, value: {value}}}]")), path, words);
    }
    for value in ["\"123\"", "'yes'", "abc", "2001-01-01", "!!str 5", "! 5", "1.2.3"] {
        clean(&pod("", &format!("env: [{{name: A, value: {value}}}]")));
    }
    let path = "metadata.labels[a]";
    refused(&minimal("a").replace("{name: a}\nspec", "{name: a, labels: {a: 1}}\nspec"), path, "put it in quotes");
    clean(&pod("", "args: [|-\n 123\n , a]").replace("[|-\n     123\n     , a]", "\n    - |-\n      123\n    - a"));
}

#[test]
fn integers_have_to_be_integers() {
    let path = "spec.terminationGracePeriodSeconds";
    for (value, words) in [
        ("\"5\"", "Invalid type: \"5\": must be an integer, is a string; remove the quotes"),
        ("five", "Invalid type: five: must be an integer, is a string"),
        ("1.5", "must be an integer, is a number"),
        ("yes", "must be an integer, is a boolean"),
        ("[5]", "must be an integer, is a list"),
        ("9223372036854775808", "must be an integer from -9223372036854775808 to 9223372036854775807"),
        ("1e19", "must be an integer"),
    ] {
        refused(&pod(&format!("terminationGracePeriodSeconds: {value}"), ""), path, words);
    }
    // Quotes would not help.
    let report = strict(&pod("terminationGracePeriodSeconds: yes", ""));
    assert_eq!(report.errors[0].message, "must be an integer, is a boolean");
    for (value, number) in [("5", 5), ("5.0", 5), ("0x10", 16), ("1e3", 1000), ("1_000", 1000), ("!!int 7", 7)] {
        let spec = clean(&pod(&format!("terminationGracePeriodSeconds: {value}"), "")).source.spec.clone().unwrap();
        assert_eq!(spec.termination_grace_period_seconds, Some(number), "{value}");
    }
}

#[test]
fn lists_and_maps_have_to_be_such() {
    refused(&pod("", "args: a"), "spec.containers[0].args", "Invalid type: a: must be a list, is a string");
    refused(&pod("", "args: {}"), "spec.containers[0].args", "must be a list, is a map");
    refused(&pod("", "resources: []"), "spec.containers[0].resources", "must be a map, is a list");
    refused(&pod("nodeSelector: x", ""), "spec.nodeSelector", "must be a map, is a string");
    let report = strict("apiVersion: v1\nkind: Pod\nmetadata: x\nspec: []\n");
    assert_eq!(paths(&report), ["metadata", "spec"]);
}

#[test]
fn times_have_to_be_times() {
    let manifest =
        |time: &str| minimal("a").replace("{name: a}\nspec", &format!("{{name: a, creationTimestamp: {time}}}\nspec"));
    clean(&manifest("2024-01-02T03:04:05Z"));
    clean(&manifest("\"2024-01-02T03:04:05Z\""));
    clean(&manifest("null"));
    refused(&manifest("yesterday"), "metadata.creationTimestamp", "must be a time such as 2006-01-02T15:04:05Z");
    refused(&manifest("[1]"), "metadata.creationTimestamp", "must be a time such as");
}

#[test]
fn null_is_as_good_as_absent() {
    let pod = clean(&pod(
        "restartPolicy: null\nvolumes: ~",
        "livenessProbe:\nenv:\nresources: {limits: ~}\nstdin: ~\nargs: [~]\nports: ~",
    ));
    assert_eq!(pod.containers[0].liveness, None);
    assert_eq!(pod.restart_policy, keelet_pod::RestartPolicy::Always);
    refused(
        &minimal("a").replace("name: a, image: b", "name: ~, image: b"),
        "spec.containers[0].name",
        "Required value",
    );
    let report = strict(&minimal("a").replace("{name: a, image: b}", "~"));
    assert_eq!(paths(&report), ["spec.containers[0].name", "spec.containers[0].image"]);
    refused(&minimal("a").replace("{containers: [{name: a, image: b}]}", "~"), "spec", "Required value");
}

#[test]
fn unknown_fields_are_errors_with_a_suggestion() {
    let path = "spec.containers[0].livenessprob";
    let problem = refused(&pod("", "livenessprob: {a: 1}"), path, "Unknown field: did you mean \"livenessProbe\"?");
    assert_eq!((problem.line, problem.column, problem.kind), (Some(8), Some(5), Kind::UnknownField));
    let problem = refused(&pod("", "whatever: 1"), "spec.containers[0].whatever", "Unknown field");
    assert_eq!(problem.message, "");
    refused(&pod("", "env: [{name: A, valu: x}]"), "spec.containers[0].env[0].valu", "did you mean \"value\"?");
    refused(&format!("specs: 1\n{}", minimal("a")), "specs", "did you mean \"spec\"?");
    refused(&minimal("a").replace("name: a}", "name: a, lables: {}}"), "metadata.lables", "did you mean \"labels\"?");
}

#[test]
fn unknown_fields_and_repeated_keys_are_warnings_when_lenient() {
    let manifest = pod("hostname: a\nhostname: b", "whatever: 1");
    let report = read(&manifest, Strictness::Lenient, &Features::default());
    assert!(report.is_ok(), "{report}");
    let found: Vec<_> = report.warnings.iter().map(|problem| (problem.path.as_str(), problem.severity)).collect();
    let expected = [("spec.hostname", Severity::Warning), ("spec.containers[0].whatever", Severity::Warning)];
    assert_eq!(found, expected);
    // Everything else stays an error.
    assert_eq!(read(&pod("hostname: A", ""), Strictness::Lenient, &Features::default()).errors.len(), 1);
}

#[test]
fn repeated_keys_are_errors_and_the_last_counts() {
    let manifest = pod("", "stdin: false\ntty: true\nstdin: true");
    let problem =
        refused(&manifest, "spec.containers[0].stdin", "Duplicate value: \"stdin\": this key was already given above");
    assert_eq!((problem.line, problem.column), (Some(10), Some(5)));
    let report = read(&manifest, Strictness::Lenient, &Features::default());
    let source = report.pods[0].source.spec.clone().unwrap().containers.remove(0);
    assert_eq!((source.stdin, source.tty), (Some(true), Some(true)));
    let report = strict(&pod("", "env: [{name: A, name: B, name: C}]"));
    assert_eq!(paths(&report), ["spec.containers[0].env[0].name", "spec.containers[0].env[0].name"]);
    refused(&format!("kind: Pod\n{}", minimal("a")), "kind", "Duplicate value");
    let list = "apiVersion: v1\nkind: List\nitems:\n- {kind: Pod, apiVersion: v1, metadata: {name: a}, metadata: {name: b}, spec: {containers: [{name: a, image: b}]}}";
    assert_eq!(paths(&strict(list)), ["items[0].metadata"]);
}

#[test]
fn aliases_and_merges_are_expanded() {
    let manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - &base\n    name: a\n    image: &image b\n    \
                    args: [x]\n  - <<: *base\n    name: c\n  - {name: d, image: *image}\n  - <<: [{name: e, image: f}, {image: g, tty: true}]\n";
    let pod = clean(manifest);
    let found: Vec<_> =
        pod.containers.iter().map(|container| (container.name.as_str(), container.image.as_str())).collect();
    assert_eq!(found, [("a", "b"), ("c", "b"), ("d", "b"), ("e", "f")]);
    let spec = pod.source.spec.as_ref().unwrap();
    assert_eq!(spec.containers[1].args.as_deref(), Some(["x".to_owned()].as_slice()));
    assert_eq!(spec.containers[3].tty, Some(true));
    for (text, words) in [
        ("a: &a [*a]", "an alias inside the value that it refers to"),
        ("a: *b", "unknown anchor"),
        ("{<<: 5}", "`<<` takes a map or a list of maps"),
        ("{<<: [5]}", "`<<` takes a map or a list of maps"),
        ("? [a]\n: b", "a list or map cannot be a key"),
        ("a: &a [b]\n*a : c", "a list or map cannot be a key"),
        ("a: !!binary x", "the tag \"!!binary\" has no meaning in a manifest"),
        ("a: !x [b]", "the tag \"!x\" has no meaning in a manifest"),
        ("a: !x {b: c}", "the tag \"!x\" has no meaning in a manifest"),
    ] {
        refused(text, "", words);
    }
    // A scalar may be anchored as a key, used as one, or tagged as what it is.
    let keys = "apiVersion: v1\nkind: Pod\nmetadata: !!map {name: a, labels: {&k key: v, other: *k}, annotations: {*k : x}}\nspec: {containers: !!seq [{name: a, image: b}]}\n";
    let pod = clean(keys);
    assert_eq!(pod.source.metadata.labels.as_ref().unwrap()["other"], "key");
    assert_eq!(pod.source.metadata.annotations.as_ref().unwrap()["key"], "x");
    // The position of an alias is where it is used.
    let problem = refused(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {a: &b x_y}}\nspec:\n  hostname: *b\n  containers: [{name: a, image: b}]\n",
        "spec.hostname",
        "lower case",
    );
    assert_eq!((problem.line, problem.column), (Some(5), Some(13)));
}

#[test]
fn managed_fields_and_status_of_kubectl_output_are_accepted() {
    let manifest = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  managedFields: [{fieldsV1: {\"f:metadata\": {}}, x: 1}]\n\
                    spec: {containers: [{name: a, image: b}]}\nstatus: {phase: Running, qosClass: BestEffort}\n";
    let pod = clean(manifest);
    assert_eq!(pod.source.metadata.managed_fields, None);
    assert_eq!(pod.source.status.as_ref().unwrap().phase.as_deref(), Some("Running"));
}

#[test]
fn problems_print_as_the_api_server_would() {
    let problem = Problem {
        file: "f".to_owned(),
        document: None,
        pod: Some("n/p".to_owned()),
        line: None,
        column: None,
        path: String::new(),
        value: None,
        kind: Kind::Required,
        severity: Severity::Error,
        message: String::new(),
    };
    assert_eq!(problem.to_string(), "f: pod n/p: Required value");
    assert_eq!(Problem { pod: None, message: "m".to_owned(), ..problem.clone() }.to_string(), "f: Required value: m");
    assert_eq!(Problem { line: Some(3), ..problem.clone() }.to_string(), "f:3: Required value");
    let full =
        Problem { line: Some(3), column: Some(4), path: "a.b".to_owned(), value: Some("v".to_owned()), ..problem };
    assert_eq!(full.to_string(), "f:3:4: a.b: Required value: v");
    let labels = [
        (Kind::Syntax, "Unreadable"),
        (Kind::InvalidType, "Invalid type"),
        (Kind::UnknownField, "Unknown field"),
        (Kind::Duplicate, "Duplicate value"),
        (Kind::Required, "Required value"),
        (Kind::Invalid, "Invalid value"),
        (Kind::Unsupported, "Unsupported value"),
        (Kind::Forbidden, "Forbidden"),
        (Kind::TooMany, "Too many"),
        (Kind::NotFound, "Not found"),
        (Kind::Suspicious, "Suspicious"),
        (Kind::Ignored, "Ignored"),
    ];
    for (kind, label) in labels {
        assert_eq!(kind.label(), label);
    }
}

#[test]
fn reports_print_errors_then_warnings() {
    let report = strict(&pod("terminationGracePeriodSeconds: -1\nhostname: A", ""));
    let text = report.to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].contains("spec.hostname") && lines[1].ends_with("as by the API server (warning)"), "{text}");
    assert_eq!((Origin::stdin().name(), Origin::api_server().name()), ("<stdin>", "api"));
}

#[test]
fn line_ends_and_byte_order_marks_do_not_matter() {
    let plain = accepted(&minimal("a"));
    assert_eq!(accepted(&minimal("a").replace('\n', "\r\n")), plain);
    assert_eq!(accepted(&format!("\u{feff}{}", minimal("a"))), plain);
    let report = read_manifest(minimal("a").as_bytes(), &Origin::stdin(), Strictness::Strict, &Features::default());
    assert_eq!(report.pods.len(), 1);
}
