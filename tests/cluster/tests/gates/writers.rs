//! Other writers of the same nodes.

use k8s_openapi::api::core::v1::{Node, Taint};
use keelet_control_plane::until;
use kube::{Api, Client, api::PostParams};

use crate::bed::{Bed, report, taints};

const WRITERS: usize = 10;
const NODES: usize = 4;
const GATES: usize = 8;

/// Adds a taint to a node, and a second one of its own goes: both by a read and a conditional write, as other controllers do it.
async fn churn(client: &Client, node: &str, writer: usize, round: usize) {
    let nodes: Api<Node> = Api::all(client.clone());
    let key = |round: usize| format!("writer-{writer}.example.com/{round}");
    loop {
        let mut read = nodes.get(node).await.expect("a node");
        let taints = read.spec.get_or_insert_default().taints.get_or_insert_default();
        taints.push(Taint { key: key(round), value: None, effect: "PreferNoSchedule".to_owned(), time_added: None });
        // Of three that were added, one is taken away again.
        taints.retain(|taint| round % 3 != 2 || taint.key != key(round - 1));
        match nodes.replace(node, &PostParams::default(), &read).await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => panic!("{node}: {error}"),
        }
    }
}

/// GN-1, CTRL-7, VEC-74, SCN-G18: ten other writers of the same taint lists, at full speed, while gates pass one by one. None loses a
/// taint, and none comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a control plane: make e2e"]
async fn ten_other_writers_lose_no_taint() {
    let bed = Bed::new("writers").await;
    let gates: Vec<String> = (0..GATES).map(|index| format!("readiness.k8s.io/Part{index}")).collect();
    let keys: Vec<&str> = gates.iter().map(String::as_str).collect();
    let (fleet, _nodes) = bed.gated("written", NODES, &keys).await;
    let controller = bed.controller("a", &[]).await.ready().await;
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let (client, fleet) = (bed.admin.clone(), fleet.clone());
        writers.push(tokio::spawn(async move {
            for round in 0..6 {
                for node in 0..NODES {
                    churn(&client, &fleet.name((node + writer) % NODES), writer, round).await;
                }
            }
        }));
    }
    for part in 0..GATES {
        for node in 0..NODES {
            report(&bed.admin, &fleet.name(node), &format!("Part{part}"), "True").await;
        }
    }
    for writer in writers {
        writer.await.expect("a writer");
    }
    // Rounds 0, 2, 3 and 5 of each stay: rounds 1 and 4 were taken away.
    let mut expected: Vec<String> = Vec::new();
    for writer in 0..WRITERS {
        expected.extend([0, 2, 3, 5].map(|round| format!("writer-{writer}.example.com/{round}")));
    }
    expected.sort();
    for node in 0..NODES {
        let sorted = |node: &Node| {
            let mut taints = taints(node);
            taints.sort();
            taints
        };
        let name = fleet.name(node);
        until(&bed.admin, None, &name, "all gates are gone", |node: &Node| {
            !taints(node).iter().any(|key| key.starts_with("readiness.k8s.io/"))
        })
        .await;
        let node = bed.node(&name, "it is there", |_| true).await;
        assert_eq!(sorted(&node), expected, "{name}");
    }
    controller.shows("keelet_gates_queue", |queue| queue == 0.0).await;
}
