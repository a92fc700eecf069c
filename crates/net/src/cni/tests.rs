//! Which configuration is used, and the input of plugins. Needs no root.

use std::fs;

use serde_json::json;

use super::config::{Plugin, parse_list};
use super::*;

fn dir(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        fs::write(dir.path().join(name), content).unwrap();
    }
    dir
}

const GOOD: &str = r#"{"cniVersion": "1.0.0", "name": "good", "plugins": [{"type": "bridge"}]}"#;
const SINGLE: &str = r#"{"cniVersion": "0.4.0", "name": "single", "type": "ptp", "mtu": 1400}"#;

fn name_of(found: Found) -> String {
    match found {
        Found::Usable { list, .. } => list.name,
        other => format!("{other:?}"),
    }
}

#[test]
fn no_directory_and_no_file_mean_no_cni() {
    assert!(matches!(find(Path::new("/nowhere/net.d")), Found::Absent));
    let dir = dir(&[("README", "read me"), ("10-x.conflist.bak", GOOD)]);
    fs::create_dir(dir.path().join("20-dir.conf")).unwrap();
    assert!(matches!(find(dir.path()), Found::Absent));
}

#[test]
fn the_first_file_by_name_is_used_whatever_its_extension() {
    let dir = dir(&[("20-a.conflist", GOOD), ("10-b.conf", SINGLE), ("30-c.json", SINGLE)]);
    assert_eq!(name_of(find(dir.path())), "single");
    fs::remove_file(dir.path().join("10-b.conf")).unwrap();
    assert_eq!(name_of(find(dir.path())), "good");
}

#[test]
fn invalid_files_are_skipped_and_reported() {
    let dir = dir(&[("10-torn.conflist", "{"), ("20-good.conflist", GOOD)]);
    let Found::Usable { list, problems, .. } = find(dir.path()) else { panic!("none found") };
    assert_eq!(list.name, "good");
    assert!(problems.len() == 1 && problems[0].to_string().contains("10-torn.conflist: invalid JSON"), "{problems:?}");
}

#[test]
fn only_invalid_files_are_an_error() {
    for (content, why) in [
        ("[]", "must be an object"),
        ("{}", "plugins: must be an array"),
        (r#"{"name": "n", "cniVersion": "1.0.0", "plugins": []}"#, "at least one plugin"),
        (r#"{"name": "n", "cniVersion": "1.0.0", "plugins": [{}]}"#, r#"plugins[0].type: """#),
        (r#"{"name": "n", "cniVersion": "1.0.0", "plugins": [{"type": "../sh"}]}"#, r#"plugins[0].type: "../sh""#),
        (r#"{"name": "n", "cniVersion": "1.0.0", "plugins": [{"type": "a/b"}]}"#, r#"plugins[0].type: "a/b""#),
        (r#"{"name": "", "cniVersion": "1.0.0", "plugins": [{"type": "a"}]}"#, r#"name: """#),
        (r#"{"name": "a/b", "cniVersion": "1.0.0", "plugins": [{"type": "a"}]}"#, r#"name: "a/b""#),
        (r#"{"name": "n", "cniVersion": "7.0.0", "plugins": [{"type": "a"}]}"#, "cniVersion: 7.0.0: must be one of"),
        (r#"{"name": "n", "cniVersion": 1, "plugins": [{"type": "a"}]}"#, "cniVersion: 1: must be a string"),
    ] {
        let dir = dir(&[("10-x.conflist", content)]);
        match find(dir.path()) {
            Found::Broken(problems) => assert!(problems[0].to_string().contains(why), "{content}: {problems:?}"),
            other => panic!("{content}: {other:?}"),
        }
    }
}

#[test]
fn the_newest_common_version_is_used() {
    let version = |fields: Value| {
        let mut list = json!({"name": "n", "plugins": [{"type": "a"}]});
        list.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        parse_list(&list).unwrap().version
    };
    assert_eq!(version(json!({})), "0.1.0");
    assert_eq!(version(json!({"cniVersion": "1.0.0"})), "1.0.0");
    assert_eq!(version(json!({"cniVersion": "0.4.0", "cniVersions": ["0.4.0", "1.1.0", "9.0.0"]})), "1.1.0");
}

#[test]
fn a_stored_list_is_parsed_to_the_same_list() {
    let dir = dir(&[("10-x.conf", SINGLE)]);
    let Found::Usable { list, .. } = find(dir.path()) else { panic!("none found") };
    assert_eq!(parse_list(&list.to_value()).unwrap(), list);
}

#[test]
fn a_plugin_gets_only_the_capabilities_that_it_has() {
    let list = parse_list(&json!({"name": "n", "cniVersion": "1.0.0", "plugins": [
        {"type": "a", "own": 1},
        {"type": "b", "capabilities": {"portMappings": true, "bandwidth": true, "other": false}},
    ]}))
    .unwrap();
    let config = json!({"portMappings": [{"hostPort": 80}], "other": 1});
    let input = |plugin: &Plugin, before: Value| plugin.input(&list, &config, &before);
    assert_eq!(
        input(&list.plugins[0], Value::Null),
        json!({"cniVersion": "1.0.0", "name": "n", "type": "a", "own": 1})
    );
    assert_eq!(
        input(&list.plugins[1], json!({"ips": []})),
        json!({
            "cniVersion": "1.0.0", "name": "n", "type": "b",
            "runtimeConfig": {"portMappings": [{"hostPort": 80}]},
            "prevResult": {"ips": []},
        })
    );
    assert!(list.asks_for("portMappings") && !list.asks_for("other"));
}

#[test]
fn versions_have_an_order() {
    let list =
        |version: &str| parse_list(&json!({"name": "n", "cniVersion": version, "plugins": [{"type": "a"}]})).unwrap();
    assert!(list("1.0.0").at_least("0.4.0") && list("0.4.0").at_least("0.4.0") && !list("0.3.1").at_least("0.4.0"));
}
