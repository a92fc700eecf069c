//! The calls of CRI's runtime service, one by one: what they ask, checked, and handed on.

use std::{collections::BTreeMap, pin::Pin, time::Duration};

use futures::{Stream, StreamExt};
use keelet_cri::v1::{self, runtime_service_server::RuntimeService};
use tokio_stream::wrappers::BroadcastStream;
use tonic::{Request, Response, Status};

use crate::{
    engine::{Engine, now},
    exec,
};

type Answered<T> = Result<Response<T>, Status>;
type EventStream = Pin<Box<dyn Stream<Item = Result<v1::ContainerEventResponse, Status>> + Send>>;

/// The name in container IDs and versions.
pub(crate) const NAME: &str = "keelet";

// === impl Engine ===

#[tonic::async_trait]
impl RuntimeService for Engine {
    async fn version(&self, _: Request<v1::VersionRequest>) -> Answered<v1::VersionResponse> {
        Ok(Response::new(v1::VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: NAME.to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
            runtime_api_version: "v1".to_owned(),
        }))
    }

    async fn status(&self, request: Request<v1::StatusRequest>) -> Answered<v1::StatusResponse> {
        let network = self.parts.network.status().await;
        let ready = |kind: &str| v1::RuntimeCondition { r#type: kind.to_owned(), status: true, ..Default::default() };
        let network_condition = match &network {
            Ok(_) => ready("NetworkReady"),
            Err(error) => v1::RuntimeCondition {
                status: false,
                reason: "NetworkPluginNotReady".to_owned(),
                message: error.to_string(),
                ..ready("NetworkReady")
            },
        };
        let conditions = vec![ready("RuntimeReady"), network_condition];
        let features =
            v1::RuntimeHandlerFeatures { recursive_read_only_mounts: true, user_namespaces: self.no_users().is_none() };
        let handler = |name: &str| v1::RuntimeHandler { name: name.to_owned(), features: Some(features) };
        let mut info = v1::StatusResponse::default().info;
        if request.into_inner().verbose {
            let network = network.map_or_else(|error| error.to_string(), |kind| kind.to_string());
            let settings = serde_json::json!({
                "root": self.parts.settings.root, "state": self.parts.settings.state, "network": network,
            });
            info.insert("config".to_owned(), settings.to_string());
        }
        Ok(Response::new(v1::StatusResponse {
            status: Some(v1::RuntimeStatus { conditions }),
            info,
            runtime_handlers: vec![handler(""), handler(NAME)],
            features: Some(v1::RuntimeFeatures { supplemental_groups_policy: true, ..Default::default() }),
        }))
    }

    async fn runtime_config(&self, _: Request<v1::RuntimeConfigRequest>) -> Answered<v1::RuntimeConfigResponse> {
        let linux = v1::LinuxRuntimeConfiguration { cgroup_driver: v1::CgroupDriver::Cgroupfs.into() };
        Ok(Response::new(v1::RuntimeConfigResponse { linux: Some(linux) }))
    }

    /// The range of addresses is the network's own business.
    async fn update_runtime_config(
        &self,
        _: Request<v1::UpdateRuntimeConfigRequest>,
    ) -> Answered<v1::UpdateRuntimeConfigResponse> {
        Ok(Response::new(v1::UpdateRuntimeConfigResponse {}))
    }

    async fn run_pod_sandbox(&self, request: Request<v1::RunPodSandboxRequest>) -> Answered<v1::RunPodSandboxResponse> {
        let v1::RunPodSandboxRequest { config, runtime_handler } = request.into_inner();
        let config = config.ok_or_else(|| Status::invalid_argument("the sandbox has no configuration"))?;
        let run = |engine: Self| async move { engine.run_sandbox(config, &runtime_handler).await };
        let pod_sandbox_id = self.to_the_end(run).await?;
        Ok(Response::new(v1::RunPodSandboxResponse { pod_sandbox_id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> Answered<v1::StopPodSandboxResponse> {
        self.stop_sandbox(&request.into_inner().pod_sandbox_id).await?;
        Ok(Response::new(v1::StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> Answered<v1::RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.to_the_end(|engine| async move { engine.remove_sandbox(&id).await }).await?;
        Ok(Response::new(v1::RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> Answered<v1::PodSandboxStatusResponse> {
        let request = request.into_inner();
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        let mut info = v1::PodSandboxStatusResponse::default().info;
        if request.verbose {
            info.insert("info".to_owned(), serde_json::json!({ "pid": sandbox.pause_pid() }).to_string());
        }
        let containers = self.containers_of(&sandbox.id);
        Ok(Response::new(v1::PodSandboxStatusResponse {
            status: Some(sandbox.status()),
            info,
            containers_statuses: containers.iter().map(|container| container.status(&sandbox)).collect(),
            timestamp: now(),
        }))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> Answered<v1::ListPodSandboxResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let passes = |sandbox: &v1::PodSandbox| {
            sandbox.id.starts_with(&filter.id)
                && filter.state.as_ref().is_none_or(|state| state.state == sandbox.state)
                && selects(&filter.label_selector, &sandbox.labels)
        };
        let items = self.sandboxes().iter().map(|sandbox| sandbox.listed()).filter(passes).collect();
        Ok(Response::new(v1::ListPodSandboxResponse { items }))
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<v1::UpdatePodSandboxResourcesRequest>,
    ) -> Answered<v1::UpdatePodSandboxResourcesResponse> {
        let v1::UpdatePodSandboxResourcesRequest { pod_sandbox_id, resources, .. } = request.into_inner();
        self.update_sandbox(&pod_sandbox_id, resources.unwrap_or_default()).await?;
        Ok(Response::new(v1::UpdatePodSandboxResourcesResponse {}))
    }

    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> Answered<v1::CreateContainerResponse> {
        let v1::CreateContainerRequest { pod_sandbox_id, config, .. } = request.into_inner();
        let config = config.ok_or_else(|| Status::invalid_argument("the container has no configuration"))?;
        let create = |engine: Self| async move { Engine::create_container(&engine, &pod_sandbox_id, config).await };
        let container_id = self.to_the_end(create).await?;
        Ok(Response::new(v1::CreateContainerResponse { container_id }))
    }

    async fn start_container(
        &self,
        request: Request<v1::StartContainerRequest>,
    ) -> Answered<v1::StartContainerResponse> {
        let id = request.into_inner().container_id;
        self.to_the_end(|engine| async move { Engine::start_container(&engine, &id).await }).await?;
        Ok(Response::new(v1::StartContainerResponse {}))
    }

    async fn stop_container(&self, request: Request<v1::StopContainerRequest>) -> Answered<v1::StopContainerResponse> {
        let v1::StopContainerRequest { container_id, timeout } = request.into_inner();
        let grace = Duration::from_secs(u64::try_from(timeout).unwrap_or_default());
        Engine::stop_container(self, &container_id, grace).await?;
        Ok(Response::new(v1::StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> Answered<v1::RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        self.to_the_end(|engine| async move { Engine::remove_container(&engine, &id).await }).await?;
        Ok(Response::new(v1::RemoveContainerResponse {}))
    }

    async fn list_containers(
        &self,
        request: Request<v1::ListContainersRequest>,
    ) -> Answered<v1::ListContainersResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let passes = |container: &v1::Container| {
            container.id.starts_with(&filter.id)
                && container.pod_sandbox_id.starts_with(&filter.pod_sandbox_id)
                && filter.state.as_ref().is_none_or(|state| state.state == container.state)
                && selects(&filter.label_selector, &container.labels)
        };
        let containers = self.containers().iter().map(|container| container.listed()).filter(passes).collect();
        Ok(Response::new(v1::ListContainersResponse { containers }))
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> Answered<v1::ContainerStatusResponse> {
        let request = request.into_inner();
        let container = self.container(&request.container_id)?;
        let sandbox = self.sandbox(&container.sandbox)?;
        let mut info = v1::ContainerStatusResponse::default().info;
        if request.verbose {
            let text =
                serde_json::json!({ "sandboxID": container.sandbox, "pid": container.pid().unwrap_or_default() });
            info.insert("info".to_owned(), text.to_string());
        }
        Ok(Response::new(v1::ContainerStatusResponse { status: Some(container.status(&sandbox)), info }))
    }

    async fn update_container_resources(
        &self,
        request: Request<v1::UpdateContainerResourcesRequest>,
    ) -> Answered<v1::UpdateContainerResourcesResponse> {
        let v1::UpdateContainerResourcesRequest { container_id, linux, .. } = request.into_inner();
        self.update_resources(&container_id, linux.unwrap_or_default()).await?;
        Ok(Response::new(v1::UpdateContainerResourcesResponse {}))
    }

    async fn reopen_container_log(
        &self,
        request: Request<v1::ReopenContainerLogRequest>,
    ) -> Answered<v1::ReopenContainerLogResponse> {
        self.reopen_log(&request.into_inner().container_id).await?;
        Ok(Response::new(v1::ReopenContainerLogResponse {}))
    }

    async fn exec_sync(&self, request: Request<v1::ExecSyncRequest>) -> Answered<v1::ExecSyncResponse> {
        let keep = exec::kept_output(request.metadata());
        let v1::ExecSyncRequest { container_id, cmd, timeout } = request.into_inner();
        let timeout = Duration::from_secs(u64::try_from(timeout).unwrap_or_default());
        Ok(Response::new(Engine::exec_sync(self, &container_id, &cmd, timeout, keep).await?))
    }

    async fn exec(&self, request: Request<v1::ExecRequest>) -> Answered<v1::ExecResponse> {
        Ok(Response::new(v1::ExecResponse { url: self.exec_url(request.into_inner()).await? }))
    }

    async fn attach(&self, request: Request<v1::AttachRequest>) -> Answered<v1::AttachResponse> {
        Ok(Response::new(v1::AttachResponse { url: self.attach_url(request.into_inner()).await? }))
    }

    async fn port_forward(&self, request: Request<v1::PortForwardRequest>) -> Answered<v1::PortForwardResponse> {
        Ok(Response::new(v1::PortForwardResponse { url: self.port_forward_url(request.into_inner()).await? }))
    }

    async fn container_stats(
        &self,
        request: Request<v1::ContainerStatsRequest>,
    ) -> Answered<v1::ContainerStatsResponse> {
        let container = self.container(&request.into_inner().container_id)?;
        let stats = Engine::container_stats(self, |one| one.id == container.id).await.pop();
        Ok(Response::new(v1::ContainerStatsResponse { stats }))
    }

    async fn list_container_stats(
        &self,
        request: Request<v1::ListContainerStatsRequest>,
    ) -> Answered<v1::ListContainerStatsResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let stats = Engine::container_stats(self, |container| {
            container.id.starts_with(&filter.id)
                && container.sandbox.starts_with(&filter.pod_sandbox_id)
                && selects(&filter.label_selector, &container.config.labels)
        });
        Ok(Response::new(v1::ListContainerStatsResponse { stats: stats.await }))
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<v1::PodSandboxStatsRequest>,
    ) -> Answered<v1::PodSandboxStatsResponse> {
        let stats = self.sandbox_stats(&request.into_inner().pod_sandbox_id).await?;
        Ok(Response::new(v1::PodSandboxStatsResponse { stats: Some(stats) }))
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<v1::ListPodSandboxStatsRequest>,
    ) -> Answered<v1::ListPodSandboxStatsResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let mut stats = Vec::new();
        for sandbox in self.sandboxes() {
            if sandbox.id.starts_with(&filter.id) && selects(&filter.label_selector, &sandbox.config.labels) {
                // One that went meanwhile uses nothing.
                stats.extend(self.sandbox_stats(&sandbox.id).await.ok());
            }
        }
        Ok(Response::new(v1::ListPodSandboxStatsResponse { stats }))
    }

    async fn get_container_events(&self, _: Request<v1::GetEventsRequest>) -> Answered<EventStream> {
        let events = BroadcastStream::new(self.parts.events.listen());
        // A slow subscriber gets the end of the stream, connects again and lists.
        let events = events.map(|event| event.map_err(|lagged| Status::data_loss(lagged.to_string())));
        Ok(Response::new(Box::pin(events)))
    }
}

/// Whether something with these labels has all that are asked for.
fn selects<'a>(
    wanted: impl IntoIterator<Item = (&'a String, &'a String)>,
    labels: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> bool {
    let labels: BTreeMap<_, _> = labels.into_iter().collect();
    wanted.into_iter().all(|(name, value)| labels.get(name) == Some(&value))
}
