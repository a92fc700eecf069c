//! A node whose disk fills up.

use std::fs;

use keelet_harness::{Node, eventually};
use tokio::process::Command;

use super::on_a_node;

/// Waits until `keelet get node` says so.
async fn until_node_is(node: &Node, status: &str) {
    eventually(&format!("the node to be {status}"), async || {
        let output = node.command(&["get", "node"]).output().await.map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if said.split_whitespace().any(|word| word == status) { Ok(()) } else { Err(said) }
    })
    .await;
}

/// NODE-8: the disk of the root directory has less than a tenth left.
#[test]
fn a_full_disk_is_shown_as_disk_pressure() {
    on_a_node(async |node| {
        let root = node.path("root");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=64m,mode=755", "none"]).arg(&root).status().await;
        assert!(mounted.expect("mount").success(), "a disk of 64 MiB");
        node.start();
        until_node_is(node, "Ready").await;
        fs::write(root.join("ballast"), vec![0; 60 << 20]).expect("60 MiB");
        until_node_is(node, "Ready,DiskPressure").await;
        let log = node.log();
        assert!(log.contains("nodefs.available is"), "{log}");
    });
}
