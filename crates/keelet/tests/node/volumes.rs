//! Parts of volumes (`subPath`): bound where no container can put something else in their place.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use keelet_harness::{Actor, Node, Seen, eventually, manifest};

use super::on_a_node;

/// Mounts of the first container: parts of an emptyDir and of a directory of the node. Actors have theirs besides.
const MOUNTS: &str = "volumeMounts: [{name: ctl, mountPath: /ctl}, {name: kept, mountPath: /part, subPath: a/b}, \
                      {name: kept, mountPath: /seen, subPath: a, readOnly: true}, {name: ctl, mountPath: /file, subPath: file}]";

fn kept(node: &Node, seen: &Seen, name: &str) -> PathBuf {
    node.path("root/pods").join(&seen.uid).join("volumes/kubernetes.io~empty-dir/kept").join(name)
}

/// How many parts of volumes are mounted for a pod's containers.
fn bound(seen: &Seen) -> usize {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let places = format!("/pods/{}/volume-subpaths/", seen.uid);
    mounts.lines().filter(|line| line.split(' ').nth(4).is_some_and(|place| place.contains(&places))).count()
}

/// The first container of a pod has parts of volumes, the other one all of them.
fn pod(name: &str, fields: &str) -> String {
    let main = Actor::new("main").to_string();
    let own = "volumeMounts: [{name: ctl, mountPath: /ctl}, {name: kept, mountPath: /kept}]";
    assert!(main.contains(own), "{main}");
    let (main, other) = (main.replace(own, MOUNTS), Actor::new("other"));
    manifest(name, &format!("{fields}restartPolicy: Always\ncontainers:\n{main}\n{other}"))
}

async fn parts_follow_restarts(node: &mut Node, fields: &str) {
    node.put("ctl/file", "the node's");
    // It is started often, and nothing here is about how long that is put off.
    let config = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                  featureGates: {KubeletCrashLoopBackOffMax: true}\n\
                  crashLoopBackOff: {maxContainerRestartPeriod: 1s}\n";
    node.put("config.yaml", config);
    node.want("web", &pod("web", fields));
    node.start();
    let seen = node.ready("web").await;
    assert_eq!(bound(&seen), 3);
    assert_eq!(
        node.run_in(&seen, "main", "echo words >/part/file && cat /seen/b/file /file").await,
        "words\nthe node's"
    );
    assert_eq!(node.run_in(&seen, "other", "cat /kept/a/b/file && stat -c %u /kept/a/b/file").await, "words\n0");
    let script = "if (: >/seen/x) 2>/dev/null; then echo wrote; else echo could not; fi";
    assert_eq!(node.run_in(&seen, "main", script).await, "could not");
    // Started again by this agent, and by the next one.
    node.exit("web", "main", 0);
    let once = |seen: &Seen| seen.is_ready() && seen.counts(["main"]) == [1];
    let seen = node.pod_when("web", "started again", once).await;
    assert_eq!((node.run_in(&seen, "main", "cat /part/file").await.as_str(), bound(&seen)), ("words", 3));
    node.kill().await;
    node.start();
    let seen = node.pod_when("web", "as it was", once).await;
    node.exit("web", "main", 0);
    let twice = |seen: &Seen| seen.is_ready() && seen.counts(["main"]) == [2];
    let after = node.pod_when("web", "started by the next agent", twice).await;
    assert_eq!(after.uid, seen.uid);
    assert_eq!((node.run_in(&after, "main", "cat /part/file").await.as_str(), bound(&after)), ("words", 3));
    // A link that stays in the volume is followed, one that leads out is not.
    assert_eq!(node.run_in(&after, "other", "mv /kept/a /kept/1 && ln -s 1 /kept/a").await, "");
    node.exit("web", "main", 0);
    let thrice = |seen: &Seen| seen.is_ready() && seen.counts(["main"]) == [3];
    let after = node.pod_when("web", "started with a link", thrice).await;
    assert_eq!(node.run_in(&after, "main", "cat /part/file").await, "words");
    fs::remove_file(kept(node, &after, "a")).expect("a link");
    symlink(node.path("ctl"), kept(node, &after, "a")).expect("a link");
    node.exit("web", "main", 0);
    eventually("the pod to wait", async || match node.log() {
        log if log.contains("a is a symbolic link that leads out of the volume") => Ok(()),
        _ => Err("no event says so".to_owned()),
    })
    .await;
    assert!(!node.path("ctl/b").exists(), "nothing was made behind it");
    node.leaves_nothing().await;
    assert_eq!(fs::read_to_string(node.path("ctl/file")).expect("a file"), "the node's");
}

#[test]
fn parts_of_volumes_follow_their_container_from_start_to_start() {
    on_a_node(async |node| parts_follow_restarts(node, "").await);
}

#[test]
fn parts_of_volumes_belong_to_the_users_of_their_pod() {
    on_a_node(async |node| {
        if let Some(why) = keelet_linux::userns::unsupported() {
            return keelet_report::skipped(why);
        }
        parts_follow_restarts(node, "hostUsers: false\n").await;
    });
}
