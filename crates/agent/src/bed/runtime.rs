//! A runtime in memory. Every call is written down, and can be held or made to fail.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::Stream;
use keelet_cri::v1::{self, image_service_server::ImageService, runtime_service_server::RuntimeService};
use keelet_launch::labels::POD_UID;
use keelet_pod::Pod;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};

type Answered<T> = Result<Response<T>, Status>;
type EventStream = Pin<Box<dyn Stream<Item = Result<v1::ContainerEventResponse, Status>> + Send>>;

/// A runtime for one test. Clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct FakeRuntime {
    state: Arc<Mutex<State>>,
    /// How many calls were made, and how often something was released.
    moved: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
struct State {
    made: u32,
    sandboxes: BTreeMap<String, v1::PodSandboxStatus>,
    /// With their sandboxes.
    containers: BTreeMap<String, (String, v1::ContainerStatus)>,
    calls: Vec<String>,
    held: BTreeSet<String>,
    held_back: BTreeSet<String>,
    failing: BTreeMap<String, Code>,
    /// What commands in containers end with.
    exit_code: i32,
    /// Grace periods that containers were stopped with.
    graces: BTreeMap<String, i64>,
    listeners: Vec<mpsc::Sender<Result<v1::ContainerEventResponse, Status>>>,
}

// === impl FakeRuntime ===

/// What a test does to it, and sees of it.
impl FakeRuntime {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls that begin with these words take effect and are not answered until they are released.
    pub(crate) fn hold(&self, call: &str) {
        self.state().held.insert(call.to_owned());
    }

    /// The same before they take effect.
    pub(crate) fn hold_back(&self, call: &str) {
        self.state().held_back.insert(call.to_owned());
    }

    pub(crate) fn release(&self, call: &str) {
        self.state().held.remove(call);
        self.state().held_back.remove(call);
        self.moved.send_modify(|moved| *moved += 1);
    }

    /// Calls that begin with these words fail, or no longer do.
    pub(crate) fn fail(&self, call: &str, code: Option<Code>) {
        let mut state = self.state();
        match code {
            Some(code) => drop(state.failing.insert(call.to_owned(), code)),
            None => drop(state.failing.remove(call)),
        }
    }

    /// The calls that begin with these words, in order.
    pub(crate) fn calls(&self, beginning: &str) -> Vec<String> {
        self.state().calls.iter().filter(|call| call.starts_with(beginning)).cloned().collect()
    }

    /// Waits until a call has been made that begins with these words.
    pub(crate) async fn called(&self, beginning: &str) {
        self.called_often(beginning, 1).await;
    }

    /// Waits until so many have been made.
    pub(crate) async fn called_often(&self, beginning: &str, times: usize) {
        let enough = |state: &State| state.calls.iter().filter(|call| call.starts_with(beginning)).count() >= times;
        // Five minutes of the test's time, in which an agent does everything that it will ever do.
        if tokio::time::timeout(Duration::from_secs(300), self.until(enough)).await.is_err() {
            panic!("{beginning} was not called {times} times, but {:#?}", self.calls(""));
        }
    }

    /// A ready sandbox of a pod with a running container `main`, as an earlier agent would have left them.
    pub(crate) fn put(&self, pod: &Pod) -> (String, String) {
        let mut state = self.state();
        let labels = BTreeMap::from([(POD_UID.to_owned(), pod.uid.clone())]);
        let sandbox = state.add_sandbox(labels.clone(), &pod.uid, 0);
        let metadata = v1::ContainerMetadata { name: "main".to_owned(), attempt: 0 };
        let container = state.add_container(&sandbox, labels, BTreeMap::new(), metadata);
        state.start(&container);
        (sandbox, container)
    }

    /// Gives a sandbox an address, or takes it away.
    pub(crate) fn set_address(&self, sandbox: &str, ip: &str) {
        let network = v1::PodSandboxNetworkStatus { ip: ip.to_owned(), additional_ips: Vec::new() };
        self.state().sandboxes.get_mut(sandbox).expect("a sandbox").network = Some(network);
    }

    /// A container ends by itself, and the runtime emits no event.
    pub(crate) fn end(&self, container: &str, exit_code: i32) {
        self.state().end(container, exit_code);
    }

    /// The seconds that a container was given to stop.
    pub(crate) fn grace_of(&self, container: &str) -> Option<i64> {
        self.state().graces.get(container).copied()
    }

    /// From now on every command in a container ends with this code.
    pub(crate) fn answer_exec(&self, exit_code: i32) {
        self.state().exit_code = exit_code;
    }

    /// Annotates a container.
    pub(crate) fn annotate(&self, container: &str, key: &str, value: &str) {
        let mut state = self.state();
        let (_, status) = state.containers.get_mut(container).expect("a container");
        status.annotations.insert(key.to_owned(), value.to_owned());
    }

    /// Emits an event about a container or sandbox to all subscribers. The event does not name the pod, as with some
    /// runtimes.
    pub(crate) async fn emit(&self, id: &str) {
        let event = v1::ContainerEventResponse { container_id: id.to_owned(), ..Default::default() };
        let listeners = self.state().listeners.clone();
        for listener in listeners {
            let _ = listener.send(Ok(event.clone())).await;
        }
    }

    /// Ends all streams of events.
    pub(crate) fn cut_off(&self) {
        self.state().listeners.clear();
    }

    async fn until(&self, is_so: impl Fn(&State) -> bool) {
        let _ = self.moved.subscribe().wait_for(|_| is_so(&self.state())).await;
    }

    async fn answer<T>(
        &self,
        call: &str,
        subject: &str,
        effect: impl FnOnce(&mut State) -> Result<T, Status>,
    ) -> Answered<T> {
        let call = format!("{call} {subject}");
        self.state().calls.push(call.clone());
        self.moved.send_modify(|moved| *moved += 1);
        self.until(|state| !begins_with(&state.held_back, &call)).await;
        let effected = {
            let mut state = self.state();
            match state.failing.iter().find(|(beginning, _)| call.starts_with(beginning.as_str())) {
                Some((_, code)) => Err(Status::new(*code, "told to fail")),
                None => effect(&mut state),
            }
        };
        self.until(|state| !begins_with(&state.held, &call)).await;
        effected.map(Response::new)
    }
}

fn begins_with(beginnings: &BTreeSet<String>, call: &str) -> bool {
    beginnings.iter().any(|beginning| call.starts_with(beginning.as_str()))
}

// === impl State ===

impl State {
    fn add_sandbox(&mut self, labels: BTreeMap<String, String>, uid: &str, attempt: u32) -> String {
        self.made += 1;
        let id = format!("sandbox-{}", self.made);
        let network = v1::PodSandboxNetworkStatus { ip: format!("10.0.0.{}", self.made), additional_ips: Vec::new() };
        let metadata = v1::PodSandboxMetadata { uid: uid.to_owned(), attempt, ..Default::default() };
        let status = v1::PodSandboxStatus {
            id: id.clone(),
            metadata: Some(metadata),
            state: v1::PodSandboxState::SandboxReady.into(),
            network: Some(network),
            labels,
            ..Default::default()
        };
        self.sandboxes.insert(id.clone(), status);
        id
    }

    fn add_container(
        &mut self,
        sandbox: &str,
        labels: BTreeMap<String, String>,
        annotations: BTreeMap<String, String>,
        metadata: v1::ContainerMetadata,
    ) -> String {
        self.made += 1;
        let id = format!("container-{}", self.made);
        let status = v1::ContainerStatus {
            id: id.clone(),
            metadata: Some(metadata),
            state: v1::ContainerState::ContainerCreated.into(),
            labels,
            annotations,
            ..Default::default()
        };
        self.containers.insert(id.clone(), (sandbox.to_owned(), status));
        id
    }

    fn start(&mut self, id: &str) {
        if let Some((_, status)) = self.containers.get_mut(id) {
            status.state = v1::ContainerState::ContainerRunning.into();
        }
    }

    fn end(&mut self, id: &str, exit_code: i32) {
        if let Some((_, status)) = self.containers.get_mut(id) {
            status.state = v1::ContainerState::ContainerExited.into();
            status.exit_code = exit_code;
        }
    }
}

fn uid_in(selector: &BTreeMap<String, String>) -> String {
    selector.get(POD_UID).cloned().unwrap_or_else(|| "all".to_owned())
}

fn selects(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[tonic::async_trait]
impl RuntimeService for FakeRuntime {
    async fn version(&self, _: Request<v1::VersionRequest>) -> Answered<v1::VersionResponse> {
        let answer = v1::VersionResponse { runtime_name: "fake".to_owned(), ..Default::default() };
        self.answer("Version", "", |_| Ok(answer)).await
    }

    async fn run_pod_sandbox(&self, request: Request<v1::RunPodSandboxRequest>) -> Answered<v1::RunPodSandboxResponse> {
        let config = request.into_inner().config.unwrap_or_default();
        let metadata = config.metadata.unwrap_or_default();
        let uid = metadata.uid.clone();
        self.answer("RunPodSandbox", &uid, |state| {
            let pod_sandbox_id = state.add_sandbox(config.labels, &metadata.uid, metadata.attempt);
            Ok(v1::RunPodSandboxResponse { pod_sandbox_id })
        })
        .await
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> Answered<v1::StopPodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.answer("StopPodSandbox", &id, |state| {
            if let Some(sandbox) = state.sandboxes.get_mut(&id) {
                sandbox.state = v1::PodSandboxState::SandboxNotready.into();
            }
            Ok(v1::StopPodSandboxResponse {})
        })
        .await
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> Answered<v1::RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.answer("RemovePodSandbox", &id, |state| {
            state.sandboxes.remove(&id);
            state.containers.retain(|_, (sandbox, _)| *sandbox != id);
            Ok(v1::RemovePodSandboxResponse {})
        })
        .await
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> Answered<v1::PodSandboxStatusResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.answer("PodSandboxStatus", &id, |state| {
            let found = state.sandboxes.get(&id).ok_or_else(|| Status::not_found("no such sandbox"))?;
            Ok(v1::PodSandboxStatusResponse { status: Some(found.clone()), ..Default::default() })
        })
        .await
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> Answered<v1::ListPodSandboxResponse> {
        let selector = request.into_inner().filter.unwrap_or_default().label_selector;
        self.answer("ListPodSandbox", &uid_in(&selector), |state| {
            let found = state.sandboxes.values().filter(|sandbox| selects(&selector, &sandbox.labels));
            let items = found.map(|sandbox| v1::PodSandbox {
                id: sandbox.id.clone(),
                metadata: sandbox.metadata.clone(),
                state: sandbox.state,
                labels: sandbox.labels.clone(),
                ..Default::default()
            });
            Ok(v1::ListPodSandboxResponse { items: items.collect() })
        })
        .await
    }

    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> Answered<v1::CreateContainerResponse> {
        let request = request.into_inner();
        let config = request.config.unwrap_or_default();
        let metadata = config.metadata.unwrap_or_default();
        let name = metadata.name.clone();
        self.answer("CreateContainer", &name, |state| {
            let sandbox = &request.pod_sandbox_id;
            let container_id = state.add_container(sandbox, config.labels, config.annotations, metadata);
            Ok(v1::CreateContainerResponse { container_id })
        })
        .await
    }

    async fn start_container(
        &self,
        request: Request<v1::StartContainerRequest>,
    ) -> Answered<v1::StartContainerResponse> {
        let id = request.into_inner().container_id;
        self.answer("StartContainer", &id, |state| {
            state.start(&id);
            Ok(v1::StartContainerResponse {})
        })
        .await
    }

    async fn stop_container(&self, request: Request<v1::StopContainerRequest>) -> Answered<v1::StopContainerResponse> {
        let v1::StopContainerRequest { container_id: id, timeout } = request.into_inner();
        self.answer("StopContainer", &id, |state| {
            state.graces.insert(id.clone(), timeout);
            state.end(&id, 143);
            Ok(v1::StopContainerResponse {})
        })
        .await
    }

    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> Answered<v1::RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        self.answer("RemoveContainer", &id, |state| {
            state.containers.remove(&id);
            Ok(v1::RemoveContainerResponse {})
        })
        .await
    }

    async fn list_containers(
        &self,
        request: Request<v1::ListContainersRequest>,
    ) -> Answered<v1::ListContainersResponse> {
        let selector = request.into_inner().filter.unwrap_or_default().label_selector;
        self.answer("ListContainers", &uid_in(&selector), |state| {
            let found = state.containers.values().filter(|(_, status)| selects(&selector, &status.labels));
            let containers = found.map(|(sandbox, status)| v1::Container {
                id: status.id.clone(),
                pod_sandbox_id: sandbox.clone(),
                metadata: status.metadata.clone(),
                state: status.state,
                labels: status.labels.clone(),
                annotations: status.annotations.clone(),
                ..Default::default()
            });
            Ok(v1::ListContainersResponse { containers: containers.collect() })
        })
        .await
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> Answered<v1::ContainerStatusResponse> {
        let id = request.into_inner().container_id;
        self.answer("ContainerStatus", &id, |state| {
            let found = state.containers.get(&id).ok_or_else(|| Status::not_found("no such container"))?;
            Ok(v1::ContainerStatusResponse { status: Some(found.1.clone()), ..Default::default() })
        })
        .await
    }

    async fn exec_sync(&self, request: Request<v1::ExecSyncRequest>) -> Answered<v1::ExecSyncResponse> {
        let id = request.into_inner().container_id;
        self.answer("ExecSync", &id, |state| {
            Ok(v1::ExecSyncResponse { exit_code: state.exit_code, ..Default::default() })
        })
        .await
    }

    async fn reopen_container_log(
        &self,
        request: Request<v1::ReopenContainerLogRequest>,
    ) -> Answered<v1::ReopenContainerLogResponse> {
        let id = request.into_inner().container_id;
        self.answer("ReopenContainerLog", &id, |_| Ok(v1::ReopenContainerLogResponse {})).await
    }

    async fn get_container_events(&self, _: Request<v1::GetEventsRequest>) -> Answered<EventStream> {
        self.answer("GetContainerEvents", "", |state| {
            let (events, stream) = mpsc::channel(16);
            state.listeners.push(events);
            Ok(Box::pin(ReceiverStream::new(stream)) as EventStream)
        })
        .await
    }
}

#[tonic::async_trait]
impl ImageService for FakeRuntime {
    async fn image_status(&self, request: Request<v1::ImageStatusRequest>) -> Answered<v1::ImageStatusResponse> {
        let name = request.into_inner().image.unwrap_or_default().image;
        self.answer("ImageStatus", &name, |_| {
            let image = v1::Image { id: format!("sha256:{name}"), ..Default::default() };
            Ok(v1::ImageStatusResponse { image: Some(image), ..Default::default() })
        })
        .await
    }

    async fn pull_image(&self, request: Request<v1::PullImageRequest>) -> Answered<v1::PullImageResponse> {
        let v1::PullImageRequest { image, auth, .. } = request.into_inner();
        let name = image.unwrap_or_default().image;
        let as_user = auth.map(|auth| format!(" as {}", auth.username)).unwrap_or_default();
        self.answer("PullImage", &format!("{name}{as_user}"), |_| {
            Ok(v1::PullImageResponse { image_ref: format!("sha256:{name}") })
        })
        .await
    }
}
