//! The blocks of README.md that need root: one after the other, as a reader follows them, on a machine of its own.

use std::process::Stdio;

use tokio::process::Command;

use super::{
    blocks::{Kind, all, prepare},
    on_a_node,
};

/// The agent's own directories, where nothing of the machine under the test may be changed.
const PRIVATE: &str = "set -e\nfor place in /var/lib /var/log /run; do mount -t tmpfs keelet-readme $place; done\n";

#[test]
fn the_tour_of_the_readme_can_be_followed() {
    on_a_node(async |node| {
        let directory = node.path("reader");
        std::fs::create_dir(&directory).expect("a directory");
        let path = prepare(&directory);
        let blocks: Vec<_> = all().into_iter().filter(|block| block.kind == Kind::Root).collect();
        assert!(!blocks.is_empty());
        let steps: String =
            blocks.iter().map(|block| format!("echo README.md:{}\n{}", block.line, block.text)).collect();
        let mut bash = Command::new("bash");
        bash.args(["-c", &format!("exec 2>&1\n{PRIVATE}{steps}")]).current_dir(&directory).env("PATH", path);
        bash.env_remove("KEELET_SOCKET").stdin(Stdio::null());
        let output = bash.output().await.expect("bash");
        let said = String::from_utf8_lossy(&output.stdout);
        let log = std::fs::read_to_string(directory.join("agent.log")).unwrap_or_default();
        assert!(output.status.success(), "{said}\nthe log of the agent:\n{log}");
        for part in ["pod default/hello   Ready=True since ", "an agent starts", "\nhello   2/2     Running"] {
            assert!(said.contains(part), "{part}\n{said}");
        }
        assert!(log.contains("manifest removed: deleting pod"), "{log}");
        assert!(log.contains("stopping container") && log.contains("cause=the pod is ending"), "{log}");
    });
}
