//! Pods with users of their own (`hostUsers: false`): root inside, an unprivileged user on the node.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use keelet_harness::{Actor, Node, Seen, manifest};

use super::on_a_node;

/// A rule that restarts all containers on exit code 42, as fields of a container.
const RULE: &str = "restartPolicy: Never, restartPolicyRules: \
                    [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]";

/// A pod of two, one of which sees all of `/proc` and is asked by a command whether it is ready.
fn pod(name: &str) -> String {
    let probe = "readinessProbe: {exec: {command: [sh, -c, test $(id -u) = 0]}, periodSeconds: 1, timeoutSeconds: 20}";
    let main = Actor::new("main").with("securityContext: {procMount: Unmasked}").with(probe);
    let source = Actor::new("source").with(RULE);
    manifest(name, &format!("hostUsers: false\nrestartPolicy: Never\ncontainers:\n{main}\n{source}"))
}

/// The first ID of a pod's users on the node, as its containers see it.
async fn first_id(node: &Node, seen: &Seen) -> u32 {
    let mut found = Vec::new();
    for name in ["main", "source"] {
        for file in ["uid_map", "gid_map"] {
            let map = node.run_in(seen, name, &format!("cat /proc/self/{file}")).await;
            let numbers: Vec<u32> = map.split_whitespace().map(|word| word.parse().expect("a number")).collect();
            let [0, first, 65_536] = numbers[..] else { panic!("{name} {file}: {map}") };
            found.push(first);
        }
    }
    assert!(found.iter().all(|first| *first == found[0]), "{found:?}");
    found[0]
}

/// The user that a container's process is on the node.
fn user_of(seen: &Seen, container: &str) -> u32 {
    fs::metadata(format!("/proc/{}", seen.pid(container))).expect("a process").uid()
}

fn kept(node: &Node, seen: &Seen, name: &str) -> PathBuf {
    let volume = Path::new("volumes/kubernetes.io~empty-dir/kept").join(name);
    node.path("root/pods").join(&seen.uid).join(volume)
}

/// The range of user IDs on the node is different for every pod, and stays the same over restarts of all containers and the
/// death of the agent. Files have the owners they would have without. A pod that goes leaves its range to the next.
#[test]
fn a_pods_users_are_its_own_and_stay_the_same() {
    on_a_node(async |node| {
        if let Some(why) = keelet_linux::userns::unsupported() {
            return keelet_report::skipped(why);
        }
        node.want("web", &pod("web"));
        node.want("more", &pod("more"));
        node.start();
        let (web, more) = (node.ready("web").await, node.ready("more").await);
        let (first, other) = (first_id(node, &web).await, first_id(node, &more).await);
        assert_eq!([first, other].into_iter().min(), Some(65_536));
        assert_eq!([first, other].into_iter().max(), Some(131_072));
        for (seen, first) in [(&web, first), (&more, other)] {
            assert_eq!(node.run_in(seen, "main", "id -u").await, "0");
            assert_eq!((user_of(seen, "main"), user_of(seen, "source")), (first, first), "root inside");
        }
        // A container writes as its root, on the node that is root's file.
        let script =
            "echo words >/kept/file && chown 7 /kept/file && touch /kept/own && stat -c %u /kept/file /kept/own";
        assert_eq!(node.run_in(&web, "main", script).await, "7\n0");
        let owner = |name: &str| fs::metadata(kept(node, &web, name)).expect("a file").uid();
        assert_eq!((owner("file"), owner("own")), (7, 0));
        assert_eq!(node.run_in(&web, "source", "cat /kept/file").await, "words");
        // All of /proc is there, and what is the node's cannot be changed.
        let script = "if (echo 0 >/proc/sys/kernel/panic) 2>/dev/null; then echo wrote; else echo could not; fi; test -r /proc/kcore || echo and not read";
        assert_eq!(node.run_in(&web, "main", script).await, "could not\nand not read");
        // Its termination message arrives.
        assert_eq!(node.run_in(&web, "source", "echo bye >/dev/termination-log; stat -c %u /etc/hosts").await, "0");
        // All containers start over in the same sandbox.
        node.exit("web", "source", 42);
        let over = |seen: &Seen| seen.is_ready() && seen.counts(["main", "source"]) == [1, 1];
        let seen = node.pod_when("web", "started over", over).await;
        assert_eq!((first_id(node, &seen).await, user_of(&seen, "main")), (first, first));
        assert_eq!(seen.last("source").message.trim(), "bye");
        // No agent runs for a while.
        node.kill().await;
        node.start();
        let seen = node.pod_when("web", "as it was", |seen| seen.is_ready()).await;
        assert_eq!(first_id(node, &seen).await, first);
        node.exit("web", "source", 42);
        let over = |seen: &Seen| seen.is_ready() && seen.counts(["main", "source"]) == [2, 2];
        let seen = node.pod_when("web", "started over by the next agent", over).await;
        assert_eq!(first_id(node, &seen).await, first);
        // Its range is there for the next one, and only that.
        node.want_no_more("more");
        node.gone("more").await;
        node.want("next", &pod("next"));
        let next = node.ready("next").await;
        assert_eq!((first_id(node, &next).await, first_id(node, &seen).await), (other, first));
        node.leaves_nothing().await;
    });
}
