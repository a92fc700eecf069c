//! README.md, followed in a clean directory. What needs root is in `node/readme.rs`.

use std::{fs, process::Command};

mod blocks;

use blocks::{Kind, all, prepare, repository};

/// Runs a script; its exit status, and what it printed on both streams.
#[expect(clippy::disallowed_methods, reason = "a test waits for the process it tests")]
fn bash(directory: &std::path::Path, path: &str, script: &str) -> (Option<i32>, String) {
    let mut command = Command::new("bash");
    command.args(["-c", &format!("exec 2>&1\n{script}")]).current_dir(directory).env("PATH", path);
    for variable in ["COLUMNS", "NO_COLOR", "KEELET_SOCKET"] {
        command.env_remove(variable);
    }
    let output = command.env("LC_ALL", "C.UTF-8").output().expect("bash");
    (output.status.code(), String::from_utf8(output.stdout).expect("UTF-8"))
}

#[test]
fn every_command_of_the_readme_prints_what_it_says() {
    let directory = tempfile::tempdir().unwrap();
    let path = prepare(directory.path());
    let mut followed = 0;
    for block in all() {
        match block.kind {
            Kind::Console => {
                for session in format!("\n{}", block.text).split("\n$ ").skip(1) {
                    let (command, printed) = session.split_once('\n').unwrap_or((session, ""));
                    let (_, out) = bash(directory.path(), &path, command);
                    assert_eq!(out.trim_end(), printed.trim_end(), "README.md:{}: {command}", block.line);
                    followed += 1;
                }
            }
            Kind::Sh => {
                let (status, out) = bash(directory.path(), &path, &format!("set -e\n{}", block.text));
                assert_eq!(status, Some(0), "README.md:{}: {out}", block.line);
                followed += 1;
            }
            Kind::Root | Kind::Make | Kind::Text => {}
        }
    }
    assert!(followed >= 4, "{followed}");
}

#[test]
fn every_make_target_of_the_readme_exists() {
    let makefile = fs::read_to_string(repository().join("Makefile")).unwrap();
    let blocks: Vec<_> = all().into_iter().filter(|block| block.kind == Kind::Make).collect();
    assert!(!blocks.is_empty());
    for line in blocks.iter().flat_map(|block| block.text.lines()) {
        let target = line.strip_prefix("make ").and_then(|rest| rest.split_whitespace().next()).expect("make TARGET");
        assert!(makefile.lines().any(|rule| rule.starts_with(&format!("{target}:"))), "{line}");
    }
}
