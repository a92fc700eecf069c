//! What is known of pods and events that an earlier agent saw.

use keelet_harness::{Actor, Node, eventually, manifest};

use super::on_a_node;

/// What a command says, once it says so.
async fn until_says(node: &Node, arguments: &[&str], words: &str) -> String {
    eventually(&format!("keelet {} to say {words:?}", arguments.join(" ")), async || {
        let output = node.command(arguments).output().await.map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if said.contains(words) { Ok(said) } else { Err(format!("{}: {said}", output.status)) }
    })
    .await
}

/// EVT-12, EVT-13: a pod ends and goes, the agent is killed, and the next one still tells what happened to it: `events`,
/// `describe`, `why` and `timeline`.
#[test]
fn what_happened_is_known_after_pods_and_agents_are_gone() {
    on_a_node(async |node| {
        node.want("web", &manifest("web", &format!("restartPolicy: Never\ncontainers:\n{}", Actor::new("main"))));
        node.start();
        node.ready("web").await;
        node.exit("web", "main", 7);
        node.pod_until("web", "over", |seen| seen.is_over()).await;
        node.want_no_more("web");
        node.gone("web").await;
        until_says(node, &["events"], "Started container main").await;
        // It is told as soon as it is known; a moment later it is kept.
        let kept = node.path("state/ledger/events.json");
        eventually("the events to be kept", async || {
            let text = std::fs::read_to_string(&kept).map_err(|error| error.to_string())?;
            if text.contains("Started container main") { Ok(()) } else { Err(text) }
        })
        .await;
        node.kill().await;
        let (root, state) = (node.path("root").display().to_string(), node.path("state").display().to_string());
        let ledger = ["--root-dir", root.as_str(), "--state-dir", state.as_str()];
        for command in ["why", "timeline"] {
            let arguments = [&[command, "web"][..], &ledger].concat();
            until_says(node, &arguments, "note: pod web was deleted at ").await;
        }
        until_says(node, &[&["why", "web"][..], &ledger].concat(), "exited with code 7").await;
        node.start();
        until_says(node, &["events"], "Started container main").await;
        let page = until_says(node, &["describe", "pod", "web"], "Gone Since:").await;
        assert!(page.contains("Started container main"), "the events of the pod: {page}");
        node.leaves_nothing().await;
    });
}
