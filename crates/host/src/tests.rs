//! The host on a real file system, with real processes.

use std::{os::unix::net::UnixListener, process::Stdio};

use keelet_pod::{Features, Origin, Strictness, parse_one, read_manifest};
use rustix::process::{Signal, kill_process};

use super::*;

const CONTAINERS: &str = "containers: [{ name: main, image: nginx }, { name: side, image: nginx }]";

fn pod(uid: &str, volumes: &str) -> Pod {
    let manifest = format!(
        "apiVersion: v1
kind: Pod
metadata: {{ name: web, namespace: shop, uid: {uid} }}
spec:
  {CONTAINERS}
  volumes: [{volumes}]
"
    );
    // As an API server would give it, which takes more than a node can make.
    let report =
        read_manifest(manifest.as_bytes(), &Origin::file("pod.yaml"), Strictness::ApiServer, &Features::default());
    report.pods.into_iter().next().expect("a pod")
}

fn host() -> (tempfile::TempDir, OsHost) {
    let directory = tempfile::tempdir().unwrap();
    let host = OsHost::new(Layout::new(directory.path().join("lib"), directory.path().join("log")));
    (directory, host)
}

async fn instance(host: &OsHost, pod: &Pod, attempt: u32, address: &str) -> Result<InstanceFiles, HostError> {
    let addresses = [address.to_owned()];
    host.prepare_instance(InstanceOf { pod, container: "main", attempt, addresses: &addresses, sub_paths: &[] }).await
}

/// The same with parts of its volumes; nothing where this test may not mount.
async fn parts_of(host: &OsHost, pod: &Pod, attempt: u32, parts: &[&str]) -> Option<Result<Vec<PathBuf>, HostError>> {
    let volume = host.prepare(pod).await.unwrap()["data"].clone();
    let part = |path: &&str| SubPath {
        name: "data".to_owned(),
        volume: volume.clone(),
        path: path.into(),
        writer: Writer::Pod,
    };
    let sub_paths: Vec<_> = parts.iter().map(part).collect();
    let instance = InstanceOf { pod, container: "main", attempt, addresses: &[], sub_paths: &sub_paths };
    match host.prepare_instance(instance).await {
        Err(error) if error.message.contains("Operation not permitted") => {
            skipped();
            None
        }
        made => Some(made.map(|files| parts.iter().map(|part| files.parts[&volume.join(part)].clone()).collect())),
    }
}

fn mounts_below(directory: &Path) -> usize {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().filter(|line| line.contains(directory.to_str().unwrap())).count()
}

async fn said(host: &OsHost, pod: &Pod, attempt: u32, exit_code: i32) -> String {
    host.termination_message(pod, Ended { container: "main", attempt, exit_code }).await
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn skipped() {
    keelet_report::skipped("mounting needs root");
}

#[tokio::test]
async fn a_pod_gets_its_directories_once() {
    let (_directory, host) = host();
    let pod = pod("u1", "{ name: data, emptyDir: {} }");
    let paths = host.layout().pod(&pod).unwrap();
    let volumes = host.prepare(&pod).await.unwrap();
    assert_eq!(volumes, BTreeMap::from([("data".to_owned(), paths.empty_dir("data"))]));
    assert_eq!(format!("{:o}", mode(&volumes["data"])), "777");
    assert!(paths.container_dir("main").is_dir() && paths.container_log_dir("side").is_dir());
    // What the pod made of it since stays.
    fs::write(volumes["data"].join("file"), "kept").unwrap();
    fs::set_permissions(&volumes["data"], Permissions::from_mode(0o700)).unwrap();
    assert_eq!(host.prepare(&pod).await.unwrap(), volumes);
    assert_eq!(fs::read_to_string(volumes["data"].join("file")).unwrap(), "kept");
    assert_eq!(format!("{:o}", mode(&volumes["data"])), "700");
}

#[tokio::test]
async fn a_volume_in_memory_is_a_tmpfs_of_its_size() {
    let (_directory, host) = host();
    let pod = pod("u1", "{ name: cache, emptyDir: { medium: Memory, sizeLimit: 64Ki } }");
    let volumes = match host.prepare(&pod).await {
        Ok(volumes) => volumes,
        Err(error) => {
            assert!(error.message.contains("cannot mount a tmpfs"), "{error}");
            return skipped();
        }
    };
    let cache = &volumes["cache"];
    assert_eq!(format!("{:o}", mode(cache)), "777");
    fs::write(cache.join("small"), [0; 1024]).unwrap();
    let error = fs::write(cache.join("large"), [0; 128 << 10]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    // Asked for again, it is found, not mounted a second time.
    host.prepare(&pod).await.unwrap();
    assert!(cache.join("small").exists());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert_eq!(mounts.matches(cache.to_str().unwrap()).count(), 1);
    host.clean_up("u1").await.unwrap();
    assert!(!cache.exists());
}

/// CVE-2021-25741: the path given to the runtime leads to what was looked at, whatever a container makes of the name
/// since.
#[tokio::test]
async fn a_part_of_a_volume_stays_what_was_looked_at() {
    let (directory, host) = host();
    let pod = pod("u1", "{ name: data, emptyDir: {} }");
    let precious = directory.path().join("precious");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("file"), "precious").unwrap();
    let volume = host.prepare(&pod).await.unwrap()["data"].clone();
    fs::create_dir(volume.join("part")).unwrap();
    fs::write(volume.join("part/file"), "its own").unwrap();
    let parts = ["part", "part/file"];
    let Some(made) = parts_of(&host, &pod, 0, &parts).await else { return };
    let [dir, file] = &made.unwrap()[..] else { panic!("two parts") };
    // A container that has all of the volume puts a link in the place of the part.
    fs::rename(volume.join("part"), volume.join("aside")).unwrap();
    std::os::unix::fs::symlink(&precious, volume.join("part")).unwrap();
    for file in [&dir.join("file"), file] {
        assert_eq!(fs::read_to_string(file).unwrap(), "its own");
    }
    // The next start looks anew.
    let error = parts_of(&host, &pod, 1, &parts).await.unwrap().unwrap_err();
    assert!(error.message.ends_with("part is a symbolic link that leads out of the volume"), "{error}");
    fs::remove_file(volume.join("part")).unwrap();
    fs::rename(volume.join("aside"), volume.join("part")).unwrap();
    for attempt in 2..4 {
        let again = parts_of(&host, &pod, attempt, &parts).await.unwrap().unwrap();
        assert_eq!(again, [dir.clone(), file.clone()]);
        assert_eq!(fs::read_to_string(file).unwrap(), "its own");
        assert_eq!(mounts_below(directory.path()), 2, "those of earlier starts are gone");
    }
    // What is written there is in the volume.
    fs::write(dir.join("new"), "x").unwrap();
    assert!(volume.join("part/new").exists());
    host.clean_up("u1").await.unwrap();
    assert_eq!(mounts_below(directory.path()), 0);
    assert!(!host.layout().pod(&pod).unwrap().dir().exists());
}

/// What is the node's stays, also what was mounted below the part since.
#[tokio::test]
async fn a_part_of_the_node_outlives_its_pod() {
    let (directory, host) = host();
    let data = directory.path().join("node");
    fs::create_dir_all(data.join("part/below")).unwrap();
    fs::write(data.join("part/file"), "the node's").unwrap();
    let pod = pod("u1", &format!("{{ name: data, hostPath: {{ path: {} }} }}", data.display()));
    let shared = || {
        rustix::mount::mount_bind(&data, &data)?;
        rustix::mount::mount_change(&data, rustix::mount::MountPropagationFlags::SHARED)
    };
    if shared().is_err() {
        return skipped();
    }
    let made = parts_of(&host, &pod, 0, &["part"]).await.unwrap().unwrap();
    let tmpfs = || {
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", data.join("part/below"), "tmpfs", flags, c"size=64k")
    };
    tmpfs().unwrap();
    fs::write(data.join("part/below/file"), "in memory").unwrap();
    assert_eq!(fs::read_to_string(made[0].join("below/file")).unwrap(), "in memory", "passed on");
    host.clean_up("u1").await.unwrap();
    assert_eq!(fs::read_to_string(data.join("part/file")).unwrap(), "the node's");
    assert_eq!(fs::read_to_string(data.join("part/below/file")).unwrap(), "in memory");
    assert_eq!(mounts_below(directory.path()), 2);
    for path in [data.join("part/below"), data] {
        rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

/// What is in it counts as the pod's memory, and the pod must not be killed for what its volume promised.
#[tokio::test]
async fn a_volume_in_memory_is_no_larger_than_its_pod() {
    let (_directory, host) = host();
    let limited = |main: &str, side: &str, size: &str| {
        let limit = |limit: &str| format!("resources: {{ limits: {{ memory: {limit} }} }}");
        let manifest = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: web, uid: u1}}, spec: {{containers: [\
             {{name: main, image: x, {}}}, {{name: side, image: x, {}}}], \
             volumes: [{{name: cache, emptyDir: {{medium: Memory, sizeLimit: {size}}}}}]}}}}",
            limit(main),
            limit(side)
        );
        parse_one(&manifest).unwrap()
    };
    for (main, side, size, expected) in [
        ("3Mi", "5Mi", "0", Some(8 << 20)),
        ("3Mi", "5Mi", "1Gi", Some(8 << 20)),
        ("3Mi", "5Mi", "1Mi", Some(1 << 20)),
        ("3Mi", "0", "0", None),
    ] {
        let volumes = match host.prepare(&limited(main, side, size)).await {
            Ok(volumes) => volumes,
            Err(error) => {
                assert!(error.message.contains("cannot mount a tmpfs"), "{error}");
                return skipped();
            }
        };
        let found = host.space(&volumes["cache"]).await.unwrap().capacity;
        match expected {
            Some(expected) => assert_eq!(found, expected, "{main} {side} {size}"),
            // As the kernel has it: half of what no machine that runs this has too little of.
            None => assert!(found > 8 << 20, "{found}"),
        }
        host.clean_up("u1").await.unwrap();
    }
}

#[tokio::test]
async fn a_host_path_is_what_its_type_says() {
    let (directory, host) = host();
    let file = directory.path().join("file");
    let socket = directory.path().join("socket");
    fs::write(&file, "x").unwrap();
    let _listener = UnixListener::bind(&socket).unwrap();
    let (dir, missing) = (directory.path(), directory.path().join("missing"));
    let device = Path::new("/dev/null");
    let failed = "hostPath type check failed: ";
    for (kind, path, problem) in [
        ("", missing.as_path(), None),
        ("Directory", dir, None),
        ("File", &file, None),
        ("Socket", &socket, None),
        ("CharDevice", device, None),
        ("DirectoryOrCreate", dir, None),
        ("FileOrCreate", &file, None),
        ("Directory", &file, Some(format!("{failed}{} is not a directory, it is a file", file.display()))),
        (
            "DirectoryOrCreate",
            &socket,
            Some(format!("{failed}{} is not a directory, it is a socket file", socket.display())),
        ),
        ("File", dir, Some(format!("{failed}{} is not a file, it is a directory", dir.display()))),
        ("FileOrCreate", dir, Some(format!("{failed}{} is not a file, it is a directory", dir.display()))),
        ("Socket", &file, Some(format!("{failed}{} is not a socket file, it is a file", file.display()))),
        ("BlockDevice", device, Some(format!("{failed}/dev/null is not a block device, it is a character device"))),
        ("CharDevice", &missing, Some(format!("{failed}{} does not exist", missing.display()))),
        ("Directory", &missing, Some(format!("{failed}{} does not exist", missing.display()))),
        ("", Path::new("etc/passwd"), Some("hostPath etc/passwd is not an absolute path".to_owned())),
    ] {
        let volume = format!("{{ name: host, hostPath: {{ path: {}, type: {kind:?} }} }}", path.display());
        let made = host.prepare(&pod("u1", &volume)).await;
        let expected = match problem {
            None => Ok(BTreeMap::from([("host".to_owned(), path.to_owned())])),
            Some(problem) => Err(HostError {
                reason: "FailedMount",
                message: format!("MountVolume.SetUp failed for volume \"host\" : {problem}"),
            }),
        };
        assert_eq!(made, expected, "{kind} {}", path.display());
    }
    assert!(!missing.exists());
}

#[tokio::test]
async fn a_host_path_is_made_where_its_type_says_so() {
    let (directory, host) = host();
    let (dir, file) = (directory.path().join("new/dir"), directory.path().join("new/file"));
    let volumes = format!(
        "{{ name: d, hostPath: {{ path: {}, type: DirectoryOrCreate }} }}, {{ name: f, hostPath: {{ path: {}, type: FileOrCreate }} }}",
        dir.display(),
        file.display()
    );
    host.prepare(&pod("u1", &volumes)).await.unwrap();
    assert!(dir.is_dir() && file.is_file());
    // It is the node's, and outlives the pod.
    host.clean_up("u1").await.unwrap();
    assert!(dir.is_dir() && file.is_file());
}

#[tokio::test]
async fn other_volumes_are_named_with_what_is_supported() {
    let (_directory, host) = host();
    for (volume, expected) in [
        (
            "{ name: cfg, persistentVolumeClaim: { claimName: x } }",
            "volumes of type persistentVolumeClaim are not supported by this agent; supported are configMap, \
             downwardAPI, emptyDir, hostPath, projected and secret",
        ),
        ("{ name: cfg, configMap: { name: x } }", "configmap \"x\" not found"),
        (
            "{ name: cfg, emptyDir: { medium: HugePages } }",
            "medium \"HugePages\" is not supported by this agent; supported are \"\" and \"Memory\"",
        ),
    ] {
        let error = host.prepare(&pod("u1", volume)).await.unwrap_err();
        assert_eq!(error.reason, "FailedMount");
        assert_eq!(error.message, format!("MountVolume.SetUp failed for volume \"cfg\" : {expected}"));
    }
    let silent = host.prepare(&pod("u1", "{ name: data }")).await.unwrap();
    assert!(silent["data"].is_dir(), "a volume that says nothing is an emptyDir");
}

/// STAT-8.
#[tokio::test]
async fn log_files_give_the_next_restart_count() {
    let (_directory, host) = host();
    let pod = pod("u1", "");
    let counts = |main, side| BTreeMap::from([("main".to_owned(), main), ("side".to_owned(), side)]);
    assert_eq!(host.log_counts(&pod).await, counts(0, 0), "nothing is there yet");
    host.prepare(&pod).await.unwrap();
    let logs = host.layout().pod(&pod).unwrap().container_log_dir("main");
    for name in ["0.log", "4.log", "4.log.20260101-000000.gz", "7.txt", "x.log"] {
        fs::write(logs.join(name), "").unwrap();
    }
    assert_eq!(host.log_counts(&pod).await, counts(5, 0));
}

/// STAT-11.
#[tokio::test]
async fn the_termination_message_is_that_of_the_instance() {
    let (_directory, host) = host();
    let pod = pod("u1", "");
    assert_eq!(said(&host, &pod, 0, 1).await, "");
    let first = instance(&host, &pod, 0, "10.0.0.1").await.unwrap().termination.unwrap();
    let second = instance(&host, &pod, 1, "10.0.0.1").await.unwrap().termination.unwrap();
    assert_eq!(format!("{:o}", mode(&first)), "666");
    fs::write(first, "first").unwrap();
    fs::write(second, "second").unwrap();
    assert_eq!(said(&host, &pod, 0, 1).await, "first");
    assert_eq!(said(&host, &pod, 1, 1).await, "second");
    let log = host.log_dir(&pod).unwrap().join(PodPaths::container_log_file("main", 1));
    fs::write(log, "2026-01-01T00:00:00Z stderr F oops\n").unwrap();
    assert_eq!(host.log_tail(&pod, "main", 1).await, "oops\n");
    assert_eq!(host.log_tail(&pod, "main", 2).await, "");
}

/// A container that restarts for years must not fill the disk, nor its file system with names.
#[tokio::test]
async fn what_past_instances_left_goes_with_their_logs() {
    let (_directory, host) = host();
    let pod = pod("u1", "");
    let paths = host.layout().pod(&pod).unwrap();
    for attempt in 0..5 {
        let message = instance(&host, &pod, attempt, "10.0.0.1").await.unwrap().termination.unwrap();
        fs::write(message, attempt.to_string()).unwrap();
        fs::write(paths.log_dir().join(PodPaths::container_log_file("main", attempt)), "").unwrap();
    }
    fs::write(paths.container_dir("main").join("note"), "").unwrap();
    host.drop_old_logs(&pod, 2).await.unwrap();
    let left = |directory: PathBuf| names_in(&directory).unwrap().into_iter().collect::<BTreeSet<_>>();
    assert_eq!(left(paths.container_log_dir("main")), ["3.log", "4.log"].map(str::to_owned).into());
    assert_eq!(left(paths.container_dir("main")), ["3", "4", "note"].map(str::to_owned).into());
    assert_eq!((said(&host, &pod, 3, 1).await, said(&host, &pod, 4, 1).await), ("3".to_owned(), "4".to_owned()));
}

/// STAT-11: the log stands in only where the pod asks for it and the container failed without a word; all containers of
/// a pod share 12 KiB.
#[tokio::test]
async fn a_failure_without_words_is_quoted_from_its_log_where_that_is_asked_for() {
    let (_directory, host) = host();
    let policy = |policy: &str| {
        let manifest = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: web, uid: u1}}, spec: {{containers: [\
             {{name: main, image: x, terminationMessagePolicy: {policy}}}, {{name: b, image: x}}, {{name: c, image: x}}, \
             {{name: d, image: x}}]}}}}"
        );
        parse_one(&manifest).unwrap()
    };
    let (asks, does_not) = (policy("FallbackToLogsOnError"), policy("File"));
    let message = instance(&host, &asks, 0, "10.0.0.1").await.unwrap().termination.unwrap();
    let log = host.log_dir(&asks).unwrap().join(PodPaths::container_log_file("main", 0));
    fs::write(log, "2026-01-01T00:00:00Z stderr F oops\n").unwrap();
    assert_eq!(said(&host, &asks, 0, 1).await, "oops\n");
    assert_eq!(said(&host, &asks, 0, 0).await, "", "it succeeded");
    assert_eq!(said(&host, &does_not, 0, 1).await, "", "the pod does not ask for it");
    fs::write(message, "x".repeat(5000)).unwrap();
    assert_eq!(said(&host, &asks, 0, 1).await.len(), 12 * 1024 / 4);
}

#[tokio::test]
async fn the_hosts_file_is_rewritten_in_place() {
    let (_directory, host) = host();
    let pod = pod("u1", "");
    let path = instance(&host, &pod, 0, "10.0.0.1").await.unwrap().etc_hosts.unwrap();
    // As another container of the pod has it mounted.
    let mounted = fs::File::open(&path).unwrap();
    instance(&host, &pod, 1, "10.0.0.2").await.unwrap();
    assert!(io::read_to_string(mounted).unwrap().ends_with("10.0.0.2\tweb\n"));
    assert_eq!(format!("{:o}", mode(&path)), "644");
}

#[tokio::test]
async fn clean_up_removes_that_pod_and_nothing_else() {
    let (directory, host) = host();
    let (gone, stays) = (pod("u1", "{ name: data, emptyDir: {} }"), pod("u11", "{ name: data, emptyDir: {} }"));
    host.prepare(&stays).await.unwrap();
    let volumes = host.prepare(&gone).await.unwrap();
    std::os::unix::fs::symlink(directory.path(), volumes["data"].join("out")).unwrap();
    host.clean_up("u1").await.unwrap();
    let (gone, stays) = (host.layout().pod(&gone).unwrap(), host.layout().pod(&stays).unwrap());
    assert!(!gone.dir().exists() && !gone.log_dir().exists());
    assert!(stays.empty_dir("data").is_dir() && stays.container_log_dir("main").is_dir());
    host.clean_up("u1").await.unwrap();
    host.clean_up("never seen").await.unwrap();
}

/// Another program may own logs; a directory below the root is an agent's own.
#[tokio::test]
async fn what_is_left_of_a_pod_is_known_by_its_directory() {
    let (directory, host) = host();
    assert_eq!(host.pods_with_directories().await, BTreeSet::new());
    host.prepare(&pod("u1", "{ name: data, emptyDir: {} }")).await.unwrap();
    fs::create_dir_all(directory.path().join("log/shop_other_u2/main")).unwrap();
    assert_eq!(host.pods_with_directories().await, ["u1".to_owned()].into());
    host.clean_up("u1").await.unwrap();
    assert_eq!(host.pods_with_directories().await, BTreeSet::new());
    assert!(directory.path().join("log/shop_other_u2/main").is_dir());
}

#[tokio::test]
async fn uids_that_lead_elsewhere_are_refused() {
    let (directory, host) = host();
    fs::create_dir_all(directory.path().join("lib/pods")).unwrap();
    fs::write(directory.path().join("lib/precious"), "").unwrap();
    for uid in ["..", ".", "", "../precious", "/", "a/../.."] {
        assert!(host.clean_up(uid).await.is_err(), "{uid:?}");
        let hostile = Pod { uid: uid.to_owned(), ..pod("u1", "") };
        assert!(host.prepare(&hostile).await.is_err(), "{uid:?}");
        assert!(instance(&host, &hostile, 0, "").await.is_err() && host.log_dir(&hostile).is_err(), "{uid:?}");
        assert_eq!(host.log_counts(&hostile).await, BTreeMap::new());
        assert_eq!(said(&host, &hostile, 0, 1).await, "");
    }
    assert!(directory.path().join("lib/precious").exists());
}

#[tokio::test]
async fn a_root_that_cannot_be_written_is_named() {
    let (directory, host) = host();
    fs::write(directory.path().join("lib"), "a file").unwrap();
    let error = host.prepare(&pod("u1", "")).await.unwrap_err();
    assert_eq!(error.reason, "FailedToMakePodDataDirectories");
    assert!(error.message.contains("lib/pods/u1/containers/main"), "{error}");
}

#[tokio::test]
async fn the_exit_of_a_process_is_reported_when_it_happens() {
    let (_directory, host) = host();
    let mut child = std::process::Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
    let mut end = host.process_end(child.id()).unwrap();
    assert!(futures::poll!(&mut end).is_pending());
    let pid = rustix::process::Pid::from_child(&child);
    kill_process(pid, Signal::KILL).unwrap();
    // Hangs if the end is never reported.
    end.await;
    assert!(child.try_wait().unwrap().is_some());
}

#[test]
fn an_unknown_process_cannot_be_watched() {
    let (_directory, host) = host();
    for pid in [0, u32::MAX, i32::MAX as u32] {
        assert!(host.process_end(pid).is_none(), "{pid}");
    }
}
