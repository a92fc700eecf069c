//! A pod whose probes never end.

use keelet_harness::{Actor, manifest};

use crate::on_a_node;

/// Containers of the hostile pod, with two probes each.
const CONTAINERS: usize = 33;

/// PROBE-46: 66 commands that may take 68 years each, in one pod. Another pod comes up beside them, and is found out when
/// it goes down, by a command and over the network.
#[test]
fn probes_that_never_end_hide_no_other_pod() {
    on_a_node(async |node| {
        let hangs = |kind: &str| {
            let command = format!("echo {kind} hostile >>/ctl/diary; exec sleep 99999");
            let more = "periodSeconds: 1, timeoutSeconds: 2147483647";
            format!("{kind}Probe: {{exec: {{command: [sh, -c, {command:?}]}}, {more}}}")
        };
        let (readiness, liveness) = (hangs("readiness"), hangs("liveness"));
        let mounts = "volumeMounts: [{name: ctl, mountPath: /ctl}]";
        let containers: String = (0..CONTAINERS)
            .map(|number| {
                let rest = format!("image: IMAGE, command: [sleep, '99999'], {mounts}, {readiness}, {liveness}");
                format!("- {{name: c{number}, {rest}}}\n")
            })
            .collect();
        node.want(
            "hostile",
            &manifest("hostile", &format!("terminationGracePeriodSeconds: 0\ncontainers:\n{containers}")),
        );
        node.start();
        // Its share of 64 permits, and whatever more it can get until another pod is there.
        keelet_harness::eventually("the hostile pod to take its permits", async || {
            let taken = node.times("readiness hostile") + node.times("liveness hostile");
            if taken >= 16 { Ok(()) } else { Err(format!("{taken} probes hang")) }
        })
        .await;
        let every_second = "periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 1";
        let by_command = format!("readinessProbe: {{exec: {{command: [test, '!', -e, /ctl/down]}}, {every_second}}}");
        let by_page = format!("readinessProbe: {{httpGet: {{path: /, port: 8080}}, {every_second}}}");
        let honest = [
            ("by-command", Actor::new("main").with(&by_command)),
            ("by-page", Actor::new("main").serves_pages().with(&by_page)),
        ];
        for (name, main) in &honest {
            node.want(name, &manifest(name, &format!("containers:\n{main}")));
        }
        for (name, _) in &honest {
            node.ready(name).await;
        }
        node.touch("down");
        node.write("by-page.main.page-", "500");
        for (name, _) in &honest {
            node.pod_until(name, "found out", |seen| !seen.is_ready()).await;
        }
        let taken = node.times("readiness hostile") + node.times("liveness hostile");
        assert_eq!(taken, 16, "commands of one pod under way");
        node.leaves_nothing().await;
    });
}
