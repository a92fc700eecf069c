//! Volumes that the agent fills and logs that it rotates, on a real containerd.

use std::fs;

use keelet_e2e::{Bed, eventually};

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: web
  labels: { app: front }
spec:
  terminationGracePeriodSeconds: 1
  securityContext: { fsGroup: 4321 }
  volumes:
    - name: conf
      configMap: { name: conf }
    - name: keys
      secret: { secretName: keys, defaultMode: 0400 }
    - name: about
      downwardAPI: { items: [{ path: labels, fieldRef: { fieldPath: metadata.labels } }] }
  containers:
    - name: main
      image: IMAGE
      command: ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]
      env:
        - { name: URL, valueFrom: { configMapKeyRef: { name: conf, key: url } } }
        - { name: TOKEN, valueFrom: { secretKeyRef: { name: keys, key: token } } }
      envFrom: [{ configMapRef: { name: conf }, prefix: C_ }]
      volumeMounts:
        - { name: conf, mountPath: /conf }
        - { name: conf, mountPath: /one, subPath: url }
        - { name: keys, mountPath: /keys }
        - { name: about, mountPath: /about }
"#;

const CHATTER: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: chatter
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: IMAGE
      command: ["sh", "-c", "trap 'exit 0' TERM; i=0; while :; do i=$((i+1)); echo line $i; usleep 2000; done"]
"#;

#[tokio::test]
#[ignore = "needs containerd: make e2e"]
async fn a_pod_waits_for_its_objects_and_sees_them_change() {
    let mut node = Bed::here().node();
    node.want("web", POD);
    node.start();
    eventually("the pod to wait", async || {
        let said = fs::read_to_string(node.path("agent.log")).unwrap_or_default();
        let waits = said.contains("MountVolume.SetUp failed for volume \"conf\" : configmap \"conf\" not found");
        if waits { Ok(()) } else { Err("it does not say so".to_owned()) }
    })
    .await;
    node.put("objects/configmaps/default/conf/url", "http://one");
    node.put("objects/secrets/default/keys.yaml", "apiVersion: v1\nkind: Secret\nstringData: {token: secret}\n");
    let web = node.ready("web").await;
    let run = async |script: &str| node.run_in(&web, "main", script).await;
    assert_eq!(run("cat /conf/url; echo; cat /one").await, "http://one\nhttp://one");
    assert_eq!(run("echo $URL $TOKEN $C_url").await, "http://one secret http://one");
    assert_eq!(run("cat /keys/token /about/labels").await, "secretapp=\"front\"");
    assert_eq!(run("stat -L -c '%a %g' /keys/token").await, "440 4321");
    assert!(run("grep ' /keys ' /proc/mounts").await.starts_with("tmpfs "));
    assert!(run("touch /conf/x 2>&1 || true").await.contains("Read-only"));

    // Files of a volume change, variables and parts of volumes do not.
    node.put("objects/configmaps/default/conf/url", "http://two");
    node.reload();
    eventually("the new content", async || match node.run_in(&web, "main", "cat /conf/url").await.as_str() {
        "http://two" => Ok(()),
        other => Err(other.to_owned()),
    })
    .await;
    assert_eq!(run("cat /one; echo; echo $URL").await, "http://one\nhttp://one");

    // The next agent finds everything in place, also if the objects are deleted.
    node.kill().await;
    fs::remove_dir_all(node.path("objects")).expect("removed");
    node.start();
    let after = node.ready("web").await;
    assert_eq!(after.running(), web.running());
    assert_eq!(node.run_in(&after, "main", "cat /conf/url /keys/token").await, "http://twosecret");
}

#[tokio::test]
#[ignore = "needs containerd: make e2e"]
async fn a_log_never_exceeds_its_size_limit() {
    let mut node = Bed::here().node();
    node.put(
        "config.yaml",
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncontainerLogMaxSize: 16Ki\n\
         containerLogMaxFiles: 3\ncontainerLogMonitorInterval: 3s\n",
    );
    node.want("chatter", CHATTER);
    node.start();
    let chatter = node.ready("chatter").await;
    let directory = node.path("logs").join(format!("default_chatter_{}", chatter.uid)).join("main");
    let names = || {
        let mut names: Vec<_> = fs::read_dir(&directory)
            .expect("a directory of logs")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .filter(|name| !name.ends_with(".tmp"))
            .collect();
        names.sort();
        names
    };
    eventually("three rotations", async || {
        let names = names();
        assert!(names.len() <= 4, "{names:?}");
        match names.as_slice() {
            [log, packed, _] if log == "0.log" && packed.ends_with(".gz") => Ok(()),
            names => Err(format!("{names:?}")),
        }
    })
    .await;
    // The container continues to write, to the new file.
    let size = || fs::metadata(directory.join("0.log")).map(|found| found.len()).unwrap_or_default();
    let before = size();
    eventually(
        "more of the log",
        async || if size() != before { Ok(()) } else { Err("nothing is written".to_owned()) },
    )
    .await;
    assert_eq!(node.see("chatter").await.expect("the pod").restarts("main"), Some(0));
}
