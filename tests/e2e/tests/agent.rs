//! The agent on a real containerd. Each fact is checked twice: in the ledger, and in the runtime.

use std::time::Duration;

use keelet_e2e::{Bed, Node, Seen, eventually};
use keelet_lifecycle::status::{ConditionType, ContainerState, Phase};
use tokio::time::{Instant, sleep};

/// An init container, a sidecar with a startup probe, a web server behind all three kinds of probes, and a worker
/// whose readiness probe counts its attempts.
const WEB: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  terminationGracePeriodSeconds: 2
  volumes:
    - name: www
      emptyDir: {}
  initContainers:
    - name: setup
      image: IMAGE
      command: ["sh", "-c", "echo hello > /www/index.html; echo round >> /www/rounds"]
      volumeMounts: [{ name: www, mountPath: /www }]
    - name: helper
      image: IMAGE
      restartPolicy: Always
      command: ["sh", "-c", "trap 'exit 0' TERM; touch /tmp/up; while :; do sleep 0.1; done"]
      startupProbe: { exec: { command: [test, -e, /tmp/up] }, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 60 }
  containers:
    - name: server
      image: IMAGE
      command: [httpd, -f, -p, "8080", -h, /www]
      volumeMounts: [{ name: www, mountPath: /www }]
      startupProbe: { exec: { command: [wget, -q, -O, /dev/null, "http://127.0.0.1:8080/"] }, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 60 }
      readinessProbe: { httpGet: { path: /index.html, port: 8080 }, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 1 }
      livenessProbe: { tcpSocket: { port: 8080 }, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 10 }
    - name: worker
      image: IMAGE
      command: ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]
      readinessProbe: { exec: { command: [sh, -c, "echo x >> /tmp/asked"] }, periodSeconds: 1, timeoutSeconds: 20 }
"#;

/// A watcher that restarts the whole pod by exit code 88 when a command asks for it. It waits until that command has
/// exited, because a command dies with its container.
const JOB: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: job
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 2
  volumes:
    - name: work
      emptyDir: {}
  initContainers:
    - name: setup
      image: IMAGE
      command: ["sh", "-c", "echo round >> /job/rounds"]
      volumeMounts: [{ name: work, mountPath: /job }]
    - name: watcher
      image: IMAGE
      restartPolicy: Always
      restartPolicyRules:
        - action: RestartAllContainers
          exitCodes: { operator: In, values: [88] }
      command: ["sh", "-c", "trap 'exit 0' TERM; until [ -e /tmp/anew ] && [ ! -e /proc/$(cat /tmp/anew) ]; do sleep 0.05; done; exit 88"]
  containers:
    - name: trainer
      image: IMAGE
      command: ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]
      volumeMounts: [{ name: work, mountPath: /job }]
      readinessProbe: { exec: { command: ["true"] }, periodSeconds: 1, timeoutSeconds: 20 }
"#;

const JOB_CONTAINERS: [&str; 3] = ["setup", "watcher", "trainer"];

/// The number of attempts of the worker's readiness probe.
async fn asked(node: &Node, seen: &Seen) -> usize {
    node.run_in(seen, "worker", "wc -l < /tmp/asked").await.parse().expect("a number")
}

/// Observes the pod until the worker was probed so many times more: nothing about the pod may have changed.
async fn stays_for_probes(node: &Node, before: &Seen, more: usize) {
    let enough = asked(node, before).await + more;
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let now = node.see("web").await.expect("the pod");
        assert_eq!(now.status, before.status);
        assert_eq!(now.version, before.version, "the status changed and changed back");
        assert_eq!((now.sandbox(), now.running()), (before.sandbox(), before.running()));
        now.agrees().expect("ledger and runtime agree");
        if asked(node, before).await >= enough {
            return;
        }
        assert!(Instant::now() < until, "the probes do not run any more");
        sleep(Duration::from_millis(100)).await;
    }
}

/// SIDE-1, SIDE-3, SIDE-4, SIDE-14.
#[tokio::test]
#[ignore = "needs containerd: make e2e"]
async fn a_pod_with_init_container_sidecar_and_probes_becomes_ready() {
    let mut node = Bed::here().node();
    node.want("web", WEB);
    node.start();
    let web = node.ready("web").await;
    assert_eq!(web.status.phase, Phase::Running);
    for kind in [ConditionType::Initialized, ConditionType::ContainersReady, ConditionType::PodReadyToStartContainers] {
        assert!(web.status.is_true(&kind), "{kind:?}");
    }
    let ContainerState::Terminated(setup) = &web.status.container("setup").expect("setup").state else {
        panic!("setup has not ended: {:#?}", web.status);
    };
    assert_eq!((setup.exit_code, setup.reason.as_str()), (0, "Completed"));
    for name in ["helper", "server", "worker"] {
        let status = web.status.container(name).expect(name);
        assert!(status.ready && status.started == Some(true) && status.restart_count == 0, "{status:#?}");
    }

    // The probe goes from the node to the pod's address, and readiness follows what it finds there.
    node.run_in(&web, "server", "mv /www/index.html /www/away").await;
    let unready = node.pod_when("web", "unready", |web| !web.is_ready()).await;
    assert_eq!(
        unready.status.condition(&ConditionType::Ready).and_then(|it| it.reason.as_deref()),
        Some("ContainersNotReady")
    );
    assert_eq!(unready.running(), web.running(), "an unready container is not restarted");
    node.run_in(&web, "server", "mv /www/away /www/index.html").await;
    let again = node.ready("web").await;
    assert_eq!(again.running(), web.running());
    assert_eq!(node.run_in(&again, "server", "cat /www/rounds").await, "round");
}

/// KEEP-10, KEEP-20, KEEP-23. No new status is written, not even one that is reverted at once.
#[tokio::test]
#[ignore = "needs containerd: make e2e"]
async fn a_killed_agent_leaves_no_trace_in_the_status() {
    let mut node = Bed::here().node();
    node.want("web", WEB);
    node.start();
    let before = node.ready("web").await;
    stays_for_probes(&node, &before, 3).await;
    for away in [0, 300, 1500] {
        node.kill().await;
        sleep(Duration::from_millis(away)).await;
        node.start();
        stays_for_probes(&node, &before, 3).await;
    }
}

/// KEEP-10, KEEP-23: the first promise, word for word. Each agent runs until it has run a probe.
#[tokio::test]
#[ignore = "needs containerd: make e2e"]
async fn a_hundred_agents_in_a_row_change_nothing() {
    let mut node = Bed::here().node();
    node.want("web", WEB);
    node.start();
    let before = node.ready("web").await;
    for _ in 0..100 {
        node.kill().await;
        node.start();
        stays_for_probes(&node, &before, 1).await;
    }
}

/// The error of containerd 1.6 when it lost track of a task. Very seldom an abandoned start leaves its task running
/// while the container is reported as exited, and then CRI can neither stop nor remove it.
const LOST_TASK: &str = "cannot delete running task";
/// After this many errors the state is permanent.
const LOST_FOR_GOOD: usize = 5;

/// The agent dies every few hundred milliseconds while the pod starts. The next agent recovers whatever was begun: in
/// the end there is one of everything, and nothing was restarted.
///
/// containerd abandons a start when its client disconnects, and reports a container that never ran as exited
/// (StartError). That is not a failure of the container: the pod runs even if its policy forbids restarts.
#[tokio::test]
#[ignore = "needs containerd: make e2e"]
async fn a_pod_starts_however_often_the_agent_dies() {
    let mut node = Bed::here().node();
    node.want("web", WEB);
    node.want("job", JOB);
    for alive in [20, 50, 90, 140, 200, 270, 350, 440, 540, 650, 770, 900] {
        node.start();
        sleep(Duration::from_millis(alive)).await;
        node.kill().await;
    }
    node.start();
    let come_up = eventually("the pods to be Ready", async || {
        let (job, web) = (node.see("job").await?, node.see("web").await?);
        let lost = node.log().lines().filter(|line| line.contains(LOST_TASK)).count();
        match (job.is_ready() && web.is_ready(), lost >= LOST_FOR_GOOD) {
            (true, _) => Ok(true),
            (false, true) => Ok(false),
            (false, false) => Err(format!("they are {job:#?} and {web:#?}")),
        }
    });
    if !come_up.await {
        return keelet_report::skipped(
            "containerd reports a container as exited whose task is still running, and refuses to remove it",
        );
    }
    for pod in ["web", "job"] {
        let seen = node.ready(pod).await;
        assert_eq!(seen.status.phase, Phase::Running);
        for status in seen.status.all_containers() {
            assert_eq!((status.restart_count, status.last_state.is_none()), (0, true), "{status:#?}");
        }
    }
    let web = node.see("web").await.expect("web");
    stays_for_probes(&node, &web, 3).await;
}

/// KEEP-13: the next agent notices what happened while none was running.
#[tokio::test]
#[ignore = "needs containerd: make e2e"]
async fn a_container_that_dies_without_an_agent_is_restarted_by_the_next() {
    let mut node = Bed::here().node();
    node.want("web", WEB);
    node.start();
    let before = node.ready("web").await;
    node.kill().await;
    let server = before.running_id("server").expect("a server").to_owned();
    Bed::here().runtime.stop_container(&server, Duration::ZERO).await.expect("the server is killed");
    node.start();
    let after = node
        .pod_when("web", "Ready with a new server", |web| web.is_ready() && web.restarts("server") == Some(1))
        .await;
    assert_ne!(after.running_id("server"), Some(server.as_str()));
    let last = after.status.container("server").and_then(|status| status.last_state.terminated.clone());
    assert_eq!(last.map(|last| last.exit_code), Some(137));
    for name in ["helper", "worker"] {
        assert_eq!((after.running_id(name), after.restarts(name)), (before.running_id(name), Some(0)), "{name}");
    }
    assert_eq!(after.sandbox(), before.sandbox());
}

/// RALL-1, RALL-12, RALL-13, RALL-16, RALL-30; with an agent that dies meanwhile, RALL-37.
#[tokio::test]
#[ignore = "needs containerd: make e2e"]
async fn exit_code_88_restarts_every_container_in_place() {
    let mut node = Bed::here().node();
    node.want("job", JOB);
    node.start();
    let first = node.ready("job").await;
    assert_eq!(node.run_in(&first, "trainer", "cat /job/rounds").await, "round");
    node.run_in(&first, "watcher", "echo $$ > /tmp/anew").await;
    let second = restarted(&node, &first, 1).await;
    assert_eq!(node.run_in(&second, "trainer", "cat /job/rounds").await, "round\nround");

    // Once more, and the agent dies in the middle of it.
    node.run_in(&second, "watcher", "echo $$ > /tmp/anew").await;
    for alive in [30, 60, 120, 240] {
        sleep(Duration::from_millis(alive)).await;
        node.kill().await;
        node.start();
    }
    let third = restarted(&node, &second, 2).await;
    assert_eq!(node.run_in(&third, "trainer", "cat /job/rounds").await, "round\nround\nround");
}

/// The pod is Ready again in the same sandbox, and every container is a new instance.
async fn restarted(node: &Node, before: &Seen, times: u32) -> Seen {
    let all = |job: &Seen| JOB_CONTAINERS.iter().all(|name| job.restarts(name) == Some(times));
    let after = node.pod_when("job", "restarted", |job| job.is_ready() && all(job)).await;
    assert_eq!(after.sandbox(), before.sandbox());
    assert_eq!(after.status.pod_ip, before.status.pod_ip);
    assert_eq!(after.status.start_time, before.status.start_time);
    for name in JOB_CONTAINERS {
        let id = |seen: &Seen| seen.status.container(name).and_then(|status| status.container_id.clone());
        assert_ne!(id(&after), id(before), "{name}");
    }
    assert!(!after.status.is_true(&ConditionType::AllContainersRestarting), "{:#?}", after.status.conditions);
    after
}

#[tokio::test]
#[ignore = "needs containerd: make e2e"]
async fn pods_keep_running_when_the_agent_stops() {
    let mut node = Bed::here().node();
    node.want("web", WEB);
    node.start();
    let before = node.ready("web").await;
    let ended = node.terminate().await;
    assert!(ended.success(), "{ended}");
    let after = node.see("web").await.expect("the pod");
    assert_eq!((after.running(), &after.status), (before.running(), &before.status));
    node.start();
    stays_for_probes(&node, &before, 3).await;
}

#[tokio::test]
#[ignore = "needs containerd: make e2e"]
async fn a_pod_is_deleted_with_its_manifest() {
    let bed = Bed::here();
    let mut node = bed.node();
    node.want("web", WEB);
    node.want("job", JOB);
    node.start();
    let web = node.ready("web").await;
    let job = node.ready("job").await;
    node.want_no_more("web");
    gone(&node, &web, "web").await;
    let still = node.see("job").await.expect("the other pod");
    assert_eq!((&still.status, still.running()), (&job.status, job.running()));

    // The same while no agent is running.
    node.kill().await;
    node.want_no_more("job");
    node.start();
    gone(&node, &job, "job").await;
    assert_eq!(bed.runtime.list_pod_sandbox(None).await.expect("a list"), []);
    assert_eq!(bed.runtime.list_containers(None).await.expect("a list"), []);
}

/// Nothing is left: in the runtime, in the ledger, on the disk.
async fn gone(node: &Node, was: &Seen, pod: &str) {
    let directory = node.path("root/pods").join(&was.uid);
    let runtime = Bed::here().runtime;
    eventually(&format!("{pod} to be removed"), async || {
        let left = runtime.list_pod_sandbox(None).await.map_err(|error| error.to_string())?;
        match left.iter().find(|sandbox| sandbox.id == was.sandboxes[0].id) {
            Some(left) => Err(format!("its sandbox still exists: {left:#?}")),
            None if node.recovered(pod).is_some() => Err("it is still in the ledger".to_owned()),
            None if directory.exists() => Err(format!("{} is there", directory.display())),
            None => Ok(()),
        }
    })
    .await;
}
