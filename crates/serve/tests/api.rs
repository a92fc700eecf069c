//! The API of an agent that runs pods on a simulated runtime, asked over its socket.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt, future::BoxFuture};
use keelet_agent::{Agent, Extent, Wanted, source::Listing};
use keelet_launch::NodeFacts;
use keelet_pod::{Pod, parse_one};
use keelet_serve::{
    Archive, BindError, Client, ClientError, Images, ImportError, Listener, Local,
    api::{Change, ChangeKind, Container, Image, Imported, List, LogFiles, Pull, PullLine, Pulled, Pulling},
};
use keelet_sim::{bare_agent, bare_runtime};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{io::AsyncReadExt, sync::watch, task::JoinHandle, time::timeout};

/// It only ends a test that failed.
const PATIENCE: Duration = Duration::from_secs(30);

struct Node {
    directory: TempDir,
    agent: Arc<Agent>,
    client: Client,
    local: Arc<Local>,
    listings: watch::Sender<Arc<Listing>>,
    server: JoinHandle<()>,
}

#[derive(Debug)]
struct Names;

impl Images for Names {
    /// An archive here is a list of names.
    fn import<'a>(&'a self, mut archive: Archive<'a>) -> BoxFuture<'a, Result<Vec<String>, ImportError>> {
        Box::pin(async move {
            let mut text = String::new();
            archive.read_to_string(&mut text).await.map_err(ImportError::Receive)?;
            if text.is_empty() {
                Err(ImportError::Store("the archive is empty".into()))
            } else {
                Ok(vec![text.len().to_string()])
            }
        })
    }

    fn pulling(&self) -> Vec<Pulling> {
        Vec::new()
    }
}

impl Node {
    async fn start(images: Option<Arc<dyn Images>>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let facts = NodeFacts {
            name: "node".to_owned(),
            address: Some("192.0.2.7".to_owned()),
            cpu_millis: 4000,
            memory_bytes: 8 << 30,
            ..NodeFacts::default()
        };
        let (doors, settings, layout) = bare_agent(path, &path.join("volatile"), bare_runtime(1), facts);
        let agent = Arc::new(Agent::start(doors, settings).await.expect("an agent"));
        let (listings, source) = watch::channel(Arc::default());
        let local = Local { agent: Arc::clone(&agent), layout, desired: Arc::new(source), images };
        let socket = path.join("keelet.sock");
        let listener = Listener::bind(&socket).await.expect("a socket");
        let local = Arc::new(local);
        let served = Arc::clone(&local);
        let server = tokio::spawn(async move { listener.serve(served).await });
        Self { local, client: Client::new(socket), directory, agent, listings, server }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("keelet.sock")
    }

    /// Wants these pods, each from a file of its own or all from one.
    fn want(&self, pods: &[&Arc<Pod>], file: impl Fn(&Pod) -> String) {
        let all: BTreeMap<String, Arc<Pod>> = pods.iter().map(|pod| (pod.uid.clone(), Arc::clone(pod))).collect();
        let files = all.values().map(|pod| (pod.uid.clone(), file(pod))).collect();
        let wanted = all.iter().map(|(uid, pod)| (uid.clone(), Wanted::new(Arc::clone(pod)))).collect();
        self.listings.send_replace(Arc::new(Listing {
            pods: all,
            files,
            problems: Vec::new(),
            complete: true,
            readable: true,
        }));
        self.agent.set_pods(wanted, Extent::Complete);
    }

    async fn until(&self, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        timeout(PATIENCE, async {
            loop {
                if let Ok(answer) = self.client.get::<Value>(path).await
                    && holds(&answer)
                {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .unwrap_or_else(|_| panic!("{path} never comes to hold"))
    }

    async fn refusal<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> (u16, String) {
        match answer {
            Err(ClientError::Refused(failure)) => (failure.code, failure.message),
            other => panic!("expected a refusal: {other:?}"),
        }
    }
}

fn pod(name: &str) -> Arc<Pod> {
    let manifest = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec: {{terminationGracePeriodSeconds: 1, containers: [{{name: main, image: 'app:1'}}]}}"
    );
    Arc::new(parse_one(&manifest).expect("a valid pod"))
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

async fn next(changes: &mut (impl Stream<Item = Result<Bytes, ClientError>> + Unpin)) -> Change {
    let line = timeout(PATIENCE, changes.next()).await.expect("a change").expect("open").expect("readable");
    serde_json::from_slice(&line).expect("one change in each piece")
}

#[tokio::test]
async fn pods_are_shown_as_an_api_server_would() {
    let node = Node::start(None).await;
    let (web, db) = (pod("web"), pod("db"));
    node.want(&[&web, &db], |pod| format!("/m/{}.yaml", pod.name));
    let shown = node.until("/v1/pods/shop/web", is_ready).await;
    assert_eq!((&shown["apiVersion"], &shown["kind"]), (&"v1".into(), &"Pod".into()));
    assert_eq!(shown["metadata"]["uid"], web.uid.as_str());
    assert_eq!(shown["metadata"]["creationTimestamp"], shown["status"]["startTime"]);
    assert_eq!(shown["spec"]["nodeName"], "node");
    assert_eq!(shown["spec"]["containers"][0]["terminationMessagePath"], "/dev/termination-log", "defaults are shown");
    assert_eq!(shown["status"]["hostIP"], "192.0.2.7");
    assert_eq!(shown["status"]["qosClass"], "BestEffort");
    node.until("/v1/pods/shop/db", is_ready).await;
    let list: List<Value> = node.client.get("/v1/pods").await.unwrap();
    let names: Vec<_> = list.items.iter().map(|pod| pod["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["db", "web"]);
    let none: List<Value> = node.client.get("/v1/pods?namespace=default").await.unwrap();
    assert!(none.items.is_empty());
    let (code, message) = Node::refusal(node.client.get::<Value>("/v1/pods/shop/wbe").await).await;
    assert_eq!((code, message.as_str()), (404, "pod \"wbe\" not found in namespace \"shop\""));
}

/// A new agent has no status of its pods for a moment. No client gets the answer that they are gone.
#[tokio::test]
async fn a_new_agent_answers_about_pods_once_it_has_taken_them_up() {
    let node = Node::start(None).await;
    let (web, db) = (pod("web"), pod("db"));
    let asked = async {
        let list: List<Value> = node.client.get("/v1/pods").await.expect("a list");
        list.items.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let one = async { node.client.get::<Value>("/v1/pods/shop/db").await.expect("it is there") };
    let wanted = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        node.want(&[&web, &db], |pod| format!("/m/{}.yaml", pod.name));
    };
    let (names, one, ()) = tokio::join!(asked, one, wanted);
    assert_eq!((names, &one["metadata"]["name"]), (vec!["db".to_owned(), "web".to_owned()], &"db".into()));
    let (code, message) = Node::refusal(node.client.get::<Value>("/v1/pods/shop/none").await).await;
    assert_eq!((code, message.as_str()), (404, "pod \"none\" not found in namespace \"shop\""));
}

#[tokio::test]
async fn a_watch_reports_what_is_there_what_changes_and_what_goes() {
    let node = Node::start(None).await;
    let web = pod("web");
    node.want(&[&web], |_| String::new());
    node.until("/v1/pods/shop/web", is_ready).await;
    let mut changes = node.client.stream("/v1/pods?watch=true&namespace=shop").await.unwrap();
    let first = next(&mut changes).await;
    assert_eq!((first.kind, &first.object["metadata"]["name"]), (ChangeKind::Added, &"web".into()));
    assert!(first.object["metadata"]["deletionTimestamp"].is_null());
    node.want(&[], |_| String::new());
    let leaving = next(&mut changes).await;
    assert_eq!(leaving.kind, ChangeKind::Modified);
    assert_eq!(leaving.object["metadata"]["deletionGracePeriodSeconds"], 1);
    let mut last = leaving;
    while last.kind != ChangeKind::Deleted {
        last = next(&mut changes).await;
    }
    assert_eq!(last.object["metadata"]["name"], "web");
}

#[tokio::test]
async fn events_are_reported_once_each_and_watched() {
    let node = Node::start(None).await;
    let web = pod("web");
    let mut changes = node.client.stream("/v1/events?watch=true").await.unwrap();
    node.want(&[&web], |_| String::new());
    let mut reasons = Vec::new();
    while !reasons.contains(&"Started".to_owned()) {
        let change = next(&mut changes).await;
        assert_eq!(change.object["involvedObject"]["name"], "web");
        reasons.push(change.object["reason"].as_str().unwrap().to_owned());
    }
    let list: List<Value> = node.client.get("/v1/events?namespace=shop&pod=web").await.unwrap();
    let started = list.items.iter().find(|event| event["reason"] == "Started").expect("it is there");
    assert_eq!(started["involvedObject"]["fieldPath"], "spec.containers{main}");
    assert_eq!((&started["type"], &started["count"]), (&"Normal".into(), &1.into()));
    let other: List<Value> = node.client.get("/v1/events?pod=db").await.unwrap();
    assert!(other.items.is_empty());
}

#[tokio::test]
async fn a_pod_of_a_manifest_is_deleted_by_its_file_and_restarted_by_request() {
    let node = Node::start(None).await;
    let (web, db) = (pod("web"), pod("db"));
    node.want(&[&web], |_| "/m/web.yaml".to_owned());
    node.until("/v1/pods/shop/web", is_ready).await;
    let (code, message) = Node::refusal(node.client.delete("/v1/pods/shop/web").await).await;
    assert_eq!(
        (code, message.as_str()),
        (409, "pod shop/web comes from /m/web.yaml: remove that file to delete the pod")
    );
    node.want(&[&web, &db], |_| "/m/all.yaml".to_owned());
    let (_, message) = Node::refusal(node.client.delete("/v1/pods/shop/web").await).await;
    assert!(message.contains("take it out of that file"), "{message}");
    let _: Value = node.client.post("/v1/pods/shop/web/restart", &Value::Null).await.unwrap();
    node.until("/v1/pods/shop/web", |pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1).await;
    let (code, _) = Node::refusal(node.client.post::<Value>("/v1/pods/shop/none/restart", &Value::Null).await).await;
    assert_eq!(code, 404);
}

#[tokio::test]
async fn containers_and_images_are_what_the_runtime_has() {
    let node = Node::start(None).await;
    node.want(&[&pod("web")], |_| String::new());
    node.until("/v1/pods/shop/web", is_ready).await;
    let containers: List<Container> = node.client.get("/v1/containers").await.unwrap();
    let [only] = containers.items.as_slice() else { panic!("{containers:?}") };
    assert_eq!((only.namespace.as_str(), only.pod.as_str(), only.name.as_str()), ("shop", "web", "main"));
    assert_eq!(only.state, "Running");
    let pulled: Pulled = node.client.post("/v1/images/pull", &Pull { image: "other:2".to_owned() }).await.unwrap();
    assert!(!pulled.image_ref.is_empty());
    let images: List<Image> = node.client.get("/v1/images").await.unwrap();
    assert!(images.items.iter().any(|image| image.tags.iter().any(|tag| tag.contains("other:2"))), "{images:?}");
    let used = images.items.iter().find(|image| image.tags.iter().any(|tag| tag.contains("app:1"))).expect("it runs");
    let (code, message) =
        Node::refusal(node.client.delete(&format!("/v1/images/{}", keelet_serve::escaped(&used.tags[0]))).await).await;
    assert!(code == 409 && message.contains("is used by container \"main\" of pod shop/web"), "{code} {message}");
    let (code, message) = Node::refusal(node.client.post::<Value>("/v1/images/pull", &Value::Null).await).await;
    assert!(code == 400 && message.starts_with("expected a body such as {\"image\""), "{message}");
}

/// A runtime of its own reports nothing of a pull but how it ended.
#[tokio::test]
async fn a_pull_is_reported_in_lines_and_the_last_one_is_its_end() {
    let node = Node::start(Some(Arc::new(Names))).await;
    let pull = |image: &str| {
        let asked = Pull { image: image.to_owned() };
        let client = node.client.clone();
        async move {
            let lines = client.post_stream("/v1/images/pull?progress=true", &asked).await?;
            let lines: Vec<_> =
                lines.map(|line| serde_json::from_slice::<PullLine>(&line.unwrap()).unwrap()).collect().await;
            Ok::<_, ClientError>(lines)
        }
    };
    let lines = pull("app:7").await.expect("a pull");
    assert!(matches!(lines.as_slice(), [PullLine::Pulled(pulled)] if !pulled.image_ref.is_empty()), "{lines:?}");
    let (code, message) = Node::refusal(pull("").await).await;
    assert_eq!((code, message.as_str()), (400, "the name of the image is empty"));
    let (code, message) =
        Node::refusal(node.client.post::<Pulled>("/v1/images/pull?slowly=true", &Pull { image: "a".to_owned() }).await)
            .await;
    assert!(code == 400 && message.contains("slowly"), "{message}");
}

/// The agent reports the files of a log to clients that can read them.
#[tokio::test]
async fn the_files_of_a_log_come_with_whether_there_will_be_more() {
    let node = Node::start(None).await;
    let web = pod("web");
    node.want(&[&web], |_| "/m/web.yaml".to_owned());
    node.until("/v1/pods/shop/web", is_ready).await;
    let files: LogFiles = node.client.get("/v1/pods/shop/web/log/files?container=main").await.expect("files");
    assert_eq!((files.container.as_str(), files.pod_uid.as_str(), files.open), ("main", web.uid.as_str(), true));
    assert!(files.directory.starts_with(node.directory.path().join("logs")) && files.anchor.is_here(), "{files:?}");
    assert!(files.directory.starts_with(&files.anchor.path), "{files:?}");
    let other = keelet_serve::api::Anchor { inode: files.anchor.inode + 1, ..files.anchor };
    assert!(!other.is_here(), "another directory at that path");
    let (code, _) = Node::refusal(node.client.get::<LogFiles>("/v1/pods/shop/web/log/files?container=x").await).await;
    assert_eq!(code, 400);
}

#[tokio::test]
async fn archives_go_to_the_runtime_that_imports_them_and_nowhere_else() {
    let pieces = |count: usize| futures::stream::iter((0..count).map(|_| Ok(Bytes::from(vec![b'x'; 64 << 10]))));
    let node = Node::start(Some(Arc::new(Names))).await;
    // More than any other request may have.
    let imported: Imported = node.client.upload("/v1/images/import", pieces(100)).await.unwrap();
    assert_eq!(imported.images, [(100 * (64 << 10)).to_string()]);
    let (code, message) = Node::refusal(node.client.upload::<Imported>("/v1/images/import", pieces(0)).await).await;
    assert_eq!((code, message.as_str()), (422, "the archive is empty"));
    let without = Node::start(None).await;
    let (code, message) = Node::refusal(without.client.upload::<Imported>("/v1/images/import", pieces(0)).await).await;
    assert!(code == 501 && message.contains("takes no archives: CRI has no call for it"), "{message}");
}

#[tokio::test]
async fn logs_are_streamed_and_followed_until_the_pod_is_gone() {
    let node = Node::start(None).await;
    let web = pod("web");
    node.want(&[&web], |_| String::new());
    node.until("/v1/pods/shop/web", is_ready).await;
    let path = "/v1/pods/shop/web/log";
    let (code, message) = Node::refusal(node.client.stream(path).await.map(drop)).await;
    assert!(code == 400 && message == "container \"main\" in pod \"web\" has left no log", "{message}");
    let directory = node.directory.path().join(format!("logs/shop_web_{}/main", web.uid));
    fs::create_dir_all(&directory).unwrap();
    let write = |text: &str| {
        // At its end, in one step: a reader that follows it never finds it shorter than it was.
        let mut log = fs::File::options().create(true).append(true).open(directory.join("0.log")).unwrap();
        log.write_all(format!("2026-01-01T00:00:00Z stdout F {text}\n").as_bytes()).unwrap();
    };
    write("one");
    write("two");
    let mut log = node.client.stream(&format!("{path}?tailLines=1&timestamps=true&follow=true")).await.unwrap();
    let mut piece = async || {
        let piece = timeout(PATIENCE, log.next()).await.expect("in time");
        piece.map(|piece| String::from_utf8(piece.unwrap().to_vec()).unwrap())
    };
    assert_eq!(piece().await.as_deref(), Some("2026-01-01T00:00:00Z two\n"));
    write("three");
    assert_eq!(piece().await.as_deref(), Some("2026-01-01T00:00:00Z three\n"));
    node.want(&[], |_| String::new());
    assert_eq!(piece().await, None);
    for (query, expected) in [
        ("container=x", "pod \"web\" has no container \"x\"; it has: main"),
        ("previous=true", "previous terminated container \"main\" in pod \"web\" not found"),
        ("tailLines=-1", "invalid query"),
        ("sinceTime=noon", "invalid query"),
        ("lines=1", "unknown field `lines`"),
    ] {
        let other = Node::start(None).await;
        other.want(&[&web], |_| String::new());
        other.until("/v1/pods/shop/web", is_ready).await;
        let (code, message) = Node::refusal(other.client.stream(&format!("{path}?{query}")).await.map(drop)).await;
        assert!(code == 400 && message.contains(expected), "{query}: {message}");
    }
}

#[tokio::test]
async fn the_node_its_health_and_its_numbers_are_there() {
    let node = Node::start(None).await;
    let shown: Value = node.client.get("/v1/node").await.unwrap();
    assert_eq!((&shown["kind"], &shown["metadata"]["name"]), (&"Node".into(), &"node".into()));
    assert_eq!(shown["status"]["capacity"]["cpu"], "4");
    let health = node.client.stream("/healthz").await.unwrap().next().await.unwrap().unwrap();
    assert_eq!(health, "ok");
    let mut numbers = node.client.stream("/metrics").await.unwrap();
    let mut text = Vec::new();
    while let Some(piece) = numbers.next().await {
        text.extend_from_slice(&piece.unwrap());
    }
    assert!(String::from_utf8(text).unwrap().contains("kubelet_running_pods"));
    for (path, code) in [("/v2/pods", 404), ("/v1/pods?what=1", 400), ("/v1/node/x", 404)] {
        assert_eq!(Node::refusal(node.client.get::<Value>(path).await).await.0, code, "{path}");
    }
    assert_eq!(Node::refusal(node.client.delete("/v1/node").await).await.0, 405);
}

/// A client that asks for something that there is not must not believe to have got it: `?gracePeriodSeconds=0` least of
/// all.
#[tokio::test]
async fn what_cannot_be_asked_for_is_refused_by_name() {
    let node = Node::start(None).await;
    node.want(&[&pod("web")], |_| String::new());
    node.until("/v1/pods/shop/web", is_ready).await;
    let paths = ["pods", "pods/shop/web", "pods/shop/web/log", "pods/shop/web/log/files", "events"];
    for path in paths.into_iter().chain(["node", "stats", "containers", "images"]) {
        let answer = node.client.get::<Value>(&format!("/v1/{path}?graze=1")).await;
        let (code, message) = Node::refusal(answer).await;
        assert!(code == 400 && message.contains("unknown field `graze`"), "{path}: {message}");
    }
    for path in ["pods/shop/web/restart", "pods/shop/web/exec", "pods/shop/web/portforward", "images/import"] {
        let answer = node.client.post::<Value>(&format!("/v1/{path}?graze=1"), &Value::Null).await;
        let (code, message) = Node::refusal(answer).await;
        assert!(code == 400 && message.contains("unknown field `graze`"), "{path}: {message}");
    }
    let (code, message) = Node::refusal(node.client.delete("/v1/pods/shop/web?gracePeriodSeconds=0").await).await;
    assert!(code == 400 && message.contains("unknown field `gracePeriodSeconds`"), "{message}");
}

#[tokio::test]
async fn health_and_numbers_are_on_loopback_and_nothing_else_is() {
    let node = Node::start(None).await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let _server = tokio::spawn(keelet_serve::serve_loopback(
        (std::net::Ipv4Addr::LOCALHOST, port).into(),
        Arc::clone(&node.local),
    ));
    let ask = async |path: &str| {
        let mut stream = loop {
            match tokio::net::TcpStream::connect(("127.0.0.1", port)).await {
                Ok(stream) => break stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = timeout(PATIENCE, ask("/healthz")).await.expect("in time");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nok"), "{answer}");
    assert!(ask("/metrics").await.contains("kubelet_running_pods"));
    assert!(ask("/v1/pods").await.starts_with("HTTP/1.1 404 "));
}

#[tokio::test]
async fn the_socket_is_for_root_replaces_a_dead_one_and_goes_with_its_agent() {
    let node = Node::start(None).await;
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&node.socket()), 0o600);
    match Listener::bind(node.socket()).await {
        Err(BindError::Taken { pid, path }) => {
            assert_eq!((pid, path), (Some(std::process::id().cast_signed()), node.socket()));
        }
        other => panic!("a living agent is not replaced: {other:?}"),
    }
    // One that no process listens on any more.
    let stale = node.directory.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    let inode = fs::metadata(&stale).unwrap().ino();
    let replaced = Listener::bind(&stale).await.expect("it is replaced");
    assert_ne!(fs::metadata(&stale).unwrap().ino(), inode);
    drop(replaced);
    assert!(!stale.exists(), "it goes with its owner");
    let file = node.directory.path().join("file");
    fs::write(&file, "precious").unwrap();
    assert!(matches!(Listener::bind(&file).await, Err(BindError::NotASocket(_))));
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    let long = node.directory.path().join("x".repeat(120));
    assert!(Listener::bind(&long).await.unwrap_err().to_string().contains("at most 107 bytes"));
    node.server.abort();
    let _ = node.server.await;
    assert!(!node.directory.path().join("keelet.sock").exists());
    let gone = node.client.get::<Value>("/v1/node").await.unwrap_err();
    assert!(matches!(gone, ClientError::NoAgent { .. }), "{gone:?}");
}
