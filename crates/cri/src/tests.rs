//! The client against small servers, over a real socket and in process.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use tokio::{net::UnixListener, sync::Notify};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};
use tower::Service;

use crate::{
    Deadlines, Error, ErrorKind, MAX_MESSAGE, Runtime, Server, TaskEvent, containerd,
    v1::{self, image_service_server::ImageService, runtime_service_server::RuntimeService},
};

/// A runtime that implements only what the tests call.
#[derive(Clone, Default)]
struct Small {
    /// Notified when a hanging call begins, and when it is dropped.
    entered: Arc<Notify>,
    dropped: Arc<Notify>,
}

/// A runtime with events that sends the head of its response with the first one, as Go servers do.
#[derive(Clone, Default)]
struct Late {
    happens: Arc<Notify>,
}

/// A runtime with events that sends the head at once, and ends the stream after one.
struct Prompt;

/// containerd's event service, which records its requests.
struct Tasks;

struct TellDropped(Arc<Notify>);

impl Drop for TellDropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

fn padded(size: usize) -> BTreeMap<String, String> {
    BTreeMap::from([("padding".to_owned(), "x".repeat(size))])
}

#[tonic::async_trait]
impl RuntimeService for Small {
    async fn version(&self, request: Request<v1::VersionRequest>) -> Result<Response<v1::VersionResponse>, Status> {
        let version = request.into_inner().version;
        Ok(Response::new(v1::VersionResponse { version, runtime_name: "small".into(), ..Default::default() }))
    }

    /// One container, with as many bytes of annotations as the filter's ID says.
    async fn list_containers(
        &self,
        request: Request<v1::ListContainersRequest>,
    ) -> Result<Response<v1::ListContainersResponse>, Status> {
        let size = request.into_inner().filter.unwrap_or_default().id.parse().unwrap();
        let container = v1::Container { annotations: padded(size), ..Default::default() };
        Ok(Response::new(v1::ListContainersResponse { containers: vec![container] }))
    }

    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> Result<Response<v1::CreateContainerResponse>, Status> {
        let container_id = request.into_inner().pod_sandbox_id;
        Ok(Response::new(v1::CreateContainerResponse { container_id }))
    }

    /// Never answers.
    async fn stop_container(
        &self,
        _: Request<v1::StopContainerRequest>,
    ) -> Result<Response<v1::StopContainerResponse>, Status> {
        let _told = TellDropped(Arc::clone(&self.dropped));
        self.entered.notify_one();
        std::future::pending().await
    }

    async fn container_status(
        &self,
        _: Request<v1::ContainerStatusRequest>,
    ) -> Result<Response<v1::ContainerStatusResponse>, Status> {
        Err(Status::not_found("an error occurred when try to find container"))
    }

    /// Answers with the timeout it was given.
    async fn exec_sync(&self, request: Request<v1::ExecSyncRequest>) -> Result<Response<v1::ExecSyncResponse>, Status> {
        let stdout = request.into_inner().timeout.to_string().into_bytes();
        Ok(Response::new(v1::ExecSyncResponse { stdout, ..Default::default() }))
    }

    /// Answers without a status.
    async fn status(&self, _: Request<v1::StatusRequest>) -> Result<Response<v1::StatusResponse>, Status> {
        Ok(Response::new(v1::StatusResponse::default()))
    }
}

#[tonic::async_trait]
impl ImageService for Small {
    async fn image_status(
        &self,
        request: Request<v1::ImageStatusRequest>,
    ) -> Result<Response<v1::ImageStatusResponse>, Status> {
        let id = request.into_inner().image.unwrap_or_default().image;
        let image = (id != "absent").then(|| v1::Image { id, ..Default::default() });
        Ok(Response::new(v1::ImageStatusResponse { image, info: BTreeMap::new() }))
    }
}

type EventStream = tonic::codegen::BoxStream<v1::ContainerEventResponse>;

fn one_event() -> EventStream {
    let event = v1::ContainerEventResponse { container_id: "c1".into(), ..Default::default() };
    Box::pin(tokio_stream::once(Ok(event)))
}

#[tonic::async_trait]
impl RuntimeService for Late {
    async fn version(&self, _: Request<v1::VersionRequest>) -> Result<Response<v1::VersionResponse>, Status> {
        Ok(Response::new(v1::VersionResponse::default()))
    }

    async fn get_container_events(&self, _: Request<v1::GetEventsRequest>) -> Result<Response<EventStream>, Status> {
        self.happens.notified().await;
        Ok(Response::new(one_event()))
    }
}

#[tonic::async_trait]
impl RuntimeService for Prompt {
    async fn get_container_events(&self, _: Request<v1::GetEventsRequest>) -> Result<Response<EventStream>, Status> {
        Ok(Response::new(one_event()))
    }
}

#[tonic::async_trait]
impl containerd::events_server::Events for Tasks {
    async fn subscribe(
        &self,
        request: Request<containerd::SubscribeRequest>,
    ) -> Result<Response<tonic::codegen::BoxStream<containerd::Envelope>>, Status> {
        assert_eq!(request.metadata().get("containerd-namespace").unwrap(), "k8s.io");
        assert_eq!(
            request.get_ref().filters,
            [r#"namespace=="k8s.io",topic=="/tasks/exit""#, r#"namespace=="k8s.io",topic=="/tasks/oom""#]
        );
        let envelope = |topic: &str, value: Vec<u8>| {
            let event = Some(prost_types::Any { type_url: String::new(), value });
            Ok(containerd::Envelope { topic: topic.into(), event, ..Default::default() })
        };
        let exit = containerd::TaskExit {
            container_id: "c1".into(),
            id: "e1".into(),
            pid: 7,
            exit_status: 3,
            exited_at: None,
        };
        let oom = containerd::TaskOom { container_id: "c2".into() };
        Ok(Response::new(Box::pin(tokio_stream::iter([
            envelope("/tasks/exit", vec![0xff]),
            envelope("/tasks/exit", prost::Message::encode_to_vec(&exit)),
            envelope("/tasks/start", Vec::new()),
            envelope("/tasks/oom", prost::Message::encode_to_vec(&oom)),
        ]))))
    }
}

/// A server that runs its connections in its own threads: dropping it is like killing the process.
struct Process(Option<tokio::runtime::Runtime>);

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(threads) = self.0.take() {
            threads.shutdown_background();
        }
    }
}

/// Serves on a socket, and replaces a server that was there.
fn serve<S>(socket: &Path, service: S) -> Process
where
    S: Service<http::Request<tonic::body::Body>, Response = http::Response<tonic::body::Body>> + Clone + Send + 'static,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    S::Future: Send,
{
    let _ = std::fs::remove_file(socket);
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = {
        let _inside = threads.enter();
        UnixListener::bind(socket).unwrap()
    };
    threads.spawn(tonic::transport::Server::builder().serve_with_incoming(service, UnixListenerStream::new(listener)));
    Process(Some(threads))
}

/// One runtime over a socket and one in process, with what keeps them running.
struct Both {
    runtimes: [Runtime; 2],
    _process: Process,
    _directory: tempfile::TempDir,
}

fn both<S: RuntimeService + Clone>(small: &S) -> Both {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("runtime.sock");
    let process = serve(&socket, Server::new(small.clone(), Small::default()));
    let remote = Runtime::connect(socket.to_str().unwrap()).unwrap();
    let local = Runtime::in_process(small.clone(), Small::default());
    Both { runtimes: [remote, local], _process: process, _directory: directory }
}

fn short() -> Deadlines {
    let short = Duration::from_millis(50);
    Deadlines { query: short, change: short, pull: short, margin: short }
}

fn kind<T>(answer: Result<T, Error>) -> ErrorKind {
    answer.map(|_| ()).expect_err("has to fail").kind
}

/// Fails to compile if a call cannot be spawned.
fn spawnable<T: Send>(future: T) -> T {
    future
}

async fn list(runtime: &Runtime, size: usize) -> Result<usize, Error> {
    let filter = v1::ContainerFilter { id: size.to_string(), ..Default::default() };
    let containers = spawnable(runtime.list_containers(Some(filter))).await?;
    Ok(containers[0].annotations["padding"].len())
}

async fn create(runtime: &Runtime, size: usize) -> Result<String, Error> {
    let config = v1::ContainerConfig { annotations: padded(size), ..Default::default() };
    spawnable(runtime.create_container("s1", config, v1::PodSandboxConfig::default())).await
}

#[tokio::test]
async fn a_call_gets_its_answer_either_way() {
    for runtime in &both(&Small::default()).runtimes {
        let version = spawnable(runtime.version()).await.unwrap();
        assert_eq!((version.version.as_str(), version.runtime_name.as_str()), ("0.1.0", "small"));
        assert_eq!(create(runtime, 1).await.unwrap(), "s1");
        assert_eq!(runtime.image_status("there").await.unwrap().unwrap().id, "there");
        assert_eq!(runtime.image_status("absent").await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_runtime_has_an_endpoint() {
    let [remote, local] = both(&Small::default()).runtimes;
    assert!(remote.endpoint().starts_with("unix:///"), "{}", remote.endpoint());
    assert_eq!(local.endpoint(), "in process");
    assert!(format!("{remote:?}").contains(remote.endpoint()));
}

#[tokio::test]
async fn calls_that_a_runtime_may_lack_return_none() {
    for runtime in &both(&Small::default()).runtimes {
        assert!(spawnable(runtime.runtime_config()).await.unwrap().is_none());
        assert!(spawnable(runtime.container_events()).await.unwrap().is_none());
        assert!(spawnable(runtime.containerd_exits()).await.unwrap().is_none());
        assert_eq!(kind(runtime.image_fs_info().await), ErrorKind::Unimplemented);
    }
}

#[tokio::test]
async fn a_missing_container_is_not_found() {
    for runtime in &both(&Small::default()).runtimes {
        let error = runtime.container_status("gone", false).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotFound);
        assert_eq!(error.to_string(), "ContainerStatus: an error occurred when try to find container");
    }
}

#[tokio::test]
async fn an_answer_without_its_content_is_an_error() {
    for runtime in &both(&Small::default()).runtimes {
        let error = runtime.status().await.unwrap_err();
        assert_eq!(error.to_string(), "Status: the runtime's response has no status");
    }
}

#[tokio::test]
async fn a_command_gets_whole_seconds_and_always_a_limit() {
    for runtime in &both(&Small::default()).runtimes {
        for (millis, seconds) in [(0, "1"), (1, "1"), (1000, "1"), (1001, "2"), (30_000, "30")] {
            let answer = runtime.exec_sync("c1", &[], Duration::from_millis(millis)).await.unwrap();
            assert_eq!(String::from_utf8(answer.stdout).unwrap(), seconds, "{millis} ms");
        }
    }
}

#[tokio::test]
async fn large_messages_pass_and_too_large_ones_are_errors() {
    const MIB: usize = 1024 * 1024;
    for runtime in &both(&Small::default()).runtimes {
        for size in [5 * MIB, MAX_MESSAGE - 1000] {
            assert_eq!(list(runtime, size).await.unwrap(), size);
            assert_eq!(create(runtime, size).await.unwrap(), "s1");
        }
        assert_eq!(kind(list(runtime, MAX_MESSAGE + 1).await), ErrorKind::TooLarge);
        assert_eq!(kind(create(runtime, MAX_MESSAGE + 1).await), ErrorKind::TooLarge);
        assert_eq!(create(runtime, 1).await.unwrap(), "s1");
    }
}

#[tokio::test]
async fn a_call_without_an_answer_ends_with_its_deadline() {
    for runtime in both(&Small::default()).runtimes {
        let error = runtime.with_deadlines(short()).stop_container("c1", Duration::ZERO).await.unwrap_err();
        assert_eq!(error.to_string(), "StopContainer: timed out after 50ms");
        assert_eq!(error.kind, ErrorKind::NoAnswer);
    }
}

/// The margin is added to the grace period, and the error comes after both.
#[tokio::test(start_paused = true)]
async fn a_stop_may_take_its_grace_and_a_margin() {
    let runtime = Runtime::in_process(Small::default(), Small::default());
    let began = tokio::time::Instant::now();
    let error = runtime.stop_container("c1", Duration::from_millis(29_500)).await.unwrap_err();
    assert_eq!(error.message, "timed out after 40s");
    assert_eq!(began.elapsed().as_secs(), 40);
}

/// Waits for something. The deadline only ends a test that failed.
async fn in_time<T>(what: &str, happens: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(Duration::from_secs(60), happens).await;
    waited.unwrap_or_else(|_| panic!("waited a minute for {what}"))
}

#[tokio::test]
async fn a_dropped_call_is_cancelled() {
    let small = Small::default();
    for runtime in both(&small).runtimes {
        let call = tokio::spawn(async move { runtime.stop_container("c1", Duration::from_secs(3600)).await });
        in_time("the server to get the call", small.entered.notified()).await;
        call.abort();
        in_time("the server to drop a call that its client dropped", small.dropped.notified()).await;
    }
}

#[tokio::test]
async fn a_missing_socket_is_unavailable_and_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("absent.sock");
    let runtime = Runtime::connect(&format!("unix://{}", socket.display())).unwrap();
    let error = runtime.version().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    let expected = format!("Version: cannot connect to the runtime at unix://{}: No such file", socket.display());
    assert!(error.to_string().starts_with(&expected), "{error}");
    assert_eq!(kind(runtime.container_events().await), ErrorKind::Unavailable);
    assert_eq!(kind(runtime.containerd_exits().await), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_runtime_that_accepts_and_says_nothing_runs_into_the_deadline() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("mute.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    let runtime = Runtime::connect(socket.to_str().unwrap()).unwrap().with_deadlines(short());
    assert_eq!(kind(runtime.version().await), ErrorKind::NoAnswer);
    assert_eq!(kind(runtime.container_events().await), ErrorKind::NoAnswer);
}

#[tokio::test]
async fn a_runtime_that_died_is_unavailable_until_it_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("runtime.sock");
    let small = Small::default();
    let mut process = serve(&socket, Server::new(small.clone(), Small::default()));
    let runtime = Runtime::connect(socket.to_str().unwrap()).unwrap();
    let before = runtime.clone();
    for _ in 0..3 {
        runtime.version().await.unwrap();
        let hanging = tokio::spawn({
            let runtime = runtime.clone();
            async move { runtime.stop_container("c1", Duration::from_secs(3600)).await }
        });
        small.entered.notified().await;
        drop(process);
        assert_eq!(kind(hanging.await.unwrap()), ErrorKind::Unavailable);
        assert_eq!(kind(runtime.version().await), ErrorKind::Unavailable);
        process = serve(&socket, Server::new(small.clone(), Small::default()));
    }
    before.version().await.unwrap();
}

#[tokio::test]
async fn events_come_and_end() {
    let runtime = Runtime::in_process(Prompt, Small::default());
    let mut events = runtime.container_events().await.unwrap().unwrap();
    assert_eq!(spawnable(events.next()).await.unwrap().unwrap().container_id, "c1");
    assert_eq!(events.next().await.unwrap(), None);
    assert_eq!(events.next().await.unwrap(), None);
}

/// Subscribing does not wait for an event.
#[tokio::test]
async fn a_subscription_does_not_wait_for_the_first_event() {
    let late = Late::default();
    for runtime in &both(&late).runtimes {
        let subscribing = tokio::time::timeout(Duration::from_secs(60), runtime.container_events());
        let mut events = subscribing.await.expect("subscribing waits for an event").unwrap().unwrap();
        let early = tokio::time::timeout(Duration::from_millis(20), events.next()).await;
        assert!(early.is_err(), "nothing has happened: {early:?}");
        late.happens.notify_one();
        assert_eq!(events.next().await.unwrap().unwrap().container_id, "c1");
        assert_eq!(events.next().await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_subscription_fails_with_its_connection() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("runtime.sock");
    let process = serve(&socket, Server::new(Late::default(), Small::default()));
    let runtime = Runtime::connect(socket.to_str().unwrap()).unwrap();
    let mut events = runtime.container_events().await.unwrap().unwrap();
    drop(process);
    assert_eq!(kind(events.next().await), ErrorKind::Unavailable);
    assert_eq!(events.next().await.unwrap(), None);
}

/// Events that cannot be decoded, and events of other kinds, are skipped.
#[tokio::test]
async fn containerd_events_report_exits_and_oom_kills() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("containerd.sock");
    let _process = serve(&socket, containerd::events_server::EventsServer::new(Tasks));
    let runtime = Runtime::connect(socket.to_str().unwrap()).unwrap();
    let mut exits = runtime.containerd_exits().await.unwrap().unwrap();
    let exited = TaskEvent::Exited { container_id: "c1".into(), exec_id: "e1".into(), pid: 7, exit_status: 3 };
    assert_eq!(spawnable(exits.next()).await.unwrap(), Some(exited));
    assert_eq!(exits.next().await.unwrap(), Some(TaskEvent::OutOfMemory { container_id: "c2".into() }));
    assert_eq!(exits.next().await.unwrap(), None);
}
