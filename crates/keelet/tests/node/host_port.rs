//! A port of the node that is taken.

use std::net::TcpListener;

use keelet_harness::{Actor, eventually, manifest};

use super::on_a_node;

/// NODE-7: the pod says which process has its port, and starts once that lets it go.
#[test]
fn a_pod_whose_host_port_is_taken_says_by_which_process() {
    on_a_node(async |node| {
        let listens = TcpListener::bind("0.0.0.0:8099").expect("a port");
        let actor = Actor::new("main").with("ports: [{containerPort: 80, hostPort: 8099}]");
        node.want("web", &manifest("web", &format!("containers:\n{actor}")));
        node.start();
        let words = format!("(PID {}) listens on it", std::process::id());
        eventually("an event that names this process", async || {
            let output = node.command(&["events"]).output().await.map_err(|error| error.to_string())?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            if said.contains("FailedCreatePodSandBox") && said.contains(&words) { Ok(()) } else { Err(said) }
        })
        .await;
        drop(listens);
        node.ready("web").await;
        node.leaves_nothing().await;
    });
}
