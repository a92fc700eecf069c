//! Files that are copied and renamed under a running pod.

use std::fs;

use keelet_harness::{Actor, Node, eventually, manifest};

use super::on_a_node;

/// Waits until the agents have said so.
async fn until_logged(node: &Node, words: &str) {
    eventually(words, async || {
        let log = node.log();
        if log.contains(words) { Ok(()) } else { Err(format!("the log has no {words:?}:\n{log}")) }
    })
    .await;
}

/// NODE-1, NODE-3: a manifest is copied beside itself, renamed, and renamed while no agent is there. The container that ran
/// first keeps running, and the log names pod and files.
#[test]
fn a_copied_and_renamed_manifest_keeps_its_containers() {
    on_a_node(async |node| {
        node.want("web", &manifest("web", &format!("containers:\n{}", Actor::new("main"))));
        node.start();
        let first = node.ready("web").await;
        let directory = node.path("manifests");
        let file = |name: &str| directory.join(name).display().to_string();
        fs::copy(file("web.yaml"), file("a.yaml")).expect("a copy");
        until_logged(node, "a.yaml: pod default/web ignored").await;
        fs::rename(file("web.yaml"), file("z.yaml")).expect("renamed");
        until_logged(node, "manifest renamed: keeping pod").await;
        fs::remove_file(file("a.yaml")).expect("removed");
        let moved = format!("file=\"{}\" before=\"{}\"", file("z.yaml"), file("a.yaml"));
        until_logged(node, &moved).await;
        node.kill().await;
        fs::rename(file("z.yaml"), file("b.yaml")).expect("renamed");
        node.start();
        // It was killed before it may have written down whose the pod was; what runs tells that too.
        until_logged(node, &format!("file=\"{}\" before=", file("b.yaml"))).await;
        let last = node.ready("web").await;
        assert_eq!((&last.uid, last.running()), (&first.uid, first.running()), "{}", node.log());
        assert_eq!(last.containers.len(), 1, "nothing was made anew: {:?}", last.containers);
        // Where the harness looks for it.
        fs::rename(file("b.yaml"), file("web.yaml")).expect("renamed");
        node.leaves_nothing().await;
        for words in ["manifest added: creating pod", "manifest removed: deleting pod"] {
            until_logged(node, words).await;
        }
    });
}
