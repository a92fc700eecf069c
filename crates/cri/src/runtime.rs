//! The client: one method for each call of CRI that a node agent makes.

use std::{collections::BTreeMap, fmt, future::Future, sync::Arc, time::Duration};

use tonic::{Request, Response, Status, metadata::MetadataValue};

use crate::{
    Deadlines, EndpointError, Error, ErrorKind, Events, Exits, MAX_MESSAGE, OUTPUT_LIMIT,
    containerd::{SubscribeRequest, events_client::EventsClient},
    deadlines::{on_the_wire, whole_seconds},
    endpoint,
    events::{EXIT_TOPIC, Feed, OOM_TOPIC, SETTLE},
    transport::{Server, Transport},
    v1::{
        self, image_service_client::ImageServiceClient, image_service_server::ImageService,
        runtime_service_client::RuntimeServiceClient, runtime_service_server::RuntimeService,
    },
};

/// The version that the agent sends; every runtime returns it and none interprets it.
const OUR_VERSION: &str = "0.1.0";

/// Where containerd's CRI keeps its containers.
const CONTAINERD_NAMESPACE: &str = "k8s.io";

/// A container runtime, wherever it runs. Cheap to clone; clones share the connection.
///
/// Every call may be dropped at any time, which cancels it.
#[derive(Clone)]
pub struct Runtime {
    endpoint: Arc<str>,
    deadlines: Deadlines,
    transport: Transport,
}

// === impl Runtime ===

/// Constructors.
impl Runtime {
    /// The runtime that listens on a unix socket: `unix:///run/containerd/containerd.sock`, or an absolute path.
    ///
    /// Connects with the first call and again after a lost connection, so the runtime need not run yet. Has to be
    /// called inside a tokio runtime.
    pub fn connect(endpoint: &str) -> Result<Self, EndpointError> {
        let path = endpoint::socket_path(endpoint)?;
        let endpoint = format!("unix://{}", path.display());
        Ok(Self::over(&endpoint, Transport::socket(path)))
    }

    /// A runtime in this process.
    pub fn in_process(runtime: impl RuntimeService, images: impl ImageService) -> Self {
        Self::over("in process", Transport::InProcess(Server::new(runtime, images)))
    }

    /// The same runtime with other deadlines.
    pub fn with_deadlines(self, deadlines: Deadlines) -> Self {
        Self { deadlines, ..self }
    }

    /// The endpoint of the runtime, for messages.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    fn over(endpoint: &str, transport: Transport) -> Self {
        Self { endpoint: endpoint.into(), deadlines: Deadlines::default(), transport }
    }

    fn runtime(&self) -> RuntimeServiceClient<Transport> {
        RuntimeServiceClient::new(self.transport.clone()).max_decoding_message_size(MAX_MESSAGE)
    }

    fn images(&self) -> ImageServiceClient<Transport> {
        ImageServiceClient::new(self.transport.clone()).max_decoding_message_size(MAX_MESSAGE)
    }

    async fn within<T>(
        &self,
        deadline: Duration,
        call: &'static str,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(Error::answered(call, &self.endpoint, &status)),
            Err(_) => Err(Error::late(call, deadline)),
        }
    }

    async fn query<T>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Error> {
        self.within(self.deadlines.query, call, answer).await
    }

    async fn change<T>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Error> {
        self.within(self.deadlines.change, call, answer).await
    }
}

/// The runtime itself.
impl Runtime {
    /// Name and version of the runtime.
    pub async fn version(&self) -> Result<v1::VersionResponse, Error> {
        let request = v1::VersionRequest { version: OUR_VERSION.to_owned() };
        self.query("Version", self.runtime().version(request)).await
    }

    /// Whether the runtime and its network are ready.
    pub async fn status(&self) -> Result<v1::RuntimeStatus, Error> {
        let request = v1::StatusRequest { verbose: false };
        let answer = self.query("Status", self.runtime().status(request)).await?;
        answer.status.ok_or_else(|| Error::without("Status", "status"))
    }

    /// The features of one of the runtime's handlers; the default handler has no name. An unknown handler has no
    /// features.
    pub async fn handler_features(&self, handler: &str) -> Result<v1::RuntimeHandlerFeatures, Error> {
        let request = v1::StatusRequest { verbose: false };
        let answer = self.query("Status", self.runtime().status(request)).await?;
        let found = answer.runtime_handlers.into_iter().find(|one| one.name == handler);
        Ok(found.and_then(|one| one.features).unwrap_or_default())
    }

    /// The configuration of the runtime; `None` if it does not report one.
    pub async fn runtime_config(&self) -> Result<Option<v1::RuntimeConfigResponse>, Error> {
        let request = v1::RuntimeConfigRequest {};
        optional(self.query("RuntimeConfig", self.runtime().runtime_config(request)).await)
    }

    /// Sets the range of this node's pod addresses.
    pub async fn update_runtime_config(&self, pod_cidr: &str) -> Result<(), Error> {
        let network_config = Some(v1::NetworkConfig { pod_cidr: pod_cidr.to_owned() });
        let request = v1::UpdateRuntimeConfigRequest { runtime_config: Some(v1::RuntimeConfig { network_config }) };
        self.change("UpdateRuntimeConfig", self.runtime().update_runtime_config(request)).await?;
        Ok(())
    }
}

/// Sandboxes.
impl Runtime {
    /// Creates and starts a sandbox; returns its ID. An empty handler is the default one.
    pub async fn run_pod_sandbox(&self, config: v1::PodSandboxConfig, runtime_handler: &str) -> Result<String, Error> {
        let request = v1::RunPodSandboxRequest { config: Some(config), runtime_handler: runtime_handler.to_owned() };
        let answer = self.change("RunPodSandbox", self.runtime().run_pod_sandbox(request)).await?;
        named(answer.pod_sandbox_id, "RunPodSandbox", "sandbox ID")
    }

    /// Stops the sandbox and everything in it. Succeeds if it is stopped already.
    pub async fn stop_pod_sandbox(&self, id: &str) -> Result<(), Error> {
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.change("StopPodSandbox", self.runtime().stop_pod_sandbox(request)).await?;
        Ok(())
    }

    /// Removes the sandbox and its containers. Succeeds if it is removed already.
    pub async fn remove_pod_sandbox(&self, id: &str) -> Result<(), Error> {
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.change("RemovePodSandbox", self.runtime().remove_pod_sandbox(request)).await?;
        Ok(())
    }

    /// One sandbox in detail, with its addresses.
    pub async fn pod_sandbox_status(&self, id: &str) -> Result<v1::PodSandboxStatus, Error> {
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
        let answer = self.query("PodSandboxStatus", self.runtime().pod_sandbox_status(request)).await?;
        answer.status.ok_or_else(|| Error::without("PodSandboxStatus", "status"))
    }

    /// The sandboxes that match the filter, or all.
    pub async fn list_pod_sandbox(&self, filter: Option<v1::PodSandboxFilter>) -> Result<Vec<v1::PodSandbox>, Error> {
        let request = v1::ListPodSandboxRequest { filter };
        Ok(self.query("ListPodSandbox", self.runtime().list_pod_sandbox(request)).await?.items)
    }

    /// The resource usage of a sandbox.
    pub async fn pod_sandbox_stats(&self, id: &str) -> Result<v1::PodSandboxStats, Error> {
        let request = v1::PodSandboxStatsRequest { pod_sandbox_id: id.to_owned() };
        let answer = self.query("PodSandboxStats", self.runtime().pod_sandbox_stats(request)).await?;
        answer.stats.ok_or_else(|| Error::without("PodSandboxStats", "stats"))
    }

    /// The resource usage of the sandboxes that match the filter, or of all.
    pub async fn list_pod_sandbox_stats(
        &self,
        filter: Option<v1::PodSandboxStatsFilter>,
    ) -> Result<Vec<v1::PodSandboxStats>, Error> {
        let request = v1::ListPodSandboxStatsRequest { filter };
        Ok(self.query("ListPodSandboxStats", self.runtime().list_pod_sandbox_stats(request)).await?.stats)
    }
}

/// Containers.
impl Runtime {
    /// Creates a container without starting it; returns its ID. `sandbox_config` is the configuration of the sandbox.
    pub async fn create_container(
        &self,
        sandbox: &str,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String, Error> {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let answer = self.change("CreateContainer", self.runtime().create_container(request)).await?;
        named(answer.container_id, "CreateContainer", "container ID")
    }

    /// Starts a container that was created and never started.
    pub async fn start_container(&self, id: &str) -> Result<(), Error> {
        let request = v1::StartContainerRequest { container_id: id.to_owned() };
        self.change("StartContainer", self.runtime().start_container(request)).await?;
        Ok(())
    }

    /// Stops the container and kills it after `grace`, which CRI counts in whole seconds: a fraction is rounded up. A
    /// grace of zero kills at once. Succeeds if the container is stopped already.
    pub async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), Error> {
        let grace = whole_seconds(grace);
        let request = v1::StopContainerRequest { container_id: id.to_owned(), timeout: on_the_wire(grace) };
        let deadline = grace.saturating_add(self.deadlines.margin);
        self.within(deadline, "StopContainer", self.runtime().stop_container(request)).await?;
        Ok(())
    }

    /// Removes the container. Succeeds if it is removed already.
    pub async fn remove_container(&self, id: &str) -> Result<(), Error> {
        let request = v1::RemoveContainerRequest { container_id: id.to_owned() };
        self.change("RemoveContainer", self.runtime().remove_container(request)).await?;
        Ok(())
    }

    /// The containers that match the filter, or all.
    pub async fn list_containers(&self, filter: Option<v1::ContainerFilter>) -> Result<Vec<v1::Container>, Error> {
        let request = v1::ListContainersRequest { filter };
        Ok(self.query("ListContainers", self.runtime().list_containers(request)).await?.containers)
    }

    /// One container in detail; if `verbose`, with the runtime's information for debugging.
    pub async fn container_status(
        &self,
        id: &str,
        verbose: bool,
    ) -> Result<(v1::ContainerStatus, BTreeMap<String, String>), Error> {
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose };
        let answer = self.query("ContainerStatus", self.runtime().container_status(request)).await?;
        let status = answer.status.ok_or_else(|| Error::without("ContainerStatus", "status"))?;
        Ok((status, answer.info))
    }

    /// Changes the resource limits of a running container.
    pub async fn update_container_resources(&self, id: &str, linux: v1::LinuxContainerResources) -> Result<(), Error> {
        let request = v1::UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            linux: Some(linux),
            annotations: BTreeMap::new(),
        };
        self.change("UpdateContainerResources", self.runtime().update_container_resources(request)).await?;
        Ok(())
    }

    /// Makes the runtime reopen the log file, after it was rotated.
    pub async fn reopen_container_log(&self, id: &str) -> Result<(), Error> {
        let request = v1::ReopenContainerLogRequest { container_id: id.to_owned() };
        self.change("ReopenContainerLog", self.runtime().reopen_container_log(request)).await?;
        Ok(())
    }

    /// The resource usage of a container.
    pub async fn container_stats(&self, id: &str) -> Result<v1::ContainerStats, Error> {
        let request = v1::ContainerStatsRequest { container_id: id.to_owned() };
        let answer = self.query("ContainerStats", self.runtime().container_stats(request)).await?;
        answer.stats.ok_or_else(|| Error::without("ContainerStats", "stats"))
    }

    /// The resource usage of the containers that match the filter, or of all.
    pub async fn list_container_stats(
        &self,
        filter: Option<v1::ContainerStatsFilter>,
    ) -> Result<Vec<v1::ContainerStats>, Error> {
        let request = v1::ListContainerStatsRequest { filter };
        Ok(self.query("ListContainerStats", self.runtime().list_container_stats(request)).await?.stats)
    }
}

/// Commands and sessions.
impl Runtime {
    /// Runs a command in a container and waits until it exits. The runtime kills it after `timeout`, which CRI counts
    /// in whole seconds: a fraction is rounded up, and so is zero, which CRI takes as no limit.
    pub async fn exec_sync(
        &self,
        id: &str,
        command: &[String],
        timeout: Duration,
    ) -> Result<v1::ExecSyncResponse, Error> {
        let timeout = whole_seconds(timeout).max(Duration::from_secs(1));
        let request =
            v1::ExecSyncRequest { container_id: id.to_owned(), cmd: command.to_vec(), timeout: on_the_wire(timeout) };
        let deadline = timeout.saturating_add(self.deadlines.margin);
        self.within(deadline, "ExecSync", self.runtime().exec_sync(request)).await
    }

    /// The same for a command of whose output the caller needs only the first bytes of each stream: see
    /// [`OUTPUT_LIMIT`].
    pub async fn exec_sync_keeping(
        &self,
        id: &str,
        command: &[String],
        timeout: Duration,
        keep: usize,
    ) -> Result<v1::ExecSyncResponse, Error> {
        let timeout = whole_seconds(timeout).max(Duration::from_secs(1));
        let mut request = Request::new(v1::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command.to_vec(),
            timeout: on_the_wire(timeout),
        });
        request.metadata_mut().insert(OUTPUT_LIMIT, keep.into());
        let deadline = timeout.saturating_add(self.deadlines.margin);
        self.within(deadline, "ExecSync", self.runtime().exec_sync(request)).await
    }

    /// Prepares an exec session; returns its URL.
    pub async fn exec(&self, request: v1::ExecRequest) -> Result<String, Error> {
        let answer = self.query("Exec", self.runtime().exec(request)).await?;
        named(answer.url, "Exec", "address")
    }

    /// Prepares an attach session with the container's init process; returns its URL.
    pub async fn attach(&self, request: v1::AttachRequest) -> Result<String, Error> {
        let answer = self.query("Attach", self.runtime().attach(request)).await?;
        named(answer.url, "Attach", "address")
    }

    /// Prepares a port-forward session with a sandbox; returns its URL.
    pub async fn port_forward(&self, sandbox: &str, ports: &[i32]) -> Result<String, Error> {
        let request = v1::PortForwardRequest { pod_sandbox_id: sandbox.to_owned(), port: ports.to_vec() };
        let answer = self.query("PortForward", self.runtime().port_forward(request)).await?;
        named(answer.url, "PortForward", "address")
    }
}

/// Events.
impl Runtime {
    /// CRI's container events; `None` if the runtime has none. The stream begins with the next event.
    pub async fn container_events(&self) -> Result<Option<Events>, Error> {
        const CALL: &str = "GetContainerEvents";
        let mut client = self.runtime();
        let opening = Box::pin(async move { client.get_container_events(v1::GetEventsRequest {}).await });
        Ok(self.subscribed(Feed::opening(CALL, &self.endpoint, opening)).await?.map(Events))
    }

    /// containerd's own events on the same socket; `None` if the runtime is not containerd. The stream begins with the
    /// next event.
    pub async fn containerd_exits(&self) -> Result<Option<Exits>, Error> {
        const CALL: &str = "containerd's Subscribe";
        let filters = [EXIT_TOPIC, OOM_TOPIC]
            .map(|topic| format!("namespace==\"{CONTAINERD_NAMESPACE}\",topic==\"{topic}\""))
            .to_vec();
        let mut request = Request::new(SubscribeRequest { filters });
        request.metadata_mut().insert("containerd-namespace", MetadataValue::from_static(CONTAINERD_NAMESPACE));
        let mut client = EventsClient::new(self.transport.clone());
        let opening = Box::pin(async move { client.subscribe(request).await });
        Ok(self.subscribed(Feed::opening(CALL, &self.endpoint, opening)).await?.map(Exits))
    }

    /// Waits until the stream is accepted, refused, or likely to be accepted (see `events`).
    async fn subscribed<T>(&self, mut feed: Feed<T>) -> Result<Option<Feed<T>>, Error> {
        let settled = async {
            // Any response shows that the connection works; this one decides nothing about the stream.
            match self.version().await {
                Err(error) if error.kind != ErrorKind::Unimplemented => return Err(error),
                Ok(_) | Err(_) => tokio::time::sleep(SETTLE).await,
            }
            Ok(())
        };
        let opened = tokio::select! {
            biased;
            opened = feed.open() => opened,
            settled = settled => settled,
        };
        optional(opened.map(|()| feed))
    }
}

/// Images.
impl Runtime {
    /// The image if the node has it.
    pub async fn image_status(&self, image: &str) -> Result<Option<v1::Image>, Error> {
        let request = v1::ImageStatusRequest { image: Some(spec(image)), verbose: false };
        Ok(self.query("ImageStatus", self.images().image_status(request)).await?.image)
    }

    /// Pulls an image; returns the runtime's reference of it.
    pub async fn pull_image(
        &self,
        image: &str,
        auth: Option<v1::AuthConfig>,
        sandbox_config: Option<v1::PodSandboxConfig>,
    ) -> Result<String, Error> {
        let request = v1::PullImageRequest { image: Some(spec(image)), auth, sandbox_config };
        let answer = self.within(self.deadlines.pull, "PullImage", self.images().pull_image(request)).await?;
        named(answer.image_ref, "PullImage", "image reference")
    }

    /// All images of the node.
    pub async fn list_images(&self) -> Result<Vec<v1::Image>, Error> {
        let request = v1::ListImagesRequest { filter: None };
        Ok(self.query("ListImages", self.images().list_images(request)).await?.images)
    }

    /// Removes an image. Succeeds if it is removed already.
    pub async fn remove_image(&self, image: &str) -> Result<(), Error> {
        let request = v1::RemoveImageRequest { image: Some(spec(image)) };
        self.change("RemoveImage", self.images().remove_image(request)).await?;
        Ok(())
    }

    /// The disk usage of images and containers.
    pub async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse, Error> {
        self.query("ImageFsInfo", self.images().image_fs_info(v1::ImageFsInfoRequest {})).await
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("endpoint", &self.endpoint).field("deadlines", &self.deadlines).finish()
    }
}

/// A call that a runtime may lack.
fn optional<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.kind == ErrorKind::Unimplemented => Ok(None),
        Err(error) => Err(error),
    }
}

/// A required name in a response: an empty one would select everything in the next call.
fn named(name: String, call: &'static str, what: &str) -> Result<String, Error> {
    if name.is_empty() { Err(Error::without(call, what)) } else { Ok(name) }
}

fn spec(image: &str) -> v1::ImageSpec {
    v1::ImageSpec { image: image.to_owned(), ..v1::ImageSpec::default() }
}
